#include "agent/daemon/costs/costs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* If memory runs out, uthash does not add the element and leaves its hh.tbl NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/clients.h"
#include "agent/daemon/costs/store.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/power/power.h"
#include "agent/daemon/programs/registry.h"

#define ENTRIES_MOST 4096 /* in memory; others are read from disk again when needed */
#define USES_MOST    32   /* kernels remembered for one program */
#define WRITE_MS     5000
#define MEASURED_MS  1000  /* lifetime of an answer to the policy */
#define FADE_MS      30000 /* half-life of a program's use of a kernel */
#define SAMPLES_MOST 256   /* accepted from one program in a second; the library sends 64 */
#define TELL_MS      5000  /* between two messages about power to one program */
#define INTERVALS    8     /* devices for which a program's launches are attributed to meters */

/* Costs of one kernel on one device, for one user. */
struct cost_entry {
    struct cost_entry *next; /* of the same kernel, on another device */
    struct device_key device;
    bool dirty; /* not written to disk yet */
    struct costs costs;
};

struct cost_kernel {
    struct cost_kernel_key {
        uid_t uid;
        char id[COST_ID_SIZE];
    } key; /* padding is zero: the key is hashed as bytes */
    char name[COST_NAME_SIZE];
    int64_t used_s;
    struct cost_entry *entries;
    UT_hash_handle hh;
};

/* Peak device memory of one user's programs of one name. */
struct cost_peak {
    struct cost_peak_key {
        uid_t uid;
        char name[COST_NAME_SIZE];
    } key; /* padding is zero: the key is hashed as bytes */
    bool dirty;
    int64_t used_s;
    uint64_t bytes;
    UT_hash_handle hh;
};

/* All costs in memory. */
struct cost_table {
    struct cost_store *store;
    struct cost_kernel *kernels; /* uthash */
    struct cost_peak *peaks;     /* uthash */
    size_t count;                /* of entries */
    size_t dirty;                /* number of dirty entries and peaks */
    uint64_t write_ms;           /* uv_now() of the next write */
    struct cost_job job;         /* belongs to the job's thread while `busy` */
    bool busy;
    uv_async_t ended;           /* signalled by the thread when the job has ended */
    struct cost_query *waiting; /* queries for the next job */
};

/* Recent launches of one kernel by one program on one device of the ledger. */
struct kernel_use {
    char id[COST_ID_SIZE];
    uint32_t device;
    uint64_t items;   /* of the latest launch */
    uint64_t busy_ns; /* halved every FADE_MS */
    uint64_t at_ms;
};

/* Launches on one device that a program reported during one interval of its meter. */
struct cost_interval {
    char id[COST_ID_SIZE];
    uint64_t items, busy_ns; /* busy_ns 0: no launches */
    bool mixed;              /* launches differed in kernel or size */
};

struct program_costs {
    struct cost_intervals {
        uint32_t device;                /* of the ledger */
        struct cost_interval now, last; /* the current one and the one before; none: free */
    } intervals[INTERVALS];
    struct kernel_use uses[USES_MOST];
    uint32_t count;
    struct policy_measured *measured; /* latest answer to the policy, indexed as the ledger */
    uint32_t measured_count, measured_on;
    uint64_t measured_ms;
    uint64_t second; /* the second of uv_now() that `samples` counts */
    uint32_t samples;
    uint32_t told;    /* kernels in `uses` when the program was told their power last */
    uint64_t tell_ms; /* when it is told again */
};

static void costs_start(struct agent *agent);
static void costs_settle(struct agent *agent);

static struct cost_kernel *costs_find(const struct cost_table *table, uid_t uid, const char *id)
{
    struct cost_kernel_key key;
    struct cost_kernel *kernel;

    memset(&key, 0, sizeof(key));
    key.uid = uid;
    snprintf(key.id, sizeof(key.id), "%s", id);
    HASH_FIND(hh, table->kernels, &key, sizeof(key), kernel);
    return kernel;
}

