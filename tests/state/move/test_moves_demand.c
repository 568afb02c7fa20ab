#include <sys/wait.h>
#include <unistd.h>

#include "state/budget/budget.h"
#include "tests/state/move/test_moves_fetch_common.h"

/* Moves on demand: what the program has stays on the device that it left until it is fetched. */

#define SLOW "[one] name=one link_mb_s=40 base=1 [two] name=two base=1 [three] name=three base=1"
#define FAST "[one] name=one base=1 [two] name=two base=1 [three] name=three base=1"
#define ALL  ((BUFFERS + 1) * BYTES)

TestSuite(demand, .timeout = 120);

/* @urgent: bytes that are there before the program runs. */
static void moves_urgent(const char *to, uint64_t bandwidth, uint64_t urgent)
{
    struct move_report report;
    move_how(to, MOVE_FETCH_ON_DEMAND, bandwidth, &report);
    cr_assert_eq(report.bytes, urgent, "it copied %llu before the program ran",
                 (unsigned long long)report.bytes);
    cr_assert_str_eq(place_of_vdev(), to);
}

static void moves(const char *to, uint64_t bandwidth)
{
    moves_urgent(to, bandwidth, 0);
}

static uint64_t copied_by_move(const char *to)
{
    struct move_report report;
    move_how(to, MOVE_FETCH_AUTO, 0, &report);
    cr_assert_eq(report.left, 0);
    return report.bytes;
}

static uint64_t on(const char *device)
{
    return emu_shared_bytes(f.rig.emu, device);
}

static bool is_source(const char *device, uint64_t bytes)
{
    static struct vdev_status status;
    status_vdev(0, &status);
    for (uint32_t i = 0; i < status.source_count; i++)
        if (strcmp(status.sources[i].device.device, device) == 0)
            return status.sources[i].bytes == bytes;
    return bytes == 0;
}

Test(demand, runs_at_once_and_brings_what_a_command_names_first)
{
    struct move_report report;
    open_on(SLOW);
    move_how("two", MOVE_FETCH_ON_DEMAND, 1 << 20, &report);
    cr_assert_eq(report.bytes, 0);
    cr_assert_eq(report.left, ALL);
    add(5, 3);
    OK(clFinish(f.program.queue));
    cr_assert(is_there(f.buffers[5]));
    cr_assert_gt(left(), 5 * BYTES, "all of it was there first");
    cr_assert(is_source("one", ALL), "who looks on is not told what is left there");
    cl_uint word;
    OK(clEnqueueReadBuffer(f.program.queue, f.buffers[3], CL_TRUE, 4, 4, &word, 0, NULL, NULL));
    cr_assert_eq(word, word_of(3, 1));
    cr_assert_eq(emu_shared_live(f.rig.emu, "one", EMU_QUEUE), 1, "commands run where it was");
    cr_assert_eq(emu_shared_live(f.rig.emu, "one", EMU_KERNEL), 0);
    cr_assert_eq(emu_shared_live(f.rig.emu, "one", EMU_PROGRAM), 0);
    check("on demand");
    end();
}

Test(demand, leaves_nothing_at_its_source_once_all_is_there)
{
    open_on(SLOW);
    moves("two", 0);
    for (unsigned i = 0; left() != 0; i++) {
        add(i % 2, i);
        OK(clFinish(f.program.queue));
    }
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    cr_assert(is_source("one", 0));
    for (unsigned b = 0; b < BUFFERS; b++) {
        cr_assert(is_there(f.buffers[b]), "buffer %u was left", b);
        cr_assert_null(memory_get(f.buffers[b])->host_copy, "buffer %u is in host memory", b);
    }
    cr_assert(is_there(f.image));
    check("fetched");
    end();
}

