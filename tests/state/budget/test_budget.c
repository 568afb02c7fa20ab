#include <pthread.h>

#include "interpose/control/control_priv.h"
#include "state/base/clock.h"
#include "tests/state/budget/test_budget_common.h"

/* Policies, moves and threads of programs that do not fit. */

Test(room, what_fits_is_granted_without_a_question, .timeout = 60)
{
    begin(plenty, BUDGET_REFUSE);
    budget_grant(0, FEW);
    make(4);
    rounds(2, 4);
    check(4);
    cr_assert_eq(policy.asked, 0);
    cr_assert_eq(budget("one")->held, FEW);
    cr_assert_eq(budget("one")->peak, FEW);
    end(4);
    cr_assert_eq(budget("one")->held, 0);
}

/** Until the status has a rate, or none, of bytes written in a second. */
static uint64_t rate_becomes(bool some)
{
    struct vdev_status status = {0};

    for (unsigned i = 0; i < 3000; i++) {
        status_vdev(0, &status);
        if (some == (status.to_bytes_s != 0))
            break;
        clock_sleep(10 * NS_PER_MS);
    }
    return status.to_bytes_s;
}

Test(room, what_is_transferred_is_counted_and_told_for_a_second, .timeout = 60)
{
    begin(plenty, BUDGET_REFUSE);
    make(2);
    const struct budget *one = budget("one");
    uint64_t from = one->crossed[0], to = one->crossed[1];
    void *host = calloc(1, BYTES);
    for (unsigned i = 0; i < 3; i++)
        OK(clEnqueueWriteBuffer(program.queue, buffers[0], CL_TRUE, 0, BYTES, host, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(program.queue, buffers[1], CL_TRUE, 0, BYTES / 2, host, 0, NULL, NULL));
    cr_assert_eq(one->crossed[1] - to, 3 * BYTES);
    cr_assert_eq(one->crossed[0] - from, BYTES / 2);
    engine_rig_moves(&rig, "two");
    cr_assert_geq(one->crossed[0] - from, BYTES / 2 + BYTES, "what a move copies counts");
    cr_assert_geq(budget("two")->crossed[1], BYTES);
    rate_becomes(false); /* The first second begins when somebody asks. */
    uint64_t rate = 0;
    for (unsigned tries = 0; !rate && tries < 20; tries++) {
        OK(clEnqueueWriteBuffer(program.queue, buffers[0], CL_TRUE, 0, BYTES, host, 0, NULL, NULL));
        budget_crossed(budget("two"), true, 64 * MIB);
        rate = rate_becomes(true);
    }
    cr_expect(rate > 0 && rate <= 64 * MIB + 20 * BYTES, "%lu", rate);
    cr_expect_eq(rate_becomes(false), 0);
    free(host);
    end(2);
}

Test(room, a_program_of_three_times_its_grant_spills, .timeout = 120)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS);
    rounds(3, BUFFERS);
    check(BUFFERS);
    cr_assert_geq(policy.asked, BUFFERS - 4);
    cr_assert_leq(budget("one")->peak, FEW);
    cr_assert_geq(budget("one")->spilled, (BUFFERS - 4) * BYTES);
    end(BUFFERS);
    cr_assert_eq(budget("one")->held, 0);
}

/* Which of the buffers are on the device: bit b, buffer b. */
static unsigned on_device(size_t count)
{
    unsigned there = 0;
    for (size_t b = 0; b < count; b++) {
        const struct memory *memory = memory_get(buffers[b]);
        there |= (unsigned)(memory->real[0] != NULL) << b;
    }
    return there;
}

static void use(size_t b, cl_uint n)
{
    ARGS(set, buffers[b], n);
    launch(set, program.queue);
    for (size_t i = 0; i < WORDS; i++)
        want[b][i] = (cl_uint)i ^ n;
}

Test(room, what_was_not_used_for_the_longest_goes, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(6);
    for (size_t b = 0; b < 4; b++)
        use(b, 1);
    cr_assert_eq(on_device(6), 0x0f, "%x", on_device(6));
    use(0, 2);
    use(4, 3);
    cr_assert_eq(on_device(6), 0x1d, "%x", on_device(6));
    use(2, 4);
    use(5, 5);
    cr_assert_eq(on_device(6), 0x35, "%x", on_device(6));
    check(6);
    end(6);
}

