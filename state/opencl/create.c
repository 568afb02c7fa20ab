#include "state/opencl/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- lists of properties ---- */

_Static_assert(sizeof(cl_context_properties) == sizeof(cl_properties),
               "all lists of properties are copied alike");

void *properties_copy(const void *list, size_t *ret_count)
{
    const cl_properties *properties = list;
    size_t count = 0;
    while (properties && properties[count] != 0)
        count += 2;
    count += properties != NULL;
    void *copy = count ? malloc(count * sizeof(*properties)) : NULL;
    if (copy)
        memcpy(copy, list, count * sizeof(*properties));
    *ret_count = copy ? count : 0;
    return copy;
}

cl_int context_properties_check(const cl_context_properties *list,
                                bool (*is_platform)(cl_platform_id platform),
                                cl_platform_id *ret_platform)
{
    bool sync = false;
    *ret_platform = NULL;
    for (; list && list[0] != 0; list += 2) {
        switch (list[0]) {
        case CL_CONTEXT_PLATFORM:
            if (*ret_platform)
                return CL_INVALID_PROPERTY;
            if (!is_platform((cl_platform_id)list[1]))
                return CL_INVALID_PLATFORM;
            *ret_platform = (cl_platform_id)list[1];
            break;
        case CL_CONTEXT_INTEROP_USER_SYNC:
            if (sync || (list[1] != CL_FALSE && list[1] != CL_TRUE))
                return CL_INVALID_PROPERTY;
            sync = true;
            break;
        default:
            return CL_INVALID_PROPERTY;
        }
    }
    return CL_SUCCESS;
}

/* ---- programs ---- */

static cl_version options_standard_at(const char *text)
{
    unsigned major, minor;
    if (strncasecmp(text, "CL", 2) != 0)
        return 0;
    return sscanf(text + 2, "%4u.%4u", &major, &minor) == 2 && major < 1024 && minor < 1024
               ? CL_MAKE_VERSION(major, minor, 0)
               : OPTIONS_OTHER_LANGUAGE;
}

cl_version options_standard(const char *options)
{
    static const char flag[] = "-cl-std=";
    cl_version latest = 0;
    for (const char *at = options; at && (at = strstr(at, flag));) {
        at += strlen(flag);
        cl_version standard = options_standard_at(at);
        latest = standard > latest ? standard : latest;
    }
    return latest;
}

/* ---- queues ---- */

#define QUEUE_HOST   (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)
#define QUEUE_DEVICE (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT)

static cl_int queue_offered(cl_command_queue_properties bits, const struct queue_offer *offer)
{
    if (bits & ~(cl_command_queue_properties)(QUEUE_HOST | QUEUE_DEVICE))
        return CL_INVALID_VALUE;
    return bits & ~(offer->properties & QUEUE_HOST) ? CL_INVALID_QUEUE_PROPERTIES : CL_SUCCESS;
}

static cl_int queue_bits_check(cl_command_queue_properties bits, const struct queue_offer *offer)
{
    /* Queues on the device are the other call's. */
    return bits & QUEUE_DEVICE ? CL_INVALID_VALUE : queue_offered(bits, offer);
}

