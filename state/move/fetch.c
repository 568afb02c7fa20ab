#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/budget/budget.h"
#include "state/memory/mapping.h"
#include "state/memory/replica.h"
#include "state/move/move_priv.h"
#include "state/move/source.h"
#include "state/object/lost.h"

/* Target duration of a slice: a command that names an object of it waits that long. */
#define SLICE_NS    (8 * NS_PER_MS)
#define SLICE_FIRST ((size_t)8 << 20)
#define SLICE_LEAST ((size_t)256 << 10)
#define SLICE_MOST  ((size_t)256 << 20)
/* Limits on what is copied between two closings of the gate: slices, and objects in them. */
#define BATCH_SLICES 8
#define BATCH_ROOTS  1024
/* Longest time that the gate stays closed because a thread of the program is in a call that lasts.
 */
#define GATE_NS (5 * NS_PER_MS)
/* RETRY_NS: pause after a try in vain, doubled each time. STAND_BACK_NS: pause while commands bring
 * bytes. */
#define RETRY_NS      (20 * NS_PER_MS)
#define STAND_BACK_NS (2 * NS_PER_MS)
/* The end needs a pause: first QUIESCE_NS at most are waited for given commands, with the program
 * running; then the gate is closed for END_NS at most. END_TRIES tries. */
#define END_NS     (20 * NS_PER_MS)
#define QUIESCE_NS (10 * NS_PER_S)
#define END_TRIES  10

/* One object whose latest bytes were only at sources when the program moved. */
struct item {
    struct object_weak root;
    uint64_t bytes, stamp;
};

/* What is fetched for one virtual device. Guarded by the movers' lock. */
struct fetching {
    struct item *items;
    size_t count, at; /* those before `at` are fetched, or left to commands */
    struct throttle throttle;
    uint64_t passed; /* bytes of the items before `at` */
    size_t slice;    /* bytes that take the link about SLICE_NS */
    uint64_t due;    /* when it continues, by the monotonic clock */
    unsigned tries;  /* in vain */
    bool active;
};

static struct fetching fetchings[VDEVS];
static bool running; /* the thread runs; guarded by the movers' lock */
/* When the first of them continues; 0 when something new was added. */
static _Atomic uint64_t due;
/* Progress, for fetch_read. */
static struct {
    _Atomic uint64_t fetched, total;
} figures[VDEVS];

void fetch_read(uint32_t vdev, uint64_t *ret_fetched, uint64_t *ret_total)
{
    uint64_t total = vdev < VDEVS ? atomic_load(&figures[vdev].total) : 0;
    uint64_t fetched = total != 0 ? atomic_load(&figures[vdev].fetched) : 0;
    *ret_total = total;
    *ret_fetched = fetched < total ? fetched : total;
}

static void fetch_forget(size_t vdev)
{
    free(fetchings[vdev].items);
    fetchings[vdev] = (struct fetching){0};
    atomic_store(&figures[vdev].total, 0);
    atomic_store(&figures[vdev].fetched, 0);
}

/* Index of @vdev's residence in @root's context; RESIDENCE_NONE where nothing can be copied to it.
 * Gate closed, or while the caller keeps moves away. */
static uint8_t fetch_index_of(const struct vdev *vdev, const struct memory *root)
{
    const struct context *context = root->context;
    int index = context_vdev_index(context, vdev);
    uint8_t residence_index =
        index < 0 ? RESIDENCE_NONE : atomic_load(&context->residence_index[index]);
    return context_lives(context, residence_index) && !context->at[residence_index]->runs_in_caller
               ? residence_index
               : RESIDENCE_NONE;
}

/* Residence that @root's bytes go to, and those that they come from, as bits. */
struct way {
    uint8_t to;
    uint64_t from;
};

/* Bytes that do not fit on the target go to host memory, or stay there. */
static struct way fetch_way_of(const struct vdev *vdev, const struct memory *root)
{
    uint8_t residence_index = fetch_index_of(vdev, root);
    if (residence_index == RESIDENCE_NONE)
        return (struct way){RESIDENCE_HOST, 0};
    uint64_t sources = source_residences(vdev, root->context);
    if (!root->real[residence_index] || memory_would_write(root, residence_index))
        return (struct way){RESIDENCE_HOST, sources};
    if (!root->context->at[residence_index]->in_place)
        sources |= residence_bit(RESIDENCE_HOST);
    return (struct way){residence_index, sources};
}