static void *map(size_t b, cl_map_flags flags, size_t size)
{
    void *pointer =
        MADE(clEnqueueMapBuffer, program.queue, buffers[b], CL_TRUE, flags, 0, size, 0, NULL, NULL);
    return pointer;
}

static void unmap(size_t b, void *pointer)
{
    OK(clEnqueueUnmapMemObject(program.queue, buffers[b], pointer, 0, NULL, NULL));
}

/* Half of one buffer to be written, all of another to be read; spilled, brought back, unmapped. */
static void spill_mapped(const char *config, cl_mem_flags flags)
{
    begin(config, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(6);
    for (size_t b = 0; b < 2; b++) {
        OK(clReleaseMemObject(buffers[b]));
        buffers[b] = engine_buffer(program.context, flags | CL_MEM_COPY_HOST_PTR, BYTES, want[b]);
        use(b, 1);
    }
    cl_uint *written = map(0, CL_MAP_WRITE, BYTES / 2), *read = map(1, CL_MAP_READ, BYTES);
    for (size_t i = 0; i < WORDS / 4; i++)
        want[0][i] = written[i] = (cl_uint)i * 3;
    for (size_t b = 2; b < 6; b++)
        use(b, 2);
    cr_assert_eq(on_device(6), 0x3c, "%x", on_device(6));
    cr_assert_eq(memcmp(read, want[1], BYTES), 0);
    cr_assert_eq(memcmp(written, want[0], BYTES / 2), 0);
    for (size_t i = WORDS / 4; i < WORDS / 2; i++)
        want[0][i] = written[i] = (cl_uint)i * 5;
    step(2, 1, 3);
    cr_assert(on_device(6) & 0x02, "%x", on_device(6));
    cr_assert_eq(map(1, CL_MAP_READ, BYTES), read);
    for (size_t b = 2; b < 6; b++)
        use(b, 4);
    unmap(0, written);
    unmap(1, read);
    unmap(1, read);
    use(3, 5);
    check(6);
    cr_assert_leq(budget("one")->peak, FEW);
    end(6);
}

TestCall(room, what_is_mapped_goes_and_its_maps_stay, spill_mapped(plenty, 0), .timeout = 60);
TestCall(room, what_a_driver_maps_goes_and_its_maps_stay,
         spill_mapped("[one] name=one host_unified=yes [two] name=two", CL_MEM_ALLOC_HOST_PTR),
         .timeout = 60);
TestCall(room, what_a_driver_maps_beside_its_own_memory_goes_too,
         spill_mapped("[one] name=one own_memory=yes [two] name=two", CL_MEM_ALLOC_HOST_PTR),
         .timeout = 60);

/* The driver gives -4 when its memory runs out, and nobody is there to ask. */
Test(room, a_device_that_runs_out_makes_the_program_spill, .timeout = 120)
{
    begin(scarce, BUDGET_SPILL);
    budget_set_policy(NULL);
    make(BUFFERS);
    rounds(3, BUFFERS);
    check(BUFFERS);
    cr_assert_leq(budget("one")->peak, FEW);
    end(BUFFERS);
}

Test(room, the_policy_learns_what_was_asked_and_who_refused, .timeout = 60)
{
    cl_int error;
    begin(plenty, BUDGET_REFUSE);
    budget_grant(0, FEW);
    make(3);
    cr_assert_null(clCreateBuffer(program.context, 0, 3 * BYTES, NULL, &error));
    cr_assert_eq(error, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cr_assert_eq(policy.asked, 1);
    cr_assert_eq(policy.failed, 0);
    cr_assert_eq(policy.total, 6 * BYTES);
    cr_assert_not(policy.owns);
    cr_assert_eq(policy.wanted, 6 * BYTES);
    cr_assert_eq(policy.least, 3 * BYTES);
    rounds(2, 3);
    check(3);
    end(3);
}

Test(room, a_device_that_runs_out_is_said_to_have_failed, .timeout = 60)
{
    cl_int error;
    begin(scarce, BUDGET_REFUSE);
    budget_grant(0, EVERYTHING);
    make(4);
    cr_assert_null(clCreateBuffer(program.context, 0, BYTES, NULL, &error));
    cr_assert_eq(error, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cr_assert_eq(policy.failed, 1);
    rounds(1, 4);
    check(4);
    end(4);
}

Test(room, more_is_granted_on_the_way, .timeout = 60)
{
    begin(plenty, BUDGET_AGAIN);
    budget_grant(0, FEW);
    policy.grants = FEW;
    make(BUFFERS);
    rounds(1, BUFFERS);
    check(BUFFERS);
    cr_assert_eq(policy.asked, 2);
    cr_assert_eq(budget("one")->spilled, 0);
    end(BUFFERS);
}

Test(room, a_program_that_outgrows_its_device_is_upgraded, .timeout = 60)
{
    begin(scarce, BUDGET_AGAIN);
    policy.device = "two";
    make(4);
    rounds(1, 4);
    cr_assert_eq(policy.asked, 0);
    for (size_t b = 4; b < BUFFERS; b++) {
        want[b] = calloc(WORDS, sizeof(cl_uint));
        cr_assert_not_null(want[b]);
        buffers[b] = engine_buffer(program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES,
                                   want[b]);
    }
    cr_assert_eq(policy.asked, 1);
    rounds(2, BUFFERS);
    check(BUFFERS);
    cr_assert_eq(budget("one")->held, 0);
    cr_assert_eq(budget("two")->held, BUFFERS * BYTES);
    end(BUFFERS);
}

/* With grants that are less than it has, on either side, and none. */
Test(room, a_program_that_spills_is_moved, .timeout = 120)
{
    static const uint64_t grants[] = {6 * BYTES, EVERYTHING, 3 * BYTES, FEW};
    struct move_report report;
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS);
    for (size_t i = 0; i < 4; i++) {
        const char *to = i % 2 ? "one" : "two";
        rounds(1, BUFFERS);
        struct move_request request = {.target = engine_rig_key(&rig, to), .grant = &grants[i]};
        move_run(&request, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
        cr_assert_leq(budget(to)->held, grants[i]);
        cr_assert_eq(budget(i % 2 ? "two" : "one")->held, 0);
        rounds(1, BUFFERS);
    }
    engine_rig_moves(&rig, NULL);
    cr_assert_eq(budget("one")->held, 0);
    struct budget_use use;
    budget_read(0, &use);
    cr_assert_eq(use.wanted, BUFFERS * BYTES);
    cr_assert_geq(use.least, 2 * BYTES);
    cr_assert(use.limited);
    struct move_request request = {.target = engine_rig_key(&rig, "two"), .grant = &grants[0]};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    rounds(1, BUFFERS);
    engine_rig_moves(&rig, "one");
    rounds(1, BUFFERS);
    check(BUFFERS);
    cr_assert_eq(budget("one")->held, BUFFERS * BYTES);
    end(BUFFERS);
}

Test(room, a_grant_that_no_command_fits_is_refused_before_the_move, .timeout = 60)
{
    const uint64_t grant = BYTES;
    struct move_report report;
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS); /* asked, so that what commands need is known */
    step(0, 1, 1);
    cl_mem two = engine_buffer(program.context, 0, 2 * BYTES, NULL);
    struct move_request request = {.target = engine_rig_key(&rig, "two"), .grant = &grant};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_REFUSED);
    cr_assert_str_not_empty(report.reason);
    cr_assert_eq(budget("two")->held, 0);
    OK(clReleaseMemObject(two));
    check(BUFFERS);
    end(BUFFERS);
}

Test(room, it_shrinks_and_gives_back_what_it_does_not_use, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, EVERYTHING);
    make(8);
    rounds(1, 8);
    cr_assert_eq(budget_shrink(0, 3 * BYTES), EVERYTHING - 3 * BYTES);
    cr_assert_leq(budget("one")->held, 3 * BYTES);
    rounds(1, 8);
    cr_assert_leq(budget("one")->held, 3 * BYTES);
    budget_grant(0, 1024 * MIB);
    uint64_t slack = budget_slack(0);
    cr_assert_gt(slack, 512 * MIB);
    cr_assert_eq(budget("one")->granted, 1024 * MIB + 3 * BYTES - slack);
    rounds(1, 8);
    check(8);
    end(8);
}

