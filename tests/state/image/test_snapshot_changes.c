#include <errno.h>

#include "state/memory/compare.h"
#include "state/object/lost.h"
#include "tests/state/image/snapshot_play.h"

/* Points of which most only counts as written: what did not change is shared. */

#define MUCH  (((size_t)9 << 20) + 20) /* worth a round ahead; the last part is short */
#define FIRST ((size_t)16)             /* words, of the first part of the first chunk */

static struct rewrite {
    cl_mem buffer;
    cl_uint times;
    atomic_bool *cancels;
    const char *breaks; /* a call of the device */
    cl_int error;
} rewrite;

/* The kernel may write all of the buffer, and writes its first words. The program does not give
 * anything after this. */
static int rewrites(void *data)
{
    (void)data;
    add(rewrite.buffer, FIRST, 1);
    rewrite.times++;
    if (rewrite.cancels)
        atomic_store(rewrite.cancels, true);
    if (rewrite.breaks) {
        OK(clFinish(play.program.queue));
        cr_assert_eq(emu_shared_arm(play.rig.emu, "one", 1, rewrite.breaks, rewrite.error), 0);
    }
    return 0;
}

static void compares_open_on(const char *config)
{
    play_open(config);
    atomic_store(&compare_when, COMPARE_ALWAYS);
    rewrite = (struct rewrite){.buffer = filled(MUCH)};
    (void)made();
}

static void compares_open(void)
{
    compares_open_on(TWO);
}

static void compares_close(void)
{
    OK(clReleaseMemObject(rewrite.buffer));
    atomic_store(&compare_when, COMPARE_WHERE_IT_PAYS);
    play_close();
}

/* The first words are as often more as they were rewritten, and all others as they began. */
static void has_rewritten(const struct snapshot *snapshot, cl_uint times)
{
    cl_uint *words = malloc(MUCH);
    read_point(snapshot, rewrite.buffer, 0, MUCH, words);
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        cr_assert_eq(words[i], word_of(i) + (i < FIRST ? times : 0), "word %zu is %u", i, words[i]);
    free(words);
}

static void last_has_rewritten(cl_uint times)
{
    struct snapshot *snapshot = snapshot_pin();
    has_rewritten(snapshot, times);
    snapshot_unpin(snapshot);
}

/* One that the program writes to meanwhile. */
static struct snapshot_report made_beside(void)
{
    struct snapshot_request request = {.stand = rewrites};
    struct snapshot_report report;
    cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
    return report;
}

static uint64_t since(const struct snapshot *snapshot, size_t at)
{
    struct snapshot_run run;
    cr_assert(snapshot_run(snapshot, index_of(snapshot, rewrite.buffer), at, &run));
    return run.since;
}

static void shares_what_only_counted(const char *config)
{
    compares_open_on(config);
    (void)rewrites(NULL);
    struct snapshot_report report = made();
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, DIGEST_CHUNK);
    cr_assert_eq(report.same, MUCH - SNAPSHOT_CHUNK);
    cr_assert_eq(report.shared, MUCH - DIGEST_CHUNK);
    struct snapshot *snapshot = snapshot_pin();
    has_rewritten(snapshot, 1);
    cr_assert_eq(since(snapshot, 0), 2);
    cr_assert_eq(since(snapshot, DIGEST_CHUNK), 1);
    for (size_t at = SNAPSHOT_CHUNK; at < MUCH; at += SNAPSHOT_CHUNK)
        cr_assert_eq(since(snapshot, at), 1);
    snapshot_unpin(snapshot);
    compares_close();
}

TestCall(snapshot, shares_what_only_counted_as_written, shares_what_only_counted(TWO),
         .timeout = 120);

/* Host memory is compared with what is kept of it instead of copied. */
TestCall(snapshot, shares_what_only_counted_as_written_in_place, shares_what_only_counted(NULL),
         .timeout = 120);

Test(snapshot, of_which_nothing_was_written_is_the_one_before, .timeout = 120)
{
    compares_open();
    add(rewrite.buffer, FIRST, 0);
    struct snapshot_report report = made();
    cr_assert_eq(report.copied, 0);
    cr_assert_eq(report.shared, MUCH);
    struct snapshot *snapshot = snapshot_pin();
    cr_assert_eq(since(snapshot, 0), 1);
    has_rewritten(snapshot, 0);
    snapshot_unpin(snapshot);
    /* And it is known to be of the latest version. */
    cr_assert_eq(made().same, 0);
    compares_close();
}

