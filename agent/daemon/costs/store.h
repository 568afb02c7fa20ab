#ifndef RESEAT_AGENT_DAEMON_COSTS_STORE_H
#define RESEAT_AGENT_DAEMON_COSTS_STORE_H

#include <limits.h>
#include <sqlite3.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/daemon/costs/costs.h"
#include "policy/costs.h"

/*
 * Costs of launches on disk: an SQLite database in the state folder. Nothing depends on it: a
 * damaged file is renamed and a new one started, and if the file cannot be opened the costs are
 * kept in memory until it can, or until the agent exits. A thread writes and lists, so that the
 * agent does not wait for the disk.
 */

#define COST_DEVICE_MAX                                                                            \
    512 /**< Bytes of a key as text; costs on devices with longer keys are not stored. */

/** Rows kept for each user; the least recently used are deleted. */
#define COST_POINTS_MOST 20000
/** Size limit of the file. */
#define COST_BYTES_MOST (256ll << 20)

/** Program names of each user whose peak is kept; the least recently used are deleted. */
#define COST_PEAKS_MOST 1000

/** Costs of a user's kernel on a device; with a `peak`, of the user's programs called `name`. */
struct cost_row {
    uid_t uid;
    char id[COST_ID_SIZE], name[COST_NAME_SIZE];
    char device[COST_DEVICE_MAX];
    int64_t used_s; /**< Wall-clock time in seconds. */
    struct costs costs;
    uint64_t peak; /**< Bytes of device memory. */
};

struct cost_store;

/** Open or create @folder/costs.sqlite. Returns NULL without memory only. */
struct cost_store *cost_store_create(const char *folder);
/** No job may be running. NULL is allowed. */
void cost_store_destroy(struct cost_store *store);

/** Receives the costs of @uid's kernel @id, one point (device and size) per call. */
typedef void cost_store_take(void *data, const char *device, unsigned size,
                             const struct cost_point *point);
void cost_store_read(struct cost_store *store, uid_t uid, const char *id, cost_store_take *take,
                     void *data);
/** Room for 32 kernel ids as a JSON array. */
#define COST_IDS_SIZE (32 * (COST_ID_SIZE + 2) + 3)

/** Peak device memory of @uid's programs called @name, in bytes; 0: not known. */
uint64_t cost_store_peak(struct cost_store *store, uid_t uid, const char *name);

/** A client's query. */
struct cost_query {
    struct cost_query *next;
    struct peer *client; /**< Used by the caller only; NULL after it has disconnected. */
    uid_t uid;
    char kernel[COST_NAME_SIZE];      /**< Name or id of the kernels to list; "": all. */
    char device[DEVICE_KEY_TEXT_MAX]; /**< Text key of the device to list; "": all. */
    char ids[COST_IDS_SIZE];          /**< JSON array of the only kernel ids to list; "": all. */
    uint64_t skip, most;              /**< Rows to skip, and the most to list. */
    bool imports; /**< An import: it only waits until its rows, `added` by number, were written. */
    size_t added;

    /* The answer. */
    bool answered;
    struct cost_listed {
        char id[COST_ID_SIZE], name[COST_NAME_SIZE], device[COST_DEVICE_MAX];
        struct cost_point point;
    } * listed; /**< Ordered by name, id, device and size. */
    size_t count;
    size_t passed; /**< Rows that were read, with those that cannot be listed. */
    bool more;
    uint64_t kept; /**< After an import: all rows of the user. */
};
/** Free a list of queries. */
void cost_queries_free(struct cost_query *queries);

/** Work for the thread: it writes all rows in one transaction, then answers the queries. */
struct cost_job {
    struct cost_row *rows;
    size_t count;
    struct cost_query *queries;
    int result; /**< SQLITE_... of writing the rows. */
    bool damaged;
};
/**
 * Start @job on a thread. Until cost_store_wait() the caller may only touch `client` of its
 * queries. No other job may be running.
 *
 * @ended  Called on the thread with @data when the job is done; may be NULL.
 * Returns 0, or -errno if no thread could be created.
 */
MUST_CHECK int cost_store_start(struct cost_store *store, struct cost_job *job,
                                void (*ended)(void *data), void *data);
/** Wait for the running job. If the file turned out to be damaged, start a new one. */
void cost_store_wait(struct cost_store *store);
/** Run @job on the calling thread and finish it. */
void cost_store_run(struct cost_store *store, struct cost_job *job);

#endif
