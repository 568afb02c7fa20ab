/**
 * Random calls with right and wrong arguments. Each is made with one wrong
 * argument at most, so that there is one right answer; all answers and all bytes
 * that were read go into a checksum, which a native run has to give as well.
 *
 *   anycalls [--seed N] [--seeds N] [--calls N] [--wrong N] [--without views,layers]
 *            [--verbose 0|1]
 *
 * One call in N has a wrong argument (0: none). --verbose says on stderr what
 * was answered: the first line that differs is the defect. --without leaves out
 * images over buffers (Mesa 22.3 cuts transfers of them short) or arrays of 1D
 * images (NVIDIA 580 refuses copies between them and buffers).
 */
#include "anycalls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED_STRIDE = 1000003, ALIGN = 512 /**< As much as any device here asks for. */ };

static const char source[] =
    "__kernel void stir(__global uint *a, uint n, uint k) {\n"
    "    size_t i = get_global_id(0);\n"
    "    if (i < n) a[i] = a[i] * 2654435761u + k + (uint)i;\n"
    "}\n"
    "__kernel void add(__global const uint *a, __global uint *b, uint n) {\n"
    "    size_t i = get_global_id(0);\n"
    "    if (i < n) b[i] += a[n - 1 - i] ^ (uint)i;\n"
    "}\n"
    "__kernel void turn(__global uint *a, __local uint *t) {\n"
    "    size_t i = get_local_id(0), n = get_local_size(0), at = get_global_id(0);\n"
    "    t[i] = a[at];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    a[at] = t[n - 1 - i] + 1;\n"
    "}\n"
    "__kernel void look(__read_only image2d_t in, sampler_t s, __global uint *a, uint n) {\n"
    "    size_t i = get_global_id(0);\n"
    "    uint4 p = read_imageui(in, s, (int2)((int)i % 31 - 2, (int)i / 31 - 1));\n"
    "    if (i < n) a[i] ^= p.x | p.y << 8 | p.z << 16 | p.w << 24;\n"
    "}\n"
    "__kernel void draw(__write_only image2d_t out, uint k) {\n"
    "    int2 at = (int2)((int)get_global_id(0), (int)get_global_id(1));\n"
    "    write_imageui(out, at, ((uint4)(k, at.x, at.y, k >> 8)) & 255u);\n"
    "}\n";

void any_note(struct any *a, const char *call, cl_int err, const void *from, size_t size)
{
    uint64_t bytes = 0;

    if (size)
        sum_bytes(&bytes, from, size);
    sum_word(&a->sum, (uint64_t)(uint32_t)err);
    sum_word(&a->sum, bytes);
    if (a->verbose)
        fprintf(stderr, "%lu %s: %d, %zu bytes %016llx\n", a->call, call, err, size,
                (unsigned long long)bytes);
}

bool any_one_in(struct any *a, uint32_t n)
{
    return n && rng_below(&a->rng, n) == 0;
}

struct mem *any_mem(struct any *a, bool buffers, bool images)
{
    unsigned from = rng_below(&a->rng, MEMS);

    for (unsigned i = 0; i < MEMS; i++) {
        struct mem *m = &a->mems[(from + i) % MEMS];
        bool buffer = m->type == CL_MEM_OBJECT_BUFFER;
        if (m->mem && ((buffer && buffers) || (!buffer && images)))
            return m;
    }
    return NULL;
}

void any_release_user(struct any *a)
{
    if (!a->user)
        return;
    MUST(clSetUserEventStatus(a->user, CL_COMPLETE));
    MUST(clReleaseEvent(a->user));
    a->user = NULL;
}

cl_event *any_event(struct any *a)
{
    cl_event *event = &a->events[rng_below(&a->rng, EVENTS)];

    if (any_one_in(a, 2))
        return NULL;
    if (*event)
        MUST(clReleaseEvent(*event));
    *event = NULL;
    return event;
}

static void finish(struct any *a)
{
    any_release_user(a);
    for (unsigned i = 0; i < 2; i++)
        MUST(clFinish(a->queues[i]));
}

static cl_image_desc describe(const struct mem *m)
{
    cl_image_desc d = {.image_type = m->type, .image_width = m->region[0]};

    switch (m->type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        d.image_array_size = m->region[1];
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        d.image_height = m->region[1];
        d.image_array_size = m->region[2];
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        d.image_depth = m->region[2];
        /* fall through */
    case CL_MEM_OBJECT_IMAGE2D:
        d.image_height = m->region[1];
        break;
    default:
        break;
    }
    return d;
}

