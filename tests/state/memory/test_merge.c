#include <errno.h>
#include <pthread.h>

#include "state/base/clock.h"
#include "state/memory/digest.h"
#include "state/object/lost.h"
#include "tests/state/memory/merge_rig.h"
#include "tests/support/engine_rig.h"
#include "tests/support/every.h"

/* What the work-groups at one place wrote, merged into what those at another did: beside a model of
 * every byte. */

#define K      ((size_t)1024)
#define CONFIG "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes "

struct pair {
    struct engine_rig rig;
    struct device *one, *two;
};

static struct device *find(const struct pair *pair, const char *name)
{
    struct device *device;
    cr_assert_eq(driver_open_device(engine_rig_key(&pair->rig, name), &device), 0);
    return device;
}

static void pair_open(struct pair *pair, const char *config)
{
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    engine_rig_open(&pair->rig, config);
    pair->one = find(pair, "one");
    pair->two = find(pair, "two");
}

static const size_t sizes[] = {1,           7,           8,           9,          13,
                               64 * K - 1,  64 * K,      64 * K + 1,  64 * K + 8, 64 * K + 15,
                               200 * K + 4, 325 * K + 3, 640 * K + 77};

Test(merge, is_what_a_model_of_every_byte_says, .timeout = 300)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned applied = 0;
    pair_open(&pair, CONFIG);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        for (unsigned way = 0; way < 2; way++) {
            merge_rig_open(&rig, way ? pair.one : pair.two, way ? pair.two : pair.one, sizes[i],
                           CL_MEM_READ_WRITE, (unsigned)i + 1);
            applied += merge_rig_plays(&rig, 40);
            merge_rig_close(&rig);
        }
    cr_assert(applied > 500 && applied < 1000, "%u of 1040 were applied", applied);
}

/* Kernels must not read them: what they have is copied for ours. */
Test(merge, of_buffers_that_kernels_may_not_read, .timeout = 300)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned applied = 0;
    pair_open(&pair, CONFIG);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        merge_rig_open(&rig, pair.one, pair.two, sizes[i], CL_MEM_WRITE_ONLY, (unsigned)i + 1);
        applied += merge_rig_plays(&rig, 30);
        merge_rig_close(&rig);
    }
    cr_assert(applied > 200 && applied < 380, "%u of 390 were applied", applied);
}

static struct merge *begin(struct merge_rig *rig, struct range range)
{
    struct merge *merge;
    merge_rig_begins(rig);
    cr_assert_eq(merge_begin(&rig->root, range, rig->unit, MERGE_HOME, MERGE_AWAY, NULL, &merge),
                 0);
    return merge;
}

static bool find_overlap(struct merge *merge, uint64_t *ret_bytes)
{
    bool overlaps;
    cr_assert_eq(merge_rig_find(merge, NULL, &overlaps, ret_bytes), 0);
    return overlaps;
}

/* Each chunk of a buffer that has so many, all of them, every second, and all but one; then an
 * overlap in the very last byte. */
static void many(struct device *home, struct device *away, cl_mem_flags flags, unsigned way)
{
    static struct merge_rig rig;
    const size_t size = 200 * DIGEST_CHUNK + 5;
    const struct range range = {3, size};
    uint64_t bytes;
    merge_rig_open(&rig, home, away, size, flags, 3);
    memcpy(rig.away, rig.home, size);
    merge_rig_write(&rig, MERGE_AWAY, 0, rig.away, size);
    struct merge *merge = begin(&rig, range);
    for (size_t i = 0; i < 201; i++) {
        unsigned char byte = (unsigned char)~rig.away[i * DIGEST_CHUNK + 3];
        if (way == 0 || (way == 1 ? i % 2 == 0 : i != 70))
            merge_rig_write(&rig, MERGE_AWAY, i * DIGEST_CHUNK + 3, &byte, 1);
        if (i != 200 && i != 70)
            merge_rig_write(&rig, MERGE_HOME, i * DIGEST_CHUNK + 60000, &byte, 1);
    }
    cr_assert_not(find_overlap(merge, &bytes));
    cr_assert_eq(bytes, merge_rig_written(&rig, range));
    merge_rig_merged(&rig, range);
    cr_assert_eq(merge_apply(merge), 0);
    merge_rig_check(&rig, "applied");
    merge_end(merge);
    merge = begin(&rig, range);
    for (size_t i = 0; i < 201; i++) {
        unsigned char byte = (unsigned char)~rig.away[i * DIGEST_CHUNK + 3];
        merge_rig_write(&rig, MERGE_AWAY, i * DIGEST_CHUNK + 3, &byte, 1);
    }
    unsigned char last = rig.began[size - 1] ^ 1;
    merge_rig_write(&rig, MERGE_AWAY, size - 1, &last, 1);
    last ^= 3;
    merge_rig_write(&rig, MERGE_HOME, size - 1, &last, 1);
    cr_assert(merge_rig_overlaps(&rig, range) && find_overlap(merge, &bytes));
    merge_rig_check(&rig, "overlaps");
    merge_end(merge);
    merge_rig_close(&rig);
}