/* It is told to spill, with a limit that is below what the command needs however much it spills. */
Test(room, a_limit_below_what_a_command_needs_is_no_error, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, BYTES);
    make(3);
    step(0, 1, 1);
    OK(clFinish(program.queue));
    cr_assert_eq(on_device(3), 0x03, "%x", on_device(3));
    cr_assert_eq(budget("one")->granted, 2 * BYTES);
    rounds(1, 3);
    check(3);
    cr_assert_eq(budget("one")->peak, 2 * BYTES);
    end(3);
}

/* One command that needs more than there may be, and others that do not. */
Test(room, a_command_that_cannot_fit_is_refused_alone, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, BYTES);
    make(3);
    ARGS(add, buffers[0], buffers[1]);
    OK(clSetKernelArg(add, 2, sizeof(cl_uint), &(cl_uint){1}));
    const size_t global = WORDS;
    policy.answer = BUDGET_REFUSE;
    cr_assert_eq(clEnqueueNDRangeKernel(program.queue, add, 1, NULL, &global, NULL, 0, NULL, NULL),
                 CL_MEM_OBJECT_ALLOCATION_FAILURE);
    policy.answer = BUDGET_SPILL;
    for (size_t b = 0; b < 3; b++) {
        OK(clSetKernelArg(set, 0, sizeof(cl_mem), &buffers[b]));
        OK(clSetKernelArg(set, 1, sizeof(cl_uint), &(cl_uint){9}));
        launch(set, program.queue);
        for (size_t i = 0; i < WORDS; i++)
            want[b][i] = (cl_uint)i ^ 9;
    }
    check(3);
    end(3);
}

