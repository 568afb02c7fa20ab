#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/state/memory/test_invariants_common.h"

/* One context of two virtual devices: maps, and who writes. */

#define HALF  2048
#define BYTES ((size_t)2 * HALF)

struct two {
    struct engine_rig rig;
    cl_context context;
    cl_command_queue queues[2];
    cl_uchar want[BYTES];
    cl_uchar *host;
};

static void two_open(struct two *t, const char *devices, const char *second)
{
    cl_int error;
    engine_rig_open(&t->rig, devices);
    const cl_device_id vdevs[] = {t->rig.device, engine_rig_vdev(&t->rig, second)};
    t->context = clCreateContext(NULL, 2, vdevs, NULL, NULL, &error);
    OK(error);
    for (int i = 0; i < 2; i++) {
        t->queues[i] = clCreateCommandQueue(t->context, vdevs[i], 0, &error);
        OK(error);
    }
    t->host = aligned_alloc(4096, BYTES);
    cr_assert_not_null(t->host);
    for (size_t i = 0; i < BYTES; i++)
        t->host[i] = t->want[i] = (cl_uchar)(i * 13 + 5);
}

static void two_check(struct two *t, cl_mem buffer, const char *when)
{
    for (int i = 0; i < 2; i++) {
        cl_uchar got[BYTES];
        OK(clEnqueueReadBuffer(t->queues[i], buffer, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        for (size_t at = 0; at < BYTES; at++)
            cr_assert_eq(got[at], t->want[at], "%s: device %d reads %u at %zu, not %u", when, i,
                         got[at], at, t->want[at]);
        engine_read_there(t->queues[i], buffer, 0, BYTES, got);
        for (size_t at = 0; at < BYTES; at++)
            cr_assert_eq(got[at], t->want[at], "%s: device %d has %u at %zu, not %u", when, i,
                         got[at], at, t->want[at]);
    }
}

static void two_close(struct two *t)
{
    for (int i = 0; i < 2; i++)
        OK(clReleaseCommandQueue(t->queues[i]));
    OK(clReleaseContext(t->context));
    free(t->host);
}

/* Mapped in a queue of one device, unmapped in a queue of the other, the latter having written
 * another part meanwhile, or one of the two having moved. */
static void map_here_unmap_there(struct two *t, cl_mem_flags flags, const char *when)
{
    cl_int error;
    cl_mem buffer = engine_buffer(t->context, flags, BYTES, flags ? t->host : NULL);
    const cl_buffer_region region = {HALF, HALF};
    cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    OK(error);
    memcpy(t->host, t->want, BYTES);
    OK(clEnqueueWriteBuffer(t->queues[0], buffer, CL_TRUE, 0, BYTES, t->want, 0, NULL, NULL));
    for (unsigned round = 0; round < 8; round++) {
        unsigned here = round & 1, there = (round >> 1 & 1) ? here : 1 - here;
        cl_map_flags how = round & 4 ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ | CL_MAP_WRITE;
        cl_uchar *map = clEnqueueMapBuffer(t->queues[here], buffer, CL_TRUE, how, 64, 512, 0, NULL,
                                           NULL, &error);
        OK(error);
        if (flags & CL_MEM_USE_HOST_PTR)
            cr_assert_eq(map, t->host + 64);
        if (!(round & 4))
            cr_assert_arr_eq(map, t->want + 64, 512);
        cl_uchar pattern[4] = {(cl_uchar)round, 1, 2, 3};
        OK(clEnqueueFillBuffer(t->queues[1 - here], part, pattern, 4, 0, 256, 0, NULL, NULL));
        OK(clFinish(t->queues[1 - here]));
        for (size_t i = 0; i < 256; i++)
            t->want[HALF + i] = pattern[i % 4];
        for (size_t i = 0; i < 512; i++)
            map[i] = t->want[64 + i] = (cl_uchar)(i + round);
        OK(clEnqueueUnmapMemObject(t->queues[there], buffer, map, 0, NULL, NULL));
        OK(clFinish(t->queues[there]));
        cl_uint count = 7;
        OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof(count), &count, NULL));
        cr_assert_eq(count, 0);
        two_check(t, buffer, when);
    }
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(buffer));
}

