#include "agent/daemon/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/service.h"
#include "state/base/bytes/little_endian.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"

/* A record of a file is a frame of the protocol, as it is in memory. */
#define LENGTH_SIZE  4
#define FILE_MAX     (1u << 20) /* Then the events that are kept become the older file of the two. */
#define NOBODY       ((uid_t)-1) /* The agent, in place of a user. */
#define RECORD_MAX   4096
#define REASON_MAX   512
#define FRAME_EVENTS 256 /* Events in one frame to a client. */

struct kept_event {
    uint64_t number;
    uint8_t *record; /**< The length and the map. */
    size_t size;
    uint64_t at_ms;
    bool owned;
    uid_t uid;
    uid_t payer; /**< Whose share it takes: the program's user, or who asked; or NOBODY. */
};

/** What the events of a user take, which is more than nothing. */
struct event_share {
    uid_t payer;
    size_t bytes;
};

struct event_log {
    struct kept_event kept[EVENTS_MAX]; /**< A ring, by number. */
    size_t first, count, kept_bytes;    /**< kept_bytes is at most FILE_MAX. */
    struct event_share shares[EVENTS_MAX + 1];
    size_t share_count;
    uint64_t last; /**< The number of the last event; 0: none. */
    char path[PATH_MAX], older[PATH_MAX], fresh[PATH_MAX];
    struct owned file; /**< OWNED_NONE: events are only kept in memory. */
    off_t bytes;       /**< Of the file, up to the end of the last whole record. */
    void (*noted)(struct agent *agent, const struct event *event); /**< Or NULL. */
    bool failed; /**< The last write failed, and a line of the log says so. */
};

/* ---- memory ---- */

static struct kept_event *event_log_at(const struct event_log *log, size_t index)
{
    return (struct kept_event *)&log->kept[(log->first + index) % EVENTS_MAX];
}

/** The share of @payer, or the place for one. */
static struct event_share *event_log_share(struct event_log *log, uid_t payer)
{
    struct event_share *share = log->shares;

    while (share < log->shares + log->share_count && share->payer != payer)
        share++;
    return share;
}

static void event_log_remove(struct event_log *log, size_t index)
{
    struct kept_event *gone = event_log_at(log, index);
    struct event_share *share = event_log_share(log, gone->payer);

    share->bytes -= gone->size;
    if (!share->bytes)
        *share = log->shares[--log->share_count];
    log->kept_bytes -= gone->size;
    free(gone->record);
    for (; index > 0; index--)
        *event_log_at(log, index) = *event_log_at(log, index - 1);
    *event_log_at(log, 0) = (struct kept_event){.record = NULL};
    log->first = (log->first + 1) % EVENTS_MAX;
    log->count--;
}

/** Forget the oldest event of the user whose events take the most: who floods loses only their own.
 */
static void event_log_forget(struct event_log *log)
{
    const struct event_share *most = log->shares;
    size_t index = 0;

    for (size_t i = 1; i < log->share_count; i++)
        most = log->shares[i].bytes > most->bytes ? &log->shares[i] : most;
    while (index < log->count && event_log_at(log, index)->payer != most->payer)
        index++;
    event_log_remove(log, index < log->count ? index : 0);
}

/** Keep an event under its number, or under the next one if that was given. Takes its record. */
static const struct kept_event *event_log_keep(struct event_log *log, const struct kept_event *one)
{
    struct event_share *share = event_log_share(log, one->payer);

    if (share == log->shares + log->share_count)
        log->shares[log->share_count++] = (struct event_share){.payer = one->payer};
    share->bytes += one->size;
    while (log->count == EVENTS_MAX || (log->count && log->kept_bytes + one->size > FILE_MAX))
        event_log_forget(log);
    struct kept_event *kept = event_log_at(log, log->count++);
    *kept = *one;
    kept->number = one->number > log->last ? one->number : log->last + 1;
    log->last = kept->number;
    log->kept_bytes += one->size;
    return kept;
}

/** Is this event of a file kept already, because the older file has it too? */
static bool event_log_has(const struct event_log *log, const struct kept_event *one)
{
    if (one->number > log->last)
        return false;
    for (size_t i = 0; i < log->count; i++) {
        const struct kept_event *kept = event_log_at(log, i);
        if (kept->number == one->number && kept->size == one->size &&
            memcmp(kept->record, one->record, one->size) == 0)
            return true;
    }
    return false;
}

