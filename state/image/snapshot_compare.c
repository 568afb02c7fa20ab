#include "state/image/snapshot_making.h"

#include <errno.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/budget/budget.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"

/* Chunks digested at a time while commands wait. */
#define CHUNKS_AHEAD ((size_t)128)

_Static_assert(CHUNK_PARTS == 32 && SNAPSHOT_CHUNK % DIGEST_CHUNK == 0, "a bit of `same` is one");

/* Stale chunks of one root, [first, end). */
struct group {
    struct making *making;
    struct memory *root;
    struct kept *kept;
    size_t first, end;
    bool ahead;
};

bool stale_is_same(const struct stale *stale, struct range chunk)
{
    return stale->same != 0 && stale->same == chunk_all_parts(chunk.end - chunk.begin);
}

static bool snapshot_compare_is_same(const struct stale *stale, struct range chunk, size_t at)
{
    return stale->same != 0 && (stale->same >> ((at - chunk.begin) / DIGEST_CHUNK)) & 1;
}

size_t stale_run(const struct stale *stale, struct range chunk, size_t at, bool *ret_same)
{
    bool same = snapshot_compare_is_same(stale, chunk, at);
    /* The only chunk of an image may have more parts than there are bits: its parts are not
     * compared. */
    size_t end = stale->same == 0 ? chunk.end : at;
    while (end < chunk.end && snapshot_compare_is_same(stale, chunk, end) == same)
        end += DIGEST_CHUNK;
    *ret_same = same;
    return end < chunk.end ? end : chunk.end;
}

static struct chunk *snapshot_compare_chunk_of(const struct group *group, size_t at)
{
    return group->kept->chunks[group->making->stale[at].chunk];
}

/* Index of the residence that has all of a stale chunk, if host memory has not; else
 * RESIDENCE_NONE. */
static uint8_t snapshot_compare_index_of(const struct group *group, size_t at)
{
    struct range range = kept_range(group->kept, group->making->stale[at].chunk);
    struct extent extent = extent_at(group->root, range.begin);
    if (!snapshot_compare_chunk_of(group, at) || extent.range.end < range.end ||
        making_in_host(group->root, &extent))
        return RESIDENCE_NONE;
    uint8_t residence_index = making_on_device(group->root, &extent);
    bool waits = residence_index != RESIDENCE_NONE && group->ahead &&
                 group->root->context->at[residence_index]->runs_in_caller;
    return waits ? RESIDENCE_NONE : residence_index;
}

static struct compare_way snapshot_compare_way_of(const struct group *group,
                                                  uint8_t residence_index)
{
    return (struct compare_way){.context = group->root->context,
                                .from = residence_index,
                                .to = RESIDENCE_HOST,
                                .target = RESIDENCE_HOST,
                                .quiet = !group->ahead,
                                .limits = &group->making->move.limits};
}

static bool snapshot_compare_begin(const struct group *group)
{
    if (!group->ahead)
        return true;
    budget_copy_begin();
    if (map_visit(group->root))
        return true;
    budget_copy_end();
    return false;
}

static void snapshot_compare_end(const struct group *group)
{
    if (!group->ahead)
        return;
    map_visit_end(group->root);
    budget_copy_end();
}

/* True when digesting on the device is worth it. The cost of digesting what is kept does not count:
 * that happens while the program runs, and what it finds unchanged need not be copied, stored and
 * hashed. */
static bool snapshot_compare_pays(const struct group *group)
{
    size_t bytes = 0;
    uint8_t residence_index = RESIDENCE_NONE;
    bool worth = false;
    for (size_t i = group->first; i < group->end; i++) {
        struct chunk *chunk = snapshot_compare_chunk_of(group, i);
        bytes += chunk ? chunk->size : 0;
    }
    /* Most of what was compared in the last round had changed. */
    bool futile = !group->ahead && group->kept->differed > bytes / 2;
    if (bytes == 0 || futile || !snapshot_compare_begin(group))
        return false;
    for (size_t i = group->first; i < group->end && residence_index == RESIDENCE_NONE; i++)
        residence_index = snapshot_compare_index_of(group, i);
    if (residence_index != RESIDENCE_NONE) {
        struct compare_way way = snapshot_compare_way_of(group, residence_index);
        worth = compare_pays(&way, group->root, bytes);
    }
    snapshot_compare_end(group);
    return worth;
}

/* Digest what is kept. Where that is not possible (-ENOTSUP), bytes are copied instead. */
static int snapshot_compare_learn(const struct group *group)
{
    struct digest_runs runs = {0};
    int error = 0;
    for (size_t i = group->first; error == 0 && i < group->end; i++)
        if (snapshot_compare_chunk_of(group, i))
            error = chunk_unlearned(snapshot_compare_chunk_of(group, i), &runs);
    if (error == 0)
        error = digest_runs(runs.runs, runs.count, &group->making->move.limits);
    free(runs.runs);
    return error == -ENOTSUP ? 0 : error;
}

