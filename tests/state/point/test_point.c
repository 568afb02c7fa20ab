#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/compare.h"
#include "state/object/lost.h"
#include "state/point/point.h"
#include "tests/support/engine_rig.h"

/* Points: that they have the bytes of one moment, and cost what has changed. */

#define TWO   "[one] name=one own_memory=yes [two] name=two own_memory=yes"
#define BYTES ((size_t)5 << 20) /* three chunks, of which one is short */
#define WORDS (BYTES / sizeof(cl_uint))
#define SMALL 4096

static const char source[] =
    "__kernel void add(__global uint *words, uint value) { words[get_global_id(0)] += value; }\n";

static struct play {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
} p;

static void play_open(const char *config)
{
    if (config)
        engine_rig_open(&p.rig, config);
    else
        engine_rig_open_pocl(&p.rig, "basic pthread");
    engine_program_open(&p.rig, 0, source, &p.program);
    p.add = engine_kernel(p.program.program, "add");
}

static void play_close(void)
{
    OK(clReleaseKernel(p.add));
    engine_program_close(&p.program);
    point_forget();
    cr_assert_eq(point_bytes(), 0);
    if (p.rig.emu)
        engine_rig_ends_empty(&p.rig);
    free(p.rig.devices);
}

static void add(cl_mem buffer, size_t words, cl_uint value)
{
    OK(clSetKernelArg(p.add, 0, sizeof(buffer), &buffer));
    OK(clSetKernelArg(p.add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(p.program.queue, p.add, 1, NULL, &words, NULL, 0, NULL, NULL));
}

static cl_uint word_of(size_t i)
{
    return (cl_uint)(i * 7 + i / 1021);
}

static cl_mem filled(size_t size)
{
    cl_uint *words = malloc(size);
    for (size_t i = 0; i < size / sizeof(*words); i++)
        words[i] = word_of(i);
    cl_mem buffer = engine_buffer(p.program.context, CL_MEM_READ_WRITE, size, NULL);
    OK(clEnqueueWriteBuffer(p.program.queue, buffer, CL_TRUE, 0, size, words, 0, NULL, NULL));
    free(words);
    return buffer;
}

static struct point_report made(void)
{
    struct point_request request = {0};
    struct point_report report;
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    return report;
}

static size_t index_of(const struct point *point, cl_mem buffer)
{
    size_t index = point_find(point, memory_get(buffer));
    cr_assert_neq(index, SIZE_MAX);
    return index;
}

/* Bytes [@offset, @offset + @size) as @point has them; what was never written is 0xee. */
static void read_point(const struct point *point, cl_mem buffer, size_t offset, size_t size,
                       void *ret_bytes)
{
    struct point_run run;
    size_t index = index_of(point, buffer);
    cr_assert_leq(offset + size, point_root(point, index).size);
    for (size_t at = offset; at < offset + size; at = run.range.end) {
        cr_assert(point_run(point, index, at, &run));
        cr_assert(run.range.begin <= at && at < run.range.end);
        size_t end = run.range.end < offset + size ? run.range.end : offset + size;
        char *to = (char *)ret_bytes + (at - offset);
        if (run.bytes)
            memcpy(to, run.bytes + (at - run.range.begin), end - at);
        else
            memset(to, 0xee, end - at);
    }
}

/* Each word is @added more than it began with. */
static void has_added(const struct point *point, cl_mem buffer, size_t size, cl_uint added)
{
    cl_uint *words = malloc(size);
    read_point(point, buffer, 0, size, words);
    for (size_t i = 0; i < size / sizeof(*words); i++)
        if (words[i] != word_of(i) + added)
            cr_assert_fail("word %zu is %u, not %u more than %u", i, words[i], added, word_of(i));
    free(words);
}

Test(point, has_the_bytes_of_its_moment_for_as_long_as_it_is_pinned, .timeout = 120)
{
    play_open(TWO);
    cr_assert_null(point_pin());
    cl_mem large = filled(BYTES), small = filled(SMALL);
    cl_mem never = engine_buffer(p.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    add(large, WORDS, 3);
    cr_assert_eq(made().serial, 1);
    struct point *first = point_pin();
    add(large, WORDS, 4);
    add(small, SMALL / sizeof(cl_uint), 9);
    cl_mem later = filled(SMALL);
    cr_assert_eq(made().serial, 2);
    struct point *second = point_pin();
    cr_assert_eq(point_serial(first), 1);
    cr_assert_eq(point_serial(second), 2);
    cr_assert_lt(point_moment(first), point_moment(second));
    has_added(first, large, BYTES, 3);
    has_added(first, small, SMALL, 0);
    cr_assert_eq(point_find(first, memory_get(later)), SIZE_MAX);
    has_added(second, large, BYTES, 7);
    has_added(second, small, SMALL, 9);
    has_added(second, later, SMALL, 0);
    struct point_run run;
    cr_assert(point_run(second, index_of(second, never), BYTES - 1, &run));
    cr_assert_null(run.bytes);
    cr_assert_eq(run.range.end, BYTES);
    cr_assert_not(point_run(second, index_of(second, never), BYTES, &run));
    OK(clReleaseMemObject(large));
    OK(clReleaseMemObject(small));
    OK(clReleaseMemObject(never));
    OK(clReleaseMemObject(later));
    OK(clFinish(p.program.queue));
    point_unpin(second);
    point_forget();
    cr_assert_null(point_pin());
    cr_assert_geq(point_bytes(), BYTES + SMALL);
    point_unpin(first);
    play_close();
}

Test(point, costs_what_was_written_since_the_one_before, .timeout = 120)
{
    struct point_run run;
    play_open(TWO);
    cl_mem kept = filled(BYTES), changed = filled(BYTES);
    cr_assert_geq(made().copied, 2 * BYTES);
    struct point_report idle = made();
    cr_assert_eq(idle.copied, 0);
    cr_assert_eq(idle.shared, 2 * BYTES);
    add(changed, WORDS, 1);
    struct point_report third = made();
    cr_assert_eq(third.copied, BYTES);
    cr_assert_eq(third.shared, BYTES);
    struct point *point = point_pin();
    cr_assert(point_run(point, index_of(point, kept), 0, &run));
    cr_assert_eq(run.since, 1);
    cr_assert(point_run(point, index_of(point, changed), 0, &run));
    cr_assert_eq(run.since, 3);
    has_added(point, kept, BYTES, 0);
    has_added(point, changed, BYTES, 1);
    cr_assert_eq(point_bytes(), 2 * BYTES);
    point_unpin(point);
    /* Where the bytes are does not matter. */
    engine_rig_moves(&p.rig, "two");
    cr_assert_eq(made().copied, 0);
    engine_rig_moves(&p.rig, NULL);
    cr_assert_eq(made().copied, 0);
    engine_rig_moves(&p.rig, "one");
    OK(clReleaseMemObject(kept));
    OK(clReleaseMemObject(changed));
    play_close();
}

/* A handle that is used again is another object. */
Test(point, takes_no_object_for_one_that_was_released, .timeout = 120)
{
    play_open(TWO);
    cl_mem buffer = filled(SMALL);
    (void)made();
    struct point *first = point_pin();
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
        cr_assert_eq(point_find(first, memory_get(buffer)), SIZE_MAX);
        add(buffer, SMALL / sizeof(cl_uint), 2);
        (void)made();
        struct point *second = point_pin();
        has_added(second, buffer, SMALL, 2);
        point_unpin(second);
        OK(clReleaseMemObject(buffer));
    }
    point_unpin(first);
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
        OK(clFinish(p.program.queue));
        ++*rounds;
    }
    return rounds;
}

