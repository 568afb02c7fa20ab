#include "state/memory/replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/span.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/transfer/transfer.h"

/* A range of a root whose latest bytes batch->to lacks. */
struct part {
    struct memory *root;
    struct range range;
    uint64_t version; /* the version that its copy is recorded as */
};

struct parts {
    struct part *parts;
    size_t count;
    uint64_t bytes;
};

static size_t replica_size_of(const struct part *part)
{
    return part->range.end - part->range.begin;
}

static int replica_parts_push(struct parts *parts, const struct part *part)
{
    if (!array_make_room(&parts->parts, parts->count, sizeof(*part)))
        return -ENOMEM;
    parts->parts[parts->count++] = *part;
    parts->bytes += replica_size_of(part);
    return 0;
}

/* True when the replica in host memory is the program's own memory, which the program may have
 * freed. */
static bool replica_is_in_user_memory(const struct memory *root)
{
    return memory_is_user_memory(root) && !root->shadow_copy;
}

/* True when the device works in the host copy and has the latest bytes of the whole root. */
static bool replica_in_host_copy(const struct replica_batch *batch, const struct memory *root)
{
    return memory_works_in_host_copy(root, batch->from) && replica_is_latest(root, batch->from);
}

/* True when the bytes are read with a transfer, not by mapping the real object. A map would have
 * the driver write to the program's CL_MEM_USE_HOST_PTR memory. */
static bool replica_reads_device(const struct replica_batch *batch, const struct memory *root)
{
    return !memory_is_backed(root, batch->from) ||
           (memory_is_user_memory(root) && !replica_in_host_copy(batch, root));
}

static bool replica_extent_has(const struct extent *extent, uint8_t residence_index)
{
    return (extent->latest >> residence_index) & 1;
}

/* True when the extent is copied from device to device, and not through host memory. */
static bool replica_goes_straight(const struct replica_batch *batch, struct memory *root,
                                  const struct extent *extent)
{
    return batch->from != RESIDENCE_HOST && batch->to != RESIDENCE_HOST &&
           replica_reads_device(batch, root) && !memory_is_backed(root, batch->to) &&
           !map_any(root) && replica_extent_has(extent, batch->from) &&
           (!replica_extent_has(extent, RESIDENCE_HOST) || replica_is_in_user_memory(root));
}

/* True when the target lacks the extent and the source has it. Its version is not looked at. */
static bool replica_wanted(const struct replica_batch *batch, const struct extent *extent)
{
    return !replica_extent_has(extent, batch->to) &&
           (replica_extent_has(extent, batch->from) || replica_extent_has(extent, RESIDENCE_HOST));
}

static struct compare_way replica_way_of(const struct replica_batch *batch, uint8_t from,
                                         uint8_t to)
{
    return (struct compare_way){.context = batch->context,
                                .from = from,
                                .to = to,
                                .target = batch->to,
                                .used = context_is_inhabited(batch->context, batch->to),
                                .quiet = batch->quiet,
                                .busy = batch->busy,
                                .limits = batch->limits};
}

/*
 * True when an extent is copied ahead although it is newer than the batch's version. An extent that
 * the program writes all the time is soon stale again, but where a comparison finds the chunks that
 * changed, only those are copied in the pause. It does not pay where each byte is copied twice.
 */
static bool replica_is_ahead(const struct replica_batch *batch, struct memory *root,
                             const struct extent *extent, bool straight)
{
    bool down = batch->from != RESIDENCE_HOST && !memory_works_in_host_copy(root, batch->from);
    bool up = batch->to != RESIDENCE_HOST && !memory_works_in_host_copy(root, batch->to);
    if (batch->quiet || (down && up && !straight))
        return false;
    struct compare_way way =
        replica_way_of(batch, down ? batch->from : RESIDENCE_HOST, up ? batch->to : RESIDENCE_HOST);
    return (down || up) && replica_extent_has(extent, batch->from) &&
           compare_helps(&way, root, extent->range);
}

