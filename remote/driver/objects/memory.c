#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/driver/objects/image.h"

/* Memory objects. What programs lend or map is in their process; the server's objects have no host
   side at all. */

#define ACCESS      (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)
#define HOST        (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)
#define HOST_ACCESS (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)

struct memory *memory_get(cl_mem memory)
{
    return handle_get(memory, ID_MEMORY);
}

static void memory_gone(struct call *call)
{
    endings_run(call->data);
}

static bool memory_watch(struct memory *memory)
{
    struct client *client = memory->base.client;
    struct call *call = call_create(client);
    if (!call)
        return false;
    call->data = memory->endings;
    call->then = memory_gone;
    call->job.run = call_run;
    if (POST(client, watch_memory, {.memory = handle_id(memory), .call = handle_id(call)}) ==
        CL_SUCCESS)
        return true;
    if (!call_take_back(call))
        return true;
    handle_release(call);
    return false;
}

static void memory_finish(struct object *object)
{
    struct memory *memory = container_of(object, struct memory, base);
    /* Commands of the server's may use it still: its callbacks are called when they do not. */
    if (memory->endings && memory_watch(memory))
        memory->endings = NULL;
    if (memory->told)
        (void)POST(object->client, release, {.object = object->id});
    while (memory->maps) { /* Never unmapped. */
        struct map *map = memory->maps;
        memory->maps = map->next;
        handle_unuse(map->event);
        free(map->owned);
        block_give(object->client, &map->block);
        free(map);
    }
    if (memory->host_owned)
        free(memory->host);
    block_give(object->client, &memory->host_block);
    endings_run(memory->endings);
    free(memory->list);
    pthread_mutex_destroy(&memory->lock);
    if (memory->parent)
        handle_unuse(memory->parent);
    handle_unuse(memory->context);
}

static const struct object_class memory_class = {sizeof(struct memory), memory_finish};

static bool memory_at_most_one(cl_mem_flags flags)
{
    return (flags & (flags - 1)) == 0;
}

cl_int memory_check_flags(cl_mem_flags flags)
{
    const cl_mem_flags known = ACCESS | HOST | HOST_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE;
    bool used = flags & CL_MEM_USE_HOST_PTR;
    if ((flags & ~known) || !memory_at_most_one(flags & ACCESS) ||
        !memory_at_most_one(flags & HOST_ACCESS) ||
        (used && (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR))))
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

struct memory *memory_create(struct context *context, cl_mem_object_type type, cl_mem_flags flags,
                             struct memory *parent)
{
    struct memory *memory = handle_create(context->base.client, ID_MEMORY, &memory_class);
    if (!memory)
        return NULL;
    pthread_mutex_init(&memory->lock, NULL);
    memory->context = context;
    handle_use(context);
    memory->type = type;
    memory->flags = flags & ACCESS ? flags : flags | CL_MEM_READ_WRITE;
    memory->parent = parent;
    if (parent)
        handle_use(parent);
    return memory;
}

/* No properties are known. */
cl_int memory_take_list(const cl_mem_properties *properties)
{
    return properties && properties[0] ? CL_INVALID_PROPERTY : CL_SUCCESS;
}

/* The largest that a device of the context's has. */
static uint64_t memory_largest(const struct context *context, cl_device_info name)
{
    uint64_t most = 0;
    for (cl_uint i = 0; i < context->device_count; i++) {
        uint64_t number = device_number(context->devices[i], name);
        most = number > most ? number : most;
    }
    return most;
}

static cl_int memory_create_any_buffer(cl_context context, const cl_mem_properties *properties,
                                       cl_mem_flags flags, size_t size, void *host,
                                       struct memory **ret_memory)
{
    struct context *c = context_get(context);
    if (!c)
        return CL_INVALID_CONTEXT;
    cl_int error = memory_take_list(properties);
    if (error == CL_SUCCESS)
        error = memory_check_flags(flags);
    if (error)
        return error;
    if (size == 0 || size > memory_largest(c, CL_DEVICE_MAX_MEM_ALLOC_SIZE))
        return CL_INVALID_BUFFER_SIZE;
    if (!host != !(flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
        return CL_INVALID_HOST_PTR;
    struct memory *memory = memory_create(c, CL_MEM_OBJECT_BUFFER, flags, NULL);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
    memory->size = size;
    memory->list = list_copy(properties, sizeof(*properties), &memory->list_size);
    if (flags & CL_MEM_USE_HOST_PTR)
        memory->host = host;
    error = POST(c->base.client, create_buffer,
                 {.memory = handle_id(memory),
                  .context = handle_id(c),
                  .flags = flags,
                  .size = size,
                  .content = host,
                  .content_size = host ? size : 0});
    memory->told = error == CL_SUCCESS;
    if (error)
        handle_release(memory);
    else
        *ret_memory = memory;
    return error;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr,
                      cl_int *errcode_ret)
{
    struct memory *memory = NULL;
    cl_int error = memory_create_any_buffer(context, NULL, flags, size, host_ptr, &memory);
    return created(memory, error, errcode_ret);
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties,
                                    cl_mem_flags flags, size_t size, void *host_ptr,
                                    cl_int *errcode_ret)
{
    struct memory *memory = NULL;
    cl_int error = memory_create_any_buffer(context, properties, flags, size, host_ptr, &memory);
    return created(memory, error, errcode_ret);
}

/* 5.2.1: what a sub-buffer may say differs from what its buffer says. */
static cl_int memory_sub_flags(const struct memory *parent, cl_mem_flags *flags)
{
    cl_mem_flags access = *flags & ACCESS, host = *flags & HOST_ACCESS;
    if (memory_check_flags(*flags) || (*flags & HOST))
        return CL_INVALID_VALUE;
    if (((parent->flags & CL_MEM_WRITE_ONLY) &&
         (access & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))) ||
        ((parent->flags & CL_MEM_READ_ONLY) &&
         (access & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))) ||
        ((parent->flags & CL_MEM_HOST_WRITE_ONLY) && (host & CL_MEM_HOST_READ_ONLY)) ||
        ((parent->flags & CL_MEM_HOST_READ_ONLY) && (host & CL_MEM_HOST_WRITE_ONLY)) ||
        ((parent->flags & CL_MEM_HOST_NO_ACCESS) &&
         (host & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY))))
        return CL_INVALID_VALUE;
    if (!access)
        *flags |= parent->flags & ACCESS;
    if (!host)
        *flags |= parent->flags & HOST_ACCESS;
    *flags |= parent->flags & HOST;
    return CL_SUCCESS;
}

