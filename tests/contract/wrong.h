#ifndef RESEAT_TESTS_CONTRACT_WRONG_H
#define RESEAT_TESTS_CONTRACT_WRONG_H

#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/opencl.h>
#include <stdint.h>

/* Random calls, most of them with one argument that is wrong, or may be. What each call answers is
 * printed, so that two implementations of OpenCL can be compared (wrong.py). */

/** One call. Its arguments follow from its number alone. */
struct wrong {
    const char *call;
    uint64_t random;
    unsigned odd;  /**< Arguments that are not simply right. */
    cl_uint count; /**< The last number of elements that was picked. */
    unsigned index;
    cl_uint one;
    cl_int errors[8]; /**< errcode_ret; from 1 on binary_status. */
    cl_event event;
    size_t sizes[3];
    cl_uint counts[2];
    void *handles[8];
    char line[2048];
    size_t length;
};

struct wrong_call {
    const char *name;
    void (*make)(struct wrong *w);
};
extern const struct wrong_call wrong_calls[];
extern const unsigned wrong_call_count;

/* Say what the call answered. */
void wrong_returned(struct wrong *w, cl_int error);
void wrong_made(struct wrong *w, const void *made);

/* Pick an argument of this type. @name: the parameter's. */
cl_platform_id wrong_cl_platform_id(struct wrong *w, const char *name);
cl_device_id wrong_cl_device_id(struct wrong *w, const char *name);
cl_context wrong_cl_context(struct wrong *w, const char *name);
cl_command_queue wrong_cl_command_queue(struct wrong *w, const char *name);
cl_mem wrong_cl_mem(struct wrong *w, const char *name);
cl_sampler wrong_cl_sampler(struct wrong *w, const char *name);
cl_program wrong_cl_program(struct wrong *w, const char *name);
cl_kernel wrong_cl_kernel(struct wrong *w, const char *name);
cl_event wrong_cl_event(struct wrong *w, const char *name);
void *wrong_callback(struct wrong *w, const char *name);
void *wrong_void_ptr(struct wrong *w, const char *name);
const void *wrong_const_void_ptr(struct wrong *w, const char *name);
size_t wrong_size_t(struct wrong *w, const char *name);
const size_t *wrong_const_size_t_ptr(struct wrong *w, const char *name);
size_t *wrong_size_t_ptr(struct wrong *w, const char *name);
cl_uint wrong_cl_uint(struct wrong *w, const char *name);
cl_uint *wrong_cl_uint_ptr(struct wrong *w, const char *name);
cl_int wrong_cl_int(struct wrong *w, const char *name);
cl_int *wrong_cl_int_ptr(struct wrong *w, const char *name);
cl_bool wrong_cl_bool(struct wrong *w, const char *name);
cl_event *wrong_cl_event_ptr(struct wrong *w, const char *name);
const cl_event *wrong_const_cl_event_ptr(struct wrong *w, const char *name);
const cl_mem *wrong_const_cl_mem_ptr(struct wrong *w, const char *name);
const cl_program *wrong_const_cl_program_ptr(struct wrong *w, const char *name);
const cl_device_id *wrong_const_cl_device_id_ptr(struct wrong *w, const char *name);
cl_device_id *wrong_cl_device_id_ptr(struct wrong *w, const char *name);
cl_platform_id *wrong_cl_platform_id_ptr(struct wrong *w, const char *name);
cl_kernel *wrong_cl_kernel_ptr(struct wrong *w, const char *name);
const char *wrong_const_char_ptr(struct wrong *w, const char *name);
const char **wrong_const_char_ptr_ptr(struct wrong *w, const char *name);
const unsigned char **wrong_const_unsigned_char_ptr_ptr(struct wrong *w, const char *name);
cl_image_format *wrong_cl_image_format_ptr(struct wrong *w, const char *name);
const cl_image_format *wrong_const_cl_image_format_ptr(struct wrong *w, const char *name);
const cl_image_desc *wrong_const_cl_image_desc_ptr(struct wrong *w, const char *name);
const void *wrong_properties(struct wrong *w, const char *name, unsigned kind);
/* One of @count numbers from @first on, or the one before or behind. */
uint64_t wrong_range(struct wrong *w, const char *name, uint64_t first, unsigned count);
cl_mem_flags wrong_cl_mem_flags(struct wrong *w, const char *name);
cl_device_type wrong_cl_device_type(struct wrong *w, const char *name);

