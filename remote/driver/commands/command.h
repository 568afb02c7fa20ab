#ifndef RESEAT_REMOTE_DRIVER_COMMANDS_COMMAND_H
#define RESEAT_REMOTE_DRIVER_COMMANDS_COMMAND_H

#include "remote/driver/objects/objects.h"
#include "state/driver/between.h"

struct queue *queue_get(cl_command_queue queue);

/** Is a transfer of no bytes, or a launch of no work-items, no error? Since OpenCL 2.1 (5.2.2). */
static inline bool queue_takes_empty(const struct queue *queue)
{
    return queue->device->version >= CL_MAKE_VERSION(2, 1, 0);
}

/** A command on its way. */
#define COMMAND_WAITS 16
struct command {
    struct msg_command head;
    struct queue *queue;
    struct event *event; /**< NULL: nobody wants to know. */
    cl_event *ret_event;
    bool blocking;
    cl_uint count;
    const cl_event *waits;
    uint64_t ids[COMMAND_WAITS], *many;
};
/**
 * Begin a command: check its wait list, make its event and lock the queue. After success the caller
 * posts the command's message and calls command_end() with the result.
 *
 * @after_all  The command ends after everything that its queue has now.
 */
cl_int command_begin(struct command *command, cl_command_queue queue, cl_command_type type,
                     bool blocking, bool after_all, cl_uint count, const cl_event *waits,
                     cl_event *event);
/** The same for a transfer, which has an event in any case: it says where the bytes that are read
 * go, and when a block (session.h) is free again. */
cl_int command_begin_transfer(struct command *command, cl_command_queue queue, cl_command_type type,
                              cl_bool blocking, cl_uint count, const cl_event *waits,
                              cl_event *event);
/** After beginning a transfer, before posting it: say where the bytes that it reads go. The server
 * writes them there if it shares that memory, else into a block, else they come in the reply. */
void command_aim(struct command *command, void *target, const struct layout *layout);
/**
 * The same for the bytes that a transfer writes. The server takes them from there if it shares that
 * memory, else from a block that they are copied to, else from the message.
 *
 * @ret_content  For the message; NULL: the message has none.
 * @ret_owned    To be freed after the message was posted.
 * Returns CL_OUT_OF_HOST_MEMORY or CL_SUCCESS.
 */
cl_int command_fill(struct command *command, const void *source, const struct layout *layout,
                    const void **ret_content, size_t *ret_size, void **ret_owned);
/** The same for bytes that are in a block already. The command takes the block. */
void command_use_block(struct command *command, struct bulk_block *block);
/** Enqueue a transfer or fill of no bytes: a marker, of that type. */
cl_int command_enqueue_nothing(cl_command_queue queue, cl_command_type type, bool blocking,
                               cl_uint count, const cl_event *waits, cl_event *event);
/** Post a command that does nothing, and ends after what it waits for. */
cl_int command_post_nothing(const struct command *command);
cl_int command_end(struct command *command, cl_int error);

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
