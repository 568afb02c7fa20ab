#include "state/move/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/fork.h"
#include "state/base/log.h"
#include "state/base/thread.h"
#include "state/base/work.h"
#include "state/memory/mapping.h"
#include "state/memory/replica.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/room/room.h"

/* A command that names what a slice copies waits for the slice. */
#define SLICE_NS    (8 * NS_PER_MS)
#define SLICE_FIRST ((size_t)8 << 20)
#define SLICE_LEAST ((size_t)256 << 10)
#define SLICE_MOST  ((size_t)256 << 20)
/* Slices, and objects in all of them, for one closing of the gate. */
#define BATCH_SLICES 8
#define BATCH_ROOTS  1024
/* Threads of the program are kept out for so long when one of them is in a call that lasts. */
#define GATE_NS (5 * NS_PER_MS)
/* Until the next try, when there was nothing to be done at this one; while commands bring. */
#define RETRY_NS      (20 * NS_PER_MS)
#define STAND_BACK_NS (2 * NS_PER_MS)
/* At the end the program is stopped for no longer than that, after what it had given until then has
 * ended, which is waited for with it running. So often it is tried. */
#define END_NS     (20 * NS_PER_MS)
#define QUIESCE_NS (10 * NS_PER_S)
#define END_TRIES  10

/* What one object had in host memory alone when the program was resumed. */
struct item {
    struct object_weak root;
    uint64_t bytes, stamp;
};

/* Of one seat. By who has move_run's lock. */
struct fetching {
    struct item *items;
    size_t count, at; /* those before `at` are there, or left to commands */
    struct throttle throttle;
    uint64_t passed; /* bytes of the items before `at` */
    size_t slice;    /* bytes that take the link about SLICE_NS */
    unsigned tries;  /* to end it */
    bool active;
};

static struct fetching fetchings[SEATS];
static bool running; /* the thread; likewise */
/* When it goes on, by the monotonic clock: sooner, if there is something new to fetch. */
static _Atomic uint64_t due;
/* For who looks on. */
static struct {
    _Atomic uint64_t fetched, total;
} figures[SEATS];

void fetch_read(uint32_t seat, uint64_t *ret_fetched, uint64_t *ret_total)
{
    uint64_t total = seat < SEATS ? atomic_load(&figures[seat].total) : 0;
    uint64_t fetched = total != 0 ? atomic_load(&figures[seat].fetched) : 0;
    *ret_total = total;
    *ret_fetched = fetched < total ? fetched : total;
}

static void forget(size_t seat)
{
    free(fetchings[seat].items);
    fetchings[seat] = (struct fetching){0};
    atomic_store(&figures[seat].total, 0);
    atomic_store(&figures[seat].fetched, 0);
}

void fetch_forget(const struct seat *seat)
{
    forget(seat->index);
}

/* Bytes of @range that host memory alone has, and @place should. */
static uint64_t left_in(const struct memory *root, uint8_t place)
{
    return extents_lacking(root, place, 1u << PLACE_HOST, replica_whole(root));
}

/* Where the seat is in @root's context; PLACE_NONE where it cannot be copied to. Gate closed, or by
 * who keeps moves away. */
static uint8_t place_of(const struct seat *seat, const struct memory *root)
{
    const struct context *context = root->context;
    int index = context_seat_index(context, seat);
    uint8_t place = index < 0 ? PLACE_NONE : atomic_load(&context->place[index]);
    return context_lives(context, place) && !context->at[place]->in_place &&
                   !context->at[place]->runs_in_caller
               ? place
               : PLACE_NONE;
}

/* What was used last comes first. */
static int by_stamp(const void *a, const void *b)
{
    const struct item *one = a, *other = b;
    return one->stamp > other->stamp ? -1 : one->stamp < other->stamp;
}

/* ---- the thread ---- */

/* One closing of the gate's worth. */
struct batch {
    struct context *context; /* of all of them */
    uint8_t place;
    size_t count;
    struct memory *roots[BATCH_ROOTS]; /* held, collected and watched */
    uint64_t versions[BATCH_ROOTS];
};