static struct cost_entry *costs_entry_on(const struct cost_kernel *kernel,
                                         const struct device_key *device)
{
    struct cost_entry *entry = kernel ? kernel->entries : NULL;

    while (entry && !device_key_equal(&entry->device, device))
        entry = entry->next;
    return entry;
}

static void costs_drop(struct cost_table *table, struct cost_kernel *kernel)
{
    HASH_DEL(table->kernels, kernel);
    for (struct cost_entry *next, *entry = kernel->entries; entry; entry = next) {
        next = entry->next;
        table->dirty -= entry->dirty;
        table->count--;
        free(entry);
    }
    free(kernel);
}

static bool costs_is_dirty(const struct cost_kernel *kernel)
{
    const struct cost_entry *entry = kernel->entries;

    while (entry && !entry->dirty)
        entry = entry->next;
    return entry != NULL;
}

/*
 * Evict a kernel that was written to disk: the least recently used one of @keep's user, so that no
 * user evicts another's kernels; if that user has none, the least recently used of all.
 */
static bool costs_make_room(struct cost_table *table, const struct cost_kernel *keep)
{
    struct cost_kernel *oldest = NULL, *own = NULL, *kernel, *next;

    if (table->count < ENTRIES_MOST)
        return true;
    HASH_ITER(hh, table->kernels, kernel, next)
    {
        if (kernel == keep || costs_is_dirty(kernel))
            continue;
        if (!oldest || kernel->used_s < oldest->used_s)
            oldest = kernel;
        if (kernel->key.uid == keep->key.uid && (!own || kernel->used_s < own->used_s))
            own = kernel;
    }
    if (!oldest)
        return false;
    costs_drop(table, own ? own : oldest);
    return true;
}

/* Returns NULL if there is no room or no memory. */
static struct cost_entry *costs_add_entry(struct cost_table *table, struct cost_kernel *kernel,
                                          const struct device_key *device)
{
    struct cost_entry *entry = costs_make_room(table, kernel) ? calloc(1, sizeof(*entry)) : NULL;

    if (!entry)
        return NULL;
    entry->device = *device;
    entry->next = kernel->entries;
    kernel->entries = entry;
    table->count++;
    return entry;
}

struct costs_reading {
    struct cost_table *table;
    struct cost_kernel *kernel;
};

static void costs_take_point(void *data, const char *device, unsigned size,
                             const struct cost_point *point)
{
    const struct costs_reading *reading = data;
    struct device_key key;

    if (device_key_parse(device, &key))
        return;
    struct cost_entry *entry = costs_entry_on(reading->kernel, &key);
    if (!entry)
        entry = costs_add_entry(reading->table, reading->kernel, &key);
    if (entry)
        entry->costs.points[size] = *point;
}

/*
 * Find a kernel; if it is new, read its costs on all devices from disk. Returns NULL without
 * memory.
 */
static struct cost_kernel *costs_kernel(struct cost_table *table, uid_t uid, const char *id,
                                        const char *name)
{
    struct cost_kernel *kernel = costs_find(table, uid, id);

    if (kernel)
        return kernel;
    kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return NULL;
    kernel->key.uid = uid;
    snprintf(kernel->key.id, sizeof(kernel->key.id), "%s", id);
    snprintf(kernel->name, sizeof(kernel->name), "%s", name);
    HASH_ADD(hh, table->kernels, key, sizeof(kernel->key), kernel);
    if (!kernel->hh.tbl) {
        free(kernel);
        return NULL;
    }
    struct costs_reading reading = {table, kernel};
    cost_store_read(table->store, uid, id, costs_take_point, &reading);
    return kernel;
}

/*
 * Get the entry of a kernel on a device and mark it dirty. Returns NULL if there is no room or
 * memory.
 */
