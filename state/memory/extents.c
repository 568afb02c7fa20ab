#include "state/memory/extents.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/threads/fork.h"
#include "state/memory/compare.h"

/* An extent of a root that is told apart. It ends where the next one begins. */
struct entry {
    size_t begin;
    uint64_t version;
    uint64_t latest;
    uint8_t writer;
};

struct extents {
    unsigned count, capacity;
    uint64_t since; /* the version that a mover copies up to; 0: none is copying */
    struct entry at[];
};

/* Guards every root's table, and `version`, `held` and `writer` of roots with a table. A root
 * becomes whole under the lock, also while threads are inside the gate; it is told apart with the
 * gate closed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

FORK_PART = {.rank = FORK_TABLE, .lock = &lock};

static uint64_t extents_version_of(const struct memory *root)
{
    return atomic_load_explicit(&root->version, memory_order_relaxed);
}

/* Extents of an image are whole rows or slices, which one command of a driver copies. */
static size_t extents_unit_of(const struct memory *root)
{
    if (!root->image)
        return 1;
    return root->image->dims[2] > 1 ? root->image->slice_pitch : root->image->row_pitch;
}

/* The index after @residence_index of those that replicas of @root have; the last is
 * RESIDENCE_HOST. */
static uint8_t extents_next_index(const struct memory *root, uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST || residence_index + 1 < (int)root->context->residences
               ? residence_index + 1
               : RESIDENCE_HOST;
}

/* A root that is whole, as one entry. */
static struct entry extents_whole_entry(const struct memory *root)
{
    struct entry entry = {
        .version = extents_version_of(root),
        .writer = atomic_load_explicit(&root->writer, memory_order_relaxed),
    };
    for (uint8_t residence_index = 0; residence_index <= RESIDENCE_HOST;
         residence_index = extents_next_index(root, residence_index))
        if (entry.version == 0 || entry.writer == residence_index ||
            atomic_load_explicit(memory_held(root, residence_index), memory_order_relaxed) ==
                entry.version)
            entry.latest |= residence_bit(residence_index);
    return entry;
}

static size_t extents_end_of(const struct memory *root, unsigned i)
{
    const struct extents *table = root->extents;
    return i + 1 < table->count ? table->at[i + 1].begin : root->size;
}

/* The entry that has byte @at. */
static unsigned extents_find(const struct extents *table, size_t at)
{
    unsigned i = 0;
    while (i + 1 < table->count && table->at[i + 1].begin <= at)
        i++;
    return i;
}

/* True when no question would be answered differently for the two. */
static bool extents_agree(const struct extents *table, const struct entry *a, const struct entry *b)
{
    return a->latest == b->latest && a->writer == b->writer &&
           (a->version > table->since) == (b->version > table->since);
}

/* Join entry @i with the next one. A replica is up to date in the result if it was in both. */
static void extents_join(struct extents *table, unsigned i)
{
    struct entry *entry = &table->at[i], *next = entry + 1;
    if (next->version > entry->version)
        entry->version = next->version;
    entry->latest &= next->latest;
    table->count--;
    memmove(next, next + 1, (table->count - i - 1) * sizeof(*next));
}

/* A root needs no table once a single replica has the latest bytes of all of it. */
static bool extents_is_whole(const struct extents *table)
{
    uint64_t latest = table->at[0].latest;
    return table->count == 1 && table->since == 0 && (latest & (latest - 1)) == 0;
}

/* The writer is stored last, with release: a thread that reads it sees the other fields. */
static void extents_make_whole(struct memory *root)
{
    const struct entry entry = root->extents->at[0];
    uint64_t version = extents_version_of(root);
    for (uint8_t residence_index = 0; residence_index <= RESIDENCE_HOST;
         residence_index = extents_next_index(root, residence_index))
        atomic_store_explicit(memory_held(root, residence_index),
                              (entry.latest >> residence_index) & 1 ? version : 0,
                              memory_order_relaxed);
    free(root->extents);
    root->extents = NULL;
    atomic_store_explicit(&root->writer, entry.writer, memory_order_release);
}

