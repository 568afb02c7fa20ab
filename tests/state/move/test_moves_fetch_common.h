#ifndef RESEAT_TESTS_STATE_MOVE_TEST_MOVES_FETCH_COMMON_H
#define RESEAT_TESTS_STATE_MOVE_TEST_MOVES_FETCH_COMMON_H

#include "tests/support/cases.h"

#include "state/memory/memory.h"
#include "tests/state/move/test_moves_common.h"

/* What moves and resumes on demand are tried with: buffers and an image that a slow link takes long
 * for, and a model of them. */

#define MS UINT64_C(1000000)
/* All that the program has takes the link a second and more. POCL's basic device, the other one,
 * deadlocks where several threads give it what they copied. */
#define LINK    "[one] name=one base=1 [two] name=two link_mb_s=40 base=1"
#define BUFFERS 8
#define BYTES   ((size_t)4 << 20)
#define ITEMS   (BYTES / sizeof(cl_uint))
#define SIDE    1024 /* of the image, whose elements are words */

static const char *const source =
    "__kernel void add(__global uint *words, uint value)\n"
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

static inline cl_uint word_of(cl_uint buffer, size_t i)
{
    return (cl_uint)i * 2654435761u + buffer;
}

static inline void open_on(const char *config)
{
    static const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    static const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    cl_uint *words = malloc(BYTES);
    cr_assert_not_null(words);
    engine_rig_open(&f.rig, config);
    engine_program_open(&f.rig, 0, source, &f.program);
    f.add = engine_kernel(f.program.program, "add");
    for (cl_uint b = 0; b <= BUFFERS; b++) {
        for (size_t i = 0; i < ITEMS; i++)
            words[i] = word_of(b, i);
        if (b < BUFFERS) {
            f.buffers[b] = engine_buffer(f.program.context,
                                         CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
        } else {
            f.image = MADE(clCreateImage, f.program.context,
                           CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, words);
        }
    }
    free(words);
}

static inline void move_how(const char *to, enum move_fetch how, uint64_t bandwidth,
                            struct move_report *ret_report)
{
    struct move_request request = {
        .target = engine_rig_key(&f.rig, to), .fetch = how, .bandwidth = bandwidth};
    move_run(&request, ret_report);
    cr_assert_eq(ret_report->result, MOVE_DONE, "%s", ret_report->reason);
}

/* @mapped: bytes of what is mapped, which are there before the program runs. */
static inline void suspend_and_resume_mapped(const char *to, uint64_t bandwidth, uint64_t mapped)
{
    struct move_report report;
    engine_rig_moves(&f.rig, NULL);
    move_how(to, MOVE_FETCH_ON_DEMAND, bandwidth, &report);
    cr_assert_eq(report.bytes, mapped, "it copied %llu before the program ran",
                 (unsigned long long)report.bytes);
}

static inline void suspend_and_resume(const char *to, uint64_t bandwidth)
{
    suspend_and_resume_mapped(to, bandwidth, 0);
}

static inline uint64_t left(void)
{
    struct vdev_status status;
    status_vdev(0, &status);
    cr_assert_leq(status.fetched, status.to_fetch);
    return status.to_fetch - status.fetched;
}

static inline void await_all(void)
{
    struct vdev_status status;
    uint64_t until = engine_rig_now() + 60000 * MS;
    do {
        engine_rig_sleep(1);
        status_vdev(0, &status);
    } while (status.to_fetch != 0 && engine_rig_now() < until);
    cr_assert_eq(status.to_fetch, 0, "%llu of %llu", (unsigned long long)status.fetched,
                 (unsigned long long)status.to_fetch);
}

static inline void add(unsigned b, cl_uint value)
{
    ARGS(f.add, f.buffers[b], value);
    launch(f.program.queue, f.add, ITEMS, 0, NULL);
    f.added[b] += value;
}

static inline void expect(const cl_uint *words, unsigned b, cl_uint added, const char *when)
{
    for (size_t i = 0; i < ITEMS; i++)
        if (words[i] != word_of(b, i) + added)
            cr_assert_fail("%s: object %u, word %zu: %x, wanted %x", when, b, i, words[i],
                           word_of(b, i) + added);
}

/* On the device itself, all of it. */
static inline void check(const char *when)
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
    ARGS(look, out, f.image);
    OK(clEnqueueNDRangeKernel(f.program.queue, look, 2, NULL, sides, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(f.program.queue, out, CL_TRUE, 0, BYTES, words, 0, NULL, NULL));
    expect(words, BUFFERS, 0, when);
    RELEASE(out, look);
    free(words);
}

static inline void close_all(void)
{
    for (unsigned b = 0; b < BUFFERS; b++)
        OK(clReleaseMemObject(f.buffers[b]));
    RELEASE(f.image, f.add);
    engine_program_close(&f.program);
}

static inline void end(void)
{
    close_all();
    engine_rig_ends_empty(&f.rig);
}

static inline bool is_there(cl_mem handle)
{
    struct memory *root = memory_get(handle)->root;
    return replica_is_latest(root, atomic_load(&root->context->residence_index[0]));
}

#endif
