#include <pthread.h>

#include "state/base/memory/pages.h"
#include "state/memory/memory.h"
#include "tests/support/engine_rig.h"
#include "tests/support/patience.h"

/* Programs with several virtual devices. */

enum { VDEVS_USED = 2, WORDS = 4096, SIZE = WORDS * 4, HALF = WORDS / 2 };

static const char config[] = "[one] name=one [two] name=two [three] name=three";
static const char *const places[] = {"one", "two", "three"};
static const char source[] =
    "__kernel void add(__global uint *a, uint k) { a[get_global_id(0)] += k + get_global_id(0); }";

TestSuite(vdevs, .timeout = 120);

struct duo {
    struct engine_rig rig;
    cl_device_id devices[VDEVS_USED];
    cl_context context;
    cl_program program;
    cl_command_queue queues[VDEVS_USED];
    cl_kernel add[VDEVS_USED];
    cl_mem buffer, halves[VDEVS_USED];
    cl_uint words[WORDS];
};

/* On the rig that is open. */
static void duo_begin(struct duo *d)
{
    const char *program = source;
    d->devices[0] = d->rig.device;
    d->devices[1] = engine_rig_vdev(&d->rig, "two");
    d->context = MADE(clCreateContext, NULL, VDEVS_USED, d->devices, NULL, NULL);
    d->program = BUILT(d->context, program, "");
    for (cl_uint i = 0; i < WORDS; i++)
        d->words[i] = i * 2654435761u;
    d->buffer = engine_buffer(d->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, d->words);
    for (cl_uint i = 0; i < VDEVS_USED; i++) {
        const cl_buffer_region region = {i * HALF * 4, HALF * 4};
        d->halves[i] = MADE(clCreateSubBuffer, d->buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
        d->queues[i] =
            MADE(clCreateCommandQueue, d->context, d->devices[i], CL_QUEUE_PROFILING_ENABLE);
        d->add[i] = engine_kernel(d->program, "add");
    }
}

static void duo_open(struct duo *d, const char *text)
{
    engine_rig_open(&d->rig, text);
    duo_begin(d);
}

static void duo_close(struct duo *d)
{
    for (cl_uint i = 0; i < VDEVS_USED; i++)
        RELEASE(d->add[i], d->queues[i], d->halves[i]);
    RELEASE(d->buffer, d->program, d->context);
}

/* @mem: the buffer, or the half that begins at @first. */
static void add_to(struct duo *d, cl_uint on, cl_mem mem, cl_uint first, cl_uint count, cl_uint k,
                   const cl_event *wait, cl_event *ret_event)
{
    const size_t items = count;
    OK(clSetKernelArg(d->add[on], 0, sizeof(mem), &mem));
    OK(clSetKernelArg(d->add[on], 1, sizeof(k), &k));
    OK(clEnqueueNDRangeKernel(d->queues[on], d->add[on], 1, NULL, &items, NULL, wait ? 1 : 0, wait,
                              ret_event));
    for (cl_uint i = 0; i < count; i++)
        d->words[first + i] += k + i;
}

static void check(struct duo *d, cl_uint on, const char *when)
{
    static cl_uint got[WORDS];
    OK(clEnqueueReadBuffer(d->queues[on], d->buffer, CL_TRUE, 0, SIZE, got, 0, NULL, NULL));
    cr_assert(memcmp(got, d->words, SIZE) == 0, "%s, read by %u", when, on);
    engine_read_there(d->queues[on], d->buffer, 0, SIZE, got);
    cr_assert(memcmp(got, d->words, SIZE) == 0, "%s, read on %u", when, on);
}

static enum move_result move_vdev(const struct duo *d, uint32_t vdev, const char *to)
{
    struct move_request request = {.target = to ? engine_rig_key(&d->rig, to) : NULL, .vdev = vdev};
    struct move_report report;
    move_run(&request, &report);
    return report.result;
}

static void moves(const struct duo *d, uint32_t vdev, const char *to)
{
    cr_assert_eq(move_vdev(d, vdev, to), MOVE_DONE, "seat %u to %s", vdev, to ? to : "memory");
}

Test(vdevs, what_one_does_goes_on_while_the_other_is_suspended)
{
    static struct duo d;
    duo_open(&d, config);
    for (cl_uint awake = 0; awake < VDEVS_USED; awake++) {
        cl_uint away = 1 - awake;
        moves(&d, away, NULL);
        add_to(&d, awake, d.buffer, 0, WORDS, 3, NULL, NULL);
        check(&d, awake, "while the other is suspended");
        cl_mem more = engine_buffer(d.context, CL_MEM_READ_WRITE, SIZE, NULL);
        cl_kernel kernel = engine_kernel(d.program, "add");
        OK(clSetKernelArg(kernel, 0, sizeof(more), &more));
        cl_command_queue queue = MADE(clCreateCommandQueue, d.context, d.devices[awake], 0);
        cl_context context = MADE(clCreateContext, NULL, VDEVS_USED, d.devices, NULL, NULL);
        cl_mem other = engine_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
        moves(&d, away, places[away]);
        cl_command_queue late = MADE(clCreateCommandQueue, context, d.devices[away], 0);
        OK(clEnqueueWriteBuffer(late, other, CL_TRUE, 0, SIZE, d.words, 0, NULL, NULL));
        check(&d, away, "resumed");
        RELEASE(other, late, context, queue, kernel, more);
    }
    duo_close(&d);
}

/* Wherever the bytes are that one left on demand: the other uses them, comes to where they are, or
 * has them fetched. */
Test(vdevs, what_one_left_on_demand_is_there_for_both, .timeout = 300)
{
    static struct duo d;
    unsigned seed = 20261124, on_demand = 0;
    duo_open(&d, config);
    for (unsigned step = 0; step < 300; step++) {
        cl_uint on = (cl_uint)rand_r(&seed) % VDEVS_USED, what = (cl_uint)rand_r(&seed) % 6;
        char when[64];
        snprintf(when, sizeof(when), "step %u", step);
        if (what < 3) {
            struct move_request request = {
                .target = engine_rig_key(&d.rig, places[rand_r(&seed) % 3]),
                .vdev = on,
                .fetch = what < 2 ? MOVE_FETCH_ON_DEMAND : MOVE_FETCH_AUTO,
                .bandwidth = rand_r(&seed) % 2 ? 0 : 4096};
            struct move_report report;
            if (device_key_equal(&atomic_load(&the_vdevs[on]->device)->key, request.target))
                continue;
            move_run(&request, &report);
            cr_assert_eq(report.result, MOVE_DONE, "%s: %s", when, report.reason);
            on_demand += report.left != 0;
        } else if (what == 3) {
            add_to(&d, on, d.buffer, 0, WORDS, step, NULL, NULL);
        } else {
            cl_uint half = what - 4;
            add_to(&d, on, d.halves[half], half * HALF, HALF, step, NULL, NULL);
        }
        OK(clFinish(d.queues[on]));
        if (step % 7 == 0)
            check(&d, on, when);
    }
    cr_assert_gt(on_demand, 20);
    for (cl_uint i = 0; i < VDEVS_USED; i++) {
        if (atomic_load(&the_vdevs[i]->device) != d.rig.devices[0])
            moves(&d, i, d.rig.devices[0]->key.device);
        check(&d, i, "at last");
    }
    for (unsigned i = 1; i < d.rig.device_count; i++)
        cr_assert(engine_rig_empties(&d.rig, d.rig.devices[i]->key.device), "%s: %s",
                  d.rig.devices[i]->key.device,
                  engine_rig_alive(&d.rig, d.rig.devices[i]->key.device));
    duo_close(&d);
}

/* Two that meet share a residence; what the one that came left elsewhere, and what it leaves when
 * it parts, is released. */
Test(vdevs, meeting_and_parting_leaves_nothing_behind)
{
    static struct duo d;
    int64_t before[3], now;
    duo_open(&d, config);
    pages_set_limit(64u << 20); /* residences keep what they registered */
    for (unsigned round = 0; round < 8; round++) {
        cl_uint mover = round % 2;
        cl_event events[VDEVS_USED];
        cl_ulong times[2];
        moves(&d, mover, places[1 - mover]);
        cr_assert_eq(the_vdevs[0]->device, the_vdevs[1]->device);
        add_to(&d, 0, d.halves[0], 0, HALF, round, NULL, &events[0]);
        add_to(&d, 1, d.halves[1], HALF, HALF, round, &events[0], &events[1]);
        OK(clWaitForEvents(2, events));
        check(&d, mover, "on one device");
        moves(&d, mover, places[mover]);
        check(&d, 0, "apart");
        check(&d, 1, "apart");
        for (int i = 0; i < VDEVS_USED; i++) {
            OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, 8, &times[0], NULL));
            OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, 8, &times[1], NULL));
            cr_assert_leq(times[0], times[1]);
            OK(clReleaseEvent(events[i]));
        }
        for (int i = 0; i < 3; i++) {
            now = emu_shared_live_all(d.rig.emu, places[i]);
            /* What a thread of ours still waited for goes with the next move. */
            if (round == 3)
                before[i] = now;
            else if (round > 3)
                cr_assert_leq(now, before[i] + 1, "%s: %s", places[i],
                              engine_rig_alive(&d.rig, places[i]));
        }
    }
    duo_close(&d);
    for (int i = 0; i < 3; i++)
        cr_assert(engine_rig_empties(&d.rig, places[i]), "%s: %s", places[i],
                  engine_rig_alive(&d.rig, places[i]));
}

