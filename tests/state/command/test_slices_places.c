#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/gate.h"
#include "state/command/parts.h"
#include "state/driver/quirks.h"
#include "state/program/kernel.h"
#include "state/program/program_cut.h"
#include "tests/state/command/slices_rig.h"

/* Pieces of kernels that ask where in the launch they are: they are told that in the whole. */

/* Each item adds what depends on all that can be asked, of dimensions that there are and others. */
#define ASKS                                                                                       \
    "#if __OPENCL_C_VERSION__ >= 200\n"                                                            \
    "#define ENQUEUED(d) get_enqueued_local_size(d)\n"                                             \
    "#define LINEAR get_global_linear_id()\n"                                                      \
    "#else\n"                                                                                      \
    "#define ENQUEUED(d) get_local_size(d)\n"                                                      \
    "#define AT(d) (get_global_id(d) - get_global_offset(d))\n"                                    \
    "#define LINEAR ((AT(2) * get_global_size(1) + AT(1)) * get_global_size(0) + AT(0))\n"         \
    "#endif\n"                                                                                     \
    "#ifndef SALT\n"                                                                               \
    "#define SALT 0\n"                                                                             \
    "#endif\n"                                                                                     \
    "size_t deep(uint d);\n"                                                                       \
    "uint work(uint x, uint rounds)\n"                                                             \
    "{ for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u; return x; }\n"            \
    "uint ask(size_t at) {\n"                                                                      \
    "  uint x = at ^ get_work_dim() << 28 ^ LINEAR * 31;\n"                                        \
    "  for (uint d = 0; d < 3; d++)\n"                                                             \
    "    x = x * 7 + (deep(d) ^ get_global_size(d) << 3 ^ get_global_offset(d) << 13 ^\n"          \
    "        get_global_id(d) << 9 ^ get_local_size(d) << 17 ^ get_local_id(d) << 21 ^\n"          \
    "        ENQUEUED(d) << 25) + SALT;\n"                                                         \
    "  return x; }\n"                                                                              \
    "kernel void places(global uint *out, uint rounds, uint w, uint h) {\n"                        \
    "  size_t at = (get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0);\n"            \
    "  out[at] += work(ask(at), rounds); }\n"                                                      \
    "kernel void others(global uint *out, uint rounds, uint w, uint h) {\n"                        \
    "  size_t at = (get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0);\n"            \
    "  uint x = 0;\n"                                                                              \
    "  if (at % 3 != 0) x = ask(at);\n"                                                            \
    "  out[at] += work(x, rounds); }\n"
#define DEEP "size_t deep(uint d) { return get_group_id(d) * 10007u ^ get_num_groups(d) << 5; }\n"

static const char places[] = ASKS DEEP;

/* What an item adds, by the definition of all that it asks. */
static void add_item(struct scene *s, const struct shape *shape, const size_t id[3], cl_uint rounds,
                     cl_uint salt, bool thirds)
{
    size_t offset[3] = {0}, global[3] = {1, 1, 1}, local[3] = {1, 1, 1};
    for (cl_uint i = 0; i < shape->dims; i++) {
        offset[i] = shape->offset[i];
        global[i] = shape->global[i];
        local[i] = shape->local[i];
    }
    size_t w = offset[0] + global[0], h = offset[1] + global[1];
    size_t at = ((offset[2] + id[2]) * h + offset[1] + id[1]) * w + offset[0] + id[0];
    size_t linear = (id[2] * global[1] + id[1]) * global[0] + id[0];
    cl_uint x = (cl_uint)(at ^ (size_t)shape->dims << 28 ^ linear * 31);
    for (unsigned d = 0; d < 3; d++) {
        size_t group = id[d] / local[d], groups = (global[d] + local[d] - 1) / local[d];
        size_t left = global[d] - group * local[d], size = left < local[d] ? left : local[d];
        x = x * 7 +
            (cl_uint)(group * 10007u ^ groups << 5 ^ global[d] << 3 ^ offset[d] << 13 ^
                      (offset[d] + id[d]) << 9 ^ size << 17 ^ id[d] % local[d] << 21 ^
                      local[d] << 25) +
            salt;
    }
    s->wanted[at] += slices_work(thirds && at % 3 == 0 ? 0 : x, rounds);
}

