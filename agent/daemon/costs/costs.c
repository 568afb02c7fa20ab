#include "agent/daemon/costs/costs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/daemon/clients.h"
#include "agent/daemon/costs/store.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "agent/protocol/agent_messages.h"

#define BUCKETS      1024 /* a power of two */
#define ENTRIES_MOST 4096 /* in memory; what is on disk only is read again when it is needed */
#define WORKS_MOST   32   /* kernels that a program runs at one time */
#define WRITE_MS     5000
#define MEASURED_MS  1000  /* how long an answer to the policy holds */
#define FADE_MS      30000 /* what a program did so long ago counts half */
#define SAMPLES_MOST 256   /* of one program in a second; it sends 64 */

/* What is known of one kernel on one device, for one user. */
struct cost_entry {
    struct cost_entry *next; /* in its bucket */
    struct cost_row row;
    bool dirty; /* not written yet */
};

struct cost_book {
    struct cost_store *store;
    struct cost_entry *buckets[BUCKETS];
    size_t count, dirty;
    uint64_t write_ms; /* uv_now() of the next write */
};

/* Launches of one kernel that a program did lately on one device of the ledger. */
struct cost_work {
    char id[COST_ID_SIZE];
    uint32_t device;
    uint64_t items;   /* of the last launch */
    uint64_t busy_ns; /* faded: see FADE_MS */
    uint64_t at_ms;
};

struct program_costs {
    struct cost_work works[WORKS_MOST];
    uint32_t count;
    struct policy_measured *measured; /* the last answer, by device of the ledger */
    uint32_t measured_count, measured_on;
    uint64_t measured_ms;
    uint64_t second; /* of uv_now(), in which so many samples came: */
    uint32_t samples;
};

static unsigned costs_bucket(uid_t uid, const char *id, const char *device)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ uid; /* FNV-1a */

    for (const char *text = id; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    for (const char *text = device; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (unsigned)(hash & (BUCKETS - 1));
}

static struct cost_entry *costs_find(const struct cost_book *book, uid_t uid, const char *id,
                                     const char *device)
{
    struct cost_entry *entry = book->buckets[costs_bucket(uid, id, device)];

    while (entry && (entry->row.uid != uid || strcmp(entry->row.id, id) != 0 ||
                     strcmp(entry->row.device, device) != 0))
        entry = entry->next;
    return entry;
}

/* An entry that is on disk makes room: of @uid's the one that was unused for longest, so that
 * nobody drives out what other users' programs need; else of all. */
static bool costs_make_room(struct cost_book *book, uid_t uid)
{
    struct cost_entry **oldest = NULL, **own = NULL;

    if (book->count < ENTRIES_MOST)
        return true;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct cost_entry **at = &book->buckets[i]; *at; at = &(*at)->next) {
            if ((*at)->dirty)
                continue;
            if (!oldest || (*at)->row.used_s < (*oldest)->row.used_s)
                oldest = at;
            if ((*at)->row.uid == uid && (!own || (*at)->row.used_s < (*own)->row.used_s))
                own = at;
        }
    }
    oldest = own ? own : oldest;
    if (!oldest)
        return false;
    struct cost_entry *entry = *oldest;
    *oldest = entry->next;
    free(entry);
    book->count--;
    return true;
}

/* NULL: there is no room, or no memory. */
static struct cost_entry *costs_add_entry(struct cost_book *book, uid_t uid, const char *id,
                                          const char *name, const char *device)
{
    struct cost_entry *entry = costs_make_room(book, uid) ? calloc(1, sizeof(*entry)) : NULL;

    if (!entry)
        return NULL;
    entry->row.uid = uid;
    entry->row.used_s = (int64_t)time(NULL);
    snprintf(entry->row.id, sizeof(entry->row.id), "%s", id);
    snprintf(entry->row.name, sizeof(entry->row.name), "%s", name);
    snprintf(entry->row.device, sizeof(entry->row.device), "%s", device);
    struct cost_entry **bucket = &book->buckets[costs_bucket(uid, id, device)];
    entry->next = *bucket;
    *bucket = entry;
    book->count++;
    return entry;
}

struct costs_reading {
    struct cost_book *book;
    uid_t uid;
    const char *id;
};

