#include "agent/daemon/costs/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"

/* Incremented when a column changes. A file with a higher version is not modified. */
#define VERSION         2
#define TEXT_OF(x)      #x
#define VERSION_TEXT(x) TEXT_OF(x)

static const char store_schema[] =
    "CREATE TABLE IF NOT EXISTS cost(uid INTEGER NOT NULL, kernel TEXT NOT NULL, name TEXT NOT "
    "NULL, device TEXT NOT NULL, size INTEGER NOT NULL, count REAL NOT NULL, items REAL NOT NULL, "
    "time REAL NOT NULL, spread REAL NOT NULL, used INTEGER NOT NULL, outliers INTEGER NOT NULL "
    "DEFAULT 0, power_count REAL NOT NULL DEFAULT 0, power REAL NOT NULL DEFAULT 0, power_spread "
    "REAL NOT NULL DEFAULT 0, power_outliers INTEGER NOT NULL DEFAULT 0, "
    "UNIQUE(uid, kernel, device, size));"
    "CREATE INDEX IF NOT EXISTS cost_used ON cost(uid, used);"
    "CREATE TABLE IF NOT EXISTS peak(uid INTEGER NOT NULL, program TEXT NOT NULL, bytes INTEGER "
    "NOT NULL, used INTEGER NOT NULL, UNIQUE(uid, program));"
    "PRAGMA user_version=" VERSION_TEXT(VERSION);

/* Version 1 lacks the columns for outliers and power. */
static const char store_grow[] =
    "ALTER TABLE cost ADD COLUMN outliers INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE cost ADD COLUMN power_count REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE cost ADD COLUMN power REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE cost ADD COLUMN power_spread REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE cost ADD COLUMN power_outliers INTEGER NOT NULL DEFAULT 0";

/* How long an agent that starts waits for others that use the file. */
#define OPEN_MS 1000

struct cost_store {
    char path[PATH_MAX]; /* "": in memory only */
    sqlite3 *reader;     /* used by the agent's thread */
    sqlite3 *writer; /* used by the job's thread during a job; the same as reader if in memory */
    bool away;       /* in memory until the file at `path` can be opened */
    bool damaged;    /* the reader found damage */
    bool full;       /* the last write failed and that was logged */
    struct cost_job *job; /* the job that is running */
    bool threaded;        /* the job runs on `thread` */
    pthread_t thread;
    void (*ended)(void *data);
    void *data;
};

static void store_close(struct cost_store *store)
{
    if (store->writer != store->reader)
        sqlite3_close(store->writer);
    sqlite3_close(store->reader);
    store->reader = store->writer = NULL;
}

static bool store_is_damage(int result)
{
    return result == SQLITE_CORRUPT || result == SQLITE_NOTADB;
}

static int store_exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* Get the first column of the first row. */
static int store_ask(sqlite3 *db, const char *sql, char *ret, size_t size)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    ret[0] = '\0';
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(statement, 0);
        (void)snprintf(ret, size, "%s", text ? (const char *)text : "");
        result = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return result;
}

static int store_open_one(const char *path, int wait_ms, sqlite3 **ret_db)
{
    char pages[64];
    int result = sqlite3_open_v2(
        path, ret_db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL);
    if (result != SQLITE_OK)
        return result;
    (void)snprintf(pages, sizeof(pages), "PRAGMA max_page_count=%lld", COST_BYTES_MOST / 4096);
    (void)sqlite3_busy_timeout(*ret_db, wait_ms);
    /* SQLite does not wait for other processes while the kind of the journal changes. */
    uint64_t until_ns = clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
    while ((result = store_exec(*ret_db, "PRAGMA journal_mode=WAL")) == SQLITE_BUSY &&
           clock_now_ns() < until_ns)
        (void)usleep(1000);
    if (result == SQLITE_OK)
        result = store_exec(*ret_db, "PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; "
                                     "PRAGMA trusted_schema=OFF");
    return result == SQLITE_OK ? store_exec(*ret_db, pages) : result;
}

/*
 * Give the file the tables of this version. Another agent may do the same at the same time. Returns
 * SQLITE_OK, SQLITE_SCHEMA (the file is of a newer agent), or another error.
 */