Test(merge, of_more_than_is_looked_at_in_one_go, .timeout = 300)
{
    static struct pair pair;
    pair_open(&pair, CONFIG);
    for (unsigned way = 0; way < 3; way++) {
        many(pair.one, pair.two, CL_MEM_READ_WRITE, way);
        many(pair.one, pair.two, CL_MEM_WRITE_ONLY, way);
    }
}

/* Home has room for all that it is given, for some, and for no more than it takes. */
Test(merge, goes_home_in_pieces_where_there_is_little_room, .timeout = 300)
{
    static struct pair pair;
    pair_open(&pair, "[one] name=one base=1 own_memory=yes memory=300MiB [two] name=two base=1 "
                     "own_memory=yes");
    struct budget *budget = &pair.one->budget;
    uint64_t granted[] = {BUDGET_UNLIMITED, 64 << 20, 4 << 20};
    for (unsigned way = 0; way < 3; way++) {
        atomic_store(&budget->granted, granted[way]);
        atomic_store(&budget->limited, true);
        atomic_store(&budget->peak, 0);
        many(pair.one, pair.two, CL_MEM_READ_WRITE, way);
        cr_assert_eq(atomic_load(&budget->held), 0);
        /* A 16th of the device, in whole chunks of both. */
        cr_assert_eq(atomic_load(&budget->peak), way < 2 ? 300 * 1024 / 128 / 16 * 128 * K : 0);
    }
    atomic_store(&budget->limited, false);
    atomic_store(&budget->peak, 0);
    const cl_icd_dispatch *cl = pair.one->cl;
    cl_context context = MADE(cl->clCreateContext, NULL, 1, &pair.one->id, NULL, NULL);
    cl_mem filler = MADE(cl->clCreateBuffer, context, 0, 265 << 20, NULL);
    many(pair.one, pair.two, CL_MEM_READ_WRITE, 0);
    cr_assert_eq(atomic_load(&budget->peak) + atomic_load(&budget->held), 0);
    OK(cl->clReleaseMemObject(filler));
    OK(cl->clReleaseContext(context));
}

static void set_alike(struct merge_rig *rig)
{
    memset(rig->home, 0x11, rig->size);
    merge_rig_write(rig, MERGE_HOME, 0, rig->home, rig->size);
    merge_rig_write(rig, MERGE_AWAY, 0, rig->home, rig->size);
}

/* Each place writes so many bytes of a value at an offset. */
struct write {
    int residence_index;
    size_t at, size;
    unsigned char value;
};

struct one_case {
    const char *what;
    struct range range;
    struct write writes[3];
    bool overlaps;
    uint64_t bytes;
};