#define wrong_const_cl_context_properties_ptr(w, name) wrong_properties(w, name, 0)
#define wrong_const_cl_queue_properties_ptr(w, name)   wrong_properties(w, name, 1)
#define wrong_const_cl_sampler_properties_ptr(w, name) wrong_properties(w, name, 2)
#define wrong_const_cl_mem_properties_ptr(w, name)     wrong_properties(w, name, 3)
#define wrong_cl_addressing_mode(w, name)              ((cl_uint)wrong_range(w, name, CL_ADDRESS_NONE, 5))
#define wrong_cl_filter_mode(w, name)                  ((cl_uint)wrong_range(w, name, CL_FILTER_NEAREST, 2))
#define wrong_cl_buffer_create_type(w, name)                                                       \
    ((cl_uint)wrong_range(w, name, CL_BUFFER_CREATE_TYPE_REGION, 1))
#define wrong_cl_mem_object_type(w, name)          ((cl_uint)wrong_range(w, name, CL_MEM_OBJECT_BUFFER, 8))
#define wrong_cl_map_flags(w, name)                wrong_range(w, name, 1, 3)
#define wrong_cl_mem_migration_flags(w, name)      wrong_range(w, name, 0, 4)
#define wrong_cl_command_queue_properties(w, name) wrong_range(w, name, 0, 4)
#define wrong_cl_context_info(w, name)                                                             \
    ((cl_uint)wrong_range(w, name, CL_CONTEXT_REFERENCE_COUNT, 4))
#define wrong_cl_command_queue_info(w, name) ((cl_uint)wrong_range(w, name, CL_QUEUE_CONTEXT, 7))
#define wrong_cl_mem_info(w, name)           ((cl_uint)wrong_range(w, name, CL_MEM_TYPE, 11))
#define wrong_cl_image_info(w, name)         ((cl_uint)wrong_range(w, name, CL_IMAGE_FORMAT, 11))
#define wrong_cl_sampler_info(w, name)                                                             \
    ((cl_uint)wrong_range(w, name, CL_SAMPLER_REFERENCE_COUNT, 5))
#define wrong_cl_program_info(w, name)                                                             \
    ((cl_uint)wrong_range(w, name, CL_PROGRAM_REFERENCE_COUNT, 12))
#define wrong_cl_program_build_info(w, name)                                                       \
    ((cl_uint)wrong_range(w, name, CL_PROGRAM_BUILD_STATUS, 5))
#define wrong_cl_kernel_info(w, name) ((cl_uint)wrong_range(w, name, CL_KERNEL_FUNCTION_NAME, 6))
#define wrong_cl_kernel_arg_info(w, name)                                                          \
    ((cl_uint)wrong_range(w, name, CL_KERNEL_ARG_ADDRESS_QUALIFIER, 5))
#define wrong_cl_kernel_work_group_info(w, name)                                                   \
    ((cl_uint)wrong_range(w, name, CL_KERNEL_WORK_GROUP_SIZE, 6))
#define wrong_cl_kernel_sub_group_info(w, name)                                                    \
    ((cl_uint)wrong_range(w, name, CL_KERNEL_MAX_NUM_SUB_GROUPS, 2))
#define wrong_cl_event_info(w, name) ((cl_uint)wrong_range(w, name, CL_EVENT_COMMAND_QUEUE, 5))
#define wrong_cl_profiling_info(w, name)                                                           \
    ((cl_uint)wrong_range(w, name, CL_PROFILING_COMMAND_QUEUED, 5))
#define wrong_cl_platform_info(w, name) ((cl_uint)wrong_range(w, name, CL_PLATFORM_PROFILE, 5))
#define wrong_cl_device_info(w, name)   ((cl_uint)wrong_range(w, name, CL_DEVICE_TYPE, 0x70))

#endif