/* What is spilled comes back as another real object, which the real kernel has not seen. */
Test(room, a_kernel_keeps_the_arguments_that_were_spilled, .timeout = 60)
{
    const cl_uint zero = 0, n = 5;
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS);
    const struct memory *memory = (const struct memory *)buffers[0];
    ARGS(set, buffers[0], n);
    for (int spilled = 0; spilled < 2; spilled++) {
        launch(set, program.queue);
        OK(clFinish(program.queue));
        cr_assert_not_null(memory->real[memory->context->residence_index[0]]);
        OK(clEnqueueFillBuffer(program.queue, buffers[0], &zero, sizeof(zero), 0, BYTES, 0, NULL,
                               NULL));
        for (size_t b = 1; b < BUFFERS; b++)
            step(b, b % (BUFFERS - 1) + 1, (cl_uint)b);
        OK(clFinish(program.queue));
        cr_assert_null(memory->real[memory->context->residence_index[0]], "it is spilled");
    }
    launch(set, program.queue);
    for (size_t i = 0; i < WORDS; i++)
        want[0][i] = (cl_uint)i ^ n;
    check(BUFFERS);
    end(BUFFERS);
}

Test(room, a_command_told_to_spill_goes_on_with_what_it_was_granted_for_it, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, BYTES);
    make(3);
    policy.grants = BYTES;
    step(0, 1, 3);
    cr_assert_eq(policy.asked, 3, "two buffers and the launch");
    cr_assert(policy.owns);
    cr_assert_eq(policy.total, 2 * BYTES);
    cr_assert_eq(policy.wanted, 3 * BYTES);
    policy.grants = 0;
    check(3);
    end(3);
}

Test(room, what_a_command_takes_at_once_is_known_before_there_is_too_little, .timeout = 60)
{
    struct budget_use use;
    begin(plenty, BUDGET_REFUSE);
    budget_grant(0, EVERYTHING);
    make(3);
    budget_read(0, &use);
    cr_assert_eq(use.least, 0);
    /* Twice the same object is one. */
    ARGS(add, buffers[0], buffers[0]);
    OK(clSetKernelArg(add, 2, sizeof(cl_uint), &(cl_uint){1}));
    launch(add, program.queue);
    OK(clFinish(program.queue));
    budget_read(0, &use);
    cr_assert_eq(use.least, BYTES);
    step(0, 1, 3);
    budget_read(0, &use);
    cr_assert_eq(use.least, 2 * BYTES);
    cr_assert_eq(policy.asked, 0);
    /* Also where none ran yet. */
    engine_rig_moves(&rig, "two");
    budget_read(0, &use);
    cr_assert_eq(use.least, 2 * BYTES);
    engine_rig_moves(&rig, NULL);
    budget_read(0, &use);
    cr_assert_eq(use.least, 2 * BYTES);
    engine_rig_moves(&rig, "one");
    end(3);
}

