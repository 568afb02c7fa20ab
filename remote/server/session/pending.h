#ifndef RESEAT_REMOTE_SERVER_SESSION_PENDING_H
#define RESEAT_REMOTE_SERVER_SESSION_PENDING_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/server/session/server.h"
#include "state/base/clock.h"

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

struct peer_copy;

/*
 * Commands that were submitted to a driver and have not ended. The thread that first sees a
 * command's end reports it to the client.
 */

/** The bytes that a command reads or writes, until it ends. They are in an area, which is held, in
 * staging memory, in the stream's pool, or on the heap. */
struct staged {
    void *bytes; /**< NULL: none. */
    size_t size; /**< How much counts as staged. */
    uint32_t area;
    struct staging *staging;
    struct pooled *pooled; /**< Holds a reference. */
};

/** A submitted command, allocated with malloc(). */
struct given {
    struct given *previous, *next; /**< Pending commands; guarded by pending_lock. */
    unsigned holders;              /**< Guarded by pending_lock, as `ended` and `asked` are. */
    bool ended;
    bool asked;        /**< A callback was requested from its driver. */
    bool own_memory;   /**< Its device has memory of its own. */
    bool asks;         /**< Its event may be queried in a callback. */
    uint64_t given_ns; /**< When it was submitted. */
    cl_event event;    /**< A reference. */
    struct server *server;
    const cl_icd_dispatch *cl;
    uint64_t id, queue; /**< The client's ids. */
    bool tell, profiled;
    struct pace *pace;
    uint64_t began_ns;
    struct staged staged;
    size_t answer;               /**< How many of the staged bytes are sent to the client. */
    struct peer_copy *peer_copy; /**< Has the result once the event has completed; or NULL. */
};

/** Have the client told when a command ends. Takes ownership of @given, but not of the driver's
 *  event. Called by the session's thread. */
void given_see_end(struct given *given);
/**
 * Called by the session's thread after each message. A session over rings spins for the next
 * message anyway, and meanwhile checks whether commands have ended, until a message arrives or
 * spinning does not pay any more. A GPU driver's callback would come 20 us later. A callback is
 * requested for commands whose end was not seen.
 */
void pending_attend(struct server *server);
/** Release the staged bytes of a command. */
void given_unstage(struct server *server, const struct staged *staged);

#define PENDING_LOOK_LEAST_NS (NS_PER_MS / 50)
#define PENDING_LOOK_MOST_NS  (20 * NS_PER_MS)
/**
 * How long until the next check of a command that was submitted @age_ns ago to a device whose
 * driver may call back late: the delay stays below 1/64 of the command's time.
 */
static inline uint64_t pending_look_after(uint64_t age_ns)
{
    uint64_t after_ns = age_ns / 64;
    return after_ns < PENDING_LOOK_LEAST_NS  ? PENDING_LOOK_LEAST_NS
           : after_ns > PENDING_LOOK_MOST_NS ? PENDING_LOOK_MOST_NS
                                             : after_ns;
}

#endif
