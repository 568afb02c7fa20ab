#include <errno.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"

#define WHO_MAX 600
/* A program may end because it lost its device before the agent knows of the loss. */
#define LATELY_MS 10000

/** The first device of the ledger, from index @at on, that belongs to @server; or LEDGER_NONE. */
static uint32_t serving_next_device(const struct agent *agent, const struct server *server,
                                    uint32_t at)
{
    size_t length = strlen(server->name);

    for (; at < agent->ledger.count; at++) {
        const char *name = agent->ledger.devices[at].name;
        if (strncmp(name, server->name, length) == 0 && name[length] == '/')
            return at;
    }
    return LEDGER_NONE;
}

/** Notify the virtual devices of @program that are on @server's devices. True: there is one. */
static bool serving_is_there(const struct agent *agent, const struct program *program,
                             const struct server *server, const char *notice)
{
    bool there = false;

    for (uint32_t i = serving_next_device(agent, server, 0); i != LEDGER_NONE;
         i = serving_next_device(agent, server, i + 1)) {
        for (size_t vdev = 0; vdev < program->vdev_count; vdev++) {
            if (program->vdevs[vdev].entry.device != i)
                continue;
            there = true;
            if (notice)
                program_notify(program, vdev, NOTICE_TAKEN, 0, 0, notice);
        }
    }
    return there;
}

/** "train (pid 5), render (pid 7)", or "nobody". */
static void serving_who_is_there(const struct agent *agent, const struct server *server,
                                 const char *notice, char *ret, size_t size)
{
    size_t used = 0;

    snprintf(ret, size, "nobody");
    for (const struct program *program = agent->programs; program; program = program->next) {
        if (!serving_is_there(agent, program, server, notice) || used >= size)
            continue;
        int length = snprintf(ret + used, size - used, "%s%s (pid %d)", used ? ", " : "",
                              program->name, (int)program->pid);
        used += length > 0 ? (size_t)length : 0;
    }
}

void serving_ended(struct agent *agent, const struct program *program)
{
    uint64_t now = uv_now(&agent->loop);

    for (struct server *server = agent->servers; server; server = server->next) {
        size_t used = now - server->ended_ms < LATELY_MS ? strlen(server->ended) : 0;
        if (!serving_is_there(agent, program, server, NULL))
            continue;
        snprintf(server->ended + used, sizeof(server->ended) - used, "%s%s (pid %d, ended)",
                 used ? ", " : "", program->name, (int)program->pid);
        server->ended_ms = now;
        servers_look(server);
    }
}

void serving_changed(struct agent *agent, struct server *server)
{
    unsigned long long seconds = (uv_now(&agent->loop) - server->since_ms) / 1000;
    char who[WHO_MAX], text[PROTOCOL_TEXT_MAX];
    const char *ended;

    agent->changed = true;
    switch (server->state) {
    case SERVER_UP:
        agent_log("server %s (%s) is %s: %zu device%s", server->name, server->address,
                  server->losses ? "back" : "there", server->devices,
                  server->devices == 1 ? "" : "s");
        break;
    case SERVER_LOST:
        snprintf(text, sizeof(text), "server %s is lost", server->name);
        serving_who_is_there(agent, server, text, who, sizeof(who));
        ended = uv_now(&agent->loop) - server->ended_ms < LATELY_MS ? server->ended : "";
        bool nobody = strcmp(who, "nobody") == 0;
        snprintf(server->lost_with, sizeof(server->lost_with), "%.200s%s%s",
                 nobody && ended[0] ? "" : who, nobody || !ended[0] ? "" : ", ", ended);
        agent_log("server %s (%s) is lost after %llu s: %s; on its devices: %s", server->name,
                  server->address, seconds, server->problem, server->lost_with);
        break;
    case SERVER_CONNECTING:
    case SERVER_FOUND:
    case SERVER_DOWN:
        agent_log("server %s (%s) cannot be used: %s", server->name, server->address,
                  server->problem);
        break;
    }
}

/* ---- one that is to go ---- */

