#include "state/program/sampler.h"

#include <stdlib.h>

static void sampler_leave(struct object *object)
{
    struct sampler *sampler = (struct sampler *)object;
    for (uint8_t residence_index = 0; residence_index < sampler->context->residences;
         residence_index++)
        if (sampler->real[residence_index])
            sampler->context->at[residence_index]->cl->clReleaseSampler(
                sampler->real[residence_index]);
}

static void sampler_destroy(struct object *object)
{
    struct sampler *sampler = (struct sampler *)object;
    free(sampler->real);
    free(sampler->properties);
    object_unhold(sampler->context);
}

static void sampler_release_real(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)kept;
    cl->clReleaseSampler(real);
}

static cl_int sampler_prepare(struct object *object, struct move_context *move)
{
    return move_is_busy(move)
               ? CL_SUCCESS
               : sampler_make_real((struct sampler *)object, move->context->at[move->to], move->to);
}

static void sampler_vacate(struct object *object, const struct move_context *move,
                           uint8_t residence_index)
{
    struct sampler *sampler = (struct sampler *)object;
    if (!move_empties(move, residence_index))
        return;
    residence_retire(sampler->context->at[residence_index], OBJECT_SAMPLER,
                     sampler->real[residence_index], NULL);
    sampler->real[residence_index] = NULL;
}

OBJECT_CLASS(sampler_class) = {
    .type = OBJECT_SAMPLER,
    .size = sizeof(struct sampler),
    .leave = sampler_leave,
    .destroy = sampler_destroy,
    .release = sampler_release_real,
    .context = offsetof(struct sampler, context),
    .name = "a sampler",
    .make_real = sampler_prepare,
    .vacate = sampler_vacate,
};

cl_int sampler_make_real(struct sampler *sampler, struct residence *residence,
                         uint8_t residence_index)
{
    cl_int error = CL_SUCCESS;
    if (!sampler->real[residence_index])
        sampler->real[residence_index] = residence->cl->clCreateSampler(
            residence->context, sampler->normalized, sampler->addressing, sampler->filter, &error);
    return error;
}

cl_int sampler_create(struct context *context, const struct sampler_choice *choice,
                      const cl_sampler_properties *list, struct sampler **ret_sampler)
{
    struct sampler *sampler = object_create(OBJECT_SAMPLER);
    if (!sampler)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    sampler->context = context;
    sampler->normalized = (cl_bool)choice->normalized;
    sampler->addressing = (cl_addressing_mode)choice->addressing;
    sampler->filter = (cl_filter_mode)choice->filter;
    object_hold(context);
    sampler->real = calloc(context->residences, sizeof(cl_sampler));
    sampler->properties = properties_copy(list, &sampler->property_count);
    if (!sampler->real || (list && !sampler->properties))
        goto failed;
    context_enter(context);
    uint8_t residence_index = context_home(context);
    error = sampler_make_real(sampler, context->at[residence_index], residence_index);
    if (error == CL_SUCCESS)
        object_publish(sampler);
    gate_leave();
    if (error != CL_SUCCESS)
        goto failed;
    *ret_sampler = sampler;
    return CL_SUCCESS;
failed:
    sampler_destroy(&sampler->object);
    object_discard(sampler);
    return error;
}
