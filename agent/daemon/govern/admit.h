#ifndef RESEAT_AGENT_DAEMON_GOVERN_ADMIT_H
#define RESEAT_AGENT_DAEMON_GOVERN_ADMIT_H

#include "agent/daemon/programs/registry.h"

/* Room for what operators ask, and what becomes of room that was kept when a request ends. */

struct request;

/**
 * Keep room for a move or a resume to @target (of the inventory).
 *
 * @request  Its program, seats and dry_run are set; what is granted is added.
 * Returns 0, or -ENOSPC or -EBUSY (the device drains) with one line for the operator.
 */
MUST_CHECK int admit_request(struct agent *agent, struct request *request,
                             const struct inventory_entry *target, char *ret_error, size_t size);
/**
 * A request ended, however that was, and is not in agent->requests any more.
 *
 * @moved    The seats, as bits, that are where they should be.
 * @result   RESULT_...
 * @lasting  It would fail there again for as long as the program has what it has.
 */
void admit_settle(struct agent *agent, const struct request *request, unsigned moved,
                  const char *result, const char *reason, bool lasting);

#endif