static struct cost_entry *costs_change(struct cost_table *table, uid_t uid, const char *id,
                                       const char *name, const struct device_key *device)
{
    struct cost_kernel *kernel = costs_kernel(table, uid, id, name);
    struct cost_entry *entry = costs_entry_on(kernel, device);

    if (kernel && !entry)
        entry = costs_add_entry(table, kernel, device);
    if (kernel && !kernel->entries)
        costs_drop(table, kernel);
    if (!entry)
        return NULL;
    kernel->used_s = (int64_t)time(NULL);
    table->dirty += !entry->dirty;
    entry->dirty = true;
    return entry;
}

/* ---- peak memory of programs ---- */

/* Evict the least recently used peak that was written to disk. */
static bool costs_make_room_for_peak(struct cost_table *table)
{
    struct cost_peak *oldest = NULL, *peak, *next;

    if (HASH_COUNT(table->peaks) < COST_PEAKS_MOST)
        return true;
    HASH_ITER(hh, table->peaks, peak, next)
    if (!peak->dirty && (!oldest || peak->used_s < oldest->used_s))
        oldest = peak;
    if (!oldest)
        return false;
    HASH_DEL(table->peaks, oldest);
    free(oldest);
    return true;
}

/* Find or add a peak. Returns NULL if there is no room or no memory. */
static struct cost_peak *costs_find_peak(struct cost_table *table, uid_t uid, const char *name)
{
    struct cost_peak_key key;
    struct cost_peak *peak;

    memset(&key, 0, sizeof(key));
    key.uid = uid;
    snprintf(key.name, sizeof(key.name), "%s", name);
    HASH_FIND(hh, table->peaks, &key, sizeof(key), peak);
    if (peak)
        return peak;
    peak = costs_make_room_for_peak(table) ? calloc(1, sizeof(*peak)) : NULL;
    if (!peak)
        return NULL;
    peak->key = key;
    HASH_ADD(hh, table->peaks, key, sizeof(peak->key), peak);
    if (!peak->hh.tbl) {
        free(peak);
        return NULL;
    }
    peak->bytes = cost_store_peak(table->store, uid, key.name);
    peak->used_s = (int64_t)time(NULL);
    return peak;
}

uint64_t costs_peak(struct agent *agent, uid_t uid, const char *name)
{
    const struct cost_peak *peak = costs_find_peak(agent->costs, uid, name);

    return peak ? peak->bytes : 0;
}

void costs_note_peak(struct agent *agent, uid_t uid, const char *name, uint64_t bytes)
{
    struct cost_peak *peak = bytes ? costs_find_peak(agent->costs, uid, name) : NULL;

    if (!peak)
        return;
    peak->bytes = bytes < peak->bytes ? peak->bytes - (peak->bytes - bytes) / 4 : bytes;
    peak->used_s = (int64_t)time(NULL);
    agent->costs->dirty += !peak->dirty;
    peak->dirty = true;
}

/* ---- reports of programs ---- */

static void costs_fade_use(struct kernel_use *use, uint64_t now_ms)
{
    for (; use->at_ms + FADE_MS <= now_ms && use->busy_ns != 0; use->at_ms += FADE_MS)
        use->busy_ns /= 2;
}

