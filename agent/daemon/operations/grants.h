#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_GRANTS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_GRANTS_H

#include "agent/daemon/programs/registry.h"

/* Device memory: what programs say that they have, what they are granted, what they wait for, and
 * what operators let them have. */

/* ---- what programs say of what they have, kept in the ledger ---- */

/**
 * Whether what @program says of itself and of devices counts for other programs: it is root's or of
 * the agent's own user. What others hold counts as far as it was granted, and a device that they
 * say is lost, or has no more memory, is so to them alone.
 */
bool ledger_sync_believe(const struct program *program);
/** MSG_STATUS. */
void ledger_sync_status(struct peer *peer, struct message *message);
/** It connected. @first: as never before. Fields go into the open welcome. */
void ledger_sync_welcome(struct agent *agent, struct program *program, bool first,
                         const msgpack_object *hello, struct frame *welcome);
/** Programs of an agent before have yet to say what they have: what is free is not known. */
bool ledger_sync_awaited(const struct agent *agent);

/* ---- bytes that programs are granted, and what they give back of them ---- */

/** MSG_GRANT, and so much more in the entry of @vdev. */
void grants_add(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes);
/** MSG_SHRINK: @vdev is to keep to @bytes in all, and has so long to say what it gives. @trims:
 *  it is asked only for what it does not use. */
void grants_shrink(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes,
                   uint64_t patience_ms, bool trims);
/** A shrink whose time is over: nothing came back. A program that withheld may be asked again. */
void grants_tick(struct agent *agent);
/** MSG_RETURN. */
void grants_return(struct peer *peer, struct message *message);

/** A thread of a program that is blocked until there is room. */
struct pending {
    struct pending *next;
    struct program *program;
    uint32_t vdev;
    uint64_t id;
    uint64_t total;         /**< Bytes that it must be granted in all. */
    uint64_t least, wanted; /**< As MSG_NEED says. */
    bool owns;              /**< It needs them for what it has already. */
    bool failed;            /**< The driver had no more, whatever was granted. */
    uint64_t ticket;
    uint64_t since_ms;
};

/** MSG_NEED. */
void pending_take(struct peer *peer, struct message *message);
/** The oldest of those of @program on those virtual devices (as bits), or NULL. */
struct pending *pending_of(const struct agent *agent, const struct program *program,
                           unsigned vdevs);
/** Its turn begins when that of @pending did, or now where there is none (NULL). */
void pending_queue(struct agent *agent, const struct pending *pending, struct program_device *vdev);
/** Tell the program how its call goes on (WAY_...), and forget it. */
void pending_reply(struct agent *agent, struct pending *pending, const char *way,
                   const char *reason);
/** Answer what @program waits for on those virtual devices. */
void pending_answer(struct agent *agent, const struct program *program, unsigned vdevs,
                    const char *way, const char *reason);
/** All of @program, or of everyone with NULL, unanswered. */
void pending_drop(struct agent *agent, const struct program *program);

/*
 * What operators set: the memory of a device that programs may have, devices that are drained, and
 * how much one program may have. That of devices is kept in a file, that of programs with them.
 */

/** Returns 0, or -errno: none hold. Blocks on the file, as limits_save(). */
int limits_load(struct agent *agent);
MUST_CHECK int limits_save(const struct agent *agent);
void limits_handle(struct peer *client, struct message *message);
/** What @program may have on a device: its limit, or what it could not go on without if that is
 *  more. */
uint64_t limits_quota(const struct program *program);
/** The list of devices, or the configuration, is another: what programs may have is kept with it,
 *  and they are told what there is more of. */
void capacity_update(struct agent *agent);

#endif