/* Under the lock, after a change: join neighbours that agree. */
static void extents_settle_locked(struct memory *root)
{
    struct extents *table = root->extents;
    for (unsigned i = 0; i + 1 < table->count;)
        if (extents_agree(table, &table->at[i], &table->at[i + 1]))
            extents_join(table, i);
        else
            i++;
    if (extents_is_whole(table))
        extents_make_whole(root);
}

/* The cost of joining entry @i with the next: bytes that would count as stale in some residence, or
 * as written, without being so. SIZE_MAX: they must not be joined. A thread that has found that
 * @residence_index is the writer, or up to date, may be about to record a write: both must stay
 * true. */
static size_t extents_join_loss(const struct memory *root, unsigned i, uint8_t residence_index)
{
    const struct extents *table = root->extents;
    const struct entry *a = &table->at[i], *b = a + 1;
    size_t sizes[2] = {b->begin - a->begin, extents_end_of(root, i + 1) - b->begin};
    if (a->writer != b->writer || (a->latest & b->latest) == 0 ||
        (((a->latest ^ b->latest) >> residence_index) & 1))
        return SIZE_MAX;
    size_t loss = (size_t)__builtin_popcountll(a->latest & ~b->latest) * sizes[0] +
                  (size_t)__builtin_popcountll(b->latest & ~a->latest) * sizes[1];
    if ((a->version > table->since) != (b->version > table->since))
        loss += sizes[a->version > table->since];
    return loss;
}

/* Memory for two more entries. */
static bool extents_grow(struct memory *root)
{
    struct extents *table = root->extents;
    if (table->count + 2 <= table->capacity)
        return true;
    unsigned capacity = 2 * table->capacity;
    if (capacity > EXTENTS_MAX)
        return false;
    table = realloc(table, sizeof(*table) + capacity * sizeof(struct entry));
    if (!table)
        return false;
    root->extents = table;
    table->capacity = capacity;
    return true;
}

/* Make room for two more entries. False where no neighbours can be joined, or without memory. */
static bool extents_make_room(struct memory *root, uint8_t residence_index)
{
    while (root->extents->count + 2 > EXTENTS_MAX) {
        unsigned best = 0;
        size_t least = SIZE_MAX;
        for (unsigned i = 0; i + 1 < root->extents->count; i++) {
            size_t loss = extents_join_loss(root, i, residence_index);
            if (loss < least) {
                least = loss;
                best = i;
            }
        }
        if (least == SIZE_MAX)
            return false;
        extents_join(root->extents, best);
    }
    return extents_grow(root);
}

/* The table has room for one more entry. */
static void extents_split(struct memory *root, size_t at)
{
    struct extents *table = root->extents;
    unsigned i = extents_find(table, at);
    if (at == root->size || table->at[i].begin == at)
        return;
    memmove(&table->at[i + 1], &table->at[i], (table->count - i) * sizeof(table->at[0]));
    table->at[i + 1].begin = at;
    table->count++;
}

struct range extents_units(const struct memory *root, struct range range)
{
    size_t unit = extents_unit_of(root);
    size_t end = range.end < root->size ? (range.end + unit - 1) / unit * unit : root->size;
    return (struct range){range.begin / unit * unit, end < root->size ? end : root->size};
}

/* Under the lock: split the extents at the ends of @range. Without room return the extents that
 * cover it instead. */
static struct range extents_carve(struct memory *root, struct range range, uint8_t residence_index)
{
    range = extents_units(root, range);
    if (extents_make_room(root, residence_index)) {
        extents_split(root, range.begin);
        extents_split(root, range.end);
        return range;
    }
    return (struct range){root->extents->at[extents_find(root->extents, range.begin)].begin,
                          extents_end_of(root, extents_find(root->extents, range.end - 1))};
}

