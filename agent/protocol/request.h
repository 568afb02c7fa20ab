#ifndef RESEAT_AGENT_PROTOCOL_REQUEST_H
#define RESEAT_AGENT_PROTOCOL_REQUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/protocol/protection.h"
#include "agent/protocol/protocol.h"
#include "policy/costs.h"
#include "state/driver/device_key.h"

/** When the content of memory is copied: enum move_fetch of state/move/move.h. */
enum request_fetch { REQUEST_FETCH_AUTO, REQUEST_FETCH_ON_DEMAND, REQUEST_FETCH_WHOLE };
/** What a program that registered (policy/reseat.h) is asked before a move: enum move_manner. */
enum request_manner {
    REQUEST_ASKED,  /**< It may refuse the move. */
    REQUEST_TAKEN,  /**< Its device is taken away: it is moved even without its help. */
    REQUEST_NEEDED, /**< One of its threads waits for the move: it is told afterwards. */
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
    REQUEST_WAIT,    /**< A client waits for the state of a program or a device. */
    REQUEST_VERBS
};
extern const char *const request_verbs[REQUEST_VERBS];
/** The verb of a message; REQUEST_VERBS: it is no such request. */
enum request_verb request_verb(const msgpack_object *map);

/**
 * A move, suspend, resume, prewarm, checkpoint or protection: a command sends it to the agent, and
 * the agent, completed, to the program. A drain or rebalance is for the agent alone. The verb is
 * the type of the message.
 */
struct request {
    char app[PROTOCOL_WORD_MAX]; /**< From a command: the name of the program. */
    uint64_t id;                 /**< To a program: its answer has the same. */
    uint32_t vdev;               /**< To a program: or REQUEST_ALL_VDEVS. */
    /** From a command a device's name; to a program its key, and `name` what it is called. */
    char device[DEVICE_KEY_TEXT_MAX];
    char name[PROTOCOL_WORD_MAX];
    uint64_t timeout_ms;      /**< From a command; 0: none. */
    uint64_t deadline_ns;     /**< To a program: CLOCK_MONOTONIC; 0: none. */
    bool dry_run;             /**< Only report whether it could be done. */
    bool detach;              /**< The command does not wait for the end. */
    bool queue;               /**< Of a resume: the policy resumes the program later. */
    uint64_t max_downtime_ms; /**< 0: as configured. */
    bool strict;              /**< Undo a move whose pause would be longer. */
    uint64_t bandwidth;       /**< Bytes a second while the program runs; 0: as configured. */
    bool non_blocking;        /**< Both devices run the rest of a long launch. */
    enum request_fetch fetch;
    enum request_manner manner;
    char folder[PATH_MAX];        /**< Where an image is written; or "". */
    bool drop;                    /**< Of a prewarm: release the prewarmed device. */
    uint64_t every_ms;            /**< Of a checkpoint: interval; 0: only one is made. */
    uint64_t keep;                /**< Number of images to retain; 0: all. */
    bool keeps;                   /**< To a program: another checkpoint follows. */
    bool ends;                    /**< End the periodic checkpoints. */
    uint64_t lease_ms;            /**< Duration of the lease that it renews; 0: none. */
    bool parks;                   /**< Park it, for an image of its process (park.h). */
    bool stay;                    /**< Of a drain: only keep new programs away. */
    bool undo;                    /**< Of a drain: admit programs to the device again. */
    uint64_t in_ns;               /**< Of a drain: when it begins, from now on. */
    struct protection protection; /**< Of a protection. */
};

/** MSG_GRANT, MSG_SHRINK and MSG_RETURN: memory of a virtual device. */
struct amount {
    uint32_t vdev; /**< UINT32_MAX: it names none, and is ignored. */
    uint64_t bytes;
    bool said; /**< It has `bytes`. */
};

/** MSG_REGISTER: what `reseat run` says of the program that it is about to execute. */
struct registration {
    char name[64];
    bool named;     /**< The operator chose the name. */
    uint32_t count; /**< Of virtual devices; 0: as many as devices are named. */
    /* What the configuration decides where it is not given here. */
    bool has_priority, has_ways;
    int32_t priority;
    bool preemptible;
    uint32_t ways;   /**< Bits of enum policy_way. */
    uint64_t quota;  /**< Bytes; 0: not given. */
    uint64_t cap_mw; /**< Its power cap; 0: not given. */
    struct protection protect;
    char pinned_to[PROTOCOL_PINNED_MAX]; /**< The only devices that it may use, with commas; "":
                                            all. */
};

/** MSG_TRACE. */
struct trace_request {
    char app[PROTOCOL_WORD_MAX]; /**< From a command: the name of the program. */
    uint64_t duration_ms;        /**< From a command. */
    bool on;                     /**< To a program: begin, or end before the deadline. */
    uint64_t deadline_ns;        /**< To a program: CLOCK_MONOTONIC. */
};

#define COST_ID_SIZE   33 /**< 32 hexadecimal digits. */
#define COST_NAME_SIZE 64

/** What launches of one size of one kernel cost on one device: of MSG_PROFILE and MSG_IMPORT. */
struct cost_line {
    char id[COST_ID_SIZE]; /**< Identifies the kernel on every device. */
    char name[COST_NAME_SIZE];
    bool has_device;
    struct device_key device;
    struct cost_record record;
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
