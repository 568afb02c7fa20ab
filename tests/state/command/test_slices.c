#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/entry/start.h"
#include "state/command/event.h"
#include "state/command/pieces.h"
#include "tests/support/engine_rig.h"

/* Launches in pieces: what a program sees is one launch, wherever its pieces run. */

#define CONFIG "[one] name=one type=cpu base=1 [two] name=two type=cpu base=1"

/* The work of an item is what makes a launch long; the loop's end is not known to the compiler. */
static const char source[] =
    "uint work(uint x, uint rounds)\n"
    "{ for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u; return x; }\n"
    "kernel void plain(global uint *out, uint rounds, uint w, uint h) {\n"
    "  size_t at = (get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0);\n"
    "  uint x = at ^ get_local_id(0) << 8 ^ get_local_id(1) << 16 ^ get_local_id(2) << 24 ^\n"
    "           get_local_size(0) << 4 ^ get_local_size(1) << 12 ^ get_local_size(2) << 20 ^\n"
    "           get_work_dim() << 28;\n"
    "  out[at] += work(x, rounds); }\n"
    "kernel void waits(global uint *out, uint rounds, uint w, uint h) {\n"
    "  size_t at = get_global_id(0);\n"
    "  while (atomic_or(&out[at], 0) == 77) ;\n"
    "  out[at] = work(at, rounds); }\n";

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem out;
    cl_uint *words, *wanted;
    size_t count;
};

/* As in the source, by squaring: x -> a * x + c. */
static cl_uint work(cl_uint x, cl_uint rounds)
{
    cl_uint a = 1664525u, c = 1013904223u;
    for (; rounds; rounds >>= 1) {
        if (rounds & 1)
            x = a * x + c;
        c = a * c + c;
        a = a * a;
    }
    return x;
}

static void scene_open(struct scene *s, const char *config, const char *slice_ms, const char *name,
                       cl_command_queue_properties properties, size_t count)
{
    memset(s, 0, sizeof(*s));
    setenv(START_ENV_SLICE, slice_ms, 1);
    if (config)
        engine_rig_open(&s->rig, config);
    else
        engine_rig_open_pocl(&s->rig, "basic pthread");
    const char *text = source;
    cl_int error;
    engine_program_open(&s->rig, properties, NULL, &s->program);
    s->program.program = clCreateProgramWithSource(s->program.context, 1, &text, NULL, &error);
    OK(error);
    /* For work-groups that do not divide a launch. */
    OK(clBuildProgram(s->program.program, 0, NULL, "-cl-std=CL2.0", NULL, NULL));
    s->kernel = engine_kernel(s->program.program, name);
    s->count = count;
    s->words = calloc(count, sizeof(*s->words));
    s->wanted = calloc(count, sizeof(*s->wanted));
    s->out = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, count * sizeof(*s->words),
                           s->words);
}

static void scene_close(struct scene *s)
{
    OK(clReleaseMemObject(s->out));
    OK(clReleaseKernel(s->kernel));
    engine_program_close(&s->program);
    free(s->words);
    free(s->wanted);
}

static struct residence *residence_of(const struct scene *s)
{
    struct context *context = (struct context *)s->program.context;
    return context->at[atomic_load(&context->place[0])];
}

struct shape {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
};

static void set_args(const struct scene *s, cl_uint rounds, cl_uint w, cl_uint h)
{
    OK(clSetKernelArg(s->kernel, 0, sizeof(cl_mem), &s->out));
    OK(clSetKernelArg(s->kernel, 1, sizeof(rounds), &rounds));
    OK(clSetKernelArg(s->kernel, 2, sizeof(w), &w));
    OK(clSetKernelArg(s->kernel, 3, sizeof(h), &h));
}

static cl_event launch(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    cl_event event;
    set_args(s, rounds, (cl_uint)(shape->offset[0] + shape->global[0]),
             (cl_uint)(shape->dims > 1 ? shape->offset[1] + shape->global[1] : 1));
    OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, shape->dims, shape->offset,
                              shape->global, shape->local[0] ? shape->local : NULL, 0, NULL,
                              &event));
    return event;
}