#define SIZE (128 * K + 3)
static const struct one_case cases[] = {
    {"nothing", {0, SIZE}, {{0}}, false, 0},
    {"what was there", {0, SIZE}, {{MERGE_AWAY, 100, 5000, 0x11}}, false, 0},
    {"home alone", {0, SIZE}, {{MERGE_HOME, 100, 5000, 2}}, false, 0},
    {"neighbours in a unit",
     {0, SIZE},
     {{MERGE_AWAY, 1000, 4, 1}, {MERGE_HOME, 1004, 4, 2}},
     true,
     64 * K},
    {"neighbouring units",
     {0, SIZE},
     {{MERGE_AWAY, 1000, 8, 1}, {MERGE_HOME, 1008, 8, 2}, {MERGE_HOME, 992, 8, 3}},
     false,
     64 * K},
    {"the same from both",
     {0, SIZE},
     {{MERGE_AWAY, 1000, 100, 7}, {MERGE_HOME, 1000, 100, 7}},
     false,
     64 * K},
    {"the same, and one byte more",
     {0, SIZE},
     {{MERGE_AWAY, 1000, 101, 7}, {MERGE_HOME, 1000, 100, 7}},
     true,
     64 * K},
    {"the last byte", {0, SIZE}, {{MERGE_AWAY, SIZE - 1, 1, 7}}, false, 3},
    {"the last bytes from both",
     {0, SIZE},
     {{MERGE_AWAY, SIZE - 1, 1, 7}, {MERGE_HOME, SIZE - 3, 1, 7}},
     true,
     3},
    {"a whole chunk", {0, SIZE}, {{MERGE_AWAY, 64 * K, 64 * K, 7}}, false, 64 * K},
    {"all", {0, SIZE}, {{MERGE_AWAY, 0, SIZE, 7}}, false, SIZE},
    {"a unit that the range has a part of",
     {12, 100},
     {{MERGE_HOME, 8, 4, 2}, {MERGE_AWAY, 12, 4, 1}},
     false,
     88},
    {"what the share has outside its range",
     {16, 100},
     {{MERGE_AWAY, 0, 16, 2}, {MERGE_AWAY, 104, 60, 1}},
     false,
     0},
    {"what it has there in a unit of the range's",
     {16, 100},
     {{MERGE_AWAY, 100, 4, 2}, {MERGE_HOME, 96, 60, 1}},
     false,
     84},
    {"a unit that the range has the first part of",
     {8, 101},
     {{MERGE_AWAY, 96, 5, 2}, {MERGE_HOME, 101, 3, 1}},
     false,
     93},
};

Test(merge, tells_overlaps_by_units, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, SIZE, CL_MEM_READ_WRITE, 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct one_case *one = &cases[i];
        uint64_t bytes = 1;
        set_alike(&rig);
        struct merge *merge = begin(&rig, one->range);
        for (size_t j = 0; j < ARRAY_SIZE(one->writes); j++) {
            const struct write *write = &one->writes[j];
            memset(rig.got, write->value, write->size);
            if (write->size != 0)
                merge_rig_write(&rig, write->residence_index, write->at, rig.got, write->size);
        }
        uint64_t asked = emu_shared_calls(pair.rig.emu, "one", "clEnqueueNDRangeKernel");
        cr_assert_eq(find_overlap(merge, &bytes), one->overlaps, "%s", one->what);
        cr_assert_eq(bytes, one->bytes, "%s: %llu", one->what, (unsigned long long)bytes);
        if (one->bytes == 0)
            cr_assert_eq(emu_shared_calls(pair.rig.emu, "one", "clEnqueueNDRangeKernel"), asked,
                         "%s: home is asked nothing", one->what);
        if (!one->overlaps) {
            merge_rig_merged(&rig, one->range);
            cr_assert_eq(merge_apply(merge), 0);
        }
        merge_rig_check(&rig, one->what);
        merge_end(merge);
    }
    merge_rig_close(&rig);
}

/* Neighbours at every distance, in units of every size. */
Test(merge, has_units_of_what_kernels_write, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned overlaps = 0;
    uint64_t bytes;
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, 40, CL_MEM_READ_WRITE, 1);
    for (rig.unit = 1; rig.unit <= 8; rig.unit *= 2)
        for (size_t at = 8; at < 16; at++)
            for (size_t other = 8; other < 24; other++) {
                const unsigned char share = 0x22, home = 0x33;
                set_alike(&rig);
                struct merge *merge = begin(&rig, (struct range){0, 40});
                merge_rig_write(&rig, MERGE_AWAY, at, &share, 1);
                merge_rig_write(&rig, MERGE_HOME, other, &home, 1);
                bool overlap = at / rig.unit == other / rig.unit;
                cr_assert_eq(find_overlap(merge, &bytes), overlap, "units of %zu, %zu and %zu",
                             rig.unit, at, other);
                if (!overlap) {
                    merge_rig_merged(&rig, (struct range){0, 40});
                    cr_assert_eq(merge_apply(merge), 0);
                }
                merge_rig_check(&rig, "applied or not");
                merge_end(merge);
                overlaps += overlap;
            }
    cr_assert_eq(overlaps, 8 * (1 + 2 + 4 + 8));
    merge_rig_close(&rig);
}

