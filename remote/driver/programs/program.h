#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H

#include "remote/driver/objects/objects.h"

struct build_state {
    cl_build_status status;
    cl_program_binary_type binary_type;
    size_t globals;
    char *options, *log; /**< Owned. */
};

struct program {
    struct handle base;
    struct context *context;
    struct device_object **devices;
    cl_uint device_count;
    char *source; /**< NULL: made otherwise. */
    size_t source_size;
    unsigned char *il;
    size_t il_size;
    pthread_mutex_t lock;       /**< Guards all below. */
    struct build_state *builds; /**< Of each device. */
    bool building, built;
    size_t kernels;
    char *names;
    struct kernel_facts *facts;
    unsigned kernel_objects;
    unsigned char **binaries;
    size_t *binary_sizes; /**< NULL: not asked. */
    struct destructor *_Atomic destructors;
};

struct program *program_get(cl_program program);
/** A program for these devices; for all of the context's if @count is 0. NULL without memory. */
struct program *program_make(struct context *context, cl_uint count, const cl_device_id *devices);
/** The index of a device among the program's, or -1. */
int program_device_index(const struct program *program, const struct device_object *device);
/** Drop the binaries of the build before. The program's lock is held. */
void program_forget_binaries(struct program *program);
/** Is each device the context's, and named once? CL_SUCCESS or CL_INVALID_DEVICE. */
cl_int program_check_devices(const struct context *context, cl_uint count,
                             const cl_device_id *devices);

/* Answers of interpose/entry/info.txt. */
cl_int program_answer_binaries(struct program *program, const struct info_request *request);
cl_int program_answer_binary_sizes(struct program *program, const struct info_request *request);
cl_int program_answer_kernels(struct program *program, cl_program_info name,
                              const struct info_request *request);

#endif
