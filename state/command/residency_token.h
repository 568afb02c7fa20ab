#ifndef RESEAT_STATE_COMMAND_RESIDENCY_TOKEN_H
#define RESEAT_STATE_COMMAND_RESIDENCY_TOKEN_H

#include "state/command/command.h"

/*
 * The turn: while one thread has room made for a command no other may have its objects spilled
 * again, until the command was given to the driver. A move ends it.
 *
 * It belongs to a command, not to a thread: a held one may be given to the driver by another thread
 * than had its objects brought.
 */

/** Blocks; outside the gate. */
void residency_token_take(struct command *command);
bool residency_token_has(const struct command *command);
void residency_token_release(struct command *command);

/** Whose it is now; 0: nobody's. */
uint64_t residency_token_current(void);
/** Whose turn @serial is not any more may be anybody's. Any thread. */
void residency_token_release_of(uint64_t serial);

#endif
