#include "state/memory/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/memory/pages.h"
#include "state/memory/digest.h"
#include "state/memory/merge_device.h"
#include "state/object/lost.h"

/* Devices compare words of this size. */
#define WORD ((size_t)8)
/* The most bytes that one command copies: a slow device must notice soon that it was cancelled. */
#define COPY_MOST  ((size_t)256 << 20)
#define LOOK_MOST  (COPY_MOST / DIGEST_CHUNK) /* chunks that one kernel compares */
#define ASKED_MOST ((size_t)64)               /* chunks that home compares at a time */
/* If all chunks take at most this part of home's memory they are sent there once, all together. */
#define PART    16
#define NOTHING SIZE_MAX

/* At most one copy for each run, two fills at the ends, and three commands for comparing. */
_Static_assert(ASKED_MOST + 2 + 3 <= DEVICE_WORK_MOST, "all of it is given together");

struct merge {
    struct memory *root;
    struct range range;
    size_t unit;
    uint8_t home, away;
    struct residence *at_home,
        *at_away;     /* with references; at_away: until it is not used any more */
    size_t base, end; /* the range in the root, widened to whole words */

    /* At away. */
    cl_mem before;  /* the bytes [base, end) from before the share */
    cl_mem scratch; /* for a buffer that kernels may not read: its bytes are copied here; or NULL */
    struct chunk_flags differ;
    uint64_t taken_away; /* of its budget */

    /* At home. */
    struct merge_stage stage;
    size_t slots;  /* room in it, in chunks; `now` has room for those that are compared at a time */
    size_t staged; /* the first of chunks[] that is staged, or NOTHING */
    struct chunk_flags overlap;
    uint64_t taken_home;

    /* Chunks of the root that differ, each with a slot of that size in host memory. Bytes of a slot
     * outside the range are zero in both. */
    cl_ulong *chunks;
    size_t count;
    char *began, *left; /* the chunks before and after the share */
};

/* The bytes of the range that are in a run of chunks of the root. */
static struct range merge_range_of(const struct merge *merge, size_t chunk, size_t count)
{
    struct range range = {chunk * DIGEST_CHUNK, (chunk + count) * DIGEST_CHUNK};
    if (range.begin < merge->range.begin)
        range.begin = merge->range.begin;
    if (range.end > merge->range.end)
        range.end = merge->range.end;
    return range;
}

/* How many of chunks[] from @at on follow each other in the root, at most @most. */
static size_t merge_run_at(const struct merge *merge, size_t at, size_t most)
{
    size_t count = 1;
    while (count < most && merge->chunks[at + count] == merge->chunks[at] + count)
        count++;
    return count;
}

/* The number of chunks that the range touches, at most @most. */
static size_t merge_count_at_once(const struct merge *merge, size_t most)
{
    return size_least(digest_chunks(merge->end) - merge->base / DIGEST_CHUNK, most);
}

static void merge_drop(const struct residence *residence, cl_mem const *buffers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (buffers[i])
            residence->cl->clReleaseMemObject(buffers[i]);
}

/* The error of a merge for one of @residence's driver. */
static int merge_failure(struct residence *residence, cl_int error)
{
    if (error == CL_SUCCESS)
        return 0;
    bool lost = residence_failed(residence, error);
    return !lost && (is_shortage(error) || error == CL_OUT_OF_HOST_MEMORY) ? -ENOMEM : -EIO;
}

/* Wait for all of @work and release it. */
static int merge_finish(struct device_work *work)
{
    cl_int error = device_work_await(work);
    device_work_end(work);
    return merge_failure(work->residence, error);
}

/*
 * Beginning.
 */

static cl_int merge_make(struct residence *residence, size_t size, cl_mem *ret_buffer)
{
    cl_int error = CL_SUCCESS;
    *ret_buffer =
        residence->cl->clCreateBuffer(residence->context, CL_MEM_READ_WRITE, size, NULL, &error);
    return error;
}

static cl_int merge_make_flags(struct residence *residence, size_t count, struct chunk_flags *flags)
{
    flags->words = malloc(count * sizeof(*flags->words));
    return flags->words ? merge_make(residence, count * sizeof(*flags->words), &flags->real)
                        : CL_OUT_OF_HOST_MEMORY;
}