/* Everything at random, each result checked against the host's own. */
Test(vdevs, random_moves_of_both_change_no_result)
{
    static struct duo d;
    unsigned seed = 5;
    duo_open(&d, config);
    for (unsigned step = 0; step < 300; step++) {
        cl_uint on = (cl_uint)rand_r(&seed) % VDEVS_USED, k = (cl_uint)rand_r(&seed) % 1000;
        cl_event event;
        switch (rand_r(&seed) % 6) {
        case 0: /* disjoint halves at once; 5.2.1 */
            add_to(&d, 0, d.halves[0], 0, HALF, k, NULL, NULL);
            add_to(&d, 1, d.halves[1], HALF, HALF, k, NULL, NULL);
            OK(clFinish(d.queues[0]));
            OK(clFinish(d.queues[1]));
            break;
        case 1: /* from one to the other by an event alone */
            add_to(&d, on, d.buffer, 0, WORDS, k, NULL, &event);
            OK(clFlush(d.queues[on]));
            add_to(&d, 1 - on, d.buffer, 0, WORDS, k + 1, &event, NULL);
            OK(clReleaseEvent(event));
            OK(clFinish(d.queues[1 - on]));
            break;
        case 2:
            add_to(&d, on, d.halves[1 - on], (1 - on) * HALF, HALF, k, NULL, NULL);
            OK(clFinish(d.queues[on]));
            break;
        case 3:
            check(&d, on, "at random");
            break;
        default: {
            const char *to = places[rand_r(&seed) % 3];
            enum move_result result = move_vdev(&d, on, to);
            cr_assert(result == MOVE_DONE || result == MOVE_REFUSED, "step %u", step);
            if (step % 25 == 0) {
                moves(&d, on, NULL);
                check(&d, 1 - on, "while one is suspended");
                moves(&d, on, to);
            }
        }
        }
    }
    check(&d, 0, "at the end");
    check(&d, 1, "at the end");
    duo_close(&d);
}