/* True when the running program may use the copy's memory at the same time: the host copy, or a
 * target residence that another virtual device uses already. */
static bool replica_meets_program(const struct replica_batch *batch, bool straight)
{
    return !batch->quiet && (!straight || context_is_inhabited(batch->context, batch->to));
}

/* True when the root may be copied now. While the program runs a root whose copies may meet the
 * program is visited until the copies have ended; false if it cannot be, because it is mapped. */
static bool replica_may_copy(const struct replica_batch *batch, struct memory *root,
                             bool *ret_visited)
{
    bool straight = true;
    if (batch->quiet)
        return true;
    for (size_t at = 0; straight && at < root->size;) {
        struct extent extent = extent_at(root, at);
        straight = !replica_wanted(batch, &extent) || replica_goes_straight(batch, root, &extent);
        at = extent.range.end;
    }
    if (!replica_meets_program(batch, straight))
        return true;
    *ret_visited = map_visit(root);
    return *ret_visited;
}

/*
 * Add the parts of one root that the batch copies to @direct or @through_host. The extents are read
 * only after the visit has begun: an unmap makes its new version before it leaves the list of maps,
 * while the driver still reads the bytes from the host copy.
 */
static int replica_sort(const struct replica_batch *batch, size_t i, struct parts *direct,
                        struct parts *through_host, bool *ret_visited)
{
    struct memory *root = batch->roots[i];
    struct range range = batch->ranges ? batch->ranges[i] : replica_whole(root);
    uint64_t version = batch->versions ? batch->versions[i] : atomic_load(&root->version);
    int error = 0;
    if (extents_lacking(root, batch->to, UINT64_MAX, range) == 0)
        return 0;
    if (!replica_may_copy(batch, root, ret_visited))
        return batch->torn ? -EBUSY : 0;
    range = batch->quiet ? extents_part(root, range) : extents_units(root, range);
    for (size_t at = range.begin; error == 0 && at < range.end;) {
        struct extent extent = extent_at(root, at);
        bool straight = replica_goes_straight(batch, root, &extent);
        size_t end = extent.range.end < range.end ? extent.range.end : range.end;
        const struct part part = {root, {at, end}, version};
        bool meets = !straight && !*ret_visited && replica_meets_program(batch, false);
        bool copies = extent.version <= version || batch->torn ||
                      replica_is_ahead(batch, root, &extent, straight);
        if (replica_wanted(batch, &extent) && !meets && copies)
            error = replica_parts_push(straight ? direct : through_host, &part);
        else if (batch->torn && !replica_extent_has(&extent, batch->to))
            error = -EBUSY;
        at = extent.range.end;
    }
    return error;
}

/* Wait for the maps and unmaps of replica_sync_backed: only then are the bytes there for the next
 * copy or the program. */
static int replica_sync_end(const struct replica_batch *batch, uint8_t residence_index,
                            const struct parts *parts, cl_int *ret_error)
{
    bool synced = false;
    for (size_t i = 0; i < parts->count; i++)
        synced = synced || memory_is_backed(parts->parts[i].root, residence_index);
    if (!synced)
        return 0;
    struct residence *residence = context_residence(batch->context, residence_index);
    cl_int error = residence_await_queue(residence, residence->io);
    if (error == CL_SUCCESS)
        return 0;
    *ret_error = error;
    return -EIO;
}

/*
 * Synchronise host memory and device of a buffer made with CL_MEM_USE_HOST_PTR, by a map and an
 * unmap (5.2.1). A map to read brings the device's bytes to the pointer; a map that invalidates
 * gives the pointer's bytes to the device. Both are free where the device works in place.
 */
