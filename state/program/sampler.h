#ifndef RESEAT_STATE_PROGRAM_SAMPLER_H
#define RESEAT_STATE_PROGRAM_SAMPLER_H

#include "state/object/context.h"
#include "state/opencl/create.h"

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
/** @list: as the program gave it, or NULL. */
cl_int sampler_create(struct context *context, const struct sampler_choice *choice,
                      const cl_sampler_properties *list, struct sampler **ret_sampler);
/** Make real[residence_index]; inside the gate or by a mover. */
cl_int sampler_make_real(struct sampler *sampler, struct residence *residence,
                         uint8_t residence_index);

#endif
