#include "state/present/presented.h"

struct present the_present;
READ_MOSTLY struct call_limits the_limits;
READ_MOSTLY struct vdev_limits vdev_limits[VDEVS];

void vdev_limits_set(struct vdev_limits *limits, const struct devinfo *device)
{
    devinfo_group_limits(device, &limits->groups);
    atomic_store(&limits->allocation,
                 devinfo_scalar(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, UINT64_MAX));
}

void presented_limits_read(void)
{
    const struct devinfo *device = &the_present.device;
    for (size_t i = 0; i < VDEVS; i++)
        vdev_limits_set(&vdev_limits[i], device);
    the_limits.uniform_groups =
        !devinfo_scalar(device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, CL_FALSE);
    the_limits.subgroups =
        devinfo_scalar(device, CL_DEVICE_MAX_NUM_SUB_GROUPS, 0) != 0 ||
        devinfo_names_have(devinfo_string(device, CL_DEVICE_EXTENSIONS), "cl_khr_subgroups");
    the_limits.empty_commands = the_present.version >= CL_MAKE_VERSION(2, 1, 0);
}
