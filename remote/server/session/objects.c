#include <stdlib.h>
#include <string.h>

#include "remote/server/session/peer_copy.h"
#include "remote/server/session/server.h"
#include "state/base/cleanup.h"

/* Contexts, queues, memory objects, samplers. The client assumes that each exists; if one cannot be
 * created, the commands that use it fail. */

/* Flags about host memory are for the client: the program's memory never leaves its process. */
#define HOST_FLAGS                                                                                 \
    (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_WRITE_ONLY | \
     CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)
#define DEVICE_FLAGS                                                                               \
    (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE)

/* The flags that are passed to the driver. Flags of extensions are refused: with some, drivers
 * interpret other parameters as handles. */
static cl_mem_flags objects_device_flags(struct server *server, uint64_t flags)
{
    if (flags & ~(uint64_t)(HOST_FLAGS | DEVICE_FLAGS))
        server_wrong(server, "a memory object has unsupported flags");
    return flags & DEVICE_FLAGS;
}

struct listener {
    struct server *server;
    uint64_t context;
};

static void CL_CALLBACK objects_on_news(const char *text, const void *info, size_t size, void *data)
{
    const struct listener *listener = data;
    (void)info, (void)size;
    (void)!post_context_news(
        &listener->server->stream,
        &(struct msg_context_news){.context = listener->context, .text = text ? text : ""});
}

/* A second context is likely to exchange data with the first one, so find out early whether its
 * devices support gates. */
static void objects_try_gates(const struct entry *entry, const void *const *devices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        gates_try(entry->cl, entry->real, (cl_device_id)devices[i]);
}

void server_create_context(struct server *server, const struct msg_create_context *message)
{
    cl_int error = CL_SUCCESS;
    const struct entry *first =
        message->devices_count ? server_find(server, id_at(message->devices, 0)) : NULL;
    CLEANUP(cleanup_free)
    void **devices =
        first ? server_find_all(server, message->devices, message->devices_count, first, &error)
              : NULL;
    struct entry *entry = server_add(server, message->context);
    struct listener *listener = malloc(sizeof(*listener)); /* The driver may call it at any time. */
    if (!entry || !devices || !listener) {
        if (entry && !error)
            server_wrong(server, "out of memory for its objects");
        else if (entry)
            entry->error = error;
        free(listener);
        return;
    }
    *listener = (struct listener){server, message->context};
    const struct device *device = server->devices[id_place(id_at(message->devices, 0))];
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)device->platform, 0};
    entry->cl = device->cl;
    entry->real =
        device->cl->clCreateContext(properties, message->devices_count, (cl_device_id *)devices,
                                    objects_on_news, listener, &entry->error);
    entry->context = entry->real;
    entry->first = devices[0];
    for (uint32_t i = 0; i < message->devices_count; i++)
        entry->devices |= UINT64_C(1) << id_place(id_at(message->devices, i));
    if (entry->real && id_place(message->context) != 0)
        objects_try_gates(entry, (const void *const *)devices, message->devices_count);
}

void server_create_queue(struct server *server, const struct msg_create_queue *message)
{
    struct entry *entry = server_add_to(server, message->queue, message->context);
    const struct entry *device =
        entry ? server_find_with(server, message->device, server_find(server, message->context))
              : NULL;
    if (!device)
        return;
    entry->device = id_place(message->device);
    const struct device *real = server->devices[entry->device];
    entry->own_memory = device_has_own_memory(real);
    entry->asks = entry->own_memory && !(real->quirks & QUIRK_LOCKS_EVENT);
    entry->round = UINT32_MAX;
    entry->profiled = message->properties & CL_QUEUE_PROFILING_ENABLE;
    entry->real = entry->cl->clCreateCommandQueue(entry->context, device->real, message->properties,
                                                  &entry->error);
}

void server_create_buffer(struct server *server, const struct msg_create_buffer *message)
{
    struct entry *entry = server_add_to(server, message->memory, message->context);
    if (!entry)
        return;
    cl_mem_flags flags = objects_device_flags(server, message->flags);
    if (message->content_size && message->content_size != message->size)
        server_wrong(server, "the size of a buffer's content is wrong");
    if (server->wrong)
        return;
    if (message->content_size)
        flags |= CL_MEM_COPY_HOST_PTR;
    struct session_budget *session_budget =
        server_take_memory(server, entry->devices, message->size);
    if (!session_budget) {
        entry->error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return;
    }
    entry->real = entry->cl->clCreateBuffer(entry->context, flags, message->size,
                                            message->content_size ? (void *)message->content : NULL,
                                            &entry->error);
    server_charge(entry, session_budget);
}

void server_create_sub_buffer(struct server *server, const struct msg_create_sub_buffer *message)
{
    const struct entry *parent = server_find(server, message->parent);
    struct entry *entry = parent ? server_add(server, message->memory) : NULL;
    if (!entry)
        return;
    /* server_add() may have moved the table. */
    parent = server_find(server, message->parent);
    entry->cl = parent->cl;
    entry->context = parent->context;
    entry->error = parent->error;
    if (!parent->real)
        return;
    const cl_buffer_region region = {message->origin, message->size};
    cl_mem_flags flags = objects_device_flags(server, message->flags);
    if (!server->wrong)
        entry->real = entry->cl->clCreateSubBuffer(
            parent->real, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &entry->error);
}

struct watcher {
    struct server *server;
    uint64_t call;
};