/*
 * Failures.
 */

enum step { BEGIN, FIND, APPLY, DONE };

struct attempt {
    enum step failed; /* or DONE */
    int error;
};

/* Its first and last chunks are looked at in part. */
static struct range most(const struct merge_rig *rig)
{
    return (struct range){5, rig->size - 3};
}

/* Home writes into each chunk, and the share into each second one, or, of many, into each, so that
 * home is asked of them in more than one go. */
static void write_chunks(struct merge_rig *rig)
{
    const size_t count = digest_chunks(rig->size), stride = count > 64 ? 1 : 2;
    for (size_t i = 0; i < count; i++) {
        memset(rig->got, 3, 100);
        if (i % stride == 0)
            merge_rig_write(rig, MERGE_AWAY, 5 + i * DIGEST_CHUNK, rig->got, 100);
        merge_rig_write(rig, MERGE_HOME, 4000 + i * DIGEST_CHUNK, rig->got, 100);
    }
}

/* @between  Is told which step comes next, DONE when that is none of the merge's; or NULL. */
static struct attempt attempt(struct merge_rig *rig, const struct transfer_limits *limits,
                              void (*between)(void *data, enum step next), void *data)
{
    struct attempt attempt = {BEGIN, 0};
    struct merge *merge = NULL;
    bool overlaps = true;
    uint64_t bytes;
    set_alike(rig);
    merge_rig_begins(rig);
    if (between)
        between(data, BEGIN);
    attempt.error =
        merge_begin(&rig->root, most(rig), rig->unit, MERGE_HOME, MERGE_AWAY, limits, &merge);
    if (attempt.error != 0)
        return attempt;
    if (between)
        between(data, DONE);
    attempt.failed = FIND;
    write_chunks(rig);
    if (between)
        between(data, FIND);
    attempt.error = merge_rig_find(merge, limits, &overlaps, &bytes);
    if (attempt.error == 0) {
        cr_assert_not(overlaps);
        cr_assert_eq(bytes, merge_rig_written(rig, most(rig)));
        attempt.failed = APPLY;
        if (between)
            between(data, APPLY);
        attempt.error = merge_apply(merge);
    }
    if (attempt.error == 0)
        attempt.failed = DONE;
    merge_end(merge);
    return attempt;
}

/* What is at home: nothing of the share before it is applied; and whatever failed then, no byte
 * that neither has. */
static void check_home(struct merge_rig *rig, enum step failed, const char *when)
{
    if (failed == APPLY) {
        struct residence *home = rig->context.at[MERGE_HOME];
        OK(home->cl->clEnqueueReadBuffer(home->io, rig->root.real[MERGE_HOME], CL_TRUE, 0,
                                         rig->size, rig->got, 0, NULL, NULL));
        for (size_t i = 0; i < rig->size; i++)
            if (rig->away[i] != rig->began[i] && rig->got[i] == rig->away[i])
                rig->home[i] = rig->away[i];
    } else if (failed == DONE) {
        merge_rig_merged(rig, most(rig));
    }
    merge_rig_check(rig, when);
}

struct fault {
    struct pair *pair;
    const char *device;
    uint64_t n;
    enum step step;
    int error;
};

static void arm(void *data, enum step next)
{
    const struct fault *fault = data;
    (void)emu_shared_disarm(fault->pair->rig.emu, fault->device);
    if (next == fault->step)
        cr_assert_eq(
            emu_shared_arm(fault->pair->rig.emu, fault->device, fault->n, NULL, fault->error), 0);
}

static uint64_t held(const struct pair *pair)
{
    return atomic_load(&pair->one->budget.held) + atomic_load(&pair->two->budget.held);
}

static int64_t alive(const struct pair *pair, const char *device)
{
    return emu_shared_live_all(pair->rig.emu, device);
}

