/** Arguments: every kind, changed, asked about, refused, set by many threads. */
#include "kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_BYTES = 272, WORDS = 256, SIDE = 8, THREADS = 4, THREAD_ROUNDS = 20 };

void kernels_values(struct bench *b)
{
    /* Where the kernel stores each argument, its size there, and as an argument. */
    static const struct {
        size_t at, stored, size;
    } values[] = {
        {0, 3, 4},     {16, 16, 16},  {32, 4, 4},    {40, 8, 8},    {64, 32, 32}, {96, 12, 16},
        {112, 16, 16}, {128, 32, 32}, {160, 16, 16}, {192, 64, 64}, {256, 4, 4},  {264, 8, 8},
    };
    unsigned char want[VALUES_BYTES] = {0}, value[64];
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof want, want);
    cl_kernel kernel = prog_kernel(b->program, "values");

    prog_arg(kernel, 0, sizeof out, &out);
    for (cl_uint i = 0; i < sizeof values / sizeof *values; i++) {
        rng_fill(&b->rng, value, sizeof value);
        /* Floats are carried as they are, but a signalling NaN may be quietened. */
        for (size_t byte = 3; i >= 8 && i <= 9 && byte < sizeof value; byte += 4)
            value[byte] = 0x40;
        prog_arg(kernel, i + 1, values[i].size, value);
        memcpy(want + values[i].at, value, values[i].stored);
    }
    memset(value, 0, sizeof value); /* they were copied */
    prog_run(b->prog->queue, kernel, 1);
    kernels_verify(b, "values of all types", out, want, sizeof want);
    RELEASE(kernel, out);
}

void kernels_null(struct bench *b)
{
    uint32_t numbers[2] = {(uint32_t)rng_next(&b->rng), (uint32_t)rng_next(&b->rng)};
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_READ_WRITE, sizeof numbers, NULL),
           none = NULL;
    cl_mem in = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers);
    cl_kernel kernel = prog_kernel(b->program, "null");

    prog_arg(kernel, 0, sizeof out, &out);
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t want[2] = {i & 1 ? numbers[0] : 77, i & 2 ? numbers[0] : 78};
        prog_arg(kernel, 1, sizeof in, i & 1 ? &in : &none);
        prog_arg(kernel, 2, sizeof in, i & 2 ? &in : NULL);
        prog_run(b->prog->queue, kernel, 1);
        kernels_verify(b, "NULL buffers", out, want, sizeof want);
    }
    RELEASE(kernel, in, out);
}

/* Launches in a row on one kernel: each has the arguments of its time. */
void kernels_changes(struct bench *b)
{
    enum { BUFFERS = 3, LAUNCHES = 24 };
    uint32_t want[BUFFERS][WORDS];
    cl_mem mems[BUFFERS];
    cl_kernel kernel = prog_kernel(b->program, "add");

    for (unsigned i = 0; i < BUFFERS; i++) {
        rng_fill(&b->rng, want[i], sizeof want[i]);
        mems[i] = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof want[i], want[i]);
    }
    for (unsigned i = 0; i < LAUNCHES; i++) {
        unsigned which = rng_below(&b->rng, BUFFERS);
        uint32_t value = (uint32_t)rng_next(&b->rng);
        prog_arg(kernel, 0, sizeof *mems, &mems[which]);
        prog_arg(kernel, 1, sizeof value, &value);
        prog_run(b->prog->queue, kernel, WORDS);
        for (unsigned k = 0; k < WORDS; k++)
            want[which][k] = want[which][k] * 3 + value;
    }
    OK(clReleaseKernel(kernel));
    for (unsigned i = 0; i < BUFFERS; i++) {
        kernels_verify(b, "arguments that change", mems[i], want[i], sizeof want[i]);
        OK(clReleaseMemObject(mems[i]));
    }
}