static void costs_take_point(void *data, const char *name, const char *device, unsigned size,
                             const struct cost_point *point, int64_t used_s)
{
    const struct costs_reading *reading = data;
    struct cost_entry *entry = costs_find(reading->book, reading->uid, reading->id, device);

    if (!entry && strlen(device) < COST_DEVICE_MAX)
        entry = costs_add_entry(reading->book, reading->uid, reading->id, name, device);
    if (!entry || entry->dirty)
        return;
    entry->row.costs.points[size] = *point;
    entry->row.used_s = used_s;
}

/* With the first launch of a kernel on a device comes what is known of it on all others. */
static struct cost_entry *costs_entry(struct cost_book *book, uid_t uid, const char *id,
                                      const char *name, const char *device)
{
    struct cost_entry *entry = costs_find(book, uid, id, device);

    if (entry)
        return entry;
    struct costs_reading reading = {book, uid, id};
    cost_store_read(book->store, uid, id, costs_take_point, &reading);
    entry = costs_find(book, uid, id, device);
    return entry ? entry : costs_add_entry(book, uid, id, name, device);
}

/* The memory of programs is in the book like a kernel's costs, with the program's name for the
 * device and no id, which no kernel has. */
static struct cost_entry *costs_peak_entry(struct cost_book *book, uid_t uid, const char *name)
{
    struct cost_entry *entry = costs_find(book, uid, "", name);

    if (!entry && (entry = costs_add_entry(book, uid, "", name, name)))
        entry->row.peak = cost_store_peak(book->store, uid, name);
    return entry;
}

uint64_t costs_peak(struct agent *agent, uid_t uid, const char *name)
{
    const struct cost_entry *entry = costs_peak_entry(agent->costs, uid, name);

    return entry ? entry->row.peak : 0;
}

void costs_note_peak(struct agent *agent, uid_t uid, const char *name, uint64_t bytes)
{
    struct cost_entry *entry = bytes ? costs_peak_entry(agent->costs, uid, name) : NULL;

    if (!entry)
        return;
    entry->row.peak =
        bytes < entry->row.peak ? entry->row.peak - (entry->row.peak - bytes) / 4 : bytes;
    entry->row.used_s = (int64_t)time(NULL);
    agent->costs->dirty += !entry->dirty;
    entry->dirty = true;
}

/* ---- what programs report ---- */

static void costs_fade(struct cost_work *work, uint64_t now_ms)
{
    for (; work->at_ms + FADE_MS <= now_ms && work->busy_ns != 0; work->at_ms += FADE_MS)
        work->busy_ns /= 2;
}

static void costs_note_work(struct program_costs *costs, const struct cost_sample *sample,
                            uint32_t device, uint64_t now_ms)
{
    struct cost_work *least = NULL;

    for (uint32_t i = 0; i < costs->count; i++) {
        struct cost_work *work = &costs->works[i];
        costs_fade(work, now_ms);
        if (work->device == device && strcmp(work->id, sample->id) == 0) {
            work->items = sample->items;
            work->busy_ns += sample->busy_ns < UINT64_MAX / 4 ? sample->busy_ns : UINT64_MAX / 4;
            work->busy_ns = work->busy_ns < UINT64_MAX / 4 ? work->busy_ns : UINT64_MAX / 4;
            return;
        }
        if (!least || work->busy_ns < least->busy_ns)
            least = work;
    }
    if (costs->count < WORKS_MOST)
        least = &costs->works[costs->count++];
    else if (least->busy_ns >= sample->busy_ns)
        return;
    *least = (struct cost_work){
        .device = device, .items = sample->items, .busy_ns = sample->busy_ns, .at_ms = now_ms};
    memcpy(least->id, sample->id, sizeof(least->id));
}

static uint32_t costs_device(const struct agent *agent, const struct device_key *key)
{
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct inventory_entry *entry = devices_entry(agent, i);
        if (entry && device_key_equal(&entry->key, key))
            return i;
    }
    return LEDGER_NONE;
}

