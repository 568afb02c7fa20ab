#include "agent/daemon/servers/servers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/protocol/common_messages.h"

/** Probes one device server (remote/watch/), so that the agent never blocks on it. */
struct watcher {
    uv_process_t process;
    uv_pipe_t in, out;
    struct server_news_reader reader;
    struct server *server;
    unsigned open; /* Number of open handles. */
    bool dropped;  /* The server has it no more. */
};

static void servers_told(struct server *server, const struct server_news *news);
static void servers_ended(struct server *server, bool other_version);

static void servers_watcher_closed(uv_handle_t *handle)
{
    struct watcher *watcher = handle->data;

    if (--watcher->open == 0)
        free(watcher);
}

/** End the process. The memory is freed when the process has exited. NULL is allowed. */
static void servers_watcher_drop(struct watcher *watcher)
{
    if (!watcher || watcher->dropped)
        return;
    watcher->dropped = true;
    /* What it started ends with it, as it does with us. */
    if (uv_process_get_pid(&watcher->process))
        uv_process_kill(&watcher->process, SIGKILL);
    uv_close((uv_handle_t *)&watcher->in, servers_watcher_closed);
    uv_close((uv_handle_t *)&watcher->out, servers_watcher_closed);
}

/** The process ended, or is of another version than the agent. */
static void servers_watcher_ends(struct watcher *watcher, bool other_version)
{
    if (watcher->dropped)
        return;
    servers_watcher_drop(watcher);
    servers_ended(watcher->server, other_version);
}

/* Close the handle only now: libuv does not reap a child whose handle is closed. */
static void servers_watcher_exited(uv_process_t *process, int64_t status, int number)
{
    struct watcher *watcher = process->data;

    (void)status, (void)number;
    servers_watcher_ends(watcher, false);
    uv_close((uv_handle_t *)process, servers_watcher_closed);
}

static void servers_watcher_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    struct watcher *watcher = handle->data;
    size_t size;
    char *room = server_news_room(&watcher->reader, &size);

    (void)wanted;
    *ret_buffer = uv_buf_init(room, (unsigned)size);
}

static void servers_watcher_came(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct watcher *watcher = stream->data;
    int result = count < 0   ? -EPIPE
                 : count > 0 ? server_news_came(&watcher->reader, (size_t)count)
                             : 0;

    (void)buffer;
    if (result > 0 && !watcher->dropped)
        servers_told(watcher->server, &watcher->reader.news);
    if (result < 0)
        servers_watcher_ends(watcher, result == -EPROTO);
}

/**
 * Start the process.
 *
 * @arguments  The program's path and its arguments, ending with NULL.
 * Returns 0 or -errno (the process cannot be started).
 */
static int servers_watcher_start(struct server *server, char *const *arguments)
{
    uv_loop_t *loop = &server->agent->loop;
    struct watcher *watcher = calloc(1, sizeof(*watcher));
    int error;

    if (!watcher)
        return -ENOMEM;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&watcher->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&watcher->out},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
    };
    uv_process_options_t options = {
        .exit_cb = servers_watcher_exited,
        .file = arguments[0],
        .args = (char **)arguments,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = 3,
    };
    watcher->server = server;
    watcher->process.data = watcher->in.data = watcher->out.data = watcher;
    uv_pipe_init(loop, &watcher->in, 0);
    uv_pipe_init(loop, &watcher->out, 0);
    error = uv_spawn(loop, &watcher->process, &options);
    watcher->open = 3;
    if (!error)
        error =
            uv_read_start((uv_stream_t *)&watcher->out, servers_watcher_room, servers_watcher_came);
    if (!error) {
        server->watcher = watcher;
        return 0;
    }
    servers_watcher_drop(watcher);
    if (!uv_process_get_pid(&watcher->process))
        uv_close((uv_handle_t *)&watcher->process, servers_watcher_closed);
    return error;
}

