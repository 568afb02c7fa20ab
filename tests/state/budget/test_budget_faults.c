#include <pthread.h>

#include "tests/state/budget/test_budget_common.h"

/* Drivers that fail while room is made, and what else than buffers spills. */

/* The driver finds only when it is given a command that there is no room. */
Test(room, a_command_that_the_driver_has_no_room_for_is_given_again, .timeout = 60)
{
    begin(plenty, BUDGET_REFUSE);
    make(4);
    rounds(1, 4);
    cr_assert_eq(emu_shared_arm(rig.emu, "one", 1, "clEnqueueNDRangeKernel",
                                CL_MEM_OBJECT_ALLOCATION_FAILURE),
                 0);
    rounds(1, 4);
    cr_assert_eq(policy.asked, 0);
    cr_assert_eq(budget("one")->spilled, BYTES);
    check(4);
    end(4);
}

/* Launches that need some of the device's memory for themselves. */
static const char hungry[] = "[one] name=one memory=14MiB launch_memory=4MiB";

Test(room, a_driver_that_runs_out_at_a_launch_has_what_was_used_last_left, .timeout = 60)
{
    begin(hungry, BUDGET_REFUSE);
    make(10);
    rounds(1, 10);
    cr_assert_eq(budget("one")->spilled, 0);
    atomic_store(&budget("one")->tight, true); /* what is used is noted from here on */
    rounds(1, 10);
    for (size_t b = 10; b < BUFFERS; b++) {
        want[b] = calloc(1, BYTES);
        cr_assert_not_null(want[b]);
        buffers[b] = engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, BYTES, want[b]);
    }
    step(10, 9, 3);
    cr_assert_eq(policy.asked, 0);
    uint64_t spilled = budget("one")->spilled;
    cr_assert(spilled >= 2 * BYTES && spilled < 5 * BYTES, "%llu bytes were spilled",
              (unsigned long long)spilled);
    cr_assert_null(((struct memory *)buffers[0])->real[0], "what was used first stayed");
    cr_assert_not_null(((struct memory *)buffers[9])->real[0], "what was used last went");
    check(BUFFERS);
    end(BUFFERS);
}

Test(room, a_launch_that_fits_nowhere_is_refused_after_the_policy_was_asked_once, .timeout = 60)
{
    const size_t global = WORDS;
    begin("[one] name=one memory=14MiB launch_memory=13MiB", BUDGET_AGAIN);
    make(4);
    ARGS(add, buffers[0], buffers[1]);
    OK(clSetKernelArg(add, 2, sizeof(cl_uint), &(cl_uint){1}));
    cr_assert_eq(clEnqueueNDRangeKernel(program.queue, add, 1, NULL, &global, NULL, 0, NULL, NULL),
                 CL_OUT_OF_RESOURCES);
    cr_assert_eq(policy.asked, 1);
    cr_assert_eq(policy.failed, 1);
    check(4);
    end(4);
}

