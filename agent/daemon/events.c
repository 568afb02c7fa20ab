#include "agent/daemon/costs/costs.h"
#include "agent/daemon/event_log.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"

/* Calls the parts of the agent that react to changes of connections, programs and devices. */

static void events_peer_closed(struct peer *peer)
{
    operations_cancel(peer, OPERATIONS_ALL, true);
    costs_client_closed(peer);
    programs_disconnect(peer->agent, peer);
}

static void events_devices_listed(struct agent *agent)
{
    losses_listed(agent);
    capacity_update(agent);
    peers_devices_ready(agent);
}

/** The program's blocked calls are dropped: it sends them again when it connects again. */
static void events_program_lost(struct agent *agent, struct program *program)
{
    pending_drop(agent, program);
    tracing_ends(agent, program);
    program->managed.shrinks = false;
    agent->changed = true;
}

static void events_program_removed(struct agent *agent, struct program *program)
{
    event_log_program(agent, program, "ended", "");
    govern_remember(agent, program);
    costs_forget(program);
    serving_ended(agent, program);
    pending_drop(agent, program);
    tracing_ends(agent, program);
    resume_forget(agent, program);
    waiting_ends(agent, program);
}

const struct agent_events agent_events = {
    .message = messages_take,
    .peer_closed = events_peer_closed,
    .devices_listed = events_devices_listed,
    .devices_changed = capacity_update,
    .server_changed = serving_changed,
    .server_leaves = serving_leaves,
    .program_lost = events_program_lost,
    .program_unreachable = asking_unreachable,
    .program_removed = events_program_removed,
};
