#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define VENDOR          "Emulated"
#define VENDOR_ID       0xe301u
#define DRIVER_VERSION  "1.0"
#define EXTENSION_UUID  "cl_khr_device_uuid"
#define EXTENSION_FP64  "cl_khr_fp64"
#define EXTENSIONS_MAX  4096
#define EXTENSION_LIST  64
#define BITS_PER_BYTE   8
#define VERSION_3_0     300
#define ITEM_DIMENSIONS 3

/* Extensions with entry points or objects that we do not wrap; offering them would hand out the
 * driver's own handles. */
static const char *const never_offered[] = {
    "cl_khr_command_buffer", "cl_khr_gl_sharing",     "cl_khr_egl_image",
    "cl_khr_semaphore",      "cl_ext_device_fission", "cl_intel_unified_shared_memory"};

static void free_text(char **text)
{
    free(*text);
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        bool starts = at == text || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static bool extension_offered(const struct emu_device *device, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(never_offered); i++)
        if (strcmp(name, never_offered[i]) == 0)
            return false;
    if (strcmp(name, EXTENSION_UUID) == 0)
        return device->config.has_uuid;
    if (device->config.no_fp64 && strcmp(name, EXTENSION_FP64) == 0)
        return false;
    return !device->config.has_extensions || has_word(device->config.extensions, name);
}

