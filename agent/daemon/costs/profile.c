#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs_priv.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/power/power.h"
#include "agent/protocol/common_messages.h"

/* Answers `reseat profile`, and takes what it imports. */

static void profile_put(const struct agent *agent, const struct cost_listed *listed,
                        struct frame *frame)
{
    struct cost_line line = {.has_device = device_key_parse(listed->device, &line.device) == 0};
    uint32_t index = line.has_device ? costs_device(agent, &line.device) : LEDGER_NONE;

    memcpy(line.id, listed->id, sizeof(line.id));
    memcpy(line.name, listed->name, sizeof(line.name));
    cost_record_of(&listed->point, &line.record);
    frame_map(frame, NULL);
    frame_string(frame, "device",
                 index == LEDGER_NONE ? line.device.device : agent->ledger.devices[index].name);
    put_cost(frame, &line);
    if (line.record.power_samples_k)
        frame_bool(frame, "power_model", power_is_modelled(agent, index));
    frame_end(frame);
}

void profile_answer(const struct agent *agent, const struct cost_query *query, int result)
{
    struct frame frame;

    if (!query->answered || (query->imports && (!query->added || result != SQLITE_OK))) {
        peer_error(query->client, ERR_FAILED, "the file of costs cannot be %s now%s",
                   query->imports ? "written" : "read",
                   query->added     ? "; what was imported is known until the agent ends"
                   : query->imports ? ", and there is no room in memory for what was to be imported"
                                    : "");
        return;
    }
    if (query->imports) {
        frame_init(&frame, MSG_IMPORT);
        put_imported(&frame, query);
        peer_send(query->client, &frame);
        return;
    }
    frame_init(&frame, MSG_PROFILE);
    frame_array(&frame, "costs");
    for (size_t i = 0; i < query->count; i++)
        profile_put(agent, &query->listed[i], &frame);
    frame_end(&frame);
    put_profiled(&frame, query);
    peer_send(query->client, &frame);
}

/* Select the kernels of a query: @what is the name of a program, of a device, or of a kernel. */
static void profile_choose(const struct agent *agent, const struct peer *client, const char *what,
                           struct cost_query *query)
{
    const struct program *found = NULL;
    size_t used = 0;

    for (const struct program *program = agent->programs; program; program = program->next)
        if (strcmp(program->name, what) == 0 && peer_sees(client, program->uid))
            found = program;
    if (found) {
        const struct program_costs *costs = found->costs;
        query->uid = found->uid;
        used += (size_t)snprintf(query->ids, sizeof(query->ids), "[");
        for (uint32_t i = 0; costs && i < costs->count; i++)
            used += (size_t)snprintf(query->ids + used, sizeof(query->ids) - used, "%s\"%s\"",
                                     i ? "," : "", costs->uses[i].id);
        snprintf(query->ids + used, sizeof(query->ids) - used, "]");
        return;
    }
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct inventory_entry *entry = devices_entry(agent, i);
        if (!entry || strcmp(entry->name, what) != 0)
            continue;
        device_key_format(&entry->key, query->device);
        return;
    }
    snprintf(query->kernel, sizeof(query->kernel), "%s", what);
}

/* Create a query. Returns NULL after sending the client an error. */
static struct cost_query *profile_query(struct peer *client)
{
    bool ends = uv_is_closing((const uv_handle_t *)&client->agent->costs->ended);
    struct cost_query *query = ends ? NULL : calloc(1, sizeof(*query));

    if (query)
        *query = (struct cost_query){.client = client, .uid = client->uid};
    else
        peer_error(client, ERR_FAILED, ends ? "the agent ends" : "out of memory");
    return query;
}

/* Queue a query, answered after the store's current job and the dirty entries. */
static void profile_ask(struct agent *agent, struct cost_query *query)
{
    query->next = agent->costs->waiting;
    agent->costs->waiting = query;
    costs_start(agent);
}

void profile_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    struct cost_query *query = profile_query(client);
    char what[COST_NAME_SIZE] = "";

    if (!query)
        return;
    query->most = PROTOCOL_COSTS_MAX;
    query->skip = message_number(&message->root, "skip", COST_POINTS_MOST);
    field_text(&message->root, "what", what, sizeof(what));
    if (what[0])
        profile_choose(agent, client, what, query);
    profile_ask(agent, query);
}

/* Returns false if @item is not a valid record. */
static bool import_read(const msgpack_object *item, struct cost_line *ret_line,
                        struct costs *ret_costs)
{
    *ret_line = (struct cost_line){.has_device = false};
    take_cost(item, ret_line);
    return ret_line->has_device && strlen(ret_line->id) == COST_ID_SIZE - 1 && ret_line->name[0] &&
           costs_read_record(&ret_line->record, ret_costs);
}

void import_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    const msgpack_object *items;
    size_t count = field_array(&message->root, "costs", &items);
    struct cost_line line;
    struct costs costs;

    if (!count || count > PROTOCOL_COSTS_MAX) {
        peer_error(client, ERR_USAGE, "%zu entries; 1 to %d are taken at a time", count,
                   PROTOCOL_COSTS_MAX);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!import_read(&items[i], &line, &costs)) {
            peer_error(client, ERR_USAGE, "entry %zu is not what a launch costs", i);
            return;
        }
    }
    struct cost_query *query = profile_query(client);
    if (!query)
        return;
    query->imports = true;
    for (size_t i = 0; i < count; i++) {
        (void)import_read(&items[i], &line, &costs);
        struct cost_entry *entry =
            costs_change(agent->costs, client->uid, line.id, line.name, &line.device);
        if (entry)
            costs_merge(&entry->costs, &costs);
        query->added += entry != NULL;
    }
    profile_ask(agent, query);
}
