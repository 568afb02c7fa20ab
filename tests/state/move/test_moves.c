#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "state/memory/memory.h"
#include "state/program/kernel.h"
#include "tests/state/move/test_moves_common.h"

/* M2, M3: everything, around all places. */

Test(moves, carry_everything_there_and_back)
{
    struct engine_rig rig;
    static struct state s;
    engine_rig_open(&rig, CONFIG);
    state_make(&rig, &s);
    state_hold(&s);
    state_check(&s, "before any move");
    static const char *const places[] = {"two", "one", NULL, "two", NULL, "one"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        engine_rig_moves(&rig, places[i]);
        const char *left = places[i] && strcmp(places[i], "one") == 0 ? "two" : "one";
        cr_assert(engine_rig_empties(&rig, left), "alive on %s: %s", left,
                  engine_rig_alive(&rig, left));
        if (!places[i])
            continue;
        state_check(&s, places[i]);
        state_step(&s, places[i]);
    }
    state_let_go(&s);
    state_check(&s, "after what was held");
    state_finish(&s);
    cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
}

Test(moves, carry_everything_between_devices_of_pocl)
{
    struct engine_rig rig;
    static struct state s;
    engine_rig_open_pocl(&rig, "basic pthread");
    state_make(&rig, &s);
    state_hold(&s);
    engine_rig_moves(&rig, rig.devices[1]->key.device);
    state_check(&s, "there");
    state_step(&s, "there");
    state_let_go(&s);
    engine_rig_moves(&rig, rig.devices[0]->key.device);
    state_check(&s, "back");
    state_step(&s, "back");
    state_finish(&s);
}

/* A program that maps for good, writes through the pointer, and is moved. */
Test(moves, leave_nothing_behind_of_maps_that_last)
{
    static const cl_mem_flags flags[] = {0, CL_MEM_ALLOC_HOST_PTR, CL_MEM_USE_HOST_PTR};
    struct engine_rig rig;
    struct engine_program p;
    cl_uint *pointers[ARRAY_SIZE(flags)];
    cl_mem buffers[ARRAY_SIZE(flags)];
    void *host = aligned_alloc(4096, SIZE);
    memset(host, 0, SIZE);
    engine_rig_open(&rig, "[one] name=one [two] name=two [cpu] name=cpu host_unified=yes");
    engine_program_open(&rig, 0, NULL, &p);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        buffers[i] = engine_buffer(p.context, CL_MEM_READ_WRITE | flags[i], SIZE,
                                   flags[i] == CL_MEM_USE_HOST_PTR ? host : NULL);
        pointers[i] = MADE(clEnqueueMapBuffer, p.queue, buffers[i], CL_TRUE,
                           CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, 0, NULL, NULL);
    }
    static const char *const places[] = {"two", "cpu", NULL, "cpu", "one", NULL, "two"};
    const char *before = "one";
    for (cl_uint step = 0; step < ARRAY_SIZE(places); step++) {
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
            pointers[i][step] = 100 * step + (cl_uint)i;
        engine_rig_moves(&rig, places[step]);
        cr_assert(!before || engine_rig_empties(&rig, before), "alive on %s: %s", before,
                  engine_rig_alive(&rig, before));
        before = places[step];
    }
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        cl_uint words[ARRAY_SIZE(places)];
        OK(clEnqueueUnmapMemObject(p.queue, buffers[i], pointers[i], 0, NULL, NULL));
        OK(clEnqueueReadBuffer(p.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        for (cl_uint step = 0; step < ARRAY_SIZE(places); step++)
            cr_assert_eq(words[step], 100 * step + i, "buffer %zu, word %u", i, step);
        OK(clReleaseMemObject(buffers[i]));
    }
    engine_program_close(&p);
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
    free(host);
}

#define TIMES 12

/* Devices have clocks of their own: this one began long after the other. */

#define CLOCK_BEHIND 3600000000000u /* ns */

static const cl_icd_dispatch *before_clock;

static cl_int CL_API_CALL other_clock(cl_event event, cl_profiling_info name, size_t size,
                                      void *value, size_t *ret_size)
{
    cl_ulong time;
    cl_int error = before_clock->clGetEventProfilingInfo(event, name, size, value, ret_size);
    if (error != CL_SUCCESS || !value)
        return error;
    memcpy(&time, value, sizeof(time));
    time -= CLOCK_BEHIND;
    memcpy(value, &time, sizeof(time));
    return error;
}

static void set_clock_back(struct device *device)
{
    static cl_icd_dispatch table;
    before_clock = device->cl;
    table = *device->cl;
    table.clGetEventProfilingInfo = other_clock;
    device->cl = &table;
}