/* Every call of a step on one device fails once. Returns how many calls there were. */
static unsigned fail_each(struct pair *pair, struct merge_rig *rig, int residence_index,
                          enum step step, bool built, unsigned *failures)
{
    struct fault fault = {pair, residence_index == MERGE_HOME ? "one" : "two", 1, step, 0};
    struct emu_shared *emu = pair->rig.emu;
    char when[64];
    /* No test of the device, which a wait makes that is long on a slow machine, is to get the
     * fault. */
    lost_patience_ns = 60 * NS_PER_S;
    for (;; fault.n++) {
        for (int i = 0; i < 2 && !built; i++)
            residence_tool_finish(rig->context.at[i], RESIDENCE_MERGE);
        int64_t before[] = {alive(pair, "one"), alive(pair, "two")};
        uint64_t fired = emu_shared_fired(emu, fault.device), room = held(pair);
        struct attempt got = attempt(rig, NULL, arm, &fault);
        (void)emu_shared_disarm(emu, fault.device);
        snprintf(when, sizeof(when), "call %llu on %s, step %d: %d in step %d",
                 (unsigned long long)fault.n, fault.device, step, got.error, got.failed);
        fired = emu_shared_fired(emu, fault.device) - fired;
        cr_assert_eq(held(pair), room, "%s: memory is counted still", when);
        if (got.failed != DONE) {
            cr_assert(fired > 0 && got.failed == step, "%s", when);
            cr_assert(got.error == -EIO || (step == BEGIN && got.error == -ENOTSUP) ||
                          (step != APPLY && got.error == -ENOMEM),
                      "%s", when);
            ++*failures;
        }
        if (built)
            cr_assert(engine_rig_settles(&pair->rig, "one", before[0], 0) &&
                          engine_rig_settles(&pair->rig, "two", before[1], 0),
                      "%s: objects are left", when);
        check_home(rig, got.failed, when);
        if (!built) /* it may not be asked again */
            for (int i = 0; i < 2; i++)
                residence_tool_finish(rig->context.at[i], RESIDENCE_MERGE);
        if (fired == 0)
            return (unsigned)fault.n - 1;
        cr_assert_lt(fault.n, 500, "%s", when);
    }
}

static void fail_all(cl_mem_flags flags)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned failures = 0;
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, 300 * K, flags, 1);
    cr_assert_gt(fail_each(&pair, &rig, MERGE_HOME, BEGIN, false, &failures), 4, "it builds");
    cr_assert_gt(fail_each(&pair, &rig, MERGE_AWAY, BEGIN, false, &failures), 12);
    cr_assert_gt(failures, 16);
    cr_assert_eq(attempt(&rig, NULL, NULL, NULL).failed, DONE);
    for (int step = BEGIN; step <= APPLY; step++)
        for (int residence_index = MERGE_HOME; residence_index <= MERGE_AWAY; residence_index++) {
            unsigned before = failures;
            unsigned calls = fail_each(&pair, &rig, residence_index, step, true, &failures);
            if (step == APPLY && residence_index == MERGE_AWAY)
                cr_assert_eq(calls, 0, "away is asked nothing any more");
            else if (step == BEGIN && residence_index == MERGE_HOME)
                cr_assert_eq(calls, 0, "home is busy");
            else
                cr_assert(failures >= before + 2, "%u of %u calls fail", failures - before, calls);
        }
    merge_rig_close(&rig);
    cr_assert(engine_rig_empties(&pair.rig, "one") && engine_rig_empties(&pair.rig, "two"));
}

TestCall(merge, fails_with_any_call_and_leaves_home_as_it_is, fail_all(CL_MEM_READ_WRITE),
         .timeout = 300);
TestCall(merge, fails_with_any_call_of_what_is_not_read_either, fail_all(CL_MEM_WRITE_ONLY),
         .timeout = 300);

/* Room for more than is asked of at a time is not to be had at home: then there is less. */
Test(merge, of_many_chunks_fails_with_any_call_at_home, .timeout = 300)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned failures = 0;
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, 66 * DIGEST_CHUNK, CL_MEM_READ_WRITE, 1);
    cr_assert_eq(attempt(&rig, NULL, NULL, NULL).failed, DONE); /* all is built */
    unsigned find = fail_each(&pair, &rig, MERGE_HOME, FIND, true, &failures);
    cr_assert(failures + 5 <= find, "%u of %u calls fail", failures, find);
    cr_assert_gt(fail_each(&pair, &rig, MERGE_HOME, APPLY, true, &failures), 2);
    merge_rig_close(&rig);
    cr_assert(engine_rig_empties(&pair.rig, "one") && engine_rig_empties(&pair.rig, "two"));
}

