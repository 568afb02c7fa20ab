#ifndef RESEAT_AGENT_SIMULATE_SIM_NODES_H
#define RESEAT_AGENT_SIMULATE_SIM_NODES_H

#include "agent/simulate/sim_world.h"

/* Nodes come and go, and what is saved before. */

void sim_nodes_start(struct sim_world *world);
void sim_on_node(struct sim_world *world, uint32_t node);
/** Save the work of a program, which stands meanwhile; @leaves: and end it here. */
void sim_save(struct sim_world *world, uint32_t task, bool leaves);
/** It is in storage. */
void sim_saved(struct sim_world *world, uint32_t task);

#endif