/** Ask for a probe now. @devices: the watcher also lists the devices again. */
static void servers_watcher_ask(struct watcher *watcher, bool devices)
{
    uv_buf_t word = uv_buf_init(devices ? "D" : "L", 1);

    /* Where the pipe is full, an earlier request is still unread, so this one may be dropped. */
    (void)uv_try_write((uv_stream_t *)&watcher->in, &word, 1);
}

/* Longer than a watcher is ever silent: a probe, a listing, and its longest wait. */
#define SILENCE_MS     150000
#define RESTART_MS     1000
#define RESTART_MS_MAX 60000
#define ASK_MS         10000 /* Minimum interval between listings on request. */
#define DEVICES_MAX    128   /* Devices listed for one server; further ones are left out. */

static const char *const state_names[] = {
    [SERVER_CONNECTING] = "connecting",
    [SERVER_UP] = "up",
    [SERVER_LOST] = "lost",
    [SERVER_DOWN] = "down",
    [SERVER_FOUND] = "found",
};

const char *server_state_name(const struct server *server)
{
    return server->leaves ? "leaving" : state_names[server->state];
}

const char *server_device_state(const struct server *server, const struct inventory_entry *entry)
{
    return entry->lost ? state_names[server->state] : server->leaves ? "leaving" : "up";
}

struct server *servers_find(const struct agent *agent, const char *name)
{
    struct server *server = agent->servers;

    while (server && strcmp(server->name, name))
        server = server->next;
    return server;
}

struct server *servers_of(const struct agent *agent, const struct inventory_entry *entry)
{
    const char *slash = strchr(entry->name, '/');
    char name[SERVER_NAME_MAX];

    if (!slash || slash - entry->name >= SERVER_NAME_MAX)
        return NULL;
    snprintf(name, sizeof(name), "%.*s", (int)(slash - entry->name), entry->name);
    return servers_find(agent, name);
}

bool servers_refuse(const struct agent *agent, const char *name, char *ret_reason, size_t size)
{
    const struct inventory *inventory = &agent->devices.inventory;

    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        const struct server *server =
            entry->lost && strcmp(entry->name, name) == 0 ? servers_of(agent, entry) : NULL;
        if (!server)
            continue;
        snprintf(ret_reason, size,
                 "%s is %s: its server (%s) cannot be reached now%s%s; it comes back by itself, or "
                 "choose another device",
                 name, server_device_state(server, entry), server->address,
                 server->problem[0] ? ": " : "", server->problem);
        return true;
    }
    return false;
}

/* ---- what is kept ---- */

static int servers_save(const struct agent *agent)
{
    struct server_line lines[SERVERS_MAX];
    size_t count = 0;

    for (const struct server *server = agent->servers; server; server = server->next) {
        if (server->configured || server->found || count == SERVERS_MAX)
            continue;
        struct server_line *line = &lines[count++];
        *line = (struct server_line){.leaves = server->leaves};
        strcpy(line->name, server->name);
        strcpy(line->address, server->address);
    }
    return servers_write(agent->servers_path, lines, count);
}

int server_set_leaves(struct server *server, bool leaves)
{
    if (server->leaves == leaves)
        return 0;
    server->leaves = leaves;
    return servers_save(server->agent);
}

/* ---- how they are ---- */

/** True for the entry that stands for all announced servers. */
static bool servers_is_announcer(const struct server *server)
{
    return strcmp(server->address, SERVER_ANNOUNCED) == 0;
}

/** @listed: the server's list of devices may have changed. */
static void servers_set_state(struct server *server, enum server_state state, bool listed)
{
    struct agent *agent = server->agent;
    bool same = server->state == state && server->tried;
    bool shown = server->state == SERVER_UP, shows = state == SERVER_UP;

    server->state = state;
    server->tried = true;
    if (listed || shown != shows)
        devices_recompose(agent);
    if (same)
        return;
    server->losses += state == SERVER_LOST;
    agent->events->server_changed(agent, server);
    server->since_ms = uv_now(&agent->loop);
}

