#include <sys/wait.h>
#include <unistd.h>

#include "tests/state/move/test_moves_fetch_common.h"

/* Resumes on demand. */

Test(fetch, brings_what_a_command_names_before_the_rest, .timeout = 120)
{
    open_on(LINK);
    suspend_and_resume("two", 1 << 20);
    add(5, 3);
    OK(clFinish(f.program.queue));
    cr_assert(is_there(f.buffers[5]));
    cr_assert_gt(left(), 5 * BYTES, "all of it was there first");
    unsigned there = 0;
    for (unsigned b = 0; b < BUFFERS; b++)
        there += is_there(f.buffers[b]);
    cr_assert_leq(there, 4);
    check("on demand");
    end();
}

Test(fetch, brings_all_of_it_while_the_program_runs, .timeout = 120)
{
    open_on(LINK);
    suspend_and_resume("two", 0);
    uint64_t calls = emu_shared_calls(f.rig.emu, "two", "clEnqueueNDRangeKernel");
    for (unsigned i = 0; left() != 0; i++)
        add(i % 2, i);
    OK(clFinish(f.program.queue));
    cr_assert_gt(emu_shared_calls(f.rig.emu, "two", "clEnqueueNDRangeKernel"), calls + 2);
    await_all();
    for (unsigned b = 0; b < BUFFERS; b++) {
        cr_assert(is_there(f.buffers[b]), "buffer %u was left", b);
        cr_assert_null(memory_get(f.buffers[b])->host_copy, "buffer %u is in host memory still", b);
    }
    cr_assert(is_there(f.image));
    cr_assert_null(memory_get(f.image)->host_copy);
    uint64_t writes = emu_shared_calls(f.rig.emu, "two", "clEnqueueWriteBuffer");
    check("fetched");
    cr_assert_eq(emu_shared_calls(f.rig.emu, "two", "clEnqueueWriteBuffer"), writes,
                 "something was brought again");
    end();
}

Test(fetch, keeps_to_a_bandwidth, .timeout = 120)
{
    const uint64_t rate = 32 << 20;
    open_on("[one] name=one base=1 [two] name=two base=1");
    uint64_t begin = engine_rig_now();
    suspend_and_resume("two", rate);
    await_all();
    uint64_t least = (BUFFERS * BYTES - rate / 8) * 1000 / rate * MS;
    cr_assert_geq(engine_rig_now() - begin, least);
    check("fetched slowly");
    end();
}

/* At a kilobyte a second the next bytes are due in some minutes. */
Test(fetch, is_not_late_for_one_that_was_slow, .timeout = 60)
{
    open_on("[one] name=one base=1 [two] name=two base=1");
    suspend_and_resume("two", 1024);
    for (int i = 0; i < 1000 && left() == (BUFFERS + 1) * BYTES; i++)
        engine_rig_sleep(2);
    engine_rig_sleep(50);
    cr_assert_gt(left(), 0);
    suspend_and_resume("two", 0);
    await_all();
    check("fetched slowly, then fast");
    end();
}

Test(fetch, is_taken_over_by_the_next_move, .timeout = 120)
{
    struct move_report report;
    open_on(LINK);
    for (unsigned i = 0; i < 4; i++) {
        suspend_and_resume("two", 8 << 20);
        engine_rig_sleep(30 * i);
        add(i, 7);
        add(7 - i, 5);
        cr_assert_gt(left(), 0);
        if (i % 2) {
            engine_rig_moves(&f.rig, NULL);
            move_how("one", MOVE_FETCH_WHOLE, 0, &report);
            cr_assert_gt(report.bytes, 0);
        } else {
            engine_rig_moves(&f.rig, "one");
        }
        cr_assert_eq(left(), 0, "it goes on after the move");
        check("moved in the middle");
    }
    end();
}

/* A rollback is none: it goes on. */
Test(fetch, goes_on_after_a_move_that_failed, .timeout = 120)
{
    static atomic_bool cancel = true;
    struct move_report report;
    open_on(LINK);
    suspend_and_resume("two", 0);
    struct move_request request = {.target = engine_rig_key(&f.rig, "one"), .cancel = &cancel};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    await_all();
    for (unsigned b = 0; b < BUFFERS; b++)
        cr_assert(is_there(f.buffers[b]), "buffer %u was left", b);
    check("after a rollback");
    end();
}

Test(fetch, leaves_maps_alone, .timeout = 120)
{
    open_on(LINK);
    suspend_and_resume("two", 4 << 20);
    cl_uint *map = MADE(clEnqueueMapBuffer, f.program.queue, f.buffers[6], CL_TRUE,
                        CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL);
    expect(map, 6, 0, "mapped");
    engine_rig_sleep(100);
    for (size_t i = 0; i < ITEMS; i++)
        map[i] += 9;
    f.added[6] += 9;
    /* It is mapped when the program goes, and comes back. */
    suspend_and_resume_mapped("two", 4 << 20, BYTES);
    expect(map, 6, 9, "resumed with a map");
    OK(clEnqueueUnmapMemObject(f.program.queue, f.buffers[6], map, 0, NULL, NULL));
    check("unmapped");
    end();
}

/* Every call of the driver that only the fetching makes fails once: nothing that is named later is
 * missed. */
Test(fetch, that_fails_leaves_it_to_commands, .timeout = 300)
{
    static const char *const calls[] = {"clEnqueueWriteBuffer", "clEnqueueWriteImage", "clFlush",
                                        "clGetEventInfo"};
    open_on("[one] name=one base=1 [two] name=two base=1");
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        for (unsigned n = 1; n <= 3; n++) {
            uint64_t fired = emu_shared_fired(f.rig.emu, "two");
            suspend_and_resume("two", 64 << 20);
            cr_assert_eq(emu_shared_arm(f.rig.emu, "two", n, calls[i], CL_OUT_OF_HOST_MEMORY), 0);
            uint64_t until = engine_rig_now() + 300 * MS;
            while (emu_shared_fired(f.rig.emu, "two") == fired && engine_rig_now() < until)
                engine_rig_sleep(1);
            (void)emu_shared_disarm(f.rig.emu, "two");
            check(calls[i]);
        }
    end();
}

/* Host memory has all that was not written since. */
Test(fetch, from_a_device_that_is_lost_leaves_nothing_out, .timeout = 120)
{
    open_on(LINK);
    suspend_and_resume("two", 16 << 20);
    engine_rig_sleep(300);
    cr_assert_gt(left(), 0);
    cr_assert_eq(emu_shared_vanish(f.rig.emu, "two"), 0);
    engine_rig_sleep(300);
    engine_rig_moves(&f.rig, "one");
    check("on the other device");
}

Test(fetch, is_not_a_childs, .timeout = 120)
{
    open_on(LINK);
    suspend_and_resume("two", 4 << 20);
    pid_t child = fork();
    if (child == 0) {
        struct vdev_status status;
        status_vdev(0, &status);
        _exit(status.to_fetch == 0 ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
    check("after a fork");
    end();
}

Test(fetch, ends_with_the_program, .timeout = 60, .exit_code = 7)
{
    open_on(LINK);
    suspend_and_resume("two", 0);
    exit(7);
}

Test(fetch, is_for_what_is_much, .timeout = 120)
{
    struct move_report report;
    open_on("[one] name=one base=1 [two] name=two base=1");
    engine_rig_moves(&f.rig, NULL);
    move_how("two", MOVE_FETCH_AUTO, 0, &report);
    cr_assert_geq(report.bytes, BUFFERS * BYTES, "so few bytes were left behind");
    cr_assert_eq(left(), 0);
    end();
}
