#include "state/image/snapshot_making.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/budget/budget.h"
#include "state/memory/mapping.h"
#include "state/object/lost.h"

/* Bytes copied between two looks at the limits, or while a command may wait for them. */
#define SLICE       ((uint64_t)256 << 20)
#define SLICE_AHEAD ((uint64_t)64 << 20)

/* A range to read from a device. */
struct piece {
    struct residence *from; /* borrowed: the mover's lock keeps it */
    struct chunk *chunk;    /* of the new snapshot, where it goes; borrowed */
    struct transfer_item item;
};

struct slice {
    struct piece *pieces;
    size_t count;
    uint64_t bytes;
};

int making_find(struct making *making)
{
    uintptr_t cursor = 0;
    struct context *context;
    int error = 0;
    struct move *move = &making->move;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        for (uint8_t residence_index = 0; error == 0 && residence_index < context->residences;
             residence_index++) {
            bool known = !context_lives(context, residence_index);
            for (size_t i = 0; i < move->context_count; i++)
                known = known || (move->contexts[i].context == context &&
                                  move->contexts[i].from == residence_index);
            if (known)
                continue;
            if (!array_make_room(&move->contexts, move->context_count, sizeof(move->contexts[0]))) {
                error = -ENOMEM;
                continue;
            }
            object_hold(context);
            move->contexts[move->context_count++] = (struct move_context){.context = context,
                                                                          .vdev_index = -1,
                                                                          .from = residence_index,
                                                                          .to = RESIDENCE_HOST};
        }
    return error;
}

/* The latest version of any byte of @range. *@extent caches the extent of its first byte; empty at
 * first. */
static uint64_t snapshot_making_newest(const struct memory *root, struct range range,
                                       struct extent *extent)
{
    uint64_t version = 0;
    for (size_t at = range.begin; at < range.end; at = extent->range.end) {
        if (at < extent->range.begin || at >= extent->range.end)
            *extent = extent_at(root, at);
        if (extent->version > version)
            version = extent->version;
    }
    return version;
}

static int snapshot_making_find_stale(struct making *making, size_t index)
{
    struct kept *kept = &making->next->kept[index];
    struct extent extent = {{0, 0}, 0, 0, 0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < kept->count; i++) {
        struct range range = kept_range(kept, i);
        uint64_t version = snapshot_making_newest(making->roots[index], range, &extent);
        if (version == 0 || (kept->chunks[i] && version <= kept->versions[i]))
            continue;
        if (!array_make_room(&making->stale, making->stale_count, sizeof(making->stale[0])))
            return -ENOMEM;
        making->stale[making->stale_count++] = (struct stale){index, i, version, 0};
        bytes += range.end - range.begin;
    }
    making->stale_bytes += bytes;
    making->expected += kept->differed < bytes ? kept->differed : bytes;
    making->compared += kept->differed != UINT64_MAX ? bytes : 0;
    return 0;
}

static const struct kept *snapshot_making_kept_of(const struct snapshot *snapshot,
                                                  const struct memory *root)
{
    size_t index = snapshot ? snapshot_find(snapshot, root) : SIZE_MAX;
    return index == SIZE_MAX ? NULL : &snapshot->kept[index];
}

/* Add @root to @next. The hold on it becomes @making's. */
static int snapshot_making_add_root(struct making *making, struct snapshot *next,
                                    struct memory *root)
{
    const struct kept *from =
        snapshot_making_kept_of(making->next ? making->next : making->base, root);
    int error = snapshot_add(next, root, from);
    if (error == 0 && !array_make_room(&making->roots, making->root_count, sizeof(struct memory *)))
        error = -ENOMEM;
    if (error != 0) {
        object_unhold(root);
        return error;
    }
    if (making->next && from)
        next->kept[next->count - 1].differed = from->differed;
    /* Prevents a spill, which would drop the replica that is read. */
    atomic_store(&root->collected, true);
    making->roots[making->root_count++] = root;
    return 0;
}