static cl_uint all_words(const struct point *point, cl_mem buffer)
{
    cl_uint *words = malloc(BYTES);
    read_point(point, buffer, 0, BYTES, words);
    cl_uint added = words[0] - word_of(0);
    free(words);
    has_added(point, buffer, BYTES, added);
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
        struct point *point = point_pin();
        cl_uint first = all_words(point, buffers[0]), second = all_words(point, buffers[1]);
        cr_assert(first == second || first == second + 1, "%u and %u", first, second);
        cr_assert_geq(second + 1, last);
        last = first;
        point_unpin(point);
    }
    atomic_store(&stops, true);
    pthread_join(thread, &rounds);
    (void)made();
    struct point *point = point_pin();
    cr_assert_eq(all_words(point, buffers[0]), *(unsigned *)rounds);
    cr_assert_eq(all_words(point, buffers[1]), *(unsigned *)rounds);
    point_unpin(point);
    free(rounds);
    OK(clReleaseMemObject(buffers[0]));
    OK(clReleaseMemObject(buffers[1]));
    play_close();
}

Test(point, is_of_one_moment_of_a_program_that_runs, .timeout = 240)
{
    is_made_beside_a_program(TWO);
}

/* The device works in the windows themselves, and one runs commands in the thread that waits. */
Test(point, is_of_one_moment_where_devices_work_in_place, .timeout = 240)
{
    is_made_beside_a_program(NULL);
}

