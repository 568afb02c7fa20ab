/** Launches: sizes, offsets, groups, local memory, behind user events, and what kernels print. */
#include "kernels.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SIDE = 6, MOST_GROUP = 4, GROUP = 16, GROUPS = 4, LINES = 6 };

/* Sizes as a kernel sees them: dimensions that are left out are 1, and begin at 0. */
struct space {
    cl_uint dims;
    size_t global[3], local[3], offset[3];
};

static uint32_t id_hash(const struct space *s, const size_t at[3])
{
    uint32_t sum = s->dims;

    for (unsigned d = 0; d < 3; d++) {
        sum = sum * 31 + (uint32_t)(at[d] + s->offset[d]);
        sum = sum * 31 + (uint32_t)(at[d] % s->local[d]);
        sum = sum * 31 + (uint32_t)(at[d] / s->local[d]);
        sum = sum * 31 + (uint32_t)s->local[d];
        sum = sum * 31 + (uint32_t)(s->global[d] / s->local[d]);
        sum = sum * 31 + (uint32_t)s->offset[d];
    }
    return sum;
}

static void check_space(struct bench *b, cl_kernel kernel, const struct space *s)
{
    size_t count = s->global[0] * s->global[1] * s->global[2];
    uint32_t *want = prog_alloc(count * sizeof *want);
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, count * sizeof *want, NULL);

    for (size_t i = 0; i < count; i++) {
        const size_t at[3] = {i % s->global[0], i / s->global[0] % s->global[1],
                              i / s->global[0] / s->global[1]};
        want[i] = id_hash(s, at);
    }
    prog_arg(kernel, 0, sizeof out, &out);
    OK(clEnqueueNDRangeKernel(b->prog->queue, kernel, s->dims, s->offset, s->global, s->local, 0,
                              NULL, NULL));
    kernels_verify(b, "ids", out, want, count * sizeof *want);
    OK(clReleaseMemObject(out));
    free(want);
}

void kernels_ids(struct bench *b)
{
    cl_kernel kernel = prog_kernel(b->program, "ids");

    for (cl_uint dims = 1; dims <= 3; dims++) {
        struct space s = {dims, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
        for (cl_uint d = 0; d < dims; d++) {
            s.local[d] = 1 + rng_below(&b->rng, MOST_GROUP);
            s.global[d] = s.local[d] * (1 + rng_below(&b->rng, MOST_SIDE));
            s.offset[d] = rng_below(&b->rng, 1000);
        }
        check_space(b, kernel, &s);
    }
    OK(clReleaseKernel(kernel));
}

/* Since 2.1 a launch without work-items does nothing, in its turn. */
void kernels_empty(struct bench *b)
{
    const size_t none[3] = {4, 0, 4};
    uint32_t value = 5, word = (uint32_t)rng_next(&b->rng), want = (word * 3 + value) * 3 + value;
    cl_mem mem = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof word, &word);
    cl_kernel kernel = prog_kernel(b->program, "add");
    bool allowed = b->version >= CL_MAKE_VERSION(2, 1, 0);
    cl_event event;

    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_arg(kernel, 1, sizeof value, &value);
    prog_run(b->prog->queue, kernel, 1);
    cl_int err =
        clEnqueueNDRangeKernel(b->prog->queue, kernel, 3, NULL, none, NULL, 0, NULL, &event);
    REQUIRE(err == (allowed ? CL_SUCCESS : CL_INVALID_GLOBAL_WORK_SIZE));
    prog_run(b->prog->queue, kernel, 1);
    if (allowed) {
        cl_command_type type = 0;
        OK(clWaitForEvents(1, &event));
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
        REQUIRE(type == CL_COMMAND_NDRANGE_KERNEL);
        OK(clReleaseEvent(event));
    }
    kernels_verify(b, "a launch of nothing", mem, &want, sizeof want);
    RELEASE(kernel, mem);
}

/* Groups whose size is left to the driver fit into an array as long as the device's largest. */
void kernels_unsized(struct bench *b)
{
    static const char source[] =
        "__kernel void mirror(__global uint *right) {\n"
        "    __local uint a[MOST];\n"
        "    uint l = get_local_id(0), n = get_local_size(0), at = get_global_id(0);\n"
        "    a[l] = at * 3u;\n"
        "    barrier(CLK_LOCAL_MEM_FENCE);\n"
        "    right[at] = n <= MOST && a[n - 1u - l] == (at - l + n - 1u - l) * 3u;\n"
        "}\n";
    enum { ITEMS = 12288 };
    const size_t items[] = {ITEMS, ITEMS / 2 - 1, 1021};
    uint32_t *want = prog_alloc(ITEMS * sizeof *want);
    size_t most = 0;
    char options[32];

    OK(clGetDeviceInfo(b->prog->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    snprintf(options, sizeof options, "-DMOST=%zuu", most);
    cl_program program = prog_build(b->prog, source, options);
    cl_kernel kernel = prog_kernel(program, "mirror");
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, ITEMS * sizeof *want, NULL);
    prog_arg(kernel, 0, sizeof out, &out);
    for (size_t i = 0; i < ITEMS; i++)
        want[i] = 1;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        prog_run(b->prog->queue, kernel, items[i]);
        kernels_verify(b, "groups of a size that was left out", out, want, items[i] * sizeof *want);
    }
    RELEASE(out, kernel, program);
    free(want);
}

