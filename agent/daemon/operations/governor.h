#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_GOVERNOR_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_GOVERNOR_H

#include "agent/daemon/programs/registry.h"
#include "policy/decide.h"

/*
 * The agent's side of the policy: tells it the world (devices, programs, what waits), and carries
 * out its decisions. Whatever happens sets agent->changed; govern_run() then does what follows.
 */

/** Reads the operator's limits. The configuration is there. Returns 0 or -ENOMEM. */
MUST_CHECK int govern_init(struct agent *agent);
void govern_finish(struct agent *agent);

/** The configuration is another: for devices, and for programs that run. */
void govern_reloaded(struct agent *agent);

/** @program ended: what it needed is kept for `reseat report`. */
void govern_remember(struct agent *agent, const struct program *program);

/** Do what follows from all that happened. */
void govern_run(struct agent *agent);
/** The same for what follows from time. Called a few times a second. */
void govern_tick(struct agent *agent);

/* ---- the world as the policy sees it ---- */

/** The virtual devices of a program that are on one device, or one that is on none: one program to
 *  the policy. */
struct group {
    struct program *program;
    uint32_t vdev;  /**< The first. */
    unsigned vdevs; /**< All, as bits. */
};

struct world {
    struct policy_world policy;
    struct policy_device *devices;
    struct policy_program *programs;
    struct group *groups; /**< What each of `programs` is. */
    uint32_t *queue;
    uint64_t *barred;             /**< Of each program, as many words as there are devices for. */
    struct reseat_limits *offers; /**< Of each device. */
    struct policy_visits *visits; /**< By group. */
};

/** Make the governor's world as things are now. Returns 0 or -ENOMEM. */
MUST_CHECK int world_build(struct agent *agent);
void world_finish(struct world *world);
/** For so long a device counts as full whose driver had no more memory. */
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
/** The program of the world that @vdev of @program is in, or POLICY_NONE. */
uint32_t world_find(const struct world *world, const struct program *program, uint32_t vdev);

/** A program that ended, and what it needed. */
#define ENDED_MAX 32
struct ended {
    uid_t uid;
    char id[32], name[64], device[32];
    uint64_t wanted_peak, held_peak, granted_peak, own, waits, waited_ms;
};

#define GOVERN_MOVES_MAX 1024

/** What the agent keeps for the policy beside programs and the ledger. */
struct governor {
    struct history *histories; /**< Of the ledger's devices. */
    uint32_t history_count;
    struct pending *needs;   /**< In the order in which they came. */
    uint64_t events;         /**< Announcements and wishes, to tell which was first. */
    uint64_t await_until_ms; /**< From then on programs of an agent before are not waited for. */
    uint64_t moved_ms[GOVERN_MOVES_MAX]; /**< When a program was last moved by policy. */
    unsigned moved;
    struct world world;
    struct ended ended[ENDED_MAX];
    unsigned ended_count;
    char state_path[PATH_MAX];
    bool running, automatic;
    uint64_t ticked_ms;
};

/* ---- steps of the policy, carried out: as messages to programs, and as operations ---- */

/** Do one step of the world as it is; false when nothing came of it. */
bool step_do(struct agent *agent, const struct policy_step *step);
/** Have programs return what they do not use of their grants, where @index of the world needs it.
 */
bool step_trim(struct agent *agent, uint32_t index);
/** Have one that has more than its quota give back what is too much. False: there is none. */
bool step_quota(struct agent *agent);

/* ---- devices that a program is kept off for a while, and programs that are left alone ---- */

/** A step of @program failed: leave it alone, for longer each time. */
void exclusions_rest(struct agent *agent, struct program *program);
/** Keep @program off the device for as long as @cause asks for, with @reason for the operator. */
void exclusions_add(struct agent *agent, struct program *program, uint32_t device,
                    enum program_exclusion_cause cause, const char *reason);
/** Whether that still keeps @program off the device. */
bool exclusions_hold(const struct agent *agent, const struct program *program,
                     const struct program_exclusion *exclusion);

#endif