/* Ten seconds of it, in which nothing is given to the device. */
Test(demand, a_long_launch_keeps_no_source)
{
    cl_event event;
    cl_int status;
    open_on("[one] name=one base=1 [two] name=two base=1 items_per_s=100000 paced=add");
    moves("two", 0);
    OK(clSetKernelArg(f.add, 0, sizeof(cl_mem), &f.buffers[0]));
    OK(clSetKernelArg(f.add, 1, sizeof(cl_uint), &(cl_uint){1}));
    launch(f.program.queue, f.add, ITEMS, 0, &event);
    OK(clFlush(f.program.queue));
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_gt(status, CL_COMPLETE, "it ended first");
    f.added[0]++;
    OK(clReleaseEvent(event));
    check("after a long launch");
    end();
}

Test(demand, is_only_where_it_is_asked_for)
{
    open_on(FAST);
    cr_assert_eq(copied_by_move("two"), ALL);
    cr_assert(engine_rig_empties(&f.rig, "one"));
    end();
}

/* To a third device, and into host memory. */
Test(demand, what_was_left_is_gathered_by_the_next_move)
{
    static const char *const names[] = {"one", "two", "three"};
    open_on(SLOW);
    moves("two", 1 << 20);
    add(1, 7);
    cr_assert_gt(copied_by_move("three"), BUFFERS * BYTES);
    cr_assert_eq(left(), 0);
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    cr_assert(engine_rig_empties(&f.rig, "two"));
    check("moved on");
    moves("one", 1 << 20);
    add(2, 9);
    OK(clFinish(f.program.queue));
    engine_rig_moves(&f.rig, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert(engine_rig_empties(&f.rig, names[i]), "%s: %s", names[i],
                  engine_rig_alive(&f.rig, names[i]));
    engine_rig_moves(&f.rig, "two");
    check("suspended and resumed");
    end();
}

Test(demand, may_follow_another_that_has_not_ended)
{
    open_on(SLOW);
    moves("two", 1 << 20);
    add(1, 7);
    OK(clFinish(f.program.queue));
    moves("three", 0);
    cr_assert(is_source("one", ALL));
    cr_assert_neq(on("two"), 0, "what was written there was dropped");
    cr_assert_lt(on("two"), ALL, "what has to be fetched from elsewhere is kept");
    add(1, 2);
    add(4, 2);
    check("from two sources");
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    cr_assert(engine_rig_empties(&f.rig, "two"), "%s", engine_rig_alive(&f.rig, "two"));
    check("fetched from two sources");
    end();
}

/* What was not written since is there already. */
Test(demand, a_move_back_finds_in_its_place_what_was_left)
{
    struct move_report report;
    open_on(SLOW);
    moves("two", 1 << 20);
    add(3, 1);
    OK(clFinish(f.program.queue));
    cr_assert_eq(copied_by_move("one"), BYTES);
    cr_assert(engine_rig_empties(&f.rig, "two"));
    cr_assert_eq(left(), 0);
    check("back");
    moves("two", 1 << 20);
    add(3, 1);
    OK(clFinish(f.program.queue));
    move_how("one", MOVE_FETCH_ON_DEMAND, 0, &report);
    cr_assert_eq(report.left, BYTES);
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "two"));
    check("back on demand");
    end();
}

/* Whichever call it fails at: what was left there is there still, and is fetched on. */
Test(demand, a_move_back_that_fails_drops_nothing_that_was_left, .timeout = 300)
{
    open_on(FAST);
    moves("two", 1 << 20);
    unsigned failed = 0;
    for (unsigned n = 1; n < 60; n++) {
        const struct move_request request = {.target = engine_rig_key(&f.rig, "one")};
        struct move_report report;
        add(n % BUFFERS, n);
        OK(clFinish(f.program.queue));
        cr_assert_eq(emu_shared_arm(f.rig.emu, "one", n, NULL, EMU_ERROR_NATURAL), 0);
        move_run(&request, &report);
        (void)emu_shared_disarm(f.rig.emu, "one");
        if (report.result == MOVE_DONE)
            moves("two", 1 << 20);
        else
            failed++;
        cr_assert_str_eq(place_of_vdev(), "two");
    }
    cr_assert_gt(failed, 5);
    check("after rollbacks");
    (void)copied_by_move("one");
    check("back at last");
    cr_assert(engine_rig_empties(&f.rig, "two"));
    close_all(); /* what could not be unmapped on the other is its driver's */
}