static void maps_between(const char *second, const char *first)
{
    static struct two t;
    two_open(&t, config, second);
    if (first) {
        struct move_request request = {.target = engine_rig_key(&t.rig, first), .vdev = 0};
        struct move_report report;
        move_run(&request, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    }
    map_here_unmap_there(&t, 0, "a buffer of the device");
    map_here_unmap_there(&t, CL_MEM_USE_HOST_PTR, "a buffer in the program's memory");
    two_close(&t);
}

Test(shared, maps_end_in_any_queue_between_devices_that_copy)
{
    maps_between("two", NULL);
}

Test(shared, maps_end_in_any_queue_beside_a_device_that_works_in_place)
{
    maps_between("three", NULL);
}

Test(shared, maps_end_in_any_queue_on_one_device)
{
    maps_between("three", "three");
}

/* Mapped by the driver of a device that then moves, or that the other one joins. */
Test(shared, maps_stay_when_one_of_two_devices_moves)
{
    static struct two t;
    static const struct {
        uint32_t vdev;
        const char *to;
    } moves[] = {{0, "three"}, {1, "three"}, {0, "one"}, {1, "two"}, {1, NULL},
                 {1, "one"},   {0, "two"},   {0, NULL},  {0, "one"}, {0, "two"}};
    cl_int error;
    two_open(&t, config, "two");
    cl_mem buffer = engine_buffer(t.context, CL_MEM_USE_HOST_PTR, BYTES, t.host);
    for (unsigned round = 0; round < 4; round++) {
        cl_uchar *maps[2];
        const size_t at[2] = {0, HALF};
        for (int i = 0; i < 2; i++) {
            maps[i] = clEnqueueMapBuffer(t.queues[i], buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                         at[i], 1024, 0, NULL, NULL, &error);
            OK(error);
            cr_assert_eq(maps[i], t.host + at[i]);
        }
        for (size_t m = 0; m < ARRAY_SIZE(moves); m++) {
            struct move_request request = {
                .target = moves[m].to ? engine_rig_key(&t.rig, moves[m].to) : NULL,
                .vdev = moves[m].vdev};
            struct move_report report;
            move_run(&request, &report);
            cr_assert_eq(report.result, MOVE_DONE, "round %u, move %zu: %s", round, m,
                         report.reason);
            for (int i = 0; i < 2; i++) {
                cr_assert_arr_eq(maps[i], t.want + at[i], 1024);
                maps[i][m] = t.want[at[i] + m] = (cl_uchar)(m + round + (unsigned)i);
            }
        }
        for (int i = 0; i < 2; i++)
            OK(clEnqueueUnmapMemObject(t.queues[round & 1 ? i : 1 - i], buffer, maps[i], 0, NULL,
                                       NULL));
        two_check(&t, buffer, "after the moves");
    }
    OK(clReleaseMemObject(buffer));
    two_close(&t);
}

struct writer {
    cl_command_queue queue;
    cl_mem whole, part;
    pthread_barrier_t *both;
    cl_uint rounds;
};

static void *write_part(void *data)
{
    const struct writer *w = data;
    static const size_t at[] = {0, HALF - 4, HALF, BYTES - 4};
    for (cl_uint i = 0; i < w->rounds; i++) {
        cl_uint next = i + 1, got[BYTES / 4];
        OK(clEnqueueReadBuffer(w->queue, w->whole, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        for (size_t k = 0; k < ARRAY_SIZE(at); k++)
            cr_assert_eq(got[at[k] / 4], i, "round %u: at %zu is what round %u wrote", i, at[k],
                         got[at[k] / 4]);
        pthread_barrier_wait(w->both); /* both devices have the latest bytes */
        OK(clEnqueueFillBuffer(w->queue, w->part, &next, 4, 0, HALF, 0, NULL, NULL));
        OK(clFinish(w->queue));
        pthread_barrier_wait(w->both);
    }
    return NULL;
}

/* R1 with two that write: 5.2.1 lets two devices write parts that do not overlap at once. */
Test(shared, parts_of_one_buffer_are_written_on_two_devices_at_once, .timeout = 300)
{
    static struct two t;
    struct writer writers[2];
    pthread_t threads[2];
    pthread_barrier_t both;
    const cl_uint zero = 0, rounds = 4000;
    cl_int error;
    two_open(&t, config, "three");
    pthread_barrier_init(&both, NULL, 2);
    cl_mem buffer = engine_buffer(t.context, 0, BYTES, NULL);
    OK(clEnqueueFillBuffer(t.queues[0], buffer, &zero, 4, 0, BYTES, 0, NULL, NULL));
    OK(clFinish(t.queues[0]));
    for (size_t i = 0; i < 2; i++) {
        const cl_buffer_region region = {i * HALF, HALF};
        cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        OK(error);
        writers[i] = (struct writer){t.queues[i], buffer, part, &both, rounds};
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_part, &writers[i]), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < BYTES; i++)
        t.want[i] = (cl_uchar)(i % 4 == 0 ? rounds & 255 : i % 4 == 1 ? rounds >> 8 : 0);
    two_check(&t, buffer, "both wrote");
    for (int i = 0; i < 2; i++)
        OK(clReleaseMemObject(writers[i].part));
    OK(clReleaseMemObject(buffer));
    pthread_barrier_destroy(&both);
    two_close(&t);
}

/* What cannot be brought where a deferred command needs it ends that command, and nothing waits for
 * it for ever. */
Test(shared, a_held_command_ends_when_its_object_cannot_be_made, .timeout = 60)
{
    static struct two t;
    cl_uchar bytes[64];
    cl_event event;
    cl_int error, status = 1;
    two_open(&t, config, "two");
    cl_event user = clCreateUserEvent(t.context, &error);
    OK(error);
    cl_mem buffer = engine_buffer(t.context, CL_MEM_COPY_HOST_PTR, BYTES, t.host);
    OK(clEnqueueCopyBuffer(t.queues[1], buffer, buffer, 0, 64, 64, 1, &user, &event));
    cr_assert_eq(emu_shared_arm(t.rig.emu, "two", 1, "clCreateBuffer", CL_OUT_OF_HOST_MEMORY), 0);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_OUT_OF_HOST_MEMORY);
    engine_read_there(t.queues[1], buffer, 0, 64, bytes);
    cr_assert_arr_eq(bytes, t.want, 64);
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(user));
    OK(clReleaseMemObject(buffer));
    two_close(&t);
}

