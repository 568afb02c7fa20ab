#include "state/memory/write_tracked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/memory/pages.h"
#include "state/memory/dirty.h"

_Static_assert(DIRTY_PART == DIGEST_CHUNK, "a part is a chunk");

struct write_tracked {
    struct dirty *dirty; /* owned */
    struct digest digests[];
};

static _Atomic unsigned write_tracked_count;

static struct write_tracked *write_tracked_take(struct host_copy *host_copy)
{
    return atomic_exchange(&host_copy->write_tracked, NULL);
}

static bool write_tracked_works_in_place(const struct memory *root)
{
    uint64_t backed = atomic_load(&root->backed), in_place = 0;
    for (uint8_t residence_index = 0; residence_index < root->context->residences;
         residence_index++)
        if (memory_works_in_host_copy(root, residence_index))
            in_place |= residence_bit(residence_index);
    return backed != 0 && backed == in_place;
}

/* Only writes by threads of this process, or by the kernel for them, can be tracked. */
bool write_tracked_may(const struct memory *root)
{
    return root->size >= PAGES_LEAST && !root->uses_svm && !root->shadow_copy && root->host_copy &&
           root->host_copy->ours && !root->host_copy->lent && write_tracked_works_in_place(root) &&
           dirty_may();
}

static struct write_tracked *write_tracked_new(const struct memory *root)
{
    size_t size = digest_chunks(root->size) * sizeof(struct digest);
    struct write_tracked *write_tracked = calloc(1, sizeof(*write_tracked) + size);
    if (write_tracked &&
        dirty_begin(root->host_copy->bytes, root->host_copy->size, &write_tracked->dirty) != 0) {
        free(write_tracked);
        return NULL;
    }
    if (write_tracked)
        atomic_fetch_add(&write_tracked_count, 1);
    return write_tracked;
}

/* Free it; its tracking has ended. */
static void write_tracked_forget(struct write_tracked *write_tracked)
{
    if (write_tracked)
        atomic_fetch_sub(&write_tracked_count, 1);
    free(write_tracked);
}

static bool write_tracked_is_fresh(const struct write_tracked *write_tracked, size_t chunk)
{
    return digest_is_known(&write_tracked->digests[chunk]) &&
           dirty_is_clean(write_tracked->dirty, chunk);
}

/* Chunks [first, ret) are all fresh, or all are not. */
static size_t write_tracked_run_end(const struct write_tracked *write_tracked, size_t first,
                                    size_t end)
{
    size_t at = first + 1;
    while (at < end && write_tracked_is_fresh(write_tracked, at) ==
                           write_tracked_is_fresh(write_tracked, first))
        at++;
    return at;
}

/* Mark chunks without a valid digest as clean; the caller digests them afterwards. */
static int write_tracked_clean_stale(struct write_tracked *write_tracked, size_t first, size_t end)
{
    int error = 0;
    for (size_t at = first, next; error == 0 && at < end; at = next) {
        next = write_tracked_run_end(write_tracked, at, end);
        if (write_tracked_is_fresh(write_tracked, at))
            continue;
        memset(&write_tracked->digests[at], 0, (next - at) * sizeof(write_tracked->digests[0]));
        error = dirty_clean(write_tracked->dirty, at, next - at);
    }
    return error;
}

/* Digest the chunks without a valid digest, with all cores. */
static int write_tracked_digest_stale(const struct write_tracked *write_tracked,
                                      const struct memory *root, size_t first, size_t count,
                                      const struct transfer_limits *limits, struct digest *ret)
{
    struct digest_run *runs = malloc(count * sizeof(*runs));
    size_t stale = 0;
    for (size_t i = 0; runs && i < count; i++) {
        size_t begin = (first + i) * DIGEST_CHUNK, left = root->size - begin;
        if (!write_tracked_is_fresh(write_tracked, first + i))
            runs[stale++] = (struct digest_run){root->host_copy->bytes + begin,
                                                left < DIGEST_CHUNK ? left : DIGEST_CHUNK, &ret[i]};
    }
    int error = runs ? digest_runs(runs, stale, limits) : -ENOTSUP;
    free(runs);
    return error;
}

static void write_tracked_destroy(struct write_tracked *write_tracked)
{
    if (write_tracked)
        dirty_end(write_tracked->dirty);
    write_tracked_forget(write_tracked);
}

static void write_tracked_put(struct host_copy *host_copy, struct write_tracked *write_tracked)
{
    write_tracked_destroy(atomic_exchange(&host_copy->write_tracked, write_tracked));
}

/* Digest by means of the tracking. -ENOTSUP: some writes were not seen, so that no kept digest is
 * valid. */
static int write_tracked_digest_from(struct write_tracked *write_tracked, const struct memory *root,
                                     size_t first, size_t count, bool quiet,
                                     const struct transfer_limits *limits, struct digest *ret)
{
    struct digest *kept = &write_tracked->digests[first];
    int error = quiet ? 0 : write_tracked_clean_stale(write_tracked, first, first + count);
    if (quiet)
        memcpy(ret, kept, count * sizeof(*ret));
    if (error == 0)
        error = write_tracked_digest_stale(write_tracked, root, first, count, limits,
                                           quiet ? ret : kept);
    if (!quiet)
        memcpy(ret, kept, count * sizeof(*ret));
    return error == 0 && !dirty_holds(write_tracked->dirty) ? -ENOTSUP : error;
}

int write_tracked_digest(struct memory *root, size_t first, size_t count, bool quiet,
                         const struct transfer_limits *limits, struct digest *ret)
{
    struct host_copy *host_copy = root->host_copy;
    struct write_tracked *write_tracked =
        write_tracked_may(root) ? write_tracked_take(host_copy) : NULL;
    if (!write_tracked && write_tracked_may(root) && !quiet)
        write_tracked = write_tracked_new(root);
    int error = write_tracked ? write_tracked_digest_from(write_tracked, root, first, count, quiet,
                                                          limits, ret)
                              : -ENOTSUP;
    if (error != -ENOTSUP) {
        write_tracked_put(host_copy, write_tracked);
        return error;
    }
    write_tracked_destroy(write_tracked);
    return digest_host(memory_host_bytes(root), root->size, first, count, limits, ret);
}

size_t write_tracked_stale(struct memory *root, size_t first, size_t count)
{
    struct write_tracked *write_tracked =
        write_tracked_may(root) ? write_tracked_take(root->host_copy) : NULL;
    size_t stale = count;
    for (size_t i = first; write_tracked && i < first + count; i++)
        stale -= write_tracked_is_fresh(write_tracked, i);
    if (write_tracked)
        write_tracked_put(root->host_copy, write_tracked);
    return stale;
}

void write_tracked_end_all(void)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    if (atomic_load(&write_tracked_count) == 0)
        return;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->root == memory && memory->host_copy)
            write_tracked_destroy(write_tracked_take(memory->host_copy));
}

bool write_tracked_give(struct host_copy *host_copy, void (*give)(char *bytes, size_t size))
{
    struct write_tracked *write_tracked = write_tracked_take(host_copy);
    bool gives = write_tracked != NULL;
    if (gives)
        dirty_end_later(write_tracked->dirty, give);
    write_tracked_forget(write_tracked);
    return gives;
}