void kernels_required(struct bench *b)
{
    enum { WIDTH = 8, HEIGHT = 6 };
    const size_t items[2] = {WIDTH, HEIGHT}, group[2] = {4, 2}, other[2] = {2, 2};
    uint32_t want[HEIGHT][WIDTH];
    size_t required[3] = {0, 0, 0};
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, sizeof want, NULL);
    cl_kernel kernel = prog_kernel(b->program, "required");
    cl_command_queue queue = b->prog->queue;

    OK(clGetKernelWorkGroupInfo(kernel, b->prog->device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                sizeof required, required, NULL));
    REQUIRE(required[0] == 4 && required[1] == 2 && required[2] == 1);
    prog_arg(kernel, 0, sizeof out, &out);
    REQUIRE(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, items, other, 0, NULL, NULL) ==
            CL_INVALID_WORK_GROUP_SIZE);
    OK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, items, group, 0, NULL, NULL));
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++)
            want[y][x] = 420 + x % 4;
    kernels_verify(b, "required work-groups", out, want, sizeof want);
    RELEASE(kernel, out);
}

void kernels_local(struct bench *b)
{
    const size_t items = GROUP * GROUPS, group = GROUP;
    uint32_t want[GROUP * GROUPS];
    cl_uint c = 1 + rng_below(&b->rng, 50);
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, sizeof want, NULL);
    cl_kernel kernel = prog_kernel(b->program, "turn");

    prog_arg(kernel, 0, sizeof out, &out);
    prog_arg(kernel, 1, GROUP * sizeof(cl_uint), NULL);
    prog_arg(kernel, 2, GROUP * sizeof(cl_ushort), NULL);
    prog_arg(kernel, 3, sizeof c, &c);
    OK(clEnqueueNDRangeKernel(b->prog->queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL));
    for (uint32_t i = 0; i < GROUP * GROUPS; i++) {
        uint32_t l = i % GROUP;
        want[i] = (i / GROUP * GROUP + GROUP - 1 - l) * c + ((l + 1) % GROUP * 3 + c) + l + c;
    }
    kernels_verify(b, "local arguments", out, want, sizeof want);
    RELEASE(kernel, out);
}

/* One kernel, enqueued twice with other arguments, released, and only then let go. */
void kernels_held(struct bench *b)
{
    uint32_t word = (uint32_t)rng_next(&b->rng), first = 11, second = 22;
    uint32_t want = (word * 3 + first) * 3 + second;
    const size_t one = 1;
    cl_mem mem = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof word, &word);
    cl_kernel kernel = prog_kernel(b->program, "add");
    cl_event go = MADE(clCreateUserEvent, b->prog->context);
    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_arg(kernel, 1, sizeof first, &first);
    OK(clEnqueueNDRangeKernel(b->prog->queue, kernel, 1, NULL, &one, NULL, 1, &go, NULL));
    prog_arg(kernel, 1, sizeof second, &second);
    OK(clEnqueueTask(b->prog->queue, kernel, 0, NULL, NULL));
    OK(clReleaseKernel(kernel));
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    kernels_verify(b, "launches behind an event", mem, &want, sizeof want);
    RELEASE(go, mem);
}

/* What the file that stdout is meanwhile holds in the end. */
static void check_output(struct bench *b, int file, const uint32_t *numbers)
{
    char want[LINES * 64] = "", got[LINES * 64 + 1] = "";
    size_t size = 0;

    for (unsigned i = 0; i < LINES; i++)
        size +=
            (size_t)sprintf(want + size, "%u %s %5d|%-4x|%c\n", numbers[i], "said", -7, 255, 'c');
    ssize_t count = pread(file, got, sizeof got - 1, 0);
    if (count != (ssize_t)size || strcmp(got, want) != 0)
        prog_fail("kernels printed %zd bytes, not %zu: \"%s\", not \"%s\"", count, size, got, want);
    sum_bytes(&b->sum, got, size);
}

void kernels_printf(struct bench *b)
{
    char path[] = "/tmp/kernels-XXXXXX";
    uint32_t numbers[LINES];
    cl_kernel kernel = prog_kernel(b->program, "say");
    int file = mkstemp(path), before;

    REQUIRE(file >= 0 && unlink(path) == 0);
    OK(clFinish(b->prog->queue));
    REQUIRE(fflush(stdout) == 0);
    before = dup(STDOUT_FILENO);
    REQUIRE(before >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    for (unsigned i = 0; i < LINES; i++) {
        numbers[i] = (uint32_t)rng_next(&b->rng);
        prog_arg(kernel, 0, sizeof numbers[i], &numbers[i]);
        prog_run(b->prog->queue, kernel, 1);
    }
    OK(clFinish(b->prog->queue));
    REQUIRE(fflush(stdout) == 0);
    REQUIRE(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    check_output(b, file, numbers);
    close(file);
    OK(clReleaseKernel(kernel));
}