/* End of the stale chunks from @at on that are adjacent and at @residence_index. */
static size_t snapshot_compare_stretch_end(const struct group *group, size_t at,
                                           uint8_t residence_index)
{
    size_t most = group->ahead && group->end - at > CHUNKS_AHEAD ? at + CHUNKS_AHEAD : group->end;
    const struct stale *stale = group->making->stale;
    size_t next = at + 1;
    while (next < most && stale[next].chunk == stale[next - 1].chunk + 1 &&
           snapshot_compare_index_of(group, next) == residence_index)
        next++;
    return next;
}

static void snapshot_compare_mark(const struct group *group, size_t at,
                                  const struct digest *digests)
{
    struct making *making = group->making;
    const struct chunk *chunk = snapshot_compare_chunk_of(group, at);
    for (size_t i = 0; chunk->digests && i < digest_chunks(chunk->size); i++)
        if (digest_same(&digests[i], &chunk->digests[i]))
            making->stale[at].same |= UINT32_C(1) << i;
}

/* Digest stale chunks [@at, @next) on the device. */
static int snapshot_compare_ask(const struct group *group, size_t at, size_t next,
                                uint8_t residence_index, struct digest *digests)
{
    struct making *making = group->making;
    size_t first = making->stale[at].chunk * CHUNK_PARTS;
    size_t last = kept_range(group->kept, making->stale[next - 1].chunk).end;
    uint64_t began = clock_now_ns();
    int error = digest_device(group->root->context->at[residence_index],
                              group->root->real[residence_index], group->root->size, first,
                              digest_chunks(last) - first, &making->move.limits, digests);
    making->digest_ns += clock_now_ns() - began;
    making->digested += last - first * DIGEST_CHUNK;
    for (size_t i = at; error == 0 && i < next; i++)
        snapshot_compare_mark(group, i, digests + (i - at) * CHUNK_PARTS);
    return error == -ENOTSUP ? 0 : error;
}

static int snapshot_compare_ask_all(const struct group *group)
{
    struct digest *digests = calloc((group->end - group->first) * CHUNK_PARTS, sizeof(*digests));
    int error = digests ? 0 : -ENOMEM;
    for (size_t at = group->first, next; error == 0 && at < group->end; at = next) {
        next = at + 1;
        if (!snapshot_compare_begin(group))
            break;
        uint8_t residence_index = snapshot_compare_index_of(group, at);
        if (residence_index != RESIDENCE_NONE) {
            next = snapshot_compare_stretch_end(group, at, residence_index);
            error = snapshot_compare_ask(group, at, next, residence_index, digests);
        }
        snapshot_compare_end(group);
    }
    free(digests);
    return error;
}

/* Count the bytes that will be read. */
static void snapshot_compare_count(const struct group *group)
{
    struct making *making = group->making;
    uint64_t bytes = 0;
    for (size_t i = group->first; i < group->end; i++) {
        const struct stale *stale = &making->stale[i];
        struct range range = kept_range(group->kept, stale->chunk);
        bool keeps = making_keeps(making, snapshot_compare_chunk_of(group, i), stale), same = false;
        if (stale_is_same(stale, range))
            making->report->same += range.end - range.begin;
        for (size_t at = range.begin, next; at < range.end; at = next) {
            next = stale_run(stale, range, at, &same);
            bytes += (keeps && same) || stale_is_same(stale, range) ? 0 : next - at;
        }
    }
    group->kept->differed = bytes;
}

static struct group snapshot_compare_group_at(struct making *making, size_t first, bool ahead)
{
    size_t root = making->stale[first].root, last = first;
    while (last < making->stale_count && making->stale[last].root == root)
        last++;
    return (struct group){making, making->roots[root], &making->next->kept[root], first, last,
                          ahead};
}

int making_compare(struct making *making, bool ahead)
{
    struct group group;
    int error = 0;
    making->digest_ns = making->digested = 0;
    for (size_t at = 0; error == 0 && at < making->stale_count; at = group.end) {
        group = snapshot_compare_group_at(making, at, ahead);
        if (!snapshot_compare_pays(&group)) {
            group.kept->differed = UINT64_MAX;
            continue;
        }
        error = ahead ? snapshot_compare_learn(&group) : 0;
        if (error == 0)
            error = snapshot_compare_ask_all(&group);
        if (error == 0)
            snapshot_compare_count(&group);
    }
    return error;
}

int making_learn(struct making *making)
{
    struct group group;
    int error = 0;
    for (size_t at = 0; error == 0 && at < making->stale_count; at = group.end) {
        uint64_t bytes = 0;
        group = snapshot_compare_group_at(making, at, true);
        for (size_t i = group.first; i < group.end; i++)
            bytes += snapshot_compare_chunk_of(&group, i)
                         ? snapshot_compare_chunk_of(&group, i)->size
                         : 0;
        if (group.kept->differed <= bytes / 2)
            error = snapshot_compare_learn(&group);
    }
    return error;
}