Test(room, held_commands_have_their_objects_brought, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS);
    cl_event user = MADE(clCreateUserEvent, program.context);
    const size_t global = WORDS;
    for (size_t b = 0; b < BUFFERS; b++) {
        cl_uint n = (cl_uint)b * 3;
        ARGS(set, buffers[b], n);
        OK(clEnqueueNDRangeKernel(program.queue, set, 1, NULL, &global, NULL, b == 0,
                                  b ? NULL : &user, NULL));
        for (size_t i = 0; i < WORDS; i++)
            want[b][i] = (cl_uint)i ^ n;
    }
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    check(BUFFERS);
    OK(clReleaseEvent(user));
    end(BUFFERS);
}

/* An agent that answers a need once the move that it asked for was reported. */
static atomic_bool reported, in_time;

static enum budget_answer decide_after_the_report(const struct budget_need *need)
{
    uint64_t until = engine_rig_now() + 10000000000u;
    while (!atomic_load(&reported) && engine_rig_now() < until)
        engine_rig_sleep(1);
    atomic_store(&in_time, atomic_load(&reported));
    return decide(need);
}

Test(room, a_resume_is_over_before_what_was_held_asks_for_room, .timeout = 60)
{
    const uint64_t grant = BYTES;
    struct move_report report;
    begin(plenty, BUDGET_AGAIN);
    budget_set_policy(decide_after_the_report);
    policy.grants = FEW;
    make(2);
    cl_event user = MADE(clCreateUserEvent, program.context);
    OK(clEnqueueBarrierWithWaitList(program.queue, 1, &user, NULL));
    step(0, 1, 3);
    engine_rig_moves(&rig, NULL);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    struct move_request request = {.target = engine_rig_key(&rig, "two"), .grant = &grant};
    move_run(&request, &report);
    atomic_store(&reported, true);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    check(2);
    cr_assert(atomic_load(&in_time));
    cr_assert_eq(policy.asked, 1);
    OK(clReleaseEvent(user));
    end(2);
}

/* Virtual devices on one device share its budget; each gives up what it was granted alone. */
Test(room, a_shrink_takes_no_grant_of_another_virtual_device, .timeout = 60)
{
    begin(plenty, BUDGET_SPILL);
    engine_rig_vdev(&rig, "one");
    budget_grant(0, FEW);
    budget_grant(1, 2 * FEW);
    cr_assert_eq(budget_shrink(0, 0), FEW);
    cr_assert_eq(budget("one")->granted, 2 * FEW);
    cr_assert_eq(budget_shrink(0, 0), 0);
    cr_assert_eq(budget_shrink(1, BYTES), 2 * FEW - BYTES);
    cr_assert_eq(budget("one")->granted, BYTES);
    end(0);
}

static bool undecided;

/* Nobody decides any more while another virtual device is on its way to where this one has all it
 * wants: then neither is owed anything there. */
static void let_nobody_decide(void *data, const struct move_progress *progress)
{
    struct move_request *request = data;
    if (progress->phase != MOVE_PREPARE || undecided)
        return;
    undecided = true;
    struct device *device;
    cr_assert_eq(driver_open_device(engine_rig_key(&rig, "two"), &device), 0);
    cr_assert_eq(device->budget.granted, 2 * FEW);
    cr_assert_eq(budget_ask(device, BYTES, BYTES, false, OVER_BUDGET), BUDGET_AGAIN);
    cr_assert_not(device->budget.limited);
    cr_assert_eq(device->budget.granted, FEW, "what is on its way is not counted");
    if (request->cancel)
        atomic_store((atomic_bool *)(uintptr_t)request->cancel, true);
}