/* One part of a chunk, which the round ahead read as well. */
static void reads_in_the_pause(const char *config)
{
    compares_open_on(config);
    struct snapshot *before = snapshot_pin();
    (void)rewrites(NULL);
    struct snapshot_report report = made_beside();
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, 2 * DIGEST_CHUNK);
    cr_assert_eq(report.shared, MUCH - DIGEST_CHUNK);
    last_has_rewritten(2);
    has_rewritten(before, 0);
    snapshot_unpin(before);
    compares_close();
}

TestCall(snapshot, reads_in_the_pause_what_was_written_since_the_round, reads_in_the_pause(TWO),
         .timeout = 120);
TestCall(snapshot, reads_in_the_pause_what_was_written_in_place, reads_in_the_pause(NULL),
         .timeout = 120);

/* What the pause read took the place of bytes whose digests were known: those are back then. */
Test(snapshot, knows_what_the_pause_read_from_what_was_there, .timeout = 120)
{
    compares_open();
    (void)rewrites(NULL);
    cr_assert_eq(made_beside().copied, 2 * DIGEST_CHUNK);
    add(rewrite.buffer, FIRST, (cl_uint)-1);
    (void)made();
    last_has_rewritten(1);
    compares_close();
}

/* Of a chunk that the round found the same, and the snapshot before has as well. */
Test(snapshot, reads_a_part_of_a_chunk_that_is_not_its_own_yet, .timeout = 120)
{
    compares_open();
    struct snapshot *before = snapshot_pin();
    add(rewrite.buffer, FIRST, 0);
    cr_assert_eq(made_beside().copied, DIGEST_CHUNK);
    last_has_rewritten(1);
    has_rewritten(before, 0);
    snapshot_unpin(before);
    compares_close();
}

static size_t words_of(size_t part)
{
    size_t left = (MUCH - part * DIGEST_CHUNK) / sizeof(cl_uint);
    return left < FIRST ? left : FIRST;
}

static void add_to_part(size_t part)
{
    const size_t words = words_of(part), offset = part * DIGEST_CHUNK / sizeof(cl_uint);
    const cl_uint value = 1;
    ARGS(play.add, rewrite.buffer, value);
    OK(clEnqueueNDRangeKernel(play.program.queue, play.add, 1, &offset, &words, NULL, 0, NULL,
                              NULL));
}

#define POINTS 20

static void has_added_to_parts(const struct snapshot *snapshot, const size_t *parts, unsigned count)
{
    cl_uint *words = malloc(MUCH);
    read_point(snapshot, rewrite.buffer, 0, MUCH, words);
    for (unsigned i = 0; i < count; i++)
        for (size_t j = 0; j < words_of(parts[i]); j++)
            words[parts[i] * DIGEST_CHUNK / sizeof(*words) + j]--;
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        cr_assert_eq(words[i], word_of(i), "%u, word %zu is %u", count, i, words[i]);
    free(words);
}

/* Every so often all of it is read: else a chunk would be kept twice and more. */
Test(snapshot, shares_all_but_a_few_parts_of_a_chunk, .timeout = 240)
{
    struct snapshot *snapshots[POINTS + 1];
    size_t parts[POINTS], chunk = SNAPSHOT_CHUNK / DIGEST_CHUNK;
    unsigned whole = 0;
    compares_open();
    snapshots[0] = snapshot_pin();
    for (unsigned i = 0; i < POINTS; i++) {
        /* Of the second chunk, some of them again; and the last of all, which is short. */
        parts[i] = i % 7 == 6 ? MUCH / DIGEST_CHUNK : chunk + (i % 3 == 2 ? i - 1 : i);
        add_to_part(parts[i]);
        struct snapshot_report report = made();
        whole += report.copied == SNAPSHOT_CHUNK;
        cr_assert(report.copied == SNAPSHOT_CHUNK || report.copied <= MUCH % SNAPSHOT_CHUNK,
                  "%u: %lu", i, (unsigned long)report.copied);
        cr_assert_leq(snapshot_bytes(), MUCH + (i + 1) * SNAPSHOT_CHUNK);
        snapshots[i + 1] = snapshot_pin();
        cr_assert_eq(since(snapshots[i + 1], parts[i] * DIGEST_CHUNK), i + 2);
        has_added_to_parts(snapshots[i + 1], parts, i + 1);
    }
    cr_assert_eq(whole, 1, "%u", whole);
    /* Whoever has one has it as it was, whatever goes first. */
    for (unsigned i = 0; i <= POINTS; i += 2)
        snapshot_unpin(snapshots[i]);
    for (unsigned i = 1; i <= POINTS; i += 2) {
        has_added_to_parts(snapshots[i], parts, i);
        snapshot_unpin(snapshots[i]);
    }
    compares_close();
}

