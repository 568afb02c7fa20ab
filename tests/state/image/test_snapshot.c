#include <errno.h>
#include <pthread.h>

#include "state/memory/compare.h"
#include "state/object/lost.h"
#include "tests/state/image/snapshot_play.h"

/* Points: that they have the bytes of one moment, and cost what has changed. */

Test(snapshot, has_the_bytes_of_its_moment_for_as_long_as_it_is_pinned, .timeout = 120)
{
    play_open(TWO);
    cr_assert_null(snapshot_pin());
    cl_mem large = filled(BYTES), small = filled(SMALL);
    cl_mem never = engine_buffer(play.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    add(large, WORDS, 3);
    cr_assert_eq(made().serial, 1);
    struct snapshot *first = snapshot_pin();
    add(large, WORDS, 4);
    add(small, SMALL / sizeof(cl_uint), 9);
    cl_mem later = filled(SMALL);
    cr_assert_eq(made().serial, 2);
    struct snapshot *second = snapshot_pin();
    cr_assert_eq(snapshot_serial(first), 1);
    cr_assert_eq(snapshot_serial(second), 2);
    has_added(first, large, BYTES, 3);
    has_added(first, small, SMALL, 0);
    cr_assert_eq(snapshot_find(first, memory_get(later)), SIZE_MAX);
    has_added(second, large, BYTES, 7);
    has_added(second, small, SMALL, 9);
    has_added(second, later, SMALL, 0);
    struct snapshot_run run;
    cr_assert(snapshot_run(second, index_of(second, never), BYTES - 1, &run));
    cr_assert_null(run.bytes);
    cr_assert_eq(run.range.end, BYTES);
    cr_assert_not(snapshot_run(second, index_of(second, never), BYTES, &run));
    RELEASE(large, small, never, later);
    OK(clFinish(play.program.queue));
    snapshot_unpin(second);
    snapshot_forget();
    cr_assert_null(snapshot_pin());
    cr_assert_geq(snapshot_bytes(), BYTES + SMALL);
    snapshot_unpin(first);
    play_close();
}

Test(snapshot, costs_what_was_written_since_the_one_before, .timeout = 120)
{
    struct snapshot_run run;
    play_open(TWO);
    cl_mem kept = filled(BYTES), changed = filled(BYTES);
    cr_assert_geq(made().copied, 2 * BYTES);
    struct snapshot_report idle = made();
    cr_assert_eq(idle.copied, 0);
    cr_assert_eq(idle.shared, 2 * BYTES);
    add(changed, WORDS, 1);
    struct snapshot_report third = made();
    cr_assert_eq(third.copied, BYTES);
    cr_assert_eq(third.shared, BYTES);
    struct snapshot *snapshot = snapshot_pin();
    cr_assert(snapshot_run(snapshot, index_of(snapshot, kept), 0, &run));
    cr_assert_eq(run.since, 1);
    cr_assert(snapshot_run(snapshot, index_of(snapshot, changed), 0, &run));
    cr_assert_eq(run.since, 3);
    has_added(snapshot, kept, BYTES, 0);
    has_added(snapshot, changed, BYTES, 1);
    cr_assert_eq(snapshot_bytes(), 2 * BYTES);
    snapshot_unpin(snapshot);
    /* Where the bytes are does not matter. */
    engine_rig_moves(&play.rig, "two");
    cr_assert_eq(made().copied, 0);
    engine_rig_moves(&play.rig, NULL);
    cr_assert_eq(made().copied, 0);
    engine_rig_moves(&play.rig, "one");
    RELEASE(kept, changed);
    play_close();
}

/* A handle that is used again is another object. */
Test(snapshot, takes_no_object_for_one_that_was_released, .timeout = 120)
{
    play_open(TWO);
    cl_mem buffer = filled(SMALL);
    (void)made();
    struct snapshot *first = snapshot_pin();
    cl_mem old = buffer;
    OK(clReleaseMemObject(buffer));
    unsigned tries = 0;
    do {
        buffer = filled(SMALL);
        if (buffer == old)
            break;
        OK(clReleaseMemObject(buffer));
    } while (++tries < 100000);
    if (buffer == old) {
        cr_assert_eq(snapshot_find(first, memory_get(buffer)), SIZE_MAX);
        add(buffer, SMALL / sizeof(cl_uint), 2);
        (void)made();
        struct snapshot *second = snapshot_pin();
        has_added(second, buffer, SMALL, 2);
        snapshot_unpin(second);
        OK(clReleaseMemObject(buffer));
    }
    snapshot_unpin(first);
    play_close();
}

static atomic_bool stops;

/* One after the other adds 1: at every moment all words of one are equal, and those of the first
 * are as many as those of the second or one more. */
static void *add_to_both(void *data)
{
    const cl_mem *buffers = data;
    unsigned *rounds = calloc(1, sizeof(*rounds));
    while (!atomic_load(&stops)) {
        add(buffers[0], WORDS, 1);
        add(buffers[1], WORDS, 1);
        OK(clFinish(play.program.queue));
        ++*rounds;
    }
    return rounds;
}

static cl_uint all_words(const struct snapshot *snapshot, cl_mem buffer)
{
    cl_uint *words = malloc(BYTES);
    read_point(snapshot, buffer, 0, BYTES, words);
    cl_uint added = words[0] - word_of(0);
    free(words);
    has_added(snapshot, buffer, BYTES, added);
    return added;
}

static void is_made_beside_a_program(const char *config)
{
    pthread_t thread;
    void *rounds;
    play_open(config);
    cl_mem buffers[] = {filled(BYTES), filled(BYTES)};
    cl_uint last = 0;
    cr_assert_eq(pthread_create(&thread, NULL, add_to_both, buffers), 0);
    for (unsigned i = 0; i < 12; i++) {
        (void)made();
        struct snapshot *snapshot = snapshot_pin();
        cl_uint first = all_words(snapshot, buffers[0]), second = all_words(snapshot, buffers[1]);
        cr_assert(first == second || first == second + 1, "%u and %u", first, second);
        cr_assert_geq(second + 1, last);
        last = first;
        snapshot_unpin(snapshot);
    }
    atomic_store(&stops, true);
    pthread_join(thread, &rounds);
    (void)made();
    struct snapshot *snapshot = snapshot_pin();
    cr_assert_eq(all_words(snapshot, buffers[0]), *(unsigned *)rounds);
    cr_assert_eq(all_words(snapshot, buffers[1]), *(unsigned *)rounds);
    snapshot_unpin(snapshot);
    free(rounds);
    RELEASE(buffers[0], buffers[1]);
    play_close();
}

TestCall(snapshot, is_of_one_moment_of_a_program_that_runs, is_made_beside_a_program(TWO),
         .timeout = 240);

/* The device works in the host copies themselves, and one runs commands in the thread that waits.
 */
TestCall(snapshot, is_of_one_moment_where_devices_work_in_place, is_made_beside_a_program(NULL),
         .timeout = 240);

static int refuses(void *data, const struct snapshot *snapshot)
{
    cr_assert_eq(snapshot_root_count(snapshot), *(size_t *)data);
    return -EXDEV;
}

Test(snapshot, that_cannot_be_made_leaves_the_one_before, .timeout = 120)
{
    static const char *const calls[] = {"clEnqueueReadBuffer", "clEnqueueMarkerWithWaitList"};
    struct snapshot_request plain = {0};
    atomic_bool canceled = true;
    size_t roots = 2;
    play_open(TWO);
    cl_mem large = filled(BYTES), small = filled(SMALL);
    (void)made();
    struct snapshot *before = snapshot_pin();
    uint64_t bytes = snapshot_bytes();
    add(large, WORDS, 1);
    fails(&(struct snapshot_request){.move.cancel = &canceled}, -ECANCELED, before);
    fails(&(struct snapshot_request){.move.deadline_ns = 1}, -ETIMEDOUT, before);
    fails(&(struct snapshot_request){.moment = refuses, .data = &roots}, -EXDEV, before);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        uint64_t fired = emu_shared_fired(play.rig.emu, "one");
        cr_assert_eq(emu_shared_arm(play.rig.emu, "one", 1, calls[i], CL_OUT_OF_HOST_MEMORY), 0);
        fails(&plain, -EIO, before);
        cr_assert_eq(emu_shared_fired(play.rig.emu, "one"), fired + 1);
    }
    cr_assert_eq(snapshot_bytes(), bytes);
    has_added(before, large, BYTES, 0);
    /* The program runs on, and the next one is as if nothing had been. */
    add(large, WORDS, 1);
    cr_assert_eq(made().copied, BYTES);
    struct snapshot *after = snapshot_pin();
    has_added(after, large, BYTES, 2);
    has_added(after, small, SMALL, 0);
    snapshot_unpin(after);
    snapshot_unpin(before);
    RELEASE(large, small);
    play_close();
}

