#include "tests/state/memory/merge_rig.h"

#include "tests/support/cases.h"

#include "state/memory/digest.h"

static unsigned char *bytes_at(struct merge_rig *rig, int residence_index)
{
    return residence_index == MERGE_HOME ? rig->home : rig->away;
}

size_t merge_rig_pick(struct merge_rig *rig, size_t below)
{
    size_t high = (size_t)rand_r(&rig->seed) >> 3;
    return (high << 24 ^ (size_t)rand_r(&rig->seed) >> 3) % below;
}

static unsigned char pick_byte(struct merge_rig *rig)
{
    return (unsigned char)merge_rig_pick(rig, 256);
}

void merge_rig_write(struct merge_rig *rig, int residence_index, size_t at, const void *bytes,
                     size_t size)
{
    struct residence *residence = rig->context.at[residence_index];
    memmove(bytes_at(rig, residence_index) + at, bytes, size);
    cl_int error = residence->cl->clEnqueueWriteBuffer(
        residence->io, rig->root.real[residence_index], CL_TRUE, at, size,
        bytes_at(rig, residence_index) + at, 0, NULL, NULL);
    cr_assert(error == CL_SUCCESS || rig->loses, "%d", error);
}

static void fill(struct merge_rig *rig)
{
    for (size_t i = 0; i < rig->size; i++)
        rig->home[i] = rig->away[i] = pick_byte(rig);
    for (size_t i = 0; i < rig->size / 80; i++)
        rig->home[merge_rig_pick(rig, rig->size)] = pick_byte(rig);
    merge_rig_write(rig, MERGE_HOME, 0, rig->home, rig->size);
    merge_rig_write(rig, MERGE_AWAY, 0, rig->away, rig->size);
}

static void make_buffer(struct merge_rig *rig, int residence_index)
{
    struct residence *residence = rig->context.at[residence_index];
    cl_int error;
    rig->root.real[residence_index] =
        residence->cl->clCreateBuffer(residence->context, rig->root.flags, rig->size, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "%s: %d", residence->device->key.device, error);
}

void merge_rig_open(struct merge_rig *rig, struct device *home, struct device *away, size_t size,
                    cl_mem_flags flags, unsigned seed)
{
    struct device *devices[] = {home, away};
    memset(rig, 0, sizeof(*rig));
    rig->size = size;
    rig->unit = 8;
    rig->seed = seed;
    rig->home = malloc(size);
    rig->away = malloc(size);
    rig->began = malloc(size);
    rig->got = malloc(size);
    cr_assert(rig->home && rig->away && rig->began && rig->got);
    rig->context.residences = 2;
    rig->context.at = rig->at;
    rig->context.ready = rig->ready;
    rig->root.real = rig->real;
    rig->root.held = rig->held;
    rig->root.context = &rig->context;
    rig->root.root = &rig->root;
    rig->root.type = CL_MEM_OBJECT_BUFFER;
    rig->root.flags = flags;
    rig->root.size = size;
    for (int i = 0; i < 2; i++) {
        cl_int error = CL_SUCCESS;
        cr_assert_eq(residence_create(NULL, devices[i], &rig->context.at[i], &error), 0, "%s: %d",
                     devices[i]->key.device, error);
        make_buffer(rig, i);
    }
    fill(rig);
}

void merge_rig_share(struct merge_rig *rig, const struct merge_rig *other)
{
    for (int i = 0; i < 2; i++) {
        rig->context.at[i]->cl->clReleaseMemObject(rig->root.real[i]);
        residence_unref(rig->context.at[i]);
        rig->context.at[i] = other->context.at[i];
        residence_ref(rig->context.at[i]);
        make_buffer(rig, i);
    }
    fill(rig);
}

void merge_rig_close(struct merge_rig *rig)
{
    for (int i = 0; i < 2; i++) {
        struct residence *residence = rig->context.at[i];
        residence->cl->clReleaseMemObject(rig->root.real[i]);
        residence_unref(residence);
    }
    free(rig->home);
    free(rig->away);
    free(rig->began);
    free(rig->got);
}

void merge_rig_begins(struct merge_rig *rig)
{
    memcpy(rig->began, rig->away, rig->size);
}

static bool inside(struct range range, size_t at)
{
    return at >= range.begin && at < range.end;
}

bool merge_rig_overlaps(const struct merge_rig *rig, struct range range)
{
    for (size_t unit = 0; unit < rig->size; unit += rig->unit) {
        bool share = false, home = false, differs = false;
        for (size_t i = unit; i < unit + rig->unit && i < rig->size; i++) {
            share = share || (inside(range, i) && rig->away[i] != rig->began[i]);
            home = home || (inside(range, i) && rig->home[i] != rig->began[i]);
            differs = differs || (inside(range, i) && rig->home[i] != rig->away[i]);
        }
        if (share && home && differs)
            return true;
    }
    return false;
}

