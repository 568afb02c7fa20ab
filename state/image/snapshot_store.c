#include "state/image/snapshot_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"

static _Atomic uint64_t bytes_taken;

uint64_t snapshot_bytes(void)
{
    return atomic_load(&bytes_taken);
}

/* ---- memory ---- */

/* A chunk is too small for a large page, and small pages are made at a tenth of the speed: so many
 * chunks are allocated together as a slab. A freed chunk is reused by the next one of its size. */
#define SLAB_CHUNKS 32
#define SLAB_ALL    UINT32_MAX
_Static_assert(SLAB_CHUNKS *SNAPSHOT_CHUNK >= PAGES_LEAST, "it is in large pages");

struct slab {
    struct slab *next;
    size_t size;   /* size of each chunk */
    char *memory;  /* owned */
    uint32_t free; /* a bit for each chunk */
};
static pthread_mutex_t slabs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs; /* guarded by slabs_lock */

/* Make a slab; its first chunk is taken. */
static struct slab *snapshot_store_slab_create(size_t size)
{
    struct slab *slab = malloc(sizeof(*slab));
    if (!slab)
        return NULL;
    *slab = (struct slab){.size = size,
                          .memory = pages_take(SLAB_CHUNKS * size, PAGES_ANY),
                          .free = SLAB_ALL & ~UINT32_C(1)};
    if (!slab->memory) {
        free(slab);
        return NULL;
    }
    pthread_mutex_lock(&slabs_lock);
    slab->next = slabs;
    slabs = slab;
    pthread_mutex_unlock(&slabs_lock);
    return slab;
}

static char *snapshot_store_slab_take(size_t size, struct slab **ret_slab)
{
    int at = 0;
    pthread_mutex_lock(&slabs_lock);
    struct slab *slab = slabs;
    while (slab && (slab->free == 0 || slab->size != size))
        slab = slab->next;
    if (slab) {
        at = __builtin_ctz(slab->free);
        slab->free &= ~(UINT32_C(1) << at);
    }
    pthread_mutex_unlock(&slabs_lock);
    *ret_slab = slab = slab ? slab : snapshot_store_slab_create(size);
    return slab ? slab->memory + (size_t)at * size : NULL;
}

static void snapshot_store_slab_give(struct slab *slab, const char *bytes)
{
    pthread_mutex_lock(&slabs_lock);
    slab->free |= UINT32_C(1) << ((size_t)(bytes - slab->memory) / slab->size);
    bool empty = slab->free == SLAB_ALL;
    struct slab **at = &slabs;
    while (empty && *at != slab)
        at = &(*at)->next;
    if (empty)
        *at = slab->next;
    pthread_mutex_unlock(&slabs_lock);
    if (!empty)
        return;
    pages_give(slab->memory, SLAB_CHUNKS * slab->size);
    free(slab);
}

/* A child inherits the slabs; the chunks of its parent's snapshots stay taken. */
FORK_PART = {.rank = FORK_OBJECT, .lock = &slabs_lock};

/* ---- chunks ---- */