static bool event_log_shows(const struct kept_event *kept, const struct peer *peer)
{
    return !kept->owned || peer_sees(peer, kept->uid);
}

static void event_log_put(const struct kept_event *kept, struct frame *frame)
{
    frame_packed(frame, NULL, kept->record + LENGTH_SIZE, kept->size - LENGTH_SIZE);
}

/* ---- files ---- */

/** Keep the records of a file. Returns the bytes of its whole records. */
static off_t event_log_load(struct event_log *log, const char *path)
{
    char *bytes = NULL;
    size_t size = 0, at = 0;

    if (paths_read(path, FILE_MAX + RECORD_MAX, &bytes, &size))
        return 0;
    while (size - at > LENGTH_SIZE) {
        const uint8_t *prefix = (const uint8_t *)bytes + at;
        uint64_t length = little_endian_get(prefix, LENGTH_SIZE);
        struct message message;
        if (length > RECORD_MAX || length > size - at - LENGTH_SIZE ||
            message_decode(prefix + LENGTH_SIZE, length, &message))
            break;
        uint8_t *record = malloc(LENGTH_SIZE + length);
        if (record) {
            memcpy(record, prefix, LENGTH_SIZE + length);
            const msgpack_object *map = &message.root;
            struct kept_event one = {.number = field_u64(map, "number", 0),
                                     .record = record,
                                     .size = LENGTH_SIZE + length,
                                     .at_ms = field_u64(map, "at_ms", 0),
                                     .owned = field_get(map, "uid") != NULL,
                                     .uid = (uid_t)field_u64(map, "uid", 0)};
            one.payer = one.owned ? one.uid : (uid_t)field_u64(map, "by_uid", NOBODY);
            if (event_log_has(log, &one))
                free(record);
            else
                (void)event_log_keep(log, &one);
        }
        message_finish(&message);
        at += LENGTH_SIZE + length;
    }
    free(bytes);
    return (off_t)at;
}