/* What the whole launch adds, by the definition of its ids. */
static void add_wanted(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    size_t offset[3] = {0}, global[3] = {1, 1, 1}, local[3] = {1, 1, 1}, id[3];
    for (cl_uint i = 0; i < shape->dims; i++) {
        offset[i] = shape->offset[i];
        global[i] = shape->global[i];
        local[i] = shape->local[i];
    }
    for (id[2] = 0; id[2] < global[2]; id[2]++)
        for (id[1] = 0; id[1] < global[1]; id[1]++)
            for (id[0] = 0; id[0] < global[0]; id[0]++) {
                size_t w = offset[0] + global[0], h = offset[1] + global[1], at;
                cl_uint in[3], of[3];
                at = ((offset[2] + id[2]) * h + offset[1] + id[1]) * w + offset[0] + id[0];
                for (unsigned i = 0; i < 3; i++) {
                    size_t left = global[i] - id[i] / local[i] * local[i];
                    in[i] = (cl_uint)(id[i] % local[i]);
                    of[i] = (cl_uint)(left < local[i] ? left : local[i]);
                }
                s->wanted[at] +=
                    work((cl_uint)at ^ in[0] << 8 ^ in[1] << 16 ^ in[2] << 24 ^ of[0] << 4 ^
                             of[1] << 12 ^ of[2] << 20 ^ shape->dims << 28,
                         rounds);
            }
}

static void check(struct scene *s)
{
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_TRUE, 0, s->count * sizeof(*s->words),
                           s->words, 0, NULL, NULL));
    for (size_t i = 0; i < s->count; i++)
        cr_assert_eq(s->words[i], s->wanted[i], "word %zu is %u, expected %u", i, s->words[i],
                     s->wanted[i]);
}

static cl_int status_of(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    return status;
}

static uint64_t launches(const struct scene *s, const char *device)
{
    return emu_shared_calls(s->rig.emu, device, "clEnqueueNDRangeKernel");
}

static bool is_cut(cl_event event)
{
    return ((struct event *)event)->parts != NULL;
}

/* One of some 200 ms, in hundreds of groups. */
static const struct shape long_shape = {1, {0}, {4096}, {16}};
#define LONG_ROUNDS 200000

static void await_running(cl_event event)
{
    for (unsigned ms = 0; status_of(event) > CL_RUNNING && ms < 10000; ms++)
        engine_rig_sleep(1);
    cr_assert_eq(status_of(event), CL_RUNNING);
}

static bool is_uneven(const struct shape *shape)
{
    bool uneven = false;
    for (cl_uint i = 0; i < shape->dims; i++)
        uneven = uneven || shape->global[i] % shape->local[i] != 0;
    return uneven;
}

Test(slices, every_shape_has_the_ids_of_one_launch)
{
    static const struct shape shapes[] = {
        {1, {0}, {1000}, {8}},
        {1, {0}, {1003}, {8}},
        {1, {77}, {1001}, {1}},
        {2, {0}, {40, 64}, {8, 2}},
        {2, {3, 5}, {41, 67}, {8, 2}},
        {2, {0}, {512, 3}, {4, 3}},
        {2, {1, 2}, {508, 1}, {4, 1}},
        {2, {3, 5}, {40, 66}, {8, 2}},
        {3, {0}, {8, 6, 30}, {4, 3, 2}},
        {3, {1, 2, 3}, {9, 7, 31}, {4, 3, 2}},
        {3, {1, 2, 3}, {8, 6, 30}, {4, 3, 2}},
        {3, {0}, {301, 2, 1}, {7, 2, 1}},
    };
    enum { ROUNDS = 10000 };
    struct scene s;
    cl_bool uneven;
    scene_open(&s, CONFIG, "1", "plain", 0, 16384);
    OK(clGetDeviceInfo(s.rig.device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof(uneven),
                       &uneven, NULL));
    uint64_t before = launches(&s, "one"), made = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *shape = &shapes[i];
        for (unsigned n = 0; n < 2 && (uneven || !is_uneven(shape)); n++) {
            cl_event event = launch(&s, shape, ROUNDS);
            add_wanted(&s, shape, ROUNDS);
            OK(clWaitForEvents(1, &event));
            cr_assert_eq(status_of(event), CL_COMPLETE);
            OK(clReleaseEvent(event));
            made++;
        }
        check(&s);
    }
    uint64_t pieces = launches(&s, "one") - before;
    cr_assert_gt(pieces, 2 * made, "%llu pieces of %llu launches", (unsigned long long)pieces,
                 (unsigned long long)made);
    scene_close(&s);
}

Test(slices, a_move_takes_place_between_pieces_and_no_group_runs_twice)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    for (unsigned n = 0; n < 3; n++) {
        cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
        add_wanted(&s, &long_shape, LONG_ROUNDS);
        cr_assert(is_cut(event));
        await_running(event);
        uint64_t before = launches(&s, n % 2 ? "one" : "two");
        engine_rig_moves(&s.rig, n % 2 ? "one" : "two");
        cr_assert_eq(status_of(event), CL_RUNNING, "the move waited for the whole launch");
        OK(clFinish(s.program.queue));
        cr_assert_eq(status_of(event), CL_COMPLETE);
        cr_assert_gt(launches(&s, n % 2 ? "one" : "two"), before + 1);
        OK(clReleaseEvent(event));
        check(&s);
    }
    scene_close(&s);
}