/* Space-separated, into @ret_text of EXTENSIONS_MAX bytes. */
static cl_int extensions(const struct emu_device *device, char *ret_text)
{
    CLEANUP(free_text) char *real = calloc(1, EXTENSIONS_MAX);
    if (real == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int err = emu_driver->clGetDeviceInfo(device->object.real, CL_DEVICE_EXTENSIONS,
                                             EXTENSIONS_MAX - sizeof(EXTENSION_UUID), real, NULL);
    if (err != CL_SUCCESS)
        return err;
    if (device->config.has_uuid && !has_word(real, EXTENSION_UUID)) {
        strcat(real, " ");
        strcat(real, EXTENSION_UUID);
    }
    char *save = NULL, *out = ret_text;
    *out = '\0';
    for (char *name = strtok_r(real, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save))
        if (extension_offered(device, name))
            out += sprintf(out, "%s%s", out == ret_text ? "" : " ", name);
    return CL_SUCCESS;
}

static cl_int extensions_with_version(const struct emu_device *device, cl_name_version *ret_list,
                                      size_t *ret_count)
{
    CLEANUP(free_text) char *text = calloc(1, EXTENSIONS_MAX);
    if (text == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int err = extensions(device, text);
    char *save = NULL;
    size_t count = 0;
    for (char *name = strtok_r(text, " ", &save); name != NULL && count < EXTENSION_LIST;
         name = strtok_r(NULL, " ", &save)) {
        ret_list[count].version = CL_MAKE_VERSION(1, 0, 0);
        snprintf(ret_list[count++].name, CL_NAME_VERSION_MAX_NAME_SIZE, "%s", name);
    }
    *ret_count = count;
    return err;
}

static bool feature_offered(const struct emu_device *device, const char *name)
{
    if (device->config.no_fp64 && strcmp(name, "__opencl_c_fp64") == 0)
        return false;
    return !device->config.no_images || strstr(name, "image") == NULL;
}

/* OpenCL C features, without those of abilities that are taken away. */
static cl_int features(const struct emu_device *device, cl_name_version *ret_list,
                       size_t *ret_count)
{
    size_t size = 0, count = 0;
    cl_int err = emu_driver->clGetDeviceInfo(device->object.real, CL_DEVICE_OPENCL_C_FEATURES,
                                             EXTENSION_LIST * sizeof(ret_list[0]), ret_list, &size);
    for (size_t i = 0; err == CL_SUCCESS && i < size / sizeof(ret_list[0]); i++)
        if (feature_offered(device, ret_list[i].name))
            ret_list[count++] = ret_list[i];
    *ret_count = count;
    return err;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Answers of one number. Returns its size, or 0 when the wrapped device's own answer holds. */
static size_t number_info(struct emu_device *device, cl_device_info param, void *ret_value)
{
    const struct emu_config *config = &device->config;
    cl_uint uint_value = 0;
    cl_ulong ulong_value = 0;
    size_t size_value = 0;
    const void *value = &uint_value;
    size_t size = sizeof(uint_value);
    switch (param) {
    case CL_DEVICE_TYPE:
        ulong_value = config->type;
        value = &ulong_value;
        break;
    case CL_DEVICE_VENDOR_ID:
        uint_value = VENDOR_ID;
        break;
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        ulong_value = device->memory;
        value = &ulong_value;
        break;
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        ulong_value = device->max_alloc;
        value = &ulong_value;
        break;
    case CL_DEVICE_LOCAL_MEM_SIZE:
        ulong_value = device->local_memory;
        value = &ulong_value;
        break;
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        size_value = device->max_work_group_size;
        value = &size_value;
        break;
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        if (config->compute_units == 0)
            return 0;
        uint_value = config->compute_units;
        break;
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        uint_value = config->host_unified;
        break;
    case CL_DEVICE_IMAGE_SUPPORT:
        if (!config->no_images)
            return 0;
        break;
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_LINKER_AVAILABLE:
        if (!config->no_compiler)
            return 0;
        break;
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
        if (config->mem_align == 0)
            return 0;
        uint_value = (cl_uint)config->mem_align * BITS_PER_BYTE;
        break;
    case CL_DEVICE_AVAILABLE:
        uint_value = atomic_load(&device->shared->vanished) == 0;
        break;
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE:
        if (!config->no_fp64)
            return 0;
        break;
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        if (!config->no_fp64)
            return 0;
        value = &ulong_value;
        break;
    case CL_DEVICE_SVM_CAPABILITIES:
        value = &ulong_value;
        break;
    case CL_DEVICE_REFERENCE_COUNT:
        uint_value = 1;
        break;
    case CL_DEVICE_PIPE_SUPPORT:
    case CL_DEVICE_MAX_PIPE_ARGS:
    case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS:
    case CL_DEVICE_PIPE_MAX_PACKET_SIZE:
    case CL_DEVICE_MAX_ON_DEVICE_QUEUES:
    case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
        break;
    case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES:
    case CL_DEVICE_PARTITION_AFFINITY_DOMAIN:
        value = &ulong_value;
        break;
    case CL_DEVICE_NUMERIC_VERSION:
        uint_value = CL_MAKE_VERSION(config->version / 100, config->version / 10 % 10, 0);
        break;
    default:
        return 0;
    }
    if (value == &ulong_value)
        size = sizeof(ulong_value);
    else if (value == &size_value)
        size = sizeof(size_value);
    memcpy(ret_value, value, size);
    return size;
}

static bool is_3_0_query(cl_device_info param)
{
    return (param >= CL_DEVICE_NUMERIC_VERSION &&
            param <= CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT) ||
           (param >= CL_DEVICE_OPENCL_C_FEATURES &&
            param <= CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED);
}

static const char *text_info(const struct emu_device *device, cl_device_info param,
                             char version[EMU_NAME_MAX])
{
    switch (param) {
    case CL_DEVICE_NAME:
        return device->config.name;
    case CL_DEVICE_VENDOR:
        return VENDOR;
    case CL_DRIVER_VERSION:
        return DRIVER_VERSION;
    case CL_DEVICE_VERSION:
        snprintf(version, EMU_NAME_MAX, "OpenCL %u.%u %s", device->config.version / 100,
                 device->config.version / 10 % 10, VENDOR);
        return version;
    default:
        return NULL;
    }
}

cl_int emu_do_clGetDeviceInfo(struct emu_device *reached, cl_device_id handle,
                              cl_device_info param_name, size_t param_value_size, void *param_value,
                              size_t *param_value_size_ret)
{
    struct emu_device *device = reached;
    (void)handle;
    if (atomic_load(&device->shared->vanished) != 0 && param_name != CL_DEVICE_AVAILABLE)
        return CL_OUT_OF_RESOURCES;
    if (device->config.version < VERSION_3_0 && is_3_0_query(param_name))
        return CL_INVALID_VALUE;
    char version[EMU_NAME_MAX], extension_text[EXTENSIONS_MAX];
    cl_name_version list[EXTENSION_LIST];
    size_t items[ITEM_DIMENSIONS], count = 0;
    cl_ulong number = 0;
    const char *text = text_info(device, param_name, version);
    if (text != NULL)
        return emu_info(text, strlen(text) + 1, param_value_size, param_value,
                        param_value_size_ret);
    size_t size = number_info(device, param_name, &number);
    if (size != 0)
        return emu_info(&number, size, param_value_size, param_value, param_value_size_ret);
    cl_int err;
    switch (param_name) {
    case CL_DEVICE_PLATFORM:
        return emu_info_handle(&emu_platform, param_value_size, param_value, param_value_size_ret);
    case CL_DEVICE_PARENT_DEVICE:
        return emu_info_handle(NULL, param_value_size, param_value, param_value_size_ret);
    case CL_DEVICE_EXTENSIONS:
        err = extensions(device, extension_text);
        return err != CL_SUCCESS ? err
                                 : emu_info(extension_text, strlen(extension_text) + 1,
                                            param_value_size, param_value, param_value_size_ret);
    case CL_DEVICE_EXTENSIONS_WITH_VERSION:
        err = extensions_with_version(device, list, &count);
        return err != CL_SUCCESS ? err
                                 : emu_info(list, count * sizeof(list[0]), param_value_size,
                                            param_value, param_value_size_ret);
    case CL_DEVICE_OPENCL_C_FEATURES:
        err = features(device, list, &count);
        return err != CL_SUCCESS ? err
                                 : emu_info(list, count * sizeof(list[0]), param_value_size,
                                            param_value, param_value_size_ret);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        err = emu_driver->clGetDeviceInfo(device->object.real, param_name, sizeof(items), items,
                                          NULL);
        for (size_t i = 0; i < ITEM_DIMENSIONS && err == CL_SUCCESS; i++)
            items[i] = least(items[i], device->max_work_group_size);
        return err != CL_SUCCESS ? err
                                 : emu_info(items, sizeof(items), param_value_size, param_value,
                                            param_value_size_ret);
    case CL_DEVICE_PARTITION_PROPERTIES:
    case CL_DEVICE_PARTITION_TYPE:
        return emu_info(&number, sizeof(cl_device_partition_property), param_value_size,
                        param_value, param_value_size_ret);
    case CL_DEVICE_UUID_KHR:
        if (!device->config.has_uuid)
            return CL_INVALID_VALUE;
        return emu_info(device->config.uuid, EMU_UUID_SIZE, param_value_size, param_value,
                        param_value_size_ret);
    default:
        return emu_driver->clGetDeviceInfo(device->object.real, param_name, param_value_size,
                                           param_value, param_value_size_ret);
    }
}