static int store_make_tables(sqlite3 *db)
{
    char answer[64] = "";
    int result = store_exec(db, "BEGIN IMMEDIATE");
    if (result != SQLITE_OK)
        return result;
    result = store_ask(db, "PRAGMA user_version", answer, sizeof(answer));
    if (result == SQLITE_OK && atoi(answer) > VERSION)
        result = SQLITE_SCHEMA;
    if (result == SQLITE_OK && atoi(answer) == 1)
        result = store_exec(db, store_grow);
    if (result == SQLITE_OK)
        result = store_exec(db, store_schema);
    int ended = store_exec(db, result == SQLITE_OK ? "COMMIT" : "ROLLBACK");
    return result == SQLITE_OK ? ended : result;
}

/* Waits for other agents for @wait_ms. Returns as store_make_tables(). */
static int store_open_file(struct cost_store *store, int wait_ms)
{
    char answer[64] = "";
    int result = store_open_one(store->path, wait_ms, &store->writer);
    if (result == SQLITE_OK)
        result = store_ask(store->writer, "PRAGMA quick_check(1)", answer, sizeof(answer));
    if (result == SQLITE_OK && strcmp(answer, "ok") != 0)
        return SQLITE_CORRUPT;
    if (result == SQLITE_OK)
        result = store_make_tables(store->writer);
    if (result == SQLITE_OK)
        result = store_open_one(store->path, wait_ms, &store->reader);
    if (result == SQLITE_OK) {
        (void)sqlite3_busy_timeout(store->writer, 0);
        (void)sqlite3_busy_timeout(store->reader, 0);
    }
    return result;
}

static void store_set_aside(struct cost_store *store)
{
    char aside[PATH_MAX + 16], beside[PATH_MAX + 16];
    store_close(store);
    (void)snprintf(aside, sizeof(aside), "%s.damaged", store->path);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(beside, sizeof(beside), "%s-%s", store->path, i ? "shm" : "wal");
        (void)unlink(beside);
    }
    if (rename(store->path, aside) == 0)
        agent_log("%s is damaged: kept as %s, and learning begins anew", store->path, aside);
    else
        (void)unlink(store->path);
}

static void store_open(struct cost_store *store)
{
    int result = store->path[0] ? store_open_file(store, OPEN_MS) : SQLITE_CANTOPEN;
    if (store_is_damage(result)) {
        store_set_aside(store);
        result = store_open_file(store, OPEN_MS);
    }
    if (result == SQLITE_OK)
        return;
    agent_log("%s: %s; what launches cost is kept in memory until it can be opened",
              store->path[0] ? store->path : "costs.sqlite",
              result == SQLITE_SCHEMA ? "written by a newer release" : sqlite3_errstr(result));
    store_close(store);
    if (result == SQLITE_SCHEMA)
        store->path[0] = '\0';
    store->away = store->path[0] != '\0';
    if (store_open_one(":memory:", 0, &store->writer) != SQLITE_OK ||
        store_exec(store->writer, store_schema) != SQLITE_OK) {
        sqlite3_close(store->writer);
        store->writer = NULL;
    }
    store->reader = store->writer;
}

/* If the file can be opened by now, add to it what is in memory, and go on with it. */
static void store_return(struct cost_store *store)
{
    struct cost_store file = {.away = false};
    memcpy(file.path, store->path, sizeof(file.path));
    int result = store_open_file(&file, 0);
    char *copy = sqlite3_mprintf("ATTACH %Q AS file; BEGIN IMMEDIATE;"
                                 "INSERT OR REPLACE INTO file.cost SELECT * FROM main.cost;"
                                 "INSERT OR REPLACE INTO file.peak SELECT * FROM main.peak; COMMIT",
                                 file.path);
    if (result == SQLITE_OK && store->writer)
        result = copy ? store_exec(store->writer, copy) : SQLITE_NOMEM;
    sqlite3_free(copy);
    if (result != SQLITE_OK && store->writer) {
        (void)store_exec(store->writer, "ROLLBACK");
        (void)store_exec(store->writer, "DETACH file");
    }
    if (result != SQLITE_OK) {
        store_close(&file);
        return;
    }
    store_close(store);
    store->reader = file.reader;
    store->writer = file.writer;
    store->away = false;
    agent_log("%s: opened, and what launches cost is kept there", store->path);
}

