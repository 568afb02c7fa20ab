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
 * is learnt lasts as long as the agent. Written by a thread, so that the agent never waits for the
 * disk.
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
/** Waits for what is being written. NULL is allowed. */
void cost_store_destroy(struct cost_store *store);

/** Of @uid's kernel @id each device, one point at a time, in the order of the devices. */
typedef void cost_store_take(void *data, const char *name, const char *device, unsigned size,
                             const struct cost_point *point, int64_t used_s);
void cost_store_read(struct cost_store *store, uid_t uid, const char *id, cost_store_take *take,
                     void *data);
/** The points of @uid's kernels called @name (or whose id that is), or of all with NULL, by name;
 * at most @most. Returns whether there are more. */
bool cost_store_list(struct cost_store *store, uid_t uid, const char *name, uint64_t most,
                     void (*take)(void *data, const char *id, const char *name, const char *device,
                                  const struct cost_point *point),
                     void *data);

/** The `peak` of @uid's programs called @name; 0: unknown. */
uint64_t cost_store_peak(struct cost_store *store, uid_t uid, const char *name);

/** A write is under way: cost_store_poll() will say what became of it. */
bool cost_store_is_writing(const struct cost_store *store);
/** Write @rows, which are the store's from now on (malloc), in one transaction on a thread. Not
 *  while one is under way. */
void cost_store_write(struct cost_store *store, struct cost_row *rows, size_t count);
/**
 * Whether a write has ended. @wait: wait for its end.
 *
 * @ret_rows  What was to be written, where it was not: to be written again; freed by the caller.
 */
bool cost_store_poll(struct cost_store *store, bool wait, struct cost_row **ret_rows,
                     size_t *ret_count);

#endif
