#ifndef RESEAT_STATE_IMAGE_SNAPSHOT_H
#define RESEAT_STATE_IMAGE_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "state/memory/memory.h"
#include "state/move/move.h"

/*
 * A snapshot: the bytes of all memory objects as they were at one moment, in host memory of our
 * own.
 *
 * It is made like the copies of a move: in rounds while the program runs, then the rest with the
 * gate closed and the queues drained. That pause is the snapshot's moment: every command given
 * before has ended, and none given later has begun. The program's replicas do not change (R1 to
 * R4): the latest bytes are read where they are, into chunks separate from the objects' host
 * copies, which mappings, devices that work in place and later copies keep using.
 *
 * A snapshot shares the chunks where no command wrote with the snapshot before, so that it costs
 * what has changed. Where only few parts of a chunk changed, it has these parts beside the shared
 * chunk. A pinned snapshot never changes. If a snapshot cannot be made, the one before stays.
 *
 * Bytes that are mapped for writing at the moment: if some device has them, the snapshot has that
 * device's bytes, from before the map. Otherwise (a device that works in place, or only host memory
 * has the latest bytes) it has the host copy's bytes, which the program may be changing, as OpenCL
 * allows until the unmap; the unmap is a command after the moment.
 *
 * Where a launch is given in pieces (command/pieces.h), the snapshot waits for its end, until the
 * deadline; or, with `in_launches`, the moment may be between two pieces. Then the bytes are those
 * after the groups that were given before the moment, each of which has ended, and before all other
 * groups. No command that must come after the launch is in them: such commands are deferred until
 * all groups have ended.
 */

/** Bytes of a chunk of a buffer, the last of which may be shorter. An image is one chunk. */
#define SNAPSHOT_CHUNK ((size_t)2 << 20)

struct snapshot;

/** A root object in a snapshot. Valid for as long as the snapshot is pinned. */
struct snapshot_root {
    struct object_weak memory;  /**< The object may have been released since. */
    struct object_weak context; /**< The context may have been released since. */
    cl_mem_object_type type;
    cl_mem_flags flags;
    size_t size;                     /**< Bytes. */
    const struct image_shape *image; /**< NULL for buffers. Bytes are laid out in its pitches. */
};

/** Consecutive bytes of a root. */
struct snapshot_run {
    struct range range;
    const char *bytes; /**< The bytes from range.begin on; NULL: they had never been written. */
    uint64_t since;    /**< Serial of the first snapshot with these bytes: they are the same in all
                          snapshots from there on. */
};

struct snapshot_request {
    struct move_request move; /**< Its deadline, cancel, and limits of downtime and bandwidth. */
    /** Also give up if copying ahead does not help and the pause is predicted to be longer than
     * this; 0: no limit. */
    uint64_t most_ns;
    bool in_launches; /**< The moment may be in the middle of a launch that is given in pieces. */
    /**
     * Called at the moment, on the caller's thread, with the gate closed, to read other state of
     * that moment. It must not call drivers or wait. -errno: no snapshot is made. Or NULL.
     */
    int (*moment)(void *data, const struct snapshot *snapshot);
    /**
     * Called once, on the caller's thread with the gate open, when little is left to be copied:
     * after it returned 0, the program gives no command until snapshot_make() returns. -errno: no
     * snapshot is made. Or NULL.
     */
    int (*stand)(void *data);
    void *data;
};

struct snapshot_report {
    int error;        /**< As snapshot_make. */
    char reason[512]; /**< One line; "" when it was made. */
    uint64_t serial;  /**< Serial of the snapshot that was made. */
    uint64_t total_ns;
    uint64_t waited_ns;   /**< Of that: waits for other movers and for commands, gate open. */
    uint64_t downtime_ns; /**< Time with the gate closed, in all. */
    uint64_t expected_ns; /**< For -EBUSY: the predicted pause. */
    uint64_t copied;      /**< Bytes that were read, some of them more than once. */
    uint64_t shared;      /**< Bytes shared with the snapshot before. */
    uint64_t same;        /**< Bytes that counted as written but were found unchanged. */
    uint32_t rounds;      /**< Rounds of copying ahead. */
};

/**
 * Make a snapshot of all contexts; from then on it is the latest.
 *
 * Blocks on the devices and the links, and on another move or snapshot. Thread-safe; not inside the
 * gate, nor from a callback of a driver. Returns 0; or, with the latest snapshot unchanged, -EPERM
 * (the program is pinned to its device, or bytes are lost with one), -ENOTSUP (it has state that
 * cannot be read), -ENOMEM, -EIO (a driver failed), -EBUSY (strict, or most_ns: the pause would be
 * longer), -ETIMEDOUT, -ECANCELED, -ESHUTDOWN (the process is exiting), or the error of `moment` or
 * `stand`.
 */
int snapshot_make(const struct snapshot_request *request, struct snapshot_report *ret_report);

/** The latest snapshot, pinned, or NULL. Thread-safe. */
struct snapshot *snapshot_pin(void);
/** NULL is allowed. Thread-safe. */
void snapshot_unpin(struct snapshot *snapshot);
/** Drop the latest snapshot; those who pinned it keep it. */
void snapshot_forget(void);

/** Serial number, rising with each snapshot of the process, from 1. */
uint64_t snapshot_serial(const struct snapshot *snapshot);
size_t snapshot_root_count(const struct snapshot *snapshot);
/** @index  Less than snapshot_root_count. */
struct snapshot_root snapshot_root(const struct snapshot *snapshot, size_t index);
/** Index of @memory, a root that the caller holds, or SIZE_MAX: it was made since. */
size_t snapshot_find(const struct snapshot *snapshot, const struct memory *memory);
/**
 * The run that contains byte @at of the root: a chunk, or, where a few parts of it changed since
 * another snapshot, some parts of one. False at the end of the root.
 */
bool snapshot_run(const struct snapshot *snapshot, size_t index, size_t at,
                  struct snapshot_run *ret_run);

/** Bytes of memory of all snapshots together. */
uint64_t snapshot_bytes(void);

#endif