Test(snapshot, of_a_device_that_is_lost_is_none, .timeout = 120)
{
    struct snapshot_request plain = {0};
    lost_answer_ns = 500000000;
    play_open(TWO);
    cl_mem buffer = filled(BYTES);
    (void)made();
    struct snapshot *before = snapshot_pin();
    add(buffer, WORDS, 1);
    OK(clFinish(play.program.queue));
    cr_assert_eq(emu_shared_arm(play.rig.emu, "one", 1, "clEnqueueReadBuffer", EMU_ERROR_VANISH),
                 0);
    uint64_t bytes = snapshot_bytes();
    fails(&plain, -EIO, before);
    cr_assert(vdev_is_lost(the_vdevs[0]));
    /* The driver may still write to where it was to read to. */
    cr_assert_eq(snapshot_bytes(), bytes + BYTES);
    fails(&plain, -EPERM, before);
    has_added(before, buffer, BYTES, 0);
    RELEASE(buffer, play.add);
    engine_program_close(&play.program);
    snapshot_unpin(before);
    free(play.rig.devices);
}

/* What the program has mapped to write is its own until the unmap, which comes after the moment. */
Test(snapshot, has_what_was_there_before_a_map, .timeout = 120)
{
    play_open(TWO);
    /* Host memory has it as well: where the map is. */
    cl_uint *user_memory = aligned_alloc(SMALL, BYTES);
    for (size_t i = 0; i < WORDS; i++)
        user_memory[i] = word_of(i);
    cl_mem buffer = engine_buffer(play.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                  BYTES, user_memory);
    cl_uint *words = MADE(clEnqueueMapBuffer, play.program.queue, buffer, CL_TRUE, CL_MAP_WRITE, 0,
                          SMALL, 0, NULL, NULL);
    for (size_t i = 0; i < SMALL / sizeof(*words); i++)
        words[i] += 5;
    (void)made();
    struct snapshot *mapped = snapshot_pin();
    has_added(mapped, buffer, BYTES, 0);
    OK(clEnqueueUnmapMemObject(play.program.queue, buffer, words, 0, NULL, NULL));
    (void)made();
    struct snapshot *after = snapshot_pin();
    cl_uint *bytes = malloc(BYTES);
    read_point(after, buffer, 0, BYTES, bytes);
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(bytes[i], word_of(i) + (i < SMALL / sizeof(cl_uint) ? 5 : 0));
    free(bytes);
    snapshot_unpin(mapped);
    snapshot_unpin(after);
    OK(clReleaseMemObject(buffer));
    play_close();
    free(user_memory);
}

