#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_GOVERNOR_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_GOVERNOR_H

#include "agent/daemon/programs/registry.h"
#include "policy/decide.h"

/*
 * Connects the agent with the policy: describes devices, programs and waiting calls to it, and
 * carries out its decisions. Every event sets agent->changed; govern_run() then applies the policy.
 */

/** Read the operator's limits. The configuration must be loaded. Returns 0 or -ENOMEM. */
MUST_CHECK int govern_init(struct agent *agent);
void govern_finish(struct agent *agent);

/** The configuration has changed: apply it to devices and to running programs. */
void govern_reloaded(struct agent *agent);

/** @program ended: keep its memory use for `reseat report`. */
void govern_remember(struct agent *agent, const struct program *program);

/** Apply the policy to everything that has happened. */
void govern_run(struct agent *agent);
/** A message was handled: apply the policy now, or where many came, with the next govern_tick(). */
void govern_heard(struct agent *agent);
/** Do the timed work of the policy. Called a few times a second. */
void govern_tick(struct agent *agent);

/* The world as the policy sees it. */

/** Virtual devices of a program on one device, or one on none: one program to the policy. */
struct group {
    struct program *program;
    uint32_t vdev;  /**< The first of them. */
    unsigned vdevs; /**< Bits: all of them. */
};

struct world {
    struct policy_world policy;
    struct policy_device *devices;
    struct policy_program *programs;
    struct group *groups; /**< The group of each of `programs`. */
    uint32_t *queue;
    uint32_t *turns;              /**< Of each program that queues: see world_put_queue(). */
    uint64_t *barred;             /**< For each program a bit set over devices. */
    struct reseat_limits *offers; /**< One for each device. */
    const struct inventory_entry **entries; /**< Of each device, while the world is built. */
    struct policy_visits *visits;           /**< One for each group. */
    bool capped;                            /**< A power cap may keep a program off a device. */
};

/** Describe the present state for the policy. Returns 0 or -ENOMEM. */
MUST_CHECK int world_build(struct agent *agent);
void world_finish(struct world *world);
/** How long a device counts as full after its driver refused an allocation. */
#define TIGHT_MS 30000
/**
 * To be called before the policy answers the program at @index, and world_unfill() after that. To a
 * program that is not believed (ledger_sync_believe()) and whose driver had no more memory, its
 * device is full for TIGHT_MS; to no other.
 *
 * Returns what world_unfill() is given.
 */
uint64_t world_fill(const struct agent *agent, uint32_t index);
void world_unfill(struct world *world, uint32_t index, uint64_t memory);
/** The index of the group in the world that contains @vdev of @program, or POLICY_NONE. */
uint32_t world_find(const struct world *world, const struct program *program, uint32_t vdev);

/** A program that ended, and the memory that it needed. */
#define ENDED_MAX 32
struct ended {
    uid_t uid;
    char id[32], name[64], device[32];
    uint64_t wanted_peak, held_peak, granted_peak, own, waits, waited_ms;
};

#define GOVERN_MOVES_MAX 1024

/** The agent's state for the policy, in addition to programs and the ledger. */
struct governor {
    struct history *histories; /**< One for each device of the ledger. */
    uint32_t history_count;
    unsigned waiting; /**< Calls of all programs that are blocked until memory is free. */
    /** Sequence number of announcements and wishes, which gives their order. */
    uint64_t events;
    /** From this time on, programs of an earlier agent are no longer waited for. */
    uint64_t await_until_ms;
    uint64_t moved_ms[GOVERN_MOVES_MAX]; /**< When programs were last moved by the policy. */
    unsigned moved;
    struct world world;
    struct ended ended[ENDED_MAX];
    unsigned ended_count;
    char state_path[PATH_MAX];
    bool running, automatic;
    bool looks;   /**< Something has happened: programs are looked at before the second is over. */
    bool stirred; /**< A message came, or the policy acted, since the policy ran on a tick. */
    uint64_t stirred_ms; /**< The tick before which that was the case for the last time. */
    uint64_t ticked_ms, automatic_ms; /**< The last tick, and the last on which the policy ran. */
    uint64_t passes;                  /**< Number of times that the world was described. */
    uint64_t spent_ns;                /**< For messages since the last govern_tick(). */
};

/* The policy's steps, carried out as messages to programs and as operations. */

/** Carry out one step. False when it had no effect. */
bool step_do(struct agent *agent, const struct policy_step *step);
/** Ask programs to return unused grants, where the program at @index of the world needs memory. */
bool step_trim(struct agent *agent, uint32_t index);
/** Ask a program that has more than its quota to return the excess. False: there is none. */
bool step_quota(struct agent *agent);

/* Devices that a program may not use for a while, and programs that are left alone for a while. */

