#include "state/memory/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/mapping.h"
#include "state/memory/write_tracked.h"

/* Fewer bytes are copied faster than compared. */
#define WORTH ((size_t)8 << 20)
/* How long digesting may take, as a part of the time for copying all bytes: while the program is
 * paused (QUIET); while it runs, for the source (SOURCE), and for work that is done once and makes
 * the pause shorter (AHEAD). */
#define PART_QUIET  0.7
#define PART_SOURCE 0.5
#define TIMES_AHEAD 4.0
/* The same for looking for zeroes, of which there may be none. */
#define PART_ZEROES (1.0 / 16)
/* Assumed digest rate in bytes a second of a device that was not measured yet. It is high, so that
 * the device is measured where a fast one would pay. */
#define FAST 400e9

_Atomic int compare_when = COMPARE_WHERE_IT_PAYS;

/* Digests of a replica. Kept with the root after a comparison, and taken by the next one. */
struct known {
    uint8_t residence_index;
    const char *bytes; /* of host memory: its address then */
    uint32_t maps;     /* of host memory: the root's `maps` then */
    uint64_t differed; /* bytes, in the last comparison */
    size_t count;
    struct digest digests[];
};

static struct known *compare_take(struct memory *root)
{
    return atomic_exchange(&root->known, NULL);
}

static void compare_put(struct memory *root, struct known *known)
{
    free(atomic_exchange(&root->known, known));
}

void compare_forget(struct memory *root)
{
    compare_put(root, NULL);
}

void compare_forget_at(struct memory *root, uint8_t residence_index)
{
    struct known *known = compare_take(root);
    if (known && known->residence_index == residence_index) {
        free(known);
        known = NULL;
    }
    if (known)
        compare_put(root, known);
}

/* True while only movers write to the replica at way->to. */
static bool compare_is_kept(const struct compare_way *way, const struct memory *root)
{
    uint64_t others = atomic_load(&root->backed);
    if (way->target != RESIDENCE_HOST && !way->used)
        others &= ~residence_bit(way->target);
    return way->to == RESIDENCE_HOST ? others == 0 : !way->used;
}

/* True when the kept digests are still those of the target. */
static bool compare_holds(const struct compare_way *way, const struct memory *root,
                          const struct known *known)
{
    return known->residence_index == way->to && known->count == digest_chunks(root->size) &&
           compare_is_kept(way, root) &&
           (way->to != RESIDENCE_HOST ||
            (known->bytes == memory_host_bytes(root) && known->maps == atomic_load(&root->maps)));
}

static struct known *compare_known_new(const struct compare_way *way, const struct memory *root)
{
    size_t count = digest_chunks(root->size);
    struct known *known = calloc(1, sizeof(*known) + count * sizeof(known->digests[0]));
    if (!known)
        return NULL;
    known->residence_index = way->to;
    known->count = count;
    if (way->to == RESIDENCE_HOST) {
        known->bytes = memory_host_bytes(root);
        known->maps = atomic_load(&root->maps);
    }
    return known;
}

static bool compare_can_digest(const struct compare_way *way, const struct memory *root,
                               uint8_t residence_index)
{
    if (residence_index == RESIDENCE_HOST)
        return !memory_is_user_memory(root) || root->shadow_copy || residence_index == way->to;
    return root->real[residence_index] && !memory_is_backed(root, residence_index) &&
           !(root->flags & CL_MEM_WRITE_ONLY) &&
           digest_device_may(way->context->at[residence_index]);
}

/* Not while something is mapped: the program may be writing some of the host copy's bytes. */
static bool compare_may_compare(const struct compare_way *way, struct memory *root, size_t bytes)
{
    int when = atomic_load(&compare_when);
    return when != COMPARE_NEVER && !way->busy && !root->image && !root->uses_svm &&
           (bytes >= WORTH || when == COMPARE_ALWAYS) && compare_can_digest(way, root, way->from) &&
           !map_any(root);
}