/* 5.1, the table of properties: which of those of queues on the device go with which. */
static bool queue_bits_agree(cl_command_queue_properties bits, bool has_size)
{
    if (bits & CL_QUEUE_ON_DEVICE)
        return (bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    return !has_size && !(bits & CL_QUEUE_ON_DEVICE_DEFAULT);
}

/* A priority or a throttle: the values of both are the same three numbers. */
static bool queue_is_hint(cl_queue_properties value)
{
    return value == CL_QUEUE_PRIORITY_LOW_KHR || value == CL_QUEUE_PRIORITY_MED_KHR ||
           value == CL_QUEUE_PRIORITY_HIGH_KHR;
}

cl_int queue_properties_read(const cl_queue_properties *list, const struct queue_offer *offer,
                             cl_command_queue_properties *all)
{
    if (!list)
        return queue_bits_check(*all, offer);
    enum { BITS = 1, PRIORITY = 2, THROTTLE = 4, SIZE = 8 };
    cl_command_queue_properties bits = 0;
    unsigned seen = 0;
    for (; list[0] != 0; list += 2) {
        unsigned kind = list[0] == CL_QUEUE_PROPERTIES     ? BITS
                        : list[0] == CL_QUEUE_PRIORITY_KHR ? PRIORITY
                        : list[0] == CL_QUEUE_THROTTLE_KHR ? THROTTLE
                        : list[0] == CL_QUEUE_SIZE         ? SIZE
                                                           : 0;
        if (kind == 0 || (seen & kind) ||
            (kind == PRIORITY && !(offer->priorities && queue_is_hint(list[1]))) ||
            (kind == THROTTLE && !(offer->throttles && queue_is_hint(list[1]))))
            return CL_INVALID_VALUE;
        seen |= kind;
        if (kind == BITS)
            bits = list[1];
    }
    if (!queue_bits_agree(bits, seen & SIZE))
        return CL_INVALID_VALUE;
    cl_int error = queue_offered(bits, offer);
    if (error == CL_SUCCESS)
        *all = bits;
    return error;
}

/* ---- samplers ---- */

cl_int sampler_properties_read(const cl_sampler_properties *list, struct sampler_choice *ret_choice)
{
    struct sampler_choice choice = {CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST};
    unsigned seen = 0;
    for (; list && list[0] != 0; list += 2) {
        cl_sampler_properties *value = list[0] == CL_SAMPLER_NORMALIZED_COORDS ? &choice.normalized
                                       : list[0] == CL_SAMPLER_ADDRESSING_MODE ? &choice.addressing
                                       : list[0] == CL_SAMPLER_FILTER_MODE     ? &choice.filter
                                                                               : NULL;
        if (!value || list[1] > UINT32_MAX)
            return CL_INVALID_VALUE;
        unsigned bit = 1u << (list[0] - CL_SAMPLER_NORMALIZED_COORDS);
        if (seen & bit)
            return CL_INVALID_VALUE;
        seen |= bit;
        *value = list[1];
    }
    *ret_choice = choice;
    return CL_SUCCESS;
}

cl_int sampler_check(const struct sampler_choice *choice)
{
    /* 5.7.1: repeating is defined for normalised coordinates only. */
    bool repeats =
        choice->addressing == CL_ADDRESS_REPEAT || choice->addressing == CL_ADDRESS_MIRRORED_REPEAT;
    return choice->normalized > CL_TRUE || choice->addressing < CL_ADDRESS_NONE ||
                   choice->addressing > CL_ADDRESS_MIRRORED_REPEAT ||
                   (choice->filter != CL_FILTER_NEAREST && choice->filter != CL_FILTER_LINEAR) ||
                   (!choice->normalized && repeats)
               ? CL_INVALID_VALUE
               : CL_SUCCESS;
}

/* ---- memory objects ---- */

bool memory_flags_inherit(cl_mem_flags source, cl_mem_flags own, cl_mem_flags *flags)
{
    cl_mem_flags access = *flags & MEMORY_ACCESS, host = *flags & MEMORY_HOST;
    if (!memory_flags_valid(*flags, own) ||
        ((source & CL_MEM_WRITE_ONLY) && (access & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))) ||
        ((source & CL_MEM_READ_ONLY) && (access & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))) ||
        ((source & CL_MEM_HOST_WRITE_ONLY) && (host & CL_MEM_HOST_READ_ONLY)) ||
        ((source & CL_MEM_HOST_READ_ONLY) && (host & CL_MEM_HOST_WRITE_ONLY)) ||
        ((source & CL_MEM_HOST_NO_ACCESS) &&
         (host & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY))))
        return false;
    *flags = (access ? access : source & MEMORY_ACCESS) | (host ? host : source & MEMORY_HOST) |
             (source & MEMORY_POINTER) | (*flags & CL_MEM_KERNEL_READ_AND_WRITE);
    return true;
}

cl_int sub_buffer_check(size_t size, cl_buffer_create_type type, const void *info, size_t alignment)
{
    const cl_buffer_region *region = info;
    if (type != CL_BUFFER_CREATE_TYPE_REGION || !region)
        return CL_INVALID_VALUE;
    if (region->size == 0)
        return CL_INVALID_BUFFER_SIZE;
    if (region->origin > size || region->size > size - region->origin)
        return CL_INVALID_VALUE;
    return alignment != 0 && region->origin % alignment != 0 ? CL_MISALIGNED_SUB_BUFFER_OFFSET
                                                             : CL_SUCCESS;
}

