#include <pthread.h>

#include "interpose/entry/start.h"
#include "state/base/span.h"
#include "state/transfer/transfer_priv.h"
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
    uint64_t chunks = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(taken[i].category, "chunk") != 0)
            continue;
        cr_expect_eq(taken[i].track, SPAN_CHUNK);
        expect_inside(&taken[i], move);
        bool whole = strstr(taken[i].name, "chunk") != NULL; /* else a step of one */
        chunks += whole ? taken[i].value : 0;
    }
    cr_expect_eq(chunks, SIZE);
    RELEASE(add, buffer);
    engine_program_close(&p);
    cr_assert(engine_rig_empties(&rig, "one"), "%s", engine_rig_alive(&rig, "one"));
    cr_assert(engine_rig_empties(&rig, "two"), "events of ours are left: %s",
              engine_rig_alive(&rig, "two"));
}

TestCall(span, a_move_and_the_kernels_around_it_are_told_by_their_profile,
         trace_a_move(CL_QUEUE_PROFILING_ENABLE));
TestCall(span, kernels_without_a_profile_are_told_by_the_host, trace_a_move(0));

/* What is copied ahead of a move goes in rounds, and as many bytes in all as their chunks say. */
Test(span, rounds_lie_within_what_prepares_a_move)
{
    enum { LARGE = 16 << 20 };
    struct engine_rig rig;
    struct engine_program p;
    cl_uint one = 1;
    engine_rig_open(&rig, "[one] name=one own_memory=yes [two] name=two own_memory=yes");
    engine_program_open(&rig, 0, SOURCE, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, LARGE, NULL);
    OK(clEnqueueFillBuffer(p.queue, buffer, &one, sizeof(one), 0, LARGE, 0, NULL, NULL));
    OK(clFinish(p.queue));
    cr_assert_eq(span_start(), 0);
    engine_rig_moves(&rig, "two");
    span_stop();
    size_t count = span_take(taken, ROOM);
    const struct span *round = find(count, "round 1");
    cr_expect_str_eq(round->category, "move");
    cr_expect_str_eq(round->key, "bytes");
    cr_expect_eq(round->value, LARGE);
    expect_inside(round, find(count, "prepare"));
    uint64_t chunks = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(taken[i].category, "chunk") == 0 && strstr(taken[i].name, "chunk")) {
            expect_inside(&taken[i], round);
            chunks += taken[i].value;
        }
    cr_expect_eq(chunks, LARGE);
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

static struct slot slot; /* of a transfer that is only traced */

static void trace_chunk(const struct transfer *transfer, size_t bytes)
{
    slot.used = bytes;
    trace_begin(&slot);
    trace_end(transfer, &slot);
}

/* However many there are, no more spans than milliseconds, with all of their bytes. */
Test(span, short_chunks_share_one)
{
    enum { CHUNKS = 20000, BYTES = 64 };
    const struct transfer transfer = {.slots = &slot, .slot_count = 1};
    uint64_t bytes = 0;
    unsigned chunks = 0, more;
    cr_assert_eq(span_start(), 0);
    uint64_t before = clock_now_ns();
    for (unsigned i = 0; i < CHUNKS; i++)
        trace_chunk(&transfer, BYTES);
    uint64_t after = clock_now_ns();
    trace_flush(&transfer, &slot);
    size_t count = span_take(taken, ROOM);
    cr_expect_leq(count, (after - before) / 1000000 + 1);
    for (size_t i = 0; i < count; i++) {
        more = 1; /* "chunk" alone */
        (void)sscanf(taken[i].name, "%u", &more);
        chunks += more;
        bytes += taken[i].value;
        cr_expect(i == 0 || taken[i - 1].end_ns <= taken[i].begin_ns);
    }
    cr_expect_eq(chunks, CHUNKS);
    cr_expect_eq(bytes, CHUNKS * BYTES);
    /* Those before a rest are not drawn over it. */
    trace_chunk(&transfer, BYTES);
    uint64_t rest = clock_now_ns();
    engine_rig_sleep(5);
    trace_chunk(&transfer, BYTES);
    trace_flush(&transfer, &slot);
    cr_assert_eq(span_take(taken, ROOM), 2);
    cr_expect_leq(taken[0].end_ns, rest);
    cr_expect_geq(taken[1].begin_ns, rest + 5000000);
}

