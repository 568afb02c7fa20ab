#ifndef RESEAT_AGENT_PROTOCOL_REQUEST_H
#define RESEAT_AGENT_PROTOCOL_REQUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/protocol/protection.h"
#include "agent/protocol/protocol.h"
#include "state/driver/device_key.h"

/** As state/move/move.h has them. */
enum request_fetch { REQUEST_FETCH_AUTO, REQUEST_FETCH_ON_DEMAND, REQUEST_FETCH_WHOLE };
/** How much a program that registered (policy/reseat.h) is asked. */
enum request_manner {
    REQUEST_ASKED,  /**< What it refuses does not happen. */
    REQUEST_TAKEN,  /**< The device is taken away: without its help, if need be. */
    REQUEST_NEEDED, /**< A thread of it waits for this: it is told afterwards. */
};

#define REQUEST_ALL_VDEVS UINT32_MAX

/** What is asked for: the type of the message. */
enum request_verb {
    REQUEST_MOVE,
    REQUEST_SUSPEND,
    REQUEST_RESUME,
    REQUEST_PREWARM,
    REQUEST_CHECKPOINT,
    REQUEST_PROTECT,
    REQUEST_TRACE,
    REQUEST_DRAIN,   /**< Of a device; its program is NULL, as for a rebalance. */
    REQUEST_BALANCE, /**< A drain and a rebalance wait for operations of the policy. */
    REQUEST_VERBS
};
extern const char *const request_verbs[REQUEST_VERBS];
/** The verb of a message; REQUEST_VERBS: it is no such request. */
enum request_verb request_verb(const msgpack_object *map);

/**
 * A move, suspend, resume, prewarm, checkpoint or protection, as a command line says it, the agent
 * passes it on, and the program is given it. Its verb is the type of the message.
 */
struct request {
    char app[PROTOCOL_WORD_MAX]; /**< From a command: the program. */
    uint64_t id;                 /**< To a program: what it answers with. */
    uint32_t vdev;               /**< To a program: or REQUEST_ALL_VDEVS. */
    /** From a command a device's name; to a program its key, and `name` what it is called. */
    char device[DEVICE_KEY_TEXT_MAX];
    char name[PROTOCOL_WORD_MAX];
    uint64_t timeout_ms;      /**< From a command; 0: none. */
    uint64_t deadline_ns;     /**< To a program: CLOCK_MONOTONIC; 0: none. */
    bool dry_run;             /**< Say what would come of it. */
    bool queue;               /**< Of a resume: leave it to the policy. */
    uint64_t max_downtime_ms; /**< 0: as the configuration says. */
    bool strict;              /**< Rather not at all than stopped for longer than that. */
    uint64_t bandwidth;       /**< Bytes a second while the program runs; 0: likewise. */
    bool non_blocking;        /**< The rest of a long launch is done on both devices. */
    enum request_fetch fetch;
    enum request_manner manner;
    char folder[PATH_MAX];        /**< For an image; or "". */
    bool drop;                    /**< Of a prewarm: let go of what was made. */
    uint64_t every_ms;            /**< Of a checkpoint: until the next; 0: there is none. */
    uint64_t keep;                /**< So many images stay; 0: all. */
    bool keeps;                   /**< To a program: another one follows. */
    bool ends;                    /**< None is made any more. */
    uint64_t lease_ms;            /**< It says that it lives; 0: it does not. */
    bool parks;                   /**< Its process is kept (park.h). */
    struct protection protection; /**< Of a protection. */
};

/** MSG_GRANT, MSG_SHRINK and MSG_RETURN: memory of a virtual device. */
struct amount {
    uint32_t vdev; /**< UINT32_MAX: it names none, and is ignored. */
    uint64_t bytes;
    bool said; /**< It has `bytes`. */
};

/** MSG_NOTICE. */
struct program_notice {
    char what[PROTOCOL_WORD_MAX]; /**< NOTICE_... */
    uint32_t vdev;                /**< UINT32_MAX: it is about none. */
    uint64_t in_ns, value;
    bool valued; /**< It has `value`. */
    char text[PROTOCOL_TEXT_MAX];
};

#endif