int making_collect(struct making *making)
{
    struct snapshot *next = snapshot_create(making->serial);
    uintptr_t cursor = 0;
    struct memory *memory;
    int error = next ? making_find(making) : -ENOMEM;
    making->stale_count = 0;
    making->stale_bytes = making->expected = making->compared = 0;
    while (error == 0 && (memory = object_next(OBJECT_MEMORY, &cursor)))
        if (memory->root == memory && memory->type != CL_MEM_OBJECT_PIPE)
            error = snapshot_making_add_root(making, next, memory);
        else
            object_unhold(memory);
    if (error != 0) {
        snapshot_unpin(next);
        return error;
    }
    making->former = making->next;
    making->next = next;
    for (size_t i = 0; error == 0 && i < next->count; i++)
        error = snapshot_making_find_stale(making, i);
    return error;
}

void making_let_go(struct making *making)
{
    for (size_t i = 0; i < making->root_count; i++) {
        atomic_store(&making->roots[i]->collected, false);
        object_unhold(making->roots[i]);
    }
    making->root_count = 0;
    snapshot_unpin(making->former);
    making->former = NULL;
}

void making_finish(struct making *making)
{
    making_let_go(making);
    free(making->roots);
    free(making->stale);
    transfer_series_finish(&making->move.series);
    move_forget_contexts(&making->move);
    snapshot_unpin(making->base);
    snapshot_unpin(making->next);
    snapshot_unpin(making->before);
}

static uint64_t snapshot_making_shared_of(const struct making *making, const struct chunk *chunk)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < chunk->size;) {
        const struct chunk_run run = chunk_run(chunk, at);
        bytes += run.since != making->serial ? run.end - at : 0;
        at = run.end;
    }
    return bytes;
}

uint64_t making_shared(const struct making *making)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < making->next->count; i++) {
        const struct kept *kept = &making->next->kept[i];
        for (size_t j = 0; j < kept->count; j++)
            bytes += kept->chunks[j] ? snapshot_making_shared_of(making, kept->chunks[j]) : 0;
    }
    return bytes;
}

const char *making_in_host(const struct memory *root, const struct extent *extent)
{
    const struct context *context = root->context;
    if (((extent->latest >> RESIDENCE_HOST) & 1) && (root->shadow_copy || root->host_copy))
        return memory_host_bytes(root);
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (((extent->latest >> residence_index) & 1) && root->real[residence_index] &&
            root->host_copy && context_is_readable(context, residence_index) &&
            memory_works_in_host_copy(root, residence_index))
            return root->host_copy->bytes;
    return NULL;
}

uint8_t making_on_device(const struct memory *root, const struct extent *extent)
{
    const struct context *context = root->context;
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (((extent->latest >> residence_index) & 1) && root->real[residence_index] &&
            context_is_readable(context, residence_index) &&
            !memory_works_in_host_copy(root, residence_index))
            return residence_index;
    return RESIDENCE_NONE;
}

/* @to: where the first byte of @range goes. */
static int snapshot_making_slice_add(struct slice *slice, const struct memory *root,
                                     uint8_t residence_index, char *to, struct range range)
{
    if (!array_make_room(&slice->pieces, slice->count, sizeof(slice->pieces[0])))
        return -ENOMEM;
    /* A transfer item's host pointer is that of the object's first byte, of which this is a part.
     */
    char *host = (char *)((uintptr_t)to - range.begin);
    slice->pieces[slice->count++] = (struct piece){
        .from = root->context->at[residence_index],
        .item = {.from = root->real[residence_index],
                 .host = host,
                 .offset = range.begin,
                 .size = range.end - range.begin,
                 .image = root->image},
    };
    slice->bytes += range.end - range.begin;
    return 0;
}

