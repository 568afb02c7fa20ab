#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_PROGRAM_H

#include "remote/driver/remote.h"

/** For these devices, or, with none, for all of the context's. NULL: no memory. */
struct program *program_make(struct context *context, cl_uint count, const cl_device_id *devices);
/** A device's place among the program's; -1: it is for others. */
int program_device_index(const struct program *program, const struct device_object *device);
/** What was asked for before a build is not of it. The program's lock is held. */
void program_forget_binaries(struct program *program);
/** A list of devices that are all the context's, each once: CL_SUCCESS or CL_INVALID_DEVICE. */
cl_int program_check_devices(const struct context *context, cl_uint count,
                             const cl_device_id *devices);

#endif