static void costs_note_use(struct program_costs *costs, const struct cost_sample *sample,
                           uint32_t device, uint64_t now_ms)
{
    struct kernel_use *least = NULL;

    for (uint32_t i = 0; i < costs->count; i++) {
        struct kernel_use *use = &costs->uses[i];
        costs_fade_use(use, now_ms);
        if (use->device == device && strcmp(use->id, sample->id) == 0) {
            use->items = sample->items;
            use->busy_ns += sample->busy_ns < UINT64_MAX / 4 ? sample->busy_ns : UINT64_MAX / 4;
            use->busy_ns = use->busy_ns < UINT64_MAX / 4 ? use->busy_ns : UINT64_MAX / 4;
            return;
        }
        if (!least || use->busy_ns < least->busy_ns)
            least = use;
    }
    if (costs->count < USES_MOST)
        least = &costs->uses[costs->count++];
    else if (least->busy_ns >= sample->busy_ns)
        return;
    *least = (struct kernel_use){
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

static bool costs_are_alike(const struct cost_interval *one, const struct cost_interval *other)
{
    return strcmp(one->id, other->id) == 0 && one->items / 2 <= other->items &&
           other->items / 2 <= one->items;
}

/* Those of the program on @device; with @add a free entry if there is none. Or NULL. */
static struct cost_intervals *costs_intervals_on(struct program_costs *costs, uint32_t device,
                                                 bool add)
{
    struct cost_intervals *unused = NULL;

    for (size_t i = 0; i < INTERVALS; i++) {
        struct cost_intervals *on = &costs->intervals[i];
        bool used = on->now.busy_ns || on->last.busy_ns;
        if (used && on->device == device)
            return on;
        unused = used ? unused : on;
    }
    if (!add || !unused)
        return NULL;
    *unused = (struct cost_intervals){.device = device};
    return unused;
}

static void costs_note_interval(struct program_costs *costs, const struct cost_sample *sample,
                                uint32_t device)
{
    struct cost_intervals *on = costs_intervals_on(costs, device, true);
    struct cost_interval now = {.items = sample->items};

    if (!on)
        return;
    memcpy(now.id, sample->id, sizeof(now.id));
    now.mixed = on->now.mixed || (on->now.busy_ns && !costs_are_alike(&on->now, &now));
    now.busy_ns = on->now.busy_ns + (sample->busy_ns < UINT64_MAX / 4 ? sample->busy_ns : 0);
    on->now = now;
}

static void costs_learn(struct agent *agent, struct program *program,
                        const struct cost_sample *sample)
{
    uint32_t index = sample->has_device ? costs_device(agent, &sample->device) : LEDGER_NONE;

    if (index == LEDGER_NONE || strlen(sample->id) != COST_ID_SIZE - 1 || !sample->items ||
        !sample->ns)
        return;
    struct cost_entry *entry =
        costs_change(agent->costs, program->uid, sample->id, sample->name, &sample->device);
    if (!entry)
        return;
    costs_add(&entry->costs, sample->items, sample->ns);
    costs_note_interval(program->costs, sample, index);
    costs_note_use(program->costs, sample, index, uv_now(&agent->loop));
}

/*
 * True if launches of one kernel and size filled both intervals. Reports arrive up to a second
 * late, so one interval alone does not show what ran during it.
 */
static bool costs_fill(const struct cost_intervals *on, uint64_t interval_ns)
{
    const struct cost_interval *now = &on->now, *last = &on->last;
    uint64_t busy = now->busy_ns / 2 + last->busy_ns / 2;

    return now->busy_ns && last->busy_ns && !now->mixed && !last->mixed &&
           costs_are_alike(now, last) && busy >= interval_ns / 10 * 9;
}

void costs_power(struct agent *agent, uint32_t device, const struct program *alone,
                 uint64_t above_mw, uint64_t interval_ns)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        struct cost_intervals *on =
            program->costs ? costs_intervals_on(program->costs, device, false) : NULL;
        if (!on)
            continue;
        struct cost_kernel *kernel = program == alone && costs_fill(on, interval_ns)
                                         ? costs_find(agent->costs, program->uid, on->now.id)
                                         : NULL;
        const struct inventory_entry *there = devices_entry(agent, device);
        struct cost_entry *entry = there ? costs_entry_on(kernel, &there->key) : NULL;
        if (entry) {
            costs_add_power(&entry->costs, on->now.items, above_mw);
            agent->costs->dirty += !entry->dirty;
            entry->dirty = true;
        }
        on->last = on->now;
        on->now = (struct cost_interval){0};
    }
}

/* Limit the samples of a program in a second; further ones are ignored. */
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