static int replica_sync_backed(const struct replica_batch *batch, const struct part *part,
                               uint8_t residence_index, cl_map_flags flags, cl_int *ret_error)
{
    cl_int error;
    struct residence *residence = batch->context->at[residence_index];
    cl_mem real = part->root->real[residence_index];
    void *pointer =
        residence->cl->clEnqueueMapBuffer(residence->io, real, CL_FALSE, flags, part->range.begin,
                                          replica_size_of(part), 0, NULL, NULL, &error);
    if (pointer)
        error = residence_unmap(residence, real, pointer);
    if (error == CL_SUCCESS)
        return 0;
    *ret_error = error;
    return -EIO;
}

static struct transfer_item replica_item_of(const struct part *part, cl_mem from, cl_mem to,
                                            char *host)
{
    return (struct transfer_item){.from = from,
                                  .to = to,
                                  .host = host,
                                  .offset = part->range.begin,
                                  .size = replica_size_of(part),
                                  .image = part->root->image};
}

struct gap_copy {
    struct transfer *transfer;
    struct memory *root;
    uint8_t from;
    const char *image; /* the image's rows, downloaded beside the host copy; or NULL */
    size_t at;         /* all bytes before this offset were copied */
};

/* Of mapped bytes the host copy is the latest, and the program may be writing them now. They are
 * not read from the device, only copied to the shadow copy where there is one. */
static void replica_copy_mapped(struct gap_copy *gap, size_t to)
{
    const struct memory *root = gap->root;
    if (root->shadow_copy)
        host_copy_user_memory(root->shadow_copy + gap->at, root->host_copy->bytes + gap->at,
                              to - gap->at);
    gap->at = to;
}

static int replica_copy_gap(void *data, size_t from, size_t to)
{
    struct gap_copy *gap = data;
    char *host = memory_host_bytes(gap->root);
    replica_copy_mapped(gap, from);
    gap->at = to;
    if (gap->image) {
        memcpy(host + from, gap->image + from, to - from);
        return 0;
    }
    struct transfer_item item = {
        .from = gap->root->real[gap->from], .host = host, .offset = from, .size = to - from};
    return transfer_add(gap->transfer, &item);
}

/* Read only bytes that are not mapped: mapped ones the program may be writing now. */
static int replica_download_around_maps(struct transfer *transfer, const struct part *part,
                                        uint8_t from)
{
    struct memory *root = part->root;
    struct gap_copy gap = {
        .transfer = transfer, .root = root, .from = from, .at = part->range.begin};
    char *image = NULL;
    int error = 0;
    if (root->image) {
        gap.image = image = malloc(root->size);
        if (!image)
            return -ENOMEM;
        /* Bytes between the rows belong to no pixel, but must not change where the host copy is the
         * program's memory. */
        memcpy(image + part->range.begin, memory_host_bytes(root) + part->range.begin,
               replica_size_of(part));
        struct transfer_item item = replica_item_of(part, root->real[from], NULL, image);
        error = transfer_add(transfer, &item);
        int flushed = transfer_flush(transfer); /* also on failure: reads may be in flight */
        error = error != 0 ? error : flushed;
    }
    if (error == 0)
        error = map_each_gap(root, part->range, replica_copy_gap, &gap);
    if (error == 0)
        replica_copy_mapped(&gap, part->range.end);
    free(image);
    return error;
}

/* Flags of new host memory for @part: it need not be zero where the download writes every byte. */
static unsigned replica_room_flags(const struct part *part, bool mapped)
{
    const struct memory *root = part->root;
    const struct image_shape *image = root->image;
    size_t written = image ? image->element_size : root->size;
    for (int i = 0; image && i < 3; i++)
        written *= image->dims[i] ? image->dims[i] : 1;
    bool whole = part->range.begin == 0 && part->range.end == root->size;
    return whole && written == root->size && !mapped ? PAGES_ANY : 0;
}