static void create_image(struct any *a, struct mem *m, cl_mem_flags where, bool wrong)
{
    static const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE1D,
                                               CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
                                               CL_MEM_OBJECT_IMAGE1D_ARRAY};
    static const struct {
        cl_image_format format;
        size_t pixel;
    } formats[] = {{{CL_RGBA, CL_UNSIGNED_INT8}, 4},
                   {{CL_R, CL_UNSIGNED_INT8}, 1},
                   {{CL_R, CL_UNSIGNED_INT16}, 2},
                   {{CL_RGBA, CL_UNSIGNED_INT16}, 8},
                   {{CL_RGBA, CL_UNSIGNED_INT32}, 16}};
    uint32_t kind = any_one_in(a, 2) ? 0 : rng_below(&a->rng, 5);
    cl_int err = CL_SUCCESS;

    m->type = types[rng_below(&a->rng, any_one_in(a, 2) ? 1 : a->layers ? 5 : 4)];
    m->region[0] = 1 + rng_below(&a->rng, WIDTH);
    m->region[1] = m->type == CL_MEM_OBJECT_IMAGE1D ? 1 : 2 + rng_below(&a->rng, HEIGHT - 1);
    m->region[2] = m->type == CL_MEM_OBJECT_IMAGE3D || m->type == CL_MEM_OBJECT_IMAGE2D_ARRAY
                       ? 2 + rng_below(&a->rng, DEPTH - 1)
                       : 1;
    m->pixel = formats[kind].pixel;
    m->size = m->region[0] * m->region[1] * m->region[2] * m->pixel;
    cl_image_desc desc = describe(m);
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 2) : 0;
    if (m->region[1] > 1 && m->type != CL_MEM_OBJECT_IMAGE1D_ARRAY && any_one_in(a, 2)) {
        desc.image_row_pitch = WIDTH * m->pixel;
        desc.image_slice_pitch = m->region[2] > 1 ? HEIGHT * desc.image_row_pitch : 0;
    }
    m->mem =
        clCreateImage(a->prog.context, m->flags | where, which == 1 ? NULL : &formats[kind].format,
                      which == 2 ? NULL : &desc, m->host, &err);
    any_note(a, "clCreateImage", err, m->region, sizeof m->region);
}

static void create_buffer(struct any *a, struct mem *m, cl_mem_flags where, bool wrong)
{
    cl_int err = CL_SUCCESS;

    m->type = CL_MEM_OBJECT_BUFFER;
    m->size = (1 + rng_below(&a->rng, BYTES / 256)) * 256;
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 3) : 0;
    m->mem = clCreateBuffer(which == 1 ? NULL : a->prog.context,
                            m->flags | where | (which == 2 ? (cl_mem_flags)1 << 40 : 0),
                            which == 3 ? 0 : m->size, m->host, &err);
    any_note(a, "clCreateBuffer", err, &m->size, sizeof m->size);
}

