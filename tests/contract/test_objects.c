#define CL_USE_DEPRECATED_OPENCL_1_0_APIS

#include "tests/contract/samples.h"
#include "tests/support/calls.h"

/* How devices, contexts, queues and events are made, and what they answer (4.2, 4.4, 5.1, 5.11 to
 * 5.15). */

TestSuite(objects, .init = samples_begin, .fini = samples_end, .timeout = 60);

#define GET(what, of, name, value) clGet##what##Info(of, name, sizeof(value), &(value), NULL)
#define SIZED(what, of, name, value, size)                                                         \
    clGet##what##Info(of, name, sizeof(value), &(value), &(size))

Test(objects, devices_are_found_by_their_type)
{
    static const cl_device_type kinds[] = {CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU,
                                           CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CUSTOM};
    cl_device_type type = 0;
    cl_platform_id platform = NULL;
    cl_device_id device = NULL;
    cl_uint count = 0;
    size_t size = 0;
    OK(SIZED(Device, s.device, CL_DEVICE_PLATFORM, platform, size));
    cr_expect(size == sizeof(platform) && platform == s.platform);
    OK(GET(Device, s.device, CL_DEVICE_TYPE, type));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count));
    cr_expect_geq(count, 1);
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 0, NULL, &count));
    cr_expect_eq(count, 1);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        cl_int error = clGetDeviceIDs(platform, kinds[i], 1, &device, &count);
        cr_expect(error == CL_SUCCESS || (error == CL_DEVICE_NOT_FOUND && !(type & kinds[i])));
    }
    expect_error(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 0, &device, NULL),
                 CL_INVALID_VALUE);
    expect_error(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 1, NULL, NULL), CL_INVALID_VALUE);
    expect_error(clRetainDevice(s.device), CL_SUCCESS);
    expect_error(clReleaseDevice(s.device), CL_SUCCESS);
    expect_error(clRetainDevice(NULL), CL_INVALID_DEVICE);
    expect_error(clReleaseDevice(NULL), CL_INVALID_DEVICE);
}

static cl_int made(const cl_context_properties *properties, cl_uint count,
                   const cl_device_id *devices, void *data)
{
    cl_int error = 1;
    cl_context context = clCreateContext(properties, count, devices, NULL, data, &error);
    cr_expect_eq(context != NULL, error == CL_SUCCESS);
    if (context)
        OK(clReleaseContext(context));
    return error;
}

static cl_int made_of(const cl_context_properties *properties, cl_device_type type, void *data)
{
    cl_int error = 1;
    cl_context context = clCreateContextFromType(properties, type, NULL, data, &error);
    cr_expect_eq(context != NULL, error == CL_SUCCESS);
    if (context)
        OK(clReleaseContext(context));
    return error;
}

Test(objects, contexts_take_properties_that_there_are)
{
    enum { PLATFORM = CL_CONTEXT_PLATFORM, SYNC = CL_CONTEXT_INTEROP_USER_SYNC };
    const cl_context_properties p = (cl_context_properties)s.platform;
    const struct {
        cl_context_properties list[8];
        cl_int error;
    } cases[] = {
        {{0}, CL_SUCCESS},
        {{SYNC, CL_TRUE, PLATFORM, p, 0}, CL_SUCCESS},
        {{PLATFORM, 0, 0}, CL_INVALID_PLATFORM},
        {{PLATFORM, p, 0x7777, 0, 0}, CL_INVALID_PROPERTY},
        {{PLATFORM, p, PLATFORM, p, 0}, CL_INVALID_PROPERTY},
        {{PLATFORM, p, SYNC, CL_FALSE, SYNC, CL_FALSE, 0}, CL_INVALID_PROPERTY},
    };
    expect_error(made(NULL, 1, &s.device, NULL), CL_SUCCESS);
    expect_error(made_of(cases[1].list, CL_DEVICE_TYPE_DEFAULT, NULL), CL_SUCCESS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cl_int error = made(cases[i].list, 1, &s.device, NULL);
        cr_expect_eq(error, cases[i].error, "list %zu gave %d", i, error);
        /* Without a platform it is for the implementation to say which is meant. */
        if (i == 0)
            continue;
        error = made_of(cases[i].list, CL_DEVICE_TYPE_ALL, NULL);
        cr_expect_eq(error, cases[i].error, "list %zu gave %d by type", i, error);
    }
}