uint64_t merge_rig_written(const struct merge_rig *rig, struct range range)
{
    uint64_t bytes = 0;
    for (size_t chunk = 0; chunk < rig->size; chunk += DIGEST_CHUNK) {
        size_t count = 0;
        bool written = false;
        for (size_t i = chunk; i < chunk + DIGEST_CHUNK && i < rig->size; i++) {
            count += inside(range, i);
            written = written || (inside(range, i) && rig->away[i] != rig->began[i]);
        }
        bytes += written ? count : 0;
    }
    return bytes;
}

void merge_rig_merged(struct merge_rig *rig, struct range range)
{
    for (size_t i = range.begin; i < range.end; i++)
        if (rig->away[i] != rig->began[i])
            rig->home[i] = rig->away[i];
}

void merge_rig_check(struct merge_rig *rig, const char *when)
{
    struct residence *residence = rig->context.at[MERGE_HOME];
    cl_int error = residence->cl->clEnqueueReadBuffer(
        residence->io, rig->root.real[MERGE_HOME], CL_TRUE, 0, rig->size, rig->got, 0, NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s: %d", when, error);
    for (size_t i = 0; i < rig->size; i++)
        cr_assert_eq(rig->got[i], rig->home[i], "%s: byte %zu of %zu is %02x and not %02x", when, i,
                     rig->size, rig->got[i], rig->home[i]);
}

/* Sizes of all kinds: single bytes, the borders of units, a part of a chunk, several. */
static size_t pick_size(struct merge_rig *rig)
{
    static const size_t most[] = {2, 9, 100, 4000, 3 * DIGEST_CHUNK};
    return 1 + merge_rig_pick(rig, most[merge_rig_pick(rig, ARRAY_SIZE(most))]);
}

/* One write: new bytes, or those that are there already, or those that the other place has. */
static void write_somewhere(struct merge_rig *rig, struct range range, int residence_index)
{
    size_t at = range.begin + merge_rig_pick(rig, range.end - range.begin);
    size_t size = pick_size(rig), left = range.end - at, how = merge_rig_pick(rig, 8);
    const unsigned char *other = bytes_at(rig, 1 - residence_index);
    unsigned char *bytes = rig->got;
    size = size < left ? size : left;
    for (size_t i = 0; i < size; i++)
        bytes[i] = how == 0   ? bytes_at(rig, residence_index)[at + i]
                   : how == 1 ? other[at + i]
                              : pick_byte(rig);
    merge_rig_write(rig, residence_index, at, bytes, size);
}

int merge_rig_find(struct merge *merge, const struct transfer_limits *limits, bool *ret_overlaps,
                   uint64_t *ret_bytes)
{
    int error = merge_fetch(merge, limits, ret_bytes);
    return error != 0 ? error : merge_find(merge, limits, ret_overlaps);
}

bool merge_rig_play(struct merge_rig *rig, struct range range, unsigned writes)
{
    const struct range whole = {0, rig->size};
    struct merge *merge;
    uint64_t bytes = 0;
    bool overlaps = false;
    char when[128];
    snprintf(when, sizeof(when), "%zu to %zu, seed %u", range.begin, range.end, rig->seed);
    merge_rig_begins(rig);
    cr_assert_eq(merge_begin(&rig->root, range, rig->unit, MERGE_HOME, MERGE_AWAY, NULL, &merge), 0,
                 "%s", when);
    for (unsigned i = 0; i < writes; i++)
        write_somewhere(rig, range, merge_rig_pick(rig, 8) ? MERGE_AWAY : MERGE_HOME);
    /* What others do at home outside is nothing to the merge. */
    if (merge_rig_pick(rig, 4) == 0)
        write_somewhere(rig, range.begin > 0 ? (struct range){0, range.begin} : whole, MERGE_HOME);
    cr_assert_eq(merge_rig_find(merge, NULL, &overlaps, &bytes), 0, "%s", when);
    cr_assert_eq(overlaps, merge_rig_overlaps(rig, range), "%s: %d", when, overlaps);
    cr_assert_eq(bytes, merge_rig_written(rig, range), "%s: %llu bytes", when,
                 (unsigned long long)bytes);
    merge_rig_check(rig, when);
    if (!overlaps) {
        merge_rig_merged(rig, range);
        cr_assert_eq(merge_apply(merge), 0, "%s", when);
        merge_rig_check(rig, when);
    }
    merge_end(merge);
    return !overlaps;
}

static struct range pick_range(struct merge_rig *rig)
{
    struct range range = {merge_rig_pick(rig, rig->size), 0};
    range.end = range.begin + 1 + merge_rig_pick(rig, rig->size - range.begin);
    return merge_rig_pick(rig, 4) == 0 ? (struct range){0, rig->size} : range;
}

unsigned merge_rig_plays(struct merge_rig *rig, unsigned count)
{
    unsigned applied = 0;
    for (unsigned i = 0; i < count; i++) {
        /* What both have alike, units of which both write: else nearly all would overlap. */
        memcpy(rig->away, rig->home, rig->size);
        merge_rig_write(rig, MERGE_AWAY, 0, rig->away, rig->size);
        rig->unit = (size_t)1 << i % 4;
        applied += merge_rig_play(rig, pick_range(rig), (unsigned)merge_rig_pick(rig, 6));
    }
    return applied;
}