static uint64_t fetch_left_of(const struct vdev *vdev, const struct memory *root)
{
    const struct way way = fetch_way_of(vdev, root);
    return extents_lacking(root, way.to, way.from, replica_whole(root));
}

/* The first residence that some of @root's bytes come from; RESIDENCE_NONE: all are fetched. */
static uint8_t fetch_first_source(const struct way *way, const struct memory *root)
{
    for (uint64_t left = way->from; left != 0; left &= left - 1) {
        uint8_t from = (uint8_t)__builtin_ctzll(left);
        if (extents_lacking(root, way->to, residence_bit(from), replica_whole(root)) != 0)
            return from;
    }
    return RESIDENCE_NONE;
}

/* Most recently used first. */
static int fetch_by_stamp(const void *a, const void *b)
{
    const struct item *one = a, *other = b;
    return one->stamp > other->stamp ? -1 : one->stamp < other->stamp;
}

/* ---- the thread ---- */

/* What is copied between two closings of the gate. */
struct batch {
    struct context *context; /* of all roots */
    uint8_t from, to;
    size_t count;
    struct memory *roots[BATCH_ROOTS]; /* held, collected and watched */
    uint64_t versions[BATCH_ROOTS];
};

static void fetch_batch_release(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        extents_unwatch(batch->roots[i]);
        atomic_store(&batch->roots[i]->collected, false);
        object_unhold(batch->roots[i]);
    }
    batch->count = 0;
}

/* Mapped objects belong to the host until they are unmapped, and objects that the program released
 * may lose their memory at any time: both are copied at the end, with the program paused. */
static bool fetch_is_wanted(struct memory *root)
{
    return !root->uses_svm && object_refs(root) != 0 && !map_any(root);
}

/* Fill @batch with the next objects of one context and their current versions, and advance past
 * leading items that are fetched already. Gate closed. */
static void fetch_batch_fill(struct fetching *f, const struct vdev *vdev, struct batch *batch)
{
    uint64_t bytes = 0;
    size_t at = f->at;
    bool passing = true;
    for (; at < f->count && batch->count < BATCH_ROOTS && bytes < BATCH_SLICES * f->slice; at++) {
        struct memory *root = object_weak_get(f->items[at].root);
        struct way way = root ? fetch_way_of(vdev, root) : (struct way){0};
        uint8_t from =
            root && fetch_is_wanted(root) ? fetch_first_source(&way, root) : RESIDENCE_NONE;
        if (from == RESIDENCE_NONE) {
            f->passed += passing ? f->items[at].bytes : 0;
            f->at += passing;
            continue;
        }
        if (batch->count != 0 &&
            (root->context != batch->context || from != batch->from || way.to != batch->to))
            break;
        passing = false;
        batch->context = root->context;
        batch->from = from;
        batch->to = way.to;
        object_hold(root);
        atomic_store(&root->collected, true);
        batch->versions[batch->count] = extents_watch(root);
        batch->roots[batch->count++] = root;
        bytes += extents_lacking(root, way.to, residence_bit(from), replica_whole(root));
    }
}

/* Ranges of a batch's objects, together about f->slice bytes. */
struct slice {
    struct memory *roots[BATCH_ROOTS];
    struct range ranges[BATCH_ROOTS];
    uint64_t versions[BATCH_ROOTS];
    size_t count;
    uint64_t bytes;
};

/* The first range from @at on that @from has and @to lacks, @most bytes long at most. Empty: there
 * is none. */
static struct range fetch_next_range(const struct memory *root, uint8_t from, uint8_t to, size_t at,
                                     size_t most)
{
    while (at < root->size) {
        struct extent extent = extent_at(root, at);
        bool lacks = !((extent.latest >> to) & 1) && ((extent.latest >> from) & 1);
        if (lacks) {
            size_t end = extent.range.end - at < most ? extent.range.end : at + most;
            return extents_units(root, (struct range){at, end});
        }
        at = extent.range.end;
    }
    return (struct range){root->size, root->size};
}

/* Fill @slice from byte @at of root number @first on, and advance both. */
static void fetch_slice_fill(const struct batch *batch, size_t most, size_t *first, size_t *at,
                             struct slice *slice)
{
    slice->count = slice->bytes = 0;
    while (*first < batch->count && slice->bytes < most && slice->count < BATCH_ROOTS) {
        struct memory *root = batch->roots[*first];
        struct range range =
            fetch_next_range(root, batch->from, batch->to, *at, most - slice->bytes);
        if (range.begin < range.end) {
            slice->roots[slice->count] = root;
            slice->ranges[slice->count] = range;
            slice->versions[slice->count++] = batch->versions[*first];
            slice->bytes += range.end - range.begin;
        }
        *at = range.end;
        if (range.end >= root->size) {
            *at = 0;
            (*first)++;
        }
    }
}