static bool memory_aligned(const struct context *context, size_t origin)
{
    for (cl_uint i = 0; i < context->device_count; i++) {
        uint64_t bytes = device_number(context->devices[i], CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
        if (bytes == 0 || origin % bytes == 0)
            return true;
    }
    return false;
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type,
                         const void *info, cl_int *errcode_ret)
{
    struct memory *parent = memory_get(buffer);
    const cl_buffer_region *region = info;
    if (!parent || parent->type != CL_MEM_OBJECT_BUFFER || parent->parent)
        return created(NULL, CL_INVALID_MEM_OBJECT, errcode_ret);
    cl_int error = memory_sub_flags(parent, &flags);
    if (error == CL_SUCCESS && (type != CL_BUFFER_CREATE_TYPE_REGION || !region))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS &&
        (region->origin > parent->size || region->size > parent->size - region->origin))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS && region->size == 0)
        error = CL_INVALID_BUFFER_SIZE;
    if (error == CL_SUCCESS && !memory_aligned(parent->context, region->origin))
        error = CL_MISALIGNED_SUB_BUFFER_OFFSET;
    struct memory *memory =
        error ? NULL : memory_create(parent->context, CL_MEM_OBJECT_BUFFER, flags, parent);
    if (!memory)
        return created(NULL, error ? error : CL_OUT_OF_HOST_MEMORY, errcode_ret);
    memory->origin = region->origin;
    memory->size = region->size;
    if (flags & CL_MEM_USE_HOST_PTR)
        memory->host = (char *)parent->host + region->origin;
    error = POST(memory->base.client, create_sub_buffer,
                 {.memory = handle_id(memory),
                  .parent = handle_id(parent),
                  .flags = flags,
                  .origin = region->origin,
                  .size = region->size});
    memory->told = error == CL_SUCCESS;
    return created_if(memory, error, errcode_ret);
}

cl_int clGetMemObjectInfo(cl_mem memobj, cl_mem_info param_name, size_t param_value_size,
                          void *param_value, size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    struct memory *memory = memory_get(memobj);
    if (!memory)
        return CL_INVALID_MEM_OBJECT;
    switch (param_name) {
    case CL_MEM_TYPE:
        return request_uint(&request, memory->type);
    case CL_MEM_FLAGS:
        return request_ulong(&request, memory->flags);
    case CL_MEM_SIZE:
        return request_size(&request, memory->size);
    case CL_MEM_HOST_PTR:
        return request_handle(&request, memory->flags & CL_MEM_USE_HOST_PTR ? memory->host : NULL);
    case CL_MEM_MAP_COUNT: {
        cl_uint count = 0;
        pthread_mutex_lock(&memory->lock);
        for (const struct map *map = memory->maps; map; map = map->next)
            count++;
        pthread_mutex_unlock(&memory->lock);
        return request_uint(&request, count);
    }
    case CL_MEM_REFERENCE_COUNT:
        return request_uint(&request, handle_count(memory));
    case CL_MEM_CONTEXT:
        return request_handle(&request, memory->context);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
        return request_handle(&request, memory->parent);
    case CL_MEM_OFFSET:
        return request_size(&request, memory->origin);
    case CL_MEM_USES_SVM_POINTER:
        return request_uint(&request, CL_FALSE);
    case CL_MEM_PROPERTIES:
        return request_bytes(&request, memory->list, memory->list_size);
    default:
        return CL_INVALID_VALUE;
    }
}

static void memory_call_destructor(struct ending *ending)
{
    ((void(CL_CALLBACK *)(cl_mem, void *))ending->function)(ending->handle, ending->data);
}

