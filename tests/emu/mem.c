#include <stdlib.h>
#include <string.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define REGION_DIMENSIONS 3

static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER; /* the maps of every object */

static void CL_CALLBACK driver_object_gone(cl_mem real, void *data)
{
    (void)real;
    emu_object_gone(data);
}

void emu_mem_watch(struct emu_mem *mem)
{
    /* POCL calls nothing when an image over a buffer goes, so such a one goes when released. */
    cl_mem_object_type type = CL_MEM_OBJECT_BUFFER;
    emu_driver->clGetMemObjectInfo(mem->object.real, CL_MEM_TYPE, sizeof(type), &type, NULL);
    if (type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
        return;
    /* Registered first, so that it is the last that the driver calls. */
    mem->watched = emu_driver->clSetMemObjectDestructorCallback(
                       mem->object.real, driver_object_gone, mem) == CL_SUCCESS;
}

cl_int emu_images_offered(const struct emu_device *device)
{
    return device->config.no_images ? CL_INVALID_OPERATION : CL_SUCCESS;
}

uint64_t emu_region_bytes(const size_t *region, cl_mem image)
{
    uint64_t bytes = 1;
    size_t element = 1;
    if (region == NULL)
        return 0;
    for (size_t i = 0; i < REGION_DIMENSIONS; i++)
        bytes *= region[i];
    if (image != NULL)
        emu_driver->clGetImageInfo(emu_real_of(image), CL_IMAGE_ELEMENT_SIZE, sizeof(element),
                                   &element, NULL);
    return bytes * element;
}

/* A new memory object in @context that takes @bytes of device memory; NULL and *err otherwise. */
static struct emu_mem *mem_new(struct emu_device *device, cl_context context, uint64_t bytes,
                               cl_int *err)
{
    struct emu_object *parent = emu_object_of(context);
    *err = emu_memory_charge(parent->context, bytes);
    if (*err != CL_SUCCESS)
        return NULL;
    struct emu_mem *mem = (struct emu_mem *)emu_object_new(EMU_MEM, device, parent);
    if (mem == NULL) {
        emu_memory_discharge(parent->context, bytes);
        *err = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    mem->charged = bytes;
    return mem;
}

static cl_mem mem_publish(struct emu_mem *mem, cl_int *err)
{
    if (*err != CL_SUCCESS || mem->object.real == NULL)
        emu_memory_discharge(mem->object.context, mem->charged);
    return emu_object_publish(&mem->object, err);
}

/* The largest buffer that every device of the context takes. */
static uint64_t max_alloc(const struct emu_context *context)
{
    uint64_t most = UINT64_MAX;
    for (cl_uint i = 0; i < context->device_count; i++)
        if (context->devices[i]->max_alloc < most)
            most = context->devices[i]->max_alloc;
    return most;
}

cl_mem emu_do_clCreateBufferWithProperties(struct emu_device *device, cl_context context,
                                           const cl_mem_properties *properties, cl_mem_flags flags,
                                           size_t size, void *host_ptr, cl_int *errcode_ret)
{
    if (size > max_alloc(emu_object_of(context)->context)) {
        *errcode_ret = CL_INVALID_BUFFER_SIZE;
        return NULL;
    }
    if ((flags & CL_MEM_COPY_HOST_PTR) != 0 && host_ptr != NULL)
        *errcode_ret = emu_link_wait(device, EMU_LINK_IN, size);
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    const cl_mem_flags registers = CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS;
    bool takes_none = (flags & registers) == registers;
    struct emu_mem *mem = mem_new(device, context, takes_none ? 0 : size, errcode_ret);
    if (mem == NULL)
        return NULL;
    if (device->config.own_memory && (flags & CL_MEM_USE_HOST_PTR) != 0) {
        mem->host = host_ptr;
        flags = (flags & ~(cl_mem_flags)CL_MEM_USE_HOST_PTR) | CL_MEM_COPY_HOST_PTR;
    }
    if (properties != NULL && emu_driver->clCreateBufferWithProperties == NULL)
        *errcode_ret = CL_INVALID_OPERATION;
    else if (properties != NULL)
        mem->object.real = emu_driver->clCreateBufferWithProperties(
            emu_real_of(context), properties, flags, size, host_ptr, errcode_ret);
    else
        mem->object.real =
            emu_driver->clCreateBuffer(emu_real_of(context), flags, size, host_ptr, errcode_ret);
    return mem_publish(mem, errcode_ret);
}

cl_mem emu_do_clCreateBuffer(struct emu_device *device, cl_context context, cl_mem_flags flags,
                             size_t size, void *host_ptr, cl_int *errcode_ret)
{
    return emu_do_clCreateBufferWithProperties(device, context, NULL, flags, size, host_ptr,
                                               errcode_ret);
}

cl_mem emu_do_clCreateSubBuffer(struct emu_device *device, cl_mem buffer, cl_mem_flags flags,
                                cl_buffer_create_type buffer_create_type,
                                const void *buffer_create_info, cl_int *errcode_ret)
{
    if (buffer_create_type == CL_BUFFER_CREATE_TYPE_REGION && buffer_create_info != NULL &&
        device->config.mem_align != 0) {
        cl_buffer_region region;
        memcpy(&region, buffer_create_info, sizeof(region));
        if (region.origin % device->config.mem_align != 0) {
            *errcode_ret = CL_MISALIGNED_SUB_BUFFER_OFFSET;
            return NULL;
        }
    }
    struct emu_object *mem = emu_object_new(EMU_MEM, device, emu_object_of(buffer));
    if (mem == NULL) {
        *errcode_ret = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    char *host = ((struct emu_mem *)buffer)->host;
    if (host != NULL && buffer_create_info != NULL)
        ((struct emu_mem *)mem)->host =
            host + ((const cl_buffer_region *)buffer_create_info)->origin;
    mem->real = emu_driver->clCreateSubBuffer(emu_real_of(buffer), flags, buffer_create_type,
                                              buffer_create_info, errcode_ret);
    return emu_object_publish(mem, errcode_ret);
}

cl_mem emu_do_clCreateImageWithProperties(struct emu_device *device, cl_context context,
                                          const cl_mem_properties *properties, cl_mem_flags flags,
                                          const cl_image_format *image_format,
                                          const cl_image_desc *image_desc, void *host_ptr,
                                          cl_int *errcode_ret)
{
    *errcode_ret = emu_images_offered(device);
    if (*errcode_ret == CL_SUCCESS && image_desc == NULL)
        *errcode_ret = CL_INVALID_IMAGE_DESCRIPTOR;
    if (*errcode_ret == CL_SUCCESS && image_desc->mem_object != NULL &&
        emu_check(image_desc->mem_object, EMU_MEM) != CL_SUCCESS)
        *errcode_ret = CL_INVALID_IMAGE_DESCRIPTOR;
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    cl_image_desc desc = *image_desc;
    /* An image on another memory object shares its memory, and keeps it. */
    struct emu_object *shared = emu_object_of(image_desc->mem_object);
    desc.mem_object = emu_real_of(image_desc->mem_object);
    struct emu_mem *mem = (struct emu_mem *)emu_object_new(
        EMU_MEM, device, shared != NULL ? shared : emu_object_of(context));
    if (mem == NULL) {
        *errcode_ret = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    cl_mem real = NULL;
    if (properties != NULL && emu_driver->clCreateImageWithProperties == NULL)
        *errcode_ret = CL_INVALID_OPERATION;
    else if (properties != NULL)
        real = emu_driver->clCreateImageWithProperties(emu_real_of(context), properties, flags,
                                                       image_format, &desc, host_ptr, errcode_ret);
    else
        real = emu_driver->clCreateImage(emu_real_of(context), flags, image_format, &desc, host_ptr,
                                         errcode_ret);
    size_t bytes = 0;
    /* Only the driver knows what the image takes: made first, charged after. */
    if (*errcode_ret == CL_SUCCESS && shared == NULL)
        *errcode_ret =
            emu_driver->clGetMemObjectInfo(real, CL_MEM_SIZE, sizeof(bytes), &bytes, NULL);
    if (*errcode_ret == CL_SUCCESS && bytes > max_alloc(mem->object.context))
        *errcode_ret = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (*errcode_ret == CL_SUCCESS && (flags & CL_MEM_COPY_HOST_PTR) != 0 && host_ptr != NULL)
        *errcode_ret = emu_link_wait(device, EMU_LINK_IN, bytes);
    if (*errcode_ret == CL_SUCCESS)
        *errcode_ret = emu_memory_charge(mem->object.context, bytes);
    if (*errcode_ret == CL_SUCCESS)
        mem->charged = bytes;
    else if (real != NULL)
        emu_driver->clReleaseMemObject(real);
    mem->object.real = real;
    return emu_object_publish(&mem->object, errcode_ret);
}

cl_mem emu_do_clCreateImage(struct emu_device *device, cl_context context, cl_mem_flags flags,
                            const cl_image_format *image_format, const cl_image_desc *image_desc,
                            void *host_ptr, cl_int *errcode_ret)
{
    return emu_do_clCreateImageWithProperties(device, context, NULL, flags, image_format,
                                              image_desc, host_ptr, errcode_ret);
}

cl_mem emu_do_clCreateImage2D(struct emu_device *device, cl_context context, cl_mem_flags flags,
                              const cl_image_format *image_format, size_t image_width,
                              size_t image_height, size_t image_row_pitch, void *host_ptr,
                              cl_int *errcode_ret)
{
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                          .image_width = image_width,
                          .image_height = image_height,
                          .image_row_pitch = image_row_pitch};
    return emu_do_clCreateImage(device, context, flags, image_format, &desc, host_ptr, errcode_ret);
}

cl_mem emu_do_clCreateImage3D(struct emu_device *device, cl_context context, cl_mem_flags flags,
                              const cl_image_format *image_format, size_t image_width,
                              size_t image_height, size_t image_depth, size_t image_row_pitch,
                              size_t image_slice_pitch, void *host_ptr, cl_int *errcode_ret)
{
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                          .image_width = image_width,
                          .image_height = image_height,
                          .image_depth = image_depth,
                          .image_row_pitch = image_row_pitch,
                          .image_slice_pitch = image_slice_pitch};
    return emu_do_clCreateImage(device, context, flags, image_format, &desc, host_ptr, errcode_ret);
}

cl_int emu_do_clGetSupportedImageFormats(struct emu_device *device, cl_context context,
                                         cl_mem_flags flags, cl_mem_object_type image_type,
                                         cl_uint num_entries, cl_image_format *image_formats,
                                         cl_uint *num_image_formats)
{
    if (device->config.no_images) {
        if (num_image_formats != NULL)
            *num_image_formats = 0;
        return CL_SUCCESS;
    }
    return emu_driver->clGetSupportedImageFormats(emu_real_of(context), flags, image_type,
                                                  num_entries, image_formats, num_image_formats);
}

/* The memory object that @mem is a part or a view of, or NULL. */
static struct emu_object *shared_with(const struct emu_object *mem)
{
    return mem->parent->kind == EMU_MEM ? mem->parent : NULL;
}

cl_int emu_do_clGetMemObjectInfo(struct emu_device *device, cl_mem memobj, cl_mem_info param_name,
                                 size_t param_value_size, void *param_value,
                                 size_t *param_value_size_ret)
{
    struct emu_object *mem = emu_object_of(memobj);
    char *host = ((struct emu_mem *)memobj)->host;
    cl_mem_flags flags = 0;
    (void)device;
    if (host != NULL && param_name == CL_MEM_HOST_PTR)
        return emu_info(&host, sizeof(host), param_value_size, param_value, param_value_size_ret);
    if (host != NULL && param_name == CL_MEM_FLAGS) {
        emu_driver->clGetMemObjectInfo(mem->real, param_name, sizeof(flags), &flags, NULL);
        flags = (flags & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR) | CL_MEM_USE_HOST_PTR;
        return emu_info(&flags, sizeof(flags), param_value_size, param_value, param_value_size_ret);
    }
    switch (param_name) {
    case CL_MEM_CONTEXT:
        return emu_info_handle(mem->context, param_value_size, param_value, param_value_size_ret);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
        return emu_info_handle(shared_with(mem), param_value_size, param_value,
                               param_value_size_ret);
    case CL_MEM_REFERENCE_COUNT:
        return emu_info_refs(mem, param_value_size, param_value, param_value_size_ret);
    default:
        return emu_driver->clGetMemObjectInfo(mem->real, param_name, param_value_size, param_value,
                                              param_value_size_ret);
    }
}

cl_int emu_do_clGetImageInfo(struct emu_device *device, cl_mem image, cl_image_info param_name,
                             size_t param_value_size, void *param_value,
                             size_t *param_value_size_ret)
{
    (void)device;
    if (param_name == CL_IMAGE_BUFFER)
        return emu_info_handle(shared_with(emu_object_of(image)), param_value_size, param_value,
                               param_value_size_ret);
    return emu_driver->clGetImageInfo(emu_real_of(image), param_name, param_value_size, param_value,
                                      param_value_size_ret);
}

cl_int emu_do_clSetMemObjectDestructorCallback(struct emu_device *device, cl_mem memobj,
                                               void(CL_CALLBACK *pfn_notify)(cl_mem memobj,
                                                                             void *user_data),
                                               void *user_data)
{
    (void)device;
    return emu_object_on_destroy(emu_object_of(memobj), (void (*)(void))pfn_notify, user_data);
}

/* What a map carries over before the program may look. */
static cl_int map_wait(struct emu_device *device, cl_map_flags flags, uint64_t bytes)
{
    bool carries = !device->config.host_unified && (flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0;
    return carries ? emu_link_wait(device, EMU_LINK_OUT, bytes) : CL_SUCCESS;
}

static void map_remember(struct emu_map *map, cl_mem memobj, void *ptr, uint64_t bytes,
                         cl_map_flags flags)
{
    struct emu_mem *mem = (struct emu_mem *)memobj;
    if (ptr == NULL) {
        free(map);
        return;
    }
    map->ptr = ptr;
    map->bytes = bytes;
    map->writes = (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0;
    pthread_mutex_lock(&maps_lock);
    map->next = mem->maps;
    mem->maps = map;
    pthread_mutex_unlock(&maps_lock);
}

/* Of a buffer that is a copy of the program's memory. */
static void *map_copy(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                      size_t offset, size_t size, cl_uint waits, const cl_event *wait_list,
                      cl_event *ret_event, cl_int *errcode_ret)
{
    char *ptr = ((struct emu_mem *)buffer)->host + offset;
    cl_command_queue real = emu_real_of(queue);
    size_t whole = 0;
    *errcode_ret = emu_driver->clGetMemObjectInfo(emu_real_of(buffer), CL_MEM_SIZE, sizeof(whole),
                                                  &whole, NULL);
    if (*errcode_ret == CL_SUCCESS && (offset > whole || size > whole - offset))
        *errcode_ret = CL_INVALID_VALUE;
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    if ((flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0)
        *errcode_ret = emu_driver->clEnqueueReadBuffer(real, emu_real_of(buffer), blocking, offset,
                                                       size, ptr, waits, wait_list, ret_event);
    else if (blocking)
        *errcode_ret = emu_driver->clFinish(real);
    if (*errcode_ret == CL_SUCCESS && (flags & CL_MAP_WRITE_INVALIDATE_REGION) != 0 && ret_event) {
        *ret_event = emu_driver->clCreateUserEvent(
            emu_real_of((cl_context)emu_object_of(queue)->context), errcode_ret);
        if (*errcode_ret == CL_SUCCESS)
            *errcode_ret = emu_driver->clSetUserEventStatus(*ret_event, CL_COMPLETE);
    }
    return *errcode_ret == CL_SUCCESS ? ptr : NULL;
}

void *emu_do_clEnqueueMapBuffer(struct emu_device *device, cl_command_queue command_queue,
                                cl_mem buffer, cl_bool blocking_map, cl_map_flags map_flags,
                                size_t offset, size_t cb, cl_uint num_events_in_wait_list,
                                const cl_event *event_wait_list, cl_event *event,
                                cl_int *errcode_ret)
{
    struct emu_list waits CLEANUP(emu_list_finish);
    struct emu_object *made = NULL;
    cl_event real_event = NULL;
    *errcode_ret = emu_list_init(&waits, num_events_in_wait_list, event_wait_list, EMU_EVENT);
    if (*errcode_ret == CL_SUCCESS)
        *errcode_ret = map_wait(device, map_flags, cb);
    if (*errcode_ret == CL_SUCCESS)
        *errcode_ret = emu_event_prepare(device, event, command_queue, &made);
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    struct emu_map *map = calloc(1, sizeof(*map));
    void *ptr = NULL;
    *errcode_ret = map != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (map != NULL && ((struct emu_mem *)buffer)->host != NULL)
        ptr = map_copy(command_queue, buffer, blocking_map, map_flags, offset, cb,
                       num_events_in_wait_list, (const cl_event *)(const void *)waits.real,
                       event != NULL ? &real_event : NULL, errcode_ret);
    else if (map != NULL)
        ptr = emu_driver->clEnqueueMapBuffer(
            emu_real_of(command_queue), emu_real_of(buffer), blocking_map, map_flags, offset, cb,
            num_events_in_wait_list, (const cl_event *)(const void *)waits.real,
            event != NULL ? &real_event : NULL, errcode_ret);
    emu_event_publish(made, real_event, *errcode_ret, event);
    map_remember(map, buffer, ptr, cb, map_flags);
    return ptr;
}

void *emu_do_clEnqueueMapImage(struct emu_device *device, cl_command_queue command_queue,
                               cl_mem image, cl_bool blocking_map, cl_map_flags map_flags,
                               const size_t *origin, const size_t *region, size_t *image_row_pitch,
                               size_t *image_slice_pitch, cl_uint num_events_in_wait_list,
                               const cl_event *event_wait_list, cl_event *event,
                               cl_int *errcode_ret)
{
    struct emu_list waits CLEANUP(emu_list_finish);
    struct emu_object *made = NULL;
    cl_event real_event = NULL;
    uint64_t bytes = emu_region_bytes(region, image);
    *errcode_ret = emu_list_init(&waits, num_events_in_wait_list, event_wait_list, EMU_EVENT);
    if (*errcode_ret == CL_SUCCESS)
        *errcode_ret = map_wait(device, map_flags, bytes);
    if (*errcode_ret == CL_SUCCESS)
        *errcode_ret = emu_event_prepare(device, event, command_queue, &made);
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    struct emu_map *map = calloc(1, sizeof(*map));
    void *ptr = NULL;
    *errcode_ret = map != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (map != NULL)
        ptr = emu_driver->clEnqueueMapImage(
            emu_real_of(command_queue), emu_real_of(image), blocking_map, map_flags, origin, region,
            image_row_pitch, image_slice_pitch, num_events_in_wait_list,
            (const cl_event *)(const void *)waits.real, event != NULL ? &real_event : NULL,
            errcode_ret);
    emu_event_publish(made, real_event, *errcode_ret, event);
    map_remember(map, image, ptr, bytes, map_flags);
    return ptr;
}

/* Take the newest map at @ptr off the object. NULL when there is none. */
static struct emu_map *map_forget(struct emu_mem *mem, const void *ptr)
{
    pthread_mutex_lock(&maps_lock);
    struct emu_map **at = &mem->maps;
    while (*at != NULL && (*at)->ptr != ptr)
        at = &(*at)->next;
    struct emu_map *map = *at;
    if (map != NULL)
        *at = map->next;
    pthread_mutex_unlock(&maps_lock);
    return map;
}

static cl_int unmap_copy(cl_command_queue queue, cl_mem buffer, const struct emu_map *map,
                         cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{
    const char *host = ((struct emu_mem *)buffer)->host;
    if (map == NULL)
        return CL_INVALID_VALUE;
    if (!map->writes)
        return emu_driver->clEnqueueMarkerWithWaitList(emu_real_of(queue), waits, wait_list,
                                                       ret_event);
    return emu_driver->clEnqueueWriteBuffer(emu_real_of(queue), emu_real_of(buffer), CL_FALSE,
                                            (size_t)((const char *)map->ptr - host), map->bytes,
                                            map->ptr, waits, wait_list, ret_event);
}

cl_int emu_do_clEnqueueUnmapMemObject(struct emu_device *device, cl_command_queue command_queue,
                                      cl_mem memobj, void *mapped_ptr,
                                      cl_uint num_events_in_wait_list,
                                      const cl_event *event_wait_list, cl_event *event)
{
    struct emu_list waits CLEANUP(emu_list_finish);
    struct emu_object *made = NULL;
    cl_event real_event = NULL;
    cl_int err = emu_list_init(&waits, num_events_in_wait_list, event_wait_list, EMU_EVENT);
    if (err == CL_SUCCESS)
        err = emu_event_prepare(device, event, command_queue, &made);
    if (err != CL_SUCCESS)
        return err;
    struct emu_map *map = map_forget((struct emu_mem *)memobj, mapped_ptr);
    if (map != NULL && map->writes && !device->config.host_unified)
        err = emu_link_wait(device, EMU_LINK_IN, map->bytes);
    if (err == CL_SUCCESS && ((struct emu_mem *)memobj)->host != NULL)
        err = unmap_copy(command_queue, memobj, map, num_events_in_wait_list,
                         (const cl_event *)(const void *)waits.real,
                         event != NULL ? &real_event : NULL);
    else if (err == CL_SUCCESS)
        err = emu_driver->clEnqueueUnmapMemObject(
            emu_real_of(command_queue), emu_real_of(memobj), mapped_ptr, num_events_in_wait_list,
            (const cl_event *)(const void *)waits.real, event != NULL ? &real_event : NULL);
    free(map);
    emu_event_publish(made, real_event, err, event);
    return err;
}