/* A step returns soon, whatever the lost device does; then home is as it was, if that is left. */
static void lose_each(const char *config, uint64_t stride)
{
    static struct pair pair;
    static struct merge_rig rig;
    unsigned lost = 0;
    pair_open(&pair, config);
    for (int residence_index = MERGE_HOME; residence_index <= MERGE_AWAY; residence_index++)
        for (int at = BEGIN; at <= APPLY; at++)
            for (uint64_t n = 1;; n += stride) {
                struct fault fault = {&pair, residence_index == MERGE_HOME ? "one" : "two", n, at,
                                      EMU_ERROR_VANISH};
                uint64_t fired = emu_shared_fired(pair.rig.emu, fault.device);
                merge_rig_open(&rig, pair.one, pair.two, 300 * K, CL_MEM_READ_WRITE, 1);
                rig.loses = true;
                struct attempt got = attempt(&rig, NULL, arm, &fault);
                (void)emu_shared_disarm(pair.rig.emu, fault.device);
                fired = emu_shared_fired(pair.rig.emu, fault.device) - fired;
                if (got.failed != DONE) {
                    cr_assert_eq(got.error, -EIO, "call %llu of %s in step %d: %d",
                                 (unsigned long long)n, fault.device, at, got.error);
                    /* Lost in the last call of a step, it is noticed in the next. */
                    cr_assert(got.failed >= (enum step)at);
                    cr_assert(residence_is_lost(rig.context.at[residence_index]));
                    lost++;
                }
                if (residence_index == MERGE_AWAY)
                    check_home(&rig, got.failed, "away was lost");
                cr_assert_eq(emu_shared_restore(pair.rig.emu, fault.device), 0);
                merge_rig_close(&rig);
                if (fired == 0)
                    break;
            }
    cr_assert_gt(lost, 10 + 30 / (unsigned)stride, "%u", lost);
}

TestCall(merge, ends_when_a_device_is_lost_at_any_call, lose_each(CONFIG, every(2)),
         .timeout = 300);
TestCall(merge, ends_when_a_lost_device_hangs,
         lose_each("[one] name=one base=1 own_memory=yes lost_hangs=yes [two] name=two base=1 "
                   "own_memory=yes lost_hangs=yes",
                   4),
         .timeout = 300);

Test(merge, is_not_done_where_there_is_no_room, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    struct merge *merge;
    pair_open(&pair, "[one] name=one base=1 own_memory=yes memory=1100KiB [two] name=two base=1 "
                     "own_memory=yes");
    merge_rig_open(&rig, pair.one, pair.two, 300 * K, CL_MEM_READ_WRITE, 1);
    struct budget *budget = &pair.two->budget;
    const uint64_t before = atomic_load(&budget->held);
    /* The program may not have more there. */
    atomic_store(&budget->granted, before + 300 * K - 9);
    atomic_store(&budget->limited, true);
    cr_assert_eq(merge_begin(&rig.root, most(&rig), rig.unit, MERGE_HOME, MERGE_AWAY, NULL, &merge),
                 -ENOMEM);
    cr_assert_eq(atomic_load(&budget->held), before);
    atomic_store(&budget->granted, before + 300 * K);
    /* And there is no more at home, which is asked only when it is idle. */
    bool overlaps;
    uint64_t bytes;
    cr_assert_eq(merge_begin(&rig.root, most(&rig), rig.unit, MERGE_HOME, MERGE_AWAY, NULL, &merge),
                 0);
    merge_rig_write(&rig, MERGE_AWAY, 0, rig.home, 300 * K);
    cr_assert_eq(merge_rig_find(merge, NULL, &overlaps, &bytes), -ENOMEM);
    cr_assert_eq(atomic_load(&budget->held), before);
    merge_end(merge);
    const struct range few = {0, 64 * K};
    cr_assert_eq(merge_begin(&rig.root, few, rig.unit, MERGE_HOME, MERGE_AWAY, NULL, &merge), 0);
    cr_assert_eq(atomic_load(&budget->held), before + 64 * K);
    cr_assert_eq(atomic_load(&budget->peak), before + 300 * K, "%llu",
                 (unsigned long long)atomic_load(&budget->peak));
    cr_assert_eq(merge_rig_find(merge, NULL, &overlaps, &bytes), 0);
    cr_assert_eq(atomic_load(&budget->held), before, "it is given back as soon as it can be");
    merge_end(merge);
    cr_assert_eq(atomic_load(&budget->held), before);
    merge_rig_close(&rig);
}

