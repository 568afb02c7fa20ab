#include "tests/emu/object.h"

#include <stdlib.h>
#include <string.h>

#define OBJECT_MAGIC 0x554d4545u /* "EEMU" */
#define OBJECT_DEAD  0xdead4545u

/* Guards the list of memory objects and samplers. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct emu_object *newest_argument; /* table_lock */
/* Guards the callbacks of every object; taken after table_lock if both. */
static pthread_mutex_t object_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    size_t size;
    cl_int invalid;
} kinds[] = {
    [EMU_CONTEXT] = {sizeof(struct emu_context), CL_INVALID_CONTEXT},
    [EMU_QUEUE] = {sizeof(struct emu_object), CL_INVALID_COMMAND_QUEUE},
    [EMU_MEM] = {sizeof(struct emu_mem), CL_INVALID_MEM_OBJECT},
    [EMU_SAMPLER] = {sizeof(struct emu_object), CL_INVALID_SAMPLER},
    [EMU_PROGRAM] = {sizeof(struct emu_program), CL_INVALID_PROGRAM},
    [EMU_KERNEL] = {sizeof(struct emu_kernel), CL_INVALID_KERNEL},
    [EMU_EVENT] = {sizeof(struct emu_event), CL_INVALID_EVENT},
    [EMU_PLATFORM] = {sizeof(struct emu_platform), CL_INVALID_PLATFORM},
    [EMU_DEVICE] = {sizeof(struct emu_device), CL_INVALID_DEVICE},
};

static void object_init(struct emu_object *object, enum emu_kind kind)
{
    object->dispatch = &emu_dispatch;
    object->magic = OBJECT_MAGIC;
    object->kind = kind;
    atomic_init(&object->refs, 1);
    atomic_init(&object->holds, 1);
}

void emu_root_init(struct emu_object *object, enum emu_kind kind, void *real)
{
    object_init(object, kind);
    object->real = real;
    object->device = kind == EMU_DEVICE ? (struct emu_device *)object : NULL;
}

cl_int emu_check(const void *handle, enum emu_kind kind)
{
    const struct emu_object *object = handle;
    if (object == NULL || object->magic != OBJECT_MAGIC || object->kind != kind)
        return kinds[kind].invalid;
    return CL_SUCCESS;
}

struct emu_object *emu_object_of(const void *handle)
{
    return (struct emu_object *)handle;
}

void *emu_real_of(const void *handle)
{
    return handle != NULL ? emu_object_of(handle)->real : NULL;
}

struct emu_device *emu_device_of(const void *handle)
{
    return emu_object_of(handle)->device;
}

/* Handles of every kind are pointers to unrelated types: read as bytes, whatever the array's. */
static const void *handle_at(const void *handles, cl_uint i)
{
    const void *handle;
    memcpy(&handle, (const char *)handles + i * sizeof(handle), sizeof(handle));
    return handle;
}

cl_int emu_device_of_list(cl_uint count, const void *handles, enum emu_kind kind, bool needed,
                          struct emu_device **ret_device)
{
    if (count == 0 || handles == NULL)
        return needed || count != 0 || handles != NULL ? CL_INVALID_VALUE : CL_SUCCESS;
    for (cl_uint i = 0; i < count; i++) {
        cl_int err = emu_check(handle_at(handles, i), kind);
        if (err != CL_SUCCESS)
            return err;
    }
    *ret_device = emu_device_of(handle_at(handles, 0));
    return CL_SUCCESS;
}

static void device_account(struct emu_device *device, enum emu_kind kind, int64_t change)
{
    atomic_fetch_add(&device->shared->live[kind], change);
    atomic_fetch_add(&device->own_live[kind], change);
}

/* A queue, and a queue's event, belong to one device; the rest to all of their context's. */
static void account(struct emu_object *object, int64_t change)
{
    bool single = object->kind == EMU_QUEUE ||
                  (object->kind == EMU_EVENT && object->parent->kind == EMU_QUEUE);
    if (single) {
        device_account(object->device, object->kind, change);
        return;
    }
    for (cl_uint i = 0; i < object->context->device_count; i++)
        device_account(object->context->devices[i], object->kind, change);
}

static bool is_argument(const struct emu_object *object)
{
    return object->kind == EMU_MEM || object->kind == EMU_SAMPLER;
}

static void argument_add(struct emu_object *object)
{
    pthread_mutex_lock(&table_lock);
    object->older = newest_argument;
    if (newest_argument != NULL)
        newest_argument->newer = object;
    newest_argument = object;
    pthread_mutex_unlock(&table_lock);
}

static void argument_remove(struct emu_object *object)
{
    pthread_mutex_lock(&table_lock);
    if (object->older != NULL)
        object->older->newer = object->newer;
    if (object->newer != NULL)
        object->newer->older = object->older;
    else
        newest_argument = object->older;
    pthread_mutex_unlock(&table_lock);
}

