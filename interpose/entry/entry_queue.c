#include "interpose/entry/entry.h"
#include "state/command/command.h"

/* The device has to be the context's, and the program was told what queues are offered. */
static cl_int entry_queue_create(struct context *context, cl_device_id device,
                                 cl_command_queue_properties bits, const cl_queue_properties *list,
                                 struct queue **ret_queue)
{
    const struct devinfo *told = &the_present.device;
    struct vdev *vdev = vdev_get(device);
    if (!vdev || context_vdev_index(context, vdev) < 0)
        return CL_INVALID_DEVICE;
    const struct queue_offer offer = {
        devinfo_scalar(told, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, UINT64_MAX),
        devinfo_has_extension(told, "cl_khr_priority_hints"),
        devinfo_has_extension(told, "cl_khr_throttle_hints"),
    };
    cl_int error = queue_properties_read(list, &offer, &bits);
    return error ? error : queue_create(context, vdev, bits, list, ret_queue);
}

cl_int queue_create_with_bits(struct context *context, cl_device_id device,
                              cl_command_queue_properties properties, struct queue **ret_queue)
{
    return entry_queue_create(context, device, properties, NULL, ret_queue);
}

cl_int queue_create_with_list(struct context *context, cl_device_id device,
                              const cl_queue_properties *properties, struct queue **ret_queue)
{
    return entry_queue_create(context, device, 0, properties, ret_queue);
}

/* 5.1: a release flushes the queue, so that its commands end even if nobody waits for them. */
cl_int clReleaseCommandQueue(cl_command_queue command_queue)
{
    struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    cl_int error = queue_flush(queue);
    (void)error; /* the reference is released even after an error */
    return object_release(queue) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}