static int replica_download(const struct replica_batch *batch, struct transfer *transfer,
                            const struct part *part, cl_int *ret_error)
{
    struct memory *root = part->root;
    bool there = replica_in_host_copy(batch, root);
    bool mapped = batch->quiet && map_written(root);
    if (there)
        memory_host_is_host_copy(root);
    if (extents_latest(root, RESIDENCE_HOST, part->range))
        return memory_host_copy(root, 0);
    if (!there && memory_host_room(root, replica_room_flags(part, mapped)) != 0)
        return -ENOMEM;
    if (there && mapped)
        return 0;
    if (!mapped && !replica_reads_device(batch, root))
        return replica_sync_backed(batch, part, batch->from, CL_MAP_READ, ret_error);
    if (mapped)
        return replica_download_around_maps(transfer, part, batch->from);
    struct transfer_item item =
        replica_item_of(part, root->real[batch->from], NULL, memory_host_bytes(root));
    return transfer_add(transfer, &item);
}

static int replica_upload(const struct replica_batch *batch, struct transfer *transfer,
                          const struct part *part, cl_int *ret_error)
{
    struct memory *root = part->root;
    if (memory_is_backed(root, batch->to) && !root->shadow_copy &&
        (!memory_is_user_memory(root) || memory_works_in_host_copy(root, batch->to)))
        return replica_sync_backed(batch, part, batch->to, CL_MAP_WRITE_INVALIDATE_REGION,
                                   ret_error);
    struct transfer_item item =
        replica_item_of(part, NULL, root->real[batch->to], memory_host_bytes(root));
    item.user_memory = replica_is_in_user_memory(root);
    return transfer_add(transfer, &item);
}

static int replica_straight(const struct replica_batch *batch, struct transfer *transfer,
                            const struct part *part, cl_int *ret_error)
{
    (void)ret_error;
    struct transfer_item item =
        replica_item_of(part, part->root->real[batch->from], part->root->real[batch->to], NULL);
    return transfer_add(transfer, &item);
}

typedef int (*copier)(const struct replica_batch *batch, struct transfer *transfer,
                      const struct part *part, cl_int *ret_error);

/* Compare @parts: find the ranges to be copied, and those to be filled with zeroes. */
static int replica_compare(const struct compare_way *way, const struct parts *parts,
                           struct comparison *comparisons, struct parts *ret_differing,
                           struct parts *ret_zeroes)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < parts->count; i++) {
        struct part part = parts->parts[i];
        struct comparison *comparison = &comparisons[i];
        bool zero;
        error = compare_begin(way, part.root, part.range, comparison);
        if (error == 0 && !comparison->source)
            error = replica_parts_push(ret_differing, &part);
        for (size_t at = part.range.begin;
             error == 0 && comparison->source && compare_next(comparison, at, &part.range, &zero);
             at = part.range.end)
            error = replica_parts_push(zero ? ret_zeroes : ret_differing, &part);
    }
    return error;
}

/* Fill ranges of a device's buffers with zeroes, after the copies of the same parts. */
static int replica_fill(const struct replica_batch *batch, uint8_t to, const struct parts *zeroes,
                        cl_int *ret_error)
{
    static const cl_uint zero;
    cl_int error = CL_SUCCESS;
    if (zeroes->count == 0)
        return 0;
    struct residence *residence = context_residence(batch->context, to);
    for (size_t i = 0; error == CL_SUCCESS && i < zeroes->count; i++) {
        const struct part *part = &zeroes->parts[i];
        bool words = (part->range.begin | replica_size_of(part)) % sizeof(zero) == 0;
        error = residence->cl->clEnqueueFillBuffer(residence->io, part->root->real[to], &zero,
                                                   words ? sizeof(zero) : 1, part->range.begin,
                                                   replica_size_of(part), 0, NULL, NULL);
    }
    cl_int ended = residence_await_queue(residence, residence->io);
    error = error != CL_SUCCESS ? error : ended;
    if (error == CL_SUCCESS)
        return 0;
    *ret_error = error;
    return -EIO;
}

