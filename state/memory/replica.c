#include "state/memory/replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/mapping.h"
#include "state/transfer/transfer.h"

bool replica_needs(const struct memory *root, uint8_t place)
{
    return !replica_is_latest(root, place);
}

static struct residence *residence_at(const struct replica_batch *batch, uint8_t place)
{
    return place == PLACE_HOST ? NULL : batch->context->at[place];
}

static bool backed_at(const struct memory *root, uint8_t place)
{
    return place != PLACE_HOST && (root->backed & (1u << place)) != 0;
}

static bool in_place_at(const struct replica_batch *batch, const struct memory *root, uint8_t place)
{
    return backed_at(root, place) && residence_at(batch, place)->in_place;
}

/* The program's own memory is the replica in host memory: it may be gone. */
static bool is_in_lent(const struct memory *root)
{
    return memory_is_lent(root) && !root->store;
}

/* True when the device's bytes are read as any others: the driver must not put them where the
 * program lent its memory. */
static bool reads_device(const struct replica_batch *batch, const struct memory *root)
{
    return !backed_at(root, batch->from) ||
           (memory_is_lent(root) && !in_place_at(batch, root, batch->from));
}

/* From device to device without a stop in host memory. */
static bool goes_straight(const struct replica_batch *batch, struct memory *root)
{
    return batch->from != PLACE_HOST && batch->to != PLACE_HOST && reads_device(batch, root) &&
           !backed_at(root, batch->to) && !map_any(root) && replica_is_latest(root, batch->from) &&
           (!replica_is_latest(root, PLACE_HOST) || is_in_lent(root));
}

/* True when a copy meets what the program may do meanwhile: in the window, or in a place that
 * another of its devices uses. */
static bool meets_program(const struct replica_batch *batch, bool straight)
{
    const struct context *context = batch->context;
    bool used = false;
    for (cl_uint i = 0; i < context->seat_count; i++)
        used = used || atomic_load(&context->place[i]) == batch->to;
    return !batch->quiet && (!straight || used);
}

/* Without the gate closed, a root that was written since its version was read is left for later. */
static bool wanted(const struct replica_batch *batch, struct memory *root, uint64_t version,
                   bool straight)
{
    if (!replica_needs(root, batch->to))
        return false;
    if (batch->quiet)
        return true;
    if (!meets_program(batch, straight))
        return version == atomic_load(&root->version) && !map_any(root);
    if (!map_visit(root))
        return false;
    /* Looked at only now: what was mapped for writing has a new version before it is off the list,
     * while the driver still takes its bytes from the window. */
    if (version == atomic_load(&root->version))
        return true;
    map_visit_end(root);
    return false;
}

/* Ends what sync_backed began, so that who copies on, or the program, finds the bytes. */
static int sync_end(const struct replica_batch *batch, uint8_t place, struct memory *const *roots,
                    size_t count, cl_int *ret_error)
{
    bool synced = false;
    for (size_t i = 0; i < count; i++)
        synced = synced || backed_at(roots[i], place);
    if (!synced)
        return 0;
    struct residence *residence = residence_at(batch, place);
    cl_int error = residence_await_queue(residence, residence->io);
    if (error == CL_SUCCESS)
        return 0;
    *ret_error = error;
    return -EIO;
}

/*
 * The driver's own way to make the host's and the device's view of CL_MEM_USE_HOST_PTR one (5.2.1):
 * map and unmap. For reading, the device's bytes arrive at the pointer; invalidating, the pointer's
 * bytes are the device's from then on. Where the device works in place it costs nothing.
 */
static int sync_backed(struct residence *residence, struct memory *root, uint8_t place,
                       cl_map_flags flags, cl_int *ret_error)
{
    cl_int error;
    void *pointer = residence->cl->clEnqueueMapBuffer(residence->io, root->real[place], CL_FALSE,
                                                      flags, 0, root->size, 0, NULL, NULL, &error);
    if (pointer)
        error = residence_unmap(residence, root->real[place], pointer);
    if (error == CL_SUCCESS)
        return 0;
    *ret_error = error;
    return -EIO;
}

struct gap_copy {
    struct transfer *transfer;
    struct memory *root;
    uint8_t from;
    const char *image; /* the whole image, downloaded beside the window; or NULL */
};

static int copy_gap(void *data, size_t from, size_t to)
{
    struct gap_copy *gap = data;
    char *host = memory_host_bytes(gap->root);
    if (gap->image) {
        memcpy(host + from, gap->image + from, to - from);
        return 0;
    }
    struct transfer_item item = {
        .from = gap->root->real[gap->from], .host = host, .offset = from, .size = to - from};
    return transfer_add(gap->transfer, &item);
}

/* Read what is not mapped: the rest is the program's, who may be writing it now. */
static int download_around_maps(struct transfer *transfer, struct memory *root, uint8_t from)
{
    struct gap_copy gap = {.transfer = transfer, .root = root, .from = from};
    char *image = NULL;
    int error = 0;
    if (root->store)
        host_copy_lent(root->store, root->window->bytes, root->size);
    if (root->image) {
        gap.image = image = malloc(root->size);
        if (!image)
            return -ENOMEM;
        /* Bytes between rows are nobody's, but must not be lost where the window is the program's.
         */
        memcpy(image, memory_host_bytes(root), root->size);
        struct transfer_item item = {
            .from = root->real[from], .host = image, .size = root->size, .image = root->image};
        error = transfer_add(transfer, &item);
        int flushed = transfer_flush(transfer); /* also on failure: reads may be in flight */
        error = error != 0 ? error : flushed;
    }
    if (error == 0)
        error = map_each_gap(root, copy_gap, &gap);
    free(image);
    return error;
}

