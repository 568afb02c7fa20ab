#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "state/base/clock.h"

/*
 * reseat server: the device servers that the agent uses. The agent checks them by itself; commands
 * that wait for a result ask the agent repeatedly.
 */

#define ASK_NS   (200 * NS_PER_MS)
#define TRIED_NS (10 * NS_PER_S) /* A check takes 7 seconds at most. */

struct server {
    uint64_t timeout_ms;
    bool now;
};

/** Ask the agent for a change or the list of servers. Returns 0 and the list, or an exit status. */
static int server_ask_servers(const struct output *output, const char *deed, const char *name,
                              const char *address, bool now, json_t **ret_answer)
{
    const struct question question = {
        .type = MSG_SERVER, .what = "look after servers", .launch = true};
    struct frame frame;

    frame_init(&frame, MSG_SERVER);
    frame_string(&frame, "deed", deed);
    frame_string(&frame, "name", name);
    frame_string(&frame, "address", address);
    frame_bool(&frame, "now", now);
    return ask(output, &question, &frame, ret_answer);
}

/** Find a server by name or address. Borrowed from @answer; NULL if there is none. */
static json_t *server_find_listed(const json_t *answer, const char *key, const char *text)
{
    json_t *server;
    size_t i;

    json_array_foreach(json_object_get(answer, "servers"), i,
                       server) if (strcmp(member_text(server, key), text) == 0) return server;
    return NULL;
}

/* ---- add ---- */

static int server_say_added(const struct output *output, json_t *server)
{
    json_auto_t *answer = json_pack("{s:O}", "server", server);
    const char *problem = member_text(server, "problem"), *name = member_text(server, "name");
    bool up = strcmp(member_text(server, "state"), "up") == 0;
    int status = output_say(
        output, answer, up ? "{server.name} is up: {server.devices}" : "{server.name} is added");

    if (output->json)
        return status;
    if (problem[0])
        output_note(output, "%s cannot be used now: %s", name, problem);
    else if (!member_bool(server, "tried"))
        output_note(output, "it has not answered yet; see reseat server list");
    return status;
}

static int server_run_add(struct call *call)
{
    const char *name = call->count > 1 ? call->words[1] : "";
    uint64_t deadline = clock_now_ns() + TRIED_NS;
    char own[PROTOCOL_WORD_MAX];
    json_t *answer = NULL;
    int status = server_ask_servers(&call->output, "add", name, call->words[0], false, &answer);

    if (status)
        return status;
    /* The new server is the last one, if the agent derived its name from the address. */
    const json_t *servers = json_object_get(answer, "servers");
    json_t *server = name[0] ? server_find_listed(answer, "name", name)
                             : json_array_get(servers, json_array_size(servers) - 1);
    snprintf(own, sizeof(own), "%s", member_text(server, "name"));
    while (server && !member_bool(server, "tried") && clock_now_ns() < deadline) {
        json_decref(answer);
        clock_sleep(ASK_NS);
        status = server_ask_servers(&call->output, "list", "", "", false, &answer);
        if (status)
            return status;
        server = server_find_listed(answer, "name", own);
    }
    status = server ? server_say_added(&call->output, server)
                    : output_fail(&call->output, ERR_GONE, "%s was removed meanwhile", own);
    json_decref(answer);
    return status;
}

const struct verb verb_server_add = {
    .name = "server add",
    .arguments = "ADDRESS [NAME]",
    .summary = "Use the devices of a device server, now and in future.",
    .text =
        "ADDRESS is tcp:HOST:PORT, vsock:CID:PORT or unix:PATH; its devices are called NAME/gpu0. "
        "Running programs can be moved there once they are listed. A server that cannot be reached "
        "or refuses us is added all the same and tried again; reseat server list says what it "
        "lacks. ADDRESS mdns: stands for all servers announced in the local network for whose host "
        "there are credentials. reseat-serve(8) says how a server admits clients.",
    .members = "server",
    .run = server_run_add,
};

/* ---- remove ---- */

