#ifndef RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H
#define RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/bytes/content_hash.h"
#include "state/base/compiler.h"

/* What a server's processes say to each other: packets of fixed sizes over pairs of SOCK_SEQPACKET,
 * each with one descriptor at most. Thread-safe. */

/** A new pair; the first end can send only a few packets that are not taken. 0 or -errno. */
MUST_CHECK int channel_make(int ret_ends[2]);

/**
 * Send a packet, and a copy of a descriptor unless @passed is -1. Never blocks.
 *
 * Returns 0, -EAGAIN (the other end has not taken what was sent before), -EPIPE, or -errno.
 */
MUST_CHECK int channel_send(int channel, const void *packet, size_t size, int passed);

/**
 * Receive a packet of exactly @size bytes, if there is one. Never blocks.
 *
 * @ret_passed  The caller's, close-on-exec; -1: none. NULL: there must be none.
 * Returns 0, -EAGAIN, -EPIPE (the other end is gone), -EPROTO (it was another packet), or -errno.
 */
MUST_CHECK int channel_receive(int channel, void *ret_packet, size_t size, int *ret_passed);

/** Wait until a channel, or any other descriptor, has something to be read, or an end. 0,
 * -ETIMEDOUT or -errno. */
MUST_CHECK int channel_wait(int channel, uint64_t deadline_ns);

/*
 * What a session's process and the listening process say to each other, over its channel: one of
 * these a packet. The listening process does not trust the other (a driver may be taken over): what
 * it is told is checked, and is about that session alone.
 */

enum channel_kind {
    /* Of the session's process. */
    CHANNEL_USES = 1, /**< It offers the device to its client. */
    CHANNEL_ASK,      /**< Of memory of the device: `least`, or better `bytes`. */
    CHANNEL_RETURN,   /**< It gives `bytes` of that back. */
    CHANNEL_WANT,     /**< It wants a time slice on the device (timeslices.h). */
    CHANNEL_OVER, /**< What it gave the device has ended, and so its time slice has. Does it want
                   * another?
                   */
    CHANNEL_BUSY, /**< It had commands under way for `ns` more. */
    CHANNEL_KEEP, /**< A binary of that name, which comes along, is kept for its client (kept.h). */
    CHANNEL_SEEK, /**< It wants the one that is kept for its client. */
    CHANNEL_PROCESSES, /**< Here the kernel asks before it starts a process of the session's. */
    CHANNEL_CONNECT,   /**< It wants a process that connects (relay.h), with the socket that
                        * comes.
                        */
    /* Of the listening process. */
    CHANNEL_LINK,      /**< Another link, which comes along: its client has `received` frames. */
    CHANNEL_TICKET,    /**< Somebody with a ticket, whom the channel that comes along leads to. */
    CHANNEL_PROMISE,   /**< `bytes` of memory; 0: there is not so much. */
    CHANNEL_FREE,      /**< The device has `bytes` that nobody was promised. */
    CHANNEL_TIMESLICE, /**< The time slice, for `ns`. */
    CHANNEL_RECALL,    /**< It ends in `ns`. */
    CHANNEL_LOST,      /**< It went to others. */
    CHANNEL_KEPT,      /**< The binary of that name, which comes along; or there is none. */
    CHANNEL_END,       /**< The session ends, for `why`, an enum ending. */
};

/** Why the listening process ends a session. */
enum ending { ENDED_BY_OPERATOR, ENDED_REVOKED, ENDED_EXPIRED, ENDINGS };
extern const char *const endings[ENDINGS];

struct channel_message {
    uint32_t kind;
    uint32_t device; /**< Its number in the listening process's list (devices.h). */
    union {
        uint64_t bytes, ns, received, why, again;
    };
    uint64_t least;
    unsigned char name[CONTENT_HASH_SIZE]; /**< Of a binary. */
};

/** In a session's process: say it. The listening process always comes to take it, unless it has
 *  ended, and then this one is about to. Thread-safe. */
void channel_tell(int channel, const struct channel_message *message);
/** The same, with a copy of a descriptor. */
void channel_tell_with(int channel, const struct channel_message *message, int passed);

#endif
