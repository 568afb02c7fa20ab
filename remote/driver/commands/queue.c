#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#include <stdlib.h>

#include "remote/driver/commands/command.h"

struct queue *queue_get(cl_command_queue queue)
{
    return handle_get(queue, ID_QUEUE);
}

static void queue_finish(struct object *object)
{
    struct queue *queue = container_of(object, struct queue, base);
    (void)POST(object->client, release, {.object = object->id});
    free(queue->list);
    pthread_mutex_destroy(&queue->lock);
    handle_unuse(queue->context);
}

static const struct object_class queue_class = {sizeof(struct queue), queue_finish};

static cl_int queue_create_queue(cl_context context, cl_device_id device,
                                 cl_command_queue_properties properties,
                                 const cl_queue_properties *list, struct queue **ret_queue)
{
    const cl_command_queue_properties known =
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    struct context *c = context_get(context);
    struct device_object *d = device_get(device);
    if (!c)
        return CL_INVALID_CONTEXT;
    if (!context_has(c, d))
        return CL_INVALID_DEVICE;
    if (properties & ~(known | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT))
        return CL_INVALID_VALUE;
    if (properties & ~(known & device_number(d, CL_DEVICE_QUEUE_PROPERTIES)))
        return CL_INVALID_QUEUE_PROPERTIES;
    struct queue *queue = handle_create(c->base.client, ID_QUEUE, &queue_class);
    if (!queue)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&queue->lock, &again);
    pthread_mutexattr_destroy(&again);
    queue->context = c;
    handle_use(c);
    queue->device = d;
    queue->properties = properties;
    queue->list = list_copy(list, sizeof(*list), &queue->list_size);
    cl_int error = POST(c->base.client, create_queue,
                        {.queue = handle_id(queue),
                         .context = handle_id(c),
                         .device = handle_id(d),
                         .properties = properties});
    if (error)
        handle_release(queue);
    else
        *ret_queue = queue;
    return error;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int *errcode_ret)
{
    struct queue *queue = NULL;
    cl_int error = queue_create_queue(context, device, properties, NULL, &queue);
    return created(queue, error, errcode_ret);
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_queue_properties *properties,
                                                    cl_int *errcode_ret)
{
    struct queue *queue = NULL;
    cl_command_queue_properties wanted = 0;
    cl_int error = CL_SUCCESS;
    for (const cl_queue_properties *at = properties; at && at[0]; at += 2)
        if (at[0] == CL_QUEUE_PROPERTIES)
            wanted = at[1];
        else
            error = CL_INVALID_VALUE; /* Sizes are of queues on devices, which are not offered. */
    if (!context_get(context))
        error = CL_INVALID_CONTEXT;
    else if (!context_has(context_get(context), device_get(device)))
        error = CL_INVALID_DEVICE;
    if (error == CL_SUCCESS)
        error = queue_create_queue(context, device, wanted, properties, &queue);
    return created(queue, error, errcode_ret);
}

cl_int clSetCommandQueueProperty(cl_command_queue command_queue,
                                 cl_command_queue_properties properties, cl_bool enable,
                                 cl_command_queue_properties *old_properties)
{
    (void)properties, (void)enable, (void)old_properties;
    return queue_get(command_queue) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

cl_int clSetDefaultDeviceCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue command_queue)
{
    (void)command_queue;
    if (!context_get(context))
        return CL_INVALID_CONTEXT;
    return device_get(device) ? CL_INVALID_OPERATION : CL_INVALID_DEVICE;
}

