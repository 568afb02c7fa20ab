#ifndef RESEAT_AGENT_SIMULATE_SIM_STEPS_H
#define RESEAT_AGENT_SIMULATE_SIM_STEPS_H

#include "agent/simulate/sim_world.h"

/* What the policy decides, carried out. */

/** Carry out a step of the policy, for @asker or SIM_NONE. False: nothing came of it. */
bool sim_carry_out(struct sim_world *world, const struct policy_step *step, uint32_t asker);
/** Ask what to do for one that waits, and do it. Returns whether anything was done. */
bool sim_ask(struct sim_world *world, uint32_t task);
/** Let the policy do all that is to be done of itself. Returns whether anything was. */
bool sim_next(struct sim_world *world);
/** Let it empty a device that drains, where it does. */
void sim_drain(struct sim_world *world, uint32_t device);
/** Memory of @device is free: ask for those it might do for. */
void sim_serve(struct sim_world *world, uint32_t device);
/** The step of a program is done. */
void sim_step_done(struct sim_world *world, uint32_t task);
/** It goes on after a step that is not the policy's. */
void sim_go_on(struct sim_world *world, uint32_t task);
/** It leaves its node, to begin again with what storage has. */
void sim_put_off(struct sim_world *world, uint32_t task);
/** It is over for a program, one way or the other. */
void sim_end(struct sim_world *world, uint32_t task, bool refused);

#endif