void kernels_samplers(struct bench *b)
{
    static const cl_addressing_mode modes[] = {CL_ADDRESS_CLAMP_TO_EDGE, CL_ADDRESS_CLAMP};
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    uint32_t pixels[SIDE][SIDE][4], want[SIDE + 4][SIDE + 4][4];
    const size_t items[2] = {SIDE + 4, SIDE + 4};

    rng_fill(&b->rng, pixels, sizeof pixels);
    cl_mem image = MADE(clCreateImage, b->prog->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                        &format, &desc, pixels);
    cl_mem out = prog_buffer(b->prog->context, CL_MEM_WRITE_ONLY, sizeof want, NULL);
    cl_kernel kernel = prog_kernel(b->program, "sample");
    prog_arg(kernel, 0, sizeof image, &image);
    prog_arg(kernel, 2, sizeof out, &out);
    for (unsigned m = 0; m < 2; m++) {
        cl_sampler sampler =
            MADE(clCreateSampler, b->prog->context, CL_FALSE, modes[m], CL_FILTER_NEAREST);
        prog_arg(kernel, 1, sizeof sampler, &sampler);
        OK(clEnqueueNDRangeKernel(b->prog->queue, kernel, 2, NULL, items, NULL, 0, NULL, NULL));
        for (int y = 0; y < SIDE + 4; y++) {
            for (int x = 0; x < SIDE + 4; x++) {
                int px = x - 2, py = y - 2;
                bool inside = px >= 0 && px < SIDE && py >= 0 && py < SIDE;
                px = px < 0 ? 0 : px >= SIDE ? SIDE - 1 : px;
                py = py < 0 ? 0 : py >= SIDE ? SIDE - 1 : py;
                memcpy(want[y][x], pixels[py][px], sizeof want[y][x]);
                if (m == 1 && !inside) /* an integer border is transparent black */
                    memset(want[y][x], 0, sizeof want[y][x]);
            }
        }
        kernels_verify(b, "a sampler argument", out, want, sizeof want);
        OK(clReleaseSampler(sampler));
    }
    RELEASE(kernel, out, image);
}

static void check_text(cl_kernel kernel, cl_uint index, cl_kernel_arg_info name, const char *want)
{
    char text[64] = "";
    size_t size = 0;

    OK(clGetKernelArgInfo(kernel, index, name, sizeof text, text, &size));
    if (strcmp(text, want) != 0 || size != strlen(want) + 1)
        prog_fail("argument %u: \"%s\" (%zu bytes), not \"%s\"", index, text, size, want);
}

void kernels_info(struct bench *b)
{
    static const struct {
        cl_kernel_arg_address_qualifier address;
        const char *type, *name;
    } turn[] = {
        {CL_KERNEL_ARG_ADDRESS_GLOBAL, "uint*", "out"},
        {CL_KERNEL_ARG_ADDRESS_LOCAL, "uint*", "a"},
        {CL_KERNEL_ARG_ADDRESS_LOCAL, "ushort*", "b"},
        {CL_KERNEL_ARG_ADDRESS_PRIVATE, "uint", "c"},
    };
    cl_kernel kernel = prog_kernel(b->program, "turn");
    cl_uint count = 0;
    char name[16] = "";
    cl_kernel_arg_address_qualifier address;
    size_t group = 0, most = 0, multiple = 0;
    cl_ulong local = 0, more = 0;

    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    REQUIRE(count == 4);
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
    REQUIRE(strcmp(name, "turn") == 0);
    for (cl_uint i = 0; i < count; i++) {
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address,
                              NULL));
        REQUIRE(address == turn[i].address);
        check_text(kernel, i, CL_KERNEL_ARG_TYPE_NAME, turn[i].type);
        check_text(kernel, i, CL_KERNEL_ARG_NAME, turn[i].name);
    }
    REQUIRE(clGetKernelArgInfo(kernel, 4, CL_KERNEL_ARG_NAME, sizeof name, name, NULL) ==
            CL_INVALID_ARG_INDEX);
    OK(clGetKernelWorkGroupInfo(kernel, b->prog->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof group,
                                &group, NULL));
    OK(clGetDeviceInfo(b->prog->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    REQUIRE(group >= 1 && group <= most);
    OK(clGetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                sizeof multiple, &multiple, NULL));
    REQUIRE(multiple >= 1 && multiple <= most);
    OK(clGetKernelWorkGroupInfo(kernel, b->prog->device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local,
                                &local, NULL));
    REQUIRE(local >= 16 * sizeof(cl_uint));
    OK(clGetKernelWorkGroupInfo(kernel, b->prog->device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof more,
                                &more, NULL));
    REQUIRE(more == local);
    REQUIRE(clGetKernelWorkGroupInfo(kernel, b->prog->device, CL_KERNEL_GLOBAL_WORK_SIZE,
                                     sizeof name, name, NULL) == CL_INVALID_VALUE);
    OK(clReleaseKernel(kernel));
}