/* 1: the range can only be copied with the program paused. */
static int snapshot_making_add_extent(struct making *making, struct slice *slice,
                                      const struct memory *root, const struct extent *extent,
                                      struct range range, char *to, bool ahead)
{
    bool written = !ahead && map_written((struct memory *)(uintptr_t)root);
    const char *host = making_in_host(root, extent);
    uint8_t residence_index = !host || written ? making_on_device(root, extent) : RESIDENCE_NONE;
    if (extent->version == 0) {
        memset(to, 0, range.end - range.begin);
        return 0;
    }
    if (residence_index != RESIDENCE_NONE && ahead &&
        root->context->at[residence_index]->runs_in_caller)
        return 1;
    if (residence_index != RESIDENCE_NONE)
        return snapshot_making_slice_add(slice, root, residence_index, to, range);
    if (!host)
        return move_fail(&making->move, -EPERM, "bytes of %s of %zu bytes (%p) are on no device",
                         root->image ? "an image" : "a buffer", root->size, (const void *)root);
    /* The program may have unmapped its own memory. */
    if (memory_is_user_memory(root) && !root->shadow_copy)
        host_copy_user_memory(to, host + range.begin, range.end - range.begin);
    else
        memcpy(to, host + range.begin, range.end - range.begin);
    making->report->copied += range.end - range.begin;
    return 0;
}

/* True when only `next` has @chunk, which may be NULL. */
static bool snapshot_making_owns(const struct making *making, const struct chunk *chunk)
{
    return chunk && chunk->since == making->serial;
}

/* Bits of the parts that were not found to be the same, and have to be read. */
static uint32_t snapshot_making_differing(const struct chunk *chunk, const struct stale *stale)
{
    return ~stale->same & chunk_all_parts(chunk->size);
}

bool making_keeps(const struct making *making, const struct chunk *chunk, const struct stale *stale)
{
    if (!chunk || (snapshot_making_owns(making, chunk) && !chunk->parts))
        return chunk;
    return stale->same != 0 &&
           chunk_parts_are_few(chunk_own_parts(chunk) | snapshot_making_differing(chunk, stale),
                               chunk->size);
}

/* Give the snapshot chunks of its own for the parts that differ. */
static int snapshot_making_own_parts(struct making *making, struct chunk **chunk,
                                     const struct stale *stale)
{
    uint32_t parts = snapshot_making_differing(*chunk, stale);
    int error = 0;
    if (!snapshot_making_owns(making, *chunk)) {
        struct chunk *made = chunk_of_parts(*chunk, making->serial);
        if (!made)
            return -ENOMEM;
        chunk_unref(*chunk);
        *chunk = made;
    }
    for (size_t i = 0; error == 0 && i < CHUNK_PARTS; i++)
        if ((parts >> i) & 1)
            error = chunk_own_part(*chunk, i, making->serial);
    return error;
}

/* Give the snapshot a chunk of its own in place of a shared one. @keeps: see making_keeps(). */
static int snapshot_making_own(struct making *making, struct kept *kept, const struct stale *stale,
                               bool keeps)
{
    size_t i = stale->chunk;
    struct range range = kept_range(kept, i);
    struct chunk **chunk = &kept->chunks[i];
    /* While bytes are copied the chunk holds no complete version. */
    kept->versions[i] = 0;
    if (keeps && snapshot_making_owns(making, *chunk) && !(*chunk)->parts)
        return 0;
    if (keeps)
        return snapshot_making_own_parts(making, chunk, stale);
    struct chunk *made = chunk_create(range.end - range.begin, making->serial);
    if (!made)
        return -ENOMEM;
    chunk_unref(*chunk);
    *chunk = made;
    return 0;
}

/* Compare bytes that are in host memory instead of copying them: that takes no longer, and
 * unchanged bytes need no memory and are not hashed or stored again. */
