#ifndef RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H
#define RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/bytes/content_hash.h"
#include "state/base/compiler.h"

/* Channels between the listening process and sessions' processes: packets of fixed sizes over a
 * pair of SOCK_SEQPACKET sockets, each with at most one descriptor. Thread-safe. */

/** Make a pair of sockets. From the first, only a few packets can be sent before the other end must
 * read. 0 or -errno. */
MUST_CHECK int channel_make(int ret_ends[2]);

/**
 * Send a packet, and a copy of @passed unless that is -1. Never blocks.
 *
 * Returns 0, -EAGAIN (the other end has not read earlier packets), -EPIPE, or -errno.
 */
MUST_CHECK int channel_send(int channel, const void *packet, size_t size, int passed);

/**
 * Receive a packet of exactly @size bytes, if one has arrived. Never blocks.
 *
 * @ret_passed  The descriptor that came with it, close-on-exec, the caller's; -1: none came. NULL:
 *              a packet with a descriptor is an error.
 * Returns 0, -EAGAIN, -EPIPE (the other end is closed), -EPROTO (the packet has another size, or
 * too many descriptors), or -errno.
 */
MUST_CHECK int channel_receive(int channel, void *ret_packet, size_t size, int *ret_passed);

/** Wait until a channel, or any other descriptor, is readable or closed. 0, -ETIMEDOUT or -errno.
 */
MUST_CHECK int channel_wait(int channel, uint64_t deadline_ns);

/*
 * The messages between a session's process and the listening process; one packet has one message.
 * The listening process does not trust the session's process, as a client's code may control it: it
 * checks each message, and a message can only concern the session that sent it.
 */

enum channel_kind {
    /* From the session's process. */
    CHANNEL_USES = 1,  /**< It offers the device to its client. */
    CHANNEL_ASK,       /**< It asks for `bytes` of the device's memory, and can do with `least`. */
    CHANNEL_RETURN,    /**< It returns `bytes` of device memory. */
    CHANNEL_WANT,      /**< It asks for a time slice on the device (devices.h). */
    CHANNEL_OVER,      /**< Its commands on the device have ended, and with them its time slice.
                          `again`: it asks for another. */
    CHANNEL_BUSY,      /**< Its commands ran for another `ns`. */
    CHANNEL_KEEP,      /**< Keep the attached binary under `name` for its client (clients.h). */
    CHANNEL_SEEK,      /**< It asks for the binary that is kept under `name` for its client. */
    CHANNEL_PROCESSES, /**< The attached descriptor is where the kernel asks before it starts a
                          process of the session's. */
    CHANNEL_CONNECT,   /**< Start a process that connects over the attached socket
                          (session/greeting.h). */
    /* From the listening process. */
    CHANNEL_LINK,      /**< The attached socket is the session's new link; its client has received
                          `received` frames. */
    CHANNEL_TICKET,    /**< Somebody with a ticket has connected; the attached channel leads to the
                          process that serves them. */
    CHANNEL_PROMISE,   /**< `bytes` of memory are promised; 0: there is not enough. */
    CHANNEL_FREE,      /**< `bytes` of the device's memory are promised to nobody. */
    CHANNEL_TIMESLICE, /**< The session has the time slice for `ns`. */
    CHANNEL_RECALL,    /**< The time slice ends in `ns`. */
    CHANNEL_LOST,      /**< The time slice went to another session. */
    CHANNEL_KEPT,      /**< The answer to CHANNEL_SEEK; the binary is attached if there is one. */
    CHANNEL_END,       /**< The session must end, for the reason `why` (enum ending). */
};

/** Why the listening process ends a session. */
enum ending { ENDED_BY_OPERATOR, ENDED_REVOKED, ENDED_EXPIRED, ENDINGS };
extern const char *const endings[ENDINGS];

struct channel_message {
    uint32_t kind;
    uint32_t device; /**< Index in the listening process's list (devices.h). */
    union {
        uint64_t bytes, ns, received, why, again;
    };
    uint64_t least;
    unsigned char name[CONTENT_HASH_SIZE]; /**< Content hash of a binary. */
};

/** In a session's process: send a message, and block until there is room for it. The listening
 * process always reads; if it has ended, this process is about to be killed. Thread-safe. */
void channel_tell(int channel, const struct channel_message *message);
/** The same, with a copy of a descriptor. */
void channel_tell_with(int channel, const struct channel_message *message, int passed);

#endif
