#include "state/point/point_store.h"

#include <errno.h>
#include <stdlib.h>

#include "state/base/array.h"
#include "state/base/pages.h"

static _Atomic uint64_t bytes_taken;

uint64_t point_bytes(void)
{
    return atomic_load(&bytes_taken);
}

struct chunk *chunk_create(size_t size, uint64_t since)
{
    struct chunk *chunk = malloc(sizeof(*chunk));
    if (!chunk)
        return NULL;
    *chunk = (struct chunk){.size = size, .since = since, .bytes = pages_take(size, 0)};
    if (!chunk->bytes) {
        free(chunk);
        return NULL;
    }
    atomic_init(&chunk->refs, 1);
    atomic_fetch_add(&bytes_taken, size);
    return chunk;
}

struct chunk *chunk_ref(struct chunk *chunk)
{
    if (chunk)
        atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    return chunk;
}

size_t chunk_unknown(const struct chunk *chunk)
{
    size_t bytes = 0;
    for (size_t i = 0; i < digest_chunks(chunk->size); i++)
        if (!chunk->digests || !digest_is_known(&chunk->digests[i]))
            bytes += DIGEST_CHUNK;
    return bytes < chunk->size ? bytes : chunk->size;
}

int chunk_learn(struct chunk *chunk, const struct transfer_limits *limits)
{
    size_t count = digest_chunks(chunk->size);
    int error = 0;
    if (!chunk->digests)
        chunk->digests = calloc(count, sizeof(chunk->digests[0]));
    if (!chunk->digests)
        return -ENOMEM;
    for (size_t at = 0, end; error == 0 && at < count; at = end) {
        bool known = digest_is_known(&chunk->digests[at]);
        for (end = at + 1; end < count && digest_is_known(&chunk->digests[end]) == known;)
            end++;
        if (!known)
            error =
                digest_host(chunk->bytes, chunk->size, at, end - at, limits, &chunk->digests[at]);
    }
    return error;
}

void chunk_written(struct chunk *chunk, size_t begin, size_t end)
{
    for (size_t i = begin / DIGEST_CHUNK; chunk->digests && i < digest_chunks(end); i++)
        chunk->digests[i] = (struct digest){0};
}

void chunk_unref(struct chunk *chunk)
{
    if (!chunk || atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub(&bytes_taken, chunk->size);
    pages_give(chunk->bytes, chunk->size);
    free(chunk->digests);
    free(chunk);
}

static void kept_finish(struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        chunk_unref(kept->chunks[i]);
    free(kept->chunks);
    free(kept->versions);
}

struct range kept_range(const struct kept *kept, size_t i)
{
    size_t begin = i * kept->chunk, left = kept->root.size - begin;
    return (struct range){begin, begin + (left < kept->chunk ? left : kept->chunk)};
}

struct point *point_create(uint64_t serial)
{
    struct point *point = calloc(1, sizeof(*point));
    if (!point)
        return NULL;
    atomic_init(&point->refs, 1);
    point->serial = serial;
    return point;
}

int point_add(struct point *point, struct memory *memory, const struct kept *from)
{
    struct kept kept = {.root = {.memory = object_weak(memory),
                                 .context = object_weak(memory->context),
                                 .type = memory->type,
                                 .flags = memory->flags,
                                 .size = memory->size},
                        .differed = UINT64_MAX,
                        .chunk = memory->image ? memory->size : POINT_CHUNK};
    if (!array_make_room(&point->kept, point->count, sizeof(kept)))
        return -ENOMEM;
    if (memory->image)
        kept.shape = *memory->image;
    kept.count = (memory->size + kept.chunk - 1) / kept.chunk;
    kept.chunks = calloc(kept.count, sizeof(struct chunk *));
    kept.versions = calloc(kept.count, sizeof(kept.versions[0]));
    if (!kept.chunks || !kept.versions) {
        free(kept.chunks);
        free(kept.versions);
        return -ENOMEM;
    }
    for (size_t i = 0; from && i < kept.count; i++) {
        kept.chunks[i] = chunk_ref(from->chunks[i]);
        kept.versions[i] = from->versions[i];
    }
    point->kept[point->count++] = kept;
    return 0;
}

void point_remove(struct point *point, size_t index)
{
    kept_finish(&point->kept[index]);
    point->count--;
    memmove(&point->kept[index], &point->kept[index + 1],
            (point->count - index) * sizeof(point->kept[0]));
}

void point_unpin(struct point *point)
{
    if (!point || atomic_fetch_sub_explicit(&point->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < point->count; i++)
        kept_finish(&point->kept[i]);
    free(point->kept);
    free(point);
}

uint64_t point_serial(const struct point *point)
{
    return point->serial;
}

uint64_t point_moment(const struct point *point)
{
    return point->moment_ns;
}

size_t point_root_count(const struct point *point)
{
    return point->count;
}

struct point_root point_root(const struct point *point, size_t index)
{
    struct point_root root = point->kept[index].root;
    if (point->kept[index].shape.size != 0)
        root.image = &point->kept[index].shape;
    return root;
}

size_t point_find(const struct point *point, const struct memory *memory)
{
    struct object_weak weak = object_weak((struct memory *)(uintptr_t)memory);
    size_t low = 0, high = point->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct object_weak *at = &point->kept[middle].root.memory;
        if (at->object == weak.object)
            return at->generation == weak.generation ? middle : SIZE_MAX;
        if (at->object < weak.object)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

bool point_run(const struct point *point, size_t index, size_t at, struct point_run *ret_run)
{
    const struct kept *kept = &point->kept[index];
    if (at >= kept->root.size)
        return false;
    size_t i = at / kept->chunk;
    const struct chunk *chunk = kept->chunks[i];
    *ret_run = (struct point_run){kept_range(kept, i), chunk ? chunk->bytes : NULL,
                                  chunk ? chunk->since : 0};
    return true;
}

uint64_t point_version(const struct point *point, size_t index, size_t at)
{
    const struct kept *kept = &point->kept[index];
    return kept->versions[at / kept->chunk];
}
