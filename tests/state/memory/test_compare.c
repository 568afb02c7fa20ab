#include <errno.h>
#include <pthread.h>

#include "state/budget/budget.h"
#include "state/memory/compare.h"
#include "state/memory/replica.h"
#include "tests/support/engine_rig.h"
#include "tests/support/every.h"
#include "tests/support/repeat.h"

/* What is compared before it is copied: each byte beside a model that has them all. */

#define CHUNKS ((size_t)40)
#define BYTES  (CHUNKS * DIGEST_CHUNK + 12347)
#define WORDS  (BYTES / sizeof(cl_uint))
#define TARGET 1 /* a place that a mover prepares */
#define CONFIG                                                                                     \
    "[one] name=one base=1 own_memory=yes [two] name=two base=1 own_memory=yes [three] "           \
    "name=three base=1 own_memory=yes"

struct world {
    struct engine_rig rig;
    struct engine_program p;
    struct context *context;
    cl_kernel set, name;
    cl_mem buffer;
    struct memory *root;
    unsigned seed;
    unsigned char *model, *got;
};

static const char *const source =
    "kernel void set(global uint *a, uint first, uint v) {\n"
    "    a[first + get_global_id(0)] = v + get_global_id(0);\n"
    "}\n"
    "kernel void name(global uint *a, uint never) { if (never) a[0] = never; }\n";

static unsigned pick(struct world *w, size_t below)
{
    return (unsigned)((size_t)rand_r(&w->seed) % below);
}

static void world_open(struct world *w, const char *config, cl_mem_flags flags)
{
    memset(w, 0, sizeof(*w));
    atomic_store(&compare_when, COMPARE_ALWAYS);
    w->model = malloc(BYTES);
    w->got = malloc(BYTES);
    cr_assert(w->model && w->got);
    w->seed = 1;
    for (size_t i = 0; i < BYTES; i++)
        w->model[i] = (unsigned char)rand_r(&w->seed);
    engine_rig_open(&w->rig, config);
    engine_program_open(&w->rig, 0, source, &w->p);
    w->context = (struct context *)w->p.context;
    w->set = engine_kernel(w->p.program, "set");
    w->name = engine_kernel(w->p.program, "name");
    w->buffer = engine_buffer(w->p.context, flags | CL_MEM_COPY_HOST_PTR, BYTES, w->model);
    w->root = memory_get(w->buffer);
    OK(clSetKernelArg(w->set, 0, sizeof(cl_mem), &w->buffer));
    OK(clSetKernelArg(w->name, 0, sizeof(cl_mem), &w->buffer));
}

/* As a mover does: nobody else looks there. */
static void prepare(struct world *w, const char *name)
{
    struct device *device;
    cl_int error;
    cr_assert_eq(driver_open_device(engine_rig_key(&w->rig, name), &device), 0);
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(residence_create(w->context, device, &w->context->at[TARGET], &error), 0);
    OK(memory_make_real(w->root, w->context->at[TARGET], TARGET));
    gate_open();
}