static void create_part(struct any *a, struct mem *m, struct mem *parent, bool wrong)
{
    cl_int err = CL_SUCCESS;

    size_t at = rng_below(&a->rng, (uint32_t)((parent->size + ALIGN - 1) / ALIGN)) * ALIGN;
    cl_buffer_region region = {at, parent->size - at};
    if (wrong && any_one_in(a, 2))
        region.size += ALIGN;
    else if (wrong)
        region.size = 0;
    *m = (struct mem){.type = CL_MEM_OBJECT_BUFFER,
                      .size = region.size,
                      .flags = parent->flags,
                      .parent = parent};
    m->mem = clCreateSubBuffer(parent->mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    any_note(a, "clCreateSubBuffer", err, &region, sizeof region);
    parent->children += m->mem != NULL;
}

/** An image over the bytes of @parent. */
static void create_view(struct any *a, struct mem *m, struct mem *parent)
{
    static const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_int err = CL_SUCCESS;

    *m = (struct mem){.type = CL_MEM_OBJECT_IMAGE1D_BUFFER,
                      .size = parent->size,
                      .flags = parent->flags,
                      .region = {parent->size / 4, 1, 1},
                      .pixel = 4,
                      .parent = parent};
    cl_image_desc desc = {
        .image_type = m->type, .image_width = m->region[0], .buffer = parent->mem};
    m->mem = clCreateImage(a->prog.context, 0, &format, &desc, NULL, &err);
    any_note(a, "clCreateImage", err, m->region, sizeof m->region);
    parent->children += m->mem != NULL;
}

void any_create(struct any *a, bool wrong)
{
    static const cl_mem_flags access[] = {CL_MEM_READ_WRITE, CL_MEM_READ_WRITE, CL_MEM_READ_ONLY,
                                          CL_MEM_WRITE_ONLY};
    static const cl_mem_flags from[] = {CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                        CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR};
    struct mem *m = a->mems, *parent;

    while (m < a->mems + MEMS && m->mem)
        m++;
    if (m == a->mems + MEMS)
        return;
    if (any_one_in(a, 4) && (parent = any_mem(a, true, false)) && !parent->parent) {
        if (a->views && any_one_in(a, 3))
            create_view(a, m, parent);
        else
            create_part(a, m, parent, wrong);
        return;
    }
    cl_mem_flags where = from[rng_below(&a->rng, 3)];
    unsigned char *bytes = prog_alloc(BYTES > IMAGE_BYTES ? BYTES : IMAGE_BYTES);
    rng_fill(&a->rng, bytes, BYTES > IMAGE_BYTES ? BYTES : IMAGE_BYTES);
    *m = (struct mem){.flags = access[rng_below(&a->rng, 4)], .host = bytes};
    if (any_one_in(a, 3))
        create_image(a, m, where, wrong);
    else
        create_buffer(a, m, where, wrong);
    if (!m->mem || !(where & CL_MEM_USE_HOST_PTR)) {
        free(bytes);
        m->host = NULL;
    }
}

static void drop(struct any *a, struct mem *m)
{
    /* No command uses it any more; the memory goes first, as where a C++ program destroys a vector
     * before the buffer over it. */
    if (m->host || m->parent)
        finish(a);
    free(m->host);
    MUST(clReleaseMemObject(m->mem));
    if (m->parent)
        m->parent->children--;
    *m = (struct mem){0};
}

void any_release_mem(struct any *a, bool wrong)
{
    struct mem *m = any_mem(a, true, true);

    if (wrong) {
        any_note(a, "clReleaseMemObject", clReleaseMemObject(NULL), NULL, 0);
        return;
    }
    if (!m || m->children || m->mapped)
        return;
    if (any_one_in(a, 2)) {
        MUST(clRetainMemObject(m->mem));
        MUST(clReleaseMemObject(m->mem));
    } else {
        drop(a, m);
    }
}

void any_query(struct any *a, bool wrong)
{
    static const cl_mem_info mem_infos[] = {CL_MEM_TYPE, CL_MEM_FLAGS, CL_MEM_SIZE, CL_MEM_OFFSET};
    unsigned char answer[64] = {0};
    size_t size = 0;
    struct mem *m = any_mem(a, true, false);
    cl_event event = a->events[rng_below(&a->rng, EVENTS)];
    cl_int err;

    if (m && any_one_in(a, 2)) {
        cl_mem_info info = wrong ? 0x11ff : mem_infos[rng_below(&a->rng, 4)];
        err = clGetMemObjectInfo(m->mem, info, wrong && any_one_in(a, 2) ? 1 : sizeof answer,
                                 answer, &size);
        any_note(a, "clGetMemObjectInfo", err, answer, sizeof answer);
    } else if (event && any_one_in(a, 2)) {
        cl_event_info info = wrong ? 0x11ff : CL_EVENT_COMMAND_TYPE;
        err = clGetEventInfo(event, info, sizeof answer, answer, &size);
        /* POCL 3.1 says of commands on images over buffers that they are the buffer's. */
        any_note(a, "clGetEventInfo", err, &size, sizeof size);
    } else {
        err = clGetCommandQueueInfo(wrong ? NULL : a->queues[0], CL_QUEUE_PROPERTIES, sizeof answer,
                                    answer, &size);
        any_note(a, "clGetCommandQueueInfo", err, answer, size);
    }
}

static cl_int set(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    return clSetKernelArg(kernel, index, size, value);
}

/** Launch @kernel over @items; a wrong launch has a wrong space. */
static void launch(struct any *a, cl_kernel kernel, cl_uint dims, size_t x, size_t y, size_t local,
                   bool wrong)
{
    size_t global[3] = {x, y, 1}, group[3] = {local, 1, 1}, odd[3] = {7, 1, 1};
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 3) : 0;
    cl_event *event = any_event(a);
    cl_int err = clEnqueueNDRangeKernel(a->queues[0], kernel, which == 1 ? 4 : dims, NULL,
                                        which == 2 ? NULL : global,
                                        which == 3 ? odd : (local ? group : NULL), 0, NULL, event);

    any_note(a, "clEnqueueNDRangeKernel", err, global, sizeof global);
}

