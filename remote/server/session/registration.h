#ifndef RESEAT_REMOTE_SERVER_SESSION_REGISTRATION_H
#define RESEAT_REMOTE_SERVER_SESSION_REGISTRATION_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Host memory that a context's device transfers to and from at its link's speed. Drivers take a
 * buffer over the memory (CL_MEM_USE_HOST_PTR) as that: see state/object/pinned.h. No command uses
 * it, so that it takes no memory of the device.
 */

struct registration {
    const cl_icd_dispatch *cl;
    cl_mem buffer; /**< Or NULL. */
};

/** Register memory that is there until registration_end(), which is to be called however this went.
 * Blocks. False: the driver does not, for which no command fails. */
bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, void *bytes, size_t size);
/** No command uses the memory any more. Blocks. */
void registration_end(const struct registration *registration);

#endif