static void set_words(struct world *w, cl_uint first, size_t count, cl_uint value)
{
    OK(clSetKernelArg(w->set, 1, sizeof(first), &first));
    OK(clSetKernelArg(w->set, 2, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(w->p.queue, w->set, 1, NULL, &count, NULL, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++, value++)
        memcpy(w->model + (first + i) * sizeof(value), &value, sizeof(value));
}

static void name_only(struct world *w)
{
    const cl_uint never = 0;
    const size_t one = 1;
    OK(clSetKernelArg(w->name, 1, sizeof(never), &never));
    OK(clEnqueueNDRangeKernel(w->p.queue, w->name, 1, NULL, &one, NULL, 0, NULL, NULL));
}

static void write_mapped(struct world *w, size_t at, size_t size)
{
    unsigned char *map = MADE(clEnqueueMapBuffer, w->p.queue, w->buffer, CL_TRUE, CL_MAP_WRITE, at,
                              size, 0, NULL, NULL);
    for (size_t i = 0; i < size; i++)
        map[i] = w->model[at + i] = (unsigned char)pick(w, 256);
    OK(clEnqueueUnmapMemObject(w->p.queue, w->buffer, map, 0, NULL, NULL));
}

/* One of what a program does. */
static void write_something(struct world *w)
{
    size_t first = pick(w, WORDS), most = WORDS - first, count = 1 + pick(w, 30000);
    count = count < most ? count : most;
    const cl_uint value = pick(w, 1u << 30);
    switch (pick(w, 6)) {
    case 0:
        name_only(w);
        break;
    case 1:
        write_mapped(w, first * 4, count);
        break;
    case 2:
        OK(clEnqueueFillBuffer(w->p.queue, w->buffer, &value, 1, first * 4, count, 0, NULL, NULL));
        memset(w->model + first * 4, (unsigned char)value, count);
        break;
    case 3:
        for (size_t i = 0; i < count; i++)
            w->got[i] = w->model[first * 4 + i] = (unsigned char)pick(w, 256);
        OK(clEnqueueWriteBuffer(w->p.queue, w->buffer, CL_TRUE, first * 4, count, w->got, 0, NULL,
                                NULL));
        break;
    default:
        set_words(w, (cl_uint)first, count, value);
        break;
    }
}

/* What is at @residence_index, as it is. Gate closed. */
static const unsigned char *bytes_at(struct world *w, uint8_t residence_index)
{
    if (residence_index == RESIDENCE_HOST)
        return (const unsigned char *)memory_host_bytes(w->root);
    struct residence *residence = w->context->at[residence_index];
    OK(residence->cl->clEnqueueReadBuffer(residence->io, w->root->real[residence_index], CL_TRUE, 0,
                                          BYTES, w->got, 0, NULL, NULL));
    return w->got;
}

/* The bytes of chunks in which what is at @residence_index is not what it is to be. Gate closed. */
static uint64_t differing(struct world *w, uint8_t residence_index)
{
    const unsigned char *bytes = bytes_at(w, residence_index);
    uint64_t sum = 0;
    for (size_t at = 0; at < BYTES; at += DIGEST_CHUNK) {
        size_t size = BYTES - at < DIGEST_CHUNK ? BYTES - at : DIGEST_CHUNK;
        if (memcmp(bytes + at, w->model + at, size) != 0)
            sum += size;
    }
    return sum;
}

struct refreshed {
    int result;
    uint64_t copied;
    cl_int error;
};

static struct refreshed refresh(struct world *w, uint8_t to, bool quiet, uint64_t version,
                                const struct transfer_limits *limits)
{
    struct refreshed refreshed = {0};
    uint64_t bytes = 0;
    const struct replica_batch batch = {.context = w->context,
                                        .from = 0,
                                        .to = to,
                                        .quiet = quiet,
                                        .roots = &w->root,
                                        .versions = quiet ? NULL : &version,
                                        .count = 1,
                                        .limits = limits,
                                        .copied = &refreshed.copied};
    refreshed.result = replica_refresh(&batch, &bytes, &refreshed.error);
    return refreshed;
}

struct writing {
    struct world *world;
    unsigned after_ms;
    cl_uint first, value;
};

static void *write_later(void *data)
{
    const struct writing *writing = data;
    engine_rig_sleep(writing->after_ms);
    set_words(writing->world, writing->first, 1000, writing->value);
    OK(clFinish(writing->world->p.queue));
    return NULL;
}

/* While the program runs: with the writes of before ended, and those that come kept apart.
 *
 * @writing  Comes meanwhile, in another thread; or NULL. */
static struct refreshed refresh_ahead(struct world *w, uint8_t to, struct writing *writing)
{
    pthread_t thread;
    OK(clFinish(w->p.queue));
    cr_assert_eq(gate_close(0), 0);
    uint64_t version = extents_watch(w->root);
    gate_open();
    if (writing)
        cr_assert_eq(pthread_create(&thread, NULL, write_later, writing), 0);
    struct refreshed refreshed = refresh(w, to, false, version, NULL);
    cr_assert_eq(refreshed.result, 0);
    if (writing)
        pthread_join(thread, NULL);
    extents_unwatch(w->root);
    return refreshed;
}

/* With the gate closed. Returns the bytes copied; all that is there is right then. */
static uint64_t refresh_quietly(struct world *w, uint8_t to)
{
    OK(clFinish(w->p.queue));
    cr_assert_eq(gate_close(0), 0);
    struct refreshed refreshed = refresh(w, to, true, 0, NULL);
    cr_assert_eq(refreshed.result, 0);
    cr_assert(replica_is_latest(w->root, to));
    cr_assert_arr_eq(bytes_at(w, to), w->model, BYTES, "place %u", to);
    gate_open();
    return refreshed.copied;
}

static void agree(struct world *w, unsigned seed)
{
    uint64_t copied = 0, possible = 0;
    w->seed = seed;
    for (unsigned step = 0; step < 60; step++) {
        uint8_t to = pick(w, 2) ? TARGET : RESIDENCE_HOST;
        for (unsigned writes = pick(w, 4); writes > 0; writes--)
            write_something(w);
        if (pick(w, 2)) {
            (void)refresh_ahead(w, to, NULL);
            continue;
        }
        OK(clFinish(w->p.queue));
        cr_assert_eq(gate_close(0), 0);
        bool compared = (atomic_load(&w->root->filled) >> to) & 1;
        bool lacks = !replica_is_latest(w->root, to);
        uint64_t differ = compared && lacks ? differing(w, to) : 0;
        gate_open();
        uint64_t now = refresh_quietly(w, to);
        if (compared && lacks)
            cr_assert_leq(now, differ,
                          "seed %u, step %u, to %u: %llu bytes were copied, %llu differ", seed,
                          step, to, (unsigned long long)now, (unsigned long long)differ);
        copied += compared ? now : 0;
        possible += compared && lacks ? BYTES : 0;
    }
    cr_assert(possible > 0 && copied > 0 && copied < possible / 2, "%llu of %llu bytes were copied",
              (unsigned long long)copied, (unsigned long long)possible);
}

Test(compare, every_byte_is_right_and_only_what_differs_is_copied, .timeout = 120)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    for (unsigned seed = 1; seed <= 6; seed += every(2))
        agree(&w, seed);
}

/* The whole of it is new, but nothing of it has changed. */
Test(compare, what_is_written_alike_is_not_copied, .timeout = 60)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    for (unsigned i = 0; i < 2; i++) {
        uint8_t to = i ? RESIDENCE_HOST : TARGET;
        cr_assert_eq(refresh_quietly(&w, to), BYTES);
        name_only(&w);
        OK(clFinish(w.p.queue));
        cr_assert_not(replica_is_latest(w.root, to));
        cr_assert_eq(refresh_quietly(&w, to), 0);
        cr_assert_eq(replica_differing(w.root, 0, to), 0);
        set_words(&w, (cl_uint)(5 * DIGEST_CHUNK / 4 - 1), 2, 7 + i);
        cr_assert_eq(refresh_quietly(&w, to), 2 * DIGEST_CHUNK);
        set_words(&w, (cl_uint)(WORDS - 1), 1, 8 + i);
        cr_assert_eq(refresh_quietly(&w, to), BYTES % DIGEST_CHUNK);
        set_words(&w, 0, 1, 9 + i);
        cr_assert_eq(refresh_quietly(&w, to), DIGEST_CHUNK);
    }
}