/* Also not to a host copy that another device works in, since that may write there at any time. */
static bool compare_is_comparable(const struct compare_way *way, struct memory *root,
                                  struct range range)
{
    return compare_may_compare(way, root, range.end - range.begin) &&
           compare_can_digest(way, root, way->to) &&
           (way->to != RESIDENCE_HOST || compare_is_kept(way, root));
}

/* True when the target has bytes that may be equal. */
static bool compare_has_target(const struct compare_way *way, const struct memory *root)
{
    bool there = way->to != RESIDENCE_HOST || root->shadow_copy ||
                 (root->host_copy && !memory_is_user_memory(root));
    return there && (atomic_load(&root->filled) & residence_bit(way->to));
}

static int compare_digest_at(const struct compare_way *way, const struct memory *root,
                             uint8_t residence_index, size_t first, size_t count,
                             struct digest *ret)
{
    return residence_index == RESIDENCE_HOST
               ? digest_host(memory_host_bytes(root), root->size, first, count, way->limits, ret)
               : digest_device(way->context->at[residence_index], root->real[residence_index],
                               root->size, first, count, way->limits, ret);
}

/* Digest the source of the copy. */
static int compare_digest_source(const struct compare_way *way, struct memory *root, size_t first,
                                 size_t count, struct digest *ret)
{
    return way->from == RESIDENCE_HOST
               ? write_tracked_digest(root, first, count, way->quiet, way->limits, ret)
               : compare_digest_at(way, root, way->from, first, count, ret);
}

/* Digest those of chunks [first, first + count) at the target that have no kept digest. */
static int compare_learn(const struct compare_way *way, const struct memory *root,
                         struct known *known, size_t first, size_t count)
{
    int error = 0;
    for (size_t at = first, end; error == 0 && at < first + count; at = end) {
        bool is_known = digest_is_known(&known->digests[at]);
        for (end = at + 1;
             end < first + count && digest_is_known(&known->digests[end]) == is_known;)
            end++;
        if (!is_known)
            error = compare_digest_at(way, root, way->to, at, end - at, &known->digests[at]);
    }
    return error;
}

static size_t compare_unknown(const struct known *known, size_t first, size_t count)
{
    size_t chunks = 0;
    for (size_t i = first; i < first + count; i++)
        chunks += !digest_is_known(&known->digests[i]);
    return chunks;
}

/* Seconds that digesting @bytes at @residence_index is expected to take. */
static double compare_digest_seconds(const struct compare_way *way, uint8_t residence_index,
                                     double bytes)
{
    double rate = residence_index == RESIDENCE_HOST
                      ? digest_host_rate()
                      : digest_device_rate(way->context->at[residence_index]);
    return bytes / (rate != 0 || residence_index == RESIDENCE_HOST ? rate : FAST);
}

/* Bytes that would be copied (whole), and that have to be digested at each end. */
struct work {
    size_t whole, source, target;
    bool
        watches; /* the source is tracked for writes, so that the pause digests only what changed */
};

static bool compare_pays_for(const struct compare_way *way, const struct work *work)
{
    if (atomic_load(&compare_when) == COMPARE_ALWAYS)
        return true;
    struct residence *from = context_residence(way->context, way->from),
                     *to = context_residence(way->context, way->to);
    double whole = transfer_predict(from, to, work->whole);
    double source = compare_digest_seconds(way, way->from, (double)work->source);
    double target = compare_digest_seconds(way, way->to, (double)work->target);
    double builds = (from ? digest_device_build(from) : 0) + (to ? digest_device_build(to) : 0);
    if (way->quiet)
        return source + target + builds < PART_QUIET * whole;
    return source < (work->watches ? TIMES_AHEAD : PART_SOURCE) * whole &&
           target < TIMES_AHEAD * whole && builds < TIMES_AHEAD * whole;
}

/* Have the digest kernel built and measured there. */
static bool compare_begin_at(const struct compare_way *way, const struct memory *root,
                             uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST ||
           digest_device_begin(way->context->at[residence_index], root->real[residence_index],
                               root->size);
}