static const struct option_row remove_options[] = {
    {"now", NULL,
     "Do not move programs away. Those on its devices go on as long as they can, but reseat no "
     "longer manages the devices.",
     OPTION_VALUE(struct server, now)},
    {"timeout", "TIME",
     "How long to wait until programs have left. Default: 60. The server is removed afterwards, "
     "too, when the last one has.",
     OPTION_SECONDS(struct server, timeout_ms, 3, 0, 86400000), .initial = 60000},
    {NULL}};

static int server_say_stays(const struct output *output, const json_t *server)
{
    struct words who = {.used = 0};
    const json_t *program;
    size_t i;

    json_array_foreach(json_object_get(server, "apps"), i, program)
    {
        words_say(&who, program,
                  i ? "; {name} (pid {pid}) stays: {reason}"
                    : "{name} (pid {pid}) stays: {reason}");
    }
    if (!who.used)
        words_add(&who, "prewarmed devices of it are not released yet");
    return output_fail(
        output, ERR_REFUSED,
        "%s is not removed yet: %s; it takes no new programs and is removed when these have left. "
        "reseat server remove %s --now leaves them there; reseat server add %s %s keeps it",
        member_text(server, "name"), who.text, member_text(server, "name"),
        member_text(server, "address"), member_text(server, "name"));
}

static int server_run_remove(struct call *call)
{
    const struct server *wanted = call->options;
    const char *name = call->words[0];
    uint64_t deadline = clock_now_ns() + wanted->timeout_ms * NS_PER_MS;
    json_t *answer = NULL;
    int status = server_ask_servers(&call->output, "remove", name, "", wanted->now, &answer);

    while (!status && server_find_listed(answer, "name", name) && clock_now_ns() < deadline) {
        json_decref(answer);
        clock_sleep(ASK_NS);
        status = server_ask_servers(&call->output, "list", "", "", false, &answer);
    }
    if (status)
        return status;
    const json_t *server = server_find_listed(answer, "name", name);
    if (server) {
        status = server_say_stays(&call->output, server);
    } else {
        json_auto_t *removed = json_pack("{s:s, s:n}", "name", name, "server");
        status = output_say(&call->output, removed, "{name} is removed");
    }
    json_decref(answer);
    return status;
}

const struct verb verb_server_remove = {
    .name = "server remove",
    .arguments = "SERVER",
    .summary = "Move programs off a server's devices, then stop using it.",
    .text = "The policy chooses where programs go; what fits nowhere is suspended. Exit status 4: "
            "some could not leave in time; the server admits no programs, and is removed when they "
            "have left. A server of the configuration is drained in the same way, but has to be "
            "removed there.",
    .members = "server",
    .options = remove_options,
    .size = sizeof(struct server),
    .run = server_run_remove,
};

/* ---- list ---- */

static void server_say_problem(const json_t *server, struct words *words)
{
    words_say(words, server,
              strcmp(member_text(server, "state"), "lost") == 0
                  ? "{problem}[; lost with: {lost_with}]"
                  : "{problem}");
}

static int server_run_list(struct call *call)
{
    static const struct table_column columns[] = {
        {"NAME", "{name}"},
        {"ADDRESS", "{address}"},
        {"STATE", "{state}"},
        {"LINK", .say = say_link},
        {"DEVICES", "{devices:list}", TABLE_WRAP},
        {"BY", .say = say_users, .flags = TABLE_WRAP},
        {"PROBLEM", .say = server_say_problem, .flags = TABLE_WRAP},
        {NULL},
    };
    json_auto_t *answer = NULL;
    int status = server_ask_servers(&call->output, "list", "", "", false, &answer);

    if (status)
        return status;
    if (!call->output.json && !json_array_size(json_object_get(answer, "servers")))
        return output_say(&call->output, answer, "no servers; reseat server add ADDRESS names one");
    return output_list(&call->output, answer, "servers", columns, NULL, NULL);
}

const struct verb verb_server_list = {
    .name = "server list",
    .summary = "List the device servers, their state, users and problems.",
    .text = "STATE: up, lost (it was up, and is used again when it can be reached), down, "
            "connecting, or leaving. LINK: measured round trip and bandwidth.",
    .members = "servers[]",
    .users = true,
    .run = server_run_list,
};
