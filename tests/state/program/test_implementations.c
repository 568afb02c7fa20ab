#include "interpose/entry/reseat_api.h"
#include "interpose/entry/start.h"
#include "tests/support/comes.h"
#include "tests/support/engine_rig.h"

/* A kernel that others can replace: launches run the one that is fastest on the device of the day,
 * with the kernel's own arguments, and whatever cannot be replaced runs the kernel. */

/* "wide" is slow on the first device, and "tall" on the second. */
#define DEVICES                                                                                    \
    "[one] name=one base=1 paced=wide items_per_s=32768 "                                          \
    "[two] name=two base=1 paced=tall items_per_s=2048 "                                           \
    "[small] name=small base=1 paced=wide items_per_s=32768 max_work_group_size=8"

/* Each writes the same but for the last word, which says who it was. A work-item of "tall" does
 * what sixteen do of "wide". */
static const char source[] =
    "kernel void wide(global uint *out, uint add, uint n) {\n"
    "  out[get_global_id(0)] = (uint)get_global_id(0) * 3 + add;\n"
    "  if (get_global_id(0) == 0) out[n] = 'w'; }\n"
    "kernel void tall(global uint *out, uint add, uint n) {\n"
    "  for (uint i = 0; i < 16; i++) {\n"
    "    uint at = get_global_id(0) * 16 + i;\n"
    "    out[at] = at * 3 + add; }\n"
    "  if (get_global_id(0) == 0) out[n] = 't'; }\n"
    "kernel void tall_counts(global uint *out, uint add, uint n) {\n"
    "  for (uint i = 0; i < 16; i++) {\n"
    "    uint at = get_global_id(0) * 16 + i;\n"
    "    out[at] = at * 3 + add; }\n"
    "  if (get_global_id(0) == 0) atomic_xchg(&out[n], 't'); }\n"
    "kernel void wide_shares(global uint *out, uint add, local uint *room) {\n"
    "  room[get_local_id(0)] = add;\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  out[get_global_id(0)] = (uint)get_global_id(0) * 3 + room[0]; }\n"
    "kernel void tall_shares(global uint *out, uint add, local uint *room) {\n"
    "  for (uint i = 0; i < 16; i++) room[get_local_id(0) * 16 + i] = add;\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  for (uint i = 0; i < 16; i++) {\n"
    "    uint at = get_global_id(0) * 16 + i;\n"
    "    out[at] = at * 3 + room[i]; } }\n"
    "kernel void two_parameters(global uint *out, uint add) { out[0] = add; }\n"
    "kernel void longer(global uint *out, ulong add, uint n) { out[0] = (uint)add + n; }\n"
    "kernel __attribute__((reqd_work_group_size(4, 1, 1)))\n"
    "void fixed(global uint *out, uint add, uint n) { out[0] = add + n; }\n";

enum { ITEMS = 1024, FEW = 16, PATIENCE_S = 60 };
static const struct reseat_implementation sixteenth = {
    .size = sizeof(sixteenth), .dims = 1, .replaces = {256}, .local = {16}};

static int offer(cl_kernel kernel, cl_kernel other, const struct reseat_implementation *shape)
{
    return reseat_api(RESEAT_API_VERSION)->offer(kernel, other, shape);
}

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel, other;
    cl_mem out;
    cl_uint add;
};

static void scene_open(struct scene *s, const char *kernel, const char *other)
{
    *s = (struct scene){0};
    engine_rig_open(&s->rig, DEVICES);
    engine_program_open(&s->rig, 0, source, &s->program);
    s->kernel = engine_kernel(s->program.program, kernel);
    s->other = engine_kernel(s->program.program, other);
    s->out = engine_buffer(s->program.context, 0, (ITEMS + 1) * sizeof(cl_uint), NULL);
    ARGS(s->kernel, s->out, s->add);
}

/* The last parameter of most. */
static void scene_tells_who(struct scene *s)
{
    const cl_uint n = ITEMS;
    OK(clSetKernelArg(s->kernel, 2, sizeof(n), &n));
}

static void scene_close(struct scene *s)
{
    RELEASE(s->kernel, s->out);
    engine_program_close(&s->program);
    engine_rig_ends_empty(&s->rig);
}

/* Launch @items work-items from @offset, of which all but those before the offset are compared.
 * Returns who wrote them. */