static void costs_learn(struct agent *agent, struct program *program,
                        const struct cost_sample *sample)
{
    struct cost_book *book = agent->costs;
    char device[DEVICE_KEY_TEXT_MAX];
    uint32_t index = sample->has_device ? costs_device(agent, &sample->device) : LEDGER_NONE;

    if (index == LEDGER_NONE || strlen(sample->id) != COST_ID_SIZE - 1 || !sample->items ||
        !sample->ns)
        return;
    device_key_format(&sample->device, device);
    struct cost_entry *entry =
        strlen(device) < COST_DEVICE_MAX
            ? costs_entry(book, program->uid, sample->id, sample->name, device)
            : NULL;
    if (!entry)
        return;
    costs_add(&entry->row.costs, sample->items, sample->ns);
    entry->row.used_s = (int64_t)time(NULL);
    book->dirty += !entry->dirty;
    entry->dirty = true;
    costs_note_work(program->costs, sample, index, uv_now(&agent->loop));
}

/* A program that reports more than ours do is not listened to for the rest of the second. */
static bool costs_may_tell(struct program_costs *costs, uint64_t second)
{
    if (costs->second != second)
        costs->samples = 0;
    costs->second = second;
    return costs->samples++ < SAMPLES_MOST;
}

void costs_handle(struct peer *peer, struct message *message)
{
    const msgpack_object *items;
    size_t count = field_array(&message->root, "samples", &items);
    uint64_t second = uv_now(&peer->agent->loop) / 1000;

    if (!peer->program->costs)
        peer->program->costs = calloc(1, sizeof(*peer->program->costs));
    if (!peer->program->costs)
        return;
    for (size_t i = 0; i < count && i < PROTOCOL_SAMPLES_MAX; i++) {
        if (!costs_may_tell(peer->program->costs, second))
            return;
        struct cost_sample sample = {.has_device = false};
        take_sample(&items[i], &sample);
        costs_learn(peer->agent, peer->program, &sample);
    }
}

void costs_forget(struct program *program)
{
    if (program->costs)
        free(program->costs->measured);
    free(program->costs);
    program->costs = NULL;
}

/* ---- what the policy is told ---- */

static struct policy_measured costs_compare(struct agent *agent, const struct program *program,
                                            uint32_t from, uint32_t to)
{
    const struct program_costs *costs = program->costs;
    const struct inventory_entry *here = devices_entry(agent, from),
                                 *there = devices_entry(agent, to);
    char here_text[DEVICE_KEY_TEXT_MAX], there_text[DEVICE_KEY_TEXT_MAX];
    struct costs_use uses[WORKS_MOST];
    uint32_t count = 0;

    if (!here || !there)
        return (struct policy_measured){0};
    device_key_format(&here->key, here_text);
    device_key_format(&there->key, there_text);
    for (uint32_t i = 0; i < costs->count; i++) {
        const struct cost_work *work = &costs->works[i];
        if (work->device != from || work->busy_ns == 0)
            continue;
        const struct cost_entry *one = costs_find(agent->costs, program->uid, work->id, here_text),
                                *other =
                                    costs_find(agent->costs, program->uid, work->id, there_text);
        uses[count++] = (struct costs_use){.here = one ? &one->row.costs : NULL,
                                           .there = other ? &other->row.costs : NULL,
                                           .items = work->items,
                                           .busy_ns = work->busy_ns};
    }
    return costs_relative(uses, count);
}

const struct policy_measured *costs_measured(struct agent *agent, struct program *program,
                                             uint32_t device)
{
    struct program_costs *costs = program->costs;
    uint64_t now = uv_now(&agent->loop);

    if (!costs || device >= agent->ledger.count)
        return NULL;
    if (costs->measured && costs->measured_on == device &&
        costs->measured_count == agent->ledger.count && now < costs->measured_ms + MEASURED_MS)
        return costs->measured;
    struct policy_measured *measured =
        realloc(costs->measured, agent->ledger.count * sizeof(*measured));
    if (!measured)
        return NULL;
    costs->measured = measured;
    costs->measured_count = agent->ledger.count;
    costs->measured_on = device;
    costs->measured_ms = now;
    for (uint32_t i = 0; i < costs->count; i++)
        costs_fade(&costs->works[i], now);
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        measured[i] = costs_compare(agent, program, device, i);
    return measured;
}

/* ---- on disk ---- */

int costs_init(struct agent *agent, const char *folder)
{
    agent->costs = calloc(1, sizeof(*agent->costs));
    if (!agent->costs)
        return -ENOMEM;
    agent->costs->store = cost_store_create(folder);
    return agent->costs->store ? 0 : -ENOMEM;
}

