#include <errno.h>

#include "state/base/memory/pages.h"
#include "state/memory/compare.h"
#include "state/memory/write_tracked.h"
#include "tests/state/memory/close_faults.h"
#include "tests/support/engine_rig.h"
#include "tests/support/repeat.h"

/* Digests that are kept of memory in which a device works: those that were digested anew each time.
 */

#define CHUNKS ((size_t)200)
#define STEPS  15
#define BYTES  (CHUNKS * DIGEST_CHUNK - 12345 * 4)
#define CONFIG                                                                                     \
    "[here] name=here base=1 host_unified=yes [there] name=there base=1 own_memory=yes "           \
    "link_mb_s=200"

struct world {
    struct engine_rig rig;
    struct engine_program p;
    cl_kernel set;
    cl_mem buffer;
    struct memory *root;
    unsigned seed;
};

static const char *const source = "kernel void set(global uint *a, uint first, uint v) {\n"
                                  "    a[first + get_global_id(0)] = v + get_global_id(0);\n"
                                  "}\n";

static void set_words(struct world *w, size_t first, size_t count, cl_uint value)
{
    cl_uint at = (cl_uint)first;
    OK(clSetKernelArg(w->set, 1, sizeof(at), &at));
    OK(clSetKernelArg(w->set, 2, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(w->p.queue, w->set, 1, NULL, &count, NULL, 0, NULL, NULL));
}

/* Skips the test where the kernel has no write faults for us. */
static void world_open(struct world *w)
{
    memset(w, 0, sizeof(*w));
    atomic_store(&compare_when, COMPARE_ALWAYS);
    w->seed = 1;
    engine_rig_open(&w->rig, CONFIG);
    engine_program_open(&w->rig, 0, source, &w->p);
    w->set = engine_kernel(w->p.program, "set");
    w->buffer = engine_buffer(w->p.context, 0, BYTES, NULL);
    w->root = memory_get(w->buffer);
    OK(clSetKernelArg(w->set, 0, sizeof(cl_mem), &w->buffer));
    set_words(w, 0, BYTES / 4, 1);
    OK(clFinish(w->p.queue));
    cr_assert(memory_works_in_host_copy(w->root, 0) && BYTES >= PAGES_LEAST);
}

static size_t pick(struct world *w, size_t below)
{
    return (size_t)rand_r(&w->seed) % below;
}

/* By a kernel, by a command, and by the program itself, through a pointer. */
static void write_something(struct world *w)
{
    size_t first = pick(w, BYTES / 4 - 2000), count = 1 + pick(w, 1999);
    static char bytes[8000];
    memset(bytes, (int)pick(w, 256), sizeof(bytes));
    switch (pick(w, 3)) {
    case 0:
        set_words(w, first, count, (cl_uint)pick(w, 1000));
        break;
    case 1:
        OK(clEnqueueWriteBuffer(w->p.queue, w->buffer, CL_TRUE, first * 4, count, bytes, 0, NULL,
                                NULL));
        break;
    default: {
        char *map = MADE(clEnqueueMapBuffer, w->p.queue, w->buffer, CL_TRUE, CL_MAP_WRITE,
                         first * 4, count, 0, NULL, NULL);
        memcpy(map, bytes, count);
        OK(clEnqueueUnmapMemObject(w->p.queue, w->buffer, map, 0, NULL, NULL));
        break;
    }
    }
}

static bool is_write_tracked(struct world *w)
{
    return atomic_load(&w->root->host_copy->write_tracked) != NULL;
}

static void digest(struct world *w, size_t first, size_t count, bool quiet, struct digest *ret)
{
    cr_assert_eq(write_tracked_digest(w->root, first, count, quiet, NULL, ret), 0);
    if (!is_write_tracked(w) && !quiet)
        cases_skip("no write faults of the kernel's for us");
}

static void write_on(void *data, unsigned round)
{
    struct world *w = data;
    set_words(w, round * 997 % (BYTES / 4 - 100), 100, round);
    OK(clFinish(w->p.queue));
}

Test(write_tracked, what_is_kept_is_what_would_be_digested, .timeout = 120)
{
    static struct world w;
    static struct digest kept[CHUNKS], anew[CHUNKS];
    world_open(&w);
    for (unsigned step = 0; step < STEPS; step++) {
        size_t first = pick(&w, CHUNKS), count = 1 + pick(&w, CHUNKS - first);
        struct repeat repeat;
        if (step % 3 == 0)
            repeat_begin(&repeat, write_on, &w);
        digest(&w, first, count, false, kept); /* the program writes, or not */
        if (step % 3 == 0)
            repeat_end(&repeat);
        for (size_t writes = pick(&w, 4); writes > 0; writes--)
            write_something(&w);
        OK(clFinish(w.p.queue));
        digest(&w, 0, CHUNKS, true, kept);
        cr_assert_eq(digest_host(w.root->host_copy->bytes, BYTES, 0, CHUNKS, NULL, anew), 0);
        for (size_t i = 0; i < CHUNKS; i++)
            cr_assert(digest_same(&kept[i], &anew[i]), "step %u: chunk %zu", step, i);
    }
}

/* One that was written in two places has two chunks to be digested again. */
Test(write_tracked, what_nobody_wrote_to_is_not_digested_again, .timeout = 60)
{
    static struct world w;
    static struct digest kept[CHUNKS];
    static atomic_bool canceled = true;
    const struct transfer_limits limits = {.cancel = &canceled};
    world_open(&w);
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), CHUNKS);
    digest(&w, 0, CHUNKS, false, kept);
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), 0);
    set_words(&w, 3 * DIGEST_CHUNK / 4, 1, 9);
    set_words(&w, 100 * DIGEST_CHUNK / 4, 1, 9);
    OK(clFinish(w.p.queue));
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), 2);
    /* What could not be digested is still to be. */
    cr_assert_eq(write_tracked_digest(w.root, 0, CHUNKS, false, &limits, kept), -ECANCELED);
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), 2);
    digest(&w, 0, CHUNKS, true, kept);
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), 2);
    digest(&w, 0, CHUNKS, false, kept);
    cr_assert_eq(write_tracked_stale(w.root, 0, CHUNKS), 0);
    write_tracked_end_all();
    cr_assert_not(is_write_tracked(&w));
    digest(&w, 0, CHUNKS, false, kept);
    OK(clReleaseKernel(w.set));
    OK(clReleaseMemObject(w.buffer)); /* its host copy goes, watched */
    engine_program_close(&w.p);
    engine_rig_ends_empty(&w.rig);
}

