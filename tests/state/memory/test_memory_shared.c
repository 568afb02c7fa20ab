#include <pthread.h>

#include "tests/state/memory/test_invariants_common.h"

/* One context of two virtual devices, which write at once. What they do in turn, test_replicas.c
 * tries. */

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
    engine_rig_open(&t->rig, devices);
    const cl_device_id vdevs[] = {t->rig.device, engine_rig_vdev(&t->rig, second)};
    t->context = MADE(clCreateContext, NULL, 2, vdevs, NULL, NULL);
    for (int i = 0; i < 2; i++)
        t->queues[i] = MADE(clCreateCommandQueue, t->context, vdevs[i], 0);
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

struct writer {
    cl_command_queue queue;
    cl_mem whole, part;
    pthread_barrier_t *both;
    cl_uint rounds;
};

static void *write_part(void *data)
{
    const struct writer *w = data;
    for (cl_uint i = 0; i < w->rounds; i++) {
        cl_uint next = i + 1, got[BYTES / 4];
        OK(clEnqueueReadBuffer(w->queue, w->whole, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        for (size_t k = 0; k < BYTES / 4; k++)
            if (got[k] != i)
                cr_assert_fail("round %u: word %zu is what round %u wrote", i, k, got[k]);
        pthread_barrier_wait(w->both); /* both devices have the latest bytes */
        OK(clEnqueueFillBuffer(w->queue, w->part, &next, 4, 0, HALF, 0, NULL, NULL));
        OK(clFinish(w->queue));
        pthread_barrier_wait(w->both);
    }
    return NULL;
}

static void both_write(const char *second, cl_uint rounds)
{
    static struct two t;
    struct writer writers[2];
    pthread_t threads[2];
    pthread_barrier_t both;
    const cl_uint zero = 0;
    two_open(&t, config, second);
    pthread_barrier_init(&both, NULL, 2);
    cl_mem buffer = engine_buffer(t.context, 0, BYTES, NULL);
    OK(clEnqueueFillBuffer(t.queues[0], buffer, &zero, 4, 0, BYTES, 0, NULL, NULL));
    OK(clFinish(t.queues[0]));
    for (size_t i = 0; i < 2; i++) {
        const cl_buffer_region region = {i * HALF, HALF};
        cl_mem part = MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
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

/* R1 with two that write: 5.2.1 lets two devices write parts that do not overlap at once. */
TestCall(shared, parts_of_one_buffer_are_written_at_once_on_two_devices_that_copy,
         both_write("two", 1000), .timeout = 300);
TestCall(shared, parts_of_one_buffer_are_written_at_once_beside_a_device_that_works_in_place,
         both_write("three", 4000), .timeout = 300);

/* What cannot be brought where a deferred command needs it ends that command, and nothing waits for
 * it for ever. */
Test(shared, a_held_command_ends_when_its_object_cannot_be_made, .timeout = 60)
{
    static struct two t;
    cl_uchar bytes[64];
    cl_event event;
    cl_int status = 1;
    two_open(&t, config, "two");
    cl_event user = MADE(clCreateUserEvent, t.context);
    cl_mem buffer = engine_buffer(t.context, CL_MEM_COPY_HOST_PTR, BYTES, t.host);
    OK(clEnqueueCopyBuffer(t.queues[1], buffer, buffer, 0, 64, 64, 1, &user, &event));
    cr_assert_eq(emu_shared_arm(t.rig.emu, "two", 1, "clCreateBuffer", CL_OUT_OF_HOST_MEMORY), 0);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_OUT_OF_HOST_MEMORY);
    engine_read_there(t.queues[1], buffer, 0, 64, bytes);
    cr_assert_arr_eq(bytes, t.want, 64);
    RELEASE(event, user, buffer);
    two_close(&t);
}
