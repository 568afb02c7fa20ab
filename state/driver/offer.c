#include "state/driver/offer.h"

static uint64_t offer_number(const struct devinfo *info, cl_device_info name)
{
    return devinfo_scalar(info, name, 0);
}

/* The latest OpenCL C that the compiler takes with -cl-std. */
static cl_version offer_latest_c(const struct devinfo *info)
{
    const struct devinfo_value *all = devinfo_find(info, CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    cl_version latest = devinfo_c_version(info);

    for (size_t i = 0; i < devinfo_list_count(all); i++) {
        cl_version version = devinfo_list_entry(all, i).version;

        latest = version > latest ? version : latest;
    }
    return latest;
}

static void offer_images(const struct devinfo *info, struct plan_use *limits)
{
    limits->images = offer_number(info, CL_DEVICE_IMAGE_SUPPORT) != 0;
    if (!limits->images)
        return;
    limits->image2d[0] = offer_number(info, CL_DEVICE_IMAGE2D_MAX_WIDTH);
    limits->image2d[1] = offer_number(info, CL_DEVICE_IMAGE2D_MAX_HEIGHT);
    limits->image3d[0] = offer_number(info, CL_DEVICE_IMAGE3D_MAX_WIDTH);
    limits->image3d[1] = offer_number(info, CL_DEVICE_IMAGE3D_MAX_HEIGHT);
    limits->image3d[2] = offer_number(info, CL_DEVICE_IMAGE3D_MAX_DEPTH);
    limits->image_buffer = offer_number(info, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
    limits->image_array = offer_number(info, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
    limits->read_images = (uint32_t)offer_number(info, CL_DEVICE_MAX_READ_IMAGE_ARGS);
    limits->write_images = (uint32_t)offer_number(info, CL_DEVICE_MAX_WRITE_IMAGE_ARGS);
    limits->samplers = (uint32_t)offer_number(info, CL_DEVICE_MAX_SAMPLERS);
}

static void offer_abilities(const struct devinfo *info, struct plan_use *limits)
{
    cl_version version = devinfo_version(info);

    limits->fp64 = offer_number(info, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
    limits->fp16 = devinfo_has_extension(info, "cl_khr_fp16");
    limits->int64_atomics = devinfo_has_extension(info, "cl_khr_int64_base_atomics");
    limits->il = devinfo_string(info, CL_DEVICE_IL_VERSION)[0] != '\0';
    limits->subgroups = offer_number(info, CL_DEVICE_MAX_NUM_SUB_GROUPS) ||
                        devinfo_has_extension(info, "cl_khr_subgroups");
    /* 2.x requires it; 3.0 asks. */
    limits->non_uniform = version >= CL_MAKE_VERSION(3, 0, 0)
                              ? offer_number(info, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT) != 0
                              : version >= CL_MAKE_VERSION(2, 0, 0);
}

void offer_from_devinfo(const struct devinfo *info, struct plan_offer *ret_offer)
{
    struct plan_offer offer = {
        .limits =
            {
                .work_group_size = offer_number(info, CL_DEVICE_MAX_WORK_GROUP_SIZE),
                .compute_units = (uint32_t)offer_number(info, CL_DEVICE_MAX_COMPUTE_UNITS),
                .work_dimensions = (uint32_t)offer_number(info, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS),
                .local_memory = offer_number(info, CL_DEVICE_LOCAL_MEM_SIZE),
                .largest_object = offer_number(info, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
                .device_memory = offer_number(info, CL_DEVICE_GLOBAL_MEM_SIZE),
                .parameter_size = offer_number(info, CL_DEVICE_MAX_PARAMETER_SIZE),
                .origin_alignment = offer_number(info, CL_DEVICE_MEM_BASE_ADDR_ALIGN),
                .c_version = offer_latest_c(info),
                .address_bits = (uint32_t)offer_number(info, CL_DEVICE_ADDRESS_BITS),
            },
        .memory_available = offer_number(info, CL_DEVICE_GLOBAL_MEM_SIZE),
        .extensions = devinfo_string(info, CL_DEVICE_EXTENSIONS),
        .name = devinfo_string(info, CL_DEVICE_NAME),
    };

    for (size_t i = 0; i < 3; i++)
        offer.limits.work_item_sizes[i] = devinfo_item_size(info, i, 0);
    offer_images(info, &offer.limits);
    offer_abilities(info, &offer.limits);
    *ret_offer = offer;
}