/* They are filled there, whether it has anything of it or not. */
Test(compare, zeroes_are_not_sent_to_a_device, .timeout = 60)
{
    static struct world w;
    const cl_uint zero = 0;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    OK(clEnqueueFillBuffer(w.p.queue, w.buffer, &zero, 1, DIGEST_CHUNK - 5, BYTES / 2, 0, NULL,
                           NULL));
    memset(w.model + DIGEST_CHUNK - 5, 0, BYTES / 2);
    const size_t tail = BYTES % DIGEST_CHUNK + 100;
    OK(clEnqueueFillBuffer(w.p.queue, w.buffer, &zero, 1, BYTES - tail, tail, 0, NULL, NULL));
    memset(w.model + BYTES - tail, 0, tail);
    size_t filled = (BYTES / 2 - 5) / DIGEST_CHUNK * DIGEST_CHUNK + BYTES % DIGEST_CHUNK;
    cr_assert_eq(refresh_quietly(&w, TARGET), BYTES - filled);
    set_words(&w, 0, WORDS / 4, 9);
    cr_assert_gt(refresh_quietly(&w, TARGET), 0);
    OK(clEnqueueFillBuffer(w.p.queue, w.buffer, &zero, 1, 0, BYTES, 0, NULL, NULL));
    memset(w.model, 0, BYTES);
    cr_assert_eq(refresh_quietly(&w, TARGET), 0);
    set_words(&w, 0, WORDS, 10);
    (void)refresh_quietly(&w, TARGET);
    OK(clEnqueueFillBuffer(w.p.queue, w.buffer, &zero, 1, 0, BYTES, 0, NULL, NULL));
    memset(w.model, 0, BYTES);
    OK(clFinish(w.p.queue));
    cr_assert_eq(gate_close(0), 0);
    /* The first is the digests'. */
    cr_assert_eq(emu_shared_arm(w.rig.emu, "two", 2, "clEnqueueFillBuffer", 0), 0);
    cr_assert_eq(refresh(&w, TARGET, true, 0, NULL).result, -EIO);
    gate_open();
    cr_assert_not(replica_is_latest(w.root, TARGET));
    cr_assert_eq(refresh_quietly(&w, TARGET), 0);
}

