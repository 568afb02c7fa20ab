#include "state/memory/watched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/memory/pages.h"
#include "state/memory/dirty.h"

_Static_assert(DIRTY_PART == DIGEST_CHUNK, "a part is a chunk");

struct watched {
    struct dirty *dirty; /* owned */
    struct digest digests[];
};

static _Atomic unsigned watched_count;

static struct watched *watched_take(struct window *window)
{
    return atomic_exchange(&window->watched, NULL);
}

static bool watched_works_in_place(const struct memory *root)
{
    uint8_t backed = atomic_load(&root->backed), in_place = 0;
    for (uint8_t residence_index = 0; residence_index < RESIDENCES_MAX; residence_index++)
        if (memory_works_in_window(root, residence_index))
            in_place |= (uint8_t)(1u << residence_index);
    return backed != 0 && backed == in_place;
}

/* What is written there is written by the host's cores. */
bool watched_may(const struct memory *root)
{
    return root->size >= PAGES_LEAST && !root->uses_svm && !root->store && root->window &&
           root->window->ours && watched_works_in_place(root) && dirty_may();
}

static struct watched *watched_new(const struct memory *root)
{
    size_t size = digest_chunks(root->size) * sizeof(struct digest);
    struct watched *watched = calloc(1, sizeof(*watched) + size);
    if (watched && dirty_begin(root->window->bytes, root->window->size, &watched->dirty) != 0) {
        free(watched);
        return NULL;
    }
    if (watched)
        atomic_fetch_add(&watched_count, 1);
    return watched;
}

/* Whose tracking ends. */
static void watched_forget(struct watched *watched)
{
    if (watched)
        atomic_fetch_sub(&watched_count, 1);
    free(watched);
}

static bool watched_is_fresh(const struct watched *watched, size_t chunk)
{
    return digest_is_known(&watched->digests[chunk]) && dirty_is_clean(watched->dirty, chunk);
}

/* Chunks [first, ret) are all fresh, or all are not. */
static size_t watched_run_end(const struct watched *watched, size_t first, size_t end)
{
    size_t at = first + 1;
    while (at < end && watched_is_fresh(watched, at) == watched_is_fresh(watched, first))
        at++;
    return at;
}

/* Those that are not fresh are clean from now on; their digests are to be taken afterwards. */
static int watched_clean_stale(struct watched *watched, size_t first, size_t end)
{
    int error = 0;
    for (size_t at = first, next; error == 0 && at < end; at = next) {
        next = watched_run_end(watched, at, end);
        if (watched_is_fresh(watched, at))
            continue;
        memset(&watched->digests[at], 0, (next - at) * sizeof(watched->digests[0]));
        error = dirty_clean(watched->dirty, at, next - at);
    }
    return error;
}

/* By all cores; those that are fresh are left as they are. */
static int watched_digest_stale(const struct watched *watched, const struct memory *root,
                                size_t first, size_t count, const struct transfer_limits *limits,
                                struct digest *ret)
{
    struct digest_run *runs = malloc(count * sizeof(*runs));
    size_t stale = 0;
    for (size_t i = 0; runs && i < count; i++) {
        size_t begin = (first + i) * DIGEST_CHUNK, left = root->size - begin;
        if (!watched_is_fresh(watched, first + i))
            runs[stale++] = (struct digest_run){root->window->bytes + begin,
                                                left < DIGEST_CHUNK ? left : DIGEST_CHUNK, &ret[i]};
    }
    int error = runs ? digest_runs(runs, stale, limits) : -ENOTSUP;
    free(runs);
    return error;
}

static void watched_destroy(struct watched *watched)
{
    if (watched)
        dirty_end(watched->dirty);
    watched_forget(watched);
}

static void watched_put(struct window *window, struct watched *watched)
{
    watched_destroy(atomic_exchange(&window->watched, watched));
}

/* By what was seen. -ENOTSUP: not all was, and there is nothing to be gone by any more. */
static int watched_digest_watched(struct watched *watched, const struct memory *root, size_t first,
                                  size_t count, bool quiet, const struct transfer_limits *limits,
                                  struct digest *ret)
{
    struct digest *kept = &watched->digests[first];
    int error = quiet ? 0 : watched_clean_stale(watched, first, first + count);
    if (quiet)
        memcpy(ret, kept, count * sizeof(*ret));
    if (error == 0)
        error = watched_digest_stale(watched, root, first, count, limits, quiet ? ret : kept);
    if (!quiet)
        memcpy(ret, kept, count * sizeof(*ret));
    return error == 0 && !dirty_holds(watched->dirty) ? -ENOTSUP : error;
}

int watched_digest(struct memory *root, size_t first, size_t count, bool quiet,
                   const struct transfer_limits *limits, struct digest *ret)
{
    struct window *window = root->window;
    struct watched *watched = watched_may(root) ? watched_take(window) : NULL;
    if (!watched && watched_may(root) && !quiet)
        watched = watched_new(root);
    int error = watched ? watched_digest_watched(watched, root, first, count, quiet, limits, ret)
                        : -ENOTSUP;
    if (error != -ENOTSUP) {
        watched_put(window, watched);
        return error;
    }
    watched_destroy(watched);
    return digest_host(memory_host_bytes(root), root->size, first, count, limits, ret);
}

size_t watched_stale(struct memory *root, size_t first, size_t count)
{
    struct watched *watched = watched_may(root) ? watched_take(root->window) : NULL;
    size_t stale = count;
    for (size_t i = first; watched && i < first + count; i++)
        stale -= watched_is_fresh(watched, i);
    if (watched)
        watched_put(root->window, watched);
    return stale;
}

void watched_end_all(void)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    if (atomic_load(&watched_count) == 0)
        return;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->root == memory && memory->window)
            watched_destroy(watched_take(memory->window));
}

bool watched_give(struct window *window, void (*give)(char *bytes, size_t size))
{
    struct watched *watched = watched_take(window);
    bool gives = watched != NULL;
    if (gives)
        dirty_end_later(watched->dirty, give);
    watched_forget(watched);
    return gives;
}
