#ifndef RESEAT_AGENT_DAEMON_COSTS_STORE_H
#define RESEAT_AGENT_DAEMON_COSTS_STORE_H

#include <limits.h>
#include <sqlite3.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/daemon/costs/costs.h"
#include "policy/costs.h"

/*
 * What launches cost, on disk: an SQLite database in the state folder, by user. Nothing depends on
 * it: a file that cannot be read is set aside and begun anew, and where nothing can be written what
 * is learnt lasts as long as the agent. Writing and listing is done by a thread, so that the agent
 * does not wait for the disk.
 */

#define COST_DEVICE_MAX                                                                            \
    512 /**< Of a device's key as text; devices with longer ones are not kept. */

/** Points of one user that are kept: the ones unused for longest go. */
#define COST_POINTS_MOST 20000
/** The whole file. */
#define COST_BYTES_MOST (256ll << 20)

/** Programs of one user whose memory is kept: the ones unused for longest go. */
#define COST_PEAKS_MOST 1000

/** Of one user, kernel and device; or, with a `peak`, of one user's programs called `name`. */
struct cost_row {
    uid_t uid;
    char id[COST_ID_SIZE], name[COST_NAME_SIZE];
    char device[COST_DEVICE_MAX];
    int64_t used_s; /**< By the wall clock. */
    struct costs costs;
    uint64_t peak; /**< Bytes of device memory that such a program needed. */
};

struct cost_store;

/** Open or create @folder/costs.sqlite. NULL only without memory. */
struct cost_store *cost_store_create(const char *folder);
/** No job may be under way. NULL is allowed. */
void cost_store_destroy(struct cost_store *store);

/** Of @uid's kernel @id each device, one point at a time. */
typedef void cost_store_take(void *data, const char *device, unsigned size,
                             const struct cost_point *point);
void cost_store_read(struct cost_store *store, uid_t uid, const char *id, cost_store_take *take,
                     void *data);
/** Enough for 32 ids of kernels as a JSON array. */
#define COST_IDS_SIZE (32 * (COST_ID_SIZE + 2) + 3)

/** The `peak` of @uid's programs called @name; 0: unknown. */
uint64_t cost_store_peak(struct cost_store *store, uid_t uid, const char *name);

/** What a client wants to see. */
struct cost_query {
    struct cost_query *next;
    struct peer *client; /**< Of the caller. NULL: it is gone. */
    uid_t uid;
    char kernel[COST_NAME_SIZE]; /**< Kernels called so, or the one whose id that is; "": all. */
    char device[DEVICE_KEY_TEXT_MAX]; /**< A device's key as text; "": all. */
    char ids[COST_IDS_SIZE];          /**< The only kernels, as a JSON array of ids; "": all. */
    uint64_t skip, most;              /**< Points to leave out, and to list at most. */
    size_t added; /**< Of an import, which only waits for the rows: how many it had. */

    /* The answer. */
    bool answered;
    struct cost_listed {
        char id[COST_ID_SIZE], name[COST_NAME_SIZE], device[COST_DEVICE_MAX];
        struct cost_point point;
    } * listed; /**< By name, id, device and size. */
    size_t count;
    bool more;
};
/** Free a list of them. */
void cost_queries_free(struct cost_query *queries);

/** What the thread does: first it writes all rows in one transaction, then it answers. */
struct cost_job {
    struct cost_row *rows;
    size_t count;
    struct cost_query *queries;
    int result; /**< SQLITE_...: what became of the rows. */
    bool damaged;
};
/**
 * Begin @job, which nobody else may touch until cost_store_wait(). Not while one is under way.
 *
 * @ended  Called on the thread when it is done, with @data; NULL: nobody.
 * Returns 0, or -errno: there is no thread, and nothing was begun.
 */
MUST_CHECK int cost_store_start(struct cost_store *store, struct cost_job *job,
                                void (*ended)(void *data), void *data);
/** Wait for the end of the job that was begun. A file that turned out to be damaged is begun anew.
 */
void cost_store_wait(struct cost_store *store);
/** Do @job on this thread, with cost_store_wait(). */
void cost_store_run(struct cost_store *store, struct cost_job *job);

#endif
