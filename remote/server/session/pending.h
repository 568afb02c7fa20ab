#ifndef RESEAT_REMOTE_SERVER_SESSION_PENDING_H
#define RESEAT_REMOTE_SERVER_SESSION_PENDING_H

#include "remote/server/session/server.h"
#include "state/base/clock.h"

struct peer_copy;
struct staging;

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
