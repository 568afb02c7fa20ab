#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#include "tests/support/cases.h"
#include <string.h>

#include "tests/state/command/test_events.h"

/* What the calls of queues and events answer and refuse (5.1, 5.11 to 5.15). */

#define expect_error(call, error)                                                                  \
    do {                                                                                           \
        cl_int got_ = (call);                                                                      \
        cr_expect_eq(got_, error, "%s gave %d", #call, got_);                                      \
    } while (0)

#define LIST_MAX 8

static cl_int create(struct events_scene *s, const cl_queue_properties *list,
                     cl_command_queue *ret_queue)
{
    cl_int error = 1;
    *ret_queue =
        clCreateCommandQueueWithProperties(s->program.context, s->rig.device, list, &error);
    cr_assert_eq(*ret_queue != NULL, error == CL_SUCCESS);
    return error;
}

Test(queue_calls, properties_are_checked_as_5_1_says, .timeout = 60)
{
    enum { OUT = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, TIMES = CL_QUEUE_PROFILING_ENABLE };
    enum { DEVICE = CL_QUEUE_ON_DEVICE, DEFAULT = CL_QUEUE_ON_DEVICE_DEFAULT };
    static const struct {
        cl_queue_properties list[LIST_MAX];
        size_t count;
        cl_int error;
    } tried[] = {
        {{0}, 1, CL_SUCCESS},
        {{CL_QUEUE_PROPERTIES, OUT | TIMES, 0}, 3, CL_SUCCESS},
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
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    for (size_t i = 0; i < ARRAY_SIZE(tried); i++) {
        cl_command_queue queue;
        cl_int error = create(&s, tried[i].list, &queue);
        cr_expect_eq(error, tried[i].error, "list %zu gave %d", i, error);
        if (!queue)
            continue;
        cl_queue_properties list[LIST_MAX];
        size_t size = 1;
        OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof(list), list, &size));
        cr_expect_eq(size, tried[i].count * sizeof(list[0]), "list %zu", i);
        cr_expect_arr_eq(list, tried[i].list, size, "list %zu", i);
        OK(clReleaseCommandQueue(queue));
    }
    /* The older call has none for queues on the device. */
    cl_int error = CL_SUCCESS;
    cr_expect_null(clCreateCommandQueue(s.program.context, s.rig.device, DEVICE | OUT, &error));
    cr_expect_eq(error, CL_INVALID_VALUE);
}