static void servers_is_not_there(struct server *server, const char *code, const char *problem)
{
    bool was = server->state == SERVER_UP || server->state == SERVER_LOST;

    snprintf(server->code, sizeof(server->code), "%s", code);
    snprintf(server->problem, sizeof(server->problem), "%s", problem);
    servers_set_state(server, was ? SERVER_LOST : SERVER_DOWN, false);
}

static struct server *servers_create(struct agent *agent, const char *name, const char *address,
                                     bool configured);

/*
 * Announcements are not authenticated. An announcement only gives the address of a server for which
 * the user has credentials; the server is authenticated when it is connected to.
 */

#define FOUND_MAX 32

/** Do not contact the server until there are credentials for it; servers_tick() checks for them. */
static void servers_wait_for_credentials(struct server *server)
{
    char path[PATH_MAX];

    server->state = SERVER_FOUND;
    server->tried = true;
    strcpy(server->code, "no-credentials");
    (void)server_has_credentials(server->address, path);
    snprintf(server->problem, sizeof(server->problem),
             "it is announced, and used as soon as there are credentials for it: reseat serve "
             "--issue NAME on its host makes some, which belong here as %.300s",
             path);
}

static void servers_take_announcement(struct agent *agent, const struct server_news *news)
{
    char address[SERVER_ADDRESS_MAX], name[SERVER_NAME_MAX], why[256];
    unsigned found = 0;

    if (!server_address_read(news->address, address, why, sizeof(why)) ||
        strncmp(address, "tcp:", 4) || !server_name_from(address, name))
        return;
    struct server *same = NULL;
    for (struct server *server = agent->servers; server; server = server->next) {
        found += server->found;
        if (!strcmp(server->address, address))
            return;
        same = strcmp(server->name, name) ? same : server;
    }
    /*
     * An announced server that is not up is announced at another address: its host may have moved.
     * The address of a server that an operator named does not change.
     */
    if (same && same->found && same->state != SERVER_UP) {
        servers_watcher_drop(same->watcher);
        same->watcher = NULL;
        same->start_ms = 0;
        strcpy(same->address, address);
        servers_wait_for_credentials(same);
    } else if (!same && found < FOUND_MAX && agent->server_count < SERVERS_MAX) {
        struct server *server = servers_create(agent, name, address, false);
        if (!server)
            return;
        unlink(server->file);
        server->found = true;
        servers_wait_for_credentials(server);
        agent_log("server %s (%s) is announced", name, address);
    }
}

static void servers_told(struct server *server, const struct server_news *news)
{
    server->heard_ms = uv_now(&server->agent->loop);
    if (news->address[0]) {
        if (servers_is_announcer(server))
            servers_take_announcement(server->agent, news);
    } else if (news->code[0]) {
        servers_is_not_there(server, news->code, news->problem);
    } else {
        server->round_trip_ns = news->round_trip_ns;
        server->read = news->read;
        server->write = news->write;
        server->code[0] = server->problem[0] = '\0';
        server->wait_ms = 0;
        servers_set_state(server, SERVER_UP, news->listed);
    }
}

static void servers_put_off(struct server *server)
{
    uint64_t wait = server->wait_ms ? server->wait_ms * 2 : RESTART_MS;

    server->watcher = NULL;
    server->wait_ms = wait < RESTART_MS_MAX ? wait : RESTART_MS_MAX;
    server->start_ms = uv_now(&server->agent->loop) + server->wait_ms;
}

static void servers_ended(struct server *server, bool other_version)
{
    servers_put_off(server);
    servers_is_not_there(
        server, "watcher",
        other_version ? "the process that looks after it (reseat-watch) is of another version than "
                        "this agent, which was started before; run reseat agent stop, then reseat "
                        "agent start: programs keep running"
                      : "the process that looks after it ended; another one follows");
}