cl_int clSetMemObjectDestructorCallback(cl_mem memobj,
                                        void(CL_CALLBACK *pfn_notify)(cl_mem, void *),
                                        void *user_data)
{
    struct memory *memory = memory_get(memobj);
    if (!memory)
        return CL_INVALID_MEM_OBJECT;
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    return ending_add(memory->base.client, &memory->endings, memory_call_destructor,
                      (void (*)(void))pfn_notify, memobj, user_data);
}

/* ---- samplers ---- */

static struct sampler *memory_sampler_get(cl_sampler sampler)
{
    return handle_get(sampler, ID_SAMPLER);
}

static void memory_sampler_finish(struct object *object)
{
    struct sampler *sampler = container_of(object, struct sampler, base);
    (void)POST(object->client, release, {.object = object->id});
    free(sampler->list);
    handle_unuse(sampler->context);
}

static const struct object_class sampler_class = {sizeof(struct sampler), memory_sampler_finish};

static cl_int memory_create_sampler(cl_context context, struct sampler wanted,
                                    const cl_sampler_properties *list, struct sampler **ret_sampler)
{
    struct context *c = context_get(context);
    if (!c)
        return CL_INVALID_CONTEXT;
    if (!memory_largest(c, CL_DEVICE_IMAGE_SUPPORT))
        return CL_INVALID_OPERATION;
    if (wanted.addressing < CL_ADDRESS_NONE || wanted.addressing > CL_ADDRESS_MIRRORED_REPEAT ||
        (wanted.filter != CL_FILTER_NEAREST && wanted.filter != CL_FILTER_LINEAR) ||
        wanted.normalized > CL_TRUE)
        return CL_INVALID_VALUE;
    struct sampler *sampler = handle_create(c->base.client, ID_SAMPLER, &sampler_class);
    if (!sampler)
        return CL_OUT_OF_HOST_MEMORY;
    sampler->context = c;
    handle_use(c);
    sampler->normalized = wanted.normalized;
    sampler->addressing = wanted.addressing;
    sampler->filter = wanted.filter;
    sampler->list = list_copy(list, sizeof(*list), &sampler->list_size);
    cl_int error = POST(c->base.client, create_sampler,
                        {.sampler = handle_id(sampler),
                         .context = handle_id(c),
                         .normalized = sampler->normalized,
                         .addressing = sampler->addressing,
                         .filter = sampler->filter});
    if (error)
        handle_release(sampler);
    else
        *ret_sampler = sampler;
    return error;
}

cl_sampler clCreateSampler(cl_context context, cl_bool normalized_coords,
                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                           cl_int *errcode_ret)
{
    struct sampler *sampler = NULL;
    cl_int error = memory_create_sampler(context,
                                         (struct sampler){.normalized = normalized_coords,
                                                          .addressing = addressing_mode,
                                                          .filter = filter_mode},
                                         NULL, &sampler);
    return created(sampler, error, errcode_ret);
}

cl_sampler clCreateSamplerWithProperties(cl_context context,
                                         const cl_sampler_properties *sampler_properties,
                                         cl_int *errcode_ret)
{
    struct sampler wanted = {
        .normalized = CL_TRUE, .addressing = CL_ADDRESS_CLAMP, .filter = CL_FILTER_NEAREST};
    struct sampler *sampler = NULL;
    unsigned seen = 0;
    if (!context_get(context))
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    for (const cl_sampler_properties *at = sampler_properties; at && at[0]; at += 2) {
        unsigned bit = at[0] == CL_SAMPLER_NORMALIZED_COORDS ? 1
                       : at[0] == CL_SAMPLER_ADDRESSING_MODE ? 2
                       : at[0] == CL_SAMPLER_FILTER_MODE     ? 4
                                                             : 0;
        if (bit == 0 || (seen & bit))
            return created(NULL, CL_INVALID_VALUE, errcode_ret);
        seen |= bit;
        if (bit == 1)
            wanted.normalized = (cl_bool)at[1];
        else if (bit == 2)
            wanted.addressing = (cl_addressing_mode)at[1];
        else
            wanted.filter = (cl_filter_mode)at[1];
    }
    cl_int error = memory_create_sampler(context, wanted, sampler_properties, &sampler);
    return created(sampler, error, errcode_ret);
}

cl_int clGetSamplerInfo(cl_sampler sampler, cl_sampler_info param_name, size_t param_value_size,
                        void *param_value, size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    const struct sampler *s = memory_sampler_get(sampler);
    if (!s)
        return CL_INVALID_SAMPLER;
    switch (param_name) {
    case CL_SAMPLER_REFERENCE_COUNT:
        return request_uint(&request, handle_count(s));
    case CL_SAMPLER_CONTEXT:
        return request_handle(&request, s->context);
    case CL_SAMPLER_NORMALIZED_COORDS:
        return request_uint(&request, s->normalized);
    case CL_SAMPLER_ADDRESSING_MODE:
        return request_uint(&request, s->addressing);
    case CL_SAMPLER_FILTER_MODE:
        return request_uint(&request, s->filter);
    case CL_SAMPLER_PROPERTIES:
        return request_bytes(&request, s->list, s->list_size);
    default:
        return CL_INVALID_VALUE;
    }
}