/* True when it pays with the rates that are known or assumed, and still does with measured ones. */
static bool compare_is_worth(const struct compare_way *way, const struct memory *root,
                             const struct work *work)
{
    return compare_pays_for(way, work) && compare_begin_at(way, root, way->from) &&
           compare_begin_at(way, root, way->to) && compare_pays_for(way, work);
}

static bool compare_watches(const struct compare_way *way, const struct memory *root)
{
    return way->from == RESIDENCE_HOST && !way->quiet && write_tracked_may(root);
}

bool compare_helps(const struct compare_way *way, struct memory *root, struct range range)
{
    size_t bytes = range.end - range.begin;
    uint64_t last = compare_last(root, way->to);
    /* Most of it changes all the time: it would be copied again and again for nothing. */
    if (last != UINT64_MAX && last > bytes / 2)
        return false;
    return compare_is_comparable(way, root, range) && compare_is_kept(way, root) &&
           compare_is_worth(way, root,
                            &(struct work){bytes, bytes, bytes, compare_watches(way, root)});
}

bool compare_pays(const struct compare_way *way, struct memory *root, size_t bytes)
{
    return compare_may_compare(way, root, bytes) &&
           compare_is_worth(way, root, &(struct work){bytes, bytes, 0, false});
}

/* The same, counting only chunks that have no kept digest. */
static bool compare_is_worth_now(const struct compare_way *way, struct memory *root,
                                 const struct comparison *c)
{
    bool write_tracked = way->from == RESIDENCE_HOST && way->quiet;
    struct work work = {.whole = c->range.end - c->range.begin,
                        .target = compare_unknown(c->target, c->first, c->count) * DIGEST_CHUNK,
                        .watches = compare_watches(way, root)};
    work.source =
        write_tracked ? write_tracked_stale(root, c->first, c->count) * DIGEST_CHUNK : work.whole;
    return compare_is_worth(way, root, &work);
}

/* For a target device that has no bytes to compare with, but can be filled. */
static bool compare_zeroes_pay(const struct compare_way *way, const struct memory *root,
                               size_t bytes)
{
    if (way->from == RESIDENCE_HOST || way->to == RESIDENCE_HOST)
        return false;
    if (atomic_load(&compare_when) == COMPARE_ALWAYS)
        return true;
    struct residence *from = context_residence(way->context, way->from);
    double most =
        PART_ZEROES * transfer_predict(from, context_residence(way->context, way->to), bytes);
    return digest_device_build(from) + compare_digest_seconds(way, way->from, (double)bytes) <
               most &&
           compare_begin_at(way, root, way->from) &&
           compare_digest_seconds(way, way->from, (double)bytes) < most;
}

/* Digest zeroes, in the sizes of @root's chunks. */
static int compare_learn_zeroes(const struct memory *root, struct comparison *c)
{
    static const char zeroes[DIGEST_CHUNK];
    size_t rest = root->size % DIGEST_CHUNK;
    int error = digest_host(zeroes, sizeof(zeroes), 0, 1, NULL, &c->zero);
    return error != 0
               ? error
               : digest_host(zeroes, rest != 0 ? rest : sizeof(zeroes), 0, 1, NULL, &c->last);
}

static void compare_finish(struct comparison *c)
{
    free(c->source);
    free(c->target);
    *c = (struct comparison){0};
}

