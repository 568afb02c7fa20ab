#include <pthread.h>
#include <unistd.h>

#include "state/driver/driver.h"
#include "tests/support/calls.h"

/* Threads that call a driver without locks at once, each on a queue of its own and all on one
 * buffer: the driver counts who holds that, and keeps what it holds for commands in tables of its
 * process. */

#define THREADS 3
#define ROUNDS  40000
#define SIZE    256

struct shared {
    const struct device *device;
    cl_context context;
    cl_mem buffer; /**< A part of SIZE for each thread. */
};
struct caller {
    struct shared *shared;
    size_t number;
    int wrong;
};

static void *call(void *data)
{
    struct caller *caller = data;
    struct shared *s = caller->shared;
    const cl_icd_dispatch *cl = s->device->cl;
    cl_int error;
    cl_command_queue queue = cl->clCreateCommandQueue(s->context, s->device->id, 0, &error);
    for (unsigned round = 0; round < ROUNDS && error == CL_SUCCESS; round++) {
        unsigned char got[SIZE] = {0}, pattern = (unsigned char)(round + caller->number);
        cl_event filled, read;
        error = cl->clEnqueueFillBuffer(queue, s->buffer, &pattern, 1, caller->number * SIZE, SIZE,
                                        0, NULL, &filled);
        if (error != CL_SUCCESS)
            break;
        error = cl->clEnqueueReadBuffer(queue, s->buffer, CL_FALSE, caller->number * SIZE, SIZE,
                                        got, 1, &filled, &read);
        if (error != CL_SUCCESS)
            break;
        error = cl->clWaitForEvents(1, &read);
        cl->clReleaseEvent(filled);
        cl->clReleaseEvent(read);
        for (size_t i = 0; i < SIZE; i++)
            caller->wrong += got[i] != pattern;
    }
    caller->wrong += error != CL_SUCCESS;
    cl->clReleaseCommandQueue(queue);
    return NULL;
}

static void open_oclgrind(struct shared *s)
{
    struct device **devices;
    size_t count;
    cr_assert_eq(driver_list_library(OCLGRIND, &devices, &count), 0);
    cr_assert_gt(count, 0);
    s->device = devices[0];
    free(devices);
    s->context = MADE(s->device->cl->clCreateContext, NULL, 1, &s->device->id, NULL, NULL);
    s->buffer =
        MADE(s->device->cl->clCreateBuffer, s->context, CL_MEM_READ_WRITE, THREADS * SIZE, NULL);
}

Test(locked, calls_of_several_threads_are_made_one_at_a_time, .timeout = 120)
{
    struct shared s;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    cl_uint references = 0;

    open_oclgrind(&s);
    for (size_t i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){&s, i, 0};
        cr_assert_eq(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(callers[i].wrong, 0);
    }
    s.device->cl->clGetMemObjectInfo(s.buffer, CL_MEM_REFERENCE_COUNT, sizeof(references),
                                     &references, NULL);
    cr_expect_eq(references, 1);
    s.device->cl->clReleaseMemObject(s.buffer);
    s.device->cl->clReleaseContext(s.context);
}

static void CL_CALLBACK ask(cl_event event, cl_int status, void *data)
{
    const struct device *device = data;
    cl_uint references;
    (void)status;
    device->cl->clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof(references), &references,
                               NULL);
}

Test(locked, what_the_driver_calls_may_call_it, .timeout = 60)
{
    struct shared s;
    cl_int error;
    cl_event event;
    unsigned zero = 0;

    open_oclgrind(&s);
    cl_command_queue queue = s.device->cl->clCreateCommandQueue(s.context, s.device->id, 0, &error);
    OK(s.device->cl->clEnqueueFillBuffer(queue, s.buffer, &zero, sizeof(zero), 0, SIZE, 0, NULL,
                                         &event));
    OK(s.device->cl->clSetEventCallback(event, CL_COMPLETE, ask, (void *)s.device));
    cr_expect_eq(s.device->cl->clWaitForEvents(1, &event), CL_SUCCESS);
    s.device->cl->clReleaseEvent(event);
    s.device->cl->clReleaseCommandQueue(queue);
    s.device->cl->clReleaseMemObject(s.buffer);
    s.device->cl->clReleaseContext(s.context);
}
