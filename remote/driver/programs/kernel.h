#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_KERNEL_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_KERNEL_H

#include "remote/driver/programs/program.h"
#include "state/opencl/argument.h"

/** What the server told of a kernel; kept for as long as the program's build. */
struct kernel_facts {
    struct kernel_facts *next;
    char *name, *attributes;
    bool described;
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

#endif