static void snapshot_making_look_in_host(struct making *making, struct stale *stale, bool ahead)
{
    struct memory *root = making->roots[stale->root];
    struct kept *kept = &making->next->kept[stale->root];
    const struct range all = kept_range(kept, stale->chunk);
    const struct extent extent = extent_at(root, all.begin);
    const struct chunk *chunk = kept->chunks[stale->chunk];
    const char *host = making_in_host(root, &extent);
    bool user_memory = memory_is_user_memory(root) && !root->shadow_copy,
         written = !ahead && map_written(root);
    /* An image is one chunk, of any size. */
    if (!chunk || !host || user_memory || written || root->image || extent.range.end < all.end)
        return;
    for (size_t at = 0, part = 0; at < chunk->size; at += DIGEST_CHUNK, part++) {
        const size_t left = chunk->size - at, size = left < DIGEST_CHUNK ? left : DIGEST_CHUNK;
        if (memcmp(chunk_run(chunk, at).bytes, host + all.begin + at, size) != 0)
            continue;
        stale->same |= UINT32_C(1) << part;
        making->seen_same += size;
    }
    if (stale_is_same(stale, all))
        making->report->same += chunk->size;
}

/* Add what has to be copied of a stale chunk to @slice, giving the snapshot its own chunk first. 1:
 * the chunk is left for the pause. */
static int snapshot_making_add_chunk(struct making *making, struct slice *slice,
                                     struct stale *stale, bool ahead)
{
    const struct memory *root = making->roots[stale->root];
    struct kept *kept = &making->next->kept[stale->root];
    struct range all = kept_range(kept, stale->chunk);
    bool same = false;
    if (!stale_is_same(stale, all))
        snapshot_making_look_in_host(making, stale, ahead);
    if (stale_is_same(stale, all))
        return 0;
    bool keeps = making_keeps(making, kept->chunks[stale->chunk], stale);
    int error = snapshot_making_own(making, kept, stale, keeps);
    for (size_t at = all.begin; error == 0 && at < all.end;) {
        size_t end = stale_run(stale, all, at, &same);
        /* Unchanged parts are in the chunk already, unless it replaced a shared one. */
        if (keeps && same) {
            at = end;
            continue;
        }
        struct extent extent = extent_at(root, at);
        struct chunk *chunk = kept->chunks[stale->chunk];
        const struct chunk_run run = chunk_run(chunk, at - all.begin);
        end = extent.range.end < end ? extent.range.end : end;
        end = all.begin + run.end < end ? all.begin + run.end : end;
        chunk_written(chunk, at - all.begin, end - all.begin);
        const size_t count = slice->count;
        error = snapshot_making_add_extent(making, slice, root, &extent, (struct range){at, end},
                                           run.bytes, ahead);
        if (slice->count != count)
            slice->pieces[count].chunk = chunk;
        at = end;
    }
    return error;
}

/* Copy the pieces of one residence. */
static int snapshot_making_read_from(struct making *making, const struct slice *slice,
                                     struct residence *from, bool ahead)
{
    struct transfer_limits limits = making->move.limits;
    struct transfer *transfer;
    cl_int reason = CL_SUCCESS;
    limits.throttle = ahead ? &making->move.throttle : NULL;
    limits.series = &making->move.series;
    limits.fresh = true;
    int error = transfer_create(from, NULL, slice->bytes, &limits, &transfer);
    if (error == 0) {
        for (size_t i = 0; error == 0 && i < slice->count; i++)
            if (slice->pieces[i].from == from)
                error = transfer_add(transfer, &slice->pieces[i].item);
        int flushed = transfer_flush(transfer);
        error = error != 0 ? error : flushed;
        reason = transfer_error(transfer);
        transfer_destroy(transfer);
    }
    if (error != -EIO)
        return error;
    bool lost = residence_failed(from, reason != CL_SUCCESS ? reason : CL_OUT_OF_RESOURCES);
    /* A lost device's driver may still write there: these chunks are never freed. */
    for (size_t i = 0; lost && i < slice->count; i++)
        if (slice->pieces[i].from == from)
            (void)chunk_ref(slice->pieces[i].chunk);
    return move_fail(&making->move, error, lost ? "%s is lost" : "copying from %s failed",
                     device_name(from->device));
}