static void batch_release(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        extents_unwatch(batch->roots[i]);
        atomic_store(&batch->roots[i]->collected, false);
        object_unhold(batch->roots[i]);
    }
    batch->count = 0;
}

/* What is mapped is the host's until it is unmapped; what another device of the program has, a
 * command brings from there. */
static bool is_wanted(struct memory *root, uint8_t place)
{
    return place != PLACE_NONE && root->real[place] && !root->uses_svm && object_refs(root) != 0 &&
           !map_any(root) && left_in(root, place) != 0;
}

/* The next objects of one context, with their versions of now. Those before them that are there by
 * now are passed. Gate closed. */
static void batch_fill(struct fetching *f, const struct seat *seat, struct batch *batch)
{
    uint64_t bytes = 0;
    size_t at = f->at;
    bool passing = true;
    for (; at < f->count && batch->count < BATCH_ROOTS && bytes < BATCH_SLICES * f->slice; at++) {
        struct memory *root = object_weak_get(f->items[at].root);
        uint8_t place = root ? place_of(seat, root) : PLACE_NONE;
        if (!root || !is_wanted(root, place)) {
            f->passed += passing ? f->items[at].bytes : 0;
            f->at += passing;
            continue;
        }
        if (batch->count != 0 && (root->context != batch->context || place != batch->place))
            break;
        passing = false;
        batch->context = root->context;
        batch->place = place;
        object_hold(root);
        atomic_store(&root->collected, true);
        batch->versions[batch->count] = extents_watch(root);
        batch->roots[batch->count++] = root;
        bytes += left_in(root, place);
    }
}

/* Parts of the batch's objects, of about as many bytes as a slice has. */
struct slice {
    struct memory *roots[BATCH_ROOTS];
    struct range ranges[BATCH_ROOTS];
    uint64_t versions[BATCH_ROOTS];
    size_t count;
    uint64_t bytes;
};

/* The first bytes at or behind @at that host memory alone has, @most of them at most. Empty: none.
 */
static struct range next_range(const struct memory *root, uint8_t place, size_t at, size_t most)
{
    while (at < root->size) {
        struct extent extent = extent_at(root, at);
        bool lacks = !((extent.latest >> place) & 1) && ((extent.latest >> PLACE_HOST) & 1);
        if (lacks) {
            size_t end = extent.range.end - at < most ? extent.range.end : at + most;
            return extents_units(root, (struct range){at, end});
        }
        at = extent.range.end;
    }
    return (struct range){root->size, root->size};
}

