#ifndef RESEAT_STATE_OPENCL_CREATE_H
#define RESEAT_STATE_OPENCL_CREATE_H

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/opencl/image.h"

/*
 * What the specification asks of the parameters of calls that create objects, for the library and
 * the remote driver. Pure.
 */

/** A list of pairs copied, for the caller to free; NULL for NULL or without memory. @ret_count:
 * its elements, the 0 at its end included; 0: there is no copy. */
void *properties_copy(const void *list, size_t *ret_count);

/**
 * 4.4: each property once, each known, each value valid.
 *
 * @is_platform  Is it a valid handle?
 * @ret_platform  The one that is named, or NULL.
 */
cl_int context_properties_check(const cl_context_properties *list,
                                bool (*is_platform)(cl_platform_id platform),
                                cl_platform_id *ret_platform);

/** What options_standard() returns for C++ for OpenCL, and for what is not known. */
#define OPTIONS_OTHER_LANGUAGE UINT32_MAX
/** 5.8.6.4: the version of OpenCL C that the options of a build ask for. 0: none. Of several the
 * latest: some compilers take the first, others the last. @options: or NULL. */
cl_version options_standard(const char *options);

/** What queues of a device may have. */
struct queue_offer {
    cl_command_queue_properties properties;
    bool priorities, throttles; /**< cl_khr_priority_hints, cl_khr_throttle_hints. */
};
/**
 * 5.1: the properties of a new queue. Queues on the device are never offered.
 *
 * @list  Of clCreateCommandQueueWithProperties, each property once; or NULL.
 * @all   Those of clCreateCommandQueue; set to those of the list if there is one.
 */
cl_int queue_properties_read(const cl_queue_properties *list, const struct queue_offer *offer,
                             cl_command_queue_properties *all);

/** What a sampler is made of (5.7.1). */
struct sampler_choice {
    cl_sampler_properties normalized, addressing, filter;
};
/** The list of clCreateSamplerWithProperties over the defaults. Each property once. */
cl_int sampler_properties_read(const cl_sampler_properties *list,
                               struct sampler_choice *ret_choice);
cl_int sampler_check(const struct sampler_choice *choice);

#define MEMORY_ACCESS  (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)
#define MEMORY_HOST    (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)
#define MEMORY_POINTER (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)
/** All of clCreateBuffer. */
#define MEMORY_FLAGS (MEMORY_ACCESS | MEMORY_HOST | MEMORY_POINTER)
/** All of clCreateImage. */
#define IMAGE_FLAGS (MEMORY_FLAGS | CL_MEM_KERNEL_READ_AND_WRITE)

/** 5.2.1: no flag but @offered, and none of those that exclude each other. */
static inline bool memory_flags_valid(cl_mem_flags flags, cl_mem_flags offered)
{
    cl_mem_flags access = flags & MEMORY_ACCESS, host = flags & MEMORY_HOST;
    return (flags & ~offered) == 0 && (access & (access - 1)) == 0 && (host & (host - 1)) == 0 &&
           !((flags & CL_MEM_USE_HOST_PTR) &&
             (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)));
}
/** 5.3.2.1: the parameters of clGetSupportedImageFormats.
 *
 * @ret_access  The access that the flags ask for, by which lists of formats are kept.
 */
cl_int image_formats_check(cl_mem_flags flags, cl_mem_object_type type, cl_uint entries,
                           const cl_image_format *formats, cl_mem_flags *ret_access);
/** What it answers of @all. */
cl_int image_formats_answer(const cl_image_format *all, cl_uint count, cl_uint entries,
                            cl_image_format *formats, cl_uint *ret_count);
/** 5.2.1: a pointer is given where the flags say so, and nowhere else. */
static inline bool memory_host_ptr_valid(cl_mem_flags flags, const void *host_ptr)
{
    return (host_ptr != NULL) == ((flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0);
}
/** 5.2.1 and 5.3.1, of sub-buffers and images made from an object with flags @source: what is not
 * said is inherited, and must not widen what the source has. @own: the flags that they may say. */
bool memory_flags_inherit(cl_mem_flags source, cl_mem_flags own, cl_mem_flags *flags);
/** 5.2.1, of a region of a buffer of @size bytes. @alignment: of its origin, in bytes; 0: any. */
cl_int sub_buffer_check(size_t size, cl_buffer_create_type type, const void *info,
                        size_t alignment);

/**
 * 5.3.1: extents of each type of image, which has none of the others.
 *
 * @most  The largest value of a device limit, for @whose.
 * Returns CL_SUCCESS, CL_INVALID_IMAGE_DESCRIPTOR (no such type, or an extent of 0) or
 * CL_INVALID_IMAGE_SIZE.
 */
cl_int image_extents_check(const cl_image_desc *desc,
                           uint64_t (*most)(const void *whose, cl_device_info limit),
                           const void *whose);

/** The object that an image is made from; or none. */
struct image_parent {
    bool is_valid; /**< A memory object of the image's context. */
    cl_mem_flags flags;
    size_t size;
    const struct image_shape *shape; /**< NULL of a buffer. */
};

/**
 * 5.3.1: an image's descriptor, what it is made from and its host pointer.
 *
 * @flags   Those that the image inherits are added.
 * @source  What desc->mem_object names; not looked at where that is NULL.
 */
cl_int image_parent_check(const cl_image_desc *desc, size_t element_size, const void *host_ptr,
                          const struct image_parent *source, cl_mem_flags *flags);

#endif