static char launched_as(struct scene *s, size_t offset, size_t items, const size_t *local)
{
    static cl_uint words[ITEMS + 1];
    const cl_uint none = 0;
    s->add++;
    OK(clSetKernelArg(s->kernel, 1, sizeof(s->add), &s->add));
    OK(clEnqueueFillBuffer(s->program.queue, s->out, &none, sizeof(none), 0, sizeof(words), 0, NULL,
                           NULL));
    OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, 1, &offset, &items, local, 0, NULL,
                              NULL));
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_TRUE, 0, sizeof(words), words, 0, NULL,
                           NULL));
    for (cl_uint i = (cl_uint)offset; i < offset + items; i++)
        cr_assert_eq(words[i], i * 3 + s->add, "item %u of launch %u", i, s->add);
    return (char)words[ITEMS];
}

static char launched(struct scene *s)
{
    return launched_as(s, 0, ITEMS, NULL);
}

/* A few launches in a row run @which. */
static bool runs(struct scene *s, char which)
{
    unsigned count = 0;
    while (count < FEW && launched(s) == which)
        count++;
    return count == FEW;
}

static void expect_comes(struct scene *s, char which)
{
    cr_assert(COMES(runs(s, which), PATIENCE_S * NS_PER_S), "%c is not what is launched", which);
}

Test(implementations, that_are_fastest_on_the_device_of_the_day_run, .timeout = 180)
{
    struct scene s;
    scene_open(&s, "wide", "tall");
    scene_tells_who(&s);
    cr_assert_eq(launched(&s), 'w');
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other); /* the kernel keeps it */
    expect_comes(&s, 't');
    engine_rig_moves(&s.rig, "two");
    expect_comes(&s, 'w');
    engine_rig_moves(&s.rig, NULL);
    engine_rig_moves(&s.rig, "one");
    expect_comes(&s, 't');
    scene_close(&s);
}

/* One with atomic functions is never cut, and without slices none is: they are measured whole. */
Test(implementations, that_are_never_in_pieces_are_measured, .timeout = 120)
{
    struct scene s;
    setenv(START_ENV_SLICE, "0", 1);
    scene_open(&s, "wide", "tall_counts");
    scene_tells_who(&s);
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other);
    expect_comes(&s, 't');
    engine_rig_moves(&s.rig, "two");
    expect_comes(&s, 'w');
    scene_close(&s);
}

Test(implementations, that_are_slow_are_tried_seldom, .timeout = 120)
{
    struct scene s;
    unsigned slow = 0;
    scene_open(&s, "wide", "tall");
    scene_tells_who(&s);
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other);
    expect_comes(&s, 't');
    /* A launch of "wide" takes 31 ms: 1 % of what 3 s are. */
    uint64_t begun = clock_now_ns(), took;
    do {
        slow += launched(&s) == 'w';
        took = clock_now_ns() - begun;
    } while (took < 5 * NS_PER_S);
    cr_expect_leq(slow, 1 + took / (3 * NS_PER_S), "%u trials in %.1f s", slow, (double)took / 1e9);
    cr_expect_geq(slow, 1, "none in %.1f s", (double)took / 1e9);
    scene_close(&s);
}

/* Those that have an offset, or that it does not divide, or whose work-groups no device has. */
Test(implementations, do_not_run_what_they_cannot, .timeout = 120)
{
    static const size_t local = 8;
    struct scene s;
    scene_open(&s, "wide", "tall");
    scene_tells_who(&s);
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other);
    expect_comes(&s, 't');
    for (unsigned i = 0; i < 4; i++) {
        (void)launched_as(&s, 256, 512, NULL);
        cr_assert_eq(launched_as(&s, 0, 264, &local), 'w');
    }
    expect_comes(&s, 't');
    scene_close(&s);
}

/* One that was launched may still wait, or be done again after a loss: where it does not fit, the
 * program is not moved to. Before, it may be anywhere. */
Test(implementations, that_ran_are_counted_where_the_program_goes, .timeout = 120)
{
    static const size_t local = 8;
    struct scene s;
    struct move_report report;
    scene_open(&s, "wide", "tall");
    scene_tells_who(&s);
    engine_rig_moves(&s.rig, "small");
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(launched_as(&s, 0, ITEMS, &local), 'w');
    engine_rig_moves(&s.rig, "one");
    expect_comes(&s, 't');
    cr_expect_neq(engine_rig_move(&s.rig, "small", &report), MOVE_DONE);
    cr_expect(strstr(report.reason, "work-group"), "%s", report.reason);
    engine_rig_moves(&s.rig, "two");
    scene_close(&s);
}

