#ifndef RESEAT_TESTS_FUZZ_AGENT_WORLD_H
#define RESEAT_TESTS_FUZZ_AGENT_WORLD_H

#include "agent/daemon/agent.h"
#include "tests/fuzz/fuzz.h"

/* What is around the agent in its harness: processes, time, the lister, a kernel that is slow. */

/** An agent that listens in the harness' folder. @kind  What an earlier agent left there. */
struct agent *world_begin(uint8_t kind);
void world_end(struct agent *agent);

/** Who the next one to connect is: one of a few processes of two users. */
void world_next_peer(uint8_t who);
/** A process ends, and its number is taken by another; or one that ended is there again. */
void world_kill(uint8_t who);
void world_pass(uint64_t milliseconds);
/** From now on peers do not (or do) read. */
void world_stuff(bool stuffed);
/** The helper that lists devices ends, with a list or a failure. Nothing where none runs. */
void world_lister_ends(struct agent *agent, struct input *input);
/** The key of a device, listed or not. @ret_text  Of DEVICE_KEY_TEXT_MAX. */
void world_key(uint8_t which, char *ret_text);

#endif