/* What a map wrote into the host copy is not what was digested there. */
Test(compare, what_the_program_mapped_is_not_taken_for_what_was_there, .timeout = 60)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    for (unsigned i = 0; i < 3; i++) {
        set_words(&w, 0, WORDS, i);
        (void)refresh_quietly(&w, RESIDENCE_HOST);
        name_only(&w);
        (void)refresh_quietly(&w, RESIDENCE_HOST); /* compared: its digests are kept */
        name_only(&w);
        write_mapped(&w, 3 * DIGEST_CHUNK, 5000);
        const cl_uint first = 3 * DIGEST_CHUNK / 4;
        set_words(&w, first, 2000, i + first); /* as it was before */
        cr_assert_leq(refresh_quietly(&w, RESIDENCE_HOST), BYTES);
    }
}

/* The host has what it had when it was spilled before. */
Test(compare, a_second_spill_carries_what_changed, .timeout = 60)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    for (unsigned i = 0; i < 4; i++) {
        set_words(&w, i * 50000, 100, i);
        OK(clFinish(w.p.queue));
        (void)budget_shrink(0, 0);
        cr_assert(replica_is_latest(w.root, RESIDENCE_HOST) && !w.root->real[0]);
        cr_assert_arr_eq(memory_host_bytes(w.root), w.model, BYTES);
        if (i > 0)
            cr_assert_eq(compare_last(w.root, RESIDENCE_HOST), DIGEST_CHUNK);
    }
}

