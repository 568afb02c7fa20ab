#include "policy/reseat_limits.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

static const struct feature {
    uint32_t bit;
    const char *name;
    size_t offset; /* Of the flag in struct plan_use. */
} features[] = {
    {RESEAT_FP64, "fp64", offsetof(struct plan_use, fp64)},
    {RESEAT_FP16, "fp16", offsetof(struct plan_use, fp16)},
    {RESEAT_IMAGES, "images", offsetof(struct plan_use, images)},
    {RESEAT_INT64_ATOMICS, "int64-atomics", offsetof(struct plan_use, int64_atomics)},
    {RESEAT_SUBGROUPS, "subgroups", offsetof(struct plan_use, subgroups)},
    {RESEAT_IL, "il", offsetof(struct plan_use, il)},
};

void reseat_limits_plan(const struct reseat_limits *asked, struct plan_use *ret_use)
{
    *ret_use = (struct plan_use){
        .stated = true,
        .device_memory = asked->memory,
        .largest_object = asked->allocation,
        .local_memory = asked->local_memory,
        .work_group_size = asked->work_group_size,
        .compute_units = asked->compute_units,
    };
    for (size_t i = 0; i < COUNT_OF(features); i++) {
        bool *flag = (bool *)((char *)ret_use + features[i].offset);

        *flag = asked->features & features[i].bit;
    }
}

void reseat_limits_offered(const struct plan_offer *offer, struct reseat_limits *ret_limits)
{
    *ret_limits = (struct reseat_limits){
        .memory = offer->memory_available,
        .allocation = offer->limits.largest_object,
        .local_memory = offer->limits.local_memory,
        .work_group_size = offer->limits.work_group_size,
        .compute_units = offer->limits.compute_units,
    };
    for (size_t i = 0; i < COUNT_OF(features); i++) {
        const bool *flag = (const bool *)((const char *)&offer->limits + features[i].offset);

        ret_limits->features |= *flag ? features[i].bit : 0;
    }
}

const char *reseat_limits_feature(size_t index, uint32_t *ret_bit)
{
    if (index >= COUNT_OF(features))
        return NULL;
    *ret_bit = features[index].bit;
    return features[index].name;
}