cl_int clGetCommandQueueInfo(cl_command_queue command_queue, cl_command_queue_info param_name,
                             size_t param_value_size, void *param_value,
                             size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    const struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    switch (param_name) {
    case CL_QUEUE_CONTEXT:
        return request_handle(&request, queue->context);
    case CL_QUEUE_DEVICE:
        return request_handle(&request, queue->device);
    case CL_QUEUE_REFERENCE_COUNT:
        return request_uint(&request, handle_count(queue));
    case CL_QUEUE_PROPERTIES:
        return request_ulong(&request, queue->properties);
    case CL_QUEUE_PROPERTIES_ARRAY:
        return request_bytes(&request, queue->list, queue->list_size);
    case CL_QUEUE_DEVICE_DEFAULT:
        return request_handle(&request, NULL);
    case CL_QUEUE_SIZE:
        return CL_INVALID_COMMAND_QUEUE; /* Of queues on devices. */
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clFlush(cl_command_queue command_queue)
{
    const struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    client_flush(queue->base.client);
    return client_state(queue->base.client);
}

/* The client was told of the end of everything that it gave. */
static bool queue_is_idle(struct queue *queue)
{
    struct client *client = queue->base.client;
    pthread_mutex_lock(&queue->lock);
    pthread_mutex_lock(&client->lock);
    bool idle = !queue->pending && queue->covered >= queue->untold;
    pthread_mutex_unlock(&client->lock);
    pthread_mutex_unlock(&queue->lock);
    return idle;
}

cl_int clFinish(cl_command_queue command_queue)
{
    struct command command;
    struct queue *queue = queue_get(command_queue);
    if (queue && client_state(queue->base.client) == CL_SUCCESS && queue_is_idle(queue)) {
        client_flush(queue->base.client);
        return atomic_exchange(&queue->failed, CL_SUCCESS);
    }
    cl_int error =
        command_begin(&command, command_queue, CL_COMMAND_MARKER, true, true, 0, NULL, NULL);
    if (error)
        return error;
    error = POST(command.queue->base.client, marker, {.command = command.head});
    return command_end(&command, error);
}

void client_failed(struct client *client, const struct msg_failed *message)
{
    struct queue *queue = handle_of_id(client, message->queue);
    if (!queue)
        return;
    cl_int none = CL_SUCCESS;
    atomic_compare_exchange_strong(&queue->failed, &none, message->error);
    handle_unuse_later(queue);
}

/* ---- markers and barriers ---- */

static cl_int queue_enqueue_point(cl_command_queue queue, cl_command_type type, cl_uint count,
                                  const cl_event *waits, cl_event *event)
{
    struct command command;
    bool marker = type == CL_COMMAND_MARKER;
    cl_int error = command_begin(&command, queue, type, false, count == 0, count, waits, event);
    if (error)
        return error;
    struct client *client = command.queue->base.client;
    error = marker ? POST(client, marker, {.command = command.head})
                   : POST(client, barrier, {.command = command.head});
    return command_end(&command, error);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                   const cl_event *event_wait_list, cl_event *event)
{
    return queue_enqueue_point(command_queue, CL_COMMAND_MARKER, num_events_in_wait_list,
                               event_wait_list, event);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                    const cl_event *event_wait_list, cl_event *event)
{
    return queue_enqueue_point(command_queue, CL_COMMAND_BARRIER, num_events_in_wait_list,
                               event_wait_list, event);
}

cl_int clEnqueueMarker(cl_command_queue command_queue, cl_event *event)
{
    if (!queue_get(command_queue))
        return CL_INVALID_COMMAND_QUEUE;
    return event ? queue_enqueue_point(command_queue, CL_COMMAND_MARKER, 0, NULL, event)
                 : CL_INVALID_VALUE;
}

cl_int clEnqueueBarrier(cl_command_queue command_queue)
{
    return queue_enqueue_point(command_queue, CL_COMMAND_BARRIER, 0, NULL, NULL);
}

cl_int clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint num_events,
                              const cl_event *event_list)
{
    if (!queue_get(command_queue))
        return CL_INVALID_COMMAND_QUEUE;
    if (num_events == 0 || !event_list)
        return CL_INVALID_VALUE;
    cl_int error =
        queue_enqueue_point(command_queue, CL_COMMAND_BARRIER, num_events, event_list, NULL);
    return error == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : error;
}
