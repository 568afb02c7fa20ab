#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/daemon/costs/costs_priv.h"
#include "agent/daemon/peers.h"

/* The costs in memory, and the jobs that write them to disk and answer queries of clients. */

#define ENTRIES_MOST 4096 /* in memory; others are read from disk again when needed */
#define WRITE_MS     5000

static void costs_settle(struct agent *agent);

struct cost_kernel *costs_find(const struct cost_table *table, uid_t uid, const char *id)
{
    struct cost_kernel_key key;
    struct cost_kernel *kernel;

    memset(&key, 0, sizeof(key));
    key.uid = uid;
    snprintf(key.id, sizeof(key.id), "%s", id);
    HASH_FIND(hh, table->kernels, &key, sizeof(key), kernel);
    return kernel;
}

struct cost_entry *costs_entry_on(const struct cost_kernel *kernel, const struct device_key *device)
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

/* Find a kernel; read the costs of a new one from disk. NULL: no memory. */
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

struct cost_entry *costs_change(struct cost_table *table, uid_t uid, const char *id,
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

/* ---- queries of clients ---- */

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

void costs_start(struct agent *agent)
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