/* Devices that do not run commands in the thread that waits for them. */
static const char at_once[] =
    "[one] name=one base=1 [two] name=two base=1 [three] name=three base=1";

/* Give a device something to do that takes longer than a move. */
static void work_long(struct duo *d, cl_uint on, cl_event *ret_event)
{
    const char *text = "__kernel void work(__global uint *a, uint n) {\n"
                       "    uint x = a[0];\n"
                       "    for (uint i = 0; i < n; i++) x = x * 1664525u + (x >> 7);\n"
                       "    a[0] = x;\n"
                       "}\n";
    const cl_uint turns = 200000000;
    const size_t one = 1;
    cl_program program = BUILT(d->context, text, "");
    cl_kernel work = engine_kernel(program, "work");
    cl_mem word = engine_buffer(d->context, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    OK(clSetKernelArg(work, 0, sizeof(cl_mem), &word));
    OK(clSetKernelArg(work, 1, sizeof(turns), &turns));
    OK(clEnqueueNDRangeKernel(d->queues[on], work, 1, NULL, &one, NULL, 0, NULL, ret_event));
    OK(clFlush(d->queues[on]));
    RELEASE(work, word, program);
}

/* What one device still reads from host memory stays there while the other moves. */
Test(vdevs, what_is_being_unmapped_outlives_a_move_of_the_other)
{
    enum { LARGE = 1 << 20 };
    static struct duo d;
    static unsigned char got[LARGE], want[LARGE];
    duo_open(&d, at_once);
    memset(want, 0x5a, LARGE);
    cl_mem mapped = engine_buffer(d.context, CL_MEM_READ_WRITE, LARGE, NULL);
    void *map = MADE(clEnqueueMapBuffer, d.queues[1], mapped, CL_TRUE, CL_MAP_WRITE, 0, LARGE, 0,
                     NULL, NULL);
    memcpy(map, want, LARGE);
    /* Behind this the device does not look at the map's bytes yet. */
    work_long(&d, 1, NULL);
    OK(clEnqueueUnmapMemObject(d.queues[1], mapped, map, 0, NULL, NULL));
    OK(clFlush(d.queues[1]));
    moves(&d, 0, "three");
    for (cl_uint on = 0; on < VDEVS_USED; on++) {
        memset(got, 0, LARGE);
        OK(clEnqueueReadBuffer(d.queues[on], mapped, CL_TRUE, 0, LARGE, got, 0, NULL, NULL));
        cr_assert(memcmp(got, want, LARGE) == 0, "read by %u", on);
        engine_read_there(d.queues[on], mapped, 0, LARGE, got);
        cr_assert(memcmp(got, want, LARGE) == 0, "read on %u", on);
    }
    OK(clReleaseMemObject(mapped));
    duo_close(&d);
}

/* What holds when the program goes on. */
struct resumed {
    struct duo *d;
    cl_event event;
    cl_int status;
    int64_t live;
};

static void look_at_resume(void *data, const struct move_progress *progress)
{
    struct resumed *resumed = data;
    if (progress->phase != MOVE_RESUME)
        return;
    OK(clGetEventInfo(resumed->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(cl_int),
                      &resumed->status, NULL));
    resumed->live = emu_shared_live(resumed->d->rig.emu, "one", EMU_MEM);
}

/* A driver copies for one device as another has the host's memory: see residence_is_sibling. */
Test(vdevs, host_memory_is_taken_from_a_device_while_no_other_copies)
{
    static struct duo d;
    duo_open(&d, at_once);
    cl_mem locked =
        engine_buffer(d.context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, SIZE, d.words);
    OK(clEnqueueCopyBuffer(d.queues[0], locked, d.buffer, 0, 0, SIZE, 0, NULL, NULL));
    OK(clFinish(d.queues[0]));
    int64_t before = emu_shared_live(d.rig.emu, "one", EMU_MEM);
    struct resumed resumed = {.d = &d};
    work_long(&d, 1, &resumed.event);
    struct move_report report;
    struct move_request request = {
        .target = engine_rig_key(&d.rig, "three"), .progress = look_at_resume, .data = &resumed};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(resumed.status, CL_COMPLETE, "the other device was at work");
    cr_assert_eq(resumed.live, before - 1, "%lld of %lld are alive", (long long)resumed.live,
                 (long long)before);
    check(&d, 0, "moved");
    RELEASE(resumed.event, locked);
    duo_close(&d);
}

/* A launch whose call of the driver does not return before the test lets it. */
static struct {
    const cl_icd_dispatch *own;
    struct duo *d;
    pthread_t thread;
    atomic_bool entered, may_return, done;
} slow;

static cl_int CL_API_CALL slow_enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                       const size_t *offset, const size_t *global,
                                       const size_t *local, cl_uint count, const cl_event *wait,
                                       cl_event *ret_event)
{
    atomic_store(&slow.entered, true);
    for (unsigned ms = 0; !atomic_load(&slow.may_return) && ms < patience(20000); ms++)
        engine_rig_sleep(1);
    return slow.own->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count,
                                            wait, ret_event);
}

