#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/driver/objects/objects.h"

/* Memory objects. What programs lend or map is in their process; the server's objects have no host
   side at all. */

struct memory *memory_get(cl_mem memory)
{
    return object_get(memory, ID_MEMORY);
}

static void memory_gone(struct call *call)
{
    struct destructor *_Atomic destructors = call->data;
    destructor_run_later(&destructors);
}

static bool memory_watch(struct memory *memory)
{
    struct client *client = memory->base.client;
    struct call *call = call_create(client);
    if (!call)
        return false;
    call->data = memory->destructors;
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

void map_destroy(struct map *map)
{
    handle_unuse(map->event);
    free(map->owned);
    bulk_return(map->loan);
    free(map);
}

static void memory_finish(struct handle *handle)
{
    struct memory *memory = container_of(handle, struct memory, base);
    /* Commands of the server's may use it still: its callbacks are called when they do not. */
    if (memory->destructors && memory_watch(memory))
        memory->destructors = NULL;
    if (memory->told)
        (void)POST(handle->client, release, {.object = handle->id});
    while (memory->maps) { /* Never unmapped. */
        struct map *map = memory->maps;
        memory->maps = map->next;
        map_destroy(map);
    }
    if (memory->host_owned)
        free(memory->host);
    bulk_return(memory->host_loan);
    destructor_run_later(&memory->destructors);
    free(memory->properties);
    free(memory->image);
    pthread_mutex_destroy(&memory->lock);
    handle_unuse(memory->parent);
    handle_unuse(memory->context);
}

static const struct handle_class memory_class = {sizeof(struct memory), memory_finish};

struct memory *memory_create(struct context *context, cl_mem_object_type type, cl_mem_flags flags,
                             struct memory *parent)
{
    struct memory *memory = handle_create(context->base.client, ID_MEMORY, &memory_class);
    if (!memory)
        return NULL;
    pthread_mutex_init(&memory->lock, NULL);
    memory->context = context;
    object_hold(context);
    memory->type = type;
    memory->flags = flags & MEMORY_ACCESS ? flags : flags | CL_MEM_READ_WRITE;
    memory->parent = parent;
    if (parent)
        object_hold(parent);
    return memory;
}

uint64_t memory_largest(const struct context *context, cl_device_info name)
{
    uint64_t most = 0;
    for (cl_uint i = 0; i < context->device_count; i++) {
        uint64_t number = device_number(context->devices[i], name);
        most = number > most ? number : most;
    }
    return most;
}

cl_int buffer_create(struct context *c, const cl_mem_properties *properties, cl_mem_flags flags,
                     size_t size, void *host, struct memory **ret_memory)
{
    if (properties && properties[0]) /* No properties are known. */
        return CL_INVALID_PROPERTY;
    if (!memory_flags_valid(flags, MEMORY_FLAGS))
        return CL_INVALID_VALUE;
    if (size == 0 || size > memory_largest(c, CL_DEVICE_MAX_MEM_ALLOC_SIZE))
        return CL_INVALID_BUFFER_SIZE;
    if (!memory_host_ptr_valid(flags, host))
        return CL_INVALID_HOST_PTR;
    struct memory *memory = memory_create(c, CL_MEM_OBJECT_BUFFER, flags, NULL);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
    memory->size = size;
    memory->properties = properties_copy(properties, &memory->property_count);
    if (flags & CL_MEM_USE_HOST_PTR)
        memory->host = host;
    cl_int error = POST(c->base.client, create_buffer,
                        {.memory = handle_id(memory),
                         .context = handle_id(c),
                         .flags = flags,
                         .size = size,
                         .content = host,
                         .content_size = host ? size : 0});
    memory->told = error == CL_SUCCESS;
    return created_if(memory, error, ret_memory);
}

/* Of a sub-buffer's origin: one device that takes it is enough. */
static size_t memory_alignment(const struct context *context)
{
    size_t least = SIZE_MAX;
    for (cl_uint i = 0; i < context->device_count; i++) {
        uint64_t bytes = device_number(context->devices[i], CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
        least = bytes < least ? bytes : least;
    }
    return least;
}

cl_int sub_buffer_create(struct memory *parent, cl_mem_flags flags, cl_buffer_create_type type,
                         const void *info, struct memory **ret_memory)
{
    const cl_buffer_region *region = info;
    if (parent->type != CL_MEM_OBJECT_BUFFER || parent->parent)
        return CL_INVALID_MEM_OBJECT;
    if (!memory_flags_inherit(parent->flags, MEMORY_ACCESS | MEMORY_HOST, &flags))
        return CL_INVALID_VALUE;
    cl_int error = sub_buffer_check(parent->size, type, info, memory_alignment(parent->context));
    if (error)
        return error;
    struct memory *memory = memory_create(parent->context, CL_MEM_OBJECT_BUFFER, flags, parent);
    if (!memory)
        return CL_OUT_OF_HOST_MEMORY;
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
    return created_if(memory, error, ret_memory);
}

cl_int memory_set_destructor(struct memory *memory, void(CL_CALLBACK *pfn_notify)(cl_mem, void *),
                             void *user_data)
{
    return object_add_destructor(&memory->destructors, (void (*)(void))pfn_notify, memory,
                                 user_data);
}

/* ---- memory that the engine borrows ---- */

/* Loans are at most so much of a session's shared memory: transfers need the rest. */
#define LENT_MOST (WIRE_BULK_BYTES / 2)

struct lent {
    struct lent_memory base;
    struct bulk_loan *loan;
};

struct lent_memory *lent_take(cl_context context, size_t size)
{
    const struct context *c = context_get(context);
    struct lent *lent = c ? calloc(1, sizeof(*lent)) : NULL;
    if (!lent)
        return NULL;
    lent->loan = block_lend(c->base.client, c->areas_before, size, LENT_MOST, &lent->base.maps);
    if (!lent->loan) {
        free(lent);
        return NULL;
    }
    lent->base.bytes = bulk_loan_block(lent->loan)->bytes;
    return &lent->base;
}

void lent_give(struct lent_memory *memory)
{
    struct lent *lent = container_of(memory, struct lent, base);
    bulk_return(lent->loan);
    free(lent);
}

/* ---- samplers ---- */

struct sampler *sampler_get(cl_sampler sampler)
{
    return object_get(sampler, ID_SAMPLER);
}

static void memory_sampler_finish(struct handle *handle)
{
    struct sampler *sampler = container_of(handle, struct sampler, base);
    (void)POST(handle->client, release, {.object = handle->id});
    free(sampler->properties);
    handle_unuse(sampler->context);
}

static const struct handle_class sampler_class = {sizeof(struct sampler), memory_sampler_finish};

static cl_int memory_create_sampler(struct context *c, const struct sampler_choice *choice,
                                    const cl_sampler_properties *list, struct sampler **ret_sampler)
{
    if (!memory_largest(c, CL_DEVICE_IMAGE_SUPPORT))
        return CL_INVALID_OPERATION;
    cl_int error = sampler_check(choice);
    if (error)
        return error;
    struct sampler *sampler = handle_create(c->base.client, ID_SAMPLER, &sampler_class);
    if (!sampler)
        return CL_OUT_OF_HOST_MEMORY;
    sampler->context = c;
    object_hold(c);
    sampler->normalized = (cl_bool)choice->normalized;
    sampler->addressing = (cl_addressing_mode)choice->addressing;
    sampler->filter = (cl_filter_mode)choice->filter;
    sampler->properties = properties_copy(list, &sampler->property_count);
    error = POST(c->base.client, create_sampler,
                 {.sampler = handle_id(sampler),
                  .context = handle_id(c),
                  .normalized = sampler->normalized,
                  .addressing = sampler->addressing,
                  .filter = sampler->filter});
    return created_if(sampler, error, ret_sampler);
}

cl_int sampler_create_with_values(struct context *context, cl_bool normalized,
                                  cl_addressing_mode addressing, cl_filter_mode filter,
                                  struct sampler **ret_sampler)
{
    const struct sampler_choice choice = {normalized, addressing, filter};
    return memory_create_sampler(context, &choice, NULL, ret_sampler);
}

cl_int sampler_create_with_list(struct context *context, const cl_sampler_properties *properties,
                                struct sampler **ret_sampler)
{
    struct sampler_choice choice;
    cl_int error = sampler_properties_read(properties, &choice);
    return error ? error : memory_create_sampler(context, &choice, properties, ret_sampler);
}
