#ifndef RESEAT_STATE_SNAPSHOT_SNAPSHOT_H
#define RESEAT_STATE_SNAPSHOT_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "state/memory/memory.h"

/*
 * A snapshot: the bytes of all memory objects as they were at one moment, in host memory of our
 * own.
 *
 * It is made as a move makes its copies: in rounds while the program runs, then the rest with the
 * gate closed and the queues drained. That is the moment: every command given before it has ended,
 * none that comes later has begun. Nothing of the program's replicas changes by it (R1 to R4):
 * bytes are read where the latest ones are, into chunks beside the objects' host copies, which
 * maps, devices that work in place, and later copies go on using.
 *
 * The chunks of a snapshot are shared with the one before where no command wrote there since, so
 * that a snapshot costs what has changed; of one of which parts are known to be the same, the
 * others are kept beside it. Whoever pins a snapshot keeps it as it is, whatever comes later. A
 * snapshot that cannot be made leaves the one before as it was.
 *
 * What a snapshot has of bytes that are mapped for writing at the moment: what some device has of
 * them, so the bytes before the map. Where the host copy is all there is (a device that works in
 * place, or host memory alone has the latest bytes) it is what is in the host copy then, which the
 * program may be in the middle of changing, as OpenCL lets it until the unmap; an unmap is a
 * command, and comes after the moment.
 *
 * The moment is never in the middle of a launch that is given in pieces: it waits for its end,
 * until the deadline.
 */

/** Bytes of a chunk of a buffer, the last of which may be shorter. An image is one chunk. */
#define SNAPSHOT_CHUNK ((size_t)2 << 20)

struct snapshot;

/** A root object in a snapshot. Valid for as long as the snapshot is pinned. */
struct snapshot_root {
    struct object_weak memory;  /**< It may have been released since. */
    struct object_weak context; /**< Likewise. */
    cl_mem_object_type type;
    cl_mem_flags flags;
    size_t size;                     /**< Bytes. */
    const struct image_shape *image; /**< NULL for buffers. Bytes are in its pitches. */
};

/** A run of bytes that a root had. */
struct snapshot_run {
    struct range range;
    const char *bytes; /**< From range.begin on; NULL: they had never been written. */
    uint64_t since; /**< The serial of the snapshot that first had them: in the ones from there on
                         they are the same. */
};

struct snapshot_request {
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
    const atomic_bool *cancel; /**< Or NULL. */
    /** Copies ahead go on until the program would be stopped for no longer; 0: MOVE_DOWNTIME_NS. */
    uint64_t max_downtime_ns;
    bool strict; /**< Rather no snapshot than a longer pause. */
    /** Rather none as well where copies ahead do not help and the rest is expected to stop the
     * program for longer; 0: however long. */
    uint64_t most_ns;
    uint64_t
        bandwidth;   /**< Bytes a second for what is copied while the program runs; 0: no limit. */
    uint64_t memory; /**< Bytes that all snapshots may have together; 0: no limit. */
    /**
     * Called at the moment, on the caller's thread, with the gate closed: what else is to be of
     * that moment is looked at here. No driver calls, and nothing that waits. -errno: there is no
     * snapshot. Or NULL.
     */
    int (*moment)(void *data, const struct snapshot *snapshot);
    /**
     * Called once, on the caller's thread and with the gate open, when what is left to be copied is
     * little: from when it returned 0 the program gives no command until snapshot_make() returns.
     * Or -errno: there is no snapshot. Or NULL.
     */
    int (*stand)(void *data);
    void *data;
};

struct snapshot_report {
    int error;        /**< As snapshot_make. */
    char reason[512]; /**< One line; "" when it was made. */
    uint64_t serial;  /**< Of the snapshot that was made. */
    uint64_t total_ns;
    uint64_t downtime_ns; /**< With the gate closed, in all. */
    uint64_t expected_ns; /**< Of -EBUSY: what it would have been expected to stop it for. */
    uint64_t copied;      /**< Bytes that were read, some of them more than once. */
    uint64_t shared;      /**< Bytes that are the former snapshot's. */
    uint64_t same;        /**< That counted as written, and were found to be what was kept. */
    uint32_t rounds;      /**< Of copies ahead. */
};

/**
 * Make a snapshot of all contexts; from then on it is the latest.
 *
 * Blocks on the devices and the links, and on another move or snapshot. Thread-safe; not inside the
 * gate, nor from a callback of a driver. Returns 0; or, with the latest snapshot what it was,
 * -EPERM (the program is pinned to its device, or bytes are lost with one), -ENOTSUP (it has state
 * that cannot be read), -ENOMEM, -EIO (a driver failed), -EBUSY (strict, or most_ns: the pause
 * would be longer), -ETIMEDOUT, -ECANCELED, -ESHUTDOWN (the program ends), or what `moment` or
 * `stand` said.
 */
int snapshot_make(const struct snapshot_request *request, struct snapshot_report *ret_report);

/** The latest snapshot, pinned, or NULL. Thread-safe. */
struct snapshot *snapshot_pin(void);
/** NULL is allowed. Thread-safe. */
void snapshot_unpin(struct snapshot *snapshot);
/** There is no latest snapshot any more; whoever pinned it keeps it. */
void snapshot_forget(void);

/** Rises with each snapshot of the process, from 1. */
uint64_t snapshot_serial(const struct snapshot *snapshot);
/** CLOCK_MONOTONIC. */
uint64_t snapshot_moment(const struct snapshot *snapshot);
size_t snapshot_root_count(const struct snapshot *snapshot);
/** @index  Less than snapshot_root_count. */
struct snapshot_root snapshot_root(const struct snapshot *snapshot, size_t index);
/** The index of @memory, a root, or SIZE_MAX: it was made since. Only of an object that is held. */
size_t snapshot_find(const struct snapshot *snapshot, const struct memory *memory);
/**
 * The run of bytes that has byte @at of the root: a chunk's, or, where a little of it changed since
 * another snapshot, some parts of one. False at its end.
 */
bool snapshot_run(const struct snapshot *snapshot, size_t index, size_t at,
                  struct snapshot_run *ret_run);

/** Bytes that all snapshots have together. */
uint64_t snapshot_bytes(void);

#endif
