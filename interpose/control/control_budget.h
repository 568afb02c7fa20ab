#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_BUDGET_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_BUDGET_H

#include "agent/protocol/protocol.h"

/*
 * The program's end of the agent's ledger: what it needs beyond what it was granted, and what it
 * gives back (MSG_NEED and the messages around it). Without an agent nobody decides.
 */

/** Be the engine's policy (budget_set_policy). @wake has the control thread call
 * control_budget_serve, from any thread. */
void control_budget_start(void (*wake)(void));
/** The virtual devices have devices now: what the agent granted at first is theirs. */
void control_budget_begin(void);

/*
 * By the control thread.
 */

/** The agent answers from now on; @welcome: its first message. */
void control_budget_connected(const msgpack_object *welcome);
/** Nobody answers for the moment. Called while that is so: an agent that starts again is asked
 *  again, and without one who waits goes on after some seconds. */
void control_budget_alone(void);
/** An agent is looked for anew: who waits for one waits as if it had just gone. */
void control_budget_again(void);
/** True when a need is due: the agent answers it by what the last status said. */
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
