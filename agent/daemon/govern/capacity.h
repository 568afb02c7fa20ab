#ifndef RESEAT_AGENT_DAEMON_GOVERN_CAPACITY_H
#define RESEAT_AGENT_DAEMON_GOVERN_CAPACITY_H

#include "agent/daemon/agent.h"
#include "agent/daemon/devices/ledger.h"

/** The list of devices, or the configuration, is another: what programs may have is kept with it,
 *  and they are told what there is more of. */
void capacity_update(struct agent *agent);
/** Tell programs where there is more of a device than @before (bytes, as ledger_lasting()). */
void capacity_notify_more(const struct agent *agent, const struct ledger_device *device,
                          uint64_t before);

#endif
