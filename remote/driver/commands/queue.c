#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#include <stdlib.h>

#include "remote/driver/commands/command.h"

struct queue *queue_get(cl_command_queue queue)
{
    return object_get(queue, ID_QUEUE);
}

static void queue_end(struct handle *handle)
{
    struct queue *queue = container_of(handle, struct queue, base);
    (void)POST(handle->client, release, {.object = handle->id});
    free(queue->property_list);
    pthread_mutex_destroy(&queue->lock);
    handle_unuse(queue->context);
}

static const struct handle_class queue_class = {sizeof(struct queue), queue_end};

static cl_int queue_create(struct context *c, cl_device_id device, cl_command_queue_properties bits,
                           const cl_queue_properties *list, struct queue **ret_queue)
{
    struct device_object *d = device_get(device);
    if (!context_has(c, d))
        return CL_INVALID_DEVICE;
    const struct queue_offer offer = {.properties = device_number(d, CL_DEVICE_QUEUE_PROPERTIES)};
    cl_int error = queue_properties_read(list, &offer, &bits);
    if (error)
        return error;
    struct queue *queue = handle_create(c->base.client, ID_QUEUE, &queue_class);
    if (!queue)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&queue->lock, &again);
    pthread_mutexattr_destroy(&again);
    queue->context = c;
    object_hold(c);
    queue->device = d;
    queue->properties = bits;
    queue->property_list = properties_copy(list, &queue->property_count);
    error = POST(c->base.client, create_queue,
                 {.queue = handle_id(queue),
                  .context = handle_id(c),
                  .device = handle_id(d),
                  .properties = bits});
    return created_if(queue, error, ret_queue);
}

cl_int queue_create_with_bits(struct context *context, cl_device_id device,
                              cl_command_queue_properties properties, struct queue **ret_queue)
{
    return queue_create(context, device, properties, NULL, ret_queue);
}

cl_int queue_create_with_list(struct context *context, cl_device_id device,
                              const cl_queue_properties *properties, struct queue **ret_queue)
{
    return queue_create(context, device, 0, properties, ret_queue);
}

cl_int queue_flush(struct queue *queue)
{
    client_flush(queue->base.client);
    return client_state(queue->base.client);
}

/* The server has told the end of every command of the queue. */
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

cl_int queue_finish(struct queue *queue)
{
    struct command command;
    if (client_state(queue->base.client) == CL_SUCCESS && queue_is_idle(queue)) {
        client_flush(queue->base.client);
        return atomic_exchange(&queue->failed, CL_SUCCESS);
    }
    cl_int error = command_begin(&command, (cl_command_queue)queue, CL_COMMAND_MARKER, true, true,
                                 0, NULL, NULL);
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

static cl_int queue_enqueue_point(struct queue *queue, cl_command_type type, cl_uint count,
                                  const cl_event *waits, cl_event *event)
{
    struct command command;
    bool marker = type == CL_COMMAND_MARKER;
    cl_int error = command_begin(&command, (cl_command_queue)queue, type, false, count == 0, count,
                                 waits, event);
    if (error)
        return error;
    error = marker ? POST(queue->base.client, marker, {.command = command.head})
                   : POST(queue->base.client, barrier, {.command = command.head});
    return command_end(&command, error);
}

cl_int queue_mark(struct queue *queue, cl_uint count, const cl_event *waits, cl_event *event)
{
    return queue_enqueue_point(queue, CL_COMMAND_MARKER, count, waits, event);
}

cl_int queue_bar(struct queue *queue, cl_uint count, const cl_event *waits, cl_event *event)
{
    return queue_enqueue_point(queue, CL_COMMAND_BARRIER, count, waits, event);
}
