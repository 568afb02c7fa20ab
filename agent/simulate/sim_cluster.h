#ifndef RESEAT_AGENT_SIMULATE_SIM_CLUSTER_H
#define RESEAT_AGENT_SIMULATE_SIM_CLUSTER_H

#include "agent/simulate/sim_world.h"

/* The cluster's scheduler, which is not ours: which node a program is sent to. */

/** Have it wait for a node. */
void sim_queue_up(struct sim_shared *shared, uint32_t task);
/** Send it to a node where it can start, or have it wait for one. */
void sim_send(struct sim_shared *shared, uint32_t task);
/** Memory of @device is free: those in the cluster's queue may have it. */
void sim_offer(struct sim_world *world, uint32_t device);
/** Look at the queue again in a while. */
void sim_cluster_wait(struct sim_shared *shared);
/** Send those in the queue that can start somewhere. */
void sim_cluster_tick(struct sim_shared *shared);
/** One that has several devices goes to another node, whole. False: none has room. */
bool sim_move_whole(struct sim_world *world, uint32_t task);
/** True where some node has devices for it, once they are free. */
bool sim_is_possible(const struct sim_shared *shared, uint32_t task);

#endif