static void servers_begin(struct server *server)
{
    struct agent *agent = server->agent;
    char path[PATH_MAX], driver[PATH_MAX];
    bool browses = servers_is_announcer(server);
    char *look[] = {path, server->address, server->file, driver, NULL};
    char *browse[] = {path, "browse", NULL};
    int error = browses ? paths_of(PATHS_MDNS, path) : paths_of(PATHS_WATCH, path);

    if (!browses && !error)
        error = paths_of(PATHS_REMOTE, driver);
    error = error ? error : servers_watcher_start(server, browses ? browse : look);
    server->heard_ms = uv_now(&agent->loop);
    if (!error)
        return;
    servers_put_off(server);
    servers_is_not_there(
        server, "watcher",
        browses ? "the process that looks for announcements (reseat-mdns) cannot be started"
                : "the process that looks after it (reseat-watch) cannot be started");
    agent_log("server %s: %s: %s", server->name, server->problem, strerror(-error));
}

void servers_tick(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);
    char ignored[PATH_MAX];

    for (struct server *server = agent->servers; server; server = server->next) {
        if (server->found && server->state == SERVER_FOUND &&
            !server_has_credentials(server->address, ignored))
            continue;
        if (server->watcher && now - server->heard_ms > SILENCE_MS &&
            !servers_is_announcer(server)) {
            servers_watcher_drop(server->watcher);
            servers_put_off(server);
            servers_is_not_there(server, "watcher",
                                 "the process that looks after it hung and was killed");
        } else if (!server->watcher && now >= server->start_ms) {
            servers_begin(server);
        }
    }
}

void servers_ask(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);

    if (now - agent->servers_asked_ms < ASK_MS)
        return;
    agent->servers_asked_ms = now;
    for (struct server *server = agent->servers; server; server = server->next)
        if (server->watcher)
            servers_watcher_ask(server->watcher, true);
}

void servers_look(const struct server *server)
{
    if (server->watcher)
        servers_watcher_ask(server->watcher, false);
}

/* ---- which there are ---- */

static struct server *servers_create(struct agent *agent, const char *name, const char *address,
                                     bool configured)
{
    struct server *server = calloc(1, sizeof(*server));
    char beside[sizeof("servers-") + SERVER_NAME_MAX];

    if (!server)
        return NULL;
    server->agent = agent;
    server->configured = configured;
    snprintf(server->name, sizeof(server->name), "%s", name);
    snprintf(server->address, sizeof(server->address), "%s", address);
    snprintf(beside, sizeof(beside), "server-%s", name);
    if (paths_join(agent->paths.folder, beside, server->file)) {
        free(server);
        return NULL;
    }
    server->since_ms = uv_now(&agent->loop);
    struct server **at = &agent->servers;
    while (*at)
        at = &(*at)->next;
    *at = server;
    agent->server_count++;
    return server;
}

int servers_add(struct agent *agent, const char *name, const char *address, bool configured,
                struct server **ret_server)
{
    if (agent->server_count >= SERVERS_MAX)
        return -E2BIG;
    struct server *server = servers_create(agent, name, address, configured);
    if (!server)
        return -ENOMEM;
    /* The file may hold the devices of an earlier server with the same name. */
    unlink(server->file);
    int error = configured ? 0 : servers_save(agent);
    if (error) {
        servers_remove(server);
        return error;
    }
    servers_begin(server);
    *ret_server = server;
    return 0;
}

int servers_keep(struct server *server)
{
    server->found = false;
    if (server->state == SERVER_FOUND) {
        server->state = SERVER_CONNECTING;
        server->tried = false;
    }
    int error = servers_save(server->agent);
    if (error)
        server->found = true;
    return error;
}

void servers_remove(struct server *server)
{
    struct agent *agent = server->agent;
    struct server **at = &agent->servers;

    while (*at != server)
        at = &(*at)->next;
    *at = server->next;
    agent->server_count--;
    servers_watcher_drop(server->watcher);
    unlink(server->file);
    int error = server->configured || server->found ? 0 : servers_save(agent);
    if (error)
        agent_log(
            "that server %s is removed cannot be kept in %s: %s; a later agent knows it again",
            server->name, agent->servers_path, strerror(-error));
    devices_forget(agent, server->name);
    free(server);
}

