#include "state/program/sampler.h"

#include "interpose/entry/entry.h"
#include "state/object/lost.h"

static cl_int entry_sampler_create(struct context *context, const struct sampler_choice *choice,
                                   const cl_sampler_properties *properties,
                                   struct sampler **ret_sampler)
{
    if (!devinfo_scalar(&the_present.device, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE))
        return CL_INVALID_OPERATION;
    cl_int error = sampler_check(choice);
    if (error != CL_SUCCESS)
        return error;
    unsigned tries = 0;
    do
        error = sampler_create(
            context, (cl_bool)choice->normalized, (cl_addressing_mode)choice->addressing,
            (cl_filter_mode)choice->filter, properties, properties_count(properties), ret_sampler);
    while (error != CL_SUCCESS && context_outlives(context, error, &tries));
    return error;
}

cl_sampler clCreateSampler(cl_context context, cl_bool normalized_coords,
                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                           cl_int *errcode_ret)
{
    const struct sampler_choice choice = {normalized_coords, addressing_mode, filter_mode};
    struct sampler *sampler = NULL;
    struct context *c = context_get(context);
    cl_int error = c ? entry_sampler_create(c, &choice, NULL, &sampler) : CL_INVALID_CONTEXT;
    return created(sampler, error, errcode_ret);
}

cl_sampler clCreateSamplerWithProperties(cl_context context,
                                         const cl_sampler_properties *sampler_properties,
                                         cl_int *errcode_ret)
{
    struct sampler_choice choice;
    struct sampler *sampler = NULL;
    struct context *c = context_get(context);
    cl_int error = c ? sampler_properties_read(sampler_properties, &choice) : CL_INVALID_CONTEXT;
    if (error == CL_SUCCESS)
        error = entry_sampler_create(c, &choice, sampler_properties, &sampler);
    return created(sampler, error, errcode_ret);
}
