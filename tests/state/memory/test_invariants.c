#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/mapping.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "tests/state/memory/test_invariants_common.h"

/* R1 to R4, on the replicas themselves. */

/* A buffer and what it must hold. */
struct modelled {
    cl_mem buffer;
    cl_uint words[WORDS];
    cl_uint *map; /* the whole of it, to write; or NULL */
    void *host;
};

/* The bytes that the replica in @residence_index has, past the engine. */
static void read_replica(struct memory *root, uint8_t residence_index, cl_uint *ret_words)
{
    if (residence_index == RESIDENCE_HOST) {
        memcpy(ret_words, memory_host_bytes(root), SIZE);
        return;
    }
    struct residence *residence = root->context->at[residence_index];
    OK(residence->cl->clEnqueueReadBuffer(residence->io, root->real[residence_index], CL_TRUE, 0,
                                          SIZE, ret_words, 0, NULL, NULL));
}

static bool has_replica(const struct memory *root, uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST
               ? root->host_copy || root->shadow_copy
               : root->context->at[residence_index] && root->real[residence_index];
}

/* R1: somebody has the latest bytes, and whoever says so has them. */
static void check_replicas(const struct modelled *m, const char *when)
{
    struct memory *root = root_of(m->buffer);
    unsigned holders = 0;
    for (uint8_t residence_index = 0; residence_index <= RESIDENCE_HOST; residence_index++) {
        cl_uint words[WORDS];
        if (version_of(m->buffer) == 0 || !has_replica(root, residence_index) ||
            !replica_is_latest(root, residence_index))
            continue;
        holders++;
        /* What is mapped to write is the host's until it is unmapped. */
        if (m->map)
            continue;
        read_replica(root, residence_index, words);
        cr_assert(memcmp(words, m->words, SIZE) == 0, "%s: place %u has other bytes", when,
                  residence_index);
    }
    cr_assert(version_of(m->buffer) == 0 || holders > 0, "%s: nobody has the latest bytes", when);
    if (m->map)
        cr_assert(memcmp(m->map, m->words, SIZE) == 0, "%s: mapped bytes changed", when);
}

#define BUFFERS 5

struct play {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add, sum;
    struct modelled buffers[BUFFERS];
    unsigned seed;
    bool suspended, on_demand;
    char last[64];
};

static unsigned pick(struct play *p, unsigned below)
{
    return (unsigned)rand_r(&p->seed) % below;
}

static void play_make(struct play *p, unsigned seed)
{
    static const cl_mem_flags flags[BUFFERS] = {0, 0, CL_MEM_ALLOC_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                                CL_MEM_COPY_HOST_PTR};
    p->seed = seed;
    engine_rig_open(&p->rig, config);
    engine_program_open(&p->rig, 0, source, &p->program);
    p->add = engine_kernel(p->program.program, "add");
    p->sum = engine_kernel(p->program.program, "sum");
    for (size_t i = 0; i < BUFFERS; i++) {
        bool hosted = flags[i] & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
        p->buffers[i].host = aligned_alloc(4096, 4096);
        cr_assert_not_null(p->buffers[i].host);
        memset(p->buffers[i].host, (int)i, 4096);
        if (hosted)
            memset(p->buffers[i].words, (int)i, SIZE);
        p->buffers[i].buffer = engine_buffer(p->program.context, CL_MEM_READ_WRITE | flags[i], SIZE,
                                             hosted ? p->buffers[i].host : NULL);
        /* The first two: only in the order in which they are used. */
        if (flags[i] == CL_MEM_ALLOC_HOST_PTR)
            OK(clEnqueueWriteBuffer(p->program.queue, p->buffers[i].buffer, CL_TRUE, 0, SIZE,
                                    p->buffers[i].words, 0, NULL, NULL));
    }
}

static void do_write(struct play *p, struct modelled *a, struct modelled *b)
{
    (void)b;
    for (unsigned i = 0; i < WORDS; i++)
        a->words[i] = (cl_uint)rand_r(&p->seed);
    OK(clEnqueueWriteBuffer(p->program.queue, a->buffer, pick(p, 2), 0, SIZE, a->words, 0, NULL,
                            NULL));
}

static void do_fill(struct play *p, struct modelled *a, struct modelled *b)
{
    cl_uint pattern = (cl_uint)rand_r(&p->seed), from = version_of(a->buffer) == 0 ? 0 : WORDS / 4;
    (void)b;
    for (unsigned i = from; i < WORDS; i++)
        a->words[i] = pattern;
    OK(clEnqueueFillBuffer(p->program.queue, a->buffer, &pattern, sizeof(pattern), from * 4,
                           SIZE - from * 4, 0, NULL, NULL));
}

