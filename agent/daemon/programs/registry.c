#include "agent/daemon/programs/registry.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/process.h"
#include "agent/daemon/govern/govern.h"
#include "agent/daemon/govern/requests.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/program_wish.h"
#include "agent/wire/access.h"
#include "agent/wire/device_key.h"

#define APP_FILE_MAX 65536
#define LOST_MS      1000

static void app_destroy(struct app *app)
{
    free(app->environment);
    free(app);
}

static int app_path(const struct agent *agent, const struct app *app, char ret[PATH_MAX])
{
    return paths_join(agent->apps_folder, app->id, ret);
}

/** Write what a later agent must know. Failing is not fatal: connected programs tell it again. */
void apps_save(const struct agent *agent, const struct app *app)
{
    char path[PATH_MAX];
    struct frame frame;

    frame_init(&frame, "app");
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "id", app->id);
    frame_string(&frame, "name", app->name);
    frame_u64(&frame, "pid", (uint64_t)app->pid);
    frame_u64(&frame, "start", app->start);
    frame_u64(&frame, "uid", app->uid);
    frame_bool(&frame, "named", app->named);
    frame_bool(&frame, "connected", app->connected);
    app_put_devices(app, &frame);
    app_put_policy(app, &frame);
    govern_put_queued(agent, app, &frame);
    int error = frame_seal(&frame);
    if (!error) {
        error = app_path(agent, app, path);
    }
    if (!error) {
        error = paths_write(path, frame.buffer.data, frame.buffer.size);
    }
    if (error) {
        agent_log("%s: cannot note the program (%s); the next agent will not know it until it "
                  "connects",
                  app->id, strerror(-error));
    }
    frame_finish(&frame);
}

static struct app *app_by_id(const struct agent *agent, const char *id)
{
    for (struct app *app = agent->apps; app; app = app->next) {
        if (strcmp(app->id, id) == 0) {
            return app;
        }
    }
    return NULL;
}

static struct app *app_by_process(const struct agent *agent, pid_t pid, uint64_t start)
{
    for (struct app *app = agent->apps; app; app = app->next) {
        if (app->pid == pid && app->start == start) {
            return app;
        }
    }
    return NULL;
}

static struct app *app_create(struct agent *agent, pid_t pid, uint64_t start, uid_t uid)
{
    struct app *app = calloc(1, sizeof(*app));

    if (!app) {
        return NULL;
    }
    app->pid = pid;
    app->start = start;
    app->uid = uid;
    app->seat_count = 1;
    app->next = agent->apps;
    agent->apps = app;
    govern_know(agent, app);
    return app;
}

/** Ids look like "a7": never a pid. */
static void give_id(struct agent *agent, struct app *app)
{
    do {
        snprintf(app->id, sizeof(app->id), "a%u", agent->next_app++);
    } while (app_by_id(agent, app->id) != app);
}

static bool valid_id(const char *id)
{
    size_t digits = strspn(id + (id[0] == 'a'), "0123456789");

    return id[0] == 'a' && digits >= 1 && digits <= 9 && id[1 + digits] == '\0';
}

static void reserve_id(struct agent *agent, const char *id)
{
    unsigned long number = strtoul(id + 1, NULL, 10);

    if (number >= agent->next_app) {
        agent->next_app = (unsigned)number + 1;
    }
}

static void set_name(struct app *app, const char *name, const char *fallback)
{
    snprintf(app->name, sizeof(app->name), "%s", name && *name ? name : fallback);
}

static bool load_one(struct agent *agent, const char *path)
{
    char *bytes = NULL, id[sizeof(((struct app *)0)->id)], name[64];
    size_t size;
    struct message message;
    struct frame_reader reader;
    bool alive = false;

    if (paths_read(path, APP_FILE_MAX, &bytes, &size)) {
        return false;
    }
    frame_reader_init(&reader);
    int got = frame_reader_feed(&reader, bytes, size);
    got = got ? got : frame_reader_next(&reader, &message);
    frame_reader_finish(&reader);
    free(bytes);
    if (got != 1) {
        return false;
    }
    const msgpack_object *map = &message.root;
    uint64_t pid = field_u64(map, "pid", 0), start = field_u64(map, "start", 0);
    if (field_string(map, "id", id, sizeof(id)) && valid_id(id) && !app_by_id(agent, id) &&
        field_text(map, "name", name, sizeof(name)) && pid > 0 && pid < INT32_MAX &&
        process_alive((pid_t)pid, start)) {
        struct app *app =
            app_create(agent, (pid_t)pid, start, (uid_t)field_u64(map, "uid", UINT32_MAX));
        if (app) {
            snprintf(app->id, sizeof(app->id), "%s", id);
            set_name(app, name, id);
            app->named = field_bool(map, "named", false);
            app->connected = app->awaited = field_bool(map, "connected", false);
            app_take_devices(app, map);
            app_take_policy(app, map);
            govern_configure(agent, app);
            govern_take_queued(agent, app, map);
            app->lost_ms = uv_now(&agent->loop);
            reserve_id(agent, id);
            alive = true;
        }
    }
    message_finish(&message);
    return alive;
}