Test(slices, go_on_after_a_rollback_and_a_suspension_in_the_middle)
{
    struct scene s;
    struct move_report report;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    await_running(event);
    cr_assert_eq(emu_shared_arm(s.rig.emu, "two", 1, "clCreateKernel", 0), 0);
    cr_assert_neq(engine_rig_move(&s.rig, "two", &report), MOVE_DONE);
    cr_assert_eq(emu_shared_disarm(s.rig.emu, "two"), 0);
    cr_assert_eq(status_of(event), CL_RUNNING);
    engine_rig_moves(&s.rig, NULL);
    cr_assert_eq(status_of(event), CL_RUNNING, "the suspension waited for the whole launch");
    uint64_t before = launches(&s, "one");
    engine_rig_sleep(50);
    cr_assert_eq(launches(&s, "one"), before);
    engine_rig_moves(&s.rig, "two");
    check(&s);
    cr_assert_eq(status_of(event), CL_COMPLETE);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

Test(slices, what_comes_behind_waits_for_the_last_piece)
{
    struct scene s;
    cl_int error;
    cl_event last, read;
    scene_open(&s, CONFIG, "5", "plain", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 4096);
    cl_command_queue other =
        clCreateCommandQueue(s.program.context, s.rig.device, CL_QUEUE_PROFILING_ENABLE, &error);
    OK(error);
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    OK(clEnqueueReadBuffer(other, s.out, CL_FALSE, 0, s.count * sizeof(*s.words), s.words, 1,
                           &event, &read));
    OK(clEnqueueBarrierWithWaitList(s.program.queue, 0, NULL, &last));
    OK(clFlush(other));
    cr_assert_gt(status_of(last), CL_RUNNING);
    cr_assert_gt(status_of(read), CL_RUNNING);
    engine_rig_moves(&s.rig, "two");
    cr_assert_gt(status_of(read), CL_RUNNING);
    OK(clWaitForEvents(1, &last));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    OK(clWaitForEvents(1, &read));
    for (size_t i = 0; i < s.count; i++)
        cr_assert_eq(s.words[i], s.wanted[i]);
    OK(clReleaseEvent(last));
    OK(clReleaseEvent(read));
    OK(clReleaseEvent(event));
    OK(clReleaseCommandQueue(other));
    scene_close(&s);
}

struct calls {
    _Atomic unsigned count;
    cl_int statuses[8];
};

static void CL_CALLBACK note(cl_event event, cl_int status, void *data)
{
    struct calls *calls = data;
    (void)event;
    calls->statuses[atomic_load(&calls->count) % 8] = status;
    atomic_fetch_add(&calls->count, 1);
}

Test(slices, events_say_what_one_launch_says)
{
    struct scene s;
    struct calls calls = {0};
    const cl_uint none = 0;
    cl_ulong before_end, times[4], behind_start;
    cl_event marks[2];
    scene_open(&s, CONFIG, "5", "plain", CL_QUEUE_PROFILING_ENABLE, 4096);
    for (unsigned moved = 0; moved < 2; moved++) {
        atomic_store(&calls.count, 0);
        OK(clEnqueueFillBuffer(s.program.queue, s.out, &none, 4, 0, s.count * sizeof(*s.words), 0,
                               NULL, &marks[0]));
        cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
        OK(clEnqueueFillBuffer(s.program.queue, s.out, &none, 4, 0, 4, 0, NULL, &marks[1]));
        for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--)
            OK(clSetEventCallback(event, type, note, &calls));
        await_running(event);
        if (moved)
            engine_rig_moves(&s.rig, "two");
        OK(clFinish(s.program.queue));
        for (unsigned i = 0; i < 4; i++)
            OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof(times[i]),
                                       &times[i], NULL));
        OK(clGetEventProfilingInfo(marks[0], CL_PROFILING_COMMAND_END, sizeof(before_end),
                                   &before_end, NULL));
        OK(clGetEventProfilingInfo(marks[1], CL_PROFILING_COMMAND_START, sizeof(behind_start),
                                   &behind_start, NULL));
        cr_assert(times[0] <= times[1] && times[1] <= times[2] && times[2] < times[3]);
        cr_assert_geq(times[2], before_end);
        cr_assert_leq(times[3], behind_start);
        /* Hundreds of pieces, from the first to the last. */
        cr_assert_gt(times[3] - times[2], 20000000u);
        for (unsigned ms = 0; atomic_load(&calls.count) < 3 && ms < 5000; ms++)
            engine_rig_sleep(1);
        cr_assert_eq(atomic_load(&calls.count), 3);
        cr_assert_eq(calls.statuses[0], CL_SUBMITTED);
        cr_assert_eq(calls.statuses[1], CL_RUNNING);
        cr_assert_eq(calls.statuses[2], CL_COMPLETE);
        OK(clReleaseEvent(event));
        OK(clReleaseEvent(marks[0]));
        OK(clReleaseEvent(marks[1]));
    }
    scene_close(&s);
}