/* True when fresh host memory is needed for some of @parts. */
static bool replica_take_fresh(const struct parts *parts)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts->count; i++)
        bytes += i > 0 && parts->parts[i - 1].root == parts->parts[i].root
                     ? 0
                     : memory_host_need(parts->parts[i].root);
    return bytes > pages_warm();
}

/* Limits of one transfer for all of @parts. */
static struct transfer_limits replica_limits_of(const struct replica_batch *batch, uint8_t from,
                                                uint8_t to, const struct parts *parts)
{
    struct transfer_limits limits = batch->limits ? *batch->limits : (struct transfer_limits){0};
    for (size_t i = 0; i < parts->count; i++) {
        const struct memory *root = parts->parts[i].root;
        limits.user_memory =
            limits.user_memory || (from == RESIDENCE_HOST && replica_is_in_user_memory(root) &&
                                   !memory_works_in_host_copy(root, to));
    }
    limits.fresh =
        limits.fresh || (to == RESIDENCE_HOST && !limits.series && replica_take_fresh(parts));
    return limits;
}

/* @ret_passes  The bytes went directly between the devices, or the attempt failed. */
static int replica_copy_within(const struct replica_batch *batch, uint8_t from, uint8_t to,
                               copier copy, const struct parts *parts,
                               const struct transfer_limits *limits, bool *ret_passes,
                               cl_int *ret_error)
{
    struct transfer *transfer = NULL;
    struct transfer_shape shape = {0};
    int error =
        transfer_create(context_residence(batch->context, from),
                        context_residence(batch->context, to), parts->bytes, limits, &transfer);
    for (size_t i = 0; error == 0 && i < parts->count; i++)
        error = copy(batch, transfer, &parts->parts[i], ret_error);
    int flushed = transfer ? transfer_flush(transfer) : 0;
    if (error == 0)
        error = flushed;
    if (error == -EIO && transfer && transfer_error(transfer) != CL_SUCCESS)
        *ret_error = transfer_error(transfer);
    if (transfer)
        transfer_describe(transfer, &shape);
    *ret_passes = shape.passes;
    transfer_destroy(transfer);
    int ended = replica_sync_end(batch, from != RESIDENCE_HOST ? from : to, parts, ret_error);
    return error != 0 ? error : ended;
}

/* Copy @parts. Where the devices turn out to have no direct way, copy again through the host. */
static int replica_copy_parts(const struct replica_batch *batch, uint8_t from, uint8_t to,
                              copier copy, const struct parts *parts, cl_int *ret_error)
{
    bool passes = false;
    if (parts->count == 0)
        return 0;
    struct transfer_limits limits = replica_limits_of(batch, from, to, parts);
    uint64_t done = limits.done ? atomic_load(limits.done) : 0;
    cl_int reason = CL_SUCCESS;
    int error = replica_copy_within(batch, from, to, copy, parts, &limits, &passes, &reason);
    if (error == -EIO && passes && !residence_is_lost(context_residence(batch->context, from)) &&
        !residence_is_lost(context_residence(batch->context, to))) {
        log_info("nothing goes straight from %s to %s (error %d): the bytes go through the host",
                 device_name(context_residence(batch->context, from)->device),
                 device_name(context_residence(batch->context, to)->device), reason);
        limits.through_host = true;
        if (limits.done)
            atomic_store(limits.done, done);
        error = replica_copy_within(batch, from, to, copy, parts, &limits, &passes, &reason);
    }
    if (error == -EIO)
        *ret_error = reason;
    return error;
}