void servers_configure(struct agent *agent)
{
    const struct config *config = &agent->config;
    const char *name, *address;
    struct server *server, *next;

    for (server = agent->servers; server; server = next) {
        bool stays = !server->configured;
        next = server->next;
        for (size_t i = 0; i < config->lists[CONFIG_SERVERS].count && !stays; i++) {
            config_server(config, i, &name, &address);
            stays = !strcmp(name, server->name) && !strcmp(address, server->address);
        }
        if (!stays) {
            server->configured = false; /* It is as one that an operator added from now on. */
            agent->events->server_leaves(agent, server, true);
        }
    }
    for (size_t i = 0; i < config->lists[CONFIG_SERVERS].count; i++) {
        config_server(config, i, &name, &address);
        server = servers_find(agent, name);
        int error = server ? 0 : servers_add(agent, name, address, true, &server);
        if (error)
            agent_log("server %s of the configuration is left out: %s", name,
                      error == -E2BIG ? "there are too many" : strerror(-error));
        else if (!strcmp(server->address, address) && server->leaves)
            agent->events->server_leaves(agent, server, false);
        else if (strcmp(server->address, address))
            agent_log(
                "server %s of the configuration is at %s; the one at %s has that name until it "
                "is removed (reseat server remove %s)",
                name, address, server->address, name);
    }
}

int servers_init(struct agent *agent)
{
    struct server_line lines[SERVERS_MAX];
    char folder[PATH_MAX];
    const char *name, *address;
    int error;

    if ((error = paths_state(folder)) ||
        (error = paths_join(folder, "servers", agent->servers_path)))
        return error;
    for (size_t i = 0; i < agent->config.lists[CONFIG_SERVERS].count && i < SERVERS_MAX; i++) {
        config_server(&agent->config, i, &name, &address);
        if (!servers_create(agent, name, address, true))
            return -ENOMEM;
    }
    size_t count = servers_read(agent->servers_path, lines);
    for (size_t i = 0; i < count && agent->server_count < SERVERS_MAX; i++) {
        struct server *server = servers_find(agent, lines[i].name)
                                    ? NULL
                                    : servers_create(agent, lines[i].name, lines[i].address, false);
        if (server)
            server->leaves = lines[i].leaves;
    }
    return 0;
}

void servers_stop(struct agent *agent)
{
    for (struct server *server = agent->servers; server; server = server->next) {
        servers_watcher_drop(server->watcher);
        server->watcher = NULL;
    }
}

void servers_finish(struct agent *agent)
{
    for (struct server *server = agent->servers, *next; server; server = next) {
        next = server->next;
        free(server);
    }
    agent->servers = NULL;
}

/* ---- their devices ---- */

int servers_append(struct agent *agent, struct inventory *inventory, bool *ret_grew)
{
    *ret_grew = false;
    for (struct server *server = agent->servers; server; server = server->next) {
        struct inventory some = {0}, kept = {0};
        bool grew = false;
        server->devices = 0;
        if (inventory_read(server->file, &some))
            continue;
        /* A watcher wrote the file: accept DEVICES_MAX devices, this server's alone. */
        kept.entries = some.entries;
        for (size_t i = 0; i < some.count; i++) {
            some.entries[i].lost = server->state != SERVER_UP;
            if (strcmp(some.entries[i].key.icd, server->address) == 0 && kept.count < DEVICES_MAX)
                kept.entries[kept.count++] = some.entries[i];
            else
                devinfo_finish(&some.entries[i].info);
        }
        size_t count = kept.count;
        int error = device_names_assign_served(&agent->devices.names, server->name, &kept, &grew);
        if (!error)
            error = inventory_append(inventory, &kept);
        *ret_grew = *ret_grew || grew;
        if (error) {
            inventory_finish(&kept);
            agent_log("the devices of server %s are left out: %s", server->name, strerror(-error));
            if (error == -ENOMEM)
                return error;
            continue;
        }
        server->devices = count;
    }
    return 0;
}
