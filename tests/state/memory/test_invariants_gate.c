#include <pthread.h>

#include "tests/support/engine_rig.h"

/* G2: nobody waits inside the gate. G3: callbacks run outside it. */

/* On POCL's device with threads of its own, so that kernels take their time outside of calls. */
static const char *const config = "[one] name=one base=1 [two] name=two base=1";

static const char *const source =
    "__kernel void spin(__global uint *words, uint rounds)\n"
    "{ uint x = words[0]; for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u + i;\n"
    "  words[0] = x; }\n"
    "__kernel void add(__global uint *words, uint value)\n"
    "{ words[get_global_id(0)] += value; }\n";

#define SPIN_ROUNDS 600000000u /* several tenths of a second */
#define SOON        1500 /* ms: much less than a test's time, more than a loaded machine adds */

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel spin, add;
    cl_mem buffer, other;
    cl_event user;
    cl_uint words[1024];
    atomic_bool returned;
};

static void scene_open(struct scene *s)
{
    cl_uint rounds = SPIN_ROUNDS, one = 1;
    engine_rig_open(&s->rig, config);
    engine_program_open(&s->rig, 0, source, &s->program);
    s->spin = engine_kernel(s->program.program, "spin");
    s->add = engine_kernel(s->program.program, "add");
    s->buffer = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, sizeof(s->words), s->words);
    s->other = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, sizeof(s->words), s->words);
    ARGS(s->spin, s->buffer, rounds);
    ARGS(s->add, s->other, one);
}

static void launch(struct scene *s, cl_kernel kernel, size_t items, cl_event wait)
{
    OK(clEnqueueNDRangeKernel(s->program.queue, kernel, 1, NULL, &items, NULL, wait ? 1 : 0,
                              wait ? &wait : NULL, NULL));
}

static void scene_hold(struct scene *s)
{
    s->user = MADE(clCreateUserEvent, s->program.context);
    launch(s, s->add, 1024, s->user);
}

/* What a thread of the program is blocked in. */

static void *wait_for_event(void *data)
{
    struct scene *s = data;
    clWaitForEvents(1, &s->user);
    atomic_store(&s->returned, true);
    return NULL;
}

static void *finish_queue(void *data)
{
    struct scene *s = data;
    clFinish(s->program.queue);
    atomic_store(&s->returned, true);
    return NULL;
}

static void *read_behind(void *data)
{
    struct scene *s = data;
    clEnqueueReadBuffer(s->program.queue, s->other, CL_TRUE, 0, sizeof(s->words), s->words, 0, NULL,
                        NULL);
    atomic_store(&s->returned, true);
    return NULL;
}

static void *write_behind(void *data)
{
    struct scene *s = data;
    clEnqueueWriteBuffer(s->program.queue, s->buffer, CL_TRUE, 0, 4, s->words, 0, NULL, NULL);
    atomic_store(&s->returned, true);
    return NULL;
}

static void *map_behind(void *data)
{
    struct scene *s = data;
    cl_int error;
    void *map = clEnqueueMapBuffer(s->program.queue, s->other, CL_TRUE, CL_MAP_READ, 0,
                                   sizeof(s->words), 0, NULL, NULL, &error);
    if (map)
        clEnqueueUnmapMemObject(s->program.queue, s->other, map, 0, NULL, NULL);
    atomic_store(&s->returned, true);
    return NULL;
}

