#ifndef RESEAT_AGENT_DAEMON_GOVERN_RESUME_H
#define RESEAT_AGENT_DAEMON_GOVERN_RESUME_H

#include "agent/daemon/programs/registry.h"

/*
 * Programs that operators resume and that find no room: they queue as those that the policy
 * suspended do, and the policy resumes them. Who asked waits for that, or not.
 */

struct request;

/**
 * A resume that finds no room now: the program queues, and @client is told when it has a device.
 *
 * @seats  Of those the ones that are suspended.
 * @only   The device of the ledger that it is to go to, or LEDGER_NONE: any.
 * @why    There is no room; one line.
 */
void resume_queue(struct peer *client, struct program *program, size_t seat, unsigned seats,
                  uint32_t only, uint64_t timeout_ms, const char *why);
/** The same, where nobody waits for it. */
void resume_hand_back(struct peer *client, struct program *program, size_t seat, unsigned seats,
                      uint32_t only);
/** Who is to be told that @request of ours ended so, as the last that it waited for; or NULL. */
struct peer *resume_ends(struct agent *agent, const struct request *request, const char *result);
/** Who waits does not any more; @gone: nor is told. */
void resume_cancel(struct agent *agent, const struct peer *client, bool gone);
/** As time passes, and things change. */
void resume_tick(struct agent *agent);
/** @program ended. */
void resume_forget(struct agent *agent, const struct program *program);
void resume_finish(struct agent *agent);

#endif