static void check_reservation(bool canceled)
{
    const uint64_t grant = FEW;
    atomic_bool cancel = false;
    struct move_report report;
    begin(plenty, BUDGET_SPILL);
    engine_rig_vdev(&rig, "two");
    budget_set_policy(NULL);
    budget_grant(1, FEW);
    struct move_request request = {.target = engine_rig_key(&rig, "two"),
                                   .grant = &grant,
                                   .cancel = canceled ? &cancel : NULL,
                                   .progress = let_nobody_decide,
                                   .data = &request};
    move_run(&request, &report);
    cr_assert_eq(report.result, canceled ? MOVE_CANCELED : MOVE_DONE, "%s", report.reason);
    cr_assert_eq(budget("two")->granted, canceled ? 0 : FEW);
    budget_grant(1, BYTES);
    cr_assert_eq(budget("two")->granted, canceled ? BYTES : FEW + BYTES);
    if (!canceled)
        engine_rig_moves(&rig, "one");
    cr_assert_eq(budget("two")->granted, BYTES);
    end(0);
}

TestCall(room, without_a_policy_a_move_under_way_keeps_its_grant, check_reservation(false),
         .timeout = 60);
TestCall(room, without_a_policy_a_move_that_is_canceled_gives_its_grant_back,
         check_reservation(true), .timeout = 60);