static void check_moves_while_blocked(void *(*blocked)(void *))
{
    static struct scene s;
    pthread_t thread;
    scene_open(&s);
    scene_hold(&s);
    cr_assert_eq(pthread_create(&thread, NULL, blocked, &s), 0);
    engine_rig_sleep(50);
    for (int i = 0; i < 3; i++) {
        struct move_report report;
        struct move_request request = {.target = engine_rig_key(&s.rig, i % 2 ? "one" : "two"),
                                       .deadline_ns = engine_rig_now() + 20000000000u};
        move_run(&request, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
        cr_assert_not(atomic_load(&s.returned), "the program did not wait");
    }
    OK(clSetUserEventStatus(s.user, CL_COMPLETE));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    OK(clFinish(s.program.queue));
    OK(clEnqueueReadBuffer(s.program.queue, s.other, CL_TRUE, 0, sizeof(s.words), s.words, 0, NULL,
                           NULL));
    for (size_t i = 0; i < ARRAY_SIZE(s.words); i++)
        cr_assert_eq(s.words[i], 1, "word %zu", i);
}

TestCall(g2, a_thread_in_clWaitForEvents_on_a_user_event_stops_no_move,
         check_moves_while_blocked(wait_for_event), .timeout = 60);
TestCall(g2, a_thread_in_clFinish_behind_a_user_event_stops_no_move,
         check_moves_while_blocked(finish_queue), .timeout = 60);
TestCall(g2, a_thread_in_a_blocking_read_behind_a_user_event_stops_no_move,
         check_moves_while_blocked(read_behind), .timeout = 60);
TestCall(g2, a_thread_in_a_blocking_map_behind_a_user_event_stops_no_move,
         check_moves_while_blocked(map_behind), .timeout = 60);

/* The device computes, a thread waits for that in the driver: the gate closes all the same. */
static void check_gate_closes(void *(*blocked)(void *))
{
    static struct scene s;
    pthread_t thread;
    scene_open(&s);
    launch(&s, s.spin, 1, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, blocked, &s), 0);
    engine_rig_sleep(100);
    uint64_t before = engine_rig_now();
    cr_assert_eq(gate_close(before + 100000000u), 0, "somebody waits inside");
    bool returned = atomic_load(&s.returned);
    gate_open();
    cr_assert_not(returned, "the kernel was too quick to tell");
    engine_rig_moves(&s.rig, "two");
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

TestCall(g2, the_gate_closes_while_a_thread_finishes_a_long_kernel, check_gate_closes(finish_queue),
         .timeout = 60);
TestCall(g2, the_gate_closes_while_a_thread_reads_behind_a_long_kernel,
         check_gate_closes(read_behind), .timeout = 60);
TestCall(g2, the_gate_closes_while_a_thread_writes_behind_a_long_kernel,
         check_gate_closes(write_behind), .timeout = 60);
TestCall(g2, the_gate_closes_while_a_thread_maps_behind_a_long_kernel,
         check_gate_closes(map_behind), .timeout = 60);

/* G3. */

static struct {
    struct engine_program program;
    _Atomic unsigned events, builds, mems, contexts, inside, failed;
} calls;

/* What a callback may do: anything. */
static void use_opencl(void)
{
    cl_int error;
    if (gate_is_inside())
        atomic_fetch_add(&calls.inside, 1);
    cl_mem buffer = clCreateBuffer(calls.program.context, CL_MEM_READ_WRITE, 4096, NULL, &error);
    if (error != CL_SUCCESS || clFinish(calls.program.queue) != CL_SUCCESS ||
        clReleaseMemObject(buffer) != CL_SUCCESS)
        atomic_fetch_add(&calls.failed, 1);
}

static void CL_CALLBACK event_called(cl_event event, cl_int status, void *data)
{
    (void)data;
    cl_uint refs;
    use_opencl();
    if (status != CL_COMPLETE ||
        clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof(refs), &refs, NULL) != CL_SUCCESS)
        atomic_fetch_add(&calls.failed, 1);
    atomic_fetch_add(&calls.events, 1);
}

static void CL_CALLBACK build_called(cl_program program, void *data)
{
    (void)program;
    (void)data;
    use_opencl();
    atomic_fetch_add(&calls.builds, 1);
}

static void CL_CALLBACK memory_called(cl_mem memory, void *data)
{
    (void)memory;
    (void)data;
    use_opencl();
    atomic_fetch_add(&calls.mems, 1);
}

static void CL_CALLBACK context_called(cl_context context, void *data)
{
    (void)context;
    (void)data;
    use_opencl();
    atomic_fetch_add(&calls.contexts, 1);
}

static atomic_bool stop_moving;
static atomic_uint moved;

static void *move_on(void *data)
{
    const struct engine_rig *rig = data;
    struct move_report report;
    for (unsigned i = 0; !atomic_load(&stop_moving); i++) {
        if (engine_rig_move(rig, i % 2 ? "one" : "two", &report) != MOVE_DONE)
            atomic_fetch_add(&calls.failed, 1);
        atomic_fetch_add(&moved, 1);
    }
    return NULL;
}

#define ROUNDS 60

static void play_round(const struct engine_rig *rig, cl_kernel add)
{
    const size_t items = 1024;
    const char *text = source;
    cl_event event;
    cl_mem buffer = engine_buffer(calls.program.context, CL_MEM_READ_WRITE, 4096, NULL);
    OK(clSetMemObjectDestructorCallback(buffer, memory_called, NULL));
    OK(clSetKernelArg(add, 0, sizeof(cl_mem), &buffer));
    OK(clEnqueueNDRangeKernel(calls.program.queue, add, 1, NULL, &items, NULL, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, event_called, NULL));
    cl_event user = MADE(clCreateUserEvent, calls.program.context);
    OK(clSetEventCallback(user, CL_COMPLETE, event_called, NULL));
    cl_context context = MADE(clCreateContext, NULL, 1, &rig->device, NULL, NULL);
    OK(clSetContextDestructorCallback(context, context_called, NULL));
    cl_program program = MADE(clCreateProgramWithSource, context, 1, &text, NULL);
    OK(clBuildProgram(program, 0, NULL, "", build_called, NULL));
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    RELEASE(program, context);
    OK(clFinish(calls.program.queue));
    RELEASE(event, user, buffer);
}

