#include "agent/daemon/messages/messages.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"

const struct message_handler message_handlers[] = {
    {MSG_HELLO, PEER_UNKNOWN, hello_handle},

    {MSG_STATUS, PEER_PROGRAM, ledger_sync_status},
    {MSG_WISH, PEER_PROGRAM, wish_handle},
    {MSG_NEED, PEER_PROGRAM, pending_take},
    {MSG_RETURN, PEER_PROGRAM, grants_return},
    {MSG_ALIVE, PEER_PROGRAM, alive_handle},
    {MSG_PROGRESS, PEER_PROGRAM, asking_progress},
    {MSG_REPORT, PEER_PROGRAM, asking_report},
    {MSG_SPANS, PEER_PROGRAM, tracing_spans},
    {MSG_COSTS, PEER_PROGRAM, costs_handle},
    {MSG_POWER, PEER_PROGRAM, power_handle},

    {MSG_REGISTER, PEER_CLIENT, register_handle},
    {MSG_DEVICES, PEER_CLIENT, devices_handle},
    {MSG_APPS, PEER_CLIENT, programs_handle},
    {MSG_MOVE, PEER_CLIENT, moving_handle, .device = "device"},
    {MSG_SUSPEND, PEER_CLIENT, moving_handle, .device = "device"},
    {MSG_RESUME, PEER_CLIENT, moving_handle, .device = "device"},
    {MSG_PREWARM, PEER_CLIENT, prewarm_handle, .device = "devices"},
    {MSG_CHECKPOINT, PEER_CLIENT, checkpointing_handle},
    {MSG_PROTECT, PEER_CLIENT, protecting_handle},
    {MSG_SPREAD, PEER_CLIENT, spreading_handle},
    {MSG_TRACE, PEER_CLIENT, trace_handle},
    {MSG_CANCEL, PEER_CLIENT, cancel_handle},
    {MSG_ADJUST, PEER_CLIENT, adjust_handle},
    {MSG_NOTICE, PEER_CLIENT, notice_handle},
    {MSG_LIMIT, PEER_CLIENT, limits_handle, .device = "what", .or_program = true,
     .rights = RIGHT_DEVICES, .deed = "limit a device", .needs = client_names_device},
    {MSG_DRAIN, PEER_CLIENT, rebalance_handle, .device = "device", .rights = RIGHTS_OPERATOR,
     .deed = "drain devices and rebalance programs"},
    {MSG_BALANCE, PEER_CLIENT, rebalance_handle, .rights = RIGHTS_OPERATOR,
     .deed = "drain devices and rebalance programs"},
    {MSG_SERVER, PEER_CLIENT, server_handle, .rights = RIGHT_DEVICES,
     .deed = "add and remove servers", .needs = server_changes},
    {MSG_WAIT, PEER_CLIENT, waiting_handle, .device = "what", .or_program = true},
    {MSG_EVENTS, PEER_CLIENT, events_handle},
    {MSG_EXPLAIN, PEER_CLIENT, explain_handle},
    {MSG_USE, PEER_CLIENT, use_handle, .device = "what", .or_program = true},
    {MSG_PROFILE, PEER_CLIENT, profile_handle},
    {MSG_IMPORT, PEER_CLIENT, import_handle},
    {MSG_AGENT, PEER_CLIENT, agent_handle},
    {MSG_PAGE, PEER_CLIENT, page_handle},
    {MSG_RELOAD, PEER_CLIENT, reload_handle, .rights = RIGHT_AGENT,
     .deed = "have it read its configuration"},
    {MSG_STOP, PEER_CLIENT, stop_handle, .rights = RIGHT_AGENT, .deed = "stop it"},
};
const size_t message_handler_count = ARRAY_SIZE(message_handlers);

static void messages_refuse(struct peer *peer, const msgpack_object *map)
{
    char type[PROTOCOL_WORD_MAX];

    if (peer->role == PEER_UNKNOWN) {
        peer_error(peer, ERR_PROTOCOL, "the first frame must be a hello");
        peer_close(peer);
        return;
    }
    field_string(map, "type", type, sizeof(type));
    peer_error(peer, ERR_PROTOCOL, "the agent knows no request \"%s\"; is it of another release?",
               type);
}

void messages_take(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    const struct message_handler *handler = message_handlers,
                                 *end = handler + message_handler_count;

    if (peer->role == PEER_PROGRAM) {
        if (!peer->program)
            return; /* The program has another connection by now. */
        liveness_heard(agent, peer->program);
    }
    while (handler < end &&
           (handler->from != peer->role || !field_is(&message->root, "type", handler->type)))
        handler++;
    if (handler < end && peer->role == PEER_CLIENT)
        peer->request = field_bool(&message->root, "dry_run", false) ? NULL : handler->type;
    if (handler == end)
        messages_refuse(peer, &message->root);
    else if (!peer_may(peer, handler->rights) &&
             (!handler->needs || handler->needs(peer, &message->root)))
        peer_error(peer, ERR_DENIED, "only %sthe agent's own user and root may %s",
                   handler->rights & RIGHT_AGENT ? "" : "operators, ", handler->deed);
    else if (!handler->device ||
             !client_lists_devices(peer, message, handler->device, handler->or_program))
        handler->handle(peer, message);
    govern_heard(agent);
    power_run(agent);
}
