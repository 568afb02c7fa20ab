#include <string.h>

#include "agent/cli/verb.h"
#include "state/server/operator.h"

/*
 * reseat server sessions and kick: sessions of the device servers of this user (for root: of all)
 * on this machine. The agent is not involved: a server runs without one.
 */

#define NS_PER_SECOND 1e9

/* A request to servers that match. */
struct search {
    const struct output *output;
    const char *server; /**< Address or pid of a server; NULL or "-": any. */
    bool kicks;         /**< For kick: "-" does not match servers for isolated programs. */
    unsigned found;
    /* For sessions: */
    json_t *sessions;
    /* For kick: */
    struct operator_request request;
    uint32_t ended;
};

static bool server_sessions_is_meant(const struct search *search,
                                     const struct operator_answer *server)
{
    const char *wanted = search->server;
    char pid[16];
    size_t length;

    if (!wanted || strcmp(wanted, "-") == 0)
        return !search->kicks ||
               strncmp(server->addresses, OPERATOR_ISOLATED, strlen(OPERATOR_ISOLATED)) != 0;
    snprintf(pid, sizeof(pid), "%d", server->pid);
    if (strcmp(wanted, pid) == 0)
        return true;
    for (const char *at = server->addresses; *at; at += length + (at[length] == ' ')) {
        length = strcspn(at, " ");
        if (length == strlen(wanted) && strncmp(at, wanted, length) == 0)
            return true;
    }
    return false;
}

static int server_sessions_search_servers(struct search *search,
                                          bool (*each)(void *data, int fd,
                                                       const struct operator_answer *server))
{
    char problem[FOLDER_PROBLEM_MAX];

    if (operator_servers(each, search, problem))
        return output_fail(search->output, ERR_FAILED, "%s", problem);
    if (!search->found && search->server && strcmp(search->server, "-") != 0)
        return output_fail(search->output, ERR_GONE,
                           "no device server of yours listens on %s here; reseat server sessions "
                           "lists those of all",
                           search->server);
    if (!search->found)
        return output_fail(search->output, ERR_GONE, "no device server of yours runs here");
    return 0;
}

/* ---- sessions ---- */

static json_t *server_sessions_session_json(const struct operator_answer *server,
                                            const struct operator_session *session)
{
    return json_pack("{s:s, s:i, s:I, s:s, s:i, s:I, s:s, s:I, s:f, s:I}", "server",
                     server->addresses, "server_pid", (int)server->pid, "session",
                     (json_int_t)session->number, "name", session->name, "pid", (int)session->pid,
                     "since", (json_int_t)session->since, "devices", session->devices,
                     "memory_bytes", (json_int_t)session->memory, "busy_s",
                     (double)session->busy_ns / NS_PER_SECOND, "share", (json_int_t)session->share);
}

static bool server_sessions_list_server(void *data, int fd, const struct operator_answer *server)
{
    struct search *search = data;
    struct operator_request request = {.version = OPERATOR_VERSION, .what = OPERATOR_SESSION};
    struct operator_answer answer;

    if (!server_sessions_is_meant(search, server))
        return true;
    search->found++;
    while (!operator_ask(fd, &request, &answer) && !answer.error) {
        json_array_append_new(search->sessions,
                              server_sessions_session_json(server, &answer.session));
        request.number = answer.session.number + 1;
        if (!request.number)
            break;
    }
    return true;
}

static void server_sessions_say_busy(const json_t *session, struct words *words)
{
    words_add(words, "%.1f s", json_real_value(json_object_get(session, "busy_s")));
}

static void server_sessions_say_since(const json_t *session, struct words *words)
{
    json_auto_t *ms =
        json_pack("{s:I}", "date", json_integer_value(json_object_get(session, "since")) * 1000);

    words_say(words, ms, "{date}");
}