/* Views and ranges that begin in the middle of a chunk. */
Test(compare, parts_of_chunks_are_compared_as_well, .timeout = 60)
{
    static struct world w;
    uint64_t copied = 0;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    (void)refresh_quietly(&w, TARGET);
    for (unsigned i = 0; i < 40; i++) {
        struct range range = {pick(&w, BYTES - 1), 0};
        range.end = range.begin + 1 + pick(&w, BYTES - range.begin);
        set_words(&w, pick(&w, WORDS - 100), 100, i);
        OK(clFinish(w.p.queue));
        cr_assert_eq(gate_close(0), 0);
        uint64_t bytes;
        cl_int error;
        const struct replica_batch batch = {.context = w.context,
                                            .to = TARGET,
                                            .quiet = true,
                                            .roots = &w.root,
                                            .ranges = &range,
                                            .count = 1,
                                            .copied = &copied};
        cr_assert_eq(replica_refresh(&batch, &bytes, &error), 0);
        cr_assert(replica_has(w.root, TARGET, range));
        cr_assert_arr_eq(bytes_at(&w, TARGET) + range.begin, w.model + range.begin,
                         range.end - range.begin);
        gate_open();
    }
    cr_assert(copied > 0 && copied < 40 * 4 * DIGEST_CHUNK, "%llu", (unsigned long long)copied);
    (void)refresh_quietly(&w, TARGET);
}

/*
 * While the program writes.
 */

/* A chunk changes between its digest and its copy, and then back to what was digested. */
static void written_meanwhile(uint8_t to)
{
    static struct world w;
    const cl_uint last = (cl_uint)(WORDS - 2000);
    world_open(&w,
               "[one] name=one base=1 own_memory=yes link_mb_s=20 [two] name=two base=1 "
               "own_memory=yes",
               0);
    prepare(&w, "two");
    (void)refresh_quietly(&w, to);
    for (unsigned i = 0; i < 4; i++) {
        struct writing writing = {&w, 30, last, 5000 + i};
        set_words(&w, 0, WORDS / 2, i);
        set_words(&w, last, 1000, 900 + i);
        (void)refresh_ahead(&w, to, &writing);
        cr_assert_not(replica_is_latest(w.root, to));
        set_words(&w, last, 1000, 900 + i);
        (void)refresh_quietly(&w, to);
    }
}

TestCall(compare, what_is_written_between_digest_and_copy_is_copied_again,
         written_meanwhile(TARGET), .timeout = 60);
TestCall(compare, what_is_written_between_digest_and_copy_to_the_host_is_copied_again,
         written_meanwhile(RESIDENCE_HOST), .timeout = 60);

static uint64_t launches(struct world *w, const char *name)
{
    return emu_shared_calls(w->rig.emu, name, "clEnqueueNDRangeKernel");
}

/* The program writes all the time: its bytes are there when it is paused, and so are the digests of
 * what is there, so that the source is asked alone. */
Test(compare, while_the_program_is_paused_only_the_source_is_digested, .timeout = 60)
{
    static struct world w;
    uint64_t asked[2];
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    for (unsigned round = 0; round < 3; round++) {
        cr_assert_eq(gate_close(0), 0);
        uint64_t version = extents_watch(w.root);
        gate_open();
        set_words(&w, round * 20000, 100, round); /* newer than what was watched */
        OK(clFinish(w.p.queue));
        struct refreshed refreshed = refresh(&w, TARGET, false, version, NULL);
        cr_assert_eq(refreshed.result, 0);
        cr_assert_eq(refreshed.copied, round == 0 ? BYTES : DIGEST_CHUNK, "round %u: %llu", round,
                     (unsigned long long)refreshed.copied);
        cr_assert_not(replica_is_latest(w.root, TARGET));
        extents_unwatch(w.root);
    }
    asked[0] = launches(&w, "one");
    asked[1] = launches(&w, "two");
    cr_assert_eq(replica_differing(w.root, 0, TARGET), DIGEST_CHUNK);
    cr_assert_eq(refresh_quietly(&w, TARGET), 0);
    cr_assert_gt(launches(&w, "one"), asked[0]);
    cr_assert_eq(launches(&w, "two"), asked[1]);
}