static void fails(const struct point_request *request, int error, const struct point *before)
{
    struct point_report report;
    int given = point_make(request, &report);
    cr_assert_eq(given, error, "%d: %s", given, report.reason);
    cr_assert_eq(report.error, error);
    cr_assert_neq(report.reason[0], '\0');
    struct point *now = point_pin();
    cr_assert_eq(now, before);
    point_unpin(now);
}

static int refuses(void *data, const struct point *point)
{
    cr_assert_eq(point_root_count(point), *(size_t *)data);
    return -EXDEV;
}

Test(point, that_cannot_be_made_leaves_the_one_before, .timeout = 120)
{
    static const char *const calls[] = {"clEnqueueReadBuffer", "clEnqueueMarkerWithWaitList"};
    struct point_request plain = {0};
    atomic_bool canceled = true;
    size_t roots = 2;
    play_open(TWO);
    cl_mem large = filled(BYTES), small = filled(SMALL);
    (void)made();
    struct point *before = point_pin();
    uint64_t bytes = point_bytes();
    add(large, WORDS, 1);
    fails(&(struct point_request){.cancel = &canceled}, -ECANCELED, before);
    fails(&(struct point_request){.deadline_ns = 1}, -ETIMEDOUT, before);
    fails(&(struct point_request){.memory = bytes + BYTES - 1}, -ENOMEM, before);
    fails(&(struct point_request){.moment = refuses, .data = &roots}, -EXDEV, before);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        uint64_t fired = emu_shared_fired(p.rig.emu, "one");
        cr_assert_eq(emu_shared_arm(p.rig.emu, "one", 1, calls[i], CL_OUT_OF_HOST_MEMORY), 0);
        fails(&plain, -EIO, before);
        cr_assert_eq(emu_shared_fired(p.rig.emu, "one"), fired + 1);
    }
    cr_assert_eq(point_bytes(), bytes);
    has_added(before, large, BYTES, 0);
    /* The program runs on, and the next one is as if nothing had been. */
    add(large, WORDS, 1);
    cr_assert_eq(made().copied, BYTES);
    struct point *after = point_pin();
    has_added(after, large, BYTES, 2);
    has_added(after, small, SMALL, 0);
    point_unpin(after);
    point_unpin(before);
    OK(clReleaseMemObject(large));
    OK(clReleaseMemObject(small));
    play_close();
}

Test(point, of_a_device_that_is_lost_is_none, .timeout = 120)
{
    struct point_request plain = {0};
    lost_answer_ns = 500000000;
    play_open(TWO);
    cl_mem buffer = filled(BYTES);
    (void)made();
    struct point *before = point_pin();
    add(buffer, WORDS, 1);
    OK(clFinish(p.program.queue));
    cr_assert_eq(emu_shared_arm(p.rig.emu, "one", 1, "clEnqueueReadBuffer", EMU_ERROR_VANISH), 0);
    fails(&plain, -EIO, before);
    cr_assert(seat_is_lost(the_seats[0]));
    fails(&plain, -EPERM, before);
    has_added(before, buffer, BYTES, 0);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(p.add));
    engine_program_close(&p.program);
    point_unpin(before);
    free(p.rig.devices);
}

