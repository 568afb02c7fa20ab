#include <stdlib.h>
#include <string.h>

#include "remote/driver/objects/objects.h"
#include "remote/driver/servers/servers.h"
#include "state/base/cleanup.h"

struct context *context_get(cl_context context)
{
    return object_get(context, ID_CONTEXT);
}

bool context_has(const struct context *context, const struct device_object *device)
{
    for (cl_uint i = 0; device && i < context->device_count; i++)
        if (context->devices[i] == device)
            return true;
    return false;
}

static void context_end(struct handle *handle)
{
    struct context *context = container_of(handle, struct context, base);
    (void)POST(handle->client, release, {.object = handle->id});
    destructor_run_later(&context->destructors);
    free(context->devices);
    free(context->properties);
    free(context->kinds);
    pthread_mutex_destroy(&context->lock);
}

static const struct handle_class context_class = {sizeof(struct context), context_end};

/* ---- calls ---- */

static bool context_is_platform(cl_platform_id platform)
{
    return platform_get(platform) != NULL;
}

static cl_int context_create_context(const cl_context_properties *properties, cl_uint count,
                                     const cl_device_id *devices,
                                     void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                               void *),
                                     void *data, struct context **ret_context)
{
    cl_platform_id platform = NULL;
    cl_int error = context_properties_check(properties, context_is_platform, &platform);
    if (error)
        return error;
    if (count == 0 || !devices || (!notify && data))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        const struct device_object *device = device_get(devices[i]);
        if (!device || device->platform != device_get(devices[0])->platform ||
            (platform && (cl_platform_id)device->platform != platform))
            return CL_INVALID_DEVICE;
    }
    struct client *client = client_renew(device_get(devices[0])->base.client);
    error = client_state(client);
    if (error)
        return error;
    struct context *context = handle_create(client, ID_CONTEXT, &context_class);
    if (context)
        pthread_mutex_init(&context->lock, NULL);
    CLEANUP(cleanup_free) uint64_t *ids = calloc(count, sizeof(*ids));
    if (context)
        context->devices = calloc(count, sizeof(struct device_object *));
    if (!context || !ids || !context->devices) {
        handle_release(context);
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < count; i++) {
        struct device_object *device = device_get(devices[i]);
        if (context_has(context, device))
            continue; /* One that is named twice is there once (4.4). */
        ids[context->device_count] = handle_id(device);
        context->devices[context->device_count++] = device;
    }
    context->properties = properties_copy(properties, &context->property_count);
    context->notify = notify;
    context->data = data;
    error = POST(
        client, create_context,
        {.context = handle_id(context), .devices = ids, .devices_count = context->device_count});
    if (error) {
        handle_release(context);
        return error;
    }
    context->areas_before = blocks_before(context->devices[0]);
    *ret_context = context;
    return CL_SUCCESS;
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint num_devices,
                           const cl_device_id *devices,
                           void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t,
                                                         void *),
                           void *user_data, cl_int *errcode_ret)
{
    struct context *context = NULL;
    cl_int error =
        context_create_context(properties, num_devices, devices, pfn_notify, user_data, &context);
    return created(context, error, errcode_ret);
}

cl_context
clCreateContextFromType(const cl_context_properties *properties, cl_device_type device_type,
                        void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *),
                        void *user_data, cl_int *errcode_ret)
{
    cl_platform_id platform = NULL;
    struct platform **all = NULL;
    cl_device_id devices[256];
    cl_uint count = 0;
    struct context *context = NULL;
    cl_int error = context_properties_check(properties, context_is_platform, &platform);
    if (error == CL_SUCCESS && !platform) {
        if (clients_platforms(&all) == 0)
            return created(NULL, CL_INVALID_PLATFORM, errcode_ret);
        platform = (cl_platform_id)all[0];
    }
    if (error == CL_SUCCESS)
        error = clGetDeviceIDs(platform, device_type, ARRAY_SIZE(devices), devices, &count);
    if (error == CL_SUCCESS)
        error = context_create_context(properties,
                                       count < ARRAY_SIZE(devices) ? count : ARRAY_SIZE(devices),
                                       devices, pfn_notify, user_data, &context);
    return created(context, error, errcode_ret);
}

cl_int context_set_destructor(struct context *context,
                              void(CL_CALLBACK *pfn_notify)(cl_context, void *), void *user_data)
{
    return object_add_destructor(&context->destructors, (void (*)(void))pfn_notify, context,
                                 user_data);
}

struct news {
    struct callback_job job;
    struct context *context;
    char text[];
};

static void context_news_call(void *data)
{
    struct news *news = data;
    news->context->notify(news->text, NULL, 0, news->context->data);
}

static void context_news_gone(void *data)
{
    struct news *news = data;
    handle_unuse(news->context);
    free(news);
}

static void context_news_run(struct callback_job *job)
{
    struct news *news = container_of(job, struct news, job);
    callback_program(context_news_call, context_news_gone, news);
    context_news_gone(news);
}

void client_context_news(struct client *client, const struct msg_context_news *message)
{
    struct context *context = handle_of_id(client, message->context);
    if (!context)
        return;
    size_t size = strlen(message->text) + 1;
    struct news *news = context->notify ? malloc(sizeof(*news) + size) : NULL;
    if (!news) {
        handle_unuse_later(context);
        return;
    }
    *news = (struct news){.job = {.run = context_news_run}, .context = context};
    memcpy(news->text, message->text, size);
    callback_post(&news->job);
}