Test(demand, is_canceled_with_its_source_untouched)
{
    static atomic_bool cancel = true;
    struct move_report report;
    open_on(FAST);
    struct move_request request = {
        .target = engine_rig_key(&f.rig, "two"), .fetch = MOVE_FETCH_ON_DEMAND, .cancel = &cancel};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    cr_assert_str_eq(place_of_vdev(), "one");
    cr_assert_eq(left(), 0);
    cr_assert(engine_rig_empties(&f.rig, "two"));
    check("canceled");
    end();
}

/* Every call of a driver that fetching makes fails once, on either device: nothing is left out, and
 * in the end nothing is left behind. */
Test(demand, that_fails_in_the_background_is_tried_again, .timeout = 300)
{
    static const char *const calls[] = {"clEnqueueWriteBuffer", "clEnqueueReadBuffer",
                                        "clEnqueueReadImage", "clFlush", "clGetEventInfo"};
    const char *at = "one", *to = "two";
    open_on(FAST);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(calls); i++) {
        const char *const name = calls[i / 2];
        const char *const armed = i % 2 ? at : to;
        moves(to, 0);
        cr_assert_eq(emu_shared_arm(f.rig.emu, armed, 1, name, CL_OUT_OF_HOST_MEMORY), 0);
        await_all();
        (void)emu_shared_disarm(f.rig.emu, armed);
        cr_assert(engine_rig_empties(&f.rig, at), "%s fails: %s", name,
                  engine_rig_alive(&f.rig, at));
        check(name);
        const char *before = at;
        at = to;
        to = before;
    }
    end();
}

/* What is there goes on; what was not fetched is lost, as with any device. */
Test(demand, a_source_that_is_lost_takes_only_what_was_not_fetched)
{
    cl_uint word;
    open_on(SLOW);
    moves("two", 1 << 20);
    add(5, 3);
    OK(clFinish(f.program.queue));
    cr_assert_eq(emu_shared_vanish(f.rig.emu, "one"), 0);
    unsigned lost = 0;
    for (unsigned b = 0; b < BUFFERS; b++) {
        cl_int error = clEnqueueReadBuffer(f.program.queue, f.buffers[b], CL_TRUE, BYTES - 4, 4,
                                           &word, 0, NULL, NULL);
        cr_assert(error == CL_SUCCESS || error == CL_OUT_OF_RESOURCES, "%d", error);
        lost += error != CL_SUCCESS;
        if (error == CL_SUCCESS)
            cr_assert_eq(word, word_of(b, ITEMS - 1) + f.added[b]);
    }
    cr_assert(is_there(f.buffers[5]));
    cr_assert_gt(lost, 4);
    await_all();
    cr_assert(is_source("one", 0), "the program keeps what is lost");
    /* It writes all of one anew. */
    add(5, 4);
    cl_uint *words = malloc(BYTES);
    engine_read_there(f.program.queue, f.buffers[5], 0, BYTES, words);
    expect(words, 5, 7, "after the loss");
    free(words);
    engine_rig_moves(&f.rig, "three");
    add(5, 1);
    OK(clFinish(f.program.queue));
}

static void lose_source(void *data, const struct move_progress *progress)
{
    (void)data;
    if (progress->phase == MOVE_COPY && emu_shared_fired(f.rig.emu, "one") == 0)
        cr_assert_eq(emu_shared_arm(f.rig.emu, "one", 1, "clEnqueueReadBuffer", EMU_ERROR_VANISH),
                     0);
}