struct chunk *chunk_create(size_t size, uint64_t since)
{
    struct chunk *chunk = malloc(sizeof(*chunk));
    if (!chunk)
        return NULL;
    *chunk = (struct chunk){.size = size, .since = since};
    if (size == SNAPSHOT_CHUNK || size == DIGEST_CHUNK)
        chunk->bytes = snapshot_store_slab_take(size, &chunk->slab);
    if (!chunk->bytes) {
        chunk->slab = NULL;
        chunk->bytes = pages_take(size, PAGES_ANY);
    }
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

uint32_t chunk_own_parts(const struct chunk *chunk)
{
    uint32_t own = 0;
    for (size_t i = 0; chunk->parts && i < CHUNK_PARTS; i++)
        own |= chunk->parts[i] ? UINT32_C(1) << i : 0;
    return own;
}

/* At most one in this many parts. */
#define FEW 4

bool chunk_parts_are_few(uint32_t parts, size_t size)
{
    return (size_t)__builtin_popcount(parts) * FEW <= digest_chunks(size);
}

struct chunk *chunk_of_parts(struct chunk *of, uint64_t since)
{
    struct chunk *chunk = malloc(sizeof(*chunk));
    size_t count = digest_chunks(of->size);
    if (!chunk)
        return NULL;
    *chunk = (struct chunk){.size = of->size, .since = since};
    atomic_init(&chunk->refs, 1);
    chunk->parts = calloc(CHUNK_PARTS, sizeof(struct chunk *));
    chunk->digests = calloc(count, sizeof(chunk->digests[0]));
    if (!chunk->parts || !chunk->digests) {
        chunk_unref(chunk);
        return NULL;
    }
    chunk->under = chunk_ref(of->parts ? of->under : of);
    for (size_t i = 0; of->parts && i < CHUNK_PARTS; i++)
        chunk->parts[i] = chunk_ref(of->parts[i]);
    if (of->digests)
        memcpy(chunk->digests, of->digests, count * sizeof(chunk->digests[0]));
    return chunk;
}

int chunk_own_part(struct chunk *chunk, size_t part, uint64_t since)
{
    size_t left = chunk->size - part * DIGEST_CHUNK;
    if (chunk->parts[part] && chunk->parts[part]->since == since)
        return 0;
    struct chunk *made = chunk_create(left < DIGEST_CHUNK ? left : DIGEST_CHUNK, since);
    if (!made)
        return -ENOMEM;
    chunk_unref(chunk->parts[part]);
    chunk->parts[part] = made;
    chunk->digests[part] = (struct digest){0};
    return 0;
}

struct chunk_run chunk_run(const struct chunk *chunk, size_t at)
{
    size_t part = at / DIGEST_CHUNK, end = (part + 1) * DIGEST_CHUNK;
    if (!chunk->parts)
        return (struct chunk_run){chunk->bytes + at, chunk->size, chunk->since};
    if (chunk->parts[part])
        return (struct chunk_run){chunk->parts[part]->bytes + at % DIGEST_CHUNK,
                                  end < chunk->size ? end : chunk->size, chunk->parts[part]->since};
    while (end < chunk->size && !chunk->parts[end / DIGEST_CHUNK])
        end += DIGEST_CHUNK;
    return (struct chunk_run){chunk->under->bytes + at, end < chunk->size ? end : chunk->size,
                              chunk->under->since};
}

int chunk_unlearned(struct chunk *chunk, struct digest_runs *runs)
{
    size_t count = digest_chunks(chunk->size);
    if (!chunk->digests)
        chunk->digests = calloc(count, sizeof(chunk->digests[0]));
    if (!chunk->digests)
        return -ENOMEM;
    for (size_t at = 0, end; at < count; at = end) {
        bool known = digest_is_known(&chunk->digests[at]);
        const struct chunk_run run = chunk_run(chunk, at * DIGEST_CHUNK);
        for (end = at + 1;
             end < digest_chunks(run.end) && digest_is_known(&chunk->digests[end]) == known;)
            end++;
        if (known)
            continue;
        if (!array_make_room(&runs->runs, runs->count, sizeof(runs->runs[0])))
            return -ENOMEM;
        size_t begin = at * DIGEST_CHUNK, last = end * DIGEST_CHUNK;
        runs->runs[runs->count++] = (struct digest_run){
            run.bytes, (last < chunk->size ? last : chunk->size) - begin, &chunk->digests[at]};
    }
    return 0;
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
    for (size_t i = 0; chunk->parts && i < CHUNK_PARTS; i++)
        chunk_unref(chunk->parts[i]);
    chunk_unref(chunk->under);
    if (chunk->bytes)
        atomic_fetch_sub(&bytes_taken, chunk->size);
    if (chunk->slab)
        snapshot_store_slab_give(chunk->slab, chunk->bytes);
    else if (chunk->bytes)
        pages_give(chunk->bytes, chunk->size);
    free(chunk->parts);
    free(chunk->digests);
    free(chunk);
}

static void snapshot_store_kept_finish(struct kept *kept)
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

struct snapshot *snapshot_create(uint64_t serial)
{
    struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (!snapshot)
        return NULL;
    atomic_init(&snapshot->refs, 1);
    snapshot->serial = serial;
    return snapshot;
}

int snapshot_add(struct snapshot *snapshot, struct memory *memory, const struct kept *from)
{
    struct kept kept = {.root = {.memory = object_weak(memory),
                                 .context = object_weak(memory->context),
                                 .type = memory->type,
                                 .flags = memory->flags,
                                 .size = memory->size},
                        .differed = UINT64_MAX,
                        .chunk = memory->image ? memory->size : SNAPSHOT_CHUNK};
    if (!array_make_room(&snapshot->kept, snapshot->count, sizeof(kept)))
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
    snapshot->kept[snapshot->count++] = kept;
    return 0;
}

void snapshot_unpin(struct snapshot *snapshot)
{
    if (!snapshot || atomic_fetch_sub_explicit(&snapshot->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < snapshot->count; i++)
        snapshot_store_kept_finish(&snapshot->kept[i]);
    free(snapshot->kept);
    free(snapshot);
}

uint64_t snapshot_serial(const struct snapshot *snapshot)
{
    return snapshot->serial;
}

size_t snapshot_root_count(const struct snapshot *snapshot)
{
    return snapshot->count;
}

struct snapshot_root snapshot_root(const struct snapshot *snapshot, size_t index)
{
    struct snapshot_root root = snapshot->kept[index].root;
    if (snapshot->kept[index].shape.size != 0)
        root.image = &snapshot->kept[index].shape;
    return root;
}

size_t snapshot_find(const struct snapshot *snapshot, const struct memory *memory)
{
    struct object_weak weak = object_weak((struct memory *)(uintptr_t)memory);
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct object_weak *at = &snapshot->kept[middle].root.memory;
        if (at->object == weak.object)
            return at->generation == weak.generation ? middle : SIZE_MAX;
        if (at->object < weak.object)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

bool snapshot_run(const struct snapshot *snapshot, size_t index, size_t at,
                  struct snapshot_run *ret_run)
{
    const struct kept *kept = &snapshot->kept[index];
    if (at >= kept->root.size)
        return false;
    size_t i = at / kept->chunk;
    const struct chunk *chunk = kept->chunks[i];
    struct range range = kept_range(kept, i);
    *ret_run = (struct snapshot_run){range, NULL, 0};
    if (!chunk)
        return true;
    /* Start at the chunk's beginning, so that a run is never split in two. */
    struct chunk_run run = chunk_run(chunk, 0);
    size_t begin = 0;
    while (run.end <= at - range.begin) {
        begin = run.end;
        run = chunk_run(chunk, begin);
    }
    *ret_run =
        (struct snapshot_run){{range.begin + begin, range.begin + run.end}, run.bytes, run.since};
    return true;
}