/* 5.2.2 and 5.8 before 2.1. */
Test(queue_calls, up_to_2_0_there_has_to_be_something_to_do, .timeout = 60)
{
    char bytes[16] = {0};
    const size_t zero = 0;
    struct events_scene s;
    events_open(&s, "[one] name=one base=1 version=1.2", 0);
    cl_command_queue q = s.program.queue;
    cl_mem a = s.buffer;
    cr_expect_eq(clEnqueueReadBuffer(q, a, CL_TRUE, 0, 0, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueWriteBuffer(q, a, CL_TRUE, 0, 0, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueCopyBuffer(q, a, a, 0, 16, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueNDRangeKernel(q, s.add, 1, NULL, &zero, NULL, 0, NULL, NULL),
                 CL_INVALID_GLOBAL_WORK_SIZE);
    /* To fill nothing was never an error. */
    OK(clEnqueueFillBuffer(q, a, bytes, 8, 0, 0, 0, NULL, NULL));
    OK(clFinish(q));
}

Test(queue_calls, queries_answer_and_refuse, .timeout = 60)
{
    struct events_scene s = {0};
    cl_context context;
    cl_device_id device;
    cl_uint refs;
    cl_command_queue_properties properties;
    cl_command_queue on_device = (cl_command_queue)&s;
    size_t size = 1;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    cl_command_queue q = s.program.queue;
#define GET(name, value) clGetCommandQueueInfo(q, name, sizeof(value), &value, &size)
    OK(GET(CL_QUEUE_CONTEXT, context));
    cr_expect_eq(context, s.program.context);
    OK(GET(CL_QUEUE_DEVICE, device));
    cr_expect_eq(device, s.rig.device);
    OK(GET(CL_QUEUE_PROPERTIES, properties));
    cr_expect_eq(properties, CL_QUEUE_PROFILING_ENABLE);
    OK(clRetainCommandQueue(q));
    OK(GET(CL_QUEUE_REFERENCE_COUNT, refs));
    cr_expect_eq(refs, 2);
    OK(clReleaseCommandQueue(q));
    OK(GET(CL_QUEUE_REFERENCE_COUNT, refs));
    cr_expect_eq(refs, 1);
    OK(GET(CL_QUEUE_DEVICE_DEFAULT, on_device));
    cr_expect_null(on_device);
    OK(clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &size));
    cr_expect_eq(size, 0, "made without a list");
    expect_error(GET(CL_QUEUE_SIZE, refs), CL_INVALID_COMMAND_QUEUE);
    expect_error(clGetCommandQueueInfo(q, CL_QUEUE_CONTEXT, 1, &context, NULL), CL_INVALID_VALUE);
    expect_error(GET(0x7777, refs), CL_INVALID_VALUE);
    /* 1.1 lets devices refuse it: no device of OpenCL 1.1 or later takes it. */
    expect_error(clSetCommandQueueProperty(q, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, NULL),
                 CL_INVALID_OPERATION);
    expect_error(clFlush(NULL), CL_INVALID_COMMAND_QUEUE);
    expect_error(clFinish((cl_command_queue)s.program.context), CL_INVALID_COMMAND_QUEUE);
#undef GET
}

Test(event_calls, queries_answer_and_refuse, .timeout = 60)
{
    struct events_scene s;
    cl_context context;
    cl_command_queue queue;
    cl_command_type type;
    cl_uint refs;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_event user = events_user(&s), event = events_add(&s, s.program.queue, 1, &user);
#define GET(of, name, value) clGetEventInfo(of, name, sizeof(value), &value, NULL)
    for (int moved = 0; moved < 2; moved++) {
        OK(GET(user, CL_EVENT_COMMAND_QUEUE, queue));
        cr_expect_null(queue);
        OK(GET(user, CL_EVENT_CONTEXT, context));
        cr_expect_eq(context, s.program.context);
        OK(GET(user, CL_EVENT_COMMAND_TYPE, type));
        cr_expect_eq(type, CL_COMMAND_USER);
        OK(GET(event, CL_EVENT_COMMAND_QUEUE, queue));
        cr_expect_eq(queue, s.program.queue);
        OK(GET(event, CL_EVENT_CONTEXT, context));
        cr_expect_eq(context, s.program.context);
        OK(GET(event, CL_EVENT_COMMAND_TYPE, type));
        cr_expect_eq(type, CL_COMMAND_NDRANGE_KERNEL);
        OK(GET(event, CL_EVENT_REFERENCE_COUNT, refs));
        cr_expect_eq(refs, 1);
        OK(clRetainEvent(user));
        OK(GET(user, CL_EVENT_REFERENCE_COUNT, refs));
        cr_expect_eq(refs, 2);
        OK(clReleaseEvent(user));
        cr_expect_eq(events_status(user), CL_SUBMITTED);
        cr_expect_eq(events_status(event), CL_QUEUED);
        engine_rig_moves(&s.rig, "two");
        engine_rig_moves(&s.rig, "one");
    }
    expect_error(GET(event, 0x7777, refs), CL_INVALID_VALUE);
    expect_error(clGetEventInfo(event, CL_EVENT_CONTEXT, 1, &context, NULL), CL_INVALID_VALUE);
    expect_error(clSetUserEventStatus(event, CL_COMPLETE), CL_INVALID_EVENT);
    expect_error(clSetUserEventStatus(user, CL_RUNNING), CL_INVALID_VALUE);
    expect_error(clSetUserEventStatus(user, CL_COMPLETE), CL_SUCCESS);
    expect_error(clSetUserEventStatus(user, CL_COMPLETE), CL_INVALID_OPERATION);
    expect_error(clSetUserEventStatus(user, -1), CL_INVALID_OPERATION);
    expect_error(clSetEventCallback(event, CL_QUEUED, NULL, NULL), CL_INVALID_VALUE);
    OK(clFinish(s.program.queue));
#undef GET
}

Test(event_calls, events_of_another_context_are_refused, .timeout = 60)
{
    struct events_scene s;
    cl_int error;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_command_queue queue = s.program.queue;
    cl_context other = MADE(clCreateContext, NULL, 1, &s.rig.device, NULL, NULL);
    cl_event foreign = clCreateUserEvent(other, &error), own = events_user(&s), made = NULL;
    OK(error);
    const cl_event both[] = {own, foreign};
    const cl_event junk[] = {own, (cl_event)queue};
    expect_error(clWaitForEvents(2, both), CL_INVALID_CONTEXT);
    expect_error(clWaitForEvents(0, both), CL_INVALID_VALUE);
    expect_error(clWaitForEvents(1, NULL), CL_INVALID_VALUE);
    expect_error(clWaitForEvents(2, junk), CL_INVALID_EVENT);
    expect_error(clEnqueueWaitForEvents(queue, 1, &foreign), CL_INVALID_CONTEXT);
    expect_error(clEnqueueWaitForEvents(queue, 2, junk), CL_INVALID_EVENT);
    expect_error(clEnqueueMarkerWithWaitList(queue, 2, both, &made), CL_INVALID_CONTEXT);
    expect_error(clEnqueueBarrierWithWaitList(queue, 2, junk, &made), CL_INVALID_EVENT_WAIT_LIST);
    expect_error(clEnqueueBarrierWithWaitList(queue, 0, both, &made), CL_INVALID_EVENT_WAIT_LIST);
    expect_error(clEnqueueBarrierWithWaitList(queue, 1, NULL, &made), CL_INVALID_EVENT_WAIT_LIST);
    cr_expect_null(made);
    RELEASE(foreign, other);
}