Test(objects, contexts_are_made_of_devices)
{
    cl_device_id both[] = {s.device, NULL};
    int data = 0;
    expect_error(made(NULL, 1, NULL, NULL), CL_INVALID_VALUE);
    expect_error(made(NULL, 0, &s.device, NULL), CL_INVALID_VALUE);
    expect_error(made(NULL, 1, &s.device, &data), CL_INVALID_VALUE);
    expect_error(made(NULL, 2, both, NULL), CL_INVALID_DEVICE);
    expect_error(made_of(NULL, CL_DEVICE_TYPE_ALL, &data), CL_INVALID_VALUE);
    cr_expect_null(clCreateContext(NULL, 0, NULL, NULL, NULL, NULL));
}

/* What POCL takes, or counts twice. */
Test(objects, odd_contexts_are_told_from_wrong_ones)
{
    const cl_context_properties sync[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)s.platform,
                                          CL_CONTEXT_INTEROP_USER_SYNC, -1, 0};
    const cl_context_properties graphics[] = {CL_GL_CONTEXT_KHR, 1, 0};
    cl_device_id same[] = {s.device, s.device};
    cl_uint count = 0;
    expect_error(made(graphics, 1, &s.device, NULL), CL_INVALID_PROPERTY);
    expect_error(made(sync, 1, &s.device, NULL), CL_INVALID_PROPERTY);
    expect_error(made_of(sync, CL_DEVICE_TYPE_ALL, NULL), CL_INVALID_PROPERTY);
    expect_error(made_of(NULL, 0, NULL), CL_INVALID_DEVICE_TYPE);
    /* 4.4: a device that is named twice is there once. */
    cl_context context = MADE(clCreateContext, NULL, 2, same, NULL, NULL);
    OK(GET(Context, context, CL_CONTEXT_NUM_DEVICES, count));
    cr_expect_eq(count, 1);
    OK(clReleaseContext(context));
}

Test(objects, contexts_answer_what_they_are)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)s.platform, 0};
    cl_context_properties told[8] = {0};
    cl_device_id devices[4] = {0};
    cl_uint number = 0;
    size_t size = 9;
    cl_context context = MADE(clCreateContext, properties, 1, &s.device, NULL, NULL);
    OK(SIZED(Context, context, CL_CONTEXT_PROPERTIES, told, size));
    cr_expect(size == sizeof(properties) && memcmp(told, properties, size) == 0);
    OK(SIZED(Context, context, CL_CONTEXT_DEVICES, devices, size));
    cr_expect(size == sizeof(devices[0]) && devices[0] == s.device);
    OK(SIZED(Context, context, CL_CONTEXT_NUM_DEVICES, number, size));
    cr_expect(size == sizeof(number) && number == 1);
    OK(clRetainContext(context));
    OK(GET(Context, context, CL_CONTEXT_REFERENCE_COUNT, number));
    cr_expect_eq(number, 2);
    OK(clReleaseContext(context));
    OK(GET(Context, context, CL_CONTEXT_REFERENCE_COUNT, number));
    cr_expect_eq(number, 1);
    expect_error(clGetContextInfo(NULL, CL_CONTEXT_NUM_DEVICES, 0, NULL, NULL), CL_INVALID_CONTEXT);
    expect_error(clRetainContext(NULL), CL_INVALID_CONTEXT);
    expect_error(clReleaseContext(NULL), CL_INVALID_CONTEXT);
    RELEASE(context);
    /* Made without a list. */
    memset(told, 0xff, sizeof(told));
    OK(SIZED(Context, s.context, CL_CONTEXT_PROPERTIES, told, size));
    cr_expect(size == 0 || (size == sizeof(told[0]) && told[0] == 0));
}