static int snapshot_making_slice_read(struct making *making, struct slice *slice, bool ahead)
{
    int error = 0;
    making->move.series.total = making->stale_bytes;
    for (size_t i = 0; error == 0 && i < slice->count; i++) {
        bool done = false;
        for (size_t j = 0; j < i && !done; j++)
            done = slice->pieces[j].from == slice->pieces[i].from;
        if (!done)
            error = snapshot_making_read_from(making, slice, slice->pieces[i].from, ahead);
    }
    if (error == 0)
        making->report->copied += slice->bytes;
    return error;
}

/* Flags of a stale chunk. */
enum { COPIED = 1, VISITED = 2 /* its root is visited; set for the root's first chunk */ };

/* Add the chunks of one root from @at on. Returns the index behind them, or -errno. */
static int64_t snapshot_making_add_root_chunks(struct making *making, struct slice *slice,
                                               size_t at, size_t end, bool ahead, uint8_t *done)
{
    size_t root = making->stale[at].root;
    int error = 0;
    /* Until map_visit_end() nobody maps the object or changes its host copy. */
    bool visited = ahead && map_visit(making->roots[root]), copies = !ahead || visited;
    done[at] = visited ? VISITED : 0;
    for (; error == 0 && at < end && making->stale[at].root == root; at++) {
        int left = copies ? snapshot_making_add_chunk(making, slice, &making->stale[at], ahead) : 1;
        error = left < 0 ? left : 0;
        done[at] |= left == 0 ? COPIED : 0;
    }
    return error != 0 ? error : (int64_t)at;
}

/* @done has the flags of the stale chunks from @first on. */
static int snapshot_making_copy_slice(struct making *making, size_t first, size_t end, bool ahead,
                                      uint8_t *done)
{
    struct slice slice = {0};
    int64_t at = (int64_t)first;
    while (at >= 0 && (size_t)at < end)
        at = snapshot_making_add_root_chunks(making, &slice, (size_t)at, end, ahead, done);
    int error = at < 0 ? (int)at : snapshot_making_slice_read(making, &slice, ahead);
    for (size_t i = first; i < end; i++) {
        const struct stale *stale = &making->stale[i];
        if (error == 0 && (done[i] & COPIED))
            making->next->kept[stale->root].versions[stale->chunk] = stale->version;
        if (done[i] & VISITED)
            map_visit_end(making->roots[stale->root]);
    }
    free(slice.pieces);
    return error;
}

int making_copy(struct making *making, bool ahead)
{
    int error = making_compare(making, ahead);
    /* Bytes that were compared count as copied, because the prediction counts them so. */
    uint64_t copied = making->report->copied + making->seen_same;
    uint64_t slept = making->move.throttle.slept_ns;
    uint64_t began = clock_now_ns();
    uint8_t *done = calloc(making->stale_count + 1, 1);
    error = error != 0 || done ? error : -ENOMEM;
    for (size_t first = 0, end; error == 0 && first < making->stale_count; first = end) {
        uint64_t bytes = 0;
        for (end = first; end < making->stale_count && bytes < (ahead ? SLICE_AHEAD : SLICE); end++)
            bytes += making->next->kept[making->stale[end].root].chunk;
        if (ahead)
            budget_copy_begin();
        error = snapshot_making_copy_slice(making, first, end, ahead, done);
        if (ahead)
            budget_copy_end();
        if (error == 0)
            error = move_check(&making->move);
    }
    free(done);
    copied = making->report->copied + making->seen_same - copied;
    uint64_t ns = clock_now_ns() - began - (making->move.throttle.slept_ns - slept);
    /* The time for few bytes is mostly latency, and tells nothing about the bandwidth. */
    if (ahead && copied != 0 && ns != 0 &&
        (making->move.rounds.bandwidth == 0 || copied >= SLICE_AHEAD))
        making->move.rounds.bandwidth = (double)copied * NS_PER_S / (double)ns;
    return error == 0 && ahead ? making_learn(making) : error;
}