/* ---- power, to programs ---- */

/* What @use's launches draw on @device above idle: as learnt, or else what is known of the program
 * or the device. 0: not known. */
static uint64_t costs_drawn(const struct agent *agent, const struct program *program,
                            const struct kernel_use *use, uint32_t device)
{
    const struct costs *costs = costs_of(agent, program->uid, use->id, device);
    struct cost_guess guess;

    return costs && costs_guess(costs, use->items, &guess) && guess.power_samples > 0
               ? guess.power_mw
               : power_expected(agent, program, device);
}

static bool costs_may_run_on(const struct agent *agent, const struct program *program,
                             uint32_t device)
{
    bool here = false;

    for (size_t i = 0; i < program->vdev_count; i++)
        here = here || program->vdevs[i].entry.device == device;
    for (size_t i = 0; i < program->spread.count; i++)
        here = here || (program->spread_told & 1u << i &&
                        costs_device(agent, &program->spread.devices[i]) == device);
    return here;
}

/* The first one of its kernel: it may have run on several devices. */
static bool costs_is_first_use(const struct program_costs *costs, uint32_t index)
{
    uint32_t i = 0;

    while (i < index && strcmp(costs->uses[i].id, costs->uses[index].id) != 0)
        i++;
    return i == index;
}

static void costs_put_device(const struct agent *agent, const struct program *program,
                             uint32_t device, struct frame *frame)
{
    const struct program_costs *costs = program->costs;
    struct cost_drawn drawn = {.device = devices_entry(agent, device)->key};

    for (uint32_t i = 0; i < costs->count; i++) {
        const struct kernel_use *use = &costs->uses[i];
        drawn.power_mw = costs_drawn(agent, program, use, device);
        if (!drawn.power_mw || !costs_is_first_use(costs, i))
            continue;
        memcpy(drawn.id, use->id, sizeof(drawn.id));
        drawn.items = use->items;
        frame_map(frame, NULL);
        put_drawn(frame, &drawn);
        frame_end(frame);
    }
}

static void costs_tell(const struct agent *agent, struct program *program)
{
    struct frame frame;
    uint64_t idle_mw = 0;

    program->costs->told = program->costs->count;
    program->costs->tell_ms = uv_now(&agent->loop) + TELL_MS;
    frame_init(&frame, MSG_COSTS);
    frame_array(&frame, "powers");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        if (!devices_entry(agent, i) || !costs_may_run_on(agent, program, i))
            continue;
        costs_put_device(agent, program, i, &frame);
        idle_mw += power_idle(agent, i);
    }
    frame_end(&frame);
    frame_u64(&frame, "idle_mw", idle_mw);
    peer_send(program->peer, &frame);
}

static void costs_tell_all(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        const struct program_costs *costs = program->costs;
        bool asks = program->peer && strncmp(program->status.objective, "energy", 6) == 0;
        if (costs && asks && (costs->count > costs->told || uv_now(&agent->loop) >= costs->tell_ms))
            costs_tell(agent, program);
    }
}

void costs_forget(struct program *program)
{
    if (program->costs)
        free(program->costs->measured);
    free(program->costs);
    program->costs = NULL;
}

/* ---- answers to the policy ---- */

const struct costs *costs_of(const struct agent *agent, uid_t uid, const char *id, uint32_t device)
{
    const struct inventory_entry *there = devices_entry(agent, device);
    const struct cost_entry *entry =
        there ? costs_entry_on(costs_find(agent->costs, uid, id), &there->key) : NULL;

    return entry ? &entry->costs : NULL;
}