Test(objects, queues_take_the_properties_of_5_1)
{
    enum { OUT = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, TIMES = CL_QUEUE_PROFILING_ENABLE };
    enum { DEVICE = CL_QUEUE_ON_DEVICE, DEFAULT = CL_QUEUE_ON_DEVICE_DEFAULT };
    static const struct {
        cl_queue_properties list[8];
        size_t count;
        cl_int error;
    } cases[] = {
        {{0}, 1, CL_SUCCESS},
        {{CL_QUEUE_PROPERTIES, OUT | TIMES, 0}, 3, CL_SUCCESS},
        {{CL_QUEUE_PROPERTIES, TIMES, 0}, 3, CL_SUCCESS},
        {{CL_QUEUE_PROPERTIES, 0, 0}, 3, CL_SUCCESS},
        {{CL_QUEUE_PROPERTIES, 1 << 20, 0}, 0, CL_INVALID_VALUE},
        {{0x7777, 1, 0}, 0, CL_INVALID_VALUE},
        {{CL_QUEUE_PROPERTIES, 0, CL_QUEUE_PROPERTIES, 0, 0}, 0, CL_INVALID_VALUE},
        {{CL_QUEUE_SIZE, 4096, 0}, 0, CL_INVALID_VALUE},
        {{CL_QUEUE_PROPERTIES, DEVICE, 0}, 0, CL_INVALID_VALUE},
        {{CL_QUEUE_PROPERTIES, DEFAULT | OUT, 0}, 0, CL_INVALID_VALUE},
        {{CL_QUEUE_PROPERTIES, DEVICE | OUT, 0}, 0, CL_INVALID_QUEUE_PROPERTIES},
        {{CL_QUEUE_PROPERTIES, DEVICE | DEFAULT | OUT, CL_QUEUE_SIZE, 4096, 0},
         0,
         CL_INVALID_QUEUE_PROPERTIES},
    };
    cl_int error;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cl_queue_properties list[8];
        size_t size = 1;
        cl_command_queue queue =
            clCreateCommandQueueWithProperties(s.context, s.device, cases[i].list, &error);
        cr_expect_eq(error, cases[i].error, "list %zu gave %d", i, error);
        cr_expect_eq(queue != NULL, error == CL_SUCCESS);
        if (!queue)
            continue;
        OK(SIZED(CommandQueue, queue, CL_QUEUE_PROPERTIES_ARRAY, list, size));
        cr_expect_eq(size, cases[i].count * sizeof(list[0]), "list %zu", i);
        cr_expect_arr_eq(list, cases[i].list, size, "list %zu", i);
        OK(clReleaseCommandQueue(queue));
    }
    /* The older call has none for queues on the device. */
    cr_expect_null(clCreateCommandQueue(s.context, s.device, DEVICE | OUT, &error));
    cr_expect_eq(error, CL_INVALID_VALUE);
}

Test(objects, queues_answer_what_they_are)
{
    cl_context context;
    cl_device_id device;
    cl_uint number;
    cl_command_queue_properties properties;
    cl_command_queue on_device = (cl_command_queue)&s;
    size_t size = 1;
    cl_command_queue q = MADE(clCreateCommandQueue, s.context, s.device, CL_QUEUE_PROFILING_ENABLE);
    OK(GET(CommandQueue, q, CL_QUEUE_CONTEXT, context));
    cr_expect_eq(context, s.context);
    OK(GET(CommandQueue, q, CL_QUEUE_DEVICE, device));
    cr_expect_eq(device, s.device);
    OK(GET(CommandQueue, q, CL_QUEUE_PROPERTIES, properties));
    cr_expect_eq(properties, CL_QUEUE_PROFILING_ENABLE);
    OK(clRetainCommandQueue(q));
    OK(GET(CommandQueue, q, CL_QUEUE_REFERENCE_COUNT, number));
    cr_expect_eq(number, 2);
    OK(clReleaseCommandQueue(q));
    OK(GET(CommandQueue, q, CL_QUEUE_REFERENCE_COUNT, number));
    cr_expect_eq(number, 1);
    OK(GET(CommandQueue, q, CL_QUEUE_DEVICE_DEFAULT, on_device));
    cr_expect_null(on_device);
    OK(clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &size));
    cr_expect_eq(size, 0, "made without a list");
    expect_error(GET(CommandQueue, q, CL_QUEUE_SIZE, number), CL_INVALID_COMMAND_QUEUE);
    /* 1.1 lets devices refuse it: no device of OpenCL 1.1 or later takes it. */
    expect_error(clSetCommandQueueProperty(q, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, NULL),
                 CL_INVALID_OPERATION);
    expect_error(clFlush(NULL), CL_INVALID_COMMAND_QUEUE);
    expect_error(clFinish((cl_command_queue)s.context), CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseCommandQueue(q));
}