/* Once it is seen that nearly all of it is new each time it waits for the pause. */
Test(compare, what_changes_all_over_is_not_copied_again_and_again, .timeout = 60)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    for (unsigned round = 0; round < 4; round++) {
        cr_assert_eq(gate_close(0), 0);
        uint64_t version = extents_watch(w.root);
        gate_open();
        set_words(&w, 0, WORDS, round);
        OK(clFinish(w.p.queue));
        struct refreshed refreshed = refresh(&w, TARGET, false, version, NULL);
        extents_unwatch(w.root);
        cr_assert_eq(refreshed.result, 0);
        cr_assert_eq(refreshed.copied, round < 2 ? BYTES : 0, "round %u: %llu", round,
                     (unsigned long long)refreshed.copied);
    }
    cr_assert_eq(refresh_quietly(&w, TARGET), BYTES);
}

/*
 * Failures.
 */

static const char *const functions[] = {
    "clCreateProgramWithSource", "clBuildProgram",      "clCreateKernel",
    "clGetKernelWorkGroupInfo",  "clCreateBuffer",      "clSetKernelArg",
    "clEnqueueNDRangeKernel",    "clEnqueueReadBuffer", "clFinish",
    "clEnqueueFillBuffer",       "clGetEventInfo",
};

/* Whatever call fails on either device, either all of it is copied, or what failed is the copy. */
static void fails(struct world *w, unsigned end, const char *function, unsigned n,
                  unsigned *ret_whole, unsigned *ret_failed)
{
    const char *name = end ? "two" : "one";
    residence_tool_finish(w->context->at[0], RESIDENCE_DIGEST); /* as if it was not needed yet */
    residence_tool_finish(w->context->at[TARGET], RESIDENCE_DIGEST);
    set_words(w, pick(w, WORDS - 10), 10, n);
    OK(clFinish(w->p.queue));
    cr_assert_eq(gate_close(0), 0);
    uint64_t fired = emu_shared_fired(w->rig.emu, name);
    cr_assert_eq(emu_shared_arm(w->rig.emu, name, n, function, 0), 0);
    struct refreshed refreshed = refresh(w, TARGET, true, 0, NULL);
    fired = emu_shared_fired(w->rig.emu, name) - fired;
    (void)emu_shared_disarm(w->rig.emu, name);
    gate_open();
    if (refreshed.result == 0) {
        cr_assert(replica_is_latest(w->root, TARGET));
        cr_assert_eq(gate_close(0), 0);
        cr_assert_arr_eq(bytes_at(w, TARGET), w->model, BYTES, "%s, call %u on %s", function, n,
                         name);
        gate_open();
        *ret_whole += fired != 0 && refreshed.copied == BYTES;
    } else {
        cr_assert_eq(refreshed.result, -EIO, "%s, call %u on %s: %d", function, n, name,
                     refreshed.result);
        cr_assert_not(replica_is_latest(w->root, TARGET));
        ++*ret_failed;
        (void)refresh_quietly(w, TARGET);
    }
}

Test(compare, what_cannot_be_digested_is_copied, .timeout = 120)
{
    static struct world w;
    unsigned whole = 0, failed = 0;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    (void)refresh_quietly(&w, TARGET);
    for (unsigned i = 0; i < ARRAY_SIZE(functions); i++)
        for (unsigned n = 1; n <= 4; n++)
            for (unsigned end = 0; end < 2; end++)
                fails(&w, end, functions[i], n, &whole, &failed);
    cr_assert_geq(whole, 2 * ARRAY_SIZE(functions) - 4, "%u", whole);
    cr_assert(failed > 0);
    /* It is not asked again, for good. */
    uint64_t asked = launches(&w, "one");
    residence_tool_finish(w.context->at[0], RESIDENCE_DIGEST);
    cr_assert_eq(emu_shared_arm(w.rig.emu, "one", 1, "clBuildProgram", 0), 0);
    for (unsigned i = 0; i < 3; i++) {
        set_words(&w, 0, 1, i);
        cr_assert_eq(refresh_quietly(&w, TARGET), BYTES);
    }
    cr_assert_eq(launches(&w, "one"), asked + 3, "only the program's own");
}