/* Profiling times go on in one clock, and stay what they were. */
Test(moves, keep_profiling_times_increasing)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_event events[TIMES];
    cl_ulong times[TIMES][4], last = 0;
    cl_uint one = 1;
    engine_rig_open(&rig, CONFIG);
    set_clock_back(rig.devices[1]);
    engine_program_open(&rig, CL_QUEUE_PROFILING_ENABLE, SOURCE, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_kernel add = engine_kernel(p.program, "add");
    ARGS(add, buffer, one);
    for (int i = 0; i < TIMES; i++) {
        launch(p.queue, add, WORDS, 0, &events[i]);
        OK(clWaitForEvents(1, &events[i]));
        for (cl_uint j = 0; j < 4; j++) {
            OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_QUEUED + j, sizeof(last),
                                       &times[i][j], NULL));
            cr_assert_geq(times[i][j], last, "command %d, time %u: back by %llu ns", i, j,
                          (unsigned long long)(last - times[i][j]));
            cr_assert(i == 0 || times[i][j] - last < 60000000000u, "a jump");
            last = times[i][j];
        }
        if (i % 3 == 2)
            engine_rig_moves(&rig, NULL);
        engine_rig_moves(&rig, i % 2 ? "one" : "two");
        cr_assert(i % 3 == 2 || engine_rig_empties(&rig, i % 2 ? "two" : "one"));
    }
    for (int i = 0; i < TIMES; i++)
        for (cl_uint j = 0; j < 4; j++) {
            cl_ulong time;
            OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_QUEUED + j, sizeof(time),
                                       &time, NULL));
            cr_assert_eq(time, times[i][j], "command %d, time %u changed", i, j);
        }
}

/* At any time. */

Test(moves, go_back_to_back, .timeout = 240)
{
    struct engine_rig rig;
    static struct state s;
    engine_rig_open(&rig, CONFIG);
    state_make(&rig, &s);
    state_hold(&s);
    for (int i = 0; i < 100; i++)
        engine_rig_moves(&rig, i % 2 ? "one" : "two");
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
    state_check(&s, "after 100 moves");
    state_step(&s, "after 100 moves");
    state_let_go(&s);
    state_finish(&s);
    cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
}

Test(moves, go_before_there_is_a_context)
{
    struct engine_rig rig;
    static struct state s;
    engine_rig_open(&rig, CONFIG);
    engine_rig_moves(&rig, "two");
    cr_assert_str_eq(place_of_vdev(), "two");
    state_make(&rig, &s);
    cr_assert_eq(emu_shared_live(rig.emu, "one", EMU_CONTEXT), 0);
    state_hold(&s);
    engine_rig_moves(&rig, "one");
    state_check(&s, "made on two");
    state_let_go(&s);
}

static struct {
    struct engine_rig rig;
    atomic_bool stop;
    _Atomic unsigned made, failed;
} busy;

static void *build_on(void *data)
{
    struct engine_program *p = data;
    const char *text = SOURCE;
    for (cl_uint i = 0; !atomic_load(&busy.stop); i++) {
        cl_int error;
        cl_program program = clCreateProgramWithSource(p->context, 1, &text, NULL, &error);
        if (error != CL_SUCCESS || clBuildProgram(program, 0, NULL, "", NULL, NULL) != CL_SUCCESS)
            atomic_fetch_add(&busy.failed, 1);
        cl_kernel kernel = clCreateKernel(program, i % 2 ? "add" : "share", &error);
        if (error != CL_SUCCESS || clReleaseKernel(kernel) != CL_SUCCESS ||
            clReleaseProgram(program) != CL_SUCCESS)
            atomic_fetch_add(&busy.failed, 1);
        atomic_fetch_add(&busy.made, 1);
    }
    return NULL;
}

static void *make_contexts(void *data)
{
    (void)data;
    while (!atomic_load(&busy.stop)) {
        cl_int error;
        cl_uint in = 42, out = 0;
        cl_context context = clCreateContext(NULL, 1, &busy.rig.device, NULL, NULL, &error);
        cl_command_queue queue = clCreateCommandQueue(context, busy.rig.device, 0, &error);
        cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(in), &in, &error);
        if (error != CL_SUCCESS ||
            clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(out), &out, 0, NULL, NULL) !=
                CL_SUCCESS ||
            out != in || clReleaseMemObject(buffer) != CL_SUCCESS ||
            clReleaseCommandQueue(queue) != CL_SUCCESS || clReleaseContext(context) != CL_SUCCESS)
            atomic_fetch_add(&busy.failed, 1);
        atomic_fetch_add(&busy.made, 1);
    }
    return NULL;
}

