#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_GRANTS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_GRANTS_H

#include "agent/daemon/programs/registry.h"

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
/**
 * True while programs of an earlier agent have not yet reported their memory: the free memory is
 * not known.
 */
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
/**
 * End a shrink request whose time is over with nothing returned. Allow a new one to a program that
 * returned too little before.
 */
void grants_look(struct agent *agent, struct program *program);
/** Handle MSG_RETURN. */
void grants_return(struct peer *peer, struct message *message);

/** A program's thread that is blocked until memory is free. */
struct pending {
    struct pending *next;
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
struct pending *pending_of(const struct agent *agent, const struct program *program,
                           unsigned vdevs);
/** Queue the program from the time when @pending began to wait, or from now (NULL). */
void pending_queue(struct agent *agent, const struct pending *pending, struct program_device *vdev);
/** Tell the program how its call continues (WAY_...), and free @pending. */
void pending_reply(struct agent *agent, struct pending *pending, const char *way,
                   const char *reason);
/** Answer the waiting calls of @program on those virtual devices. */
void pending_answer(struct agent *agent, const struct program *program, unsigned vdevs,
                    const char *way, const char *reason);
/** Drop the waiting calls of @program, or of all programs with NULL, without an answer. */
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
/**
 * The list of devices or the configuration has changed: update the capacities, and tell programs of
 * devices that have more memory.
 */
void capacity_update(struct agent *agent);

#endif