static bool fetch_has_to_stop(void)
{
    return move_is_awaited() || work_is_over();
}

static void fetch_size_slice(struct fetching *f, double bytes)
{
    double most = f->throttle.rate != 0 ? (double)f->throttle.rate / 16 : (double)SLICE_MOST;
    bytes = bytes > most ? most : bytes;
    f->slice = bytes < (double)SLICE_LEAST  ? SLICE_LEAST
               : bytes > (double)SLICE_MOST ? SLICE_MOST
                                            : (size_t)bytes;
}

/* A driver failed to copy. Returns -ENODEV where the source is lost (continue without it), else
 * -EIO. */
static int fetch_give_up(const struct batch *batch, cl_int reason)
{
    struct residence *from = context_residence(batch->context, batch->from);
    struct residence *to = context_residence(batch->context, batch->to);
    if (from && residence_failed(from, reason))
        return -ENODEV;
    if (!to || !residence_failed(to, reason))
        log_info("what is left in %s is not copied to %s (OpenCL error %d)",
                 from ? device_name(from->device) : "host memory",
                 to ? device_name(to->device) : "host memory", reason);
    return -EIO;
}

/* 0, an error of replica_refresh, or -ENODEV: a source is lost. */
static int fetch_slice_copy(struct fetching *f, const struct batch *batch,
                            const struct slice *slice)
{
    const struct replica_batch copies = {.context = batch->context,
                                         .from = batch->from,
                                         .to = batch->to,
                                         .roots = slice->roots,
                                         .ranges = slice->ranges,
                                         .versions = slice->versions,
                                         .count = slice->count};
    uint64_t began = clock_now_ns(), bytes = 0;
    cl_int reason = CL_SUCCESS;
    budget_copy_begin();
    int error = replica_refresh(&copies, &bytes, &reason);
    budget_copy_end();
    uint64_t took = clock_now_ns() - began + 1;
    if (error == 0 && bytes != 0) {
        fetch_size_slice(f, (double)bytes * (double)SLICE_NS / (double)took);
        f->tries = 0;
    }
    return error == -EIO ? fetch_give_up(batch, reason) : error;
}

/* Publish the progress. Objects of the batch may be fetched in part. */
static void fetch_tell(const struct fetching *f, const struct vdev *vdev, const struct batch *batch)
{
    uint64_t fetched = f->passed;
    for (size_t i = 0; i < batch->count && f->at + i < f->count; i++)
        fetched += f->items[f->at + i].bytes;
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t left = fetch_left_of(vdev, batch->roots[i]);
        fetched -= left < fetched ? left : fetched;
    }
    atomic_store(&figures[vdev->index].fetched, fetched);
}

/* Copy the batch slice by slice. Returns when to continue, by the monotonic clock; *@ret_error has
 * an error of fetch_slice_copy. */
static uint64_t fetch_batch_copy(struct fetching *f, const struct vdev *vdev,
                                 const struct batch *batch, int *ret_error)
{
    static struct slice slice; /* only the fetching thread uses it */
    size_t first = 0, at = 0;
    for (;;) {
        uint64_t now = clock_now_ns();
        if (fetch_has_to_stop())
            return now;
        if (budget_is_brought())
            return now + STAND_BACK_NS;
        fetch_slice_fill(batch, f->slice, &first, &at, &slice);
        if (slice.count == 0)
            return now;
        *ret_error = fetch_slice_copy(f, batch, &slice);
        fetch_tell(f, vdev, batch);
        if (*ret_error != 0)
            return now;
        uint64_t next = throttle_take(&f->throttle, slice.bytes, clock_now_ns());
        if (next > clock_now_ns())
            return next;
    }
}

static uint64_t fetch_batch_left(const struct batch *batch)
{
    uint64_t left = 0;
    for (size_t i = 0; i < batch->count; i++)
        left += extents_lacking(batch->roots[i], batch->to, residence_bit(batch->from),
                                replica_whole(batch->roots[i]));
    return left;
}

/* If copying the batch brought nothing although nothing interrupted it, skip its first item, so
 * that the fetch goes on. */
static void fetch_pass_by(struct fetching *f, const struct batch *batch, uint64_t before)
{
    if (fetch_batch_left(batch) < before || fetch_has_to_stop() || budget_is_brought() ||
        f->at >= f->count)
        return;
    f->passed += f->items[f->at].bytes;
    f->at++;
}

