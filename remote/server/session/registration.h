#ifndef RESEAT_REMOTE_SERVER_SESSION_REGISTRATION_H
#define RESEAT_REMOTE_SERVER_SESSION_REGISTRATION_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Host memory that a context's device transfers to and from at its link's speed. Drivers take a
 * buffer over the memory (CL_MEM_USE_HOST_PTR), mapped as long as it is there, as that: see
 * state/object/pinned.c. A driver may copy to the device and back for that, so that nobody else
 * writes there meanwhile.
 */

struct registration {
    const cl_icd_dispatch *cl;
    cl_command_queue queue;
    cl_mem buffer;
    void *map;
};

/** Register memory that is mapped until registration_end(), which is to be called however this
 * went. Blocks. False: the driver does not, for which no command fails. */
bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, cl_device_id device, void *bytes, size_t size);
/** No command uses the memory any more. Blocks. */
void registration_end(const struct registration *registration);

#endif