/* From byte @at of root number @first on. Returns where the next one begins. */
static void slice_fill(const struct batch *batch, size_t most, size_t *first, size_t *at,
                       struct slice *slice)
{
    slice->count = slice->bytes = 0;
    while (*first < batch->count && slice->bytes < most && slice->count < BATCH_ROOTS) {
        struct memory *root = batch->roots[*first];
        struct range range = next_range(root, batch->place, *at, most - slice->bytes);
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

static bool has_to_stop(void)
{
    return move_is_awaited() || work_is_over();
}

static void size_slice(struct fetching *f, double bytes)
{
    double most = f->throttle.rate != 0 ? (double)f->throttle.rate / 16 : (double)SLICE_MOST;
    bytes = bytes > most ? most : bytes;
    f->slice = bytes < (double)SLICE_LEAST  ? SLICE_LEAST
               : bytes > (double)SLICE_MOST ? SLICE_MOST
                                            : (size_t)bytes;
}

/* 0 or as replica_refresh. */
static int slice_copy(struct fetching *f, const struct batch *batch, const struct slice *slice)
{
    const struct replica_batch copies = {.context = batch->context,
                                         .from = PLACE_HOST,
                                         .to = batch->place,
                                         .roots = slice->roots,
                                         .ranges = slice->ranges,
                                         .versions = slice->versions,
                                         .count = slice->count};
    struct residence *residence = batch->context->at[batch->place];
    uint64_t began = clock_now_ns(), bytes = 0;
    cl_int reason = CL_SUCCESS;
    room_copy_begin();
    int error = replica_refresh(&copies, &bytes, &reason);
    room_copy_end();
    uint64_t took = clock_now_ns() - began + 1;
    if (error == 0 && bytes != 0)
        size_slice(f, (double)bytes * (double)SLICE_NS / (double)took);
    if (error == -EIO && !residence_failed(residence, reason))
        log_info("what is left in host memory stays there until it is named: %s takes no more "
                 "(OpenCL error %d)",
                 device_name(residence->device), reason);
    return error;
}

/* Tell how far it is: the first object of the batch may be there in part. */
static void tell(const struct fetching *f, size_t seat, const struct batch *batch)
{
    uint64_t fetched = f->passed;
    for (size_t i = 0; i < batch->count && f->at + i < f->count; i++)
        fetched += f->items[f->at + i].bytes;
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t left = left_in(batch->roots[i], batch->place);
        fetched -= left < fetched ? left : fetched;
    }
    atomic_store(&figures[seat].fetched, fetched);
}

/* When to go on: a moment of the monotonic clock. *ret_error: why not, as replica_refresh. */
static uint64_t batch_copy(struct fetching *f, size_t seat, const struct batch *batch,
                           int *ret_error)
{
    static struct slice slice; /* the thread's */
    size_t first = 0, at = 0;
    for (;;) {
        uint64_t now = clock_now_ns();
        if (has_to_stop())
            return now;
        if (room_is_brought())
            return now + STAND_BACK_NS;
        slice_fill(batch, f->slice, &first, &at, &slice);
        if (slice.count == 0)
            return now;
        *ret_error = slice_copy(f, batch, &slice);
        tell(f, seat, batch);
        if (*ret_error != 0)
            return now;
        uint64_t next = throttle_take(&f->throttle, slice.bytes, clock_now_ns());
        if (next > clock_now_ns())
            return next;
    }
}

/* The item at `at` stays behind: no copy of it counts, though one was made. */
static void pass_by(struct fetching *f, const struct batch *batch, uint64_t before)
{
    uint64_t after = 0;
    for (size_t i = 0; i < batch->count; i++)
        after += left_in(batch->roots[i], batch->place);
    if (after < before || has_to_stop() || room_is_brought() || f->at >= f->count)
        return;
    f->passed += f->items[f->at].bytes;
    f->at++;
}

static uint64_t batch_left(const struct batch *batch)
{
    uint64_t left = 0;
    for (size_t i = 0; i < batch->count; i++)
        left += left_in(batch->roots[i], batch->place);
    return left;
}

/* ---- its end ---- */

/* What is there is in host memory no more. The windows' memory is given back with the gate open,
 * for that takes long. Gate closed, drained. */
static size_t drop_windows(const struct fetching *f, const struct seat *seat,
                           struct window **ret_windows)
{
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) {
        struct memory *root = object_weak_get(f->items[i].root);
        uint8_t place = root ? place_of(seat, root) : PLACE_NONE;
        if (place == PLACE_NONE || (!root->window && !root->store))
            continue;
        ret_windows[count++] = window_ref(root->window);
        memory_window_drop(root, place);
    }
    return count;
}

/* 0: what is there is in host memory no more. Else when to try again. */
static uint64_t end(struct fetching *f, struct seat *seat)
{
    const struct move_request request = {.seat = seat->index};
    struct move_report report = {0};
    struct move move = {.request = &request, .report = &report, .seat = seat, .yields = true};
    struct window **windows = calloc(f->count + 1, sizeof(struct window *));
    size_t count = 0;
    move.limits.deadline_ns = clock_now_ns() + QUIESCE_NS;
    int error = windows ? move_quiesce(&move) : -ENOMEM;
    move.limits.deadline_ns = clock_now_ns() + END_NS;
    if (error == 0)
        error = move_close_gate(&move);
    if (error == 0) {
        error = move_drain(&move);
        if (error == 0)
            count = drop_windows(f, seat, windows);
        gate_open();
    }
    for (size_t i = 0; i < count; i++)
        window_unref(windows[i]);
    free(windows);
    f->tries += error != 0 && error != -EAGAIN;
    if (error == 0 || f->tries == END_TRIES)
        return 0;
    return clock_now_ns() + RETRY_NS * (1u + f->tries);
}

