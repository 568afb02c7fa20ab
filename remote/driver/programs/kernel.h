#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_KERNEL_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_KERNEL_H

#include "remote/driver/remote.h"

/** Of a whole list. */
void kernel_facts_destroy(struct kernel_facts *facts);
/** What a device says of a kernel; asked once. */
cl_int kernel_group(struct kernel *kernel, const struct device_object *device,
                    struct msg_kernel_group *ret_group);

/** Was it built for some device, and does it have that kernel? */
bool program_is_built(struct program *program);
/** Are work-groups of different sizes allowed by how it was built? */
bool program_takes_uneven(struct program *program, const struct device_object *device);
bool program_has_kernel(struct program *program, const char *name);

#endif