/* Of what the program lent, of parts, and of images, on either kind of device. */
static void kinds(const char *config)
{
    enum { WIDTH = 60, HEIGHT = 40 };
    static cl_uint user_memory[SMALL / sizeof(cl_uint)] __attribute__((aligned(4096)));
    static cl_uchar pixels[HEIGHT][WIDTH][4];
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    const size_t origin[3] = {0}, region[3] = {WIDTH, HEIGHT, 1};
    const cl_buffer_region half = {SMALL / 2, SMALL / 2};
    play_open(config);
    for (size_t i = 0; i < ARRAY_SIZE(user_memory); i++)
        user_memory[i] = word_of(i);
    for (size_t i = 0; i < sizeof(pixels); i++)
        ((cl_uchar *)pixels)[i] = (cl_uchar)(i * 13 + 5);
    cl_mem of_host = engine_buffer(play.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                   sizeof(user_memory), user_memory);
    cl_mem image =
        MADE(clCreateImage, play.program.context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    OK(clEnqueueWriteImage(play.program.queue, image, CL_TRUE, origin, region, 0, 0, pixels, 0,
                           NULL, NULL));
    cl_mem whole = filled(SMALL);
    cl_mem part = MADE(clCreateSubBuffer, whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    add(of_host, ARRAY_SIZE(user_memory), 2);
    add(part, half.size / sizeof(cl_uint), 6);
    (void)made();
    struct snapshot *snapshot = snapshot_pin();
    add(of_host, ARRAY_SIZE(user_memory), 2);
    OK(clFinish(play.program.queue));
    cl_uint *words = malloc(SMALL);
    has_added(snapshot, of_host, SMALL, 2);
    read_point(snapshot, whole, 0, SMALL, words);
    for (size_t i = 0; i < SMALL / sizeof(cl_uint); i++)
        cr_assert_eq(words[i], word_of(i) + (i * sizeof(cl_uint) >= half.origin ? 6 : 0));
    free(words);
    cr_assert_eq(snapshot_find(snapshot, memory_get(part)), SIZE_MAX);
    struct snapshot_root root = snapshot_root(snapshot, index_of(snapshot, image));
    cr_assert_eq(root.type, CL_MEM_OBJECT_IMAGE2D);
    cr_assert_not_null(root.image);
    char *rows = malloc(root.size);
    read_point(snapshot, image, 0, root.size, rows);
    for (size_t y = 0; y < HEIGHT; y++)
        cr_assert_arr_eq(rows + y * root.image->row_pitch, pixels[y], sizeof(pixels[y]));
    free(rows);
    snapshot_unpin(snapshot);
    RELEASE(part, whole, image, of_host);
    play_close();
}

TestCall(snapshot, has_every_kind_of_object, kinds(TWO), .timeout = 120);
TestCall(snapshot, has_every_kind_of_object_in_place, kinds(NULL), .timeout = 120);

/* Two virtual devices each have a part, and a third of it nobody wrote. */
Test(snapshot, has_what_is_on_several_devices, .timeout = 120)
{
    const cl_buffer_region halves[] = {{0, SMALL}, {SMALL, SMALL}};
    engine_rig_open(&play.rig, TWO " [three] name=three own_memory=yes");
    const cl_device_id devices[] = {play.rig.device, engine_rig_vdev(&play.rig, "two")};
    cl_context context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    cl_mem buffer = MADE(clCreateBuffer, context, CL_MEM_READ_WRITE, 4 * (size_t)SMALL, NULL);
    cl_command_queue queues[2];
    for (size_t i = 0; i < 2; i++) {
        cl_uchar bytes[SMALL];
        memset(bytes, 0x11 * (int)(i + 1), sizeof(bytes));
        queues[i] = MADE(clCreateCommandQueue, context, devices[i], 0);
        cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &halves[i]);
        OK(clEnqueueWriteBuffer(queues[i], part, CL_TRUE, 0, SMALL, bytes, 0, NULL, NULL));
        OK(clReleaseMemObject(part));
    }
    (void)made();
    struct snapshot *snapshot = snapshot_pin();
    for (size_t i = 0; i < 2; i++) {
        cl_uchar is[SMALL], bytes[SMALL];
        memset(is, 0x11 * (int)(i + 1), sizeof(is));
        read_point(snapshot, buffer, halves[i].origin, SMALL, bytes);
        cr_assert_arr_eq(bytes, is, SMALL);
        OK(clReleaseCommandQueue(queues[i]));
    }
    snapshot_unpin(snapshot);
    RELEASE(buffer, context);
    snapshot_forget();
    cr_assert_eq(snapshot_bytes(), 0);
    free(play.rig.devices);
}

/* Copies ahead take what is not written any more, and the pause the rest. */
Test(snapshot, is_copied_ahead_where_that_is_much, .timeout = 240)
{
    struct snapshot_report report;
    struct snapshot_request strict = {.move = {.max_downtime_ns = 1, .strict = true}};
    play_open("[one] name=one own_memory=yes link_mb_s=200");
    cl_mem buffers[] = {filled(BYTES), filled(BYTES)};
    struct snapshot_request request = {0};
    cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, 2 * BYTES);
    add(buffers[0], WORDS, 1);
    add(buffers[1], WORDS, 1);
    /* Once ahead, nothing is left: no pause is too long for that. */
    cr_assert_eq(snapshot_make(&strict, &report), 0, "%s", report.reason);
    cr_assert_eq(report.rounds, 1);
    RELEASE(buffers[0], buffers[1]);
    play_close();
}

