#ifndef RESEAT_REMOTE_SERVER_SESSION_STAGING_H
#define RESEAT_REMOTE_SERVER_SESSION_STAGING_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/server/session/server.h"

/*
 * What small reads are read into, unless that is in an area: memory that is registered with the
 * queue's context. To take 4 bytes to other memory, a GPU's driver needs 17 to 44 us in place of 8
 * (H100).
 */

/** What is read of more bytes takes long enough, or comes in areas. */
#define STAGING_MOST ((size_t)4 << 10)

struct staging;

/** Memory for @size bytes that a command of this queue reads, and whom to give it back to. NULL:
 *  there is none, malloc() will do. By the session's thread; blocks for a context's first. */
void *staging_take(const struct entry *queue, uint64_t size, struct staging **ret_staging);
/** From any thread, also a driver's that calls back. */
void staging_give(struct staging *staging, const void *bytes);
/** A context is about to be released. By the session's thread. */
void staging_forget(cl_context context);
/** Give up what was registered with those, once none of it is used: a driver keeps a context for
 *  that. Blocks: again and again, by a thread that clients do not wait for. */
void staging_tidy(void);

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
