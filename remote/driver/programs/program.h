#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H

#include "remote/driver/objects/objects.h"
#include "remote/driver/session/session.h"
#include "state/base/bytes/content_hash.h"
#include "state/opencl/argument.h"

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

/** What the server told of a kernel; kept for as long as the program's build. */
struct kernel_facts {
    struct kernel_facts *next;
    char *name, *attributes;
    cl_uint count;
    struct argument_facts {
        cl_kernel_arg_address_qualifier address; /**< 0: not told. */
        cl_kernel_arg_access_qualifier access;
        cl_kernel_arg_type_qualifier qualifiers;
        char *type, *name;
        enum argument_kind kind;
        size_t size; /**< Of a value; 0: not known. */
    } * arguments;
    struct msg_kernel_group
        *groups; /**< One for each device of the context; size 0: not asked yet. */
};

struct kernel {
    struct handle base;
    struct program *program;
    struct kernel_facts *facts;
    pthread_mutex_t lock;
    bool *set;     /**< Of each argument. */
    size_t *local; /**< Of those in local memory. */
};

struct kernel *kernel_get(cl_kernel kernel);
/** Is there an argument of that number, about which the driver says something? */
cl_int kernel_check_arg_info(const struct kernel *kernel, cl_uint index);
/** Of a whole list. */
void kernel_facts_destroy(struct kernel_facts *facts);
/** What a device says of a kernel. The server is asked once. */
cl_int kernel_group(struct kernel *kernel, const struct device_object *device,
                    struct msg_kernel_group *ret_group);

/** Was it built for some device, and does it have that kernel? */
bool program_is_built(struct program *program);
/** Do the options of its build allow work-groups of different sizes? */
bool program_takes_uneven(struct program *program, const struct device_object *device);
bool program_has_kernel(struct program *program, const char *name);

/* Which of this process's servers have which binaries, so that a binary that many servers need is
 * sent from this host once: the first server gets it from here, and each gives it to the next while
 * it comes. If that fails for any reason, the binary is sent from here. */

struct binary_name {
    unsigned char bytes[CONTENT_HASH_SIZE];
};

/** Does @client's server keep binaries of that size? */
bool binaries_are_kept(const struct client *client, size_t size);

/**
 * Have a server that has the binary give it to @client's server, which lacks it. Blocks for a
 * limited time; also while another thread is having it brought there.
 *
 * Returns whether it is there now. If not, the caller sends it, and reports by binaries_learn() how
 * that went, since others may be waiting for it.
 */
bool binaries_bring(struct client *client, const struct binary_name *name, size_t size);
/**
 * Send it to @client's server, which gives it to others while it comes. That
 * it did not arrive, or is another one, is told when it is named. Blocks on the link.
 */
void binaries_send(struct client *client, const struct binary_name *name,
                   const unsigned char *bytes, size_t size);
/** Report whether the server has the binary. */
void binaries_learn(struct client *client, const struct binary_name *name, bool has);

#endif
