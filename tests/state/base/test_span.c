#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/span.h"
#include "tests/state/move/test_moves_common.h"

/* Spans of time: what is kept of them while somebody traces, and what the engine says with them. */

TestSuite(span, .timeout = 120);

#define ROOM 8192 /* As many as are kept until they are read. */

static struct span taken[ROOM + 1];

static void put(uint32_t of, uint64_t value)
{
    struct span span = {.category = "test", .begin_ns = 1, .end_ns = 2, .of = of, .value = value};
    span_put(&span);
}

Test(span, nothing_is_kept_unless_somebody_traces)
{
    cr_expect_eq(span_begin(), 0);
    put(1, 1);
    span_end(0, "test", "none", NULL, 0);
    cr_assert_eq(span_start(), 0);
    cr_expect_neq(span_begin(), 0);
    cr_expect_eq(span_take(taken, ROOM), 0);
    put(1, 2);
    span_stop();
    put(1, 3);
    cr_assert_eq(span_take(taken, ROOM), 1, "what was kept can be read");
    cr_expect_eq(taken[0].value, 2);
    cr_assert_eq(span_start(), 0);
    put(1, 4);
    cr_assert_eq(span_start(), 0);
    cr_expect_eq(span_take(taken, ROOM), 0, "another trace begins with nothing");
}

Test(span, what_does_not_fit_is_lost_and_counted)
{
    cr_assert_eq(span_start(), 0);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < ROOM + 100; i++)
            put(1, i);
        cr_expect_eq(span_lost(), 100u * (unsigned)(round + 1));
        cr_assert_eq(span_take(taken, 10), 10);
        cr_assert_eq(span_take(taken, ROOM + 1), ROOM - 10);
        for (uint64_t i = 0; i < ROOM - 10; i++)
            cr_assert_eq(taken[i].value, i + 10);
    }
}

#define WRITERS 4
#define EACH    20000

static void *write_on(void *data)
{
    for (uint64_t i = 0; i < EACH; i++)
        put(*(uint32_t *)data, i);
    return NULL;
}

Test(span, many_threads_write_and_one_reads)
{
    pthread_t threads[WRITERS];
    uint32_t numbers[WRITERS];
    uint64_t next[WRITERS] = {0}, all = 0;
    cr_assert_eq(span_start(), 0);
    for (uint32_t i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, write_on, &numbers[i]), 0);
    }
    for (bool last = false;; last = all + span_lost() == (uint64_t)WRITERS * EACH) {
        size_t count = span_take(taken, 64);
        for (size_t i = 0; i < count; i++) {
            cr_assert_lt(taken[i].of, WRITERS);
            cr_assert_geq(taken[i].value, next[taken[i].of], "each thread's are in their order");
            next[taken[i].of] = taken[i].value + 1;
        }
        all += count;
        if (last && count == 0)
            break;
    }
    for (int i = 0; i < WRITERS; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    cr_expect_gt(all, 0);
}

/* The first called so; fails when there is none. */
static const struct span *find(size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(taken[i].name, name, strlen(name)) == 0)
            return &taken[i];
    cr_assert_fail("no span %s among %zu", name, count);
    return NULL;
}

static void expect_inside(const struct span *inner, const struct span *outer)
{
    cr_expect_leq(inner->begin_ns, inner->end_ns);
    cr_expect(outer->begin_ns <= inner->begin_ns && inner->end_ns <= outer->end_ns,
              "%s is not within %s", inner->name, outer->name);
}

static void trace_a_move(cl_command_queue_properties properties)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_uint one = 1;
    size_t count = 0;
    engine_rig_open(&rig, "[one] name=one own_memory=yes [two] name=two own_memory=yes");
    engine_program_open(&rig, properties, SOURCE, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_kernel add = engine_kernel(p.program, "add");
    OK(clEnqueueFillBuffer(p.queue, buffer, &one, sizeof(one), 0, SIZE, 0, NULL, NULL));
    OK(clSetKernelArg(add, 0, sizeof(cl_mem), &buffer));
    OK(clSetKernelArg(add, 1, sizeof(one), &one));
    cr_assert_eq(span_start(), 0);
    uint64_t before = clock_now_ns();
    cl_event event;
    launch(p.queue, add, WORDS, 0, &event);
    launch(p.queue, add, WORDS, 0, NULL);
    OK(clFinish(p.queue));
    OK(clReleaseEvent(event));
    engine_rig_moves(&rig, "two");
    launch(p.queue, add, WORDS, 0, NULL);
    OK(clFinish(p.queue));
    uint64_t until = engine_rig_now() + 5000000000u;
    unsigned kernels = 0;
    while (kernels < 3 && engine_rig_now() < until) { /* drivers tell of ends when they like */
        size_t more = span_take(taken + count, ROOM - count);
        for (size_t i = count; i < count + more; i++)
            kernels += strcmp(taken[i].category, "kernel") == 0;
        count += more;
        engine_rig_sleep(1);
    }
    uint64_t after = clock_now_ns();
    span_stop();
    cr_assert_eq(kernels, 3);
    for (size_t i = 0; i < count; i++) {
        cr_expect(taken[i].begin_ns <= taken[i].end_ns && before <= taken[i].begin_ns &&
                      taken[i].end_ns <= after,
                  "%s", taken[i].name);
        if (strcmp(taken[i].category, "kernel") != 0)
            continue;
        cr_expect_str_eq(taken[i].name, "add");
        cr_expect_eq(taken[i].track, SPAN_QUEUE);
        cr_expect_eq(taken[i].of, find(count, "add")->of);
        cr_expect_str_eq(taken[i].key, "device_ns");
        cr_expect_eq(taken[i].value != 0, properties != 0, "known only with a profile");
        cr_expect_leq(taken[i].value, taken[i].end_ns - taken[i].begin_ns);
    }
    const struct span *move = find(count, "move to two: done");
    static const char *const phases[] = {"plan", "prepare", "pause", "copy", "commit", "resume"};
    for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
        const struct span *phase = find(count, phases[i]);
        while (strcmp(phase->category, "move") != 0)
            phase++; /* copies are called so too */
        expect_inside(phase, move);
        cr_expect_eq(phase->of, move->of, "in the mover's thread");
    }
    const struct span *gate = find(count, "gate closed");
    expect_inside(gate, move);
    cr_expect_eq(gate->track, SPAN_GATE);
    cr_expect_leq(find(count, "commit")->end_ns, gate->end_ns + 1000000000u);
    expect_inside(find(count, "commit"), gate);
    expect_inside(find(count, "build"), find(count, "prepare"));
    const struct span *copied = find(count, "copy between devices");
    expect_inside(copied, move);
    cr_expect_eq(copied->value, SIZE);
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
    cr_assert(engine_rig_empties(&rig, "one"), "%s", engine_rig_alive(&rig, "one"));
    cr_assert(engine_rig_empties(&rig, "two"), "events of ours are left: %s",
              engine_rig_alive(&rig, "two"));
}

Test(span, a_move_and_the_kernels_around_it_are_told_by_their_profile)
{
    trace_a_move(CL_QUEUE_PROFILING_ENABLE);
}

Test(span, kernels_without_a_profile_are_told_by_the_host)
{
    trace_a_move(0);
}