/* From the step on where it is said. */
struct said {
    struct transfer_limits *limits;
    struct transfer_limits then;
    enum step step;
};

static void say(void *data, enum step next)
{
    struct said *said = data;
    *said->limits = next >= said->step ? said->then : (struct transfer_limits){0};
}

Test(merge, is_canceled_and_has_a_deadline, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    atomic_bool cancel = true;
    struct transfer_limits limits;
    const struct transfer_limits said[] = {{.cancel = &cancel}, {.deadline_ns = 1}};
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, 300 * K, CL_MEM_READ_WRITE, 1);
    for (int step = BEGIN; step <= APPLY; step++)
        for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
            struct said data = {&limits, said[i], step};
            struct attempt got = attempt(&rig, &limits, say, &data);
            /* Half an apply is no state to be in. */
            cr_assert_eq((int)got.failed, step == APPLY ? DONE : step);
            cr_assert_eq(got.error, step == APPLY ? 0 : i ? -ETIMEDOUT : -ECANCELED);
            check_home(&rig, got.failed, "canceled");
        }
    merge_rig_close(&rig);
}

/* The links are so slow that the deadline comes between its pieces. */
Test(merge, has_a_deadline_in_the_middle_of_what_it_brings, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    const size_t size = 70 * DIGEST_CHUNK;
    bool overlaps;
    uint64_t bytes;
    for (int slow = MERGE_HOME; slow <= MERGE_AWAY; slow++) {
        if (slow == MERGE_HOME)
            pair_open(&pair, "[one] name=one base=1 own_memory=yes link_mb_s=40 [two] name=two "
                             "base=1 own_memory=yes [three] name=three base=1 own_memory=yes "
                             "link_mb_s=40");
        merge_rig_open(&rig, slow == MERGE_HOME ? pair.one : pair.two,
                       slow == MERGE_HOME ? pair.two : find(&pair, "three"), size,
                       CL_MEM_READ_WRITE, 1);
        set_alike(&rig);
        struct merge *merge = begin(&rig, (struct range){0, size});
        memset(rig.away, 5, size);
        merge_rig_write(&rig, MERGE_AWAY, 0, rig.away, size);
        const struct transfer_limits limits = {.deadline_ns = engine_rig_now() + 60000000};
        cr_assert_eq(merge_rig_find(merge, &limits, &overlaps, &bytes), -ETIMEDOUT);
        merge_rig_check(&rig, "too late");
        merge_end(merge);
        merge_rig_close(&rig);
    }
}

static void *play_on(void *data)
{
    struct merge_rig *rig = data;
    for (unsigned i = 0; i < 25; i++) {
        set_alike(rig);
        (void)merge_rig_play(rig, (struct range){0, rig->size}, 3);
    }
    return NULL;
}

/* Their kernels are the same objects. */
Test(merge, of_several_buffers_at_once_by_several_threads, .timeout = 300)
{
    static struct pair pair;
    static struct merge_rig rigs[3];
    pthread_t threads[3];
    pair_open(&pair, CONFIG);
    for (unsigned i = 0; i < 3; i++) {
        merge_rig_open(&rigs[i], pair.one, pair.two, 200 * K + i, CL_MEM_READ_WRITE, i + 1);
        if (i > 0)
            merge_rig_share(&rigs[i], &rigs[0]);
    }
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, play_on, &rigs[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 3; i > 0; i--)
        merge_rig_close(&rigs[i - 1]);
}

/* Both devices work on the bytes that they share. */
Test(merge, of_one_host_copy_has_nothing_to_merge, .timeout = 60)
{
    static struct pair pair;
    static struct merge_rig rig;
    pair_open(&pair, CONFIG);
    merge_rig_open(&rig, pair.one, pair.two, 64, CL_MEM_READ_WRITE, 1);
    for (unsigned backed = 0; backed < 4; backed++)
        for (unsigned in_place = 0; in_place < 4; in_place++) {
            atomic_store(&rig.root.backed, (uint8_t)backed);
            for (int i = 0; i < 2; i++)
                rig.context.at[i]->in_place = (in_place >> i) & 1;
            cr_assert_eq(merge_is_shared(&rig.root, MERGE_HOME, MERGE_AWAY),
                         backed == 3 && in_place == 3);
        }
    merge_rig_close(&rig);
}
