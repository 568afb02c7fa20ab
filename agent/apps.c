#include "agent/apps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/access.h"
#include "agent/device_key.h"
#include "agent/peers.h"
#include "agent/process.h"
#include "agent/requests.h"

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
static void app_save(const struct agent *agent, const struct app *app)
{
    char path[PATH_MAX], key[DEVICE_KEY_TEXT_MAX] = "";
    struct frame frame;

    if (app->has_device) {
        device_key_format(&app->device, key);
    }
    frame_init(&frame, "app");
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "id", app->id);
    frame_string(&frame, "name", app->name);
    frame_u64(&frame, "pid", (uint64_t)app->pid);
    frame_u64(&frame, "start", app->start);
    frame_u64(&frame, "uid", app->uid);
    frame_bool(&frame, "named", app->named);
    frame_bool(&frame, "connected", app->connected);
    frame_string(&frame, "device", key);
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
    app->next = agent->apps;
    agent->apps = app;
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
    char *bytes = NULL, key[DEVICE_KEY_TEXT_MAX], id[sizeof(((struct app *)0)->id)], name[64];
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
        field_string(map, "name", name, sizeof(name)) && pid > 0 && pid < INT32_MAX &&
        process_alive((pid_t)pid, start)) {
        struct app *app =
            app_create(agent, (pid_t)pid, start, (uid_t)field_u64(map, "uid", UINT32_MAX));
        if (app) {
            snprintf(app->id, sizeof(app->id), "%s", id);
            set_name(app, name, id);
            app->named = field_bool(map, "named", false);
            app->connected = field_bool(map, "connected", false);
            app->has_device = field_string(map, "device", key, sizeof(key)) &&
                              !device_key_parse(key, &app->device);
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
            requests_fail(agent, app, "ended");
            app_remove(agent, app);
        } else if (app->connected && uv_now(&agent->loop) - app->lost_ms > LOST_MS) {
            requests_fail(agent, app, "closed its connection to the agent");
        }
    }
}

int apps_register(struct agent *agent, struct peer *peer, const char *name, bool named,
                  const struct device_key *device, const char *environment, struct app **ret_app)
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
    if (device) {
        app->device = *device;
        app->has_device = true;
    }
    app_save(agent, app);
    *ret_app = app;
    return 0;
}

int apps_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello)
{
    char name[sizeof(((struct app *)0)->name)], id[sizeof(((struct app *)0)->id)], program[64];
    uint64_t start;
    int error = process_start_time(peer->pid, &start);

    if (error) {
        return error;
    }
    field_string(hello, "name", name, sizeof(name));
    field_string(hello, "id", id, sizeof(id));
    field_string(hello, "program", program, sizeof(program));
    struct app *app = app_by_process(agent, peer->pid, start);
    if (!app) {
        /* A child of a program that was started with `run`, or one that an earlier agent knew. */
        const struct app *parent = app_by_id(agent, id);
        app = app_create(agent, peer->pid, start, peer->uid);
        if (!app) {
            return -ENOMEM;
        }
        if (!parent && valid_id(id)) {
            snprintf(app->id, sizeof(app->id), "%s", id);
            reserve_id(agent, id);
        } else {
            give_id(agent, app);
        }
        if (parent && parent->uid == app->uid) {
            app->named = parent->named;
            app->has_device = parent->has_device;
            app->device = parent->device;
        }
        set_name(app, parent && !parent->named ? program : name, program[0] ? program : app->id);
    }
    if (app->peer && app->peer != peer) {
        app->peer->app = NULL;
        peer_close(app->peer);
    }
    app->peer = peer;
    app->connected = true;
    app->status = (struct app_status){0};
    peer->app = app;
    app_save(agent, app);
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
    agent_log("%s: %s (pid %d) disconnected", app->id, app->name, (int)app->pid);
    apps_sweep(agent);
}

void apps_status(struct app *app, const msgpack_object *message)
{
    const msgpack_object *seats;
    char key[DEVICE_KEY_TEXT_MAX];

    if (!field_array(message, "seats", &seats)) {
        return;
    }
    struct app_status *status = &app->status;
    const msgpack_object *seat = &seats[0];
    status->known = true;
    status->suspended = field_bool(seat, "suspended", false);
    status->moving = field_bool(seat, "moving", false);
    status->device_bytes = field_u64(seat, "device_bytes", 0);
    status->moves = field_u64(seat, "moves", 0);
    status->last_downtime_ns = field_u64(seat, "last_downtime_ns", 0);
    status->contexts = field_u64(seat, "contexts", 0);
    status->queues = field_u64(seat, "queues", 0);
    status->memories = field_u64(seat, "memories", 0);
    status->programs = field_u64(seat, "programs", 0);
    status->kernels = field_u64(seat, "kernels", 0);
    status->events = field_u64(seat, "events", 0);
    field_string(seat, "pinned", status->pinned, sizeof(status->pinned));
    if (field_string(seat, "device", key, sizeof(key)) && key[0] &&
        !device_key_parse(key, &app->device)) {
        app->has_device = true;
    }
}

void apps_set_device(struct agent *agent, struct app *app, const struct device_key *device)
{
    app->device = *device;
    app->has_device = true;
    app_save(agent, app);
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

int apps_find(struct agent *agent, const struct peer *peer, const char *text, struct app **ret_app,
              char *ret_error, size_t error_size)
{
    char list[512];
    unsigned count;
    pid_t pid;

    apps_sweep(agent);
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

const char *app_state(const struct app *app)
{
    if (!app->connected) {
        return "starting";
    }
    if (!app->peer) {
        return "away";
    }
    if (app->status.moving) {
        return "moving";
    }
    return app->status.suspended ? "suspended" : "running";
}

const char *app_device_name(const struct agent *agent, const struct app *app)
{
    const struct inventory_entry *entry =
        app->has_device ? device_by_key(&agent->devices.inventory, &app->device) : NULL;

    return entry ? entry->name : "";
}

void app_describe(const struct agent *agent, const struct app *app, struct frame *frame)
{
    const struct app_status *status = &app->status;

    frame_string(frame, "id", app->id);
    frame_string(frame, "name", app->name);
    frame_u64(frame, "pid", (uint64_t)app->pid);
    frame_u64(frame, "uid", app->uid);
    frame_string(frame, "state", app_state(app));
    frame_string(frame, "device", app_device_name(agent, app));
    frame_string(frame, "device_driver_name", app->has_device ? app->device.device : "");
    frame_u64(frame, "device_bytes", status->device_bytes);
    frame_u64(frame, "moves", status->moves);
    frame_u64(frame, "last_downtime_ns", status->last_downtime_ns);
    frame_u64(frame, "contexts", status->contexts);
    frame_u64(frame, "queues", status->queues);
    frame_u64(frame, "memories", status->memories);
    frame_u64(frame, "programs", status->programs);
    frame_u64(frame, "kernels", status->kernels);
    frame_u64(frame, "events", status->events);
    frame_string(frame, "pinned", status->pinned);
}