void apps_load(struct agent *agent)
{
    DIR *folder = opendir(agent->apps_folder);
    const struct dirent *entry;

    agent->next_app = 1;
    while (folder && (entry = readdir(folder))) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.' || paths_join(agent->apps_folder, entry->d_name, path)) {
            continue;
        }
        if (!load_one(agent, path)) {
            unlink(path);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

static void app_remove(struct agent *agent, struct app *app)
{
    char path[PATH_MAX];

    govern_forget(agent, app);
    for (struct app **at = &agent->apps; *at; at = &(*at)->next) {
        if (*at == app) {
            *at = app->next;
            break;
        }
    }
    if (!app_path(agent, app, path)) {
        unlink(path);
    }
    app_destroy(app);
}

void apps_finish(struct agent *agent)
{
    while (agent->apps) {
        struct app *app = agent->apps;
        govern_forget(agent, app);
        agent->apps = app->next;
        app_destroy(app);
    }
}

void apps_sweep(struct agent *agent)
{
    struct app *next;

    for (struct app *app = agent->apps; app; app = next) {
        next = app->next;
        if (app->peer) {
            continue;
        }
        if (!process_alive(app->pid, app->start)) {
            requests_fail(agent, app, true);
            app_remove(agent, app);
        } else if (app->connected && uv_now(&agent->loop) - app->lost_ms > LOST_MS) {
            requests_fail(agent, app, false);
        }
    }
}

int apps_register(struct agent *agent, struct peer *peer, const char *name, bool named,
                  const struct inventory_entry *const *devices, size_t seat_count,
                  const char *environment, struct app **ret_app)
{
    uint64_t start;
    int error = process_start_time(peer->pid, &start);

    if (error) {
        return error;
    }
    char *copy = strdup(environment);
    struct app *app = app_by_process(agent, peer->pid, start);
    if (copy && !app) {
        app = app_create(agent, peer->pid, start, peer->uid);
        if (app) {
            give_id(agent, app);
        }
    }
    if (!app || !copy) {
        free(copy);
        return -ENOMEM;
    }
    free(app->environment);
    app->environment = copy;
    app->named = named;
    set_name(app, name, app->id);
    govern_named(agent, app);
    app->seat_count = seat_count;
    for (size_t i = 0; i < seat_count; i++) {
        if (devices[i]) {
            app->seats[i].device = devices[i]->key;
            app->seats[i].has_device = true;
        }
    }
    apps_save(agent, app);
    *ret_app = app;
    return 0;
}

int apps_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello,
                 bool *ret_first)
{
    char name[sizeof(((struct app *)0)->name)], id[sizeof(((struct app *)0)->id)], program[64];
    uint64_t start;
    int error = process_start_time(peer->pid, &start);

    if (error) {
        return error;
    }
    field_text(hello, "name", name, sizeof(name));
    field_string(hello, "id", id, sizeof(id));
    field_text(hello, "program", program, sizeof(program));
    struct app *app = app_by_process(agent, peer->pid, start);
    if (!app) {
        /* A child of a program that was started with `run`, or one that an earlier agent knew. */
        const struct app *known = app_by_id(agent, id), *parent;
        app = app_create(agent, peer->pid, start, peer->uid);
        if (!app) {
            return -ENOMEM;
        }
        parent = known && known->uid == app->uid ? known : NULL;
        if (!known && valid_id(id)) {
            snprintf(app->id, sizeof(app->id), "%s", id);
            reserve_id(agent, id);
        } else {
            give_id(agent, app);
        }
        if (parent) {
            app->named = parent->named;
            app->environment = parent->environment ? strdup(parent->environment) : NULL;
            app->policy = parent->policy;
            app->seat_count = parent->seat_count;
            for (size_t i = 0; i < app->seat_count; i++) {
                app->seats[i].has_device = parent->seats[i].has_device;
                app->seats[i].device = parent->seats[i].device;
            }
        }
        set_name(app, parent && !parent->named ? program : name, program[0] ? program : app->id);
        if (!parent) {
            govern_named(agent, app);
        }
    }
    if (app->peer && app->peer != peer) {
        app->peer->app = NULL;
        peer_close(app->peer);
    }
    *ret_first = !app->connected;
    app->peer = peer;
    app->silent = false;
    app->connected = true;
    app_unsay(app);
    peer->app = app;
    app_take_wish(app, hello);
    apps_save(agent, app);
    agent_log("%s: %s (pid %d) connected", app->id, app->name, (int)app->pid);
    return 0;
}

