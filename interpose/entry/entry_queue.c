#include "interpose/entry/entry.h"
#include "state/command/command.h"

#define HOST_PROPERTIES   (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)
#define DEVICE_PROPERTIES (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT)

/* Out-of-order queues and profiling are offered or not; queues on the device never are. */
static cl_int entry_queue_check_properties(cl_command_queue_properties properties)
{
    cl_command_queue_properties offered =
        devinfo_scalar(&the_present.device, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, HOST_PROPERTIES);
    if (properties & ~(cl_command_queue_properties)(HOST_PROPERTIES | DEVICE_PROPERTIES))
        return CL_INVALID_VALUE;
    return properties & ~offered ? CL_INVALID_QUEUE_PROPERTIES : CL_SUCCESS;
}

/* 5.1, the table of properties: which of those of queues on the device go with which. */
static bool entry_queue_are_for_device(cl_command_queue_properties properties, bool has_size)
{
    if (properties & CL_QUEUE_ON_DEVICE)
        return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    return !has_size && !(properties & CL_QUEUE_ON_DEVICE_DEFAULT);
}

static bool entry_queue_is_hint(cl_queue_properties value)
{
    return value == CL_QUEUE_PRIORITY_LOW_KHR || value == CL_QUEUE_PRIORITY_MED_KHR ||
           value == CL_QUEUE_PRIORITY_HIGH_KHR;
}

/* 5.1: the list of clCreateCommandQueueWithProperties, each property once. */
static cl_int entry_queue_read_properties(const cl_queue_properties *list,
                                          cl_command_queue_properties *ret_properties,
                                          size_t *ret_count)
{
    enum { SIZE_SEEN = 8 };
    cl_command_queue_properties properties = 0;
    unsigned seen = 0;
    size_t at = 0;
    for (; list && list[at] != 0; at += 2) {
        unsigned bit;
        switch (list[at]) {
        case CL_QUEUE_PROPERTIES:
            bit = 1;
            properties = list[at + 1];
            break;
        case CL_QUEUE_PRIORITY_KHR:
            bit = 2;
            if (!entry_queue_is_hint(list[at + 1]) ||
                !devinfo_has_extension(&the_present.device, "cl_khr_priority_hints"))
                return CL_INVALID_VALUE;
            break;
        case CL_QUEUE_THROTTLE_KHR:
            bit = 4; /* its three values are those of the priorities */
            if (!entry_queue_is_hint(list[at + 1]) ||
                !devinfo_has_extension(&the_present.device, "cl_khr_throttle_hints"))
                return CL_INVALID_VALUE;
            break;
        case CL_QUEUE_SIZE:
            bit = SIZE_SEEN;
            break;
        default:
            return CL_INVALID_VALUE;
        }
        if (seen & bit)
            return CL_INVALID_VALUE;
        seen |= bit;
    }
    if (!entry_queue_are_for_device(properties, seen & SIZE_SEEN))
        return CL_INVALID_VALUE;
    cl_int error = entry_queue_check_properties(properties);
    if (error != CL_SUCCESS)
        return error;
    *ret_properties = properties;
    *ret_count = list ? at + 1 : 0;
    return CL_SUCCESS;
}

static cl_int entry_queue_check_owners(cl_context context, cl_device_id device)
{
    const struct context *c = context_get(context);
    const struct vdev *vdev = vdev_get(device);
    if (!c)
        return CL_INVALID_CONTEXT;
    return vdev && context_vdev_index(c, vdev) >= 0 ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int *errcode_ret)
{
    struct queue *queue = NULL;
    cl_int error = entry_queue_check_owners(context, device);
    if (error == CL_SUCCESS) /* Those of queues on the device are the other call's. */
        error = properties & DEVICE_PROPERTIES ? CL_INVALID_VALUE
                                               : entry_queue_check_properties(properties);
    if (error == CL_SUCCESS)
        error = queue_create(context_get(context), vdev_get(device), properties, NULL, 0, &queue);
    return created(queue, error, errcode_ret);
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_queue_properties *properties,
                                                    cl_int *errcode_ret)
{
    struct queue *queue = NULL;
    cl_command_queue_properties bits = 0;
    size_t count = 0;
    cl_int error = entry_queue_check_owners(context, device);
    if (error == CL_SUCCESS)
        error = entry_queue_read_properties(properties, &bits, &count);
    if (error == CL_SUCCESS)
        error =
            queue_create(context_get(context), vdev_get(device), bits, properties, count, &queue);
    return created(queue, error, errcode_ret);
}

/* 5.1: releasing flushes, so that what was enqueued ends without anyone waiting for it. */
cl_int clReleaseCommandQueue(cl_command_queue command_queue)
{
    struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    cl_int error = queue_flush(queue);
    (void)error; /* the reference goes whatever the device says */
    return object_release(queue) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int clFlush(cl_command_queue command_queue)
{
    struct queue *queue = queue_get(command_queue);
    return queue ? queue_flush(queue) : CL_INVALID_COMMAND_QUEUE;
}

cl_int clFinish(cl_command_queue command_queue)
{
    struct queue *queue = queue_get(command_queue);
    return queue ? queue_finish(queue) : CL_INVALID_COMMAND_QUEUE;
}