/* Transfers beside each other have rows of their own; one that finds none is not drawn. */
Test(span, as_many_transfers_as_there_are_rows_for)
{
    unsigned ids[32], none;
    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
        ids[i] = trace_id_take();
        cr_assert_eq(ids[i], i);
    }
    none = trace_id_take();
    const struct transfer transfer = {.slots = &slot, .slot_count = 1, .trace_id = none};
    cr_assert_eq(span_start(), 0);
    trace_chunk(&transfer, 1);
    trace_flush(&transfer, &slot);
    cr_expect_eq(span_take(taken, ROOM), 0);
    trace_id_give(none);
    cr_expect_eq(trace_id_take(), none, "what is none's is not given");
    trace_id_give(ids[17]);
    cr_expect_eq(trace_id_take(), 17);
    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
        trace_id_give(ids[i]);
    cr_expect_eq(trace_id_take(), 0);
}

/* The groups of all pieces, each once; the parts of one that they say they are; as many as the
 * driver was given. */
Test(span, pieces_and_the_launch_that_they_are)
{
    enum { GROUPS = 256, LOCAL = 16, ROUNDS = 200000 };
    static const char source[] =
        "kernel void plain(global uint *out, uint rounds) {\n"
        "  uint x = get_global_id(0);\n"
        "  for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u;\n"
        "  out[get_global_id(0)] = x; }\n";
    const size_t global = GROUPS * LOCAL, local = LOCAL;
    const cl_uint rounds = ROUNDS;
    struct engine_rig rig;
    struct engine_program p;
    size_t count = 0, first, last;
    uint64_t shares = 0;
    unsigned groups[GROUPS] = {0}, pieces = 0;
    setenv(START_ENV_SLICE, "5", 1);
    engine_rig_open(&rig, "[one] name=one type=cpu base=1");
    engine_program_open(&rig, 0, source, &p);
    cl_mem out = engine_buffer(p.context, CL_MEM_READ_WRITE, global * sizeof(cl_uint), NULL);
    cl_kernel plain = engine_kernel(p.program, "plain");
    OK(clSetKernelArg(plain, 0, sizeof(cl_mem), &out));
    OK(clSetKernelArg(plain, 1, sizeof(rounds), &rounds));
    cr_assert_eq(span_start(), 0);
    uint64_t given = emu_shared_calls(rig.emu, "one", "clEnqueueNDRangeKernel");
    OK(clEnqueueNDRangeKernel(p.queue, plain, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clFinish(p.queue));
    given = emu_shared_calls(rig.emu, "one", "clEnqueueNDRangeKernel") - given;
    const struct span *launch = NULL;
    uint64_t until = engine_rig_now() + 5000000000u;
    while ((pieces < given || !launch) && engine_rig_now() < until) {
        size_t more = span_take(taken + count, ROOM - count);
        for (size_t end = count + more; count < end; count++) {
            const struct span *span = &taken[count];
            if (strcmp(span->category, "launch") == 0)
                launch = span;
            if (strcmp(span->category, "piece") != 0)
                continue;
            pieces++;
            cr_assert_eq(sscanf(span->name, "plain, groups %zu to %zu", &first, &last), 2, "%s",
                         span->name);
            for (; first <= last; first++)
                groups[first]++;
            cr_expect_str_eq(span->key, "share_ppm");
            shares += span->value;
        }
        engine_rig_sleep(1);
    }
    span_stop();
    cr_assert_gt(given, 2);
    cr_assert_eq(pieces, given);
    cr_assert(launch && strcmp(launch->name, "plain") == 0 && launch->track == SPAN_LAUNCH);
    cr_expect_str_eq(launch->key, "pieces");
    cr_expect_eq(launch->value, given);
    cr_expect(shares <= 1000000 && shares + pieces >= 1000000, "%llu", (unsigned long long)shares);
    for (size_t i = 0; i < GROUPS; i++)
        cr_expect_eq(groups[i], 1, "group %zu is in %u pieces", i, groups[i]);
    for (size_t i = 0; i < count; i++)
        if (strcmp(taken[i].category, "piece") == 0) {
            cr_expect_eq(taken[i].of, launch->of);
            cr_expect_geq(taken[i].begin_ns, launch->begin_ns);
        }
    RELEASE(plain, out);
    engine_program_close(&p);
}