static struct policy_measured
costs_compare(const struct agent *agent, const struct program *program, uint32_t from, uint32_t to)
{
    const struct program_costs *costs = program->costs;
    struct costs_use uses[USES_MOST];
    uint32_t count = 0;

    for (uint32_t i = 0; i < costs->count; i++) {
        const struct kernel_use *use = &costs->uses[i];
        if (use->device == from && use->busy_ns != 0)
            uses[count++] = (struct costs_use){.here = costs_of(agent, program->uid, use->id, from),
                                               .there = costs_of(agent, program->uid, use->id, to),
                                               .items = use->items,
                                               .busy_ns = use->busy_ns};
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
        costs_fade_use(&costs->uses[i], now);
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        measured[i] = costs_compare(agent, program, device, i);
    return measured;
}

/* ---- answers to clients ---- */

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

static void profile_answer(const struct agent *agent, const struct cost_query *query, int result)
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
        frame_u64(&frame, "added", query->added);
        frame_u64(&frame, "kept", query->kept);
        peer_send(query->client, &frame);
        return;
    }
    frame_init(&frame, MSG_PROFILE);
    frame_array(&frame, "costs");
    for (size_t i = 0; i < query->count; i++)
        profile_put(agent, &query->listed[i], &frame);
    frame_end(&frame);
    frame_bool(&frame, "more", query->more);
    frame_u64(&frame, "next", query->skip + query->passed);
    peer_send(query->client, &frame);
}

/* Select the kernels of a query: @what is the name of a program, of a device, or of a kernel. */
static void profile_choose(const struct agent *agent, const struct peer *client, const char *what,
                           struct cost_query *query)
{
    const struct program *found = NULL;
    size_t used = 0;