/* While a move gathers with the program stopped what is mapped, and there for the most part. */
Test(demand, a_source_that_is_lost_keeps_no_move)
{
    open_on(FAST);
    moves("two", 1 << 20);
    add(5, 3);
    (void)MADE(clEnqueueMapBuffer, f.program.queue, f.buffers[0], CL_TRUE, CL_MAP_READ, 0, 4096, 0,
               NULL, NULL);
    struct move_request request = {.target = engine_rig_key(&f.rig, "three"),
                                   .progress = lose_source};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(emu_shared_fired(f.rig.emu, "one"), 1);
    cr_assert(is_source("one", 0));
    cl_uint *words = malloc(BYTES);
    for (unsigned b = 1; b < BUFFERS; b++) {
        engine_read_there(f.program.queue, f.buffers[b], 0, BYTES, words);
        expect(words, b, f.added[b], "after a move from a lost source");
    }
    free(words);
}

/* M1: what was written on the target is lost with it, and nothing else. */
Test(demand, a_target_that_is_lost_takes_only_what_was_written_there)
{
    struct move_report report;
    open_on(SLOW);
    moves("two", 1 << 20);
    add(5, 3);
    OK(clFinish(f.program.queue));
    cr_assert_eq(emu_shared_vanish(f.rig.emu, "two"), 0);
    cr_assert_neq(clFinish(f.program.queue), CL_SUCCESS);
    engine_rig_sleep(100);
    cr_assert(is_source("one", ALL));
    cr_assert_eq(engine_rig_move(&f.rig, "one", &report), MOVE_REFUSED);
    cr_assert(strstr(report.reason, "the latest bytes of 1 object:"), "%s", report.reason);
    OK(clReleaseMemObject(f.buffers[5]));
    OK(clSetKernelArg(f.add, 0, sizeof(cl_mem), &f.buffers[0]));
    cr_assert_eq(engine_rig_move(&f.rig, "one", &report), MOVE_DONE, "%s", report.reason);
    cr_assert_eq(report.bytes, 0, "it was all there");
    cl_uint *words = malloc(BYTES);
    for (unsigned b = 0; b < BUFFERS; b++)
        if (b != 5) {
            engine_read_there(f.program.queue, f.buffers[b], 0, BYTES, words);
            expect(words, b, 0, "moved back from a lost device");
        }
    free(words);
    add(1, 1);
    OK(clFinish(f.program.queue));
}

/* To a third device, when the one that it is on is lost: from where it was before. */
Test(demand, a_lost_target_is_left_for_another_with_what_its_source_has)
{
    open_on(SLOW);
    moves("two", 1 << 20);
    engine_rig_sleep(50);
    cr_assert_eq(emu_shared_vanish(f.rig.emu, "two"), 0);
    cr_assert_neq(clFinish(f.program.queue), CL_SUCCESS);
    engine_rig_moves(&f.rig, "three");
    check("on the third device");
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
}

Test(demand, takes_maps_along)
{
    open_on(SLOW);
    cl_uint *map = MADE(clEnqueueMapBuffer, f.program.queue, f.buffers[6], CL_TRUE,
                        CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL);
    moves_urgent("two", 1 << 20, BYTES);
    expect(map, 6, 0, "mapped, and moved");
    for (size_t i = 0; i < ITEMS; i++)
        map[i] += 9;
    f.added[6] += 9;
    cr_assert_gt(left(), 0);
    OK(clEnqueueUnmapMemObject(f.program.queue, f.buffers[6], map, 0, NULL, NULL));
    check("unmapped");
    end();
}