static int merge_make_at_away(struct merge *merge)
{
    struct residence *away = merge->at_away;
    struct budget *budget = &away->device->budget;
    const bool readable = !(merge->root->flags & CL_MEM_WRITE_ONLY);
    const size_t size = merge->end - merge->base;
    if (!budget_take(budget, size))
        return -ENOMEM;
    merge->taken_away = size;
    cl_int error = merge_make(away, size, &merge->before);
    if (error == CL_SUCCESS)
        budget_note(budget);
    if (error == CL_SUCCESS && !readable)
        error = merge_make(away, merge_count_at_once(merge, ASKED_MOST) * DIGEST_CHUNK,
                           &merge->scratch);
    if (error == CL_SUCCESS)
        error = merge_make_flags(away, merge_count_at_once(merge, LOOK_MOST), &merge->differ);
    return merge_failure(away, error);
}

/* Some drivers notice only when a buffer is used that there is no room for it. */
static cl_int merge_touch(struct residence *residence, cl_mem const *buffers, size_t count)
{
    struct device_work work = {.residence = residence};
    for (size_t i = 0; i < count; i++)
        device_work_fill(&work, buffers[i], 0, 0, sizeof(cl_uint));
    cl_int error = device_work_await(&work);
    device_work_end(&work);
    return error;
}

/* Replace the stage at home by one with room for @slots chunks. If this fails the old one stays. */
static cl_int merge_make_stage(struct merge *merge, size_t slots)
{
    struct residence *home = merge->at_home;
    struct merge_stage *stage = &merge->stage;
    const size_t sizes[] = {slots * DIGEST_CHUNK, slots * DIGEST_CHUNK,
                            slots * sizeof(*merge->chunks)};
    cl_mem const before[] = {stage->before, stage->after, stage->chunks};
    cl_mem made[] = {NULL, NULL, NULL};
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < ARRAY_SIZE(made) && error == CL_SUCCESS; i++)
        error = merge_make(home, sizes[i], &made[i]);
    if (error == CL_SUCCESS)
        error = merge_touch(home, made, ARRAY_SIZE(made));
    if (error != CL_SUCCESS) {
        merge_drop(home, made, ARRAY_SIZE(made));
        return error;
    }
    merge_drop(home, before, ARRAY_SIZE(before));
    stage->before = made[0];
    stage->after = made[1];
    stage->chunks = made[2];
    merge->slots = slots;
    return CL_SUCCESS;
}

static int merge_make_at_home(struct merge *merge)
{
    const size_t count = merge_count_at_once(merge, ASKED_MOST);
    cl_int error = merge_make_flags(merge->at_home, count, &merge->overlap);
    if (error == CL_SUCCESS)
        error = merge_make(merge->at_home, count * DIGEST_CHUNK, &merge->stage.now);
    if (error == CL_SUCCESS)
        error = merge_make_stage(merge, count);
    return merge_failure(merge->at_home, error);
}

static void merge_give_copy(struct device_work *work, cl_mem from, size_t from_at, cl_mem to,
                            size_t to_at, size_t size)
{
    struct residence *residence = work->residence;
    cl_event *event = device_work_next(work);
    if (event)
        device_work_given(work, residence->cl->clEnqueueCopyBuffer(residence->io, from, to, from_at,
                                                                   to_at, size, 0, NULL, event));
}

static int merge_keep(const struct merge *merge, const struct transfer_limits *limits)
{
    int error = 0;
    for (size_t at = merge->base; error == 0 && at < merge->end; at += COPY_MOST) {
        struct device_work work = {.residence = merge->at_away};
        size_t size = merge->end - at < COPY_MOST ? merge->end - at : COPY_MOST;
        error = digest_check(limits);
        if (error != 0)
            break;
        merge_give_copy(&work, merge->root->real[merge->away], at, merge->before, at - merge->base,
                        size);
        error = merge_finish(&work);
    }
    return error;
}

int merge_begin(struct memory *root, struct range range, size_t unit, uint8_t home, uint8_t away,
                const struct transfer_limits *limits, struct merge **ret_merge)
{
    struct merge *merge = root->image ? NULL : calloc(1, sizeof(*merge));
    if (!merge)
        return root->image ? -ENOTSUP : -ENOMEM;
    /* Bytes after the range up to the end of its last word, unless the root ends before. */
    const size_t over = range.end % WORD ? WORD - range.end % WORD : 0;
    *merge = (struct merge){.root = root,
                            .range = range,
                            .unit = unit,
                            .home = home,
                            .away = away,
                            .at_home = root->context->at[home],
                            .at_away = root->context->at[away],
                            .base = range.begin - range.begin % WORD,
                            .end = root->size - range.end < over ? root->size : range.end + over,
                            .staged = NOTHING};
    residence_ref(merge->at_home);
    residence_ref(merge->at_away);
    int error = merge_device_begin(merge->at_home, limits);
    if (error == 0)
        error = merge_device_begin(merge->at_away, limits);
    if (error == 0)
        error = merge_make_at_away(merge);
    if (error == 0)
        error = merge_keep(merge, limits);
    if (error == 0)
        *ret_merge = merge;
    else
        merge_end(merge);
    return error;
}