/** The slot of a buffer that kernels may do anything with, other than @other; MEMS: none. */
static unsigned free_buffer(struct any *a, unsigned other)
{
    unsigned from = rng_below(&a->rng, MEMS);

    for (unsigned i = from; i < from + MEMS; i++) {
        const struct mem *m = &a->mems[i % MEMS];
        if (m->mem && i % MEMS != other && m->type == CL_MEM_OBJECT_BUFFER &&
            m->flags == CL_MEM_READ_WRITE && !m->mapped && !m->parent && !m->children)
            return i % MEMS;
    }
    return MEMS;
}

void any_kernel(struct any *a, bool wrong)
{
    static const char *const names[] = {"stir", "add", "turn", "look", "draw"};
    uint32_t which = rng_below(&a->rng, 5), k = (uint32_t)rng_next(&a->rng);
    unsigned first = free_buffer(a, MEMS), second = free_buffer(a, first);
    struct mem *image = NULL;

    for (unsigned i = 0; i < MEMS; i++) {
        struct mem *m = &a->mems[i];
        if (m->mem && m->type == CL_MEM_OBJECT_IMAGE2D && m->pixel == 4 && !m->mapped &&
            m->flags != (which == 3 ? CL_MEM_WRITE_ONLY : CL_MEM_READ_ONLY))
            image = m;
    }
    if (first == MEMS || second == MEMS || (which >= 3 && !image))
        return;
    const struct mem *one = &a->mems[first], *two = &a->mems[second];
    cl_kernel kernel = prog_kernel(a->program, names[which]);
    cl_uint n = (cl_uint)(one->size / 4), least = (cl_uint)(two->size / 4);
    cl_int err = CL_SUCCESS;
    n = which == 1 && least < n ? least : n;
    if (wrong && any_one_in(a, 2)) {
        err = set(kernel, 9, sizeof k, &k);
        any_note(a, "clSetKernelArg", err, NULL, 0);
        MUST(clReleaseKernel(kernel));
        return;
    }
    switch (which) {
    case 0:
        err = set(kernel, 0, sizeof(cl_mem), &one->mem) | set(kernel, 1, sizeof n, &n) |
              set(kernel, 2, sizeof k, &k);
        break;
    case 1:
        err = set(kernel, 0, sizeof(cl_mem), &one->mem) |
              set(kernel, 1, sizeof(cl_mem), &two->mem) | set(kernel, 2, sizeof n, &n);
        break;
    case 2:
        err = set(kernel, 0, sizeof(cl_mem), &one->mem) | set(kernel, 1, 64 * sizeof n, NULL);
        break;
    case 3:
        err = set(kernel, 0, sizeof(cl_mem), &image->mem) |
              set(kernel, 1, sizeof(cl_sampler), &a->sampler) |
              set(kernel, 2, sizeof(cl_mem), &one->mem) | set(kernel, 3, sizeof n, &n);
        break;
    default:
        err = set(kernel, 0, sizeof(cl_mem), &image->mem) | set(kernel, 1, sizeof k, &k);
        break;
    }
    MUST(err);
    if (which == 4)
        launch(a, kernel, 2, image->region[0], image->region[1], 0, wrong);
    else
        launch(a, kernel, 1, n, 1, which == 2 ? 64 : any_one_in(a, 2) ? 16 : 0, wrong);
    MUST(clReleaseKernel(kernel));
}