/* Mapped objects keep their pointers and their room; views go with what they are views of. */
Test(room, maps_and_views_of_what_spills, .timeout = 60)
{
    const cl_buffer_region half = {BYTES / 2, BYTES / 2};
    begin(plenty, BUDGET_SPILL);
    budget_grant(0, FEW);
    make(BUFFERS);
    cl_mem part = MADE(clCreateSubBuffer, buffers[1], 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    cl_uint *mapped = MADE(clEnqueueMapBuffer, program.queue, buffers[0], CL_TRUE,
                           CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL);
    cr_assert(memcmp(mapped, want[0], BYTES) == 0);
    for (unsigned r = 0; r < 2; r++)
        for (size_t b = 1; b < BUFFERS; b++)
            step(b, b % (BUFFERS - 1) + 1, r + 1);
    for (size_t i = 0; i < WORDS; i++)
        mapped[i] = want[0][i] = (cl_uint)i * 11;
    OK(clEnqueueUnmapMemObject(program.queue, buffers[0], mapped, 0, NULL, NULL));
    const cl_uint pattern = 0x5a5a1234;
    OK(clEnqueueFillBuffer(program.queue, part, &pattern, 4, 0, BYTES / 2, 0, NULL, NULL));
    for (size_t i = WORDS / 2; i < WORDS; i++)
        want[1][i] = pattern;
    rounds(1, BUFFERS);
    check(BUFFERS);
    OK(clReleaseMemObject(part));
    end(BUFFERS);
}

/* Threads with working sets that do not fit together take turns, and each goes on. */
struct worker {
    pthread_t thread;
    cl_command_queue queue;
    cl_kernel kernel;
    size_t first;
};

static void *work(void *data)
{
    struct worker *worker = data;
    for (cl_uint n = 1; n <= 12; n++)
        for (size_t b = worker->first; b < worker->first + 3; b++) {
            OK(clSetKernelArg(worker->kernel, 0, sizeof(cl_mem), &buffers[b]));
            OK(clSetKernelArg(worker->kernel, 1, sizeof(cl_mem),
                              &buffers[b + 1 < worker->first + 3 ? b + 1 : worker->first]));
            OK(clSetKernelArg(worker->kernel, 2, sizeof(n), &n));
            launch(worker->kernel, worker->queue);
            const cl_uint *in = want[b + 1 < worker->first + 3 ? b + 1 : worker->first];
            for (size_t i = 0; i < WORDS; i++)
                want[b][i] += in[i] * n + (cl_uint)i;
        }
    OK(clFinish(worker->queue));
    return NULL;
}

Test(room, threads_take_turns, .timeout = 120)
{
    struct worker workers[4];
    /* Not on POCL's basic device, which runs commands in whichever thread asks for them. */
    begin("[one] name=one base=1 [two] name=two base=1", BUDGET_SPILL);
    budget_grant(0, 3 * BYTES);
    make(BUFFERS);
    for (size_t w = 0; w < 4; w++) {
        workers[w] = (struct worker){.first = 3 * w};
        workers[w].queue = MADE(clCreateCommandQueue, program.context, rig.device, 0);
        workers[w].kernel = engine_kernel(program.program, "add");
        cr_assert_eq(pthread_create(&workers[w].thread, NULL, work, &workers[w]), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        struct move_report report;
        const uint64_t grant = (3 + i % 2) * BYTES;
        struct move_request request = {.target = engine_rig_key(&rig, i % 2 ? "one" : "two"),
                                       .grant = &grant};
        engine_rig_sleep(10);
        move_run(&request, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    }
    for (size_t w = 0; w < 4; w++) {
        cr_assert_eq(pthread_join(workers[w].thread, NULL), 0);
        RELEASE(workers[w].queue, workers[w].kernel);
    }
    check(BUFFERS);
    end(BUFFERS);
}

static struct control_report move_counted(uint64_t wanted, uint64_t grant)
{
    struct control_request request = {.limited = true, .grants = {grant}, .wanted = {wanted}};
    struct control_report report;
    request.targets[0] = *engine_rig_key(&rig, "two");
    control_job_run(&request, &report);
    return report;
}

/* What an agent granted for less than the program has by now is not what it is to live with. */
Test(room, a_move_that_counts_with_too_little_is_asked_for_again, .timeout = 60)
{
    struct vdev_status status;
    begin(plenty, BUDGET_SPILL);
    make(4);
    struct control_report report = move_counted(FEW - 1, FEW - 1);
    cr_assert_eq(report.whole.result, CONTROL_AGAIN);
    cr_assert_eq(report.count, 0);
    status_vdev(0, &status);
    cr_assert_str_eq(status.device.device, "one");
    report = move_counted(FEW, FEW - BYTES);
    cr_assert_eq(report.whole.result, MOVE_DONE, "%s", report.whole.reason);
    cr_assert_leq(budget("two")->held, FEW - BYTES);
    engine_rig_moves(&rig, "one");
    report = move_counted(1, FEW);
    cr_assert_eq(report.whole.result, MOVE_DONE, "%s", report.whole.reason);
    rounds(1, 4);
    check(4);
    end(4);
}

/* A wait that goes on when somebody asks is counted up to then, and the rest the next time. Waits
 * of several threads at once count once. */
Test(room, how_busy_a_device_is_is_the_share_of_time_in_which_somebody_waits)
{
    struct budget budget = {0};

    cr_expect_eq(budget_share(&budget, 1000), 0, "nothing is known yet");
    budget_wait_begin(&budget, 1100);
    budget_wait_begin(&budget, 1150);
    budget_wait_end(&budget, 1200);
    budget_wait_end(&budget, 1350);
    cr_expect_eq(budget_share(&budget, 2000), 250);
    budget_wait_begin(&budget, 2900);
    cr_expect_eq(budget_share(&budget, 3000), 100);
    cr_expect_eq(budget_share(&budget, 4000), 1000);
    budget_wait_end(&budget, 4500);
    cr_expect_eq(budget_share(&budget, 5000), 500);
    cr_expect_eq(budget_share(&budget, 6000), 0);
}

Test(room, a_device_that_runs_commands_in_the_call_that_gives_them_is_seen_to_be_busy,
     .timeout = 60)
{
    begin(plenty, BUDGET_REFUSE);
    budget_grant(0, FEW);
    make(1);
    rounds(1, 1);
    const struct context *context = memory_get(buffers[0])->context;
    struct residence *residence = context->at[atomic_load(&context->residence_index[0])];
    for (cl_uint at_once = 0; at_once < 2; at_once++) {
        OK(clFinish(program.queue));
        atomic_store(&budget("one")->waited, 0);
        residence->runs_at_once = at_once != 0;
        use(0, at_once);
        cr_expect_eq(atomic_load(&budget("one")->waited) > 0, at_once != 0);
    }
    check(1);
    end(1);
}