Test(implementations, have_local_memory_of_their_own, .timeout = 120)
{
    struct scene s;
    scene_open(&s, "wide_shares", "tall_shares");
    const size_t local = 16;
    OK(clSetKernelArg(s.kernel, 2, 16 * sizeof(cl_uint), NULL));
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    for (unsigned i = 0; i < 2 * FEW; i++)
        (void)launched_as(&s, 0, ITEMS, &local); /* the other lacks an argument */
    OK(clSetKernelArg(s.other, 2, 256 * sizeof(cl_uint), NULL));
    for (unsigned i = 0; i < 2 * FEW; i++)
        (void)launched_as(&s, 0, ITEMS, &local);
    RELEASE(s.other);
    scene_close(&s);
}

/* Its own error is not the program's. */
Test(implementations, that_fail_give_way_to_the_kernel, .timeout = 120)
{
    struct scene s;
    char which = 't';
    scene_open(&s, "wide", "tall");
    scene_tells_who(&s);
    cr_assert_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_OK);
    RELEASE(s.other);
    expect_comes(&s, 't');
    /* A launch that is a trial has no error at once: at most every other one is. */
    for (unsigned i = 0; i < 4 && which == 't'; i++) {
        OK(clFinish(s.program.queue));
        cr_assert_eq(
            emu_shared_arm(s.rig.emu, "one", 1, "clEnqueueNDRangeKernel", CL_INVALID_KERNEL_ARGS),
            0);
        which = launched(&s);
    }
    cr_expect_eq(which, 'w');
    scene_close(&s);
}

Test(implementations, that_cannot_serve_are_refused, .timeout = 60)
{
    struct scene s;
    scene_open(&s, "wide", "tall");
    struct reseat_implementation wrong = sixteenth;
    cl_kernel two = engine_kernel(s.program.program, "two_parameters");
    cl_kernel longer = engine_kernel(s.program.program, "longer");
    cl_kernel fixed = engine_kernel(s.program.program, "fixed");
    cl_kernel same = engine_kernel(s.program.program, "wide");
    cl_context other_context = MADE(clCreateContext, NULL, 1, &s.rig.device, NULL, NULL);
    cl_program other_program = BUILT(other_context, source, "");
    cl_kernel foreign = engine_kernel(other_program, "tall");
    cr_expect_eq(offer(s.kernel, two, &sixteenth), RESEAT_DIFFERENT);
    cr_expect_eq(offer(s.kernel, longer, &sixteenth), RESEAT_DIFFERENT);
    cr_expect_eq(offer(s.kernel, fixed, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(s.kernel, foreign, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(s.kernel, same, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(s.kernel, s.kernel, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(s.kernel, (cl_kernel)s.out, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(NULL, s.other, &sixteenth), RESEAT_INVALID);
    cr_expect_eq(offer(s.kernel, s.other, NULL), RESEAT_INVALID);
    wrong.size--;
    cr_expect_eq(offer(s.kernel, s.other, &wrong), RESEAT_INVALID);
    wrong = sixteenth;
    wrong.dims = 4;
    cr_expect_eq(offer(s.kernel, s.other, &wrong), RESEAT_INVALID);
    wrong.dims = 2;
    cr_expect_eq(offer(s.kernel, s.other, &wrong), RESEAT_INVALID);
    /* Nor is one that has others itself, and more than seven. */
    cr_expect_eq(offer(s.other, s.kernel, &sixteenth), RESEAT_OK);
    cr_expect_eq(offer(s.kernel, s.other, &sixteenth), RESEAT_INVALID);
    for (unsigned i = 1; i < 7; i++)
        cr_expect_eq(offer(s.other, same, &sixteenth), RESEAT_OK);
    cr_expect_eq(offer(s.other, same, &sixteenth), RESEAT_TOO_MANY);
    RELEASE(two, longer, fixed, same, foreign, s.other);
    RELEASE(other_program, other_context);
    scene_close(&s);
}

Test(implementations, are_none_in_contexts_of_several_devices, .timeout = 60)
{
    struct engine_rig rig;
    engine_rig_open(&rig, DEVICES);
    const cl_device_id devices[2] = {rig.device, engine_rig_vdev(&rig, "two")};
    cl_context context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    cl_program program = BUILT(context, source, "");
    cl_kernel wide = engine_kernel(program, "wide"), tall = engine_kernel(program, "tall");
    cr_expect_eq(offer(wide, tall, &sixteenth), RESEAT_INVALID);
    RELEASE(wide, tall, program, context);
}