/* Moves may roll back: the program is faster now and then. They must not fail otherwise. */
static void move_while(void *(*run)(void *), void *data)
{
    pthread_t thread;
    unsigned done = 0;
    cr_assert_eq(pthread_create(&thread, NULL, run, data), 0);
    uint64_t until = engine_rig_now() + 100000000000u;
    while (engine_rig_now() < until && (done < 20 || atomic_load(&busy.made) < 20)) {
        struct move_report report;
        const char *to = strcmp(place_of_vdev(), "one") == 0 ? "two" : "one";
        if (engine_rig_move(&busy.rig, to, &report) == MOVE_DONE)
            done++;
        else
            cr_assert_not_null(strstr(report.reason, "faster"), "%s", report.reason);
    }
    atomic_store(&busy.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(atomic_load(&busy.failed), 0, "%u calls of the program failed", busy.failed);
    cr_assert_geq(done, 20, "only %u moves", done);
    cr_assert_geq(atomic_load(&busy.made), 20);
}

/* One at least is there at any time. */
static void *replace_contexts(void *data)
{
    cl_context last = NULL;
    (void)data;
    while (!atomic_load(&busy.stop)) {
        cl_int error;
        cl_context context = clCreateContext(NULL, 1, &busy.rig.device, NULL, NULL, &error);
        if (error != CL_SUCCESS || (last && clReleaseContext(last) != CL_SUCCESS))
            atomic_fetch_add(&busy.failed, 1);
        last = context;
        atomic_fetch_add(&busy.made, 1);
        usleep(1000);
    }
    OK(clReleaseContext(last));
    return NULL;
}

static void *replace_programs(void *data)
{
    struct engine_program *p = data;
    const char *text = SOURCE;
    cl_program last = NULL;
    while (!atomic_load(&busy.stop)) {
        cl_int error;
        cl_program program = clCreateProgramWithSource(p->context, 1, &text, NULL, &error);
        if (error != CL_SUCCESS || clBuildProgram(program, 0, NULL, "", NULL, NULL) != CL_SUCCESS ||
            (last && clReleaseProgram(last) != CL_SUCCESS))
            atomic_fetch_add(&busy.failed, 1);
        last = program;
        atomic_fetch_add(&busy.made, 1);
        usleep(1000);
    }
    OK(clReleaseProgram(last));
    return NULL;
}

/* The target needs longer to build a program than this to build the next: one is built while the
 * program is paused, maybe in the middle of a build of its own. */
Test(moves, go_to_where_programs_take_longer_to_build, .timeout = 240)
{
    pthread_t thread;
    struct engine_program p;
    engine_rig_open(&busy.rig, "[one] name=one base=1 own_memory=yes "
                               "[two] name=two base=1 own_memory=yes build_ms=30");
    engine_program_open(&busy.rig, 0, SOURCE, &p);
    cr_assert_eq(pthread_create(&thread, NULL, replace_programs, &p), 0);
    while (atomic_load(&busy.made) < 20)
        usleep(1000);
    engine_rig_moves(&busy.rig, "two");
    atomic_store(&busy.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(atomic_load(&busy.failed), 0, "%u calls of the program failed", busy.failed);
    engine_program_close(&p);
}

/* The target needs longer to open a context than the program to make the next. */
Test(moves, go_to_where_contexts_take_longer_to_make, .timeout = 240)
{
    pthread_t thread;
    engine_rig_open(&busy.rig, "[one] name=one base=1 own_memory=yes "
                               "[two] name=two base=1 own_memory=yes context_ms=100");
    cr_assert_eq(pthread_create(&thread, NULL, replace_contexts, NULL), 0);
    while (atomic_load(&busy.made) < 20)
        usleep(1000);
    engine_rig_moves(&busy.rig, "two");
    cr_assert_lt(emu_shared_calls(busy.rig.emu, "two", "clCreateContext"), 40);
    atomic_store(&busy.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(atomic_load(&busy.failed), 0, "%u calls of the program failed", busy.failed);
}

Test(moves, go_while_another_thread_builds, .timeout = 240)
{
    struct engine_program p;
    engine_rig_open(&busy.rig, CONFIG);
    engine_program_open(&busy.rig, 0, SOURCE, &p);
    move_while(build_on, &p);
    engine_program_close(&p);
    for (int i = 0; i < 2; i++)
        cr_assert(engine_rig_empties(&busy.rig, i ? "one" : "two"), "alive: %s",
                  engine_rig_alive(&busy.rig, i ? "one" : "two"));
}

Test(moves, go_while_another_thread_makes_contexts, .timeout = 240)
{
    engine_rig_open(&busy.rig, CONFIG);
    move_while(make_contexts, NULL);
    for (int i = 0; i < 2; i++)
        cr_assert(engine_rig_empties(&busy.rig, i ? "one" : "two"), "alive: %s",
                  engine_rig_alive(&busy.rig, i ? "one" : "two"));
}

static void *move_for_ever(void *data)
{
    struct move_report report;
    (void)data;
    for (unsigned i = 0;; i++) {
        (void)engine_rig_move(&busy.rig, i % 2 ? "one" : "two", &report);
        atomic_fetch_add(&busy.made, 1);
    }
    return NULL;
}

Test(moves, go_while_the_program_exits, .timeout = 60, .exit_code = 7)
{
    static struct state s;
    pthread_t thread;
    engine_rig_open(&busy.rig, CONFIG);
    state_make(&busy.rig, &s);
    cr_assert_eq(pthread_create(&thread, NULL, move_for_ever, NULL), 0);
    while (atomic_load(&busy.made) < 5)
        engine_rig_sleep(1);
    exit(7);
}

/* Many objects. */

#define MANY_BUFFERS 10000
#define MANY_KERNELS 1000
#define STATE_MAX    512 /* bytes */

static size_t slot_size(enum object_type type)
{
    return object_regions[type].slot_mask + 1;
}

static size_t heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What the driver itself keeps for the same objects is not state of ours. */

static size_t drivers_buffers(const struct residence *residence)
{
    static cl_mem buffers[MANY_BUFFERS];
    size_t before = heap();
    for (size_t i = 0; i < MANY_BUFFERS; i++) {
        buffers[i] =
            MADE(residence->cl->clCreateBuffer, residence->context, CL_MEM_READ_WRITE, 64, NULL);
    }
    size_t taken = heap() - before;
    for (size_t i = 0; i < MANY_BUFFERS; i++)
        OK(residence->cl->clReleaseMemObject(buffers[i]));
    return taken;
}

static size_t drivers_kernels(const struct residence *residence, cl_program real)
{
    static cl_kernel kernels[MANY_KERNELS];
    size_t before = heap();
    for (size_t i = 0; i < MANY_KERNELS; i++)
        kernels[i] = MADE(residence->cl->clCreateKernel, real, "add");
    size_t taken = heap() - before;
    for (size_t i = 0; i < MANY_KERNELS; i++)
        OK(residence->cl->clReleaseKernel(kernels[i]));
    return taken;
}

static void check_state(enum object_type type, size_t count, size_t taken, size_t drivers)
{
    size_t size = object_classes[type]->size;
    size_t each = size + (taken > drivers ? (taken - drivers) / count : 0);
    cr_assert_lt(each, STATE_MAX, "type %d: %zu bytes an object, %zu of them its own", (int)type,
                 each, size);
    cr_assert_leq(slot_size(type), STATE_MAX);
}

Test(moves, carry_ten_thousand_buffers_and_a_thousand_kernels, .timeout = 240)
{
    static cl_mem buffers[MANY_BUFFERS];
    static cl_kernel kernels[MANY_KERNELS];
    struct engine_rig rig;
    struct engine_program p;
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, SOURCE, &p);
    OK(clReleaseKernel(engine_kernel(p.program, "add"))); /* what is once a program */
    const struct program *program = program_get(p.program);
    const struct residence *residence = program->context->at[0];
    size_t drivers = drivers_buffers(residence), before = heap();
    for (cl_uint i = 0; i < MANY_BUFFERS; i++)
        buffers[i] = engine_buffer(p.context, CL_MEM_READ_WRITE, 64, NULL);
    check_state(OBJECT_MEMORY, MANY_BUFFERS, heap() - before, drivers);
    drivers = drivers_kernels(residence, program->real[0]);
    before = heap();
    for (cl_uint i = 0; i < MANY_KERNELS; i++)
        kernels[i] = engine_kernel(p.program, "add");
    check_state(OBJECT_KERNEL, MANY_KERNELS, heap() - before, drivers);
    for (cl_uint i = 0; i < MANY_BUFFERS; i++)
        OK(clEnqueueWriteBuffer(p.queue, buffers[i], CL_FALSE, 0, sizeof(i), &i, 0, NULL, NULL) ||
           clFinish(p.queue));
    for (cl_uint i = 0; i < MANY_KERNELS; i++)
        ARGS(kernels[i], buffers[i * 10], i);
    engine_rig_moves(&rig, "two");
    cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
    for (cl_uint i = 0; i < MANY_KERNELS; i++)
        launch(p.queue, kernels[i], 1, 0, NULL);
    OK(clFinish(p.queue));
    for (cl_uint i = 0; i < MANY_BUFFERS; i++) {
        cl_uint word;
        OK(clEnqueueReadBuffer(p.queue, buffers[i], CL_TRUE, 0, sizeof(word), &word, 0, NULL,
                               NULL));
        cr_assert_eq(word, i + (i % 10 ? 0 : i / 10), "buffer %u", i);
    }
}