/* What the program has mapped to write is its own until the unmap, which comes after the moment. */
Test(point, has_what_was_there_before_a_map, .timeout = 120)
{
    cl_int error;
    play_open(TWO);
    /* Host memory has it as well: where the map is. */
    cl_uint *lent = aligned_alloc(SMALL, BYTES);
    for (size_t i = 0; i < WORDS; i++)
        lent[i] = word_of(i);
    cl_mem buffer =
        engine_buffer(p.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, BYTES, lent);
    cl_uint *words = clEnqueueMapBuffer(p.program.queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, SMALL, 0,
                                        NULL, NULL, &error);
    OK(error);
    for (size_t i = 0; i < SMALL / sizeof(*words); i++)
        words[i] += 5;
    (void)made();
    struct point *mapped = point_pin();
    has_added(mapped, buffer, BYTES, 0);
    OK(clEnqueueUnmapMemObject(p.program.queue, buffer, words, 0, NULL, NULL));
    (void)made();
    struct point *after = point_pin();
    cl_uint *bytes = malloc(BYTES);
    read_point(after, buffer, 0, BYTES, bytes);
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(bytes[i], word_of(i) + (i < SMALL / sizeof(cl_uint) ? 5 : 0));
    free(bytes);
    point_unpin(mapped);
    point_unpin(after);
    OK(clReleaseMemObject(buffer));
    play_close();
    free(lent);
}

/* Of what the program lent, of parts, and of images, on either kind of device. */
static void kinds(const char *config)
{
    enum { WIDTH = 60, HEIGHT = 40 };
    static cl_uint lent[SMALL / sizeof(cl_uint)] __attribute__((aligned(4096)));
    static cl_uchar pixels[HEIGHT][WIDTH][4];
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    const size_t origin[3] = {0}, region[3] = {WIDTH, HEIGHT, 1};
    const cl_buffer_region half = {SMALL / 2, SMALL / 2};
    cl_int error;
    play_open(config);
    for (size_t i = 0; i < ARRAY_SIZE(lent); i++)
        lent[i] = word_of(i);
    for (size_t i = 0; i < sizeof(pixels); i++)
        ((cl_uchar *)pixels)[i] = (cl_uchar)(i * 13 + 5);
    cl_mem of_host = engine_buffer(p.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                   sizeof(lent), lent);
    cl_mem image =
        clCreateImage(p.program.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    OK(clEnqueueWriteImage(p.program.queue, image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL,
                           NULL));
    cl_mem whole = filled(SMALL);
    cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &error);
    OK(error);
    add(of_host, ARRAY_SIZE(lent), 2);
    add(part, half.size / sizeof(cl_uint), 6);
    (void)made();
    struct point *point = point_pin();
    add(of_host, ARRAY_SIZE(lent), 2);
    OK(clFinish(p.program.queue));
    cl_uint *words = malloc(SMALL);
    has_added(point, of_host, SMALL, 2);
    read_point(point, whole, 0, SMALL, words);
    for (size_t i = 0; i < SMALL / sizeof(cl_uint); i++)
        cr_assert_eq(words[i], word_of(i) + (i * sizeof(cl_uint) >= half.origin ? 6 : 0));
    free(words);
    cr_assert_eq(point_find(point, memory_get(part)), SIZE_MAX);
    struct point_root root = point_root(point, index_of(point, image));
    cr_assert_eq(root.type, CL_MEM_OBJECT_IMAGE2D);
    cr_assert_not_null(root.image);
    char *rows = malloc(root.size);
    read_point(point, image, 0, root.size, rows);
    for (size_t y = 0; y < HEIGHT; y++)
        cr_assert_arr_eq(rows + y * root.image->row_pitch, pixels[y], sizeof(pixels[y]));
    free(rows);
    point_unpin(point);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(whole));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(of_host));
    play_close();
}

Test(point, has_every_kind_of_object, .timeout = 120)
{
    kinds(TWO);
}

Test(point, has_every_kind_of_object_in_place, .timeout = 120)
{
    kinds(NULL);
}