int compare_begin(const struct compare_way *way, struct memory *root, struct range range,
                  struct comparison *ret)
{
    struct comparison c = {.root = root,
                           .range = range,
                           .first = range.begin / DIGEST_CHUNK,
                           .fills = way->to != RESIDENCE_HOST};
    size_t bytes = range.end - range.begin;
    int error = -ENOTSUP;
    *ret = (struct comparison){0};
    c.count = digest_chunks(range.end) - c.first;
    if (extents_latest(root, way->to, range))
        return 0;
    bool comparable = compare_is_comparable(way, root, range),
         known = compare_has_target(way, root);
    if (!comparable || (!known && !compare_zeroes_pay(way, root, bytes))) {
        compare_forget_at(root, way->to);
        return 0;
    }
    c.compared = known;
    c.target = compare_take(root);
    if (c.target && !compare_holds(way, root, c.target)) {
        free(c.target);
        c.target = NULL;
    }
    if (!c.target)
        c.target = compare_known_new(way, root);
    c.source = c.target ? calloc(c.count, sizeof(*c.source)) : NULL;
    if (c.source && (!known || compare_is_worth_now(way, root, &c)))
        error = compare_learn_zeroes(root, &c);
    if (error == 0 && known)
        error = compare_learn(way, root, c.target, c.first, c.count);
    if (error == 0)
        error = compare_digest_source(way, root, c.first, c.count, c.source);
    if (error == 0)
        *ret = c;
    else
        compare_finish(&c);
    return error == -ENOTSUP ? 0 : error;
}

static bool compare_differs(const struct comparison *c, size_t i)
{
    return !digest_same(&c->source[i], &c->target->digests[c->first + i]);
}

static bool compare_is_zero(const struct comparison *c, size_t i)
{
    bool last = c->first + i + 1 == c->target->count;
    return c->fills && digest_same(&c->source[i], last ? &c->last : &c->zero);
}

bool compare_next(const struct comparison *c, size_t at, struct range *ret_run, bool *ret_zero)
{
    size_t i = at > c->range.begin ? (at + DIGEST_CHUNK - 1) / DIGEST_CHUNK - c->first : 0;
    while (i < c->count && !compare_differs(c, i))
        i++;
    if (i >= c->count)
        return false;
    bool zero = compare_is_zero(c, i);
    size_t end = i;
    while (end < c->count && compare_differs(c, end) && compare_is_zero(c, end) == zero)
        end++;
    struct range run = {(c->first + i) * DIGEST_CHUNK, (c->first + end) * DIGEST_CHUNK};
    ret_run->begin = run.begin > c->range.begin ? run.begin : c->range.begin;
    ret_run->end = run.end < c->range.end ? run.end : c->range.end;
    *ret_zero = zero;
    return true;
}

static uint64_t compare_differing_bytes(const struct comparison *c)
{
    struct range run = {0, 0};
    uint64_t bytes = 0;
    bool zero;
    while (compare_next(c, run.end, &run, &zero))
        bytes += run.end - run.begin;
    return bytes;
}

/* True when all of chunk @i was compared, not only a part. */
static bool compare_is_inside(const struct comparison *c, size_t i)
{
    size_t begin = (c->first + i) * DIGEST_CHUNK, end = begin + DIGEST_CHUNK;
    return begin >= c->range.begin && (end <= c->range.end || c->range.end == c->root->size);
}

void compare_end(const struct compare_way *way, struct comparison *c, bool copied)
{
    if (!c->source)
        return;
    struct known *known = c->target;
    known->differed = c->compared ? compare_differing_bytes(c) : UINT64_MAX;
    /* While the program runs it may have written to a chunk between its digest and its copy. */
    for (size_t i = 0; i < c->count; i++)
        if (compare_differs(c, i))
            known->digests[c->first + i] =
                way->quiet && compare_is_inside(c, i) ? c->source[i] : (struct digest){0};
    bool keep =
        copied && compare_is_kept(way, c->root) && (!way->quiet || way->to == RESIDENCE_HOST);
    if (keep && !way->quiet && extents_lacking(c->root, way->to, UINT64_MAX, c->range) != 0)
        keep = compare_learn(way, c->root, known, c->first, c->count) == 0;
    if (keep) {
        compare_put(c->root, known);
        c->target = NULL;
    }
    compare_finish(c);
}

uint64_t compare_last(struct memory *root, uint8_t residence_index)
{
    struct known *known = compare_take(root);
    uint64_t bytes =
        known && known->residence_index == residence_index ? known->differed : UINT64_MAX;
    if (known)
        compare_put(root, known);
    return bytes;
}
