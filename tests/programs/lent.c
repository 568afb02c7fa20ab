/**
 * Memory of the program's own under its objects (CL_MEM_USE_HOST_PTR): read-only mappings, as those
 * of a file of weights, that nothing may write to; and memory that is given back just before the
 * object is released, as the destructors of C++ do, in whose place something else is soon. And host
 * memory of transfers that a handler of SIGSEGV opens when it is touched, as collectors' is.
 *
 *   lent [--seed N] [--pause-ms N] [--loose]
 *
 * --loose also has what not every driver can do natively: read-only memory under objects that
 * kernels may write to, but do not, and maps of read-only memory to read.
 */
#include "prog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SIZES = 4, SHAPES = 5, MOST = 3 << 20, KEPT_ROUNDS = 3, GUARDED_ROUNDS = 4 };

static const size_t sizes[SIZES] = {64, PAGE, 70000, MOST};

static const char source[] =
    "__kernel void copy(__global const uint *in, __global uint *out) {\n"
    "    out[get_global_id(0)] = in[get_global_id(0)];\n"
    "}\n"
    "__kernel void twice(__global uint *a) { a[get_global_id(0)] *= 2u; }\n"
    "#ifdef IMAGES\n"
    "__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | "
    "CLK_FILTER_NEAREST;\n"
    "#define AT (get_global_id(0) + get_global_size(0) *\\\n"
    "            (get_global_id(1) + get_global_size(1) * get_global_id(2)))\n"
    "#define X (int)get_global_id(0)\n"
    "#define Y (int)get_global_id(1)\n"
    "#define Z (int)get_global_id(2)\n"
    "__kernel void image0(__read_only image1d_t i, __global uint4 *out)\n"
    "{ out[AT] = read_imageui(i, s, X); }\n"
    "__kernel void image1(__read_only image2d_t i, __global uint4 *out)\n"
    "{ out[AT] = read_imageui(i, s, (int2)(X, Y)); }\n"
    "__kernel void image2(__read_only image3d_t i, __global uint4 *out)\n"
    "{ out[AT] = read_imageui(i, s, (int4)(X, Y, Z, 0)); }\n"
    "__kernel void image3(__read_only image1d_array_t i, __global uint4 *out)\n"
    "{ out[AT] = read_imageui(i, s, (int2)(X, Y)); }\n"
    "__kernel void image4(__read_only image2d_array_t i, __global uint4 *out)\n"
    "{ out[AT] = read_imageui(i, s, (int4)(X, Y, Z, 0)); }\n"
    "__kernel void invert(__write_only image2d_t i, uint add)\n"
    "{ write_imageui(i, (int2)(X, Y), (uint4)(X, Y, add, add * 2u)); }\n"
    "#endif\n";

/* Shapes as origin and region count them. */
static const struct shape {
    cl_mem_object_type type;
    size_t dims[3];
} shapes[SHAPES] = {
    {CL_MEM_OBJECT_IMAGE1D, {300, 1, 1}},       {CL_MEM_OBJECT_IMAGE2D, {64, 33, 1}},
    {CL_MEM_OBJECT_IMAGE3D, {20, 12, 9}},       {CL_MEM_OBJECT_IMAGE1D_ARRAY, {50, 7, 1}},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {31, 17, 5}},
};
enum { ELEMENT = 4 * sizeof(uint32_t) };

struct scene {
    struct prog prog;
    struct rng rng, pauses;
    cl_program program;
    cl_kernel copy, twice, images[SHAPES], invert;
    bool has_images, loose;
    useconds_t pause;
    uint64_t sum;
};

/* One object over memory that nothing may write to. */
struct kept {
    cl_mem object, part; /* a sub-buffer of its second half, or NULL */
    const struct shape *shape;
    bool writable;        /* by kernels, which do not */
    unsigned char *bytes; /* read-only */
    unsigned char *want;  /* a copy of them */
    size_t size;
};

