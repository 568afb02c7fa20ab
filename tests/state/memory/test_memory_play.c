#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/mapping.h"
#include "tests/state/memory/test_invariants_common.h"

/*
 * R1 to R4 with views and two virtual devices: random commands of both on parts of two buffers,
 * several maps at a time, and moves of either device, against a model.
 */

#define BYTES   8192
#define PARTS   4
#define MAPS    4
#define BUFFERS 2
#define STEPS   250

struct held_map {
    cl_mem memory;
    size_t at, size;
    bool write;
    cl_uchar *pointer; /* or NULL */
};

struct model {
    cl_mem parts[PARTS]; /* the first is the whole */
    size_t origin[PARTS], size[PARTS];
    cl_uchar want[BYTES];
    cl_uchar *host;
    struct held_map maps[MAPS];
};

struct play {
    struct engine_rig rig;
    cl_context context;
    cl_command_queue queues[2];
    cl_program program;
    cl_kernel add;
    struct model models[BUFFERS];
    unsigned seed;
    bool suspended[2];
    char last[96];
};

static unsigned pick(struct play *p, size_t below)
{
    return (unsigned)((size_t)rand_r(&p->seed) % below);
}

static void model_make(struct play *p, struct model *m, cl_mem_flags flags)
{
    cl_int error;
    m->host = aligned_alloc(4096, BYTES);
    cr_assert_not_null(m->host);
    for (size_t i = 0; i < BYTES; i++)
        m->host[i] = m->want[i] = (cl_uchar)rand_r(&p->seed);
    m->parts[0] = engine_buffer(p->context, flags, BYTES, m->host);
    m->size[0] = BYTES;
    for (int i = 1; i < PARTS; i++) {
        cl_buffer_region region = {.origin = pick(p, 7) * (size_t)1024};
        region.size = 64 + pick(p, (BYTES - region.origin - 64) / 64) * (size_t)64;
        m->parts[i] =
            clCreateSubBuffer(m->parts[0], 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        OK(error);
        m->origin[i] = region.origin;
        m->size[i] = region.size;
    }
}

static void play_open(struct play *p, unsigned seed)
{
    const char *text = source;
    cl_int error;
    p->seed = seed;
    engine_rig_open(&p->rig, config);
    const cl_device_id vdevs[] = {p->rig.device, engine_rig_vdev(&p->rig, "two")};
    p->context = clCreateContext(NULL, 2, vdevs, NULL, NULL, &error);
    OK(error);
    p->program = clCreateProgramWithSource(p->context, 1, &text, NULL, &error);
    OK(error);
    OK(clBuildProgram(p->program, 0, NULL, "", NULL, NULL));
    p->add = engine_kernel(p->program, "add");
    for (int i = 0; i < 2; i++) {
        p->queues[i] = clCreateCommandQueue(p->context, vdevs[i], 0, &error);
        OK(error);
    }
    model_make(p, &p->models[0], CL_MEM_COPY_HOST_PTR);
    model_make(p, &p->models[1], CL_MEM_USE_HOST_PTR);
}

static bool is_free(const struct model *m, size_t at, size_t size, bool write)
{
    for (int i = 0; i < MAPS; i++)
        if (m->maps[i].pointer && (write || m->maps[i].write) &&
            at < m->maps[i].at + m->maps[i].size && m->maps[i].at < at + size)
            return false;
    return true;
}

/* 64 bytes or more of one part, in whole words. */
struct span {
    cl_mem memory;
    size_t offset, size, at;
};

static bool pick_range(struct play *p, const struct model *m, bool write, struct span *ret)
{
    unsigned i = pick(p, PARTS);
    ret->memory = m->parts[i];
    ret->offset = pick(p, m->size[i] / 64) * (size_t)64;
    ret->size = 64 + pick(p, (m->size[i] - ret->offset) / 64) * (size_t)64;
    ret->at = m->origin[i] + ret->offset;
    return is_free(m, ret->at, ret->size, write);
}

static void do_fill(struct play *p, struct model *m, cl_command_queue queue)
{
    struct span r;
    cl_uint value = (cl_uint)rand_r(&p->seed);
    if (!pick_range(p, m, true, &r))
        return;
    OK(clEnqueueFillBuffer(queue, r.memory, &value, 4, r.offset, r.size, 0, NULL, NULL));
    for (size_t i = 0; i < r.size; i += 4)
        memcpy(m->want + r.at + i, &value, 4);
}

static void do_add(struct play *p, struct model *m, cl_command_queue queue)
{
    unsigned i = pick(p, PARTS);
    const cl_uint value = (cl_uint)rand_r(&p->seed);
    const size_t items = m->size[i] / 4;
    if (!is_free(m, m->origin[i], m->size[i], true))
        return;
    OK(clSetKernelArg(p->add, 0, sizeof(cl_mem), &m->parts[i]));
    OK(clSetKernelArg(p->add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(queue, p->add, 1, NULL, &items, NULL, 0, NULL, NULL));
    for (cl_uint k = 0; k < items; k++) {
        cl_uint word;
        memcpy(&word, m->want + m->origin[i] + k * 4, 4);
        word += value + k;
        memcpy(m->want + m->origin[i] + k * 4, &word, 4);
    }
}

static void do_read(struct play *p, struct model *m, cl_command_queue queue)
{
    cl_uchar got[BYTES];
    struct span r;
    if (!pick_range(p, m, false, &r))
        return;
    OK(clEnqueueReadBuffer(queue, r.memory, CL_TRUE, r.offset, r.size, got, 0, NULL, NULL));
    cr_assert(memcmp(got, m->want + r.at, r.size) == 0, "%s: read other bytes", p->last);
}

static void do_copy(struct play *p, struct model *m, cl_command_queue queue)
{
    struct model *to = m == &p->models[0] ? &p->models[1] : &p->models[0];
    struct span a, b;
    if (!pick_range(p, m, false, &a) || !pick_range(p, to, true, &b))
        return;
    size_t size = a.size < b.size ? a.size : b.size;
    OK(clEnqueueCopyBuffer(queue, a.memory, b.memory, a.offset, b.offset, size, 0, NULL, NULL));
    memcpy(to->want + b.at, m->want + a.at, size);
}

static void do_map(struct play *p, struct model *m, cl_command_queue queue)
{
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    struct held_map *map = &m->maps[pick(p, MAPS)];
    cl_map_flags flags = kinds[pick(p, 3)];
    struct span r;
    cl_int error;
    if (map->pointer || !pick_range(p, m, flags != CL_MAP_READ, &r))
        return;
    cl_uchar *pointer = clEnqueueMapBuffer(queue, r.memory, CL_TRUE, flags, r.offset, r.size, 0,
                                           NULL, NULL, &error);
    OK(error);
    *map = (struct held_map){r.memory, r.at, r.size, flags != CL_MAP_READ, pointer};
    if (flags & CL_MAP_READ)
        cr_assert(memcmp(pointer, m->want + r.at, r.size) == 0, "%s: other bytes", p->last);
    for (size_t i = 0; map->write && i < r.size; i++)
        pointer[i] = m->want[r.at + i] = (cl_uchar)rand_r(&p->seed);
}

static void do_unmap(struct play *p, struct model *m, cl_command_queue queue)
{
    struct held_map *map = &m->maps[pick(p, MAPS)];
    if (!map->pointer)
        return;
    cr_assert(memcmp(map->pointer, m->want + map->at, map->size) == 0, "%s: a map changed",
              p->last);
    for (size_t i = 0; map->write && i < map->size; i += 3)
        map->pointer[i] = m->want[map->at + i] = (cl_uchar)rand_r(&p->seed);
    OK(clEnqueueUnmapMemObject(queue, map->memory, map->pointer, 0, NULL, NULL));
    map->pointer = NULL;
}

static void move(struct play *p, unsigned vdev, const char *to)
{
    struct move_request request = {.target = to ? engine_rig_key(&p->rig, to) : NULL, .vdev = vdev};
    struct move_report report;
    struct vdev_status status;
    status_vdev(vdev, &status);
    if (to ? !status.suspended && strcmp(status.device.device, to) == 0 : status.suspended)
        return;
    snprintf(p->last, sizeof(p->last), "move of %u to %s", vdev, to ? to : "host memory");
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s: %s", p->last, report.reason);
    p->suspended[vdev] = to == NULL;
}

static void check_all(struct play *p, const char *when)
{
    for (unsigned k = 0; k < 4 * BUFFERS; k++) {
        struct model *m = &p->models[k / 4];
        cl_uchar got[BYTES];
        if (p->suspended[k % 2])
            continue;
        if (k % 4 < 2)
            OK(clEnqueueReadBuffer(p->queues[k % 2], m->parts[0], CL_TRUE, 0, BYTES, got, 0, NULL,
                                   NULL));
        else
            engine_read_there(p->queues[k % 2], m->parts[0], 0, BYTES, got);
        for (size_t i = 0; i < BYTES; i++)
            cr_assert(got[i] == m->want[i] || !is_free(m, i, 1, false),
                      "%s: device %u has %u at %zu of buffer %u, not %u", when, k % 2, got[i], i,
                      k / 4, m->want[i]);
    }
}

static void play(unsigned seed)
{
    static const char *const places[] = {"one", "two", "three", NULL};
    static const struct {
        const char *name;
        void (*run)(struct play *p, struct model *m, cl_command_queue queue);
    } deeds[] = {{"fill", do_fill}, {"add", do_add}, {"read", do_read},  {"copy", do_copy},
                 {"map", do_map},   {"map", do_map}, {"unmap", do_unmap}};
    static struct play p;
    unsigned before = 0;
    play_open(&p, seed);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned vdev = pick(&p, 2), i = pick(&p, ARRAY_SIZE(deeds)), number = pick(&p, BUFFERS);
        if (p.suspended[0] || p.suspended[1] || pick(&p, 8) == 0) {
            vdev = p.suspended[0] ? 0 : p.suspended[1] ? 1 : vdev;
            move(&p, vdev, places[pick(&p, p.suspended[vdev] ? 3 : 4)]);
        } else {
            /* What the other device was told to do comes first. */
            if (vdev != before)
                OK(clFinish(p.queues[before]));
            before = vdev;
            snprintf(p.last, sizeof(p.last), "seed %u, step %u: %s of %u on %u", seed, step,
                     deeds[i].name, number, vdev);
            deeds[i].run(&p, &p.models[number], p.queues[vdev]);
        }
        if (step % 10 == 0 && !p.suspended[0] && !p.suspended[1]) {
            OK(clFinish(p.queues[before]));
            check_all(&p, p.last);
        }
    }
    for (unsigned vdev = 0; vdev < 2; vdev++)
        if (p.suspended[vdev])
            move(&p, vdev, "three");
    for (unsigned k = 0; k < 200; k++)
        do_unmap(&p, &p.models[k % 2], p.queues[before]);
    OK(clFinish(p.queues[before]));
    check_all(&p, "in the end");
    for (int k = 0; k < BUFFERS; k++) {
        for (int i = 0; i < PARTS; i++)
            OK(clReleaseMemObject(p.models[k].parts[i]));
        free(p.models[k].host);
    }
    OK(clReleaseKernel(p.add));
    OK(clReleaseProgram(p.program));
    for (int i = 0; i < 2; i++)
        OK(clReleaseCommandQueue(p.queues[i]));
    OK(clReleaseContext(p.context));
    engine_rig_ends_empty(&p.rig);
}

Test(shared_play, two_devices_and_their_moves_agree_with_the_model, .timeout = 300)
{
    play(3);
}

Test(shared_play, two_devices_and_their_moves_agree_in_another_order, .timeout = 300)
{
    play(4711);
}

Test(shared_play, two_devices_and_their_moves_agree_in_a_third_order, .timeout = 300)
{
    play(20261121);
}