/* A map of a few bytes that lasts: the source does not have to wait for its end. */
Test(demand, a_map_that_lasts_keeps_no_source)
{
    enum { FEW = 1024 };
    open_on(SLOW);
    moves("two", 0);
    cl_uint *map = MADE(clEnqueueMapBuffer, f.program.queue, f.buffers[0], CL_TRUE,
                        CL_MAP_READ | CL_MAP_WRITE, 0, FEW * 4, 0, NULL, NULL);
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    for (size_t i = 0; i < FEW; i++)
        map[i] = word_of(0, i);
    OK(clEnqueueUnmapMemObject(f.program.queue, f.buffers[0], map, 0, NULL, NULL));
    check("mapped while it was fetched");
    end();
}

/* A command that was given before still needs it. */
Test(demand, what_the_program_let_go_of_is_fetched_for_what_is_held)
{
    open_on(SLOW);
    cl_event user = MADE(clCreateUserEvent, f.program.context);
    cl_mem out = engine_buffer(f.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clEnqueueCopyBuffer(f.program.queue, f.buffers[2], out, 0, 0, BYTES, 1, &user, NULL));
    OK(clReleaseMemObject(f.buffers[2]));
    moves("two", 0);
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cl_uint *words = malloc(BYTES);
    OK(clEnqueueReadBuffer(f.program.queue, out, CL_TRUE, 0, BYTES, words, 0, NULL, NULL));
    expect(words, 2, 0, "copied from what was released");
    free(words);
    OK(clReleaseEvent(user));
    f.buffers[2] = out;
    check("after the copy");
    end();
}

/* There is no room for most of it. */
Test(demand, what_does_not_fit_goes_to_host_memory)
{
    const uint64_t grant = 3 * BYTES;
    struct move_report report;
    open_on(FAST);
    struct move_request request = {
        .target = engine_rig_key(&f.rig, "two"), .fetch = MOVE_FETCH_ON_DEMAND, .grant = &grant};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(report.bytes, 0);
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    cr_assert_leq(on("two"), grant);
    for (unsigned b = 0; b < BUFFERS; b++)
        add(b, b);
    OK(clFinish(f.program.queue));
    budget_grant(0, ALL + 2 * BYTES);
    check("spilled");
    end();
}

Test(demand, no_device_is_made_ready_that_has_what_is_on_its_way)
{
    struct move_report report;
    open_on(SLOW);
    moves("two", 1 << 20);
    struct move_request request = {.target = engine_rig_key(&f.rig, "one"), .prewarm = true};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK);
    cr_assert(strstr(report.reason, "still on its way"), "%s", report.reason);
    request.target = engine_rig_key(&f.rig, "three");
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_gt(left(), 0);
    (void)copied_by_move("three");
    check("where it was ready");
    end();
}

/* Those that work on the host's bytes: what leaves one is in host memory, what comes to one goes
 * there. */
Test(demand, to_and_from_a_device_that_works_in_place)
{
    open_on("[one] name=one base=1 link_mb_s=40 [two] name=two base=1 type=cpu host_unified=yes");
    moves("two", 0);
    add(3, 5);
    await_all();
    cr_assert(engine_rig_empties(&f.rig, "one"), "%s", engine_rig_alive(&f.rig, "one"));
    check("in place");
    struct move_report report;
    uint64_t reads = emu_shared_calls(f.rig.emu, "two", "clEnqueueReadBuffer");
    move_how("one", MOVE_FETCH_ON_DEMAND, 1 << 20, &report);
    cr_assert_eq(emu_shared_calls(f.rig.emu, "two", "clEnqueueReadBuffer"), reads,
                 "what is in host memory was copied there");
    cr_assert_gt(left(), 0);
    cr_assert(engine_rig_empties(&f.rig, "two"), "%s", engine_rig_alive(&f.rig, "two"));
    check("no more");
    end();
}

Test(demand, is_not_a_childs)
{
    open_on(SLOW);
    moves("two", 1 << 20);
    pid_t child = fork();
    if (child == 0) {
        struct vdev_status status;
        status_vdev(0, &status);
        _exit(status.to_fetch == 0 && status.source_count == 0 ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
    check("after a fork");
    end();
}
