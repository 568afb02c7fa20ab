#ifndef RESEAT_REMOTE_SERVER_SESSION_STAGING_H
#define RESEAT_REMOTE_SERVER_SESSION_STAGING_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/server/session/server.h"

/*
 * Memory, registered with the queue's context, that receives small reads which do not go to a
 * shared area. To read 4 bytes takes a GPU's driver 8 us with registered memory and 17 to 44 us
 * with other memory (H100).
 */

/** The largest read that uses staging. For larger reads the saving is small, or they use areas. */
#define STAGING_MOST ((size_t)4 << 10)

struct staging;

/** Take memory for @size bytes that a command of this queue reads; return it to *ret_staging with
 *  staging_give(). Returns NULL if there is none: use malloc() instead. Called by the session's
 *  thread. Blocks when it registers the memory for a context's first read. */
void *staging_take(const struct entry *queue, uint64_t size, struct staging **ret_staging);
/** Return memory of staging_take(). May be called from any thread, and in a driver's callback. */
void staging_give(struct staging *staging, const void *bytes);
/** Stop using a context that is about to be released. Called by the session's thread. */
void staging_forget(cl_context context);
/** Free the memory of the contexts given to staging_forget(), where no command uses it any more. A
 *  driver keeps a context as long as memory is registered with it. Blocks. Called repeatedly, by a
 *  thread that clients do not wait for. */
void staging_tidy(void);

/*
 * Host memory registered with a context, which the context's device accesses at the full speed of
 * its bus. To register memory, create a buffer over it with CL_MEM_USE_HOST_PTR: see
 * state/object/pinned.h. No command uses that buffer, so it occupies no device memory.
 */

struct registration {
    const cl_icd_dispatch *cl;
    cl_mem buffer; /**< Or NULL. */
};

/** Register memory, which must stay mapped until registration_end(). The caller must call that one
 * after a failure, too. Blocks. Returns false if the driver does not register the memory; transfers
 * still work, but are slower. */
bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, void *bytes, size_t size);
/** End the registration. No command may use the memory any more. Blocks. */
void registration_end(const struct registration *registration);

#endif
