#ifndef RESEAT_AGENT_DAEMON_GOVERN_WORLD_H
#define RESEAT_AGENT_DAEMON_GOVERN_WORLD_H

#include "agent/daemon/programs/registry.h"

/* The world as the policy sees it, and whose each of its programs is. */

/** The virtual devices of a program that are on one device, or one that is on none: one program to
 *  the policy. */
struct group {
    struct program *program;
    uint32_t seat;  /**< The first. */
    unsigned seats; /**< All, as bits. */
};

struct world {
    struct policy_world policy;
    struct policy_device *devices;
    struct policy_program *programs;
    struct group *groups;
    uint32_t *queue;
    uint64_t *barred;             /**< Of each program, as many words as there are devices for. */
    struct reseat_limits *offers; /**< Of each device. */
};

/** Make the governor's world as things are now. Returns 0 or -ENOMEM. */
MUST_CHECK int world_build(struct agent *agent);
void world_finish(struct world *world);
/** The program of the world that @seat of @program is in, or POLICY_NONE. */
uint32_t world_find(const struct world *world, const struct program *program, uint32_t seat);

#endif