/*
 * Finding what the share wrote.
 */

static int merge_push_chunks(struct merge *merge, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (merge->differ.words[i] == 0)
            continue;
        if (!array_make_room(&merge->chunks, merge->count, sizeof(merge->chunks[0])))
            return -ENOMEM;
        merge->chunks[merge->count++] = first + i;
    }
    return 0;
}

static int merge_look_at(struct merge *merge, size_t first, size_t count)
{
    struct device_work work = {.residence = merge->at_away};
    struct merge_look look = {.now = merge->root->real[merge->away],
                              .before = merge->before,
                              .base = merge->base,
                              .end = merge->end};
    if (merge->scratch) {
        size_t begin = first * DIGEST_CHUNK, end = begin + count * DIGEST_CHUNK;
        begin = begin < merge->base ? merge->base : begin;
        end = end < merge->end ? end : merge->end;
        merge_give_copy(&work, look.now, begin, merge->scratch, 0, end - begin);
        look.now = merge->scratch;
        look.origin = begin;
    }
    merge_device_differs(&work, &look, first, count, &merge->differ);
    int error = merge_finish(&work);
    if (error == 0 && !chunk_flags_valid(&merge->differ, count))
        error = -EIO;
    return error != 0 ? error : merge_push_chunks(merge, first, count);
}

static int merge_look_at_both(struct merge *merge, const struct transfer_limits *limits)
{
    const size_t most = merge->scratch ? ASKED_MOST : LOOK_MOST;
    const size_t end = digest_chunks(merge->end);
    int error = 0;
    for (size_t at = merge->base / DIGEST_CHUNK; error == 0 && at < end; at += most) {
        error = digest_check(limits);
        if (error == 0)
            error = merge_look_at(merge, at, end - at < most ? end - at : most);
    }
    return error;
}

/* Allocate slots. Only at the range's ends are there bytes outside it, which are made zero. */
static char *merge_make_slots(const struct merge *merge)
{
    const size_t ends[] = {0, merge->count - 1};
    char *slots = pages_take(merge->count * DIGEST_CHUNK, PAGES_ANY);
    for (size_t i = 0; slots && i < ARRAY_SIZE(ends); i++) {
        struct range there = merge_range_of(merge, merge->chunks[ends[i]], 1);
        if (there.end - there.begin != DIGEST_CHUNK)
            memset(slots + ends[i] * DIGEST_CHUNK, 0, DIGEST_CHUNK);
    }
    return slots;
}

/* Read the chunks that differ from @from, whose first byte is the root's byte @base, to @slots. */
static int merge_read_slots(const struct merge *merge, struct transfer *transfer, cl_mem from,
                            size_t base, char *slots, uint64_t *bytes)
{
    int error = 0;
    for (size_t at = 0, count; error == 0 && at < merge->count; at += count) {
        count = merge_run_at(merge, at, merge->count - at);
        struct range range = merge_range_of(merge, merge->chunks[at], count);
        size_t offset = range.begin - base;
        char *host = slots + at * DIGEST_CHUNK + range.begin % DIGEST_CHUNK;
        const struct transfer_item item = {
            .from = from, .host = host - offset, .offset = offset, .size = range.end - range.begin};
        error = transfer_add(transfer, &item);
        *bytes += item.size;
    }
    return error;
}

/* The error of a merge for that of a transfer with @residence. */
static int merge_transfer_failure(const struct transfer *transfer, struct residence *residence,
                                  int error)
{
    if (error == -EIO)
        (void)residence_failed(residence, transfer_error(transfer));
    return error;
}