/* Time for a move. */
static void pause_here(struct scene *s)
{
    if (s->pause)
        usleep(rng_below(&s->pauses, s->pause) + 1);
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

static void *pages(size_t size)
{
    void *at =
        mmap(NULL, whole_pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    return at;
}

static cl_mem make_image(struct scene *s, cl_mem_flags flags, const struct shape *shape, void *host)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    bool layers = shape->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    const cl_image_desc desc = {
        .image_type = shape->type,
        .image_width = shape->dims[0],
        .image_height = layers ? 0 : shape->dims[1],
        .image_depth = shape->type == CL_MEM_OBJECT_IMAGE3D ? shape->dims[2] : 0,
        .image_array_size = layers                                       ? shape->dims[1]
                            : shape->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? shape->dims[2]
                                                                         : 0,
    };
    return MADE(clCreateImage, s->prog.context, flags, &format, &desc, host);
}

static size_t shape_bytes(const struct shape *shape)
{
    return shape->dims[0] * shape->dims[1] * shape->dims[2] * ELEMENT;
}

static void kept_open(struct scene *s, struct kept *k)
{
    cl_mem_flags flags = CL_MEM_USE_HOST_PTR | (k->writable ? 0 : CL_MEM_READ_ONLY);
    k->bytes = pages(k->size);
    k->want = prog_alloc(k->size);
    rng_fill(&s->rng, k->bytes, k->size);
    memcpy(k->want, k->bytes, k->size);
    REQUIRE(mprotect(k->bytes, whole_pages(k->size), PROT_READ) == 0);
    k->object = k->shape ? make_image(s, flags, k->shape, k->bytes)
                         : prog_buffer(s->prog.context, flags, k->size, k->bytes);
    if (!k->shape && k->size >= 2 * (size_t)PAGE) {
        const cl_buffer_region half = {PAGE, k->size - PAGE};
        k->part = MADE(clCreateSubBuffer, k->object, 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    }
}

static void check(struct scene *s, const char *what, const void *got, const void *want, size_t size)
{
    prog_same(what, got, want, size);
    sum_bytes(&s->sum, got, size);
}

/* Through a kernel. */
static void kept_copy(struct scene *s, const struct kept *k, cl_mem object, size_t from)
{
    size_t size = k->size - from;
    void *got = prog_alloc(size);
    cl_mem out = prog_buffer(s->prog.context, CL_MEM_WRITE_ONLY, size, NULL);
    cl_kernel kernel = k->shape ? s->images[k->shape - shapes] : s->copy;

    prog_arg(kernel, 0, sizeof object, &object);
    prog_arg(kernel, 1, sizeof out, &out);
    if (k->shape)
        OK(clEnqueueNDRangeKernel(s->prog.queue, kernel, 3, NULL, k->shape->dims, NULL, 0, NULL,
                                  NULL));
    else
        prog_run(s->prog.queue, kernel, size / sizeof(uint32_t));
    pause_here(s);
    prog_read(s->prog.queue, out, 0, size, got);
    check(s, "what a kernel saw", got, k->want + from, size / 4 * 4);
    OK(clReleaseMemObject(out));
    free(got);
}

static void kept_read(struct scene *s, const struct kept *k)
{
    const size_t origin[3] = {0, 0, 0};
    void *got = prog_alloc(k->size);

    if (k->shape)
        OK(clEnqueueReadImage(s->prog.queue, k->object, CL_TRUE, origin, k->shape->dims, 0, 0, got,
                              0, NULL, NULL));
    else
        prog_read(s->prog.queue, k->object, 0, k->size, got);
    check(s, "what was read", got, k->want, k->size);
    free(got);
}

static void kept_map(struct scene *s, const struct kept *k)
{
    /* Where an image's rows lie is the driver's to say; and of what kernels may write, the device's
     * bytes are brought. */
    if (k->shape || k->writable)
        return;
    void *map = MADE(clEnqueueMapBuffer, s->prog.queue, k->object, CL_TRUE, CL_MAP_READ, 0, k->size,
                     0, NULL, NULL);
    pause_here(s);
    check(s, "what was mapped", map, k->want, k->size);
    OK(clEnqueueUnmapMemObject(s->prog.queue, k->object, map, 0, NULL, NULL));
}

static void kept_close(struct scene *s, struct kept *k)
{
    check(s, "the memory itself", k->bytes, k->want, k->size);
    if (k->part)
        OK(clReleaseMemObject(k->part));
    OK(clReleaseMemObject(k->object));
    OK(clFinish(s->prog.queue));
    munmap(k->bytes, whole_pages(k->size));
    free(k->want);
}

static void play_kept(struct scene *s)
{
    struct kept kept[2 * SIZES + SHAPES] = {{0}};
    size_t count = 0;

    for (int i = 0; i < SIZES; i++)
        kept[count++].size = sizes[i];
    for (int i = 0; s->has_images && i < SHAPES; i++) {
        kept[count].shape = &shapes[i];
        kept[count++].size = shape_bytes(&shapes[i]);
    }
    for (int i = 0; s->loose && i < SIZES; i++) {
        kept[count].writable = true;
        kept[count++].size = sizes[i];
    }
    for (size_t i = 0; i < count; i++)
        kept_open(s, &kept[i]);
    for (int round = 0; round < KEPT_ROUNDS; round++)
        for (size_t i = 0; i < count; i++) {
            pause_here(s);
            kept_copy(s, &kept[i], kept[i].object, 0);
            if (kept[i].part)
                kept_copy(s, &kept[i], kept[i].part, PAGE);
            kept_read(s, &kept[i]);
            if (s->loose)
                kept_map(s, &kept[i]);
        }
    for (size_t i = 0; i < count; i++)
        kept_close(s, &kept[i]);
}

/* The program's commands are over, but for the release, and so is its memory: what is there next is
 * somebody else's. */
static void give_back(struct scene *s, cl_mem object, unsigned char *bytes, size_t size,
                      bool reused)
{
    size_t whole = whole_pages(size);
    OK(clFinish(s->prog.queue));
    munmap(bytes, whole);
    if (reused) {
        void *again = mmap(bytes, whole, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        reused = again == bytes;
        if (again != MAP_FAILED && again != bytes)
            munmap(again, whole);
    }
    if (reused)
        memset(bytes, 0xa5, whole);
    pause_here(s);
    OK(clReleaseMemObject(object));
    pause_here(s);
    for (size_t i = 0; reused && i < whole; i++)
        if (bytes[i] != 0xa5)
            prog_fail("byte %zu of memory that was given back was overwritten", i);
    if (reused)
        munmap(bytes, whole);
}

static void play_given_buffer(struct scene *s, size_t size, bool reused)
{
    uint32_t *words = pages(size), *want = prog_alloc(size), *got = prog_alloc(size);
    size_t count = size / sizeof *words;

    rng_fill(&s->rng, words, size);
    for (size_t i = 0; i < count; i++)
        want[i] = words[i] * 2;
    cl_mem object = prog_buffer(s->prog.context, CL_MEM_USE_HOST_PTR, size, words);
    prog_arg(s->twice, 0, sizeof object, &object);
    pause_here(s);
    prog_run(s->prog.queue, s->twice, count);
    pause_here(s);
    prog_read(s->prog.queue, object, 0, size, got);
    check(s, "doubled", got, want, count * sizeof *want);
    give_back(s, object, (unsigned char *)words, size, reused);
    free(want);
    free(got);
}

static void play_given_image(struct scene *s, bool reused)
{
    const struct shape *shape = &shapes[1];
    const size_t origin[3] = {0, 0, 0};
    size_t size = shape_bytes(shape), width = shape->dims[0], count = width * shape->dims[1];
    uint32_t *bytes = pages(size), *want = prog_alloc(size), *got = prog_alloc(size);
    const uint32_t add = (uint32_t)rng_next(&s->rng);

    memset(bytes, 1, size);
    for (size_t i = 0; i < count; i++) {
        const uint32_t element[4] = {(uint32_t)(i % width), (uint32_t)(i / width), add, add * 2};
        memcpy(&want[4 * i], element, sizeof element);
    }
    cl_mem object = make_image(s, CL_MEM_USE_HOST_PTR, shape, bytes);
    prog_arg(s->invert, 0, sizeof object, &object);
    prog_arg(s->invert, 1, sizeof add, &add);
    OK(clEnqueueNDRangeKernel(s->prog.queue, s->invert, 2, NULL, shape->dims, NULL, 0, NULL, NULL));
    pause_here(s);
    OK(clEnqueueReadImage(s->prog.queue, object, CL_TRUE, origin, shape->dims, 0, 0, got, 0, NULL,
                          NULL));
    check(s, "written by a kernel", got, want, size);
    give_back(s, object, (unsigned char *)bytes, size, reused);
    free(want);
    free(got);
}

/* What a kernel wrote is there when it is mapped, wherever it was meanwhile. */
static void play_mapped(struct scene *s, size_t size)
{
    uint32_t *words = pages(size), *want = prog_alloc(size);
    size_t count = size / sizeof *words;

    rng_fill(&s->rng, words, size);
    memcpy(want, words, size);
    cl_mem object = prog_buffer(s->prog.context, CL_MEM_USE_HOST_PTR, size, words);
    prog_arg(s->twice, 0, sizeof object, &object);
    for (uint32_t round = 0; round < 4; round++) {
        pause_here(s);
        prog_run(s->prog.queue, s->twice, count);
        pause_here(s);
        uint32_t *map = MADE(clEnqueueMapBuffer, s->prog.queue, object, CL_TRUE,
                             CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL);
        REQUIRE(map == words);
        for (size_t i = 0; i < count; i++)
            want[i] *= 2;
        check(s, "mapped", words, want, count * sizeof *want);
        for (size_t i = round; i < count; i += 7)
            want[i] = words[i] = (uint32_t)i + round;
        pause_here(s);
        OK(clEnqueueUnmapMemObject(s->prog.queue, object, map, 0, NULL, NULL));
    }
    give_back(s, object, (unsigned char *)words, size, true);
    free(want);
}

static unsigned char *guarded; /* MOST bytes */
static volatile sig_atomic_t faults;

static void open_guarded(int signal, siginfo_t *info, void *context)
{
    unsigned char *at = info->si_addr;
    (void)signal, (void)context;
    if (at < guarded || at >= guarded + MOST)
        _exit(EXIT_FAILURE);
    faults = faults + 1;
    (void)mprotect(guarded + (at - guarded) / PAGE * PAGE, PAGE, PROT_READ | PROT_WRITE);
}

static void play_guarded(struct scene *s)
{
    const struct sigaction action = {.sa_sigaction = open_guarded, .sa_flags = SA_SIGINFO};
    struct sigaction before;
    unsigned char *bytes = prog_alloc(MOST);

    guarded = pages(MOST);
    faults = 0;
    rng_fill(&s->rng, bytes, MOST);
    cl_mem object = prog_buffer(s->prog.context, CL_MEM_COPY_HOST_PTR, MOST, bytes);
    REQUIRE(sigaction(SIGSEGV, &action, &before) == 0);
    for (int round = 0; round < GUARDED_ROUNDS; round++) {
        REQUIRE(mprotect(guarded, MOST, PROT_READ) == 0);
        pause_here(s);
        prog_read(s->prog.queue, object, 0, MOST, guarded);
        check(s, "read into guarded memory", guarded, bytes, MOST);
        rng_fill(&s->rng, bytes, MOST);
        memcpy(guarded, bytes, MOST);
        REQUIRE(mprotect(guarded, MOST, PROT_NONE) == 0);
        pause_here(s);
        OK(clEnqueueWriteBuffer(s->prog.queue, object, CL_TRUE, 0, MOST, guarded, 0, NULL, NULL));
    }
    REQUIRE(faults >= GUARDED_ROUNDS * 2 * (MOST / PAGE));
    REQUIRE(sigaction(SIGSEGV, &before, NULL) == 0);
    OK(clReleaseMemObject(object));
    OK(clFinish(s->prog.queue));
    munmap(guarded, MOST);
    free(bytes);
}

static uint64_t play(struct scene *s, uint64_t seed)
{
    s->rng = rng_seed(seed);
    s->pauses = rng_seed(~seed);
    s->sum = 0;
    play_kept(s);
    for (int i = 0; i < SIZES; i++) {
        play_given_buffer(s, sizes[i], true);
        play_given_buffer(s, sizes[i], false);
        play_mapped(s, sizes[i]);
    }
    for (int reused = 0; s->has_images && reused < 2; reused++)
        play_given_image(s, reused);
    play_guarded(s);
    return s->sum;
}

static void open_kernels(struct scene *s)
{
    char name[32];
    cl_bool images = CL_FALSE;

    OK(clGetDeviceInfo(s->prog.device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
    s->has_images = images;
    s->program = prog_build(&s->prog, source, images ? "-DIMAGES" : "");
    s->copy = prog_kernel(s->program, "copy");
    s->twice = prog_kernel(s->program, "twice");
    for (int i = 0; images && i < SHAPES; i++) {
        snprintf(name, sizeof name, "image%d", i);
        s->images[i] = prog_kernel(s->program, name);
    }
    if (images)
        s->invert = prog_kernel(s->program, "invert");
}

static void close_kernels(struct scene *s)
{
    RELEASE(s->copy, s->twice);
    for (int i = 0; s->has_images && i < SHAPES; i++)
        OK(clReleaseKernel(s->images[i]));
    if (s->has_images)
        OK(clReleaseKernel(s->invert));
    OK(clReleaseProgram(s->program));
}

int main(int argc, char **argv)
{
    struct scene s = {0};
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1);

    for (int i = 1; i < argc; i++)
        s.loose = s.loose || strcmp(argv[i], "--loose") == 0;
    s.pause = (useconds_t)prog_option(argc, argv, "--pause-ms", 10) * 1000;
    prog_open(&s.prog);
    open_kernels(&s);
    uint64_t sum = play(&s, seed);
    while (prog_again())
        REQUIRE(play(&s, seed) == sum);
    close_kernels(&s);
    prog_close(&s.prog);
    printf("lent checksum %016llx\n", (unsigned long long)sum);
    return 0;
}