/** False: a program is on one of its devices, or one of them is ready for a program. */
static bool serving_is_empty(const struct agent *agent, const struct server *server)
{
    for (uint32_t i = serving_next_device(agent, server, 0); i != LEDGER_NONE;
         i = serving_next_device(agent, server, i + 1)) {
        const struct ledger_device *device = &agent->ledger.devices[i];
        if (device->accounts || device->reserved || (device->listed && prewarm_holds(agent, i)))
            return false;
    }
    return true;
}

/** Drain the server's devices, or not. 0, or -errno: later agents will not know. */
static int serving_set_drains(struct agent *agent, const struct server *server, bool drains)
{
    bool changed = false;

    for (uint32_t i = serving_next_device(agent, server, 0); i != LEDGER_NONE;
         i = serving_next_device(agent, server, i + 1)) {
        struct ledger_device *device = &agent->ledger.devices[i];
        changed = changed || device->drains != drains || device->drains_ms;
        device->drains = drains;
        device->drains_ms = 0;
        device->cordoned = false;
    }
    agent->changed = agent->changed || changed;
    return changed ? limits_save(agent) : 0;
}

static void serving_remove_now(struct agent *agent, struct server *server)
{
    char who[WHO_MAX];

    serving_who_is_there(agent, server, NULL, who, sizeof(who));
    agent_log("server %s (%s) is gone; on its devices: %s", server->name, server->address, who);
    int error = serving_set_drains(agent, server, false);
    if (error)
        agent_log("cannot save that the devices of %s are no longer draining: %s", server->name,
                  strerror(-error));
    servers_remove(server);
}

void serving_leaves(struct agent *agent, struct server *server, bool leaves)
{
    char who[WHO_MAX], text[PROTOCOL_TEXT_MAX];

    if (server->leaves == leaves)
        return;
    snprintf(text, sizeof(text), "server %s %s", server->name,
             leaves ? "is removed" : "is not removed any more");
    serving_who_is_there(agent, server, leaves ? text : NULL, who, sizeof(who));
    agent_log("%s (%s); on its devices: %s", text, server->address, who);
    int error = server_set_leaves(server, leaves);
    int failed = serving_set_drains(agent, server, leaves);
    if (error || failed)
        agent_log("that cannot be kept: %s; a later agent takes it as it was",
                  strerror(error ? -error : -failed));
}

void serving_tick(struct agent *agent)
{
    for (struct server *server = agent->servers, *next; server; server = next) {
        next = server->next;
        if (!server->leaves)
            continue;
        /* Includes devices that the server has only now listed. */
        (void)serving_set_drains(agent, server, true);
        if (serving_is_empty(agent, server) && !ledger_sync_awaited(agent))
            serving_remove_now(agent, server);
    }
}

/* ---- what operators ask ---- */

static void serving_describe(struct peer *client, const struct server *server, struct frame *frame)
{
    struct agent *agent = client->agent;
    const struct inventory *inventory = &agent->devices.inventory;

    frame_map(frame, NULL);
    put_shown_server(frame, server);
    frame_u64(frame, "since_ms", uv_now(&agent->loop) - server->since_ms);
    /* The text names programs of all users. */
    frame_string(frame, "lost_with", peer_may(client, RIGHT_PROGRAMS) ? server->lost_with : "");
    frame_array(frame, "devices");
    for (size_t i = 0; i < inventory->count; i++)
        if (servers_of(agent, &inventory->entries[i]) == server)
            frame_string(frame, NULL, inventory->entries[i].name);
    frame_end(frame);
    frame_array(frame, "apps");
    for (const struct program *program = agent->programs; program; program = program->next) {
        if (!peer_sees(client, program->uid) || !serving_is_there(agent, program, server, NULL))
            continue;
        frame_map(frame, NULL);
        put_identity(frame, program);
        frame_string(frame, "reason", server->leaves ? drain_stay_reason(agent, program) : "");
        frame_end(frame);
    }
    frame_end(frame);
    frame_end(frame);
}

static void serving_answer(struct peer *client)
{
    struct frame frame;

    frame_init(&frame, MSG_SERVER);
    frame_array(&frame, "servers");
    for (const struct server *server = client->agent->servers; server; server = server->next)
        serving_describe(client, server, &frame);
    frame_end(&frame);
    peer_send(client, &frame);
}

