#include <CL/cl_ext.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/driver/session/session.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/driver/devinfo.h"
#include "state/opencl/info.h"

/* Platforms and devices. The server tells their answers once; questions are answered here. */

/* The extensions that a program can use: of the language, and of calls that this driver has. Others
 * would need a call, or memory, of the process that the device's driver is in. */
static const char *const carried[] = {
    "cl_khr_3d_image_writes",
    "cl_khr_byte_addressable_store",
    "cl_khr_depth_images",
    "cl_khr_device_uuid",
    "cl_khr_expect_assume",
    "cl_khr_extended_bit_ops",
    "cl_khr_extended_versioning",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_image2d_from_buffer",
    "cl_khr_il_program",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_integer_dot_product",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_pci_bus_info",
    "cl_khr_select_fprounding_mode",
    "cl_khr_spir",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_subgroups",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_intel_required_subgroup_size",
    "cl_intel_subgroups",
    "cl_intel_subgroups_short",
    "cl_nv_compiler_options",
    "cl_nv_pragma_unroll",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
};

static bool platform_is_carried(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(carried); i++)
        if (strlen(carried[i]) == length && !memcmp(carried[i], name, length))
            return true;
    return false;
}

static char *platform_offered_extensions(const struct devinfo *info)
{
    const char *all = devinfo_string(info, CL_DEVICE_EXTENSIONS);
    char *offered = calloc(1, strlen(all) + 1), *at = offered;
    while (offered && *all) {
        size_t length = strcspn(all, " ");
        if (platform_is_carried(all, length)) {
            if (at != offered)
                *at++ = ' ';
            memcpy(at, all, length);
            at += length;
        }
        all += length + (all[length] == ' ');
    }
    return offered;
}

static const struct handle_class device_class = {sizeof(struct device_object), NULL};

int platform_init(struct platform *platform, struct client *client,
                  const struct inventory_entry *entries, size_t first, size_t count)
{
    platform->dispatch = &calls_dispatch;
    platform->client = client;
    platform->name = entries[first].key.platform;
    platform->devices = calloc(count, sizeof(struct device_object *));
    if (!platform->devices)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct device_object *device = handle_create(client, ID_DEVICE, &device_class);
        if (!device)
            return -ENOMEM;
        /* The server's id of the device: its index in the inventory. */
        device->base.id = id_make(ID_DEVICE, 0, (uint32_t)(first + i));
        device->platform = platform;
        device->answers = &entries[first + i];
        device->version = devinfo_version(&device->answers->info);
        device->extensions = platform_offered_extensions(&device->answers->info);
        if (!device->extensions)
            return -ENOMEM;
        if (device->version > platform->numeric)
            platform->numeric = device->version;
        platform->devices[platform->count++] = device;
    }
    snprintf(platform->version, sizeof(platform->version), "OpenCL %u.%u reseat %s",
             CL_VERSION_MAJOR(platform->numeric), CL_VERSION_MINOR(platform->numeric),
             RESEAT_VERSION);
    return 0;
}

struct device_object *device_get(cl_device_id device)
{
    return object_get(device, ID_DEVICE);
}

/* All platforms that were ever published. None is freed before the process ends. */
static struct platform *_Atomic published;

void platform_publish(struct platform *platform)
{
    platform->next = atomic_load(&published);
    while (!atomic_compare_exchange_weak(&published, &platform->next, platform))
        ;
}

struct platform *platform_get(cl_platform_id id)
{
    struct platform *platform = atomic_load(&published);
    while (platform && (cl_platform_id)platform != id)
        platform = platform->next;
    return platform;
}

uint64_t device_number(const struct device_object *device, cl_device_info name)
{
    return devinfo_scalar(&device->answers->info, name, 0);
}

/* ---- platforms ---- */

const cl_name_version platform_extensions[1] = {{CL_MAKE_VERSION(1, 0, 0), "cl_khr_icd"}};

/* ---- devices ---- */

static bool platform_is_of_type(const struct device_object *device, cl_device_type type)
{
    return type == CL_DEVICE_TYPE_ALL || type == (cl_device_type)(cl_int)CL_DEVICE_TYPE_ALL ||
           (type & device_number(device, CL_DEVICE_TYPE));
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries,
                      cl_device_id *devices, cl_uint *num_devices)
{
    const cl_device_type types = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                                 CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
    const struct platform *p = platform_get(platform);
    cl_uint found = 0;
    if (!p)
        return CL_INVALID_PLATFORM;
    if (device_type == 0 ||
        ((cl_uint)device_type != (cl_uint)CL_DEVICE_TYPE_ALL && (device_type & ~types)))
        return CL_INVALID_DEVICE_TYPE;
    if ((!devices && !num_devices) || (devices && num_entries == 0))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < p->count; i++) {
        bool first = i == 0 && (device_type & CL_DEVICE_TYPE_DEFAULT);
        if (!first && !platform_is_of_type(p->devices[i], device_type))
            continue;
        if (devices && found < num_entries)
            devices[found] = (cl_device_id)p->devices[i];
        found++;
    }
    if (num_devices)
        *num_devices = found;
    return found ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