static void *slow_launch(void *data)
{
    const size_t items = 1;
    (void)data;
    clEnqueueNDRangeKernel(slow.d->queues[0], slow.d->add[0], 1, NULL, &items, NULL, 0, NULL, NULL);
    atomic_store(&slow.done, true);
    return NULL;
}

/* Until the launch is in the driver. */
static void slow_begin(struct duo *d)
{
    static cl_icd_dispatch table;
    cl_uint word = 0;
    engine_rig_open(&d->rig, config);
    struct device *device = ((struct vdev *)d->rig.device)->device;
    slow.own = device->cl;
    slow.d = d;
    table = *slow.own;
    table.clEnqueueNDRangeKernel = slow_enqueue;
    device->cl = &table;
    duo_begin(d);
    OK(clSetKernelArg(d->add[0], 0, sizeof(cl_mem), &d->buffer));
    OK(clSetKernelArg(d->add[0], 1, sizeof(word), &word));
    cr_assert_eq(pthread_create(&slow.thread, NULL, slow_launch, NULL), 0);
    while (!atomic_load(&slow.entered))
        engine_rig_sleep(1);
}

static void slow_end(void)
{
    atomic_store(&slow.may_return, true);
    cr_assert_eq(pthread_join(slow.thread, NULL), 0);
}