/** Open the file and cut off what is no whole record, after which a later agent would not read. */
static int event_log_open(struct event_log *log)
{
    int fd = open(log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = owned_take(fd, &log->file);

    if (!error && ftruncate(owned_fd(&log->file), log->bytes))
        error = -errno;
    return error;
}

/** Write what is kept to the file at @path. Returns 0 or -errno, and leaves no file then. */
static int event_log_dump(const struct event_log *log, const char *path)
{
    struct owned file = OWNED_NONE;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = owned_take(fd, &file);

    for (size_t i = 0; !error && i < log->count; i++)
        error = owned_append(&file, event_log_at(log, i)->record, event_log_at(log, i)->size);
    owned_close(&file);
    if (error)
        (void)unlink(path);
    return error;
}

/**
 * Begin a new file. The older one has all that is kept then, also from before it: a user who floods
 * pushes nobody's events out of the files. Without room for it, it is the file so far.
 */
static int event_log_turn(struct event_log *log)
{
    bool dumped = event_log_dump(log, log->fresh) == 0;

    owned_close(&log->file);
    if (rename(dumped ? log->fresh : log->path, log->older))
        return -errno;
    if (dumped && unlink(log->path))
        return -errno;
    log->bytes = 0;
    return 0;
}

static void event_log_write(struct event_log *log, const void *record, size_t size)
{
    if (!log->path[0])
        return;
    int error = log->bytes + (off_t)size > FILE_MAX ? event_log_turn(log) : 0;
    if (!error && owned_fd(&log->file) < 0)
        error = event_log_open(log);
    if (!error && !(error = owned_append(&log->file, record, size)))
        log->bytes += (off_t)size;
    else if (owned_fd(&log->file) >= 0 && ftruncate(owned_fd(&log->file), log->bytes))
        owned_close(&log->file); /* Opening it again cuts off the part of the record. */
    if (error && !log->failed)
        agent_log("%s: %s; events are lost there until they can be written", log->path,
                  strerror(-error));
    log->failed = error != 0;
}

void event_log_init(struct agent *agent, const char *folder)
{
    struct event_log *log = agent->event_log = calloc(1, sizeof(*log));

    if (!log)
        return;
    log->file = OWNED_NONE;
    if (!folder || paths_join(folder, "events", log->path) ||
        paths_join(folder, "events.older", log->older) ||
        paths_join(folder, "events.fresh", log->fresh)) {
        log->path[0] = '\0';
        return;
    }
    (void)event_log_load(log, log->older);
    log->bytes = event_log_load(log, log->path);
}

void event_log_finish(struct agent *agent)
{
    struct event_log *log = agent->event_log;

    agent->event_log = NULL;
    if (!log)
        return;
    for (size_t i = 0; i < log->count; i++)
        free(event_log_at(log, i)->record);
    owned_close(&log->file);
    free(log);
}

/* ---- events ---- */

void event_log_observe(struct agent *agent,
                       void (*noted)(struct agent *agent, const struct event *event))
{
    if (agent->event_log)
        agent->event_log->noted = noted;
}

struct event event_of(const struct peer *client, const char *what, const char *state)
{
    return (struct event){.what = what,
                          .state = state,
                          .by = client ? "command" : "policy",
                          .by_pid = client ? client->pid : 0,
                          .by_uid = client ? client->uid : 0};
}

static void event_log_follow(struct agent *agent, const struct kept_event *kept)
{
    struct frame frame;

    for (struct peer *peer = agent->peers; peer; peer = peer->next) {
        if (!peer->follows || !event_log_shows(kept, peer))
            continue;
        frame_init(&frame, MSG_EVENTS);
        frame_array(&frame, "events");
        event_log_put(kept, &frame);
        frame_end(&frame);
        frame_bool(&frame, "more", true);
        peer_send(peer, &frame);
    }
}

/** Put the event into the journal, with its parts as fields. As service_journal(). */
static bool event_log_journal(const struct event *event, const char *line)
{
    const struct program *program = event->program;
    char pid[32] = "", uid[32] = "", by_pid[32] = "", by_uid[32] = "";

    if (program)
        snprintf(pid, sizeof(pid), "%d", (int)program->pid);
    if (event->owned)
        snprintf(uid, sizeof(uid), "%u", (unsigned)event->uid);
    if (event->by_pid) {
        snprintf(by_pid, sizeof(by_pid), "%d", (int)event->by_pid);
        snprintf(by_uid, sizeof(by_uid), "%u", (unsigned)event->by_uid);
    }
    const struct service_field fields[] = {
        {"MESSAGE", line},
        {"PRIORITY", "6"},
        {"SYSLOG_IDENTIFIER", "reseatd"},
        {"RESEAT_WHAT", event->what},
        {"RESEAT_STATE", event->state},
        {"RESEAT_APP", program ? program->id : NULL},
        {"RESEAT_NAME", program ? program->name : NULL},
        {"RESEAT_PID", pid},
        {"RESEAT_UID", uid},
        {"RESEAT_DEVICE", event->device},
        {"RESEAT_FROM", event->from},
        {"RESEAT_TO", event->to},
        {"RESEAT_REASON", event->reason},
        {"RESEAT_BY", event->by},
        {"RESEAT_BY_PID", by_pid},
        {"RESEAT_BY_UID", by_uid},
    };
    return service_journal(fields, ARRAY_SIZE(fields));
}

static void event_log_line(const struct event *event)
{
    const struct program *program = event->program;
    const char *from = event->from, *to = event->to;
    char who[PROTOCOL_WORD_MAX + 64], way[PROTOCOL_TEXT_MAX / 2] = "", by[32] = "";
    char line[PROTOCOL_TEXT_MAX];

    if (program)
        snprintf(who, sizeof(who), "%s: %s (pid %d)", program->id, program->name,
                 (int)program->pid);
    else
        snprintf(who, sizeof(who), "%s:", event->device ? event->device : "agent");
    if (from && to)
        snprintf(way, sizeof(way), " from %s to %s", from[0] ? from : "memory",
                 to[0] ? to : "memory");
    if (event->by_pid)
        snprintf(by, sizeof(by), " (pid %d)", (int)event->by_pid);
    snprintf(line, sizeof(line), "%s %s %s%s by %s%s%s%s", who, event->what, event->state, way,
             event->by, by, event->reason && event->reason[0] ? ": " : "",
             event->reason ? event->reason : "");
    if (!event_log_journal(event, line))
        agent_log("%s", line);
}

void event_log_add(struct agent *agent, const struct event *wish)
{
    struct event_log *log = agent->event_log;
    struct event event = *wish;
    char reason[REASON_MAX];
    struct frame frame;

    if (!log)
        return;
    if (log->noted)
        log->noted(agent, wish);
    event.number = log->last + 1;
    event.at_ms = clock_wall_ms();
    if (event.program) {
        event.owned = true;
        event.uid = event.program->uid;
    }
    if (event.reason) {
        text_make_safe(reason, sizeof(reason), event.reason, strlen(event.reason));
        event.reason = reason;
    }
    event_log_line(&event);
    frame_init(&frame, "event");
    put_event(&frame, &event);
    if (!frame_seal(&frame) && frame.buffer.size <= RECORD_MAX) {
        size_t size = frame.buffer.size;
        uint8_t *record = (uint8_t *)msgpack_sbuffer_release(&frame.buffer);
        uint8_t *fitting = realloc(record, size); /* The buffer has room for many events. */
        record = fitting ? fitting : record;
        const struct kept_event *kept =
            event_log_keep(log, &(struct kept_event){.number = event.number,
                                                     .record = record,
                                                     .size = size,
                                                     .at_ms = event.at_ms,
                                                     .owned = event.owned,
                                                     .uid = event.uid,
                                                     .payer = event.owned    ? event.uid
                                                              : event.by_pid ? event.by_uid
                                                                             : NOBODY});
        event_log_write(log, record, size);
        event_log_follow(agent, kept);
    }
    frame_finish(&frame);
}

void event_log_program(struct agent *agent, const struct program *program, const char *state,
                       const char *reason)
{
    event_log_add(agent, &(struct event){.what = "program",
                                         .state = state,
                                         .program = program,
                                         .reason = reason,
                                         .by = "agent"});
}

void event_log_device(struct agent *agent, const char *device, const char *state,
                      const char *reason)
{
    event_log_add(
        agent,
        &(struct event){
            .what = "device", .state = state, .device = device, .reason = reason, .by = "agent"});
}

/* ---- clients ---- */

static bool event_log_is_policy_move(const msgpack_object *map, const struct program *program)
{
    const msgpack_object *app = field_get(map, "app");

    return field_is(map, "by", "policy") && field_is(map, "state", RESULT_DONE) &&
           (field_is(map, "what", MSG_MOVE) || field_is(map, "what", MSG_RESUME)) &&
           /* A later agent may use an id again. */
           field_is(app, "id", program->id) && field_u64(app, "pid", 0) == (uint64_t)program->pid;
}

void event_log_put_moves(const struct agent *agent, const struct program *program,
                         struct frame *frame)
{
    static const char *const keys[] = {"from", "to", "reason"};
    const struct event_log *log = agent->event_log;
    uint64_t now = clock_wall_ms();
    unsigned count = 0;

    frame_array(frame, "policy_moves");
    for (size_t i = log ? log->count : 0; i-- > 0 && count < PROGRAM_MOVES_MAX;) {
        const struct kept_event *kept = event_log_at(log, i);
        struct message message;
        if (!kept->owned || kept->uid != program->uid ||
            message_decode(kept->record + LENGTH_SIZE, kept->size - LENGTH_SIZE, &message))
            continue;
        if (event_log_is_policy_move(&message.root, program)) {
            frame_map(frame, NULL);
            frame_u64(frame, "age_ms", now > kept->at_ms ? now - kept->at_ms : 0);
            frame_forward(frame, &message.root, keys, ARRAY_SIZE(keys));
            frame_end(frame);
            count++;
        }
        message_finish(&message);
    }
    frame_end(frame);
}

void events_handle(struct peer *peer, struct message *message)
{
    struct event_log *log = peer->agent->event_log;
    uint64_t now = clock_wall_ms(), age = field_u64(&message->root, "age_ms", UINT64_MAX);
    size_t last = log ? log->count : 0, next = 0;
    unsigned count;

    peer->follows = field_bool(&message->root, "follow", false);
    do {
        struct frame frame;
        frame_init(&frame, MSG_EVENTS);
        frame_array(&frame, "events");
        for (count = 0; count < FRAME_EVENTS && next < last;) {
            const struct kept_event *kept = event_log_at(log, next++);
            if (!event_log_shows(kept, peer) || (age < now && kept->at_ms < now - age))
                continue;
            event_log_put(kept, &frame);
            count++;
        }
        frame_end(&frame);
        frame_bool(&frame, "more", peer->follows || next < last);
        peer_send(peer, &frame);
    } while (next < last);
}
