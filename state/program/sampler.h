#ifndef RESEAT_STATE_PROGRAM_SAMPLER_H
#define RESEAT_STATE_PROGRAM_SAMPLER_H

#include "state/object/context.h"

struct sampler {
    struct object object;
    cl_sampler *real;        /**< Owned; one for each of the context's residences. */
    struct context *context; /**< Held. */
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *properties; /**< As the program gave them, or NULL. Owned. */
    size_t property_count;
};

static inline struct sampler *sampler_get(cl_sampler handle)
{
    return object_get(handle, OBJECT_SAMPLER);
}
cl_int sampler_create(struct context *context, cl_bool normalized, cl_addressing_mode addressing,
                      cl_filter_mode filter, const cl_sampler_properties *properties,
                      size_t property_count, struct sampler **ret_sampler);
/** Make real[residence_index]; inside the gate or by a mover. */
cl_int sampler_make_real(struct sampler *sampler, struct residence *residence,
                         uint8_t residence_index);

#endif