bool emu_object_is_argument(const void *handle)
{
    pthread_mutex_lock(&table_lock);
    const struct emu_object *at = newest_argument;
    while (at != NULL && at != handle)
        at = at->older;
    pthread_mutex_unlock(&table_lock);
    return at != NULL;
}

struct emu_object *emu_object_new(enum emu_kind kind, struct emu_device *device,
                                  struct emu_object *parent)
{
    struct emu_object *object = calloc(1, kinds[kind].size);
    if (object == NULL)
        return NULL;
    object_init(object, kind);
    object->device = device;
    if (kind == EMU_CONTEXT)
        object->context = (struct emu_context *)object;
    if (parent != NULL) {
        emu_object_hold(parent);
        object->parent = parent;
        object->context = parent->context;
    }
    if (kind == EMU_PROGRAM) {
        struct emu_program *program = (struct emu_program *)object;
        memcpy(program->devices, object->context->devices, sizeof(program->devices));
        program->device_count = object->context->device_count;
    }
    if (kind == EMU_EVENT)
        ((struct emu_event *)object)->losses = atomic_load(&device->shared->losses);
    return object;
}

static void run_callbacks(struct emu_object *object)
{
    while (object->callbacks != NULL) {
        struct emu_callback *callback = object->callbacks;
        object->callbacks = callback->next;
        if (object->kind == EMU_MEM)
            ((void(CL_CALLBACK *)(cl_mem, void *))callback->function)((cl_mem)object,
                                                                      callback->data);
        else if (object->kind == EMU_CONTEXT)
            ((void(CL_CALLBACK *)(cl_context, void *))callback->function)((cl_context)object,
                                                                          callback->data);
        else
            ((void(CL_CALLBACK *)(cl_program, void *))callback->function)((cl_program)object,
                                                                          callback->data);
        free(callback);
    }
}

static void object_free(struct emu_object *object)
{
    struct emu_object *parent = object->parent;
    if (object->kind == EMU_CONTEXT)
        free(((struct emu_context *)object)->properties);
    if (object->kind == EMU_KERNEL) {
        free(((struct emu_kernel *)object)->arg_kinds);
        free(((struct emu_kernel *)object)->local_bytes);
    }
    if (object->kind == EMU_MEM) {
        struct emu_mem *mem = (struct emu_mem *)object;
        while (mem->maps != NULL) {
            struct emu_map *map = mem->maps;
            mem->maps = map->next;
            free(map);
        }
    }
    object->magic = OBJECT_DEAD;
    free(object);
    if (parent != NULL)
        emu_object_unhold(parent);
}

void emu_object_gone(struct emu_object *object)
{
    if (object->kind == EMU_MEM)
        emu_memory_discharge(object->context, ((struct emu_mem *)object)->charged);
    account(object, -1);
    run_callbacks(object);
    object_free(object);
}

void *emu_object_publish(struct emu_object *object, const cl_int *err)
{
    if (*err != CL_SUCCESS || object->real == NULL) {
        object_free(object);
        return NULL;
    }
    account(object, 1);
    if (is_argument(object))
        argument_add(object);
    if (object->kind == EMU_MEM)
        emu_mem_watch((struct emu_mem *)object);
    if (object->kind == EMU_KERNEL)
        emu_kernel_inspect((struct emu_kernel *)object);
    return object;
}

/* Let the driver's object go. With it go memory objects that the driver watches for us. */
static void object_destroy(struct emu_object *object)
{
    void *real = object->real;
    enum emu_kind kind = object->kind;
    bool later = kind == EMU_MEM && ((struct emu_mem *)object)->watched;
    if (is_argument(object))
        argument_remove(object);
    switch (kind) {
    case EMU_CONTEXT:
        emu_driver->clReleaseContext(real);
        break;
    case EMU_QUEUE:
        emu_driver->clReleaseCommandQueue(real);
        break;
    case EMU_MEM:
        emu_sleep_ms(object->device->config.release_ms);
        emu_driver->clReleaseMemObject(real);
        break;
    case EMU_SAMPLER:
        emu_driver->clReleaseSampler(real);
        break;
    case EMU_PROGRAM:
        emu_driver->clReleaseProgram(real);
        if (((struct emu_program *)object)->origin != NULL)
            emu_driver->clReleaseProgram(((struct emu_program *)object)->origin);
        free(((struct emu_program *)object)->options);
        break;
    case EMU_KERNEL:
        emu_driver->clReleaseKernel(real);
        break;
    case EMU_EVENT:
        emu_driver->clReleaseEvent(real);
        break;
    default:
        return;
    }
    if (!later)
        emu_object_gone(object);
}

void emu_object_hold(struct emu_object *object)
{
    atomic_fetch_add(&object->holds, 1);
}

void emu_object_unhold(struct emu_object *object)
{
    if (atomic_fetch_sub(&object->holds, 1) == 1)
        object_destroy(object);
}