/* Errors that drivers agree about. */
void kernels_refusals(struct bench *b)
{
    cl_kernel kernel = prog_kernel(b->program, "add"), local = prog_kernel(b->program, "turn");
    cl_mem mem = prog_buffer(b->prog->context, CL_MEM_READ_WRITE, 64, NULL);
    uint32_t value = 1;
    const size_t one = 1, four[4] = {1, 1, 1, 1};
    cl_int err;

    REQUIRE(clSetKernelArg(kernel, 2, sizeof value, &value) == CL_INVALID_ARG_INDEX);
    REQUIRE(clSetKernelArg(kernel, 0, sizeof mem - 1, &mem) == CL_INVALID_ARG_SIZE);
    REQUIRE(clSetKernelArg(kernel, 1, sizeof value, NULL) == CL_INVALID_ARG_VALUE);
    REQUIRE(clSetKernelArg(local, 1, 0, NULL) == CL_INVALID_ARG_SIZE);
    REQUIRE(clSetKernelArg(local, 1, sizeof value, &value) == CL_INVALID_ARG_VALUE);
    REQUIRE(clSetKernelArg(NULL, 0, sizeof mem, &mem) == CL_INVALID_KERNEL);
    prog_arg(kernel, 1, sizeof value, &value);
    REQUIRE(clEnqueueNDRangeKernel(b->prog->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL) ==
            CL_INVALID_KERNEL_ARGS);
    prog_arg(kernel, 0, sizeof mem, &mem);
    REQUIRE(clEnqueueNDRangeKernel(b->prog->queue, kernel, 0, NULL, four, NULL, 0, NULL, NULL) ==
            CL_INVALID_WORK_DIMENSION);
    REQUIRE(clEnqueueNDRangeKernel(b->prog->queue, kernel, 4, NULL, four, NULL, 0, NULL, NULL) ==
            CL_INVALID_WORK_DIMENSION);
    prog_run(b->prog->queue, kernel, 1);
    REQUIRE(!clCreateKernel(b->program, "absent", &err) && err == CL_INVALID_KERNEL_NAME);
    REQUIRE(!clCreateKernel(b->program, NULL, &err) && err == CL_INVALID_VALUE);
    REQUIRE(clBuildProgram(b->program, 0, NULL, "", NULL, NULL) == CL_INVALID_OPERATION);
    OK(clFinish(b->prog->queue));
    RELEASE(local, kernel, mem);
}

struct setter {
    pthread_t thread;
    struct bench *bench;
    uint64_t seed;
    uint32_t want[WORDS];
    cl_mem mem;
    cl_command_queue queue;
};

static void *set_and_launch(void *data)
{
    struct setter *s = data;
    struct rng rng = rng_seed(s->seed);
    cl_kernel kernel = prog_kernel(s->bench->program, "add");

    prog_arg(kernel, 0, sizeof s->mem, &s->mem);
    for (unsigned i = 0; i < THREAD_ROUNDS; i++) {
        uint32_t value = (uint32_t)rng_next(&rng);
        prog_arg(kernel, 1, sizeof value, &value);
        prog_run(s->queue, kernel, WORDS);
        for (unsigned k = 0; k < WORDS; k++)
            s->want[k] = s->want[k] * 3 + value;
    }
    OK(clFinish(s->queue));
    OK(clReleaseKernel(kernel));
    return NULL;
}

void kernels_threads(struct bench *b)
{
    struct setter setters[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        struct setter *s = &setters[i];
        *s = (struct setter){.bench = b, .seed = rng_next(&b->rng)};
        rng_fill(&b->rng, s->want, sizeof s->want);
        s->mem = prog_buffer(b->prog->context, CL_MEM_COPY_HOST_PTR, sizeof s->want, s->want);
        s->queue = prog_queue(b->prog, 0);
        REQUIRE(pthread_create(&s->thread, NULL, set_and_launch, s) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(setters[i].thread, NULL) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        kernels_verify(b, "kernels of many threads", setters[i].mem, setters[i].want,
                       sizeof setters[i].want);
        RELEASE(setters[i].queue, setters[i].mem);
    }
}