Test(compare, a_device_lost_meanwhile_fails_the_copy, .timeout = 60)
{
    static struct world w;
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    (void)refresh_quietly(&w, TARGET);
    set_words(&w, 0, 1, 5);
    (void)refresh_quietly(&w, TARGET);
    set_words(&w, 0, 1, 6);
    OK(clFinish(w.p.queue));
    cr_assert_eq(emu_shared_arm(w.rig.emu, "two", 1, "clEnqueueNDRangeKernel", EMU_ERROR_VANISH),
                 0);
    cr_assert_eq(gate_close(0), 0);
    cr_assert_eq(refresh(&w, TARGET, true, 0, NULL).result, -EIO);
    gate_open();
    cr_assert_not(replica_is_latest(w.root, TARGET));
    cr_assert_gt(refresh_quietly(&w, RESIDENCE_HOST), 0);
}

Test(compare, is_canceled, .timeout = 60)
{
    static struct world w;
    atomic_bool cancel = true;
    const struct transfer_limits canceled = {.cancel = &cancel}, late = {.deadline_ns = 1};
    world_open(&w, CONFIG, 0);
    prepare(&w, "two");
    for (unsigned i = 0; i < 2; i++) {
        uint8_t to = i ? RESIDENCE_HOST : TARGET;
        (void)refresh_quietly(&w, to);
        set_words(&w, 0, 1, i);
        OK(clFinish(w.p.queue));
        cr_assert_eq(gate_close(0), 0);
        cr_assert_eq(refresh(&w, to, true, 0, &canceled).result, -ECANCELED);
        cr_assert_eq(refresh(&w, to, true, 0, &late).result, -ETIMEDOUT);
        gate_open();
        cr_assert_not(replica_is_latest(w.root, to));
        cr_assert_eq(refresh_quietly(&w, to), DIGEST_CHUNK);
    }
}

/*
 * Whole moves, of a program that goes on writing.
 */

static void run_on(void *data, unsigned round)
{
    struct world *w = data;
    set_words(w, (round % 3) * 20000, 200, round);
    OK(clFinish(w->p.queue));
}

static void check_all(struct world *w)
{
    OK(clEnqueueReadBuffer(w->p.queue, w->buffer, CL_TRUE, 0, BYTES, w->got, 0, NULL, NULL));
    cr_assert_arr_eq(w->got, w->model, BYTES);
}

Test(compare, a_busy_program_is_moved_with_little_more_than_its_bytes, .timeout = 120)
{
    static struct world w;
    static const char *const ways[] = {"two", NULL, "three", "two", NULL, "one"};
    world_open(&w,
               "[one] name=one base=1 own_memory=yes link_mb_s=200 [two] name=two base=1 "
               "own_memory=yes link_mb_s=200 [three] name=three base=1 own_memory=yes",
               0);
    for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
        struct repeat running;
        struct move_report report;
        repeat_begin(&running, run_on, &w);
        while (atomic_load(&running.rounds) < 3)
            engine_rig_sleep(1);
        cr_assert_eq(engine_rig_move(&w.rig, ways[i], &report), MOVE_DONE, "%s", report.reason);
        /* What waits for the program to be resumed is the test's own thread. */
        atomic_store(&running.stop, true);
        if (!ways[i])
            engine_rig_moves(&w.rig, ways[++i]);
        repeat_end(&running);
        check_all(&w);
        cr_assert_leq(report.bytes, BYTES * 13 / 10, "%llu bytes of %zu",
                      (unsigned long long)report.bytes, BYTES);
    }
}