/* What a device does not digest is read; what it never did it is not asked again. */
Test(snapshot, is_made_where_digests_fail, .timeout = 120)
{
    compares_open();
    (void)rewrites(NULL);
    rewrite.breaks = "clEnqueueNDRangeKernel";
    rewrite.error = CL_OUT_OF_RESOURCES;
    struct snapshot_report report = made_beside();
    cr_assert_eq(report.copied, DIGEST_CHUNK + MUCH);
    cr_assert_eq(report.shared, 0);
    last_has_rewritten(2);
    rewrite.breaks = NULL;
    (void)rewrites(NULL);
    cr_assert_eq(made().copied, MUCH);
    compares_close();
}

Test(snapshot, that_is_canceled_while_it_digests_leaves_the_one_before, .timeout = 120)
{
    atomic_bool canceled = false;
    struct snapshot_request request = {.stand = rewrites, .move.cancel = &canceled};
    compares_open();
    struct snapshot *before = snapshot_pin();
    (void)rewrites(NULL);
    rewrite.cancels = &canceled;
    fails(&request, -ECANCELED, before);
    rewrite.cancels = NULL;
    (void)made();
    last_has_rewritten(2);
    has_rewritten(before, 0);
    snapshot_unpin(before);
    compares_close();
}

Test(snapshot, of_a_device_that_is_lost_while_it_digests_is_none, .timeout = 120)
{
    struct snapshot_request request = {.stand = rewrites};
    lost_answer_ns = 500000000;
    compares_open();
    struct snapshot *before = snapshot_pin();
    (void)rewrites(NULL);
    rewrite.breaks = "clEnqueueNDRangeKernel";
    rewrite.error = EMU_ERROR_VANISH;
    uint64_t fired = emu_shared_fired(play.rig.emu, "one");
    fails(&request, -EPERM, before); /* what it had is lost with it, before anything was read */
    cr_assert_eq(emu_shared_fired(play.rig.emu, "one"), fired + 1);
    cr_assert(vdev_is_lost(the_vdevs[0]));
    has_rewritten(before, 0);
    RELEASE(rewrite.buffer, play.add);
    engine_program_close(&play.program);
    snapshot_unpin(before);
    free(play.rig.devices);
}

/* Anywhere, again and again, with what is written between the rounds. */
static int adds_somewhere(void *data)
{
    cl_uint *words = data;
    for (unsigned i = 0; i < 4; i++) {
        size_t at = (size_t)rand() % (MUCH / sizeof(cl_uint));
        cl_uint value = ++words[at];
        OK(clEnqueueWriteBuffer(play.program.queue, rewrite.buffer, CL_TRUE, at * sizeof(value),
                                sizeof(value), &value, 0, NULL, NULL));
    }
    add(rewrite.buffer, FIRST, 3);
    for (size_t i = 0; i < FIRST; i++)
        words[i] += 3;
    return 0;
}

Test(snapshot, has_what_was_written_anywhere_of_what_counts, .timeout = 240)
{
    cl_uint *words = malloc(MUCH), *bytes = malloc(MUCH);
    uint64_t same = 0;
    struct snapshot_request request = {.stand = adds_somewhere, .data = words};
    struct snapshot_report report;
    compares_open();
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        words[i] = word_of(i);
    for (unsigned i = 0; i < 24; i++) {
        (void)adds_somewhere(words);
        cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
        same += report.same;
        struct snapshot *snapshot = snapshot_pin();
        read_point(snapshot, rewrite.buffer, 0, MUCH, bytes);
        cr_assert_arr_eq(bytes, words, MUCH);
        snapshot_unpin(snapshot);
    }
    cr_assert_neq(same, 0);
    free(words);
    free(bytes);
    compares_close();
}