/* What could not be written is dirty again. */
static void costs_poll(struct cost_book *book, bool wait)
{
    struct cost_row *rows;
    size_t count;

    if (!cost_store_poll(book->store, wait, &rows, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        struct cost_entry *entry = costs_find(book, rows[i].uid, rows[i].id, rows[i].device);
        if (entry && !entry->dirty) {
            entry->dirty = true;
            book->dirty++;
        }
    }
    free(rows);
}

static void costs_write(struct cost_book *book)
{
    struct cost_row *rows = book->dirty ? calloc(book->dirty, sizeof(*rows)) : NULL;
    size_t count = 0;

    if (!rows || cost_store_is_writing(book->store)) {
        free(rows);
        return;
    }
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct cost_entry *entry = book->buckets[i]; entry; entry = entry->next) {
            if (entry->dirty && count < book->dirty)
                rows[count++] = entry->row;
            entry->dirty = false;
        }
    }
    book->dirty = 0;
    cost_store_write(book->store, rows, count);
}

void costs_tick(struct agent *agent)
{
    struct cost_book *book = agent->costs;

    costs_poll(book, false);
    if (uv_now(&agent->loop) < book->write_ms)
        return;
    book->write_ms = uv_now(&agent->loop) + WRITE_MS;
    costs_write(book);
}

/* Everything that was learnt is in the store, or cannot be written. */
static void costs_settle(struct cost_book *book)
{
    costs_poll(book, true);
    costs_write(book);
    costs_poll(book, true);
}

void costs_finish(struct agent *agent)
{
    struct cost_book *book = agent->costs;

    if (!book)
        return;
    if (book->store)
        costs_settle(book);
    cost_store_destroy(book->store);
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct cost_entry *next;
        for (struct cost_entry *entry = book->buckets[i]; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(book);
    agent->costs = NULL;
}

/* ---- what clients are shown ---- */

struct profile {
    struct agent *agent;
    struct frame *frame;
    const struct program *program; /* whose kernels alone are shown; NULL: all */
};

static bool profile_runs(const struct program *program, const char *id)
{
    const struct program_costs *costs = program->costs;

    for (uint32_t i = 0; costs && i < costs->count; i++)
        if (strcmp(costs->works[i].id, id) == 0)
            return true;
    return false;
}

static void profile_put(void *data, const char *id, const char *name, const char *device,
                        const struct cost_point *point)
{
    const struct profile *profile = data;
    struct cost_record record;
    struct device_key key;

    if (profile->program && !profile_runs(profile->program, id))
        return;
    cost_record_of(point, &record);
    uint32_t index =
        device_key_parse(device, &key) ? LEDGER_NONE : costs_device(profile->agent, &key);
    frame_map(profile->frame, NULL);
    frame_string(profile->frame, "kernel", name);
    frame_string(profile->frame, "id", id);
    frame_string(profile->frame, "device",
                 index == LEDGER_NONE ? key.device : profile->agent->ledger.devices[index].name);
    frame_u64(profile->frame, "items", record.items);
    frame_u64(profile->frame, "ns", record.ns);
    frame_u64(profile->frame, "samples_permil", record.samples_k);
    frame_u64(profile->frame, "error_permil", record.error_permil);
    frame_end(profile->frame);
}

void profile_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    char what[COST_NAME_SIZE] = "";
    struct frame frame;
    struct profile profile = {agent, &frame, NULL};
    uid_t uid = client->uid;

    field_text(&message->root, "what", what, sizeof(what));
    for (struct program *program = agent->programs; program && what[0]; program = program->next)
        if (strcmp(program->name, what) == 0 && (client->uid == 0 || program->uid == client->uid))
            profile.program = program;
    if (profile.program)
        uid = profile.program->uid;
    costs_settle(agent->costs);
    frame_init(&frame, MSG_PROFILE);
    frame_array(&frame, "costs");
    bool more = cost_store_list(agent->costs->store, uid, what[0] && !profile.program ? what : NULL,
                                PROTOCOL_COSTS_MAX, profile_put, &profile);
    frame_end(&frame);
    frame_bool(&frame, "more", more);
    peer_send(client, &frame);
}