/* A shared virtual allocation is state that nobody can read elsewhere. */
Test(snapshot, of_a_pinned_program_is_refused_with_the_reason, .timeout = 120)
{
    struct snapshot_report report;
    struct snapshot_request plain = {0};
    play_open(NULL);
    void *shared = clSVMAlloc(play.program.context, CL_MEM_READ_WRITE, SMALL, 0);
    cr_assert_not_null(shared);
    cr_assert_eq(snapshot_make(&plain, &report), -EPERM);
    cr_assert_not_null(strstr(report.reason, "pinned"), "%s", report.reason);
    clSVMFree(play.program.context, shared);
    (void)made();
    play_close();
}

/* What stops the program for longer than it may is not made, and what it would take is said. */
Test(snapshot, is_put_off_where_it_would_take_too_long, .timeout = 120)
{
    struct snapshot_request request = {.move.max_downtime_ns = 1, .most_ns = 1};
    struct snapshot_report report;
    unsigned put_off = 0;
    pthread_t thread;
    void *rounds;
    play_open("[one] name=one own_memory=yes link_mb_s=200");
    atomic_store(&compare_when, COMPARE_NEVER);
    cl_mem buffers[] = {filled(BYTES), filled(BYTES)};
    (void)made();
    cr_assert_eq(pthread_create(&thread, NULL, add_to_both, buffers), 0);
    /* Those are made in whose rounds the program gave nothing, as on a busy machine many. */
    while (put_off == 0) {
        struct snapshot *before = snapshot_pin();
        int error = snapshot_make(&request, &report);
        struct snapshot *after = snapshot_pin();
        cr_assert(error == 0 || error == -EBUSY, "%d: %s", error, report.reason);
        cr_assert_eq(after == before, error != 0);
        cr_assert_eq(report.expected_ns > request.most_ns, error != 0);
        put_off += error != 0;
        snapshot_unpin(before);
        snapshot_unpin(after);
    }
    cr_assert_eq(put_off, 1);
    request.most_ns = UINT64_C(3600000000000);
    cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
    atomic_store(&stops, true);
    pthread_join(thread, &rounds);
    free(rounds);
    atomic_store(&compare_when, COMPARE_WHERE_IT_PAYS);
    RELEASE(buffers[0], buffers[1]);
    play_close();
}