static void add_salted(struct scene *s, const struct shape *shape, cl_uint rounds, cl_uint salt)
{
    size_t id[3] = {0};
    bool thirds = strcmp(((struct kernel *)s->kernel)->pace->name, "others") == 0;
    for (id[2] = 0; id[2] < (shape->dims > 2 ? shape->global[2] : 1); id[2]++)
        for (id[1] = 0; id[1] < (shape->dims > 1 ? shape->global[1] : 1); id[1]++)
            for (id[0] = 0; id[0] < shape->global[0]; id[0]++)
                add_item(s, shape, id, rounds, salt, thirds);
}

static void add_places(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    add_salted(s, shape, rounds, 0);
}

static bool is_made(const struct scene *s)
{
    const struct context *context = (const struct context *)s->program.context;
    gate_enter();
    uint8_t residence_index = atomic_load(&context->residence_index[0]);
    bool made =
        residence_index != RESIDENCE_NONE &&
        program_cut_real((const struct program *)s->program.program, residence_index) != NULL;
    gate_leave();
    return made;
}

/* Launch it until it was found to take long, and its program was made for pieces. */
static void learn(struct scene *s, cl_uint rounds, cl_uint salt)
{
    for (unsigned n = 0; n < 100 && !is_made(s); n++) {
        cl_event event = launch(s, &long_shape, rounds);
        add_salted(s, &long_shape, rounds, salt);
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        engine_rig_sleep(20);
    }
    cr_assert(is_made(s), "its program was never made for pieces");
}

/* One more, which must be given in pieces. What was measured on a busy machine may have it go
 * whole, a few times. */
static void expect_pieces(struct scene *s, const char *device, const struct shape *shape,
                          cl_uint salt)
{
    bool whole = true;
    for (unsigned n = 0; whole && n < 10; n++) {
        uint64_t before = launches(s, device);
        cl_event event = launch(s, shape, ROUNDS);
        add_salted(s, shape, ROUNDS, salt);
        OK(clWaitForEvents(1, &event));
        cr_assert_eq(status_of(event), CL_COMPLETE);
        OK(clReleaseEvent(event));
        whole = launches(s, device) <= before + 2;
        check(s);
    }
    cr_assert_not(whole, "it goes whole");
}

static const struct shape shapes[] = {
    {1, {0}, {4096}, {16}},
    {1, {77}, {4000}, {8}},
    {2, {0}, {32, 128}, {8, 2}},
    {2, {0}, {128, 32}, {1, 32}},
    {2, {3, 0}, {24, 128}, {8, 2}},
    {2, {0, 5}, {256, 8}, {4, 2}},
    {3, {0}, {8, 128, 4}, {4, 2, 2}},
    {3, {2, 0, 0}, {8, 128, 4}, {4, 2, 2}},
    {3, {0, 3, 0}, {256, 4, 4}, {2, 2, 2}},
    {3, {0}, {4, 4, 256}, {2, 1, 1}},
};
static const struct shape uneven[] = {
    {1, {77}, {4001}, {8}},
    {2, {0}, {33, 127}, {8, 2}},
    {2, {0, 5}, {257, 9}, {4, 2}},
    {3, {2, 0, 0}, {7, 127, 3}, {4, 2, 2}},
    {3, {0}, {131, 3, 11}, {4, 2, 2}},
};

Test(places, are_those_in_the_whole_launch)
{
    struct scene s;
    cl_bool remainders;
    scene_begin(&s, CONFIG, "10", 0, 16384);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    OK(clGetDeviceInfo(s.rig.device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof(remainders),
                       &remainders, NULL));
    learn(&s, ROUNDS, 0);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        expect_pieces(&s, "one", &shapes[i], 0);
    engine_rig_moves(&s.rig, "two");
    learn(&s, ROUNDS, 0);
    for (size_t i = 0; remainders && i < sizeof(uneven) / sizeof(uneven[0]); i++)
        expect_pieces(&s, "two", &uneven[i], 0);
    scene_close(&s);
    cr_assert(engine_rig_empties(&s.rig, "one"), "%s", engine_rig_alive(&s.rig, "one"));
    cr_assert(engine_rig_empties(&s.rig, "two"), "%s", engine_rig_alive(&s.rig, "two"));
}