cl_int emu_object_retain(struct emu_object *object)
{
    if (object->kind == EMU_DEVICE)
        return CL_SUCCESS;
    unsigned refs = atomic_load(&object->refs);
    while (refs != 0)
        if (atomic_compare_exchange_weak(&object->refs, &refs, refs + 1))
            return CL_SUCCESS;
    return kinds[object->kind].invalid;
}

cl_int emu_object_release(struct emu_object *object)
{
    if (object->kind == EMU_DEVICE)
        return CL_SUCCESS;
    unsigned refs = atomic_load(&object->refs);
    while (refs != 0 && !atomic_compare_exchange_weak(&object->refs, &refs, refs - 1))
        continue;
    if (refs == 0) {
        if (object->device)
            atomic_fetch_add(&object->device->shared->too_many, 1);
        return kinds[object->kind].invalid;
    }
    if (refs == 1) {
        /* A release flushes; the driver's own release waits for the queue's last event. */
        if (object->kind == EMU_QUEUE && atomic_load(&object->holds) > 1)
            emu_driver->clFlush(object->real);
        emu_object_unhold(object);
    }
    return CL_SUCCESS;
}

cl_int emu_object_on_destroy(struct emu_object *object, void (*function)(void), void *data)
{
    if (function == NULL)
        return CL_INVALID_VALUE;
    struct emu_callback *callback = malloc(sizeof(*callback));
    if (callback == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    callback->function = function;
    callback->data = data;
    pthread_mutex_lock(&object_lock);
    callback->next = object->callbacks;
    object->callbacks = callback;
    pthread_mutex_unlock(&object_lock);
    return CL_SUCCESS;
}

static cl_int device_charge(struct emu_device *device, uint64_t bytes)
{
    uint64_t used = atomic_load(&device->shared->bytes);
    do {
        if (used > device->memory || bytes > device->memory - used)
            return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    } while (!atomic_compare_exchange_weak(&device->shared->bytes, &used, used + bytes));
    atomic_fetch_add(&device->own_bytes, bytes);
    uint64_t peak = atomic_load(&device->shared->bytes_peak);
    while (peak < used + bytes &&
           !atomic_compare_exchange_weak(&device->shared->bytes_peak, &peak, used + bytes))
        continue;
    return CL_SUCCESS;
}

static void device_discharge(struct emu_device *device, uint64_t bytes)
{
    atomic_fetch_sub(&device->shared->bytes, bytes);
    atomic_fetch_sub(&device->own_bytes, bytes);
}

cl_int emu_memory_charge(struct emu_context *context, uint64_t bytes)
{
    for (cl_uint i = 0; i < context->device_count; i++) {
        cl_int err = device_charge(context->devices[i], bytes);
        if (err != CL_SUCCESS) {
            while (i-- > 0)
                device_discharge(context->devices[i], bytes);
            return err;
        }
    }
    return CL_SUCCESS;
}

void emu_memory_discharge(struct emu_context *context, uint64_t bytes)
{
    for (cl_uint i = 0; i < context->device_count; i++)
        device_discharge(context->devices[i], bytes);
}

cl_int emu_list_init(struct emu_list *list, cl_uint count, const void *handles, enum emu_kind kind)
{
    list->real = NULL;
    if (handles == NULL)
        return CL_SUCCESS;
    if (kind == EMU_EVENT && count == 0)
        return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < count; i++)
        if (emu_check(handle_at(handles, i), kind) != CL_SUCCESS)
            return kind == EMU_EVENT ? CL_INVALID_EVENT_WAIT_LIST : kinds[kind].invalid;
    list->real = list->few;
    if (count > ARRAY_SIZE(list->few))
        list->real = calloc(count, sizeof(*list->real));
    if (list->real == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count; i++)
        list->real[i] = emu_real_of(handle_at(handles, i));
    return CL_SUCCESS;
}

void emu_list_finish(struct emu_list *list)
{
    if (list->real != list->few)
        free(list->real);
}

cl_int emu_info(const void *from, size_t size, size_t param_value_size, void *param_value,
                size_t *param_value_size_ret)
{
    if (param_value != NULL && param_value_size < size)
        return CL_INVALID_VALUE;
    if (param_value != NULL && size != 0)
        memcpy(param_value, from, size);
    if (param_value_size_ret != NULL)
        *param_value_size_ret = size;
    return CL_SUCCESS;
}

cl_int emu_info_handle(const void *handle, size_t param_value_size, void *param_value,
                       size_t *param_value_size_ret)
{
    return emu_info(&handle, sizeof(handle), param_value_size, param_value, param_value_size_ret);
}

cl_int emu_info_refs(struct emu_object *object, size_t param_value_size, void *param_value,
                     size_t *param_value_size_ret)
{
    cl_uint refs = atomic_load(&object->refs);
    return emu_info(&refs, sizeof(refs), param_value_size, param_value, param_value_size_ret);
}
