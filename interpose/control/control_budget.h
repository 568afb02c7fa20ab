#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_BUDGET_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_BUDGET_H

#include "interpose/control/control_frames.h"

/*
 * The program's end of the agent's ledger: what it needs beyond what it was granted, and what it
 * gives back (MSG_NEED and the messages around it). Without an agent nobody decides.
 */

/** Become the engine's policy (budget_set_policy). @wake makes the control thread call
 * control_budget_serve; called on any thread. */
void control_budget_start(void (*wake)(void));
/** The virtual devices have devices now: give them the agent's initial grants. */
void control_budget_begin(void);

/* The following are called by the control thread. */

/** An agent is connected. @welcome: its first message. */
void control_budget_connected(const struct control_welcome *welcome);
/** No agent is connected. Called again and again while that is so: needs are sent to an agent that
 * starts again, and without one the waiting threads continue after some seconds. */
void control_budget_alone(void);
/** An agent is sought anew: waiting threads wait as long as if it had just disconnected. */
void control_budget_again(void);
/** True when a need will be sent: a status has to be sent before it, because the agent decides by
 * the last status. */
bool control_budget_needs(void);
/** Give every message that is due to @send, which finishes it. False when calls of the program
 * wait, or the program @waits as a whole, and the agent has not answered for so long that it is
 * taken for hung: they go on without it. */
bool control_budget_serve(bool waits, void *data, void (*send)(void *data, struct frame *frame));
/** The agent said something, whatever it was. */
void control_budget_heard(void);
/** MSG_ANSWER, MSG_GRANT, MSG_SHRINK. */
void control_budget_answer(const msgpack_object *map);
void control_budget_granted(const msgpack_object *map);
void control_budget_shrink(const msgpack_object *map);

#endif
