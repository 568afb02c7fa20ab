#ifndef RESEAT_AGENT_SIMULATE_SIM_HOSTS_H
#define RESEAT_AGENT_SIMULATE_SIM_HOSTS_H

#include "agent/simulate/sim_world.h"

/* Host memory, and the links of nodes. */

/** Let it have @bytes of a node's host memory, or more where it has. False where they do not fit.
 */
bool sim_host_take(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes);
/** Let it keep that much of what it has there, and none of another node; SIM_NONE: none. */
void sim_host_keep(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes);
bool sim_host_fits(const struct sim_world *world, uint32_t node, uint64_t bytes);
/** What it spilled, and what it has in host memory anyway. */
uint64_t sim_in_host(const struct sim_world *world, uint32_t task);
/** Bytes of device memory that it has in all. */
uint64_t sim_size(const struct sim_world *world, uint32_t task);
/** How long from now until so much has come from, or is in storage, after what goes before. */
uint64_t sim_store(struct sim_world *world, uint32_t node, uint64_t bytes);
/** The same from one node to another. */
uint64_t sim_send_over(struct sim_world *world, uint32_t from, uint32_t to, uint64_t bytes);

#endif
