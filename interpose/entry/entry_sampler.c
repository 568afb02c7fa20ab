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
        error = sampler_create(context, choice, properties, ret_sampler);
    while (error != CL_SUCCESS && context_outlives(context, error, &tries));
    return error;
}

cl_int sampler_create_with_values(struct context *context, cl_bool normalized,
                                  cl_addressing_mode addressing, cl_filter_mode filter,
                                  struct sampler **ret_sampler)
{
    const struct sampler_choice choice = {normalized, addressing, filter};
    return entry_sampler_create(context, &choice, NULL, ret_sampler);
}

cl_int sampler_create_with_list(struct context *context, const cl_sampler_properties *properties,
                                struct sampler **ret_sampler)
{
    struct sampler_choice choice;
    cl_int error = sampler_properties_read(properties, &choice);
    return error ? error : entry_sampler_create(context, &choice, properties, ret_sampler);
}