/* A program writes all the time, and goes to a device with memory of its own, and back. */
Test(write_tracked, a_move_takes_what_was_written_last, .timeout = 120)
{
    static struct world w;
    static cl_uint got[BYTES / 4], expected[BYTES / 4];
    world_open(&w);
    for (unsigned turn = 0; turn < 2; turn++) {
        struct repeat repeat;
        repeat_begin(&repeat, write_on, &w);
        engine_rig_moves(&w.rig, "there");
        repeat_end(&repeat);
        OK(clEnqueueReadBuffer(w.p.queue, w.buffer, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        if (turn == 0)
            for (size_t i = 0; i < BYTES / 4; i++)
                expected[i] = (cl_uint)(1 + i);
        for (unsigned round = 1; round <= atomic_load(&repeat.rounds); round++)
            for (cl_uint i = 0; i < 100; i++)
                expected[round * 997 % (BYTES / 4 - 100) + i] = round + i;
        cr_assert_arr_eq(got, expected, BYTES, "turn %u", turn);
        engine_rig_moves(&w.rig, "here");
        cr_assert_not(w.root->host_copy && is_write_tracked(&w));
    }
}

/* It writes more than may be copied while it is stopped: it stays, and nobody looks on. */
Test(write_tracked, a_move_that_gives_up_leaves_nothing_write_tracked, .timeout = 60)
{
    static struct world w;
    struct move_report report;
    struct repeat repeat;
    world_open(&w);
    const struct move_request request = {
        .target = engine_rig_key(&w.rig, "there"), .strict = true, .max_downtime_ns = 1};
    repeat_begin(&repeat, write_on, &w);
    move_run(&request, &report);
    repeat_end(&repeat);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK);
    cr_assert_geq(report.rounds, 2);
    cr_assert_not(is_write_tracked(&w));
}

/* A program closes what it does not know, and ours with it: nothing that was kept is believed. */
Test(write_tracked, what_was_not_seen_is_digested_again, .timeout = 60)
{
    static struct world w;
    static struct digest kept[CHUNKS], anew[CHUNKS];
    world_open(&w);
    for (unsigned i = 0; i < 2; i++) {
        digest(&w, 0, CHUNKS, false, kept);
        close_faults();
        set_words(&w, 7 * DIGEST_CHUNK / 4, 100, 3 + i);
        OK(clFinish(w.p.queue));
        cr_assert_eq(write_tracked_digest(w.root, 0, CHUNKS, i == 0, NULL, kept), 0);
        cr_assert_eq(digest_host(w.root->host_copy->bytes, BYTES, 0, CHUNKS, NULL, anew), 0);
        for (size_t chunk = 0; chunk < CHUNKS; chunk++)
            cr_assert(digest_same(&kept[chunk], &anew[chunk]), "chunk %zu", chunk);
        cr_assert_not(is_write_tracked(&w));
    }
}