/* Under the lock. */
static struct extent extents_describe(const struct memory *root, size_t at)
{
    if (!replica_is_apart(root)) {
        struct entry entry = extents_whole_entry(root);
        return (struct extent){{0, root->size}, entry.version, entry.latest, entry.writer};
    }
    unsigned i = extents_find(root->extents, at);
    const struct entry *entry = &root->extents->at[i];
    return (struct extent){
        {entry->begin, extents_end_of(root, i)}, entry->version, entry->latest, entry->writer};
}

struct extent extent_at(const struct memory *root, size_t at)
{
    pthread_mutex_lock(&lock);
    struct extent extent = extents_describe(root, at);
    pthread_mutex_unlock(&lock);
    return extent;
}

/* True when @residence_index has, or wrote (@wrote), the latest bytes of all of @range. */
static bool extents_all(const struct memory *root, uint8_t residence_index, struct range range,
                        bool wrote)
{
    bool all = true;
    pthread_mutex_lock(&lock);
    for (struct extent e = {{0, range.begin}, 0, 0, 0}; all && e.range.end < range.end;) {
        e = extents_describe(root, e.range.end);
        all = wrote ? e.writer == residence_index : (e.latest >> residence_index) & 1;
    }
    pthread_mutex_unlock(&lock);
    return all;
}

bool extents_latest(const struct memory *root, uint8_t residence_index, struct range range)
{
    return extents_all(root, residence_index, range, false);
}

bool extents_written_by(const struct memory *root, uint8_t residence_index, struct range range)
{
    return extents_all(root, residence_index, range, true);
}

