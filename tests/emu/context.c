#include <stdlib.h>
#include <string.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define PROPERTIES_MAX                                                                             \
    33 /* pairs and the terminating 0; more is not a list a program would pass                     \
        */

/* Copy @properties with our platform replaced by the driver's. */
static cl_int properties_unwrap(const cl_context_properties *properties,
                                cl_context_properties *ret_real, size_t *ret_count)
{
    size_t i = 0;
    for (; properties[i] != 0; i += 2) {
        if (i + 2 >= PROPERTIES_MAX)
            return CL_INVALID_PROPERTY;
        ret_real[i] = properties[i];
        ret_real[i + 1] = properties[i + 1];
        if (properties[i] == CL_CONTEXT_PLATFORM) {
            const void *platform = (const void *)properties[i + 1];
            cl_int err = emu_check(platform, EMU_PLATFORM);
            if (err != CL_SUCCESS)
                return err;
            ret_real[i + 1] = (cl_context_properties)emu_real_of(platform);
        }
    }
    ret_real[i] = 0;
    *ret_count = i + 1;
    return CL_SUCCESS;
}

/* The driver's devices, each once: several of ours may stand on one of them. */
static cl_uint devices_unwrap(struct emu_context *context, cl_device_id *ret_real)
{
    cl_uint count = 0;
    for (cl_uint i = 0; i < context->device_count; i++) {
        cl_device_id real = context->devices[i]->object.real;
        cl_uint at = 0;
        while (at < count && ret_real[at] != real)
            at++;
        if (at == count)
            ret_real[count++] = real;
    }
    return count;
}

cl_context
emu_do_clCreateContext(struct emu_device *device, const cl_context_properties *properties,
                       cl_uint num_devices, const cl_device_id *devices,
                       void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *),
                       void *user_data, cl_int *errcode_ret)
{
    cl_context_properties real_properties[PROPERTIES_MAX];
    cl_device_id real_devices[EMU_DEVICES_MAX];
    size_t count = 0;
    if (properties != NULL)
        *errcode_ret = properties_unwrap(properties, real_properties, &count);
    for (cl_uint i = 0; i < num_devices && *errcode_ret == CL_SUCCESS; i++)
        if (atomic_load(&emu_device_of(devices[i])->shared->vanished) != 0)
            *errcode_ret = CL_DEVICE_NOT_AVAILABLE;
    if (*errcode_ret == CL_SUCCESS && num_devices > EMU_DEVICES_MAX)
        *errcode_ret = CL_INVALID_VALUE;
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    struct emu_context *context = (struct emu_context *)emu_object_new(EMU_CONTEXT, device, NULL);
    if (context == NULL) {
        *errcode_ret = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    context->device_count = num_devices;
    for (cl_uint i = 0; i < num_devices; i++) {
        context->devices[i] = emu_device_of(devices[i]);
        emu_sleep_ms(context->devices[i]->config.context_ms);
    }
    if (properties != NULL) {
        context->properties_size = count * sizeof(*properties);
        context->properties = malloc(context->properties_size);
        if (context->properties == NULL)
            *errcode_ret = CL_OUT_OF_HOST_MEMORY;
        else
            memcpy(context->properties, properties, context->properties_size);
    }
    if (*errcode_ret == CL_SUCCESS)
        context->object.real = emu_driver->clCreateContext(
            properties != NULL ? real_properties : NULL, devices_unwrap(context, real_devices),
            real_devices, pfn_notify, user_data, errcode_ret);
    return emu_object_publish(&context->object, errcode_ret);
}

/* Handles of devices, as an answer. */
static cl_int info_devices(struct emu_device *const *devices, cl_uint count,
                           size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    return emu_info(devices, count * sizeof(devices[0]), param_value_size, param_value,
                    param_value_size_ret);
}

cl_int emu_do_clGetContextInfo(struct emu_device *device, cl_context handle,
                               cl_context_info param_name, size_t param_value_size,
                               void *param_value, size_t *param_value_size_ret)
{
    struct emu_context *context = (struct emu_context *)handle;
    (void)device;
    switch (param_name) {
    case CL_CONTEXT_REFERENCE_COUNT:
        return emu_info_refs(&context->object, param_value_size, param_value, param_value_size_ret);
    case CL_CONTEXT_NUM_DEVICES:
        return emu_info(&context->device_count, sizeof(context->device_count), param_value_size,
                        param_value, param_value_size_ret);
    case CL_CONTEXT_DEVICES:
        return info_devices(context->devices, context->device_count, param_value_size, param_value,
                            param_value_size_ret);
    case CL_CONTEXT_PROPERTIES:
        return emu_info(context->properties, context->properties_size, param_value_size,
                        param_value, param_value_size_ret);
    default:
        return emu_driver->clGetContextInfo(context->object.real, param_name, param_value_size,
                                            param_value, param_value_size_ret);
    }
}

cl_int emu_do_clSetContextDestructorCallback(struct emu_device *device, cl_context context,
                                             void(CL_CALLBACK *pfn_notify)(cl_context context,
                                                                           void *user_data),
                                             void *user_data)
{
    (void)device;
    return emu_object_on_destroy(emu_object_of(context), (void (*)(void))pfn_notify, user_data);
}

cl_int emu_do_clGetCommandQueueInfo(struct emu_device *device, cl_command_queue handle,
                                    cl_command_queue_info param_name, size_t param_value_size,
                                    void *param_value, size_t *param_value_size_ret)
{
    struct emu_object *queue = emu_object_of(handle);
    switch (param_name) {
    case CL_QUEUE_CONTEXT:
        return emu_info_handle(queue->parent, param_value_size, param_value, param_value_size_ret);
    case CL_QUEUE_DEVICE:
        return emu_info_handle(device, param_value_size, param_value, param_value_size_ret);
    case CL_QUEUE_DEVICE_DEFAULT:
        return emu_info_handle(NULL, param_value_size, param_value, param_value_size_ret);
    case CL_QUEUE_REFERENCE_COUNT:
        return emu_info_refs(queue, param_value_size, param_value, param_value_size_ret);
    default:
        return emu_driver->clGetCommandQueueInfo(queue->real, param_name, param_value_size,
                                                 param_value, param_value_size_ret);
    }
}

cl_int emu_do_clGetSamplerInfo(struct emu_device *device, cl_sampler handle,
                               cl_sampler_info param_name, size_t param_value_size,
                               void *param_value, size_t *param_value_size_ret)
{
    struct emu_object *sampler = emu_object_of(handle);
    (void)device;
    switch (param_name) {
    case CL_SAMPLER_CONTEXT:
        return emu_info_handle(sampler->parent, param_value_size, param_value,
                               param_value_size_ret);
    case CL_SAMPLER_REFERENCE_COUNT:
        return emu_info_refs(sampler, param_value_size, param_value, param_value_size_ret);
    default:
        return emu_driver->clGetSamplerInfo(sampler->real, param_name, param_value_size,
                                            param_value, param_value_size_ret);
    }
}
