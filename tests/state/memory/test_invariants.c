#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "tests/state/memory/test_invariants_common.h"

/* R2 and R4 in what a program of two virtual devices does; test_replicas.c tries all four at
 * random. */

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
    engine_rig_open(&p->rig, config);
    const cl_device_id devices[] = {p->rig.device, engine_rig_vdev(&p->rig, "two")};
    p->context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    p->program = BUILT(p->context, source, "");
    memset(p->words, 3, SIZE);
    p->buffer = engine_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, p->words);
    for (int i = 0; i < 2; i++) {
        p->queues[i] = MADE(clCreateCommandQueue, p->context, devices[i], 0);
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
    pair_open(&p);
    cl_event user = MADE(clCreateUserEvent, p.context);
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
    static struct pair p;
    pair_open(&p);
    cl_uint *map = MADE(clEnqueueMapBuffer, p.queues[0], p.buffer, CL_TRUE,
                        CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, 0, NULL, NULL);
    map[5] = p.words[5] = 4711;
    move_vdev(&p, 0, "two");
    cr_assert(has_host_copy(p.buffer));
    cr_assert_eq((char *)map, root_of(p.buffer)->host_copy->bytes);
    cr_assert(memcmp(map, p.words, SIZE) == 0);
    map[7] = p.words[7] = 815;
    OK(clEnqueueUnmapMemObject(p.queues[0], p.buffer, map, 0, NULL, NULL));
    pair_check(&p, 0, "unmapped");
    move_vdev(&p, 0, "one");
    cr_assert_not(has_host_copy(p.buffer));
    pair_check(&p, 0, "moved");
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
