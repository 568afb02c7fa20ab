#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/memory/memory.h"
#include "tests/state/move/test_moves_common.h"

/* Resumes on demand. */

#define MS UINT64_C(1000000)
/* All that the program has takes the link a second and more. POCL's basic device, the other one,
 * deadlocks where several threads give it what they copied. */
#define LINK    "[one] name=one base=1 [two] name=two link_mb_s=40 base=1"
#define BUFFERS 8
#define BYTES   ((size_t)4 << 20)
#define ITEMS   (BYTES / sizeof(cl_uint))
#define SIDE    1024 /* of the image, whose elements are words */

static const char source[] = "__kernel void add(__global uint *words, uint value)\n"
                             "{ words[get_global_id(0)] += value; }\n"
                             "__kernel void look(__global uint *out, read_only image2d_t from)\n"
                             "{ int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
                             "  out[at.y * 1024 + at.x] = read_imageui(from, at).x; }\n";

static struct fetched {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
    cl_mem buffers[BUFFERS], image;
    cl_uint added[BUFFERS];
} f;

static cl_uint word(cl_uint buffer, size_t i)
{
    return (cl_uint)i * 2654435761u + buffer;
}

static void open_on(const char *config)
{
    static const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    static const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    cl_uint *words = malloc(BYTES);
    cl_int error;
    cr_assert_not_null(words);
    engine_rig_open(&f.rig, config);
    engine_program_open(&f.rig, 0, source, &f.program);
    f.add = engine_kernel(f.program.program, "add");
    for (cl_uint b = 0; b <= BUFFERS; b++) {
        for (size_t i = 0; i < ITEMS; i++)
            words[i] = word(b, i);
        if (b < BUFFERS) {
            f.buffers[b] = engine_buffer(f.program.context,
                                         CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
        } else {
            f.image = clCreateImage(f.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                    &format, &desc, words, &error);
            OK(error);
        }
    }
    free(words);
}

static void resume(const char *to, enum move_fetch how, uint64_t bandwidth,
                   struct move_report *ret_report)
{
    struct move_request request = {
        .target = engine_rig_key(&f.rig, to), .fetch = how, .bandwidth = bandwidth};
    move_run(&request, ret_report);
    cr_assert_eq(ret_report->result, MOVE_DONE, "%s", ret_report->reason);
}

/* @mapped: bytes of what is mapped, which are there before the program runs. */
static void suspend_and_resume_mapped(const char *to, uint64_t bandwidth, uint64_t mapped)
{
    struct move_report report;
    engine_rig_moves(&f.rig, NULL);
    resume(to, MOVE_FETCH_ON_DEMAND, bandwidth, &report);
    cr_assert_eq(report.bytes, mapped, "it copied %llu before the program ran",
                 (unsigned long long)report.bytes);
}

static void suspend_and_resume(const char *to, uint64_t bandwidth)
{
    suspend_and_resume_mapped(to, bandwidth, 0);
}

static uint64_t left(void)
{
    struct seat_status status;
    status_seat(0, &status);
    cr_assert_leq(status.fetched, status.to_fetch);
    return status.to_fetch - status.fetched;
}

static void await_all(void)
{
    struct seat_status status;
    uint64_t until = engine_rig_now() + 60000 * MS;
    do {
        engine_rig_sleep(1);
        status_seat(0, &status);
    } while (status.to_fetch != 0 && engine_rig_now() < until);
    cr_assert_eq(status.to_fetch, 0, "%llu of %llu", (unsigned long long)status.fetched,
                 (unsigned long long)status.to_fetch);
}

static void add(unsigned b, cl_uint value)
{
    OK(clSetKernelArg(f.add, 0, sizeof(cl_mem), &f.buffers[b]));
    OK(clSetKernelArg(f.add, 1, sizeof(value), &value));
    launch(f.program.queue, f.add, ITEMS, 0, NULL);
    f.added[b] += value;
}

static void expect(const cl_uint *words, unsigned b, cl_uint added, const char *when)
{
    for (size_t i = 0; i < ITEMS; i++)
        if (words[i] != word(b, i) + added)
            cr_assert_fail("%s: object %u, word %zu: %x, wanted %x", when, b, i, words[i],
                           word(b, i) + added);
}

/* On the device itself, all of it. */
static void check(const char *when)
{
    const size_t sides[] = {SIDE, SIDE};
    cl_uint *words = malloc(BYTES);
    cr_assert_not_null(words);
    for (unsigned b = 0; b < BUFFERS; b++) {
        engine_read_there(f.program.queue, f.buffers[b], 0, BYTES, words);
        expect(words, b, f.added[b], when);
    }
    cl_kernel look = engine_kernel(f.program.program, "look");
    cl_mem out = engine_buffer(f.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clSetKernelArg(look, 0, sizeof(cl_mem), &out));
    OK(clSetKernelArg(look, 1, sizeof(cl_mem), &f.image));
    OK(clEnqueueNDRangeKernel(f.program.queue, look, 2, NULL, sides, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(f.program.queue, out, CL_TRUE, 0, BYTES, words, 0, NULL, NULL));
    expect(words, BUFFERS, 0, when);
    OK(clReleaseMemObject(out));
    OK(clReleaseKernel(look));
    free(words);
}

static void end(void)
{
    for (unsigned b = 0; b < BUFFERS; b++)
        OK(clReleaseMemObject(f.buffers[b]));
    OK(clReleaseMemObject(f.image));
    OK(clReleaseKernel(f.add));
    engine_program_close(&f.program);
    engine_rig_ends_empty(&f.rig);
}

static bool is_there(cl_mem handle)
{
    struct memory *root = memory_get(handle)->root;
    return replica_is_latest(root, atomic_load(&root->context->place[0]));
}

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
        cr_assert_null(memory_get(f.buffers[b])->window, "buffer %u is in host memory still", b);
    }
    cr_assert(is_there(f.image));
    cr_assert_null(memory_get(f.image)->window);
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
            resume("one", MOVE_FETCH_WHOLE, 0, &report);
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
    cl_int error;
    open_on(LINK);
    suspend_and_resume("two", 4 << 20);
    cl_uint *map = clEnqueueMapBuffer(f.program.queue, f.buffers[6], CL_TRUE,
                                      CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &error);
    OK(error);
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
        struct seat_status status;
        status_seat(0, &status);
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
    resume("two", MOVE_FETCH_AUTO, 0, &report);
    cr_assert_geq(report.bytes, BUFFERS * BYTES, "so few bytes were left behind");
    cr_assert_eq(left(), 0);
    end();
}