static int download(const struct replica_batch *batch, struct transfer *transfer,
                    struct memory *root, cl_int *ret_error)
{
    struct residence *residence = residence_at(batch, batch->from);
    bool in_window = in_place_at(batch, root, batch->from) && replica_is_latest(root, batch->from);
    bool mapped = batch->quiet && map_written(root);
    if (in_window)
        memory_host_is_window(root);
    if (replica_is_latest(root, PLACE_HOST))
        return memory_window(root);
    if (!in_window && memory_host_room(root) != 0)
        return -ENOMEM;
    if (in_window && mapped)
        return 0;
    if (!mapped && !reads_device(batch, root))
        return sync_backed(residence, root, batch->from, CL_MAP_READ, ret_error);
    if (mapped)
        return download_around_maps(transfer, root, batch->from);
    struct transfer_item item = {.from = root->real[batch->from],
                                 .host = memory_host_bytes(root),
                                 .size = root->size,
                                 .image = root->image};
    return transfer_add(transfer, &item);
}

static int upload(const struct replica_batch *batch, struct transfer *transfer, struct memory *root,
                  cl_int *ret_error)
{
    bool in_window = !root->store;
    if (backed_at(root, batch->to) && in_window &&
        (!memory_is_lent(root) || in_place_at(batch, root, batch->to)))
        return sync_backed(residence_at(batch, batch->to), root, batch->to,
                           CL_MAP_WRITE_INVALIDATE_REGION, ret_error);
    struct transfer_item item = {.to = root->real[batch->to],
                                 .host = memory_host_bytes(root),
                                 .size = root->size,
                                 .image = root->image,
                                 .lent = is_in_lent(root)};
    return transfer_add(transfer, &item);
}

static int straight(const struct replica_batch *batch, struct transfer *transfer,
                    struct memory *root, cl_int *ret_error)
{
    (void)ret_error;
    struct transfer_item item = {.from = root->real[batch->from],
                                 .to = root->real[batch->to],
                                 .size = root->size,
                                 .image = root->image};
    return transfer_add(transfer, &item);
}

typedef int (*copier)(const struct replica_batch *batch, struct transfer *transfer,
                      struct memory *root, cl_int *ret_error);

/* One kind of copy for all roots that want it; afterwards they hold @versions in @place. */
static int copy_all(const struct replica_batch *batch, uint8_t from, uint8_t to, copier copy,
                    struct memory *const *roots, const uint64_t *versions, size_t count,
                    cl_int *ret_error)
{
    struct transfer *transfer = NULL;
    struct transfer_limits limits = batch->limits ? *batch->limits : (struct transfer_limits){0};
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += roots[i]->size;
        limits.lent = limits.lent || (from == PLACE_HOST && is_in_lent(roots[i]) &&
                                      !in_place_at(batch, roots[i], to));
    }
    if (count == 0)
        return 0;
    int error = transfer_create(residence_at(batch, from), residence_at(batch, to), total, &limits,
                                &transfer);
    for (size_t i = 0; error == 0 && i < count; i++)
        error = copy(batch, transfer, roots[i], ret_error);
    int flushed = transfer ? transfer_flush(transfer) : 0;
    if (error == 0)
        error = flushed;
    if (error == -EIO && transfer && transfer_error(transfer) != CL_SUCCESS)
        *ret_error = transfer_error(transfer);
    transfer_destroy(transfer);
    int ended = sync_end(batch, from != PLACE_HOST ? from : to, roots, count, ret_error);
    if (error == 0)
        error = ended;
    for (size_t i = 0; error == 0 && i < count; i++)
        replica_refreshed(roots[i], to, versions[i]);
    return error;
}

struct sorted {
    struct memory **roots;
    uint64_t *versions;
    size_t count;
};

int replica_refresh(const struct replica_batch *batch, uint64_t *ret_bytes, cl_int *ret_error)
{
    struct sorted direct = {0}, windowed = {0};
    uint64_t bytes = 0;
    int error = -ENOMEM;
    if (batch->count == 0) {
        *ret_bytes = 0;
        return 0;
    }
    direct.roots = calloc(2 * batch->count, sizeof(*direct.roots));
    direct.versions = calloc(2 * batch->count, sizeof(*direct.versions));
    if (!direct.roots || !direct.versions)
        goto out;
    windowed.roots = direct.roots + batch->count;
    windowed.versions = direct.versions + batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        struct memory *root = batch->roots[i];
        uint64_t version = batch->versions ? batch->versions[i] : atomic_load(&root->version);
        bool is_straight = goes_straight(batch, root);
        if (!wanted(batch, root, version, is_straight))
            continue;
        struct sorted *group = is_straight ? &direct : &windowed;
        group->versions[group->count] = version;
        group->roots[group->count++] = root;
        bytes += root->size;
    }
    error = copy_all(batch, batch->from, batch->to, straight, direct.roots, direct.versions,
                     direct.count, ret_error);
    if (error == 0 && batch->from != PLACE_HOST)
        error = copy_all(batch, batch->from, PLACE_HOST, download, windowed.roots,
                         windowed.versions, windowed.count, ret_error);
    if (error == 0 && batch->to != PLACE_HOST)
        error = copy_all(batch, PLACE_HOST, batch->to, upload, windowed.roots, windowed.versions,
                         windowed.count, ret_error);
    if (error == 0)
        *ret_bytes = bytes;
    for (size_t i = 0; meets_program(batch, true) && i < direct.count; i++)
        map_visit_end(direct.roots[i]);
    for (size_t i = 0; meets_program(batch, false) && i < windowed.count; i++)
        map_visit_end(windowed.roots[i]);
out:
    free(direct.roots);
    free(direct.versions);
    return error;
}