/* The names with versions that are offered. */
static cl_int platform_answer_names(const struct device_object *device, cl_device_info name,
                                    const struct info_request *request)
{
    const struct devinfo_value *value = devinfo_find(&device->answers->info, name);
    size_t count = devinfo_list_count(value), kept = 0;
    CLEANUP(cleanup_free) cl_name_version *names = calloc(count + 1, sizeof(*names));
    if (!value || !names)
        return value ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        cl_name_version entry = devinfo_list_entry(value, i);
        bool offered = name == CL_DEVICE_EXTENSIONS_WITH_VERSION
                           ? platform_is_carried(entry.name, strlen(entry.name))
                           : strcmp(entry.name, "__opencl_c_device_enqueue") &&
                                 strcmp(entry.name, "__opencl_c_pipes");
        if (offered)
            names[kept++] = entry;
    }
    return info_bytes(request, names, kept * sizeof(*names));
}

/* What is not offered is answered as 0, in as many bytes as the device's own answer. */
static cl_int platform_answer_nothing(const struct devinfo_value *value,
                                      const struct info_request *request)
{
    CLEANUP(cleanup_free) void *zeros = calloc(1, (size_t)value->size + 1);
    return zeros ? info_bytes(request, zeros, value->size) : CL_OUT_OF_HOST_MEMORY;
}

/* cl_amd_device_attribute_query: KiB that are free, and in the largest block of them. */
#ifndef CL_DEVICE_GLOBAL_FREE_MEMORY_AMD
#define CL_DEVICE_GLOBAL_FREE_MEMORY_AMD 0x4039
#endif

static cl_int platform_answer_free_memory(const struct device_object *device,
                                          const struct info_request *request)
{
    const struct client *client = device->base.client;
    size_t place = (size_t)(device->answers - client->inventory.entries);
    uint64_t all = devinfo_scalar(&device->answers->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    uint64_t heard =
        place < FREE_MEMORY_MAX ? ~atomic_load(&client->free_memory[place]) : UINT64_MAX;
    const size_t free_kib[2] = {(heard < all ? heard : all) >> 10,
                                (heard < all ? heard : all) >> 10};
    return info_bytes(request, free_kib, sizeof(free_kib));
}

static cl_int platform_answer_device(const struct device_object *device, cl_device_info name,
                                     const struct info_request *request)
{
    static const cl_device_partition_property none[] = {0};
    switch (name) {
    case CL_DEVICE_PLATFORM:
        return info_pointer(request, device->platform);
    case CL_DEVICE_GLOBAL_FREE_MEMORY_AMD:
        return platform_answer_free_memory(device, request);
    case CL_DEVICE_PARENT_DEVICE:
        return info_pointer(request, NULL);
    case CL_DEVICE_REFERENCE_COUNT:
        return info_uint(request, 1);
    case CL_DEVICE_EXTENSIONS:
        return info_text(request, device->extensions);
    case CL_DEVICE_EXTENSIONS_WITH_VERSION:
    case CL_DEVICE_OPENCL_C_FEATURES:
        return platform_answer_names(device, name, request);
    case CL_DEVICE_BUILT_IN_KERNELS:
        return info_text(request, "");
    case CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION:
        return info_bytes(request, none, 0);
    case CL_DEVICE_PARTITION_PROPERTIES:
        return info_bytes(request, none, sizeof(none));
    case CL_DEVICE_PARTITION_TYPE:
        return info_bytes(request, none, 0);
    case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
        return info_uint(request, 0);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return info_uint(request, CL_FALSE);
    case CL_DEVICE_EXECUTION_CAPABILITIES:
        return info_ulong(request, CL_EXEC_KERNEL);
    default:
        break;
    }
    const struct devinfo_value *value = devinfo_find(&device->answers->info, name);
    const struct devinfo_param *param = devinfo_param_find(name);
    if (!value || !param)
        return CL_INVALID_VALUE;
    if (param->extension && param->since == 0 &&
        !platform_is_carried(param->extension, strlen(param->extension)))
        return CL_INVALID_VALUE;
    /* Answers of vendors' extensions are given: the engine recognises the device by them. */
    bool identifies = param->extension && param->since == 0;
    if (!identifies && (param->rule == DEVINFO_NONE || param->rule == DEVINFO_PINS))
        return platform_answer_nothing(value, request);
    if (param->size == 0) /* The NUL of a string is not counted. */
        return info_bytes(request, value->bytes,
                          value->size +
                              (value->size == 0 || value->bytes[value->size - 1] != '\0'));
    return info_bytes(request, value->bytes, value->size);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                       void *param_value, size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    const struct device_object *d = device_get(device);
    return d ? platform_answer_device(d, param_name, &request) : CL_INVALID_DEVICE;
}

cl_int clGetDeviceAndHostTimer(cl_device_id device, cl_ulong *device_timestamp,
                               cl_ulong *host_timestamp)
{
    if (!device_get(device))
        return CL_INVALID_DEVICE;
    if (!device_timestamp || !host_timestamp)
        return CL_INVALID_VALUE;
    *device_timestamp = *host_timestamp = clock_now_ns(); /* Profiles are in that clock. */
    return CL_SUCCESS;
}

cl_int clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp)
{
    if (!device_get(device))
        return CL_INVALID_DEVICE;
    if (!host_timestamp)
        return CL_INVALID_VALUE;
    *host_timestamp = clock_now_ns();
    return CL_SUCCESS;
}