static void wait_until(_Atomic unsigned *count, unsigned wanted, const char *what)
{
    for (unsigned ms = 0; atomic_load(count) < wanted && ms < 10 * SOON; ms++)
        engine_rig_sleep(1);
    engine_rig_sleep(2); /* one too many comes late */
    cr_assert_eq(atomic_load(count), wanted, "%u callbacks of %s, expected %u", atomic_load(count),
                 what, wanted);
}

Test(g3, callbacks_run_outside_the_gate_and_once_while_moves_go_on, .timeout = 240)
{
    struct engine_rig rig;
    pthread_t mover;
    cl_uint one = 1;
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, source, &calls.program);
    cl_kernel add = engine_kernel(calls.program.program, "add");
    OK(clSetKernelArg(add, 1, sizeof(one), &one));
    cr_assert_eq(pthread_create(&mover, NULL, move_on, &rig), 0);
    /* One round a move: a program that builds on and on rightly has its moves give up. */
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned before = atomic_load(&moved);
        play_round(&rig, add);
        while (atomic_load(&moved) == before)
            engine_rig_sleep(1);
    }
    wait_until(&calls.events, 2 * ROUNDS, "events");
    wait_until(&calls.builds, ROUNDS, "builds");
    wait_until(&calls.mems, ROUNDS, "memory objects");
    wait_until(&calls.contexts, ROUNDS, "contexts");
    atomic_store(&stop_moving, true);
    cr_assert_eq(pthread_join(mover, NULL), 0);
    struct vdev_status status;
    status_vdev(0, &status);
    cr_assert_geq(status.moves, ROUNDS, "hardly any move");
    cr_assert_eq(atomic_load(&calls.inside), 0, "%u callbacks ran inside the gate", calls.inside);
    cr_assert_eq(atomic_load(&calls.failed), 0, "%u failures", calls.failed);
}

/* Callbacks of a command that waits while the program is moved. */
Test(g3, a_callback_that_is_pending_over_moves_comes_once, .timeout = 60)
{
    static struct scene s;
    const size_t items = 1024;
    cl_event event;
    scene_open(&s);
    calls.program = s.program;
    s.user = MADE(clCreateUserEvent, s.program.context);
    OK(clEnqueueNDRangeKernel(s.program.queue, s.add, 1, NULL, &items, NULL, 1, &s.user, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, event_called, NULL));
    OK(clSetEventCallback(s.user, CL_COMPLETE, event_called, NULL));
    engine_rig_moves(&s.rig, "two");
    cr_assert(engine_rig_empties(&s.rig, "one"), "alive: %s", engine_rig_alive(&s.rig, "one"));
    cr_assert_eq(atomic_load(&calls.events), 0);
    engine_rig_moves(&s.rig, NULL);
    engine_rig_moves(&s.rig, "one");
    OK(clSetUserEventStatus(s.user, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    wait_until(&calls.events, 2, "events");
    engine_rig_moves(&s.rig, "two");
    wait_until(&calls.events, 2, "events after another move");
    cr_assert_eq(atomic_load(&calls.inside), 0);
    cr_assert_eq(atomic_load(&calls.failed), 0);
}

/* A mover may be the last who holds an object that the program released. */
Test(g3, a_destructor_of_what_ends_inside_the_gate_runs_outside, .timeout = 60)
{
    static struct scene s;
    scene_open(&s);
    calls.program = s.program;
    cl_mem buffer = engine_buffer(s.program.context, CL_MEM_READ_WRITE, 4096, NULL);
    OK(clSetMemObjectDestructorCallback(buffer, memory_called, NULL));
    object_hold(buffer);
    OK(clReleaseMemObject(buffer));
    cr_assert_eq(gate_close(0), 0);
    object_unhold(buffer);
    gate_open();
    wait_until(&calls.mems, 1, "memory objects");
    cr_assert_eq(atomic_load(&calls.inside), 0);
    cr_assert_eq(atomic_load(&calls.failed), 0);
}