/* Two virtual devices each have a part, and a third of it nobody wrote. */
Test(point, has_what_is_on_several_devices, .timeout = 120)
{
    const cl_buffer_region halves[] = {{0, SMALL}, {SMALL, SMALL}};
    cl_int error;
    engine_rig_open(&p.rig, TWO " [three] name=three own_memory=yes");
    const cl_device_id devices[] = {p.rig.device, engine_rig_seat(&p.rig, "two")};
    cl_context context = clCreateContext(NULL, 2, devices, NULL, NULL, &error);
    OK(error);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * (size_t)SMALL, NULL, &error);
    OK(error);
    cl_command_queue queues[2];
    for (size_t i = 0; i < 2; i++) {
        cl_uchar bytes[SMALL];
        memset(bytes, 0x11 * (int)(i + 1), sizeof(bytes));
        queues[i] = clCreateCommandQueue(context, devices[i], 0, &error);
        OK(error);
        cl_mem part =
            clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &halves[i], &error);
        OK(error);
        OK(clEnqueueWriteBuffer(queues[i], part, CL_TRUE, 0, SMALL, bytes, 0, NULL, NULL));
        OK(clReleaseMemObject(part));
    }
    (void)made();
    struct point *point = point_pin();
    for (size_t i = 0; i < 2; i++) {
        cl_uchar is[SMALL], bytes[SMALL];
        memset(is, 0x11 * (int)(i + 1), sizeof(is));
        read_point(point, buffer, halves[i].origin, SMALL, bytes);
        cr_assert_arr_eq(bytes, is, SMALL);
        OK(clReleaseCommandQueue(queues[i]));
    }
    point_unpin(point);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseContext(context));
    point_forget();
    cr_assert_eq(point_bytes(), 0);
    free(p.rig.devices);
}

/* Copies ahead take what is not written any more, and the pause the rest. */
Test(point, is_copied_ahead_where_that_is_much, .timeout = 240)
{
    struct point_report report;
    struct point_request strict = {.max_downtime_ns = 1, .strict = true};
    play_open("[one] name=one own_memory=yes link_mb_s=200");
    cl_mem buffers[] = {filled(BYTES), filled(BYTES)};
    struct point_request request = {0};
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, 2 * BYTES);
    add(buffers[0], WORDS, 1);
    add(buffers[1], WORDS, 1);
    /* Once ahead, nothing is left: no pause is too long for that. */
    cr_assert_eq(point_make(&strict, &report), 0, "%s", report.reason);
    cr_assert_eq(report.rounds, 1);
    OK(clReleaseMemObject(buffers[0]));
    OK(clReleaseMemObject(buffers[1]));
    play_close();
}

/* A shared virtual allocation is state that nobody can read elsewhere. */
Test(point, of_a_pinned_program_is_refused_with_the_reason, .timeout = 120)
{
    struct point_report report;
    struct point_request plain = {0};
    play_open(NULL);
    void *shared = clSVMAlloc(p.program.context, CL_MEM_READ_WRITE, SMALL, 0);
    cr_assert_not_null(shared);
    cr_assert_eq(point_make(&plain, &report), -EPERM);
    cr_assert_not_null(strstr(report.reason, "pinned"), "%s", report.reason);
    clSVMFree(p.program.context, shared);
    (void)made();
    play_close();
}

/* ---- what only counts as written */

#define MUCH  (((size_t)9 << 20) + 20) /* worth a round ahead; the last part is short */
#define FIRST ((size_t)16)             /* words, of the first part of the first chunk */

static struct rewrite {
    cl_mem buffer;
    cl_uint times;
    atomic_bool *cancels;
    const char *breaks; /* a call of the device */
    cl_int error;
} rewrite;

/* The kernel may write all of the buffer, and writes its first words. The program does not give
 * anything after this. */
static int rewrites(void *data)
{
    (void)data;
    add(rewrite.buffer, FIRST, 1);
    rewrite.times++;
    if (rewrite.cancels)
        atomic_store(rewrite.cancels, true);
    if (rewrite.breaks) {
        OK(clFinish(p.program.queue));
        cr_assert_eq(emu_shared_arm(p.rig.emu, "one", 1, rewrite.breaks, rewrite.error), 0);
    }
    return 0;
}

static void compares_open_on(const char *config)
{
    play_open(config);
    atomic_store(&compare_when, COMPARE_ALWAYS);
    rewrite = (struct rewrite){.buffer = filled(MUCH)};
    (void)made();
}

static void compares_open(void)
{
    compares_open_on(TWO);
}

static void compares_close(void)
{
    OK(clReleaseMemObject(rewrite.buffer));
    atomic_store(&compare_when, COMPARE_WHERE_IT_PAYS);
    play_close();
}

