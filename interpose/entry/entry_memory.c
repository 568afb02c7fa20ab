#include "interpose/entry/entry.h"
#include "state/memory/memory.h"

/* 5.2.1: the limit is the one that the program was told. A buffer that exceeds only the limit of
 * its present device is no error. */
cl_int buffer_create(struct context *context, const cl_mem_properties *properties,
                     cl_mem_flags flags, size_t size, void *host_ptr, struct memory **ret_memory)
{
    if (UNLIKELY(size > limits_allocation(context)))
        return CL_INVALID_BUFFER_SIZE;
    return memory_create_buffer(context, properties, flags, size, host_ptr, ret_memory);
}

cl_int sub_buffer_create(struct memory *buffer, cl_mem_flags flags, cl_buffer_create_type type,
                         const void *info, struct memory **ret_memory)
{
    size_t alignment = devinfo_scalar(&the_present.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 8) / 8;
    return memory_create_sub_buffer(buffer, flags, type, info, alignment, ret_memory);
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