static void expire(struct duo *d, const char *to)
{
    struct move_report report;
    struct move_request request = {.target = engine_rig_key(&d->rig, to),
                                   .deadline_ns = engine_rig_now() + 100000000u};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", report.reason);
}

/* M4: nor does what another device does keep a move beyond its deadline; and M1. */
Test(vdevs, a_move_does_not_wait_for_the_other_beyond_its_deadline)
{
    static struct duo d;
    duo_open(&d, at_once);
    add_to(&d, 0, d.buffer, 0, WORDS, 3, NULL, NULL);
    for (int i = 0; i < 4; i++)
        work_long(&d, 1, NULL);
    expire(&d, "three");
    check(&d, 0, "where it was");
    moves(&d, 0, "three");
    check(&d, 0, "moved");
    duo_close(&d);
}

/* One that is gone has nothing under way. */
Test(vdevs, a_move_does_not_need_a_device_that_is_gone)
{
    static struct duo d;
    duo_open(&d, at_once);
    add_to(&d, 0, d.buffer, 0, WORDS, 3, NULL, NULL);
    OK(clFinish(d.queues[0]));
    emu_shared_vanish(d.rig.emu, "two");
    moves(&d, 0, "three");
    check(&d, 0, "moved");
}

/* M4: a rollback does not wait for a thread in a driver's call either. */
Test(vdevs, a_rollback_does_not_wait_for_a_slow_call)
{
    static struct duo d;
    cl_uint word = 0;
    slow_begin(&d);
    expire(&d, "three");
    expire(&d, "three");
    cr_assert_not(atomic_load(&slow.done), "the rollback waited for it");
    /* What took memory on the target is gone; the bare context may have to wait. */
    cr_assert_eq(emu_shared_live(d.rig.emu, "three", EMU_MEM), 0);
    cr_assert_eq(emu_shared_live(d.rig.emu, "three", EMU_KERNEL), 0);
    cr_assert_eq(emu_shared_live(d.rig.emu, "three", EMU_PROGRAM), 0);
    /* Another thread's calls of the other device go on in between. */
    for (int i = 0; i < 20; i++)
        OK(clGetMemObjectInfo(d.buffer, CL_MEM_REFERENCE_COUNT, sizeof(word), &word, NULL));
    cr_assert_not(atomic_load(&slow.done), "the calls waited for it");
    slow_end();
    cr_assert(engine_rig_empties(&d.rig, "three"), "%s", engine_rig_alive(&d.rig, "three"));
    check(&d, 1, "rolled back");
    moves(&d, 0, "three");
    check(&d, 0, "moved");
    duo_close(&d);
}