/* The given name, or one from the address. False: there is none; the client was told. */
static bool serving_take_name(struct peer *client, const char *given, const char *address,
                              char ret_name[SERVER_NAME_MAX])
{
    if (!given[0] && !server_name_from(address, ret_name)) {
        peer_error(
            client, ERR_USAGE,
            "%s gives the server no name; say one behind the address: its devices are called by it",
            address);
        return false;
    }
    if (given[0] && !server_name_is_valid(given)) {
        peer_error(
            client, ERR_USAGE,
            "a server's name has letters in lower case, digits, \"-\" and \".\", %d at most, "
            "and begins with one of the first two",
            SERVER_NAME_MAX - 1);
        return false;
    }
    if (given[0])
        strcpy(ret_name, given); /* A valid name fits. */
    return true;
}

static void serving_add(struct peer *client, const char *given, const char *text)
{
    struct agent *agent = client->agent;
    char name[SERVER_NAME_MAX], address[SERVER_ADDRESS_MAX], reason[PROTOCOL_TEXT_MAX];
    struct server *server;

    if (!server_address_read(text, address, reason, sizeof(reason))) {
        peer_error(client, ERR_USAGE, "%s", reason);
        return;
    }
    if (!serving_take_name(client, given, address, name))
        return;
    for (server = agent->servers; server; server = server->next)
        if (!strcmp(server->name, name) || !strcmp(server->address, address))
            break;
    if (server && server->leaves && !strcmp(server->name, name) &&
        !strcmp(server->address, address)) {
        serving_leaves(agent, server, false);
        serving_answer(client);
        return;
    }
    if (server && server->found && !strcmp(server->address, address) &&
        (!given[0] || !strcmp(server->name, given))) {
        int error = servers_keep(server);
        if (error)
            peer_error(client, ERR_FAILED, "server %s cannot be kept in %s: %s", name,
                       agent->servers_path, strerror(-error));
        else
            serving_answer(client);
        return;
    }
    if (server) {
        peer_error(client, ERR_REFUSED, "server %s is there already, at %s; remove it first%s",
                   server->name, server->address,
                   server->configured ? " from the configuration" : "");
        return;
    }
    int error = servers_add(agent, name, address, false, &server);
    if (error == -E2BIG)
        peer_error(client, ERR_REFUSED, "there are %d servers, as many as one agent looks after",
                   SERVERS_MAX);
    else if (error)
        peer_error(client, ERR_FAILED, "server %s cannot be kept in %s: %s; it is not added", name,
                   agent->servers_path, strerror(-error));
    else
        serving_answer(client);
}

static void serving_leave(struct peer *client, const char *name, bool now)
{
    struct agent *agent = client->agent;
    struct server *server = servers_find(agent, name);

    if (!server) {
        peer_error(client, ERR_NO_DEVICE, "no server \"%s\"; see reseat server list", name);
        return;
    }
    if (server->configured && !server->leaves) {
        peer_error(client, ERR_REFUSED,
                   "server %s is in %s; take it out there, then have that read (reseat config "
                   "reload): it leaves then",
                   name, agent->config.path);
        return;
    }
    bool announced = strcmp(server->address, SERVER_ANNOUNCED) == 0;
    for (struct server *other = agent->servers; announced && other; other = other->next)
        if (other->found)
            serving_leaves(agent, other, true);
    if (now)
        serving_remove_now(agent, server);
    else
        serving_leaves(agent, server, true);
    serving_tick(agent);
    serving_answer(client);
}

bool server_changes(struct peer *client, const msgpack_object *map)
{
    (void)client;
    return !field_is(map, "deed", "list");
}

void server_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    char name[PROTOCOL_WORD_MAX], address[PROTOCOL_TEXT_MAX];

    bool plain = field_string(map, "name", name, sizeof(name)) &&
                 field_string(map, "address", address, sizeof(address));
    if (field_is(map, "deed", "list"))
        serving_answer(client);
    else if (!plain)
        peer_error(client, ERR_USAGE, "names and addresses of servers are plain text");
    else if (field_is(map, "deed", "add"))
        serving_add(client, name, address);
    else if (field_is(map, "deed", "remove"))
        serving_leave(client, name, field_bool(map, "now", false));
    else
        peer_error(client, ERR_USAGE, "a server can be added, removed and listed");
}