/* What a launch was refused for, where its device has memory enough. */
static void refuse_launch(size_t group, size_t local)
{
    static const char text[] = "__kernel void turn(__global uint *out, __local uint *part)"
                               "{ size_t i = get_global_id(0), l = get_local_id(0);"
                               "  part[l] = out[i]; out[i] = part[l] + 1; }";
    const size_t global = WORDS;
    begin("[one] name=one local_memory=4KiB kernel_work_group_size=turn:64", BUDGET_REFUSE);
    make(4);
    rounds(1, 4);
    cl_program turning = BUILT(program.context, text, "");
    cl_kernel turn = engine_kernel(turning, "turn");
    OK(clSetKernelArg(turn, 0, sizeof(cl_mem), &buffers[0]));
    OK(clSetKernelArg(turn, 1, local, NULL));
    uint64_t launches = emu_shared_calls(rig.emu, "one", "clEnqueueNDRangeKernel");
    cr_assert_eq(emu_shared_arm(rig.emu, "one", 1, "clEnqueueNDRangeKernel", CL_OUT_OF_RESOURCES),
                 0);
    cr_assert_eq(
        clEnqueueNDRangeKernel(program.queue, turn, 1, NULL, &global, &group, 0, NULL, NULL),
        CL_OUT_OF_RESOURCES);
    cr_assert_eq(emu_shared_calls(rig.emu, "one", "clEnqueueNDRangeKernel"), launches + 1);
    cr_assert_eq(budget("one")->spilled, 0);
    cr_assert_eq(policy.asked, 0);
    /* The same with what there is of both, which the driver has no room for once. */
    OK(clSetKernelArg(turn, 1, 4096, NULL));
    cr_assert_eq(emu_shared_arm(rig.emu, "one", 1, "clEnqueueNDRangeKernel", CL_OUT_OF_RESOURCES),
                 0);
    OK(clEnqueueNDRangeKernel(program.queue, turn, 1, NULL, &global, &(size_t){64}, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        want[0][i]++;
    cr_assert_eq(budget("one")->spilled, BYTES);
    RELEASE(turn, turning);
    check(4);
    end(4);
}

TestCall(room, a_launch_with_too_much_local_memory_spills_nothing, refuse_launch(64, 4100),
         .timeout = 60);
TestCall(room, a_launch_in_too_large_groups_spills_nothing, refuse_launch(128, 512), .timeout = 60);

static atomic_bool canceled;

/* Another virtual device spills where a mover takes apart what it had made. */
struct spiller {
    cl_context context;
    cl_command_queue queue;
    cl_kernel set;
    cl_mem buffers[8];
    atomic_bool stop;
    _Atomic uint64_t releases; /* of the rollback: with the next one it begins; 0: not yet */
    unsigned rounds;
};

static uint64_t released(void)
{
    return 1 + emu_shared_calls(rig.emu, "two", "clReleaseCommandQueue");
}

static void *spill_on(void *data)
{
    struct spiller *s = data;
    const size_t global = WORDS;
    while (!atomic_load(&s->stop)) {
        uint64_t releases = atomic_load(&s->releases);
        if (s->rounds != 0 && (releases == 0 || released() <= releases)) {
            engine_rig_sleep(1);
            continue;
        }
        for (size_t b = 0; b < ARRAY_SIZE(s->buffers); b++) {
            cl_uint n = (cl_uint)(s->rounds + b);
            ARGS(s->set, s->buffers[b], n);
            OK(clEnqueueNDRangeKernel(s->queue, s->set, 1, NULL, &global, NULL, 0, NULL, NULL));
        }
        s->rounds++;
    }
    return NULL;
}

static void spiller_open(struct spiller *s)
{
    cl_device_id two = engine_rig_vdev(&rig, "two");
    budget_grant(1, 2 * BYTES);
    s->context = MADE(clCreateContext, NULL, 1, &two, NULL, NULL);
    s->queue = MADE(clCreateCommandQueue, s->context, two, 0);
    cl_program built = BUILT(s->context, source, "");
    s->set = engine_kernel(built, "set");
    OK(clReleaseProgram(built));
    for (size_t b = 0; b < ARRAY_SIZE(s->buffers); b++)
        s->buffers[b] = engine_buffer(s->context, 0, BYTES, NULL);
}

static void spiller_check(struct spiller *s)
{
    cl_uint *got = malloc(BYTES);
    cr_assert_not_null(got);
    for (size_t b = 0; b < ARRAY_SIZE(s->buffers); b++) {
        OK(clEnqueueReadBuffer(s->queue, s->buffers[b], CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        for (size_t i = 0; i < WORDS; i++)
            cr_assert_eq(got[i], (cl_uint)i ^ (cl_uint)(s->rounds - 1 + b));
        OK(clReleaseMemObject(s->buffers[b]));
    }
    free(got);
    RELEASE(s->set, s->queue, s->context);
}

static void cancel_and_spill(void *data, const struct move_progress *progress)
{
    if (progress->phase != MOVE_COPY)
        return;
    atomic_store(&((struct spiller *)data)->releases, released());
    atomic_store(&canceled, true);
}

Test(room, what_a_rollback_takes_apart_is_not_spilled_meanwhile, .timeout = 120)
{
    static struct spiller spiller;
    const uint64_t grant = 3 * BYTES; /* filled, so that the other device spills */
    pthread_t thread;
    begin("[one] name=one [two] name=two release_ms=20", BUDGET_SPILL);
    make(4);
    spiller_open(&spiller);
    cr_assert_eq(pthread_create(&thread, NULL, spill_on, &spiller), 0);
    for (int i = 0; i < 4; i++) {
        struct move_report report;
        struct move_request request = {.target = engine_rig_key(&rig, "two"),
                                       .grant = &grant,
                                       .cancel = &canceled,
                                       .progress = cancel_and_spill,
                                       .data = &spiller};
        atomic_store(&canceled, false);
        move_run(&request, &report);
        atomic_store(&spiller.releases, 0);
        (void)budget_shrink(1, 2 * BYTES);
        cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    }
    atomic_store(&spiller.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_gt(spiller.rounds, 1);
    check(4);
    spiller_check(&spiller);
    end(4);
    cr_assert(engine_rig_empties(&rig, "two"), "alive: %s", engine_rig_alive(&rig, "two"));
    cr_assert_eq(budget("two")->held, 0);
    cr_assert_eq(emu_shared_too_many(rig.emu, "two"), 0, "some were released twice");
}

/* The driver's word, of a command that its device could never hold. */
Test(room, what_the_device_itself_cannot_hold_is_refused_alone, .timeout = 60)
{
    const size_t global = WORDS;
    begin(scarce, BUDGET_SPILL);
    budget_set_policy(NULL);
    make(3);
    cl_mem big = MADE(clCreateBuffer, program.context, 0, 4 * BYTES, NULL);
    ARGS(add, big, buffers[0]);
    OK(clSetKernelArg(add, 2, sizeof(cl_uint), &(cl_uint){1}));
    cr_assert_eq(clEnqueueNDRangeKernel(program.queue, add, 1, NULL, &global, NULL, 0, NULL, NULL),
                 CL_MEM_OBJECT_ALLOCATION_FAILURE);
    OK(clReleaseMemObject(big));
    rounds(2, 3);
    check(3);
    end(3);
}

/* A step that the program tries again where it is told of an error. Returns how often it was. */
static unsigned insist(size_t out, size_t in, cl_uint n)
{
    const size_t global = WORDS;
    unsigned errors = 0;
    cl_int error;
    do {
        error = clSetKernelArg(add, 0, sizeof(cl_mem), &buffers[out]);
        if (error == CL_SUCCESS)
            error = clSetKernelArg(add, 1, sizeof(cl_mem), &buffers[in]);
        if (error == CL_SUCCESS)
            error = clSetKernelArg(add, 2, sizeof(n), &n);
        if (error == CL_SUCCESS)
            error =
                clEnqueueNDRangeKernel(program.queue, add, 1, NULL, &global, NULL, 0, NULL, NULL);
        errors += error != CL_SUCCESS;
        cr_assert_leq(errors, 1, "again: %d", error);
    } while (error != CL_SUCCESS);
    for (size_t i = 0; i < WORDS; i++)
        want[out][i] += want[in][i] * n + (cl_uint)i;
    return errors;
}

/* R4, and each way that a driver fails while objects are brought out and in. */
static void fail_everywhere(cl_int error)
{
    unsigned told = 0;
    uint64_t call = 0, before;
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, 2 * BYTES);
    make(4);
    for (size_t b = 0; b < 4; b++)
        (void)insist(b, (b + 1) % 4, 1);
    do {
        before = emu_shared_fired(rig.emu, "one");
        cr_assert_eq(emu_shared_arm(rig.emu, "one", ++call, NULL, error), 0);
        for (size_t b = 0; b < 4; b++)
            told += insist(b, (b + 1) % 4, (cl_uint)call);
        emu_shared_disarm(rig.emu, "one");
        check(4);
        cr_assert_leq(budget("one")->held, 2 * BYTES);
    } while (emu_shared_fired(rig.emu, "one") != before);
    cr_assert_gt(call, 20);
    cr_assert_gt(told, 0);
    end(4);
    cr_assert_eq(budget("one")->held, 0);
}

TestCall(room, a_driver_that_fails_at_any_call_of_a_spill_loses_nothing,
         fail_everywhere(CL_OUT_OF_HOST_MEMORY), .timeout = 300);
TestCall(room, nor_one_that_runs_out_at_any_call, fail_everywhere(CL_MEM_OBJECT_ALLOCATION_FAILURE),
         .timeout = 300);

/* Images and the program's own memory go out and come back as buffers do. */
Test(room, images_and_host_pointers_spill, .timeout = 60)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 500, .image_height = 500};
    const size_t origin[3] = {0}, region[3] = {500, 500, 1}, size = 500 * 500 * 4;
    cl_mem images[4];
    cl_uchar *bytes = malloc(size);
    cr_assert_not_null(bytes);
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, 2 * BYTES);
    make(2);
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < size; k++)
            bytes[k] = (cl_uchar)(k * 13 + i);
        images[i] =
            MADE(clCreateImage, program.context, CL_MEM_COPY_HOST_PTR, &format, &desc, bytes);
    }
    cl_uint *own = malloc(BYTES);
    cr_assert_not_null(own);
    memset(own, 7, BYTES);
    cl_mem theirs = MADE(clCreateBuffer, program.context, CL_MEM_USE_HOST_PTR, BYTES, own);
    OK(clSetKernelArg(set, 0, sizeof(cl_mem), &theirs));
    OK(clSetKernelArg(set, 1, sizeof(cl_uint), &(cl_uint){5}));
    launch(set, program.queue);
    for (size_t round = 0; round < 3; round++) {
        rounds(1, 2);
        for (size_t i = 0; i < 4; i++) {
            memset(bytes, 0, size);
            OK(clEnqueueReadImage(program.queue, images[i], CL_TRUE, origin, region, 0, 0, bytes, 0,
                                  NULL, NULL));
            for (size_t k = 0; k < size; k++)
                cr_assert_eq(bytes[k], (cl_uchar)(k * 13 + i), "image %zu, byte %zu", i, k);
        }
    }
    cl_uint *map = MADE(clEnqueueMapBuffer, program.queue, theirs, CL_TRUE, CL_MAP_READ, 0, BYTES,
                        0, NULL, NULL);
    cr_assert_eq(map, own);
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(map[i], (cl_uint)i ^ 5);
    OK(clEnqueueUnmapMemObject(program.queue, theirs, map, 0, NULL, NULL));
    cr_assert_gt(budget("one")->spilled, 0);
    cr_assert_leq(budget("one")->peak, 2 * BYTES);
    OK(clReleaseMemObject(theirs));
    for (size_t i = 0; i < 4; i++)
        OK(clReleaseMemObject(images[i]));
    check(2);
    end(2);
    free(own);
    free(bytes);
}