static void *cancel_soon(void *cancel)
{
    engine_rig_sleep(200);
    atomic_store((atomic_bool *)cancel, true);
    return NULL;
}

/* M4: without a deadline it would wait for as long as the call takes. */
Test(vdevs, a_move_that_waits_for_a_slow_call_is_canceled)
{
    static struct duo d;
    static atomic_bool cancel;
    struct move_report report;
    pthread_t canceler;
    slow_begin(&d);
    cr_assert_eq(pthread_create(&canceler, NULL, cancel_soon, &cancel), 0);
    struct move_request request = {.target = engine_rig_key(&d.rig, "three"), .cancel = &cancel};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    cr_assert_not(atomic_load(&slow.done), "it waited for the call");
    cr_assert_eq(pthread_join(canceler, NULL), 0);
    slow_end();
    check(&d, 1, "canceled");
    moves(&d, 0, "three");
    check(&d, 0, "moved");
    duo_close(&d);
}

/* Once the target is in use. */
static void *slow_end_soon(void *unused)
{
    while (emu_shared_live(slow.d->rig.emu, "three", EMU_KERNEL) == 0)
        engine_rig_sleep(1);
    slow_end();
    return unused;
}

/* What a rollback had to leave is the next move's target. */
Test(vdevs, a_move_takes_over_what_a_rollback_left)
{
    static struct duo d;
    pthread_t thread;
    slow_begin(&d);
    expire(&d, "three");
    cr_assert_eq(pthread_create(&thread, NULL, slow_end_soon, NULL), 0);
    moves(&d, 0, "three");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    check(&d, 0, "moved");
    cr_assert_eq(emu_shared_live(d.rig.emu, "three", EMU_CONTEXT), 1);
    cr_assert(engine_rig_empties(&d.rig, "one"), "%s", engine_rig_alive(&d.rig, "one"));
    duo_close(&d);
    cr_assert(engine_rig_empties(&d.rig, "three"), "%s", engine_rig_alive(&d.rig, "three"));
}

static struct {
    const cl_icd_dispatch *own;
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *data;
    uint32_t holds;
} reporting;

static cl_context CL_API_CALL reporting_create(const cl_context_properties *properties,
                                               cl_uint count, const cl_device_id *devices,
                                               void(CL_CALLBACK *notify)(const char *, const void *,
                                                                         size_t, void *),
                                               void *data, cl_int *ret_error)
{
    reporting.notify = notify;
    reporting.data = data;
    return reporting.own->clCreateContext(properties, count, devices, notify, data, ret_error);
}

static void reporting_now(void)
{
    reporting.notify("careful", NULL, 0, reporting.data);
}

/* Holds of the context that is being made. */
static uint32_t reporting_holds(void)
{
    const struct object *object;
    for (uintptr_t i = 0; (object = object_heap_at(OBJECT_CONTEXT, i)); i++)
        if (atomic_load(&object->state) == OBJECT_BUILDING)
            return object_holds_of(atomic_load(&object->counts));
    return 0;
}

