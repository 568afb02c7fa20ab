#ifndef RESEAT_REMOTE_DRIVER_COMMANDS_TRANSFER_H
#define RESEAT_REMOTE_DRIVER_COMMANDS_TRANSFER_H

#include "remote/driver/objects/objects.h"
#include "state/driver/between.h"

/** Bytes between a buffer and the program's memory, in one run; checked. */
struct transfer {
    cl_command_queue queue;
    struct memory *memory;
    cl_command_type type; /**< CL_COMMAND_READ_BUFFER or CL_COMMAND_WRITE_BUFFER. */
    bool blocking;
    size_t offset, size; /**< More than 0. */
    void *bytes;
    struct bulk_block block; /**< The block that has the bytes to be written; 0 bytes: none. */
    cl_uint count;
    const cl_event *waits;
};

/** Enqueue it: one command of the program's, which may be several of the server's. */
cl_int transfer_run(const struct transfer *transfer, cl_event *event);

/** The function that BETWEEN_NAME names (between_function). */
cl_int CL_API_CALL between_enqueue(cl_command_queue source_queue, cl_command_queue target_queue,
                                   cl_mem source, cl_mem target, size_t source_offset,
                                   size_t target_offset, size_t size, cl_uint wait_count,
                                   const cl_event *waits, cl_event *event);

#endif