/* ---- its end ---- */

/* Drop the host copies of objects that are on the device now. Their memory is given back later,
 * with the gate open, because that takes long. Gate closed, drained. */
static size_t fetch_drop_host_copies(const struct fetching *f, const struct vdev *vdev,
                                     struct host_copy **ret_host_copies)
{
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) {
        struct memory *root = object_weak_get(f->items[i].root);
        uint8_t residence_index = root ? fetch_index_of(vdev, root) : RESIDENCE_NONE;
        if (residence_index == RESIDENCE_NONE || (!root->host_copy && !root->shadow_copy))
            continue;
        ret_host_copies[count++] = host_copy_ref(root->host_copy);
        memory_host_copy_drop(root, residence_index);
    }
    return count;
}

/* Copy what a source device still has: mapped objects, and objects that the program released. One
 * slice of one object at a time, so that the pause stays short. 0, -EAGAIN (there may be more), or
 * as fetch_slice_copy. Gate closed, drained. */
static int fetch_copy_left(struct fetching *f, const struct vdev *vdev)
{
    for (size_t i = 0; i < f->count; i++) {
        struct memory *root = object_weak_get(f->items[i].root);
        struct way way = root ? fetch_way_of(vdev, root) : (struct way){0};
        uint8_t from = root ? fetch_first_source(&way, root) : RESIDENCE_NONE;
        if (from >= RESIDENCE_HOST)
            continue;
        const struct range range = fetch_next_range(root, from, way.to, 0, f->slice);
        const struct replica_batch copy = {.context = root->context,
                                           .from = from,
                                           .to = way.to,
                                           .quiet = true,
                                           .roots = &root,
                                           .ranges = &range,
                                           .count = 1};
        const struct batch batch = {.context = root->context, .from = from, .to = way.to};
        cl_int reason = CL_SUCCESS;
        uint64_t bytes = 0;
        int error = replica_refresh(&copy, &bytes, &reason);
        if (error == -EIO)
            return fetch_give_up(&batch, reason);
        return error == 0 && bytes == 0 ? -EIO : error == 0 ? -EAGAIN : error;
    }
    return 0;
}

/* When to try again after a try in vain; 0: never. As long as a source is a device, its memory is
 * wanted back, so it is tried for ever; bytes in host memory may stay. */
static uint64_t fetch_try_again(struct fetching *f, const struct vdev *vdev)
{
    if (f->tries < END_TRIES)
        f->tries++;
    else if (!source_any(vdev))
        return 0;
    return clock_now_ns() + (RETRY_NS << (f->tries - 1));
}

/* Release sources whose last byte has been fetched. No draining is needed: no command runs there.
 */
static void fetch_leave_sources(struct vdev *vdev)
{
    struct move move = {.vdev = vdev};
    if (!source_any(vdev) || gate_close(clock_now_ns() + GATE_NS) != 0)
        return;
    source_release_all(vdev, &move.left);
    gate_open();
    move_release_left(&move);
    source_tell(vdev);
}

/* Finish fetching for @vdev. Returns 0 when no source has anything left, else when to try again. */
static uint64_t fetch_end(struct fetching *f, struct vdev *vdev)
{
    const struct move_request request = {.vdev = vdev->index};
    struct move_report report = {0};
    struct move move = {.request = &request, .report = &report, .vdev = vdev, .yields = true};
    struct host_copy **host_copies = calloc(f->count + 1, sizeof(struct host_copy *));
    size_t count = 0;
    fetch_leave_sources(vdev);
    move.limits.deadline_ns = clock_now_ns() + QUIESCE_NS;
    int error = host_copies ? move_quiesce(&move) : -ENOMEM;
    move.limits.deadline_ns = clock_now_ns() + END_NS;
    if (error == 0)
        error = move_close_gate(&move);
    if (error == 0) {
        error = move_drain(&move);
        if (error == 0)
            error = fetch_copy_left(f, vdev);
        if (error == 0) {
            source_release_all(vdev, &move.left);
            count = fetch_drop_host_copies(f, vdev, host_copies);
        }
        gate_open();
    }
    for (size_t i = 0; i < count; i++)
        host_copy_unref(host_copies[i]);
    free(host_copies);
    move_release_left(&move);
    source_tell(vdev);
    if (error == 0)
        return 0;
    if (error == -EAGAIN || error == -ENODEV)
        return clock_now_ns() + STAND_BACK_NS;
    return fetch_try_again(f, vdev);
}