Test(places, are_told_in_every_language_and_in_every_kernel_of_a_program)
{
    static const char *const options[] = {"-cl-std=CL1.1", "", "-cl-std=CL1.2 -DSALT=0",
                                          "-cl-std=CL3.0"};
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 16384);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        scene_build(&s, places, options[i], i % 2 ? "places" : "others");
        learn(&s, ROUNDS, 0);
        expect_pieces(&s, "one", &shapes[1], 0);
        expect_pieces(&s, "one", &shapes[6], 0);
        OK(clReleaseKernel(s.kernel));
        s.kernel = engine_kernel(s.program.program, i % 2 ? "others" : "places");
        expect_pieces(&s, "one", &shapes[4], 0);
        RELEASE(s.kernel, s.program.program);
    }
    scene_build(&s, places, "", "places");
    scene_close(&s);
}

Test(places, are_told_where_macros_paste_the_names_that_ask)
{
    static const char pasted[] =
        ASKS "#define PASTE(a, b) a##b\n#define GET(what) get##_##what\n"
             "#define ROUND et_num_groups\n"
             "#define SECOND(a, b) PASTE(a, b)\n"
             "size_t deep(uint d) { return GET(group_id)(d) * 10007u ^ SECOND(g, ROUND)(d) << 5; }";
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 16384);
    scene_build(&s, pasted, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    expect_pieces(&s, "one", &shapes[1], 0);
    scene_close(&s);
}

/* Where a launch has no size of groups they are ours to choose: all that it is told agrees. */
Test(places, agree_where_groups_are_left_to_opencl)
{
    static const char source[] =
        "kernel void agree(global uint *out, uint rounds, uint w, uint h) {\n"
        "  size_t at = (get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0);\n"
        "  uint x = at;\n"
        "  for (uint d = 0; d < 3; d++) {\n"
        "    size_t size = get_local_size(d), group = get_group_id(d);\n"
        "    if (group * size + get_local_id(d) + get_global_offset(d) != get_global_id(d) ||\n"
        "        group >= get_num_groups(d) || get_num_groups(d) * size != get_global_size(d))\n"
        "      x = 77777; }\n"
        "  for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u;\n"
        "  out[at] += x; }\n";
    static const struct shape left[] = {{1, {0}, {4096}, {0}}, {2, {0}, {60, 64}, {0}}};
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 4096);
    scene_build(&s, source, "", "agree");
    for (unsigned n = 0, told = 0; told < 4; n++) {
        const struct shape *shape = &left[told / 2];
        uint64_t before = launches(&s, "one");
        bool made = is_made(&s);
        cl_event event = launch(&s, shape, ROUNDS);
        for (size_t at = 0; at < shape->global[0] * (shape->dims > 1 ? shape->global[1] : 1); at++)
            s.wanted[at] += slices_work((cl_uint)at, ROUNDS);
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        told += made && launches(&s, "one") > before + 2;
        check(&s);
        cr_assert_lt(n, 100u, "it goes whole");
    }
    scene_close(&s);
}

/* A program of one launch, which waits for what it needs to go in pieces. On a busy machine that
 * may take longer than it waits. */
Test(places, are_told_to_the_first_launch_of_a_program)
{
    struct scene s;
    bool whole = true;
    scene_begin(&s, TWO(PACED "build_ms=300 "), "10", 0, 4096);
    for (unsigned n = 0; whole && n < 5; n++) {
        uint64_t before = launches(&s, "one");
        scene_build(&s, places, "-cl-std=CL2.0", "places");
        cl_event event = launch(&s, &long_shape, ROUNDS);
        add_places(&s, &long_shape, ROUNDS);
        OK(clWaitForEvents(1, &event));
        whole = launches(&s, "one") <= before + 2;
        check(&s);
        RELEASE(event, s.kernel, s.program.program);
    }
    cr_assert_not(whole, "it goes whole");
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    scene_close(&s);
}