/* The next call of the driver. */
static cl_command_queue CL_API_CALL reporting_queue(cl_context context, cl_device_id device,
                                                    cl_command_queue_properties properties,
                                                    cl_int *ret_error)
{
    reporting_now();
    reporting.holds = reporting_holds();
    return reporting.own->clCreateCommandQueue(context, device, properties, ret_error);
}

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint told;

static void CL_CALLBACK tell(const char *text, const void *info, size_t size, void *data)
{
    (void)text, (void)info, (void)size, (void)data;
    pthread_mutex_lock(&told_lock);
    atomic_fetch_add(&told, 1);
    pthread_mutex_unlock(&told_lock);
}

/* A rig whose driver reports when its next queue is made, and by reporting_now(). */
static void reporting_open(struct engine_rig *rig)
{
    static cl_icd_dispatch table;
    engine_rig_open(rig, config);
    struct device *device = ((struct vdev *)rig->device)->device;
    reporting.own = device->cl;
    table = *reporting.own;
    table.clCreateContext = reporting_create;
    table.clCreateCommandQueue = reporting_queue;
    device->cl = &table;
}

static void is_told(unsigned count, const char *why)
{
    for (unsigned ms = 0; ms < 5000 && atomic_load(&told) < count; ms++)
        engine_rig_sleep(1);
    cr_assert_eq(atomic_load(&told), count, "%s: told %u times", why, atomic_load(&told));
}

/* Its creator publishes a context that only it holds without a locked instruction: a hold that a
 * driver's thread took meanwhile would be lost. */
Test(vdevs, a_report_of_a_context_that_is_being_made_does_not_hold_it)
{
    static struct engine_rig rig;
    reporting_open(&rig);
    pthread_mutex_lock(&told_lock);
    cl_context context = MADE(clCreateContext, NULL, 1, &rig.device, tell, NULL);
    cr_assert_eq(reporting.holds, 1);
    reporting_now();
    pthread_mutex_unlock(&told_lock);
    is_told(1, "a context that is there");
    OK(clReleaseContext(context));
    engine_rig_ends_empty(&rig);
}

/* A driver may report of a context that it has released. Neither the residence nor the context is
 * there then, and others may be where they were. */
Test(vdevs, a_late_report_reaches_no_other_context)
{
    static struct engine_rig rig;
    reporting_open(&rig);
    for (unsigned i = 0; i < 300; i++) {
        cl_context context = MADE(clCreateContext, NULL, 1, &rig.device, tell, NULL);
        void *former = reporting.data;
        OK(clReleaseContext(context));
        context = MADE(clCreateContext, NULL, 1, &rig.device, tell, NULL);
        reporting.notify("late", NULL, 0, former);
        reporting_now();
        is_told(i + 1, "the context that is there");
        OK(clReleaseContext(context));
    }
    engine_rig_ends_empty(&rig);
}

/* ---- as many as there may be ---- */

enum { MANY_WORDS = 64 * VDEVS, MANY_SIZE = MANY_WORDS * 4, SHARE = MANY_WORDS / VDEVS };

/* Every device has a share of one buffer, and then all of it in turn. */
struct many {
    struct engine_rig rig;
    cl_device_id devices[VDEVS];
    cl_context context;
    cl_program program;
    cl_command_queue queues[VDEVS];
    cl_kernel add[VDEVS];
    cl_mem buffer, shares[VDEVS];
    cl_uint words[MANY_WORDS];
};

