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

/** Bytes that a command reads or writes until it ends: of an area, which is held, of staging.h, or
 * of the stream's pool, which long answers are sent from, and long messages lie in; else the
 * heap's. */
struct staged {
    void *bytes; /**< NULL: none. */
    size_t size; /**< What is counted of them as staged. */
    uint32_t area;
    struct staging *staging;
    struct pooled *pooled; /**< Held. */
};

/** A submitted command, allocated with malloc(). */
struct given {
    struct given *previous, *next; /**< Those that have not ended; guarded by pending_lock. */
    unsigned holders;              /**< Guarded by pending_lock, as `ended` and `asked` are. */
    bool ended;
    bool asked;        /**< A callback was requested from its driver. */
    bool own_memory;   /**< Its device has memory of its own. */
    bool asks;         /**< Its event may be queried in a callback. */
    uint64_t given_ns; /**< When. */
    cl_event event;    /**< A reference. */
    struct server *server;
    const cl_icd_dispatch *cl;
    uint64_t id, queue; /**< As the client names them. */
    bool tell, profiled;
    struct pace *pace;
    uint64_t began_ns;
    struct staged staged;
    size_t answer;               /**< Bytes of those, which the client is sent. */
    struct peer_copy *peer_copy; /**< Says how it ended, once the event has; or NULL. */
};

/** Have the client told when a command ends. Takes ownership of @given, but not of the driver's
 *  event. Called by the session's thread. */
void given_see_end(struct given *given);
/**
 * After each message, by the session's thread. Of a session over rings, which spins for the next
 * message anyway, it looks whether commands have ended meanwhile, until one comes, or no longer
 * than pays: to hear of it from a driver's callback takes a GPU's some 20 us longer. A driver is
 * asked for a callback where that did not see the end.
 */
void pending_attend(struct server *server);
/** Release the staged bytes of a command. */
void given_unstage(struct server *server, const struct staged *staged);

#define PENDING_LOOK_LEAST_NS (NS_PER_MS / 50)
#define PENDING_LOOK_MOST_NS  (20 * NS_PER_MS)
/**
 * How long until somebody looks again whether a command has ended that was given so long ago, to a
 * device whose driver may call back late: so its end is seen at most a 64th of its time late.
 */
static inline uint64_t pending_look_after(uint64_t age_ns)
{
    uint64_t after_ns = age_ns / 64;
    return after_ns < PENDING_LOOK_LEAST_NS  ? PENDING_LOOK_LEAST_NS
           : after_ns > PENDING_LOOK_MOST_NS ? PENDING_LOOK_MOST_NS
                                             : after_ns;
}

#endif