/* Bring @parts up to date in @to, copying only what differs. */
static int replica_copy_all(const struct replica_batch *batch, uint8_t from, uint8_t to,
                            copier copy, const struct parts *parts, uint64_t *ret_copied,
                            cl_int *ret_error)
{
    const struct compare_way way = replica_way_of(batch, from, to);
    struct parts differing = {0}, zeroes = {0};
    if (parts->count == 0)
        return 0;
    struct comparison *comparisons = calloc(parts->count, sizeof(*comparisons));
    int error =
        comparisons ? replica_compare(&way, parts, comparisons, &differing, &zeroes) : -ENOMEM;
    if (error == 0)
        error = replica_copy_parts(batch, from, to, copy, &differing, ret_error);
    if (error == 0)
        error = replica_fill(batch, to, &zeroes, ret_error);
    for (size_t i = 0; error == 0 && i < parts->count; i++) {
        const struct part *part = &parts->parts[i];
        atomic_fetch_or(&part->root->filled, residence_bit(from) | residence_bit(to));
        extents_refreshed(part->root, to, part->range, part->version);
    }
    for (size_t i = 0; comparisons && i < parts->count; i++)
        compare_end(&way, &comparisons[i], error == 0);
    if (error == 0) {
        *ret_copied = differing.bytes;
        if (batch->limits && batch->limits->done)
            atomic_fetch_add(batch->limits->done, parts->bytes - differing.bytes);
    }
    free(comparisons);
    free(differing.parts);
    free(zeroes.parts);
    return error;
}

uint64_t replica_differing(struct memory *root, uint8_t from, uint8_t to)
{
    uint64_t lacking = replica_lacking(root, from, to), last = compare_last(root, to);
    return last < lacking ? last : lacking;
}

/* Bytes of parts for which both ends work on the same host memory. */
static uint64_t replica_shared_bytes(const struct replica_batch *batch, const struct parts *parts)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->parts[i];
        if ((batch->from == RESIDENCE_HOST || memory_works_in_host_copy(part->root, batch->from)) &&
            (batch->to == RESIDENCE_HOST || memory_works_in_host_copy(part->root, batch->to)))
            bytes += replica_size_of(part);
    }
    return bytes;
}

int replica_refresh(const struct replica_batch *batch, uint64_t *ret_bytes, cl_int *ret_error)
{
    struct parts direct = {0}, through_host = {0};
    uint64_t begun = span_begin();
    uint64_t straight_bytes = 0, down = UINT64_MAX, up = UINT64_MAX;
    bool *visited = calloc(batch->count + 1, sizeof(*visited));
    int error = visited ? 0 : -ENOMEM;
    for (size_t i = 0; error == 0 && i < batch->count; i++)
        error = replica_sort(batch, i, &direct, &through_host, &visited[i]);
    if (error == 0)
        error = replica_copy_all(batch, batch->from, batch->to, replica_straight, &direct,
                                 &straight_bytes, ret_error);
    if (error == 0 && batch->from != RESIDENCE_HOST)
        error = replica_copy_all(batch, batch->from, RESIDENCE_HOST, replica_download,
                                 &through_host, &down, ret_error);
    if (error == 0 && batch->to != RESIDENCE_HOST)
        error = replica_copy_all(batch, RESIDENCE_HOST, batch->to, replica_upload, &through_host,
                                 &up, ret_error);
    if (error == 0)
        *ret_bytes = direct.bytes + through_host.bytes;
    /* In one of the two directions nothing is copied where both ends work on the same memory. */
    uint64_t shorter = down < up ? down : up;
    if (error == 0 && batch->copied)
        *batch->copied += straight_bytes + (through_host.count != 0 ? shorter : 0);
    for (size_t i = 0; visited && i < batch->count; i++) {
        extents_settle(batch->roots[i]);
        if (visited[i])
            map_visit_end(batch->roots[i]);
    }
    if (error == 0 && batch->shared)
        *batch->shared += replica_shared_bytes(batch, &through_host);
    span_end(begun, "copy",
             batch->to == RESIDENCE_HOST     ? "copy to host memory"
             : batch->from == RESIDENCE_HOST ? "copy from host memory"
                                             : "copy between devices",
             "bytes", direct.bytes + through_host.bytes);
    free(visited);
    free(direct.parts);
    free(through_host.parts);
    return error;
}