Test(objects, events_answer_what_they_are)
{
    const size_t one = 1;
    const cl_uint value = 3;
    cl_context context;
    cl_command_queue queue;
    cl_command_type type;
    cl_uint number;
    cl_int status;
    cl_event event;
    ARGS(s.kernel, s.buffer, value);
    OK(clEnqueueNDRangeKernel(s.queue, s.kernel, 1, NULL, &one, NULL, 1, &s.event, &event));
    OK(GET(Event, s.event, CL_EVENT_COMMAND_QUEUE, queue));
    cr_expect_null(queue);
    OK(GET(Event, s.event, CL_EVENT_CONTEXT, context));
    cr_expect_eq(context, s.context);
    OK(GET(Event, s.event, CL_EVENT_COMMAND_TYPE, type));
    cr_expect_eq(type, CL_COMMAND_USER);
    OK(GET(Event, s.event, CL_EVENT_COMMAND_EXECUTION_STATUS, status));
    cr_expect_eq(status, CL_SUBMITTED);
    OK(GET(Event, event, CL_EVENT_COMMAND_QUEUE, queue));
    cr_expect_eq(queue, s.queue);
    OK(GET(Event, event, CL_EVENT_CONTEXT, context));
    cr_expect_eq(context, s.context);
    OK(GET(Event, event, CL_EVENT_COMMAND_TYPE, type));
    cr_expect_eq(type, CL_COMMAND_NDRANGE_KERNEL);
    OK(GET(Event, event, CL_EVENT_COMMAND_EXECUTION_STATUS, status));
    cr_expect(status == CL_QUEUED || status == CL_SUBMITTED, "%d", status);
    OK(GET(Event, event, CL_EVENT_REFERENCE_COUNT, number));
    cr_expect_eq(number, 1);
    OK(clRetainEvent(event));
    OK(GET(Event, event, CL_EVENT_REFERENCE_COUNT, number));
    cr_expect_eq(number, 2);
    OK(clReleaseEvent(event));
    expect_error(clGetEventInfo(event, CL_EVENT_CONTEXT, 1, &context, NULL), CL_INVALID_VALUE);
    expect_error(clSetUserEventStatus(event, CL_COMPLETE), CL_INVALID_EVENT);
    expect_error(clSetUserEventStatus(s.event, CL_COMPLETE), CL_SUCCESS);
    expect_error(clSetUserEventStatus(s.event, CL_COMPLETE), CL_INVALID_OPERATION);
    expect_error(clSetUserEventStatus(s.event, -1), CL_INVALID_OPERATION);
    OK(clFinish(s.queue));
    OK(clReleaseEvent(event));
}

Test(objects, events_of_another_context_are_refused)
{
    cl_event made = NULL;
    cl_context other = MADE(clCreateContext, NULL, 1, &s.device, NULL, NULL);
    cl_event foreign = MADE(clCreateUserEvent, other);
    const cl_event both[] = {s.event, foreign}, junk[] = {s.event, (cl_event)s.queue};
    expect_error(clWaitForEvents(2, both), CL_INVALID_CONTEXT);
    expect_error(clWaitForEvents(0, both), CL_INVALID_VALUE);
    expect_error(clWaitForEvents(1, NULL), CL_INVALID_VALUE);
    expect_error(clWaitForEvents(2, junk), CL_INVALID_EVENT);
    expect_error(clEnqueueWaitForEvents(s.queue, 1, &foreign), CL_INVALID_CONTEXT);
    expect_error(clEnqueueWaitForEvents(s.queue, 2, junk), CL_INVALID_EVENT);
    expect_error(clEnqueueMarkerWithWaitList(s.queue, 2, both, &made), CL_INVALID_CONTEXT);
    expect_error(clEnqueueBarrierWithWaitList(s.queue, 2, junk, &made), CL_INVALID_EVENT_WAIT_LIST);
    expect_error(clEnqueueBarrierWithWaitList(s.queue, 0, both, &made), CL_INVALID_EVENT_WAIT_LIST);
    expect_error(clEnqueueBarrierWithWaitList(s.queue, 1, NULL, &made), CL_INVALID_EVENT_WAIT_LIST);
    cr_expect_null(made);
    RELEASE(foreign, other);
}