    for (const struct program *program = agent->programs; program; program = program->next)
        if (strcmp(program->name, what) == 0 && (client->uid == 0 || program->uid == client->uid))
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

/*
 * Queue a query. It is answered after the store's current job, and after dirty entries were
 * written.
 */
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

static void costs_forget_client(struct cost_query *query, const struct peer *client)
{
    for (; query; query = query->next)
        if (query->client == client)
            query->client = NULL;
}

void costs_client_closed(struct peer *client)
{
    costs_forget_client(client->agent->costs->job.queries, client);
    costs_forget_client(client->agent->costs->waiting, client);
}

/* ---- on disk ---- */

static void costs_collect_peaks(const struct cost_table *table, struct cost_job *job)
{
    struct cost_peak *peak, *next;

    HASH_ITER(hh, table->peaks, peak, next)
    {
        if (!peak->dirty)
            continue;
        peak->dirty = false;
        struct cost_row *row = &job->rows[job->count++];
        row->uid = peak->key.uid;
        row->used_s = peak->used_s;
        row->peak = peak->bytes;
        memcpy(row->name, peak->key.name, sizeof(row->name));
    }
}

/* Copy all dirty entries into rows and mark them clean. Returns false without memory. */
static bool costs_collect(struct cost_table *table, struct cost_job *job)
{
    struct cost_kernel *kernel, *next;
    char device[DEVICE_KEY_TEXT_MAX];

    *job = (struct cost_job){.rows = calloc(table->dirty + 1, sizeof(*job->rows))};
    if (!job->rows)
        return false;
    HASH_ITER(hh, table->kernels, kernel, next)
    {
        for (struct cost_entry *entry = kernel->entries; entry; entry = entry->next) {
            struct cost_row *row = &job->rows[job->count];
            if (!entry->dirty)
                continue;
            entry->dirty = false;
            device_key_format(&entry->device, device);
            if (strlen(device) >= sizeof(row->device))
                continue;
            job->count++;
            row->uid = kernel->key.uid;
            row->used_s = kernel->used_s;
            row->costs = entry->costs;
            memcpy(row->id, kernel->key.id, sizeof(row->id));
            memcpy(row->name, kernel->name, sizeof(row->name));
            strcpy(row->device, device);
        }
    }
    costs_collect_peaks(table, job);
    table->dirty = 0;
    return true;
}

/* Mark the entries dirty again that could not be written. */
static void costs_take_back(struct cost_table *table, const struct cost_job *job)
{
    struct device_key key;

    for (size_t i = 0; i < job->count; i++) {
        if (job->rows[i].peak) {
            struct cost_peak *peak = costs_find_peak(table, job->rows[i].uid, job->rows[i].name);
            if (peak && !peak->dirty) {
                peak->dirty = true;
                table->dirty++;
            }
            continue;
        }
        struct cost_entry *entry =
            device_key_parse(job->rows[i].device, &key)
                ? NULL
                : costs_entry_on(costs_find(table, job->rows[i].uid, job->rows[i].id), &key);
        if (entry && !entry->dirty) {
            entry->dirty = true;
            table->dirty++;
        }
    }
}

static void costs_on_thread_end(void *data)
{
    uv_async_send(data);
}

/* Start a job that writes dirty entries and answers queries; does nothing while one is running. */
static void costs_start(struct agent *agent)
{
    struct cost_table *table = agent->costs;

    if (table->busy || (!table->dirty && !table->waiting) || !costs_collect(table, &table->job))
        return;
    table->job.queries = table->waiting;
    table->waiting = NULL;
    int error = cost_store_start(table->store, &table->job, costs_on_thread_end, &table->ended);
    table->busy = error == 0;
    if (!error)
        return;
    agent_log("what launches cost is not written: no thread (%s)", strerror(-error));
    table->job.result = SQLITE_BUSY;
    costs_settle(agent);
}

/* Finish a job that has ended or could not be started. */
static void costs_settle(struct agent *agent)
{
    struct cost_table *table = agent->costs;

    cost_store_wait(table->store);
    table->busy = false;
    if (table->job.result != SQLITE_OK)
        costs_take_back(table, &table->job);
    for (const struct cost_query *query = table->job.queries; query; query = query->next)
        if (query->client)
            profile_answer(agent, query, table->job.result);
    cost_queries_free(table->job.queries);
    free(table->job.rows);
    table->job = (struct cost_job){0};
}

static void costs_on_ended(uv_async_t *handle)
{
    struct agent *agent = handle->data;

    if (agent->costs->busy)
        costs_settle(agent);
    if (agent->costs->waiting)
        costs_start(agent);
}

int costs_init(struct agent *agent, const char *folder)
{
    struct cost_table *table = calloc(1, sizeof(*table));

    if (!table)
        return -ENOMEM;
    table->store = cost_store_create(folder);
    int error = table->store ? uv_async_init(&agent->loop, &table->ended, costs_on_ended) : -ENOMEM;
    if (error) {
        cost_store_destroy(table->store);
        free(table);
        return error;
    }
    table->ended.data = agent;
    agent->costs = table;
    return 0;
}

void costs_tick(struct agent *agent)
{
    struct cost_table *table = agent->costs;

    costs_tell_all(agent);
    if (uv_now(&agent->loop) < table->write_ms)
        return;
    table->write_ms = uv_now(&agent->loop) + WRITE_MS;
    costs_start(agent);
}

void costs_stop(struct agent *agent)
{
    struct cost_table *table = agent->costs;

    if (!table || uv_is_closing((uv_handle_t *)&table->ended))
        return;
    if (table->busy)
        costs_settle(agent);
    uv_close((uv_handle_t *)&table->ended, NULL);
}

void costs_finish(struct agent *agent)
{
    struct cost_table *table = agent->costs;
    struct cost_kernel *kernel, *next;
    struct cost_peak *peak, *next_peak;

    if (!table)
        return;
    if (table->dirty && costs_collect(table, &table->job)) {
        cost_store_run(table->store, &table->job);
        free(table->job.rows);
    }
    cost_queries_free(table->waiting);
    cost_store_destroy(table->store);
    HASH_ITER(hh, table->kernels, kernel, next)
    costs_drop(table, kernel);
    HASH_ITER(hh, table->peaks, peak, next_peak)
    {
        HASH_DEL(table->peaks, peak);
        free(peak);
    }
    free(table);
    agent->costs = NULL;
}