uint64_t extents_lacking(const struct memory *root, uint8_t residence_index, uint64_t sources,
                         struct range range)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (size_t at = range.begin; at < range.end;) {
        struct extent e = extents_describe(root, at);
        size_t end = e.range.end < range.end ? e.range.end : range.end;
        if (!((e.latest >> residence_index) & 1) && (e.latest & sources) != 0)
            bytes += end - at;
        at = end;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* False when only @residence_index has the entry and wrote it since the mover began: then a part
 * that is written again need not be split off. */
static bool extents_tells_apart(const struct extents *table, const struct entry *entry,
                                uint8_t residence_index)
{
    return entry->latest != residence_bit(residence_index) || entry->writer != residence_index ||
           entry->version <= table->since;
}

/* Widen @range over entries that would be joined with it again. */
static struct range extents_widen(const struct memory *root, struct range range,
                                  uint8_t residence_index)
{
    const struct extents *table = root->extents;
    unsigned first = extents_find(table, range.begin), last = extents_find(table, range.end - 1);
    if (!extents_tells_apart(table, &table->at[first], residence_index))
        range.begin = table->at[first].begin;
    if (!extents_tells_apart(table, &table->at[last], residence_index))
        range.end = extents_end_of(root, last);
    return range;
}

void extents_written(struct memory *root, uint8_t residence_index, struct range range)
{
    pthread_mutex_lock(&lock);
    if (replica_is_apart(root)) {
        uint64_t version = extents_version_of(root) + 1;
        atomic_store_explicit(&root->version, version, memory_order_relaxed);
        range = extents_carve(root, extents_widen(root, range, residence_index), residence_index);
        for (unsigned i = extents_find(root->extents, range.begin);
             i < root->extents->count && root->extents->at[i].begin < range.end; i++) {
            root->extents->at[i].version = version;
            root->extents->at[i].latest = residence_bit(residence_index);
            root->extents->at[i].writer = residence_index;
        }
        extents_settle_locked(root);
    } else {
        replica_written_whole(root, residence_index);
    }
    pthread_mutex_unlock(&lock);
}

/* A table of one extent, with room for a few. */
static bool extents_tell_apart(struct memory *root)
{
    enum { FEW = 4 };
    if (replica_is_apart(root))
        return true;
    root->extents = malloc(sizeof(*root->extents) + FEW * sizeof(struct entry));
    if (!root->extents)
        return false;
    *root->extents = (struct extents){.count = 1, .capacity = FEW};
    root->extents->at[0] = extents_whole_entry(root);
    /* A thread that reads these fields as those of a whole root finds no replica up to date. */
    for (uint8_t residence_index = 0; residence_index <= RESIDENCE_HOST;
         residence_index = extents_next_index(root, residence_index))
        atomic_store_explicit(memory_held(root, residence_index), 0, memory_order_relaxed);
    if (extents_version_of(root) == 0)
        atomic_store_explicit(&root->version, 1, memory_order_relaxed);
    atomic_store_explicit(&root->writer, WRITER_APART, memory_order_release);
    return true;
}

struct range extents_part(struct memory *root, struct range range)
{
    struct range all = {0, root->size};
    pthread_mutex_lock(&lock);
    if (extents_tell_apart(root))
        all = extents_carve(root, range, RESIDENCE_HOST);
    pthread_mutex_unlock(&lock);
    return all;
}

void extents_claim(struct memory *root, uint8_t residence_index, struct range range)
{
    pthread_mutex_lock(&lock);
    bool all = range.begin == 0 && range.end == root->size;
    if (replica_is_apart(root) || (!all && extents_tell_apart(root))) {
        range = extents_carve(root, range, residence_index);
        for (size_t at = range.begin; at < range.end; at = extents_describe(root, at).range.end)
            root->extents->at[extents_find(root->extents, at)].writer = residence_index;
        extents_settle_locked(root);
    } else {
        struct entry entry = extents_whole_entry(root);
        for (uint8_t i = 0; i <= RESIDENCE_HOST; i = extents_next_index(root, i))
            if ((entry.latest >> i) & 1)
                atomic_store_explicit(memory_held(root, i), entry.version, memory_order_relaxed);
        atomic_store_explicit(&root->writer, residence_index, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

void extents_refreshed(struct memory *root, uint8_t residence_index, struct range range,
                       uint64_t version)
{
    pthread_mutex_lock(&lock);
    if (replica_is_apart(root)) {
        if (extents_grow(root)) {
            extents_split(root, range.begin);
            extents_split(root, range.end);
        }
        for (unsigned i = 0; i < root->extents->count; i++) {
            struct entry *entry = &root->extents->at[i];
            if (entry->begin >= range.begin && extents_end_of(root, i) <= range.end &&
                entry->version <= version)
                entry->latest |= residence_bit(residence_index);
        }
    } else if (range.begin == 0 && range.end == root->size) {
        /* If it is older than the latest version the replica counts as stale. */
        atomic_store_explicit(memory_held(root, residence_index), version, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

void extents_settle(struct memory *root)
{
    pthread_mutex_lock(&lock);
    if (replica_is_apart(root))
        extents_settle_locked(root);
    pthread_mutex_unlock(&lock);
}

void extents_dropped(struct memory *root, uint8_t residence_index)
{
    pthread_mutex_lock(&lock);
    atomic_store_explicit(memory_held(root, residence_index), 0, memory_order_relaxed);
    if (replica_is_apart(root)) {
        for (unsigned i = 0; i < root->extents->count; i++) {
            struct entry *entry = &root->extents->at[i];
            if (entry->version != 0)
                entry->latest &= ~residence_bit(residence_index);
            if (entry->writer == residence_index)
                entry->writer = RESIDENCE_NONE;
        }
        extents_settle_locked(root);
    } else if (atomic_load_explicit(&root->writer, memory_order_relaxed) == residence_index) {
        atomic_store_explicit(&root->writer, RESIDENCE_NONE, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_and(&root->filled, ~residence_bit(residence_index));
    compare_forget_at(root, residence_index);
}

uint64_t extents_watch(struct memory *root)
{
    pthread_mutex_lock(&lock);
    if (extents_tell_apart(root))
        root->extents->since = extents_version_of(root);
    uint64_t version = extents_version_of(root);
    pthread_mutex_unlock(&lock);
    return version;
}

void extents_unwatch(struct memory *root)
{
    pthread_mutex_lock(&lock);
    if (replica_is_apart(root)) {
        root->extents->since = 0;
        extents_settle_locked(root);
    }
    pthread_mutex_unlock(&lock);
}