static const struct {
    cl_mem_object_type type;
    cl_device_info width, height, depth, layers; /* Limits; 0: the type has no such extent. */
} image_limits[] = {
    {CL_MEM_OBJECT_IMAGE1D, CL_DEVICE_IMAGE2D_MAX_WIDTH, 0, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, 0, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_DEVICE_IMAGE2D_MAX_WIDTH, 0, 0,
     CL_DEVICE_IMAGE_MAX_ARRAY_SIZE},
    {CL_MEM_OBJECT_IMAGE2D, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 0,
     CL_DEVICE_IMAGE_MAX_ARRAY_SIZE},
    {CL_MEM_OBJECT_IMAGE3D, CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_HEIGHT,
     CL_DEVICE_IMAGE3D_MAX_DEPTH, 0},
};

cl_int image_extents_check(const cl_image_desc *desc,
                           uint64_t (*most)(const void *whose, cl_device_info limit),
                           const void *whose)
{
    const size_t count = sizeof(image_limits) / sizeof(image_limits[0]);
    size_t i = 0;
    while (i < count && image_limits[i].type != desc->image_type)
        i++;
    if (i == count)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    const struct {
        size_t extent;
        cl_device_info limit;
    } extents[] = {
        {desc->image_width, image_limits[i].width},
        {desc->image_height, image_limits[i].height},
        {desc->image_depth, image_limits[i].depth},
        {desc->image_array_size, image_limits[i].layers},
    };
    for (size_t e = 0; e < sizeof(extents) / sizeof(extents[0]); e++) {
        if (extents[e].limit == 0)
            continue;
        if (extents[e].extent == 0)
            return CL_INVALID_IMAGE_DESCRIPTOR;
        if (extents[e].extent > most(whose, extents[e].limit))
            return CL_INVALID_IMAGE_SIZE;
    }
    return CL_SUCCESS;
}

cl_int image_parent_check(const cl_image_desc *desc, size_t element_size, const void *host_ptr,
                          const struct image_parent *source, cl_mem_flags *flags)
{
    bool over_buffer = desc->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
    const struct image_parent *from = desc->mem_object ? source : NULL;
    if (desc->num_mip_levels != 0 || desc->num_samples != 0 || (over_buffer && !from))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (from && (!from->is_valid || (over_buffer && from->shape) ||
                 (!over_buffer && desc->image_type != CL_MEM_OBJECT_IMAGE2D)))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (from ? host_ptr != NULL : !memory_host_ptr_valid(*flags, host_ptr))
        return CL_INVALID_HOST_PTR;
    if (from && !memory_flags_inherit(
                    from->flags, MEMORY_ACCESS | MEMORY_HOST | CL_MEM_KERNEL_READ_AND_WRITE, flags))
        return CL_INVALID_VALUE;
    return image_desc_valid(desc, element_size, host_ptr, from && !from->shape ? from->size : 0,
                            from ? from->shape : NULL)
               ? CL_SUCCESS
               : CL_INVALID_IMAGE_DESCRIPTOR;
}

cl_int image_formats_check(cl_mem_flags flags, cl_mem_object_type type, cl_uint entries,
                           const cl_image_format *formats, cl_mem_flags *ret_access)
{
    cl_mem_flags access = flags & (MEMORY_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE);
    /* It asks for more than CL_MEM_READ_WRITE, which may be given with it. */
    if (access & CL_MEM_KERNEL_READ_AND_WRITE)
        access &= ~(cl_mem_flags)CL_MEM_READ_WRITE;
    if (!memory_flags_valid(flags, IMAGE_FLAGS) || access & (access - 1) ||
        type < CL_MEM_OBJECT_IMAGE2D || type > CL_MEM_OBJECT_IMAGE1D_BUFFER ||
        (formats && entries == 0))
        return CL_INVALID_VALUE;
    *ret_access = access ? access : CL_MEM_READ_WRITE;
    return CL_SUCCESS;
}

cl_int image_formats_answer(const cl_image_format *all, cl_uint count, cl_uint entries,
                            cl_image_format *formats, cl_uint *ret_count)
{
    if (formats && count)
        memcpy(formats, all, (entries < count ? entries : count) * sizeof(*formats));
    if (ret_count)
        *ret_count = count;
    return CL_SUCCESS;
}