static int merge_fetch_away(struct merge *merge, const struct transfer_limits *limits,
                            uint64_t *ret_bytes)
{
    struct residence *away = merge->at_away;
    struct transfer *transfer = NULL;
    uint64_t bytes = 0;
    merge->began = merge_make_slots(merge);
    merge->left = merge_make_slots(merge);
    if (!merge->began || !merge->left)
        return -ENOMEM;
    int error = transfer_create(away, NULL, 2 * merge->count * DIGEST_CHUNK, limits, &transfer);
    if (error != 0)
        return error;
    error = merge_read_slots(merge, transfer, merge->before, merge->base, merge->began, &bytes);
    bytes = 0;
    if (error == 0)
        error = merge_read_slots(merge, transfer, merge->root->real[merge->away], 0, merge->left,
                                 &bytes);
    int flushed = transfer_flush(transfer);
    error = merge_transfer_failure(transfer, away, error != 0 ? error : flushed);
    transfer_destroy(transfer);
    *ret_bytes = bytes;
    return error;
}

/* Release all that the merge has at away, which is not used any more. */
static void merge_leave_away(struct merge *merge)
{
    struct residence *away = merge->at_away;
    cl_mem const made[] = {merge->before, merge->scratch, merge->differ.real};
    merge_drop(away, made, ARRAY_SIZE(made));
    budget_return(&away->device->budget, merge->taken_away);
    residence_unref(away);
    merge->at_away = NULL;
}

/*
 * At home.
 */

/* Make room at home for all chunks, if it has the memory. */
static void merge_widen(struct merge *merge)
{
    struct device *device = merge->at_home->device;
    const uint64_t memory = devinfo_scalar(&device->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    const size_t slots = size_least(merge->count, (size_t)(memory / PART / (2 * DIGEST_CHUNK)));
    const uint64_t bytes = 2 * slots * DIGEST_CHUNK;
    if (slots <= merge->slots || !budget_take(&device->budget, bytes))
        return;
    if (merge_make_stage(merge, slots) == CL_SUCCESS) {
        merge->taken_home = bytes;
        budget_note(&device->budget);
    } else {
        budget_return(&device->budget, bytes);
    }
}

/* Write chunks to home without a transfer. */
static int merge_stage_plainly(struct merge *merge, size_t at, size_t size)
{
    struct device_work work = {.residence = merge->at_home};
    device_work_write(&work, merge->stage.before, size, merge->began + at * DIGEST_CHUNK);
    device_work_write(&work, merge->stage.after, size, merge->left + at * DIGEST_CHUNK);
    return merge_finish(&work);
}

static int merge_stage_by(struct merge *merge, struct transfer *transfer, size_t at, size_t size)
{
    const struct transfer_item items[] = {
        {.to = merge->stage.before, .host = merge->began + at * DIGEST_CHUNK, .size = size},
        {.to = merge->stage.after, .host = merge->left + at * DIGEST_CHUNK, .size = size}};
    int error = 0;
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(items); i++)
        error = transfer_add(transfer, &items[i]);
    int flushed = transfer_flush(transfer);
    return merge_transfer_failure(transfer, merge->at_home, error != 0 ? error : flushed);
}

/* Stage chunks[at] and those behind it at home, as many as there is room for. @transfer: or NULL.
 */
static int merge_stage_chunks(struct merge *merge, struct transfer *transfer, size_t at,
                              size_t *ret_count)
{
    const size_t count = size_least(merge->count - at, merge->slots), size = count * DIGEST_CHUNK;
    *ret_count = count;
    if (merge->staged == at)
        return 0;
    merge->staged = NOTHING;
    int error =
        transfer ? merge_stage_by(merge, transfer, at, size) : merge_stage_plainly(merge, at, size);
    if (error == 0)
        merge->staged = at;
    return error;
}

/* Copy home's bytes of these chunks to `now`, laid out as in the slots. */
static void merge_give_now(struct device_work *work, const struct merge *merge, size_t at,
                           size_t count)
{
    for (size_t i = 0, run; i < count; i += run) {
        run = merge_run_at(merge, at + i, count - i);
        struct range range = merge_range_of(merge, merge->chunks[at + i], run);
        if (range.end - range.begin != run * DIGEST_CHUNK)
            device_work_fill(work, merge->stage.now, 0, i * DIGEST_CHUNK, run * DIGEST_CHUNK);
        merge_give_copy(work, merge->root->real[merge->home], range.begin, merge->stage.now,
                        i * DIGEST_CHUNK + range.begin % DIGEST_CHUNK, range.end - range.begin);
    }
}