void apps_disconnect(struct agent *agent, struct peer *peer)
{
    struct app *app = peer->app;

    peer->app = NULL;
    if (!app || app->peer != peer) {
        return;
    }
    app->peer = NULL;
    app->lost_ms = uv_now(&agent->loop);
    govern_lost(agent, app);
    agent_log("%s: %s (pid %d) disconnected", app->id, app->name, (int)app->pid);
    apps_sweep(agent);
}

void apps_set_device(struct agent *agent, struct app *app, size_t seat,
                     const struct device_key *device)
{
    for (size_t i = 0; i < app->seat_count; i++) {
        if (seat == APP_ALL_SEATS || seat == i) {
            app->seats[i].device = *device;
            app->seats[i].has_device = true;
        }
    }
    apps_save(agent, app);
}

static bool is_pid(const char *text, pid_t *ret)
{
    char *end;
    long value = strtol(text, &end, 10);

    *ret = (pid_t)value;
    return *text >= '0' && *text <= '9' && !*end && value > 0 && value < INT32_MAX;
}

/** Of programs with one name, the one that is connected, if only one is. */
static struct app *by_name(const struct agent *agent, const struct peer *peer, const char *name,
                           bool connected, unsigned *ret_count)
{
    struct app *found = NULL;

    *ret_count = 0;
    for (struct app *app = agent->apps; app; app = app->next) {
        if (strcmp(app->name, name) == 0 && access_may_act(peer->uid, app->uid) &&
            (!connected || app->peer)) {
            found = app;
            ++*ret_count;
        }
    }
    return found;
}

static void candidates(const struct agent *agent, const struct peer *peer, const char *name,
                       char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (const struct app *app = agent->apps; app; app = app->next) {
        if ((name && strcmp(app->name, name)) || !access_may_act(peer->uid, app->uid)) {
            continue;
        }
        int length = snprintf(ret + used, size - used, "%s%s (%s, pid %d)", used ? ", " : "",
                              app->id, app->name, (int)app->pid);
        if (length < 0 || (size_t)length >= size - used) {
            return;
        }
        used += (size_t)length;
    }
}

static int find(struct agent *agent, const struct peer *peer, const char *text,
                struct app **ret_app, char *ret_error, size_t error_size)
{
    char list[512];
    unsigned count;
    pid_t pid;

    for (struct app *app = agent->apps; app; app = app->next) {
        if (access_may_act(peer->uid, app->uid) &&
            (strcmp(app->id, text) == 0 || (is_pid(text, &pid) && app->pid == pid))) {
            *ret_app = app;
            return 0;
        }
    }
    struct app *found = by_name(agent, peer, text, true, &count);
    if (count == 0) {
        found = by_name(agent, peer, text, false, &count);
    }
    if (count == 1) {
        *ret_app = found;
        return 0;
    }
    candidates(agent, peer, count ? text : NULL, list, sizeof(list));
    if (count) {
        snprintf(ret_error, error_size, "program \"%s\" could be any of %s; use an id or a pid",
                 text, list);
        return -ENOTUNIQ;
    }
    snprintf(ret_error, error_size, "no program \"%s\" runs under reseat; %s%s", text,
             list[0] ? "there are " : "start one with reseat run", list);
    return -ESRCH;
}

/** Cut ":N" off. False when there is none. */
static bool cut_seat(char *text, size_t *ret_seat)
{
    char *colon = strrchr(text, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

    if (digits == 0 || digits > 4 || colon[1 + digits] || colon == text) {
        return false;
    }
    *ret_seat = (size_t)strtoul(colon + 1, NULL, 10);
    *colon = '\0';
    return true;
}

int apps_find(struct agent *agent, const struct peer *peer, const char *text, struct app **ret_app,
              size_t *ret_seat, char *ret_error, size_t error_size)
{
    char name[PROTOCOL_WORD_MAX];
    size_t seat;

    apps_sweep(agent);
    int error = find(agent, peer, text, ret_app, ret_error, error_size);
    *ret_seat = APP_ALL_SEATS;
    snprintf(name, sizeof(name), "%s", text);
    if (error != -ESRCH || !cut_seat(name, &seat)) {
        return error;
    }
    error = find(agent, peer, name, ret_app, ret_error, error_size);
    if (error) {
        return error;
    }
    if (seat >= (*ret_app)->seat_count) {
        snprintf(ret_error, error_size, "program %s (pid %d) has %zu virtual device%s, from 0 on",
                 (*ret_app)->name, (int)(*ret_app)->pid, (*ret_app)->seat_count,
                 (*ret_app)->seat_count == 1 ? "" : "s");
        return -ENODEV;
    }
    *ret_seat = seat;
    return 0;
}