/* The first words are as often more as they were rewritten, and all others as they began. */
static void has_rewritten(const struct point *point, cl_uint times)
{
    cl_uint *words = malloc(MUCH);
    read_point(point, rewrite.buffer, 0, MUCH, words);
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        cr_assert_eq(words[i], word_of(i) + (i < FIRST ? times : 0), "word %zu is %u", i, words[i]);
    free(words);
}

static uint64_t since(const struct point *point, size_t at)
{
    struct point_run run;
    cr_assert(point_run(point, index_of(point, rewrite.buffer), at, &run));
    return run.since;
}

static void shares_what_only_counted(const char *config)
{
    compares_open_on(config);
    (void)rewrites(NULL);
    struct point_report report = made();
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, DIGEST_CHUNK);
    cr_assert_eq(report.same, MUCH - POINT_CHUNK);
    cr_assert_eq(report.shared, MUCH - DIGEST_CHUNK);
    struct point *point = point_pin();
    has_rewritten(point, 1);
    cr_assert_eq(since(point, 0), 2);
    cr_assert_eq(since(point, DIGEST_CHUNK), 1);
    for (size_t at = POINT_CHUNK; at < MUCH; at += POINT_CHUNK)
        cr_assert_eq(since(point, at), 1);
    point_unpin(point);
    compares_close();
}

Test(point, shares_what_only_counted_as_written, .timeout = 120)
{
    shares_what_only_counted(TWO);
}

/* Host memory is compared with what is kept of it instead of copied. */
Test(point, shares_what_only_counted_as_written_in_place, .timeout = 120)
{
    shares_what_only_counted(NULL);
}

Test(point, of_which_nothing_was_written_is_the_one_before, .timeout = 120)
{
    compares_open();
    add(rewrite.buffer, FIRST, 0);
    struct point_report report = made();
    cr_assert_eq(report.copied, 0);
    cr_assert_eq(report.shared, MUCH);
    struct point *point = point_pin();
    cr_assert_eq(since(point, 0), 1);
    has_rewritten(point, 0);
    point_unpin(point);
    /* And it is known to be of the latest version. */
    cr_assert_eq(made().same, 0);
    compares_close();
}

/* One part of a chunk, which the round ahead read as well. */
static void reads_in_the_pause(const char *config)
{
    struct point_request request = {.stand = rewrites};
    struct point_report report;
    compares_open_on(config);
    struct point *before = point_pin();
    (void)rewrites(NULL);
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.rounds, 1);
    cr_assert_eq(report.copied, 2 * DIGEST_CHUNK);
    cr_assert_eq(report.shared, MUCH - DIGEST_CHUNK);
    struct point *point = point_pin();
    has_rewritten(point, 2);
    has_rewritten(before, 0);
    point_unpin(before);
    point_unpin(point);
    compares_close();
}

Test(point, reads_in_the_pause_what_was_written_since_the_round, .timeout = 120)
{
    reads_in_the_pause(TWO);
}

Test(point, reads_in_the_pause_what_was_written_in_place, .timeout = 120)
{
    reads_in_the_pause(NULL);
}

/* What the pause read took the place of bytes whose digests were known: those are back then. */
Test(point, knows_what_the_pause_read_from_what_was_there, .timeout = 120)
{
    struct point_request request = {.stand = rewrites};
    struct point_report report;
    compares_open();
    (void)rewrites(NULL);
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.copied, 2 * DIGEST_CHUNK);
    add(rewrite.buffer, FIRST, (cl_uint)-1);
    (void)made();
    struct point *point = point_pin();
    has_rewritten(point, 1);
    point_unpin(point);
    compares_close();
}

/* Of a chunk that the round found the same, and the point before has as well. */
Test(point, reads_a_part_of_a_chunk_that_is_not_its_own_yet, .timeout = 120)
{
    struct point_request request = {.stand = rewrites};
    struct point_report report;
    compares_open();
    struct point *before = point_pin();
    add(rewrite.buffer, FIRST, 0);
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.copied, DIGEST_CHUNK);
    struct point *point = point_pin();
    has_rewritten(point, 1);
    has_rewritten(before, 0);
    point_unpin(before);
    point_unpin(point);
    compares_close();
}