struct half {
    struct two *t;
    cl_mem part;
    int device;
    cl_uchar byte;
    pthread_barrier_t *start;
};

static void *write_half(void *data)
{
    const struct half *w = data;
    pthread_barrier_wait(w->start);
    OK(clEnqueueFillBuffer(w->t->queues[w->device], w->part, &w->byte, 1, 0, HALF, 0, NULL, NULL));
    OK(clFinish(w->t->queues[w->device]));
    return NULL;
}

/* Each has the latest bytes, and writes a half of its own: none is lost. */
Test(shared, two_devices_write_their_parts_at_once, .timeout = 120)
{
    static struct two t;
    pthread_barrier_t start;
    struct half writers[2];
    pthread_t threads[2];
    cl_int error;
    two_open(&t, config, "two");
    cl_mem buffer = engine_buffer(t.context, CL_MEM_COPY_HOST_PTR, BYTES, t.host);
    cr_assert_eq(pthread_barrier_init(&start, NULL, 2), 0);
    for (int i = 0; i < 2; i++) {
        const cl_buffer_region region = {(size_t)i * HALF, HALF};
        cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        OK(error);
        writers[i] = (struct half){&t, part, i, 0, &start};
    }
    for (unsigned round = 0; round < 100; round++) {
        two_check(&t, buffer, "before");
        for (int i = 0; i < 2; i++) {
            writers[i].byte = (cl_uchar)(round * 2 + (unsigned)i);
            memset(t.want + (size_t)i * HALF, writers[i].byte, HALF);
            cr_assert_eq(pthread_create(&threads[i], NULL, write_half, &writers[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        two_check(&t, buffer, "after");
    }
    for (int i = 0; i < 2; i++)
        OK(clReleaseMemObject(writers[i].part));
    OK(clReleaseMemObject(buffer));
    two_close(&t);
}