static void many_open(struct many *m)
{
    static char text[64 * (VDEVS + 1)];
    const char *program = source;
    size_t used = 0;
    for (int i = 0; i <= VDEVS; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "[d%02d] name=d%02d own_memory=yes ", i, i);
    engine_rig_open(&m->rig, text);
    m->devices[0] = m->rig.device;
    for (int i = 1; i < VDEVS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "d%02d", i);
        m->devices[i] = engine_rig_vdev(&m->rig, name);
    }
    m->context = MADE(clCreateContext, NULL, VDEVS, m->devices, NULL, NULL);
    m->program = BUILT(m->context, program, "");
    for (cl_uint i = 0; i < MANY_WORDS; i++)
        m->words[i] = i * 2654435761u;
    m->buffer =
        engine_buffer(m->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, MANY_SIZE, m->words);
    for (cl_uint i = 0; i < VDEVS; i++) {
        const cl_buffer_region region = {i * SHARE * 4, SHARE * 4};
        m->shares[i] = MADE(clCreateSubBuffer, m->buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
        m->queues[i] = MADE(clCreateCommandQueue, m->context, m->devices[i], 0);
        m->add[i] = engine_kernel(m->program, "add");
    }
}

static void many_add(struct many *m, cl_uint on, cl_mem mem, cl_uint first, size_t count)
{
    const cl_uint k = 5 + on;
    OK(clSetKernelArg(m->add[on], 0, sizeof(mem), &mem));
    OK(clSetKernelArg(m->add[on], 1, sizeof(k), &k));
    OK(clEnqueueNDRangeKernel(m->queues[on], m->add[on], 1, NULL, &count, NULL, 0, NULL, NULL));
    for (cl_uint i = 0; i < count; i++)
        m->words[first + i] += k + i;
}

static void many_work(struct many *m, const char *when)
{
    static cl_uint got[MANY_WORDS];
    for (cl_uint i = 0; i < VDEVS; i++)
        many_add(m, i, m->shares[i], i * SHARE, SHARE);
    for (cl_uint i = 0; i < VDEVS; i++)
        OK(clFinish(m->queues[i]));
    for (cl_uint i = 0; i < VDEVS; i++) {
        many_add(m, i, m->buffer, 0, MANY_WORDS);
        OK(clFinish(m->queues[i]));
    }
    engine_read_there(m->queues[0], m->buffer, 0, MANY_SIZE, got);
    cr_assert(memcmp(got, m->words, MANY_SIZE) == 0, "%s, read on the first", when);
    OK(clEnqueueReadBuffer(m->queues[VDEVS - 1], m->buffer, CL_TRUE, 0, MANY_SIZE, got, 0, NULL,
                           NULL));
    cr_assert(memcmp(got, m->words, MANY_SIZE) == 0, "%s, read by the last", when);
}

static void many_move(const struct many *m, uint32_t vdev, const char *to)
{
    struct move_request request = {.target = to ? engine_rig_key(&m->rig, to) : NULL, .vdev = vdev};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "virtual device %u to %s: %s", vdev, to ? to : "memory",
                 report.reason);
}

Test(vdevs, as_many_as_there_may_be_share_one_context, .timeout = 600)
{
    static struct many m;
    cl_uint count;
    char name[16];
    many_open(&m);
    OK(clGetProgramInfo(m.program, CL_PROGRAM_NUM_DEVICES, sizeof(count), &count, NULL));
    cr_assert_eq(count, VDEVS);
    many_work(&m, "at first");
    /* The last one has a residence beyond those of all others. */
    snprintf(name, sizeof(name), "d%02d", VDEVS);
    many_move(&m, VDEVS - 1, name);
    many_work(&m, "after a move of the last one");
    many_move(&m, 7, NULL);
    many_move(&m, VDEVS - 1, "d07");
    many_move(&m, 7, name);
    many_work(&m, "after two changed places");
    for (uint32_t i = 0; i < VDEVS; i++)
        many_move(&m, i, NULL);
    for (uint32_t i = 0; i < VDEVS; i++) {
        snprintf(name, sizeof(name), "d%02u", VDEVS - i);
        many_move(&m, i, name);
    }
    many_work(&m, "after all were suspended, and resumed elsewhere");
    for (cl_uint i = 0; i < VDEVS; i++)
        RELEASE(m.add[i], m.queues[i], m.shares[i]);
    RELEASE(m.buffer, m.program, m.context);
    engine_rig_ends_empty(&m.rig);
}
