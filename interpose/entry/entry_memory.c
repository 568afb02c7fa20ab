#include "interpose/entry/entry.h"
#include "state/memory/memory.h"

/* 5.2.1: of what the program was told. More than the device has where it is now is no error. */
static cl_int entry_memory_create_buffer(cl_context context, const cl_mem_properties *properties,
                                         cl_mem_flags flags, size_t size, void *host_ptr,
                                         struct memory **ret_memory)
{
    struct context *c = context_get(context);
    if (UNLIKELY(!c))
        return CL_INVALID_CONTEXT;
    if (UNLIKELY(size > limits_allocation(c)))
        return CL_INVALID_BUFFER_SIZE;
    return memory_create_buffer(c, properties, flags, size, host_ptr, ret_memory);
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties,
                                    cl_mem_flags flags, size_t size, void *host_ptr,
                                    cl_int *errcode_ret)
{
    struct memory *memory = NULL;
    cl_int error = entry_memory_create_buffer(context, properties, flags, size, host_ptr, &memory);
    return created(memory, error, errcode_ret);
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags,
                         cl_buffer_create_type buffer_create_type, const void *buffer_create_info,
                         cl_int *errcode_ret)
{
    struct memory *memory = NULL;
    struct memory *parent = memory_get(buffer);
    cl_int error = CL_INVALID_MEM_OBJECT;
    if (parent)
        error = memory_create_sub_buffer(
            parent, flags, buffer_create_type, buffer_create_info,
            devinfo_scalar(&the_present.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 8) / 8, &memory);
    return created(memory, error, errcode_ret);
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
    return memory_add_destructor(memory, pfn_notify, user_data) == 0 ? CL_SUCCESS
                                                                     : CL_OUT_OF_HOST_MEMORY;
}

cl_int clReleaseMemObject(cl_mem memobj)
{
    struct memory *memory = memory_get(memobj);
    return memory && memory_release(memory) ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
}