struct cost_store *cost_store_create(const char *folder)
{
    struct cost_store *store = calloc(1, sizeof(*store));
    if (!store)
        return NULL;
    if (folder && paths_join(folder, "costs.sqlite", store->path))
        store->path[0] = '\0';
    store_open(store);
    return store;
}

void cost_store_destroy(struct cost_store *store)
{
    if (!store)
        return;
    store_close(store);
    free(store);
}

/* ---- reading ---- */

/* Columns of a point, in the order in which store_point() reads them. */
#define POINT                                                                                      \
    "count, items, time, spread, outliers, power_count, power, power_spread, power_outliers"

/* The file may have been modified by another program: check every value. */
static bool store_mean(double count, double mean, double spread, sqlite3_int64 outliers,
                       struct cost_mean *ret_mean)
{
    *ret_mean = (struct cost_mean){.count = (float)count,
                                   .mean = (float)mean,
                                   .spread = (float)spread,
                                   .outliers = (int32_t)outliers};
    return count >= 0 && count < 1e6 && mean >= 0 && mean < 64 && spread >= 0 && spread < 1e6 &&
           llabs(outliers) < COSTS_FOLLOW;
}

static bool store_point(sqlite3_stmt *statement, int column, struct cost_point *ret_point)
{
    double numbers[9];
    for (int i = 0; i < 9; i++)
        numbers[i] = sqlite3_column_double(statement, column + i);
    ret_point->size = (float)numbers[1];
    return numbers[1] >= 0 && numbers[1] < 64 && numbers[0] > 0 &&
           store_mean(numbers[0], numbers[2], numbers[3],
                      sqlite3_column_int64(statement, column + 4), &ret_point->time) &&
           store_mean(numbers[5], numbers[6], numbers[7],
                      sqlite3_column_int64(statement, column + 8), &ret_point->power);
}

static const char *store_text(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    return text ? (const char *)text : "";
}

static sqlite3_stmt *store_prepare(struct cost_store *store, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int result = store->reader ? sqlite3_prepare_v2(store->reader, sql, -1, &statement, NULL)
                               : SQLITE_CANTOPEN;
    store->damaged = store->damaged || store_is_damage(result);
    return statement;
}

static bool store_next(struct cost_store *store, sqlite3_stmt *statement)
{
    int result = sqlite3_step(statement);
    store->damaged = store->damaged || store_is_damage(result);
    return result == SQLITE_ROW;
}

void cost_store_read(struct cost_store *store, uid_t uid, const char *id, cost_store_take *take,
                     void *data)
{
    sqlite3_stmt *statement = store_prepare(store, "SELECT device, size, " POINT " FROM cost "
                                                   "WHERE uid=?1 AND kernel=?2");
    struct cost_point point;
    if (!statement)
        return;
    sqlite3_bind_int64(statement, 1, uid);
    sqlite3_bind_text(statement, 2, id, -1, SQLITE_STATIC);
    while (store_next(store, statement)) {
        sqlite3_int64 size = sqlite3_column_int64(statement, 1);
        if (size >= 0 && size < COSTS_SIZES && store_point(statement, 2, &point))
            take(data, store_text(statement, 0), (unsigned)size, &point);
    }
    sqlite3_finalize(statement);
}

/* ---- a job ---- */

void cost_queries_free(struct cost_query *queries)
{
    struct cost_query *next;
    for (; queries; queries = next) {
        next = queries->next;
        free(queries->listed);
        free(queries);
    }
}

