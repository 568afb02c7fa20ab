#ifndef RESEAT_REMOTE_SERVER_LISTENER_WORD_H
#define RESEAT_REMOTE_SERVER_LISTENER_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/bytes/content_hash.h"
#include "state/base/compiler.h"

/*
 * What a session's process and the listening process say to each other, over its channel: one of
 * these a packet. The listening process does not trust the other (a driver may be taken over): what
 * it is told is checked, and is about that session alone.
 */

enum word_kind {
    /* Of the session's process. */
    WORD_USES = 1, /**< It offers the device to its client. */
    WORD_ASK,      /**< Of memory of the device: `least`, or better `bytes`. */
    WORD_RETURN,   /**< It gives `bytes` of that back. */
    WORD_WANT,     /**< It wants a turn on the device (turns.h). */
    WORD_OVER, /**< What it gave the device has ended, and so its turn has. Does it want another? */
    WORD_BUSY, /**< It had commands under way for `ns` more. */
    WORD_KEEP, /**< A binary of that name, which comes along, is kept for its client (kept.h). */
    WORD_SEEK, /**< It wants the one that is kept for its client. */
    WORD_PROCESSES, /**< Here the kernel asks before it starts a process of the session's. */
    WORD_CONNECT,   /**< It wants a process that connects (connector.h), with the socket that comes.
                     */
    /* Of the listening process. */
    WORD_LINK,    /**< Another link, which comes along: its client has `received` frames. */
    WORD_TICKET,  /**< Somebody with a ticket, whom the channel that comes along leads to. */
    WORD_PROMISE, /**< `bytes` of memory; 0: there is not so much. */
    WORD_FREE,    /**< The device has `bytes` that nobody was promised. */
    WORD_YOURS,   /**< The turn, for `ns`. */
    WORD_RECALL,  /**< It ends in `ns`. */
    WORD_LOST,    /**< It went to others. */
    WORD_KEPT,    /**< The binary of that name, which comes along; or there is none. */
    WORD_END,     /**< The session ends, for `why`, an enum ending. */
};

/** Why the listening process ends a session. */
enum ending { ENDED_BY_OPERATOR, ENDED_REVOKED, ENDED_EXPIRED, ENDINGS };
extern const char *const endings[ENDINGS];

struct word {
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
void word_say(int channel, const struct word *word);
/** The same, with a copy of a descriptor. */
void word_say_with(int channel, const struct word *word, int passed);

#endif