static void CL_CALLBACK objects_on_gone(cl_mem memory, void *data)
{
    struct watcher *watcher = data;
    (void)memory;
    server_reply(watcher->server, watcher->call, CL_SUCCESS, NULL, 0);
    free(watcher);
}

/* Reports when a memory object is destroyed: only the driver knows until when commands use it. */
void server_watch_memory(struct server *server, const struct msg_watch_memory *message)
{
    const struct entry *entry = server_find(server, message->memory);
    struct watcher *watcher = entry && entry->real ? malloc(sizeof(*watcher)) : NULL;
    if (!entry)
        return;
    if (watcher) {
        *watcher = (struct watcher){server, message->call};
        if (!entry->cl->clSetMemObjectDestructorCallback(entry->real, objects_on_gone, watcher))
            return;
    }
    free(watcher);
    server_reply(server, message->call, CL_OUT_OF_HOST_MEMORY, NULL, 0);
}

/* Bytes of a packed image; UINT64_MAX on overflow. */
static uint64_t objects_packed_bytes(const struct msg_create_image *message, size_t element)
{
    uint64_t bytes = element;
    uint64_t layers = message->layers ? message->layers : 1;
    for (int i = 0; i < 3; i++)
        if (__builtin_mul_overflow(bytes, message->size[i] ? message->size[i] : 1, &bytes))
            return UINT64_MAX;
    return __builtin_mul_overflow(bytes, layers, &bytes) ? UINT64_MAX : bytes;
}

/* Only the driver knows how many bytes it will read: make an image without content, and ask. */
static bool objects_content_fits(struct server *server, struct entry *entry, cl_mem_flags flags,
                                 const cl_image_format *format, const cl_image_desc *desc,
                                 const struct msg_create_image *message)
{
    size_t element = 0;
    cl_mem probe =
        entry->cl->clCreateImage(entry->context, flags, format, desc, NULL, &entry->error);
    if (!probe)
        return false;
    cl_int asked =
        entry->cl->clGetImageInfo(probe, CL_IMAGE_ELEMENT_SIZE, sizeof(element), &element, NULL);
    entry->cl->clReleaseMemObject(probe);
    if (asked || objects_packed_bytes(message, element) != message->content_size) {
        server_wrong(server, "the size of an image's content is wrong");
        return false;
    }
    return true;
}

void server_create_image(struct server *server, const struct msg_create_image *message)
{
    const struct entry *context = server_find(server, message->context);
    const struct entry *parent =
        context && message->parent ? server_find_with(server, message->parent, context) : NULL;
    void *source = parent ? parent->real : NULL;
    cl_int error = parent ? parent->error : CL_SUCCESS;
    if (message->parent && !parent)
        return;
    struct entry *entry = server_add_to(server, message->memory, message->context);
    if (!entry)
        return;
    entry->error = error;
    entry->image = true;
    if (message->parent && !source)
        return;
    if (message->content_size && source) {
        /* The driver would read the content with the parent's pitches. */
        server_wrong(server, "an image made from another object has content of its own");
        return;
    }
    const cl_image_format format = {message->order, message->data_type};
    const cl_image_desc desc = {
        .image_type = message->type,
        .image_width = message->size[0],
        .image_height = message->size[1],
        .image_depth = message->size[2],
        .image_array_size = message->layers,
        .image_row_pitch = source ? message->row_pitch : 0,
        .mem_object = source,
    };
    cl_mem_flags flags = objects_device_flags(server, message->flags);
    if (server->wrong)
        return;
    /* Only the driver knows the size of elements. First check that the image could fit with one
     * byte for each; the real size is counted once it exists. */
    struct session_budget *least =
        source ? NULL
               : server_take_memory(server, entry->devices, objects_packed_bytes(message, 1));
    if (!source && !least) {
        entry->error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return;
    }
    if (least)
        server_give_back(least);
    void *content = message->content_size ? (void *)message->content : NULL;
    if (content && !objects_content_fits(server, entry, flags, &format, &desc, message))
        return;
    entry->real =
        entry->cl->clCreateImage(entry->context, flags | (content ? CL_MEM_COPY_HOST_PTR : 0),
                                 &format, &desc, content, &entry->error);
    if (!source)
        server_charge_made(server, entry);
}

void server_ask_memory(struct server *server, const struct msg_ask_memory *message)
{
    const struct entry *memory = server_find(server, message->memory);
    if (!memory)
        return;
    cl_int error = memory->error ? memory->error : CL_OUT_OF_RESOURCES;
    server_reply(server, message->call, memory->real ? CL_SUCCESS : error, NULL, 0);
}

void server_create_sampler(struct server *server, const struct msg_create_sampler *message)
{
    struct entry *entry = server_add_to(server, message->sampler, message->context);
    if (entry)
        entry->real =
            entry->cl->clCreateSampler(entry->context, message->normalized, message->addressing,
                                       message->filter, &entry->error);
}

void server_create_user_event(struct server *server, const struct msg_create_user_event *message)
{
    struct entry *entry = server_add_to(server, message->event, message->context);
    if (!entry)
        return;
    entry->user = true;
    entry->real = entry->cl->clCreateUserEvent(entry->context, &entry->error);
}

void server_set_user_event(struct server *server, const struct msg_set_user_event *message)
{
    const struct entry *entry = server_find(server, message->event);
    if (entry && (!entry->user || message->status > CL_COMPLETE))
        server_wrong(server, "it set an event that is no user event, or to an invalid status");
    else if (entry && entry->real)
        entry->cl->clSetUserEventStatus(entry->real, message->status);
}