/* The program's own build took longer than a launch waits for the second one. */
Test(places, are_not_waited_for_in_vain)
{
    struct scene s;
    scene_begin(&s, TWO(PACED "build_ms=2500 "), "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    uint64_t begun = clock_now_ns();
    cl_event event = launch(&s, &long_shape, ROUNDS);
    cr_assert_lt(clock_now_ns() - begun, NS_PER_S, "it waits");
    add_places(&s, &long_shape, ROUNDS);
    OK(clWaitForEvents(1, &event));
    check(&s);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

/* One that is short whatever it is given is not worth a second build. */
Test(places, are_not_told_to_a_kernel_without_loops_that_is_short)
{
    static const char source[] =
        "kernel void agree(global uint *out, uint rounds, uint w, uint h) {\n"
        "  out[get_global_id(0)] += get_group_id(0) * rounds; }\n";
    static const struct shape few = {1, {0}, {64}, {1}};
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 4096);
    scene_build(&s, source, "", "agree");
    cl_event event = launch(&s, &few, 1);
    for (cl_uint at = 0; at < 64; at++)
        s.wanted[at] += at;
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    cr_assert_not(is_made(&s));
    cr_assert_eq(launches(&s, "one"), 1);
    check(&s);
    scene_close(&s);
}

/* Also of what is made for pieces the compiler may say less than what runs. */
Test(places, fit_where_a_driver_says_a_wrong_size_of_groups)
{
    struct scene s;
    scene_begin(&s, TWO(PACED "kernel_work_group_size=places:8 "), "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    struct program *program = (struct program *)s.program.program;
    struct residence *residence = residence_of(&s);
    uint8_t residence_index = atomic_load(&program->context->residence_index[0]);
    OK(program_cut_make(program, 0));
    gate_enter();
    cr_assert_not(program_cut_fits(program, "places", residence, residence_index, 16));
    residence->device->quirks |= QUIRK_GROUP_SIZE_WRONG;
    cr_assert(program_cut_fits(program, "places", residence, residence_index, 16));
    gate_leave();
    scene_close(&s);
}

static bool move_and_suspend(struct scene *s, cl_event event)
{
    engine_rig_moves(&s->rig, "two");
    bool runs = status_of(event) == CL_RUNNING;
    engine_rig_moves(&s->rig, NULL);
    runs = runs && status_of(event) == CL_RUNNING;
    engine_rig_moves(&s->rig, "one");
    return runs;
}

Test(places, stay_in_a_launch_that_is_moved_and_suspended_in_the_middle)
{
    struct scene s;
    scene_begin(&s, CONFIG, "5", 0, OUTLAST_WORDS);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    outlast(&s, 2, move_and_suspend, add_places);
    scene_close(&s);
    cr_assert(engine_rig_empties(&s.rig, "one"), "%s", engine_rig_alive(&s.rig, "one"));
    cr_assert(engine_rig_empties(&s.rig, "two"), "%s", engine_rig_alive(&s.rig, "two"));
}

#define REFUSES TWO(PACED) "build_fails=RESEAT"

static bool fail_to_move(struct scene *s, cl_event event)
{
    struct move_report report;
    bool refused = engine_rig_move(&s->rig, "two", &report) != MOVE_DONE;
    cr_assert(refused || status_of(event) == CL_COMPLETE);
    cr_assert_not(refused && report.lasting);
    engine_rig_moves(&s->rig, NULL);
    bool runs = status_of(event) == CL_RUNNING;
    refused = engine_rig_move(&s->rig, "two", &report) != MOVE_DONE;
    cr_assert(refused || !runs);
    engine_rig_moves(&s->rig, "one");
    return runs && status_of(event) == CL_RUNNING;
}

Test(places, cannot_be_told_everywhere_so_a_launch_in_the_middle_stays)
{
    struct scene s;
    scene_begin(&s, REFUSES, "5", 0, OUTLAST_WORDS);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    outlast(&s, 2, fail_to_move, add_places);
    scene_close(&s);
}

Test(places, cannot_be_told_everywhere_so_launches_go_whole_there)
{
    struct scene s;
    scene_begin(&s, REFUSES, "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    engine_rig_moves(&s.rig, "two");
    uint64_t before = launches(&s, "two");
    for (unsigned n = 0; n < 100 && !program_cut_refusal((struct program *)s.program.program);
         n++) {
        cl_event event = launch(&s, &long_shape, ROUNDS);
        add_places(&s, &long_shape, ROUNDS);
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        engine_rig_sleep(20);
        cr_assert_eq(launches(&s, "two"), before + n + 1);
    }
    cr_assert(strstr(program_cut_refusal((struct program *)s.program.program), "does not build"));
    check(&s);
    scene_close(&s);
}

/* It was to go in pieces, and has not begun when it comes to where that is not possible. */
Test(places, are_not_needed_by_a_launch_that_has_not_begun)
{
    struct scene s;
    cl_event event;
    scene_begin(&s, REFUSES, "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    cl_event gate = MADE(clCreateUserEvent, s.program.context);
    set_args(&s, ROUNDS, (cl_uint)long_shape.global[0], 1);
    OK(clEnqueueNDRangeKernel(s.program.queue, s.kernel, 1, NULL, long_shape.global,
                              long_shape.local, 1, &gate, &event));
    add_places(&s, &long_shape, ROUNDS);
    engine_rig_moves(&s.rig, "two");
    uint64_t before = launches(&s, "two");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    cr_assert_eq(launches(&s, "two"), before + 1);
    check(&s);
    RELEASE(gate, event);
    scene_close(&s);
}

static void *move_to_two(void *data)
{
    struct move_report report;
    (void)engine_rig_move(&((struct scene *)data)->rig, "two", &report);
    return NULL;
}

/* It begins while the move that has looked for such launches builds; whenever that is, it ends
 * well.
 */
Test(places, are_gone_back_for_by_a_launch_that_begins_during_a_move)
{
    struct scene s;
    pthread_t mover;
    scene_begin(&s, REFUSES " build_ms=400", "5", 0, OUTLAST_WORDS);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    cr_assert_eq(pthread_create(&mover, NULL, move_to_two, &s), 0);
    engine_rig_sleep(600);
    cl_event event = launch(&s, &longer_shape, ROUNDS);
    add_places(&s, &longer_shape, ROUNDS);
    pthread_join(mover, NULL);
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    check(&s);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

Test(places, are_told_by_a_program_that_was_linked)
{
    static const char *const sources[] = {ASKS, DEEP};
    struct scene s;
    cl_program parts[2];
    scene_begin(&s, CONFIG, "10", 0, 4096);
    for (int i = 0; i < 2; i++) {
        parts[i] =
            MADE(clCreateProgramWithSource, s.program.context, 1, (const char **)&sources[i], NULL);
        OK(clCompileProgram(parts[i], 0, NULL, "-cl-std=CL2.0", 0, NULL, NULL, NULL, NULL));
    }
    s.program.program = MADE(clLinkProgram, s.program.context, 0, NULL, NULL, 2, parts, NULL, NULL);
    s.kernel = engine_kernel(s.program.program, "places");
    learn(&s, ROUNDS, 0);
    expect_pieces(&s, "one", &shapes[0], 0);
    expect_pieces(&s, "one", &shapes[5], 0);
    for (int i = 0; i < 2; i++)
        OK(clReleaseProgram(parts[i]));
    scene_close(&s);
}

Test(places, are_told_by_what_was_built_last)
{
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    for (cl_uint salt = 1; salt < 3; salt++) {
        char options[64];
        snprintf(options, sizeof(options), "-cl-std=CL2.0 -DSALT=%u", salt);
        OK(clReleaseKernel(s.kernel));
        OK(clBuildProgram(s.program.program, 0, NULL, options, NULL, NULL));
        cr_assert_not(is_made(&s));
        s.kernel = engine_kernel(s.program.program, "places");
        learn(&s, ROUNDS, salt);
        expect_pieces(&s, "one", &long_shape, salt);
    }
    scene_close(&s);
    cr_assert(engine_rig_empties(&s.rig, "one"), "%s", engine_rig_alive(&s.rig, "one"));
}

/* A second program would have variables of its own. */
Test(places, are_not_told_by_a_program_with_variables)
{
    static const char source[] =
        "global uint seen = 0;\n"
        "kernel void counts(global uint *out, uint rounds, uint w, uint h) {\n"
        "  uint n = atomic_inc(&seen), x = get_group_id(0);\n"
        "  for (uint i = 0; i < rounds; i++) { x = x * 1664525u + 1013904223u; }\n"
        "  out[n] += x != 0 || n != 0; }\n";
    struct scene s;
    scene_begin(&s, CONFIG, "10", 0, 6 * 4096);
    scene_build(&s, source, "-cl-std=CL2.0", "counts");
    for (unsigned n = 0; n < 6; n++) {
        uint64_t before = launches(&s, "one");
        launch_through(&s, &long_shape, ROUNDS);
        cr_assert_eq(launches(&s, "one"), before + 1);
        cr_assert_not(is_made(&s));
        engine_rig_sleep(50);
    }
    struct pace_refusal whole[STATUS_WHOLE_MAX];
    cr_assert_eq(status_whole(whole), 1);
    cr_assert(strstr(whole[0].reason, "cannot be made twice"), "%s", whole[0].reason);
    for (size_t i = 0; i < s.count; i++)
        s.wanted[i] = 1;
    check(&s);
    scene_close(&s);
}

/* All of these have offsets, but POCL fails where they differ in size as well. */
Test(places, are_alone_where_a_driver_mixes_offsets_up)
{
    struct scene s;
    const cl_uint rounds = LONG_ROUNDS / 8;
    scene_begin(&s, NULL, "2", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, rounds, 0);
    cl_command_queue other = MADE(clCreateCommandQueue, s.program.context, s.rig.device, 0);
    for (unsigned alone = 0; alone < 2; alone++) {
        cl_event event = launch(&s, &long_shape, rounds);
        add_places(&s, &long_shape, rounds);
        OK(clWaitForEvents(1, &event));
        cr_assert(is_cut(event));
        cr_assert(alone ? ((struct event *)event)->parts->serial > 2
                        : ((struct event *)event)->parts->serial == 1);
        OK(clReleaseEvent(event));
        if (alone)
            continue;
        struct pace_refusal whole[STATUS_WHOLE_MAX];
        for (unsigned ms = 0; status_whole(whole) == 0 && ms < 5000; ms++)
            engine_rig_sleep(1); /* it is noted behind the launch's end */
        cr_assert_eq(status_whole(whole), 1);
        cr_assert(strstr(whole[0].reason, "other queues"), "%s", whole[0].reason);
        OK(clReleaseCommandQueue(other));
    }
    check(&s);
    scene_close(&s);
}

Test(places, end_in_an_error_with_a_device_that_is_lost)
{
    struct scene s;
    scene_begin(&s, CONFIG, "5", 0, OUTLAST_WORDS);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    learn(&s, ROUNDS, 0);
    cl_event event = launch(&s, &longer_shape, ROUNDS);
    await_running(event);
    cr_assert_eq(emu_shared_vanish(s.rig.emu, "one"), 0);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(status_of(event), 0);
    (void)clFinish(s.program.queue);
    OK(clReleaseEvent(event));
}

/* The child has nothing to do with the driver; the parent goes on. */
Test(places, stay_in_a_launch_beside_a_fork)
{
    struct scene s;
    int status = -1;
    scene_begin(&s, CONFIG, "10", 0, 4096);
    scene_build(&s, places, "-cl-std=CL2.0", "places");
    for (unsigned n = 0; n < 12 || !is_made(&s); n++) {
        cl_event event = launch(&s, &long_shape, ROUNDS);
        add_places(&s, &long_shape, ROUNDS);
        OK(clFlush(s.program.queue));
        pid_t pid = fork();
        if (pid == 0)
            _exit(7);
        cr_assert_gt(pid, 0);
        if (n == 10)
            engine_rig_moves(&s.rig, "two");
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        cr_assert_lt(n, 100u);
    }
    check(&s);
    scene_close(&s);
}