/* Find overlaps in @count staged chunks from chunks[at] on. */
static int merge_ask(struct merge *merge, size_t at, size_t count, bool *ret_overlaps)
{
    struct device_work work = {.residence = merge->at_home};
    merge_give_now(&work, merge, at, count);
    merge_device_overlaps(&work, &merge->stage, at - merge->staged, count, merge->unit,
                          &merge->overlap);
    int error = merge_finish(&work);
    if (error == 0 && !chunk_flags_valid(&merge->overlap, count))
        error = -EIO;
    for (size_t i = 0; error == 0 && i < count; i++)
        *ret_overlaps = *ret_overlaps || merge->overlap.words[i] != 0;
    return error;
}

static int merge_apply_chunks(struct merge *merge, size_t at, size_t count)
{
    struct device_work work = {.residence = merge->at_home};
    device_work_write(&work, merge->stage.chunks, count * sizeof(merge->chunks[0]),
                      &merge->chunks[at]);
    merge_device_apply(&work, &merge->stage, count, merge->root->real[merge->home]);
    return merge_finish(&work);
}

/* A transfer to home, for many bytes; NULL: there are few, or none could be made. */
static struct transfer *merge_transfer_home(const struct merge *merge,
                                            const struct transfer_limits *limits)
{
    struct transfer *transfer = NULL;
    bool small = merge->count <= ASKED_MOST,
         there = merge->staged == 0 && merge->slots >= merge->count;
    if (small || there ||
        transfer_create(NULL, merge->at_home, 2 * merge->count * DIGEST_CHUNK, limits, &transfer) !=
            0)
        return NULL;
    return transfer;
}

static int merge_ask_home(struct merge *merge, const struct transfer_limits *limits,
                          bool *ret_overlaps)
{
    struct transfer *transfer = merge_transfer_home(merge, limits);
    int error = 0;
    for (size_t at = 0, count; error == 0 && at < merge->count && !*ret_overlaps; at += count) {
        error = digest_check(limits);
        if (error == 0)
            error = merge_stage_chunks(merge, transfer, at, &count);
        for (size_t i = 0; error == 0 && i < count && !*ret_overlaps; i += ASKED_MOST) {
            error = digest_check(limits);
            if (error == 0)
                error = merge_ask(merge, at + i, size_least(count - i, ASKED_MOST), ret_overlaps);
        }
    }
    transfer_destroy(transfer);
    return error;
}

int merge_fetch(struct merge *merge, const struct transfer_limits *limits, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    int error = merge_look_at_both(merge, limits);
    if (error == 0 && merge->count != 0)
        error = merge_fetch_away(merge, limits, &bytes);
    if (error != 0)
        return error;
    merge_leave_away(merge);
    *ret_bytes = bytes;
    return 0;
}

int merge_find(struct merge *merge, const struct transfer_limits *limits, bool *ret_overlaps)
{
    bool overlaps = false;
    int error = merge->count != 0 ? merge_make_at_home(merge) : 0;
    if (error == 0)
        merge_widen(merge);
    if (error == 0)
        error = merge_ask_home(merge, limits, &overlaps);
    if (error == 0)
        *ret_overlaps = overlaps;
    return error;
}

int merge_apply(struct merge *merge)
{
    struct transfer *transfer = merge_transfer_home(merge, NULL);
    int error = 0;
    for (size_t at = 0, count; error == 0 && at < merge->count; at += count) {
        error = merge_stage_chunks(merge, transfer, at, &count);
        if (error == 0)
            error = merge_apply_chunks(merge, at, count);
    }
    transfer_destroy(transfer);
    return error != 0 ? -EIO : 0;
}

void merge_end(struct merge *merge)
{
    if (!merge)
        return;
    struct residence *home = merge->at_home;
    const struct merge_stage *stage = &merge->stage;
    cl_mem const made[] = {stage->before, stage->after, stage->now, stage->chunks,
                           merge->overlap.real};
    const size_t size = merge->count * DIGEST_CHUNK;
    /* A lost device's driver may still use the host memory that it was given. */
    bool lost = residence_is_lost(home) || (merge->at_away && residence_is_lost(merge->at_away));
    merge_drop(home, made, ARRAY_SIZE(made));
    budget_return(&home->device->budget, merge->taken_home);
    if (merge->at_away)
        merge_leave_away(merge);
    residence_unref(home);
    if (lost)
        return;
    pages_give(merge->began, size);
    pages_give(merge->left, size);
    free(merge->differ.words);
    free(merge->overlap.words);
    free(merge->chunks);
    free(merge);
}

bool merge_is_shared(const struct memory *root, uint8_t home, uint8_t away)
{
    return memory_works_in_host_copy(root, home) && memory_works_in_host_copy(root, away);
}
