#include <stdio.h>

#include "interpose/aware/aware_priv.h"
#include "policy/reseat_limits.h"
#include "state/budget/budget.h"
#include "state/driver/offer.h"
#include "state/present/presented.h"

/* What a program that registered is told about its devices. */

static uint32_t aware_device_kind_of(const struct devinfo *info)
{
    uint64_t type = devinfo_scalar(info, CL_DEVICE_TYPE, 0);
    return type & CL_DEVICE_TYPE_GPU           ? RESEAT_GPU
           : type & CL_DEVICE_TYPE_CPU         ? RESEAT_CPU
           : type & CL_DEVICE_TYPE_ACCELERATOR ? RESEAT_ACCELERATOR
                                               : RESEAT_OTHER;
}

void aware_describe(const struct device *device, struct reseat_device *ret_device)
{
    struct reseat_device told = {.size = sizeof(told), .granted = UINT64_MAX};
    if (device) {
        struct plan_offer offer;
        offer_from_devinfo(&device->info, &offer);
        told.kind = aware_device_kind_of(&device->info);
        snprintf(told.name, sizeof(told.name), "%s", device->key.device);
        reseat_limits_offered(&offer, &told.limits);
    }
    *ret_device = told;
}

uint64_t aware_granted(uint32_t vdev)
{
    struct budget_use use;
    budget_read(vdev, &use);
    return use.limited ? use.granted : UINT64_MAX;
}

/* The device whose answers a virtual device gives; NULL: the constant ones. */
static const struct device *_Atomic followed[VDEVS];

const struct device *aware_followed(uint32_t vdev)
{
    return atomic_load(&followed[vdev]);
}

void aware_follow(uint32_t vdev)
{
    const struct device *device = atomic_load(&the_vdevs[vdev]->device);
    if (!device)
        return;
    vdev_limits_set(&vdev_limits[vdev], &device->info);
    atomic_store(&followed[vdev], device);
}

void aware_follow_none(void)
{
    for (uint32_t i = 0; i < VDEVS; i++) {
        vdev_limits_set(&vdev_limits[i], &the_present.device);
        atomic_store(&followed[i], NULL);
    }
}

const struct devinfo_value *aware_answer(uint32_t vdev, cl_device_info name)
{
    const struct device *device = atomic_load(&followed[vdev]);
    if (!device)
        return NULL;
    switch (name) {
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
    case CL_DEVICE_MAX_COMPUTE_UNITS:
    case CL_DEVICE_LOCAL_MEM_SIZE:
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return devinfo_find(&device->info, name);
    default:
        return NULL;
    }
}