uint64_t cost_store_peak(struct cost_store *store, uid_t uid, const char *name)
{
    sqlite3_stmt *statement =
        store_prepare(store, "SELECT bytes FROM peak WHERE uid=?1 AND program=?2");
    sqlite3_int64 bytes = 0;
    if (!statement)
        return 0;
    sqlite3_bind_int64(statement, 1, uid);
    sqlite3_bind_text(statement, 2, name, -1, SQLITE_STATIC);
    if (store_next(store, statement))
        bytes = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static void store_list_row(sqlite3_stmt *statement, struct cost_query *query)
{
    struct cost_listed *listed = &query->listed[query->count];
    query->more = query->passed == query->most;
    if (query->more || (query->passed++, !store_point(statement, 3, &listed->point)))
        return;
    (void)snprintf(listed->id, sizeof(listed->id), "%s", store_text(statement, 0));
    (void)snprintf(listed->name, sizeof(listed->name), "%s", store_text(statement, 1));
    (void)snprintf(listed->device, sizeof(listed->device), "%s", store_text(statement, 2));
    query->count++;
}

static void store_bind(sqlite3_stmt *statement, int parameter, const char *text)
{
    if (text[0])
        sqlite3_bind_text(statement, parameter, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(statement, parameter);
}

/* For an import: how many rows the user has now. */
static int store_count(const struct cost_store *store, struct cost_query *query)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(store->writer, "SELECT count(*) FROM cost WHERE uid=?1", -1,
                                    &statement, NULL);
    if (result == SQLITE_OK) {
        sqlite3_bind_int64(statement, 1, query->uid);
        result = sqlite3_step(statement);
    }
    query->answered = result == SQLITE_ROW;
    query->kept = query->answered ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return result;
}

static int store_answer(const struct cost_store *store, struct cost_query *query)
{
    if (query->imports)
        return store_count(store, query);
    sqlite3_stmt *statement = NULL;
    int result =
        sqlite3_prepare_v2(store->writer,
                           "SELECT kernel, name, device, " POINT " FROM cost WHERE uid=?1 "
                           "AND (?2 IS NULL OR name=?2 OR kernel=?2) AND (?3 IS NULL OR device=?3) "
                           "AND (?4 IS NULL OR kernel IN (SELECT value FROM json_each(?4))) "
                           "ORDER BY name, kernel, device, size LIMIT ?5 OFFSET ?6",
                           -1, &statement, NULL);
    query->count = query->passed = 0;
    query->more = false;
    query->listed = calloc(query->most + 1, sizeof(*query->listed));
    if (result == SQLITE_OK && query->listed) {
        sqlite3_bind_int64(statement, 1, query->uid);
        store_bind(statement, 2, query->kernel);
        store_bind(statement, 3, query->device);
        store_bind(statement, 4, query->ids);
        sqlite3_bind_int64(statement, 5, (sqlite3_int64)(query->most + 1));
        sqlite3_bind_int64(statement, 6, (sqlite3_int64)query->skip);
        while (!query->more && (result = sqlite3_step(statement)) == SQLITE_ROW)
            store_list_row(statement, query);
    }
    sqlite3_finalize(statement);
    query->answered = result == SQLITE_DONE || query->more;
    return result;
}

static int store_put_peak(sqlite3_stmt *statement, const struct cost_row *row)
{
    sqlite3_reset(statement);
    sqlite3_bind_int64(statement, 1, row->uid);
    sqlite3_bind_text(statement, 2, row->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)(row->peak & INT64_MAX));
    sqlite3_bind_int64(statement, 4, row->used_s);
    int result = sqlite3_step(statement);
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

static int store_put_row(sqlite3_stmt *statement, const struct cost_row *row)
{
    int result = SQLITE_DONE;
    for (int i = 0; i < COSTS_SIZES && result == SQLITE_DONE; i++) {
        const struct cost_point *point = &row->costs.points[i];
        const struct cost_mean *time = &point->time, *power = &point->power;
        if (time->count <= 0)
            continue;
        sqlite3_reset(statement);
        sqlite3_bind_int64(statement, 1, row->uid);
        sqlite3_bind_text(statement, 2, row->id, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 3, row->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 4, row->device, -1, SQLITE_STATIC);
        sqlite3_bind_int(statement, 5, i);
        sqlite3_bind_int64(statement, 6, row->used_s);
        sqlite3_bind_double(statement, 7, (double)time->count);
        sqlite3_bind_double(statement, 8, (double)point->size);
        sqlite3_bind_double(statement, 9, (double)time->mean);
        sqlite3_bind_double(statement, 10, (double)time->spread);
        sqlite3_bind_int(statement, 11, time->outliers);
        sqlite3_bind_double(statement, 12, (double)power->count);
        sqlite3_bind_double(statement, 13, (double)power->mean);
        sqlite3_bind_double(statement, 14, (double)power->spread);
        sqlite3_bind_int(statement, 15, power->outliers);
        result = sqlite3_step(statement);
    }
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

static int store_put_all(const struct cost_store *store, const struct cost_job *job)
{
    sqlite3_stmt *statement = NULL, *peak = NULL;
    int result = sqlite3_prepare_v2(store->writer,
                                    "INSERT OR REPLACE INTO cost(uid, kernel, name, device, size, "
                                    "used, " POINT ") "
                                    "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                                    -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_prepare_v2(store->writer,
                                    "INSERT OR REPLACE INTO peak(uid, program, bytes, used) "
                                    "VALUES(?,?,?,?)",
                                    -1, &peak, NULL);
    for (size_t i = 0; i < job->count && result == SQLITE_OK; i++)
        result = job->rows[i].peak ? store_put_peak(peak, &job->rows[i])
                                   : store_put_row(statement, &job->rows[i]);
    sqlite3_finalize(statement);
    sqlite3_finalize(peak);
    return result;
}

static bool store_user_is_new(const struct cost_job *job, size_t row)
{
    size_t i = 0;
    while (job->rows[i].uid != job->rows[row].uid)
        i++;
    return i == row;
}

#define PRUNE(table)                                                                               \
    "DELETE FROM " table " WHERE rowid IN (SELECT rowid FROM " table                               \
    " WHERE uid=?1 ORDER BY used "                                                                 \
    "LIMIT max((SELECT count(*) FROM " table " WHERE uid=?1)-?2,0))"

/* Keep the @most recently used rows of each user who has rows in @job. */
static int store_prune(const struct cost_store *store, const struct cost_job *job,
                       const char *prune, int most)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(store->writer, prune, -1, &statement, NULL);
    for (size_t i = 0; i < job->count && result == SQLITE_OK; i++) {
        if (!store_user_is_new(job, i))
            continue;
        sqlite3_reset(statement);
        sqlite3_bind_int64(statement, 1, job->rows[i].uid);
        sqlite3_bind_int(statement, 2, most);
        result = sqlite3_step(statement);
        result = result == SQLITE_DONE ? SQLITE_OK : result;
    }
    sqlite3_finalize(statement);
    return result;
}

static int store_write(const struct cost_store *store, const struct cost_job *job)
{
    int result = store_exec(store->writer, "BEGIN IMMEDIATE");
    if (result != SQLITE_OK)
        return result;
    result = store_put_all(store, job);
    if (result == SQLITE_OK)
        result = store_prune(store, job, PRUNE("cost"), COST_POINTS_MOST);
    if (result == SQLITE_OK)
        result = store_prune(store, job, PRUNE("peak"), COST_PEAKS_MOST);
    if (result == SQLITE_OK)
        result = store_exec(store->writer, "COMMIT");
    if (result != SQLITE_OK)
        (void)store_exec(store->writer, "ROLLBACK");
    return result;
}

static void *store_main(void *data)
{
    const struct cost_store *store = data;
    struct cost_job *job = store->job;
    job->result = SQLITE_OK;
    if (!store->writer)
        job->result = SQLITE_CANTOPEN;
    else if (job->count != 0)
        job->result = store_write(store, job);
    job->damaged = store_is_damage(job->result);
    for (struct cost_query *query = job->queries; query && store->writer; query = query->next)
        job->damaged = store_is_damage(store_answer(store, query)) || job->damaged;
    if (store->ended)
        store->ended(store->data);
    return NULL;
}

int cost_store_start(struct cost_store *store, struct cost_job *job, void (*ended)(void *data),
                     void *data)
{
    store->job = job;
    store->ended = ended;
    store->data = data;
    int error = pthread_create(&store->thread, NULL, store_main, store);
    store->threaded = error == 0;
    if (error)
        store->job = NULL;
    return -error;
}

void cost_store_run(struct cost_store *store, struct cost_job *job)
{
    store->job = job;
    store->ended = NULL;
    store->threaded = false;
    (void)store_main(store);
    cost_store_wait(store);
}

void cost_store_wait(struct cost_store *store)
{
    const struct cost_job *job = store->job;
    if (!job)
        return;
    if (store->threaded)
        (void)pthread_join(store->thread, NULL);
    store->job = NULL;
    if (job->result != SQLITE_OK && job->result != SQLITE_BUSY && !store->full)
        agent_log("%s: %s; what was learnt of launches is written once that is possible",
                  store->path[0] ? store->path : "costs", sqlite3_errstr(job->result));
    store->full = job->result != SQLITE_OK;
    if (store->away) {
        store_return(store);
    } else if (store->path[0] && (store->damaged || job->damaged)) {
        store->damaged = false;
        store_set_aside(store);
        store_open(store);
    }
}