static int server_sessions_run_sessions(struct call *call)
{
    static const struct table_column columns[] = {
        {"SESSION", "{session}", TABLE_RIGHT},
        {"NAME", "{name}"},
        {"SINCE", .say = server_sessions_say_since},
        {"DEVICES", "{devices}"},
        {"MEMORY", "{memory_bytes}", TABLE_RIGHT},
        {"BUSY", .say = server_sessions_say_busy, .flags = TABLE_RIGHT},
        {"SHARE", "{share}", TABLE_RIGHT},
        {"PID", "{pid}", TABLE_RIGHT},
        {"SERVER", "{server}", TABLE_WRAP},
        {NULL},
    };
    struct search search = {.output = &call->output,
                            .server = call->count ? call->words[0] : NULL,
                            .sessions = json_array()};
    json_auto_t *answer = json_pack("{s:o}", "sessions", search.sessions);
    int status = server_sessions_search_servers(&search, server_sessions_list_server);

    if (status)
        return status;
    if (!call->output.json && !json_array_size(search.sessions))
        return output_say(&call->output, answer, "no sessions");
    return output_list(&call->output, answer, "sessions", columns, NULL, NULL);
}

const struct verb verb_server_sessions = {
    .name = "server sessions",
    .arguments = "[ADDRESS|-]",
    .summary = "List the sessions of this machine's device servers.",
    .text = "ADDRESS is one that a server of yours listens on, or its pid; default: all of yours. "
            "The server for isolated programs (reseat run --isolate) is called isolated. NAME: "
            "that of the client's certificate, or its user. MEMORY: what the server granted. BUSY: "
            "how long its commands ran.",
    .members = "sessions",
    .run = server_sessions_run_sessions,
};

/* ---- kick ---- */

static bool server_sessions_kick_at(void *data, int fd, const struct operator_answer *server)
{
    struct search *search = data;
    struct operator_answer answer;

    if (!server_sessions_is_meant(search, server))
        return true;
    search->found++;
    if (!operator_ask(fd, &search->request, &answer) && !answer.error)
        search->ended += answer.count;
    return true;
}

static bool server_sessions_count_at(void *data, int fd, const struct operator_answer *server)
{
    struct search *search = data;

    (void)fd;
    search->found += server_sessions_is_meant(search, server);
    return true;
}

static int server_sessions_run_kick(struct call *call)
{
    struct search search = {
        .output = &call->output,
        .server = call->words[0],
        .kicks = true,
        .request = {.version = OPERATOR_VERSION, .what = OPERATOR_KICK},
    };
    const char *who = call->words[1];
    uint64_t number = 0;
    bool numbered = number_parse(who, UINT32_MAX, &number) && *who != '0';

    if (strlen(who) >= sizeof(search.request.name))
        return output_usage(&call->output, "no client has so long a name");
    int status = server_sessions_search_servers(&search, server_sessions_count_at);
    if (status)
        return status;
    /* Session numbers are unique in one server only. */
    if (numbered && search.found > 1)
        return output_fail(&call->output, ERR_AMBIGUOUS,
                           "%u servers of yours run here; name the one whose session %s is meant",
                           search.found, who);
    if (numbered)
        search.request.number = (uint32_t)number;
    else
        strcpy(search.request.name, who);
    status = server_sessions_search_servers(&search, server_sessions_kick_at);
    if (status)
        return status;
    if (!search.ended)
        return output_fail(&call->output, ERR_GONE, "there is no session %s", who);
    json_auto_t *answer = json_pack("{s:I}", "ended", (json_int_t)search.ended);
    return output_say(&call->output, answer, "{ended|session is|sessions are} ended");
}

const struct verb verb_server_kick = {
    .name = "server kick",
    .arguments = "ADDRESS|- SESSION",
    .summary = "End a session of a device server of yours on this machine.",
    .text = "SESSION is a number of reseat server sessions, or a client's name for all of its "
            "sessions. Its process is killed after two seconds at most, and all that it held is "
            "free. The client is told, and may connect again; reseat serve --revoke prevents that.",
    .members = "ended",
    .run = server_sessions_run_kick,
};