static size_t words_of(size_t part)
{
    size_t left = (MUCH - part * DIGEST_CHUNK) / sizeof(cl_uint);
    return left < FIRST ? left : FIRST;
}

static void add_to_part(size_t part)
{
    const size_t words = words_of(part), offset = part * DIGEST_CHUNK / sizeof(cl_uint);
    const cl_uint value = 1;
    OK(clSetKernelArg(p.add, 0, sizeof(rewrite.buffer), &rewrite.buffer));
    OK(clSetKernelArg(p.add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(p.program.queue, p.add, 1, &offset, &words, NULL, 0, NULL, NULL));
}

#define POINTS 20

static void has_added_to_parts(const struct point *point, const size_t *parts, unsigned count)
{
    cl_uint *words = malloc(MUCH);
    read_point(point, rewrite.buffer, 0, MUCH, words);
    for (unsigned i = 0; i < count; i++)
        for (size_t j = 0; j < words_of(parts[i]); j++)
            words[parts[i] * DIGEST_CHUNK / sizeof(*words) + j]--;
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        cr_assert_eq(words[i], word_of(i), "%u, word %zu is %u", count, i, words[i]);
    free(words);
}

/* Every so often all of it is read: else a chunk would be kept twice and more. */
Test(point, shares_all_but_a_few_parts_of_a_chunk, .timeout = 240)
{
    struct point *points[POINTS + 1];
    size_t parts[POINTS], chunk = POINT_CHUNK / DIGEST_CHUNK;
    unsigned whole = 0;
    compares_open();
    points[0] = point_pin();
    for (unsigned i = 0; i < POINTS; i++) {
        /* Of the second chunk, some of them again; and the last of all, which is short. */
        parts[i] = i % 7 == 6 ? MUCH / DIGEST_CHUNK : chunk + (i % 3 == 2 ? i - 1 : i);
        add_to_part(parts[i]);
        struct point_report report = made();
        whole += report.copied == POINT_CHUNK;
        cr_assert(report.copied == POINT_CHUNK || report.copied <= MUCH % POINT_CHUNK, "%u: %lu", i,
                  (unsigned long)report.copied);
        cr_assert_leq(point_bytes(), MUCH + (i + 1) * POINT_CHUNK);
        points[i + 1] = point_pin();
        cr_assert_eq(since(points[i + 1], parts[i] * DIGEST_CHUNK), i + 2);
        has_added_to_parts(points[i + 1], parts, i + 1);
    }
    cr_assert_eq(whole, 1, "%u", whole);
    /* Whoever has one has it as it was, whatever goes first. */
    for (unsigned i = 0; i <= POINTS; i += 2)
        point_unpin(points[i]);
    for (unsigned i = 1; i <= POINTS; i += 2) {
        has_added_to_parts(points[i], parts, i);
        point_unpin(points[i]);
    }
    compares_close();
}

/* What a device does not digest is read; what it never did it is not asked again. */
Test(point, is_made_where_digests_fail, .timeout = 120)
{
    struct point_request request = {.stand = rewrites};
    struct point_report report;
    compares_open();
    (void)rewrites(NULL);
    rewrite.breaks = "clEnqueueNDRangeKernel";
    rewrite.error = CL_OUT_OF_RESOURCES;
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(report.copied, DIGEST_CHUNK + MUCH);
    cr_assert_eq(report.shared, 0);
    struct point *point = point_pin();
    has_rewritten(point, 2);
    point_unpin(point);
    rewrite.breaks = NULL;
    (void)rewrites(NULL);
    cr_assert_eq(made().copied, MUCH);
    compares_close();
}

Test(point, that_is_canceled_while_it_digests_leaves_the_one_before, .timeout = 120)
{
    atomic_bool canceled = false;
    struct point_request request = {.stand = rewrites, .cancel = &canceled};
    compares_open();
    struct point *before = point_pin();
    (void)rewrites(NULL);
    rewrite.cancels = &canceled;
    fails(&request, -ECANCELED, before);
    rewrite.cancels = NULL;
    (void)made();
    struct point *after = point_pin();
    has_rewritten(after, 2);
    has_rewritten(before, 0);
    point_unpin(after);
    point_unpin(before);
    compares_close();
}

Test(point, of_a_device_that_is_lost_while_it_digests_is_none, .timeout = 120)
{
    struct point_request request = {.stand = rewrites};
    lost_answer_ns = 500000000;
    compares_open();
    struct point *before = point_pin();
    (void)rewrites(NULL);
    rewrite.breaks = "clEnqueueNDRangeKernel";
    rewrite.error = EMU_ERROR_VANISH;
    uint64_t fired = emu_shared_fired(p.rig.emu, "one");
    fails(&request, -EPERM, before); /* what it had is lost with it, before anything was read */
    cr_assert_eq(emu_shared_fired(p.rig.emu, "one"), fired + 1);
    cr_assert(seat_is_lost(the_seats[0]));
    has_rewritten(before, 0);
    OK(clReleaseMemObject(rewrite.buffer));
    OK(clReleaseKernel(p.add));
    engine_program_close(&p.program);
    point_unpin(before);
    free(p.rig.devices);
}

/* Anywhere, again and again, with what is written between the rounds. */
static int adds_somewhere(void *data)
{
    cl_uint *words = data;
    for (unsigned i = 0; i < 4; i++) {
        size_t at = (size_t)rand() % (MUCH / sizeof(cl_uint));
        cl_uint value = ++words[at];
        OK(clEnqueueWriteBuffer(p.program.queue, rewrite.buffer, CL_TRUE, at * sizeof(value),
                                sizeof(value), &value, 0, NULL, NULL));
    }
    add(rewrite.buffer, FIRST, 3);
    for (size_t i = 0; i < FIRST; i++)
        words[i] += 3;
    return 0;
}

Test(point, has_what_was_written_anywhere_of_what_counts, .timeout = 240)
{
    cl_uint *words = malloc(MUCH), *bytes = malloc(MUCH);
    uint64_t same = 0;
    struct point_request request = {.stand = adds_somewhere, .data = words};
    struct point_report report;
    compares_open();
    for (size_t i = 0; i < MUCH / sizeof(*words); i++)
        words[i] = word_of(i);
    for (unsigned i = 0; i < 24; i++) {
        (void)adds_somewhere(words);
        cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
        same += report.same;
        struct point *point = point_pin();
        read_point(point, rewrite.buffer, 0, MUCH, bytes);
        cr_assert_arr_eq(bytes, words, MUCH);
        point_unpin(point);
    }
    cr_assert_neq(same, 0);
    free(words);
    free(bytes);
    compares_close();
}

/* What stops the program for longer than it may is not made, and what it would take is said. */
Test(point, is_put_off_where_it_would_take_too_long, .timeout = 240)
{
    struct point_request request = {.max_downtime_ns = 1, .most_ns = 1};
    struct point_report report;
    unsigned put_off = 0;
    pthread_t thread;
    void *rounds;
    play_open("[one] name=one own_memory=yes link_mb_s=200");
    atomic_store(&compare_when, COMPARE_NEVER);
    cl_mem buffers[] = {filled(BYTES), filled(BYTES)};
    (void)made();
    cr_assert_eq(pthread_create(&thread, NULL, add_to_both, buffers), 0);
    /* One of whose rounds the program gave nothing in is made. */
    for (unsigned i = 0; i < 50 && put_off == 0; i++) {
        struct point *before = point_pin();
        int error = point_make(&request, &report);
        struct point *after = point_pin();
        cr_assert(error == 0 || error == -EBUSY, "%d: %s", error, report.reason);
        cr_assert_eq(after == before, error != 0);
        cr_assert_eq(report.expected_ns > request.most_ns, error != 0);
        put_off += error != 0;
        point_unpin(before);
        point_unpin(after);
    }
    cr_assert_eq(put_off, 1);
    request.most_ns = UINT64_C(3600000000000);
    cr_assert_eq(point_make(&request, &report), 0, "%s", report.reason);
    atomic_store(&stops, true);
    pthread_join(thread, &rounds);
    free(rounds);
    atomic_store(&compare_when, COMPARE_WHERE_IT_PAYS);
    OK(clReleaseMemObject(buffers[0]));
    OK(clReleaseMemObject(buffers[1]));
    play_close();
}