/* Fetch some of what is left. False: nothing more to do for this virtual device. */
static bool fetch_some(struct fetching *f, struct vdev *vdev, uint64_t *ret_when)
{
    static struct batch batch; /* only the fetching thread uses it */
    int error = 0;
    if (gate_close(clock_now_ns() + GATE_NS) != 0) {
        *ret_when = clock_now_ns() + RETRY_NS;
        return true;
    }
    fetch_batch_fill(f, vdev, &batch);
    gate_open();
    if (batch.count == 0) {
        atomic_store(&figures[vdev->index].fetched, f->passed);
        *ret_when = fetch_end(f, vdev);
        return *ret_when != 0;
    }
    uint64_t before = fetch_batch_left(&batch);
    *ret_when = fetch_batch_copy(f, vdev, &batch, &error);
    if (error == 0)
        fetch_pass_by(f, &batch, before);
    fetch_batch_release(&batch);
    if (error == -ENOMEM || (error == -EIO && source_any(vdev)))
        *ret_when = fetch_try_again(f, vdev);
    else if (error == -EIO)
        *ret_when = 0;
    return *ret_when != 0;
}

/* Wait until fetching is due and no mover waits. */
static void fetch_await_turn(void)
{
    uint64_t now, when;
    while ((now = clock_now_ns()) < (when = atomic_load(&due)) || move_is_awaited()) {
        uint64_t wait = now < when ? when - now : STAND_BACK_NS;
        clock_sleep(wait < RETRY_NS ? wait : RETRY_NS);
    }
}

/* The virtual device that is due first; VDEVS: none. */
static size_t fetch_next_vdev(void)
{
    size_t next = VDEVS;
    for (size_t i = 0; i < VDEVS; i++)
        if (fetchings[i].active && (next == VDEVS || fetchings[i].due < fetchings[next].due))
            next = i;
    return next;
}

static void *fetch_thread(void *unused)
{
    bool more = true;
    (void)unused;
    while (more) {
        fetch_await_turn();
        (void)move_lock_until(0, true);
        size_t vdev = fetch_next_vdev();
        more = work_begin() && vdev < VDEVS;
        if (more && !fetch_some(&fetchings[vdev], the_vdevs[vdev], &fetchings[vdev].due))
            fetch_forget(vdev);
        vdev = fetch_next_vdev();
        atomic_store(&due, vdev < VDEVS ? fetchings[vdev].due : 0);
        running = more;
        work_end();
        move_unlock();
    }
    return NULL;
}

static bool fetch_list(struct fetching *f, const struct vdev *vdev, uint64_t *ret_total)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    bool listed = true;
    for (; listed && (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory)) {
        uint64_t bytes = memory->root == memory ? fetch_left_of(vdev, memory) : 0;
        if (bytes == 0)
            continue;
        listed = array_make_room(&f->items, f->count, sizeof(f->items[0]));
        if (listed)
            f->items[f->count++] = (struct item){object_weak(memory), bytes, memory->stamp};
        *ret_total += bytes;
    }
    return listed;
}

uint64_t fetch_begin(struct vdev *vdev, bool on_demand, uint64_t bandwidth)
{
    struct fetching *f = &fetchings[vdev->index];
    uint64_t total = 0;
    fetch_forget(vdev->index);
    source_tell(vdev);
    if (!on_demand && !source_any(vdev))
        return 0;
    f->throttle.rate = bandwidth;
    fetch_size_slice(f, SLICE_FIRST);
    if (!fetch_list(f, vdev, &total)) {
        log_warn("no memory to fetch what was left behind: it stays until it is named");
        fetch_forget(vdev->index);
        return 0;
    }
    if (f->count != 0)
        qsort(f->items, f->count, sizeof(f->items[0]), fetch_by_stamp);
    f->active = true;
    atomic_store(&due, 0);
    atomic_store(&figures[vdev->index].total, total);
    if (!running)
        running = thread_start("reseat-fetch", 0, fetch_thread, NULL, NULL) == 0;
    if (!running)
        fetch_forget(vdev->index);
    return total;
}

/* The child has no fetching thread: its commands bring what is missing. The lists are leaked,
 * because a thread of the parent may have been reallocating one. */
static void fetch_in_child(void)
{
    running = false;
    for (size_t vdev = 0; vdev < VDEVS; vdev++) {
        fetchings[vdev] = (struct fetching){0};
        fetch_forget(vdev);
    }
}

FORK_PART = {.rank = FORK_TABLE, .in_child = fetch_in_child};