/** A step of @program failed: begin no step for it for a time, which grows with each failure. */
void exclusions_rest(struct agent *agent, struct program *program);
/** Exclude @program from the device for a time by @cause; @reason is for the operator. */
void exclusions_add(struct agent *agent, struct program *program, uint32_t device,
                    enum program_exclusion_cause cause, const char *reason);
/** True while the exclusion keeps @program off the device. */
bool exclusions_hold(const struct agent *agent, const struct program *program,
                     const struct program_exclusion *exclusion);

/*
 * Device memory: what programs report to hold, what they are granted, what they wait for, and the
 * limits that operators set.
 */

/* Programs' reports of the memory that they hold, kept in the ledger. */

/**
 * True when the reports of @program on itself and on devices count for other programs: its user is
 * root or the agent's own user. For other users, memory counts only up to the grant, and a device
 * that they report as lost or full is lost or full only for them.
 */
bool ledger_sync_believe(const struct program *program);
/** Handle MSG_STATUS. */
void ledger_sync_status(struct peer *peer, struct message *message);
struct welcome;
/** A program has connected. @first: for the first time. Adds its first grants to the welcome. */
void ledger_sync_welcome(struct agent *agent, struct program *program, bool first,
                         const msgpack_object *hello, struct welcome *ret_welcome);
/** True while programs of an earlier agent have not reported: free memory is unknown. */
bool ledger_sync_awaited(const struct agent *agent);

/* Grants of memory to programs, and memory that they return. */

/** Send MSG_GRANT, and add the bytes to the entry of @vdev. */
void grants_add(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes);
/**
 * Send MSG_SHRINK: @vdev is to keep @bytes at most in all, and has a limited time to report what it
 * returns. @trims: it is asked only for memory that it does not use.
 */
void grants_shrink(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes,
                   uint64_t patience_ms, bool trims);
/** End a shrink request that is late; allow one to a program that returned too little. */
void grants_look(struct agent *agent, struct program *program);
/** Handle MSG_RETURN. */
void grants_return(struct peer *peer, struct message *message);

/** A program's thread that is blocked until memory is free. */
struct pending {
    struct pending *next; /**< Of the same program, in order of arrival. */
    struct program *program;
    uint32_t vdev;
    uint64_t id;
    uint64_t total;         /**< Bytes that must be granted in all. */
    uint64_t least, wanted; /**< As in MSG_NEED. */
    bool owns;              /**< It needs them for objects that it already has. */
    bool failed;            /**< The driver had no more memory, although the bytes were granted. */
    uint64_t ticket;
    uint64_t since_ms;
};

/** Handle MSG_NEED. */
void pending_take(struct peer *peer, struct message *message);
/** The oldest waiting call of @program on those virtual devices (bits), or NULL. */
struct pending *pending_of(const struct program *program, unsigned vdevs);
/** Queue the program from the time when @pending began to wait, or from now (NULL). */
void pending_queue(struct agent *agent, const struct pending *pending, struct program_device *vdev);
/** Tell the program how its call continues (WAY_...), and free @pending. */
void pending_reply(struct agent *agent, struct pending *pending, const char *way,
                   const char *reason);
/** Answer the waiting calls of @program on those virtual devices. */
void pending_answer(struct agent *agent, const struct program *program, unsigned vdevs,
                    const char *way, const char *reason);
/** Drop the waiting calls of @program without an answer. */
void pending_drop(struct agent *agent, const struct program *program);

/*
 * Operators' settings: the memory of a device that programs may use, drained devices, and the
 * memory that one program may have. The settings of devices are kept in a file, those of programs
 * with the program.
 */

/** Returns 0, or -errno: no limits apply. Blocks on the file, as limits_save() does. */
int limits_load(struct agent *agent);
MUST_CHECK int limits_save(const struct agent *agent);
/**
 * Store the changed settings of @device. On failure restore @before, and tell the client why @what
 * ("the limit of gpu0") could not be set; returns false.
 */
bool limits_keep(struct peer *client, struct ledger_device *device,
                 const struct ledger_device *before, const char *what);
/** The limit of a device or a program, as a client is told of it. */
struct limit_answer {
    const struct program *program; /**< NULL: it is of `device`. */
    const char *device;            /**< Its name; or NULL. */
    bool memory, power;            /**< Which limit it is. */
    bool limited;
    uint64_t bytes, capacity, granted, held, least;
    uint64_t cap_mw;
};
void limits_handle(struct peer *client, struct message *message);
/**
 * Bytes that virtual devices @vdevs of @program may have on one device: its limit, or the least
 * with which they can continue if that is more; but no more than program_user_left().
 */
uint64_t limits_quota(const struct agent *agent, const struct program *program, unsigned vdevs);
/** Devices or the configuration changed: update capacities, tell programs of more memory. */
void capacity_update(struct agent *agent);

#endif