void any_wait(struct any *a, bool wrong)
{
    cl_event list[EVENTS];
    cl_uint count = 0;
    cl_int err;

    if (!a->user && !wrong && any_one_in(a, 3)) {
        a->user = clCreateUserEvent(a->prog.context, &err);
        MUST(err);
        MUST(clEnqueueBarrierWithWaitList(a->queues[0], 1, &a->user, NULL));
        return;
    }
    for (unsigned i = 0; i < EVENTS; i++)
        if (a->events[i])
            list[count++] = a->events[i];
    if (wrong) {
        list[0] = NULL;
        any_note(a, "clWaitForEvents", clWaitForEvents(any_one_in(a, 2) ? 0 : 1, list), NULL, 0);
        return;
    }
    any_release_user(a);
    if (count && any_one_in(a, 2))
        MUST(clWaitForEvents(count, list));
    else
        finish(a);
    for (unsigned i = 0; i < count; i++) {
        cl_int status = -1;
        /* What was on the other queue may still run. */
        MUST(clWaitForEvents(1, &list[i]));
        MUST(clGetEventInfo(list[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                            NULL));
        any_note(a, "status", status, NULL, 0);
    }
}

/** All that is left is read and released. */
static void end(struct any *a)
{
    const size_t origin[3] = {0};

    finish(a);
    for (unsigned i = 0; i < MAPS; i++) {
        if (a->maps[i].mem)
            MUST(clEnqueueUnmapMemObject(a->queues[0], a->maps[i].mem->mem, a->maps[i].at, 0, NULL,
                                         NULL));
    }
    for (unsigned i = 0; i < EVENTS; i++) {
        if (a->events[i])
            MUST(clReleaseEvent(a->events[i]));
        a->events[i] = NULL;
    }
    memset(a->maps, 0, sizeof a->maps);
    for (unsigned parts = 2; parts-- > 0;) {
        for (unsigned i = 0; i < MEMS; i++) {
            struct mem *m = &a->mems[i];
            if (!m->mem || (m->parent != NULL) != (parts == 1))
                continue;
            unsigned char *got = prog_alloc(m->size);
            if (m->type == CL_MEM_OBJECT_BUFFER)
                prog_read(a->queues[0], m->mem, 0, m->size, got);
            else
                MUST(clEnqueueReadImage(a->queues[0], m->mem, CL_TRUE, origin, m->region, 0, 0, got,
                                        0, NULL, NULL));
            any_note(a, "last read", CL_SUCCESS, got, m->size);
            free(got);
            drop(a, m);
        }
    }
}

static void pass(struct any *a, uint64_t seed, unsigned long calls, uint32_t wrong)
{
    static any_call *const kinds[] = {
        any_create,     any_create,    any_release_mem, any_query, any_kernel, any_kernel,
        any_wait,       any_transfer,  any_transfer,    any_rect,  any_copy,   any_fill,
        any_image,      any_image,     any_image_copy,  any_map,   any_unmap,  any_copy_rect,
        any_copy_image, any_map_image, any_map_image};

    /* Seeds next to each other begin next to each other in one sequence. */
    a->rng = rng_seed(seed * SEED_STRIDE);
    a->sum = 0;
    for (a->call = 0; a->call < calls; a->call++) {
        bool one_wrong = any_one_in(a, wrong);
        kinds[rng_below(&a->rng, sizeof kinds / sizeof kinds[0])](a, one_wrong);
    }
    end(a);
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1);
    unsigned long calls = (unsigned long)prog_option(argc, argv, "--calls", 400);
    uint32_t wrong = (uint32_t)prog_option(argc, argv, "--wrong", 6);
    unsigned long seeds = (unsigned long)prog_option(argc, argv, "--seeds", 5);
    const char *without = prog_option_text(argc, argv, "--without", "");
    struct any a = {.verbose = prog_option(argc, argv, "--verbose", 0) != 0,
                    .views = !strstr(without, "views"),
                    .layers = !strstr(without, "layers")};
    bool first = true;
    uint64_t sums[64];
    cl_int err;

    REQUIRE(seeds >= 1 && seeds <= sizeof sums / sizeof sums[0]);
    prog_open(&a.prog);
    a.queues[0] = a.prog.queue;
    a.queues[1] = prog_queue_out_of_order(&a.prog);
    a.program = prog_build(&a.prog, source, "");
    a.sampler = clCreateSampler(a.prog.context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE,
                                CL_FILTER_NEAREST, &err);
    MUST(err);
    do {
        for (unsigned long i = 0; i < seeds; i++) {
            pass(&a, seed + i, calls, wrong);
            if (!first && a.sum != sums[i])
                prog_fail("seed %llu: a later pass gave another checksum",
                          (unsigned long long)(seed + i));
            sums[i] = a.sum;
        }
        first = false;
    } while (prog_again());
    for (unsigned long i = 0; i < seeds; i++)
        printf("seed %llu: %016llx\n", (unsigned long long)(seed + i), (unsigned long long)sums[i]);
    MUST(clReleaseSampler(a.sampler));
    MUST(clReleaseProgram(a.program));
    MUST(clReleaseCommandQueue(a.queues[1]));
    prog_close(&a.prog);
    return 0;
}
