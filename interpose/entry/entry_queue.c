#include "interpose/entry/entry.h"
#include "state/command/command.h"

/* The device is the context's, and the program was told what queues are offered. */
static cl_int entry_queue_offer(const struct context *context, cl_device_id device,
                                struct queue_offer *ret_offer)
{
    const struct devinfo *told = &the_present.device;
    const struct vdev *vdev = vdev_get(device);
    if (!vdev || context_vdev_index(context, vdev) < 0)
        return CL_INVALID_DEVICE;
    *ret_offer = (struct queue_offer){
        devinfo_scalar(told, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, UINT64_MAX),
        devinfo_has_extension(told, "cl_khr_priority_hints"),
        devinfo_has_extension(told, "cl_khr_throttle_hints"),
    };
    return CL_SUCCESS;
}

cl_int queue_create_with_bits(struct context *context, cl_device_id device,
                              cl_command_queue_properties properties, struct queue **ret_queue)
{
    struct queue_offer offer;
    cl_int error = entry_queue_offer(context, device, &offer);
    if (error == CL_SUCCESS)
        error = queue_bits_check(properties, &offer);
    return error ? error : queue_create(context, vdev_get(device), properties, NULL, ret_queue);
}

cl_int queue_create_with_list(struct context *context, cl_device_id device,
                              const cl_queue_properties *properties, struct queue **ret_queue)
{
    struct queue_offer offer;
    cl_command_queue_properties bits = 0;
    cl_int error = entry_queue_offer(context, device, &offer);
    if (error == CL_SUCCESS)
        error = queue_properties_read(properties, &offer, &bits);
    return error ? error : queue_create(context, vdev_get(device), bits, properties, ret_queue);
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