static void do_copy(struct play *p, struct modelled *a, struct modelled *b)
{
    memcpy(a->words, b->words, SIZE);
    OK(clEnqueueCopyBuffer(p->program.queue, b->buffer, a->buffer, 0, 0, SIZE, 0, NULL, NULL));
}

static void launch(struct play *p, cl_kernel kernel)
{
    const size_t items = WORDS;
    OK(clEnqueueNDRangeKernel(p->program.queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static void do_add(struct play *p, struct modelled *a, struct modelled *b)
{
    cl_uint value = (cl_uint)rand_r(&p->seed);
    (void)b;
    for (unsigned i = 0; i < WORDS; i++)
        a->words[i] += value + i;
    OK(clSetKernelArg(p->add, 0, sizeof(cl_mem), &a->buffer));
    OK(clSetKernelArg(p->add, 1, sizeof(value), &value));
    launch(p, p->add);
}

static void do_sum(struct play *p, struct modelled *a, struct modelled *b)
{
    for (unsigned i = 0; i < WORDS; i++)
        a->words[i] = 2 * b->words[i];
    OK(clSetKernelArg(p->sum, 0, sizeof(cl_mem), &a->buffer));
    OK(clSetKernelArg(p->sum, 1, sizeof(cl_mem), &b->buffer));
    OK(clSetKernelArg(p->sum, 2, sizeof(cl_mem), &b->buffer));
    launch(p, p->sum);
}

static void do_map(struct play *p, struct modelled *a, struct modelled *b)
{
    cl_int error;
    (void)b;
    a->map = clEnqueueMapBuffer(p->program.queue, a->buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                SIZE, 0, NULL, NULL, &error);
    OK(error);
    cr_assert(memcmp(a->map, a->words, SIZE) == 0, "%s: a map of other bytes", p->last);
    a->map[5] = a->words[5] = (cl_uint)rand_r(&p->seed);
}

static void do_unmap(struct play *p, struct modelled *a)
{
    a->map[7] = a->words[7] = (cl_uint)rand_r(&p->seed);
    OK(clEnqueueUnmapMemObject(p->program.queue, a->buffer, a->map, 0, NULL, NULL));
    a->map = NULL;
}

static void do_read(struct play *p, struct modelled *a, struct modelled *b)
{
    cl_uint words[WORDS];
    (void)b;
    OK(clEnqueueReadBuffer(p->program.queue, a->buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cr_assert(memcmp(words, a->words, SIZE) == 0, "%s: read other bytes", p->last);
}

static void do_move(struct play *p)
{
    static const char *const places[] = {"one", "two", "three", NULL};
    const char *to = places[pick(p, p->suspended ? 3 : 4)];
    struct move_report report;
    struct vdev_status status;
    status_vdev(0, &status);
    if (to && !status.suspended && strcmp(status.device.device, to) == 0)
        return;
    snprintf(p->last, sizeof(p->last), "move to %s", to ? to : "host memory");
    const struct move_request request = {
        .target = to ? engine_rig_key(&p->rig, to) : NULL,
        .fetch = p->on_demand && pick(p, 4) != 0 ? MOVE_FETCH_ON_DEMAND : MOVE_FETCH_WHOLE,
        .bandwidth = pick(p, 2) ? 0 : 100000};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s: %s", p->last, report.reason);
    p->suspended = to == NULL;
    if (p->suspended) { /* It can be resumed to where it was. */
        const struct device_key from = status.device;
        status_vdev(0, &status);
        cr_assert(device_key_equal(&status.device, &from), "%s: was on %s", p->last, from.device);
    }
}

typedef void (*deed)(struct play *p, struct modelled *a, struct modelled *b);

static void play_step(struct play *p)
{
    static const struct {
        const char *name;
        deed run;
        bool needs_first, needs_second; /* bytes that were written */
    } deeds[] = {
        {"write", do_write, false, false}, {"fill", do_fill, false, false},
        {"copy", do_copy, false, true},    {"add", do_add, true, false},
        {"sum", do_sum, false, true},      {"map", do_map, true, false},
        {"read", do_read, true, false},
    };
    struct modelled *a = &p->buffers[pick(p, BUFFERS)], *b = &p->buffers[pick(p, BUFFERS)];
    if (p->suspended || pick(p, 4) == 0) {
        do_move(p);
        return;
    }
    if (a->map) {
        snprintf(p->last, sizeof(p->last), "unmap");
        do_unmap(p, a);
        return;
    }
    unsigned i = pick(p, ARRAY_SIZE(deeds));
    if (a == b || b->map || (deeds[i].needs_first && version_of(a->buffer) == 0) ||
        (deeds[i].needs_second && version_of(b->buffer) == 0))
        return;
    snprintf(p->last, sizeof(p->last), "%s of %td", deeds[i].name, a - p->buffers);
    deeds[i].run(p, a, b);
}

#define STEPS 400

static void play(unsigned seed, bool on_demand)
{
    static struct play p;
    play_make(&p, seed);
    p.on_demand = on_demand;
    for (unsigned step = 0; step < STEPS; step++) {
        char when[128];
        play_step(&p);
        snprintf(when, sizeof(when), "seed %u, step %u, after %s", seed, step, p.last);
        if (!p.suspended)
            OK(clFinish(p.program.queue));
        move_lock(); /* what is fetched in the background is not, meanwhile */
        for (size_t i = 0; i < BUFFERS; i++)
            check_replicas(&p.buffers[i], when);
        move_unlock();
    }
    if (p.suspended)
        engine_rig_moves(&p.rig, "one");
    for (size_t i = 0; i < BUFFERS; i++) {
        if (p.buffers[i].map)
            do_unmap(&p, &p.buffers[i]);
        OK(clReleaseMemObject(p.buffers[i].buffer));
    }
    OK(clFinish(p.program.queue));
    for (size_t i = 0; i < BUFFERS; i++)
        free(p.buffers[i].host);
    OK(clReleaseKernel(p.add));
    OK(clReleaseKernel(p.sum));
    engine_program_close(&p.program);
    engine_rig_ends_empty(&p.rig);
}

Test(r1, some_replica_holds_the_latest_bytes_whatever_is_done)
{
    play(1, false);
}

Test(r1, some_replica_holds_the_latest_bytes_in_another_order)
{
    play(20261120, false);
}

Test(r1, some_replica_holds_the_latest_bytes_in_a_third_order)
{
    play(77, false);
}

Test(r1, some_replica_holds_the_latest_bytes_while_they_are_fetched)
{
    play(2, true);
}

Test(r1, some_replica_holds_the_latest_bytes_while_they_are_fetched_in_another_order)
{
    play(20261123, true);
}

Test(r1, some_replica_holds_the_latest_bytes_while_they_are_fetched_in_a_third_order)
{
    play(20261124, true);
}

/* A context of two virtual devices, on two real ones. */
struct pair {
    struct engine_rig rig;
    cl_context context;
    cl_command_queue queues[2];
    cl_program program;
    cl_kernel add[2];
    cl_mem buffer;
    cl_uint words[WORDS];
};

static void pair_open(struct pair *p)
{
    const char *text = source;
    cl_int error;
    engine_rig_open(&p->rig, config);
    const cl_device_id devices[] = {p->rig.device, engine_rig_vdev(&p->rig, "two")};
    p->context = clCreateContext(NULL, 2, devices, NULL, NULL, &error);
    OK(error);
    p->program = clCreateProgramWithSource(p->context, 1, &text, NULL, &error);
    OK(error);
    OK(clBuildProgram(p->program, 0, NULL, "", NULL, NULL));
    memset(p->words, 3, SIZE);
    p->buffer = engine_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, p->words);
    for (int i = 0; i < 2; i++) {
        p->queues[i] = clCreateCommandQueue(p->context, devices[i], 0, &error);
        OK(error);
        p->add[i] = engine_kernel(p->program, "add");
        OK(clSetKernelArg(p->add[i], 0, sizeof(cl_mem), &p->buffer));
    }
}

static void pair_add(struct pair *p, int which, cl_uint value)
{
    const size_t items = WORDS;
    OK(clSetKernelArg(p->add[which], 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(p->queues[which], p->add[which], 1, NULL, &items, NULL, 0, NULL,
                              NULL));
    OK(clFinish(p->queues[which]));
    for (cl_uint i = 0; i < WORDS; i++)
        p->words[i] += value + i;
}

static void pair_check(struct pair *p, int which, const char *when)
{
    cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(p->queues[which], p->buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cr_assert(memcmp(words, p->words, SIZE) == 0, "%s: device %d reads other bytes", when, which);
    engine_read_there(p->queues[which], p->buffer, 0, SIZE, words);
    cr_assert(memcmp(words, p->words, SIZE) == 0, "%s: device %d sees other bytes", when, which);
}

Test(r2, a_command_sees_what_another_device_wrote)
{
    static struct pair p;
    pair_open(&p);
    cr_assert_neq(context_home((struct context *)p.context),
                  ((struct context *)p.context)->residence_index[1],
                  "both devices live in one place");
    for (unsigned step = 0; step < 20; step++) {
        pair_add(&p, step % 2, step);
        pair_add(&p, step % 3 == 0, step);
        pair_check(&p, 1 - step % 2, "after a kernel");
        pair_check(&p, step % 2, "after a read elsewhere");
    }
}

Test(r2, a_held_command_sees_what_another_device_wrote)
{
    static struct pair p;
    cl_uint words[WORDS];
    cl_event event;
    cl_int error;
    pair_open(&p);
    cl_event user = clCreateUserEvent(p.context, &error);
    OK(error);
    OK(clEnqueueReadBuffer(p.queues[0], p.buffer, CL_FALSE, 0, SIZE, words, 1, &user, &event));
    pair_add(&p, 1, 9);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    cr_assert(memcmp(words, p.words, SIZE) == 0);
    pair_check(&p, 0, "written elsewhere");
}

static void move_vdev(struct pair *p, uint32_t vdev, const char *to)
{
    struct move_request request = {.target = to ? engine_rig_key(&p->rig, to) : NULL, .vdev = vdev};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "seat %u to %s: %s", vdev, to ? to : "host memory",
                 report.reason);
}

/* The bytes are on the device that stays, and the other moves: it has old ones. */
Test(r2, a_device_that_moves_takes_no_old_bytes_along)
{
    static struct pair p;
    pair_open(&p);
    pair_add(&p, 0, 1);
    pair_add(&p, 1, 2);
    move_vdev(&p, 0, "three");
    pair_check(&p, 1, "after the move");
    pair_check(&p, 0, "after the move");
    pair_add(&p, 1, 3);
    move_vdev(&p, 0, NULL);
    pair_check(&p, 1, "while the other is suspended");
    move_vdev(&p, 0, "one");
    pair_add(&p, 1, 4);
    pair_check(&p, 1, "after the resume");
    pair_check(&p, 0, "after the resume");
    pair_add(&p, 0, 5);
    move_vdev(&p, 1, "one");
    pair_check(&p, 1, "both on one device");
    pair_add(&p, 1, 6);
    move_vdev(&p, 0, "two");
    pair_check(&p, 0, "apart again");
    pair_check(&p, 1, "apart again");
}

/* R4. */

static bool has_host_copy(cl_mem buffer)
{
    return root_of(buffer)->host_copy != NULL;
}

Test(r4, the_host_replica_goes_only_when_a_device_has_the_bytes)
{
    static struct pair p;
    struct memory *root;
    pair_open(&p);
    root = root_of(p.buffer);
    cr_assert_not(has_host_copy(p.buffer), "nothing asked for one");
    move_vdev(&p, 1, NULL);
    move_vdev(&p, 0, NULL);
    cr_assert(has_host_copy(p.buffer));
    cr_assert(replica_is_latest(root, RESIDENCE_HOST));
    cr_assert(memcmp(root->host_copy->bytes, p.words, SIZE) == 0);
    move_vdev(&p, 0, "one");
    cr_assert_not(has_host_copy(p.buffer), "the device has them");
    pair_check(&p, 0, "resumed");
    pair_add(&p, 0, 1);
    move_vdev(&p, 1, "two");
    pair_check(&p, 1, "resumed");
}

Test(r4, the_host_replica_stays_while_something_is_mapped)
{
    static struct play p;
    play_make(&p, 5);
    struct modelled *m = &p.buffers[4];
    do_map(&p, m, NULL);
    engine_rig_moves(&p.rig, "two");
    cr_assert(has_host_copy(m->buffer));
    cr_assert_eq((char *)m->map, root_of(m->buffer)->host_copy->bytes);
    check_replicas(m, "mapped");
    do_unmap(&p, m);
    OK(clFinish(p.program.queue));
    check_replicas(m, "unmapped");
    engine_rig_moves(&p.rig, "one");
    cr_assert_not(has_host_copy(m->buffer));
    check_replicas(m, "moved");
}

/* Two devices have the bytes, and the one that wrote them goes. */
Test(r4, a_device_that_leaves_takes_no_last_replica_with_it)
{
    static struct pair p;
    pair_open(&p);
    for (cl_uint i = 0; i < 6; i++) {
        static const char *const places[2][2] = {{"three", "one"}, {"three", "two"}};
        int writer = i % 2;
        pair_add(&p, writer, i);
        if (i % 3 == 0)
            pair_check(&p, 1 - writer, "read elsewhere");
        move_vdev(&p, (uint32_t)writer, places[writer][0]);
        pair_check(&p, 1 - writer, "the other");
        pair_check(&p, writer, "moved");
        move_vdev(&p, (uint32_t)writer, places[writer][1]);
        pair_check(&p, writer, "back");
    }
}