Test(slices, a_piece_that_fails_is_the_last_and_its_error_the_launchs)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event warm = launch(&s, &long_shape, LONG_ROUNDS);
    OK(clWaitForEvents(1, &warm));
    uint64_t before = launches(&s, "one");
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    cr_assert_eq(emu_shared_arm(s.rig.emu, "one", 4, "clEnqueueNDRangeKernel", CL_INVALID_VALUE),
                 0);
    OK(clFinish(s.program.queue));
    cr_assert_eq(emu_shared_fired(s.rig.emu, "one"), 1);
    /* Two that were given before, four, and two that were with the driver when that one failed. */
    cr_assert_leq(launches(&s, "one") - before, 8, "pieces go on after an error");
    before = launches(&s, "one");
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(status_of(event), CL_INVALID_VALUE);
    engine_rig_sleep(50);
    cr_assert_eq(launches(&s, "one"), before, "pieces go on after an error");
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(warm));
    scene_close(&s);
}

Test(slices, a_device_lost_in_the_middle_ends_the_launch_in_an_error)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    await_running(event);
    cr_assert_eq(emu_shared_vanish(s.rig.emu, "one"), 0);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(status_of(event), 0);
    (void)clFinish(s.program.queue);
    OK(clReleaseEvent(event));
}

Test(slices, arguments_are_those_of_the_call)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    set_args(&s, 1, 1, 1);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    check(&s);
    scene_close(&s);
}

Test(slices, a_kernel_that_may_wait_for_another_group_is_not_cut)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "waits", 0, 4096);
    uint64_t before = launches(&s, "one");
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    cr_assert_not(is_cut(event));
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(launches(&s, "one"), before + 1);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

Test(slices, short_launches_go_whole_once_they_were_measured)
{
    static const struct shape shape = {1, {0}, {256}, {16}};
    struct scene s;
    unsigned cut = 0;
    scene_open(&s, CONFIG, "50", "plain", 0, 4096);
    for (unsigned i = 0; i < 200; i++) {
        cl_event event = launch(&s, &shape, 1);
        OK(clWaitForEvents(1, &event));
        cut += is_cut(event);
        OK(clReleaseEvent(event));
    }
    cr_assert_geq(cut, 1);
    cr_assert_leq(cut, 12, "%u of 200 were measured", cut);
    scene_close(&s);
}

/* Groups, the last of which is smaller, are given once each and never alone. */
Test(slices, the_cursor_covers_every_group_once)
{
    static const struct {
        size_t global, local, offset, take;
    } cases[] = {{1000, 8, 0, 3},
                 {1003, 8, 5, 3},
                 {1003, 8, 0, 1},
                 {17, 16, 0, 1},
                 {1000000, 1, 0, 7},
                 {33, 16, 9, 1000},
                 {1ull << 33, 64, 1ull << 30, 1ull << 22}};
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct launch_space space = {1, &cases[i].offset, &cases[i].global, &cases[i].local};
        struct pieces pieces;
        size_t next = cases[i].offset, end = next + cases[i].global;
        cr_assert(pieces_begin(&space, residence_of(&s), &pieces));
        while (!pieces_are_given(&pieces)) {
            pieces_plan(&pieces, cases[i].take);
            cr_assert_eq(pieces_offset(&pieces), next);
            cr_assert_leq(next, INT32_MAX, "NVIDIA's driver would lose bits of it");
            next += pieces_size(&pieces);
            cr_assert(next == end || (next - cases[i].offset) % cases[i].local == 0);
            cr_assert(next == end || pieces_size(&pieces) == cases[i].take * cases[i].local);
            cr_assert_geq(pieces_size(&pieces), cases[i].local);
            pieces_take(&pieces);
        }
        cr_assert_eq(next, end);
    }
    scene_close(&s);
}

Test(slices, none_without_a_slice)
{
    struct scene s;
    scene_open(&s, CONFIG, "0", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
    cr_assert_not(is_cut(event));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    scene_close(&s);
}
