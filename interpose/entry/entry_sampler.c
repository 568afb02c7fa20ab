#include "state/program/sampler.h"

#include "interpose/entry/entry.h"
#include "state/object/lost.h"

static cl_int entry_sampler_create_sampler(cl_context context,
                                           const cl_sampler_properties *properties,
                                           size_t property_count, cl_bool normalized,
                                           cl_addressing_mode addressing, cl_filter_mode filter,
                                           struct sampler **ret_sampler)
{
    struct context *c = context_get(context);
    if (!c)
        return CL_INVALID_CONTEXT;
    if (!devinfo_scalar(&the_present.device, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE))
        return CL_INVALID_OPERATION;
    /* 5.7.1: repeating is defined for normalised coordinates only. */
    if ((normalized != CL_FALSE && normalized != CL_TRUE) || addressing < CL_ADDRESS_NONE ||
        addressing > CL_ADDRESS_MIRRORED_REPEAT ||
        (filter != CL_FILTER_NEAREST && filter != CL_FILTER_LINEAR) ||
        (!normalized &&
         (addressing == CL_ADDRESS_REPEAT || addressing == CL_ADDRESS_MIRRORED_REPEAT)))
        return CL_INVALID_VALUE;
    unsigned tries = 0;
    cl_int error;
    do
        error = sampler_create(c, normalized, addressing, filter, properties, property_count,
                               ret_sampler);
    while (error != CL_SUCCESS && context_outlives(c, error, &tries));
    return error;
}

cl_sampler clCreateSampler(cl_context context, cl_bool normalized_coords,
                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                           cl_int *errcode_ret)
{
    struct sampler *sampler = NULL;
    cl_int error = entry_sampler_create_sampler(context, NULL, 0, normalized_coords,
                                                addressing_mode, filter_mode, &sampler);
    return created(sampler, error, errcode_ret);
}

/* What the list says, over the defaults of 5.7.1. Each property once. */
struct sampler_choice {
    cl_sampler_properties normalized, addressing, filter;
    size_t count;
};

static bool entry_sampler_read_properties(const cl_sampler_properties *list,
                                          struct sampler_choice *choice)
{
    unsigned seen = 0;
    size_t at = 0;
    for (; list && list[at] != 0; at += 2) {
        switch (list[at]) {
        case CL_SAMPLER_NORMALIZED_COORDS:
            choice->normalized = list[at + 1];
            break;
        case CL_SAMPLER_ADDRESSING_MODE:
            choice->addressing = list[at + 1];
            break;
        case CL_SAMPLER_FILTER_MODE:
            choice->filter = list[at + 1];
            break;
        default:
            return false;
        }
        unsigned bit = 1u << (list[at] - CL_SAMPLER_NORMALIZED_COORDS);
        if ((seen & bit) || list[at + 1] > UINT32_MAX)
            return false;
        seen |= bit;
    }
    choice->count = list ? at + 1 : 0;
    return true;
}

cl_sampler clCreateSamplerWithProperties(cl_context context,
                                         const cl_sampler_properties *sampler_properties,
                                         cl_int *errcode_ret)
{
    struct sampler *sampler = NULL;
    struct sampler_choice choice = {CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, 0};
    cl_int error = CL_INVALID_CONTEXT;
    if (context_get(context))
        error = entry_sampler_read_properties(sampler_properties, &choice)
                    ? entry_sampler_create_sampler(context, sampler_properties, choice.count,
                                                   (cl_bool)choice.normalized,
                                                   (cl_addressing_mode)choice.addressing,
                                                   (cl_filter_mode)choice.filter, &sampler)
                    : CL_INVALID_VALUE;
    return created(sampler, error, errcode_ret);
}