/* Some of what is left. False: there is nothing more to do for this seat. */
static bool fetch_some(struct fetching *f, struct seat *seat, uint64_t *ret_when)
{
    static struct batch batch; /* the thread's */
    int error = 0;
    if (gate_close(clock_now_ns() + GATE_NS) != 0) {
        *ret_when = clock_now_ns() + RETRY_NS;
        return true;
    }
    batch_fill(f, seat, &batch);
    gate_open();
    if (batch.count == 0) {
        atomic_store(&figures[seat->index].fetched, f->passed);
        *ret_when = end(f, seat);
        return *ret_when != 0;
    }
    uint64_t before = batch_left(&batch);
    *ret_when = batch_copy(f, seat->index, &batch, &error);
    if (error == 0)
        pass_by(f, &batch, before);
    batch_release(&batch);
    if (error == -ENOMEM)
        *ret_when = clock_now_ns() + RETRY_NS;
    return error == 0 || error == -ENOMEM;
}

/* Until it is due, and until nobody waits to move. */
static void await_turn(void)
{
    uint64_t now, when;
    while ((now = clock_now_ns()) < (when = atomic_load(&due)) || move_is_awaited()) {
        uint64_t wait = now < when ? when - now : STAND_BACK_NS;
        clock_sleep(wait < RETRY_NS ? wait : RETRY_NS);
    }
}

static void *fetch_thread(void *unused)
{
    bool more = true;
    (void)unused;
    while (more) {
        uint64_t when = 0;
        await_turn();
        (void)move_lock_until(0, true);
        size_t seat = 0;
        while (seat < SEATS && !fetchings[seat].active)
            seat++;
        more = work_begin() && seat < SEATS;
        if (more && !fetch_some(&fetchings[seat], the_seats[seat], &when))
            forget(seat);
        atomic_store(&due, when);
        running = more;
        work_end();
        move_unlock();
    }
    return NULL;
}

static bool list(struct fetching *f, const struct seat *seat, uint64_t *ret_total)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    bool listed = true;
    for (; listed && (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory)) {
        uint8_t place = memory->root == memory ? place_of(seat, memory) : PLACE_NONE;
        uint64_t bytes = place == PLACE_NONE || !memory->real[place] ? 0 : left_in(memory, place);
        if (bytes == 0)
            continue;
        listed = array_make_room(&f->items, f->count, sizeof(f->items[0]));
        if (listed)
            f->items[f->count++] = (struct item){object_weak(memory), bytes, memory->stamp};
        *ret_total += bytes;
    }
    return listed;
}

void fetch_begin(struct seat *seat, uint64_t bandwidth)
{
    struct fetching *f = &fetchings[seat->index];
    uint64_t total = 0;
    forget(seat->index);
    f->throttle.rate = bandwidth;
    size_slice(f, SLICE_FIRST);
    if (!list(f, seat, &total)) {
        log_warn("no memory to fetch what is left in host memory: it stays until it is named");
        forget(seat->index);
        return;
    }
    if (f->count != 0)
        qsort(f->items, f->count, sizeof(f->items[0]), by_stamp);
    f->active = true;
    atomic_store(&due, 0);
    atomic_store(&figures[seat->index].total, total);
    if (!running)
        running = thread_start("reseat-fetch", 0, fetch_thread, NULL, NULL) == 0;
    if (!running)
        forget(seat->index);
}

/* Whoever fetched is gone. What it had not fetched commands bring. Its lists are left as they are:
 * somebody may have been making one longer. */
static void in_child(void)
{
    running = false;
    for (size_t seat = 0; seat < SEATS; seat++) {
        fetchings[seat] = (struct fetching){0};
        forget(seat);
    }
}

FORK_PART = {.rank = FORK_TABLE, .in_child = in_child};
