#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define DRIVER_DEFAULT "libpocl.so.2" /* by SONAME: the dynamic linker knows where */
#define PLATFORM_NAME  "Emulated"
#define PLATFORM_ICD   "cl_khr_icd"
#define ICD_SUFFIX     "EMU"
#define VERSION_3_0    300

typedef void *(CL_API_CALL *extension_address_fn)(const char *);

const cl_icd_dispatch *emu_driver;
struct emu_platform emu_platform;

static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static pthread_once_t control_once = PTHREAD_ONCE_INIT;
static cl_int open_result;
static pid_t open_pid;
static struct emu_shared private_shared;
static struct emu_shared *shared_block = &private_shared;

static void control_init(void)
{
    const char *path = getenv("EMU_CONTROL");
    emu_shared_init(&private_shared);
    if (path == NULL)
        return;
    int err = emu_shared_open(path, &shared_block);
    if (err != 0)
        fprintf(stderr, "libreseat-emu: EMU_CONTROL=%s: %s\n", path, strerror(-err));
}

struct emu_shared *emu_control_shared(void)
{
    pthread_once(&control_once, control_init);
    return shared_block;
}

/* What a program held ends with it: others that share the control file see it gone. A forked
 * child that ends without exec must not give back its parent's. */
static void __attribute__((destructor)) give_back(void)
{
    if (open_pid != getpid())
        return;
    for (size_t i = 0; i < emu_platform.device_count; i++) {
        struct emu_device *device = &emu_platform.devices[i];
        atomic_fetch_sub(&device->shared->bytes, atomic_exchange(&device->own_bytes, 0));
        for (size_t kind = 0; kind < EMU_KINDS; kind++)
            atomic_fetch_sub(&device->shared->live[kind],
                             atomic_exchange(&device->own_live[kind], 0));
    }
}

static cl_int driver_open(cl_platform_id *ret_platform)
{
    const char *path = getenv("EMU_ICD");
    void *library = dlopen(path != NULL ? path : DRIVER_DEFAULT, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "libreseat-emu: %s\n", dlerror());
        return CL_PLATFORM_NOT_FOUND_KHR;
    }
    extension_address_fn address;
    *(void **)&address = dlsym(library, "clGetExtensionFunctionAddress");
    clIcdGetPlatformIDsKHR_fn platforms = NULL;
    if (address != NULL)
        *(void **)&platforms = address("clIcdGetPlatformIDsKHR");
    if (platforms == NULL || platforms(1, ret_platform, NULL) != CL_SUCCESS)
        return CL_PLATFORM_NOT_FOUND_KHR;
    emu_driver = *(const cl_icd_dispatch **)*ret_platform;
    return CL_SUCCESS;
}

static uint64_t limit(uint64_t configured, uint64_t real)
{
    return configured != 0 ? configured : real;
}

static int device_init(struct emu_device *device, const struct emu_config *config,
                       cl_device_id real)
{
    cl_ulong memory = 0, max_alloc = 0, local = 0;
    device->shared = emu_shared_device(emu_control_shared(), config->section);
    if (device->shared == NULL ||
        emu_driver->clGetDeviceInfo(real, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t),
                                    &device->base_work_group_size, NULL) != CL_SUCCESS ||
        emu_driver->clGetDeviceInfo(real, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(memory), &memory,
                                    NULL) != CL_SUCCESS ||
        emu_driver->clGetDeviceInfo(real, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(max_alloc),
                                    &max_alloc, NULL) != CL_SUCCESS ||
        emu_driver->clGetDeviceInfo(real, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(local), &local, NULL) !=
            CL_SUCCESS)
        return -EIO;
    emu_root_init(&device->object, EMU_DEVICE, real);
    pthread_mutex_init(&device->engines_lock, NULL);
    pthread_mutex_init(&device->cores_lock, NULL);
    pthread_cond_init(&device->cores_changed, NULL);
    device->config = *config;
    device->memory = limit(config->memory, memory);
    device->max_alloc = limit(config->max_alloc, max_alloc);
    if (device->max_alloc > device->memory)
        device->max_alloc = device->memory;
    device->local_memory = limit(config->local_memory, local);
    device->max_work_group_size = limit(config->max_work_group_size, device->base_work_group_size);
    emu_meter_start(device);
    return 0;
}

static void platform_open_once(void)
{
    static struct emu_config configs[EMU_DEVICES_MAX];
    char error[EMU_TEXT_MAX] = "";
    const char *path = getenv("EMU_CONFIG");
    cl_platform_id real = NULL;
    cl_device_id bases[EMU_DEVICES_MAX];
    cl_uint base_count = 0;
    size_t count = 1;
    emu_config_default(&configs[0]);
    if (path != NULL && emu_config_read(path, configs, &count, error) != 0) {
        fprintf(stderr, "libreseat-emu: EMU_CONFIG=%s: %s\n", path, error);
        open_result = CL_PLATFORM_NOT_FOUND_KHR;
        return;
    }
    open_result = driver_open(&real);
    if (open_result != CL_SUCCESS)
        return;
    open_result =
        emu_driver->clGetDeviceIDs(real, CL_DEVICE_TYPE_ALL, EMU_DEVICES_MAX, bases, &base_count);
    struct emu_device *devices = calloc(EMU_DEVICES_MAX, sizeof(*devices));
    if (open_result != CL_SUCCESS || devices == NULL) {
        free(devices);
        open_result = CL_PLATFORM_NOT_FOUND_KHR;
        return;
    }
    emu_root_init(&emu_platform.object, EMU_PLATFORM, real);
    emu_platform.devices = devices;
    for (size_t i = 0; i < count; i++) {
        if (configs[i].base >= base_count ||
            device_init(&devices[emu_platform.device_count], &configs[i], bases[configs[i].base]) !=
                0) {
            fprintf(stderr, "libreseat-emu: [%s] is left out: the driver has no device %zu\n",
                    configs[i].section, configs[i].base);
            continue;
        }
        emu_sleep_ms(configs[i].open_ms);
        emu_platform.device_count++;
        if (configs[i].version > emu_platform.version)
            emu_platform.version = configs[i].version;
    }
    emu_call_init();
    open_pid = getpid();
}

cl_int emu_platform_open(void)
{
    pthread_once(&open_once, platform_open_once);
    return open_result;
}

cl_int CL_API_CALL emu_raw_clGetPlatformIDs(cl_uint num_entries, cl_platform_id *platforms,
                                            cl_uint *num_platforms)
{
    cl_int err = emu_platform_open();
    if (err != CL_SUCCESS)
        return err;
    if ((platforms == NULL && num_platforms == NULL) || (platforms != NULL && num_entries == 0))
        return CL_INVALID_VALUE;
    if (platforms != NULL)
        platforms[0] = (cl_platform_id)&emu_platform;
    if (num_platforms != NULL)
        *num_platforms = 1;
    return CL_SUCCESS;
}

cl_int CL_API_CALL emu_raw_clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name,
                                             size_t param_value_size, void *param_value,
                                             size_t *param_value_size_ret)
{
    cl_int err = emu_platform_open();
    if (err == CL_SUCCESS && platform != NULL)
        err = emu_check(platform, EMU_PLATFORM);
    if (err != CL_SUCCESS)
        return err;
    cl_uint major = emu_platform.version / 100, minor = emu_platform.version / 10 % 10;
    cl_version numeric = CL_MAKE_VERSION(major, minor, 0);
    cl_name_version icd = {CL_MAKE_VERSION(1, 0, 0), PLATFORM_ICD};
    cl_ulong timer = 0;
    char version[EMU_NAME_MAX];
    const char *text;
    bool is_3_0 = emu_platform.version >= VERSION_3_0;
    snprintf(version, sizeof(version), "OpenCL %u.%u " PLATFORM_NAME, major, minor);
    switch (param_name) {
    case CL_PLATFORM_PROFILE:
        text = "FULL_PROFILE";
        break;
    case CL_PLATFORM_VERSION:
        text = version;
        break;
    case CL_PLATFORM_NAME:
    case CL_PLATFORM_VENDOR:
        text = PLATFORM_NAME;
        break;
    case CL_PLATFORM_EXTENSIONS:
        text = PLATFORM_ICD;
        break;
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        text = ICD_SUFFIX;
        break;
    case CL_PLATFORM_NUMERIC_VERSION:
        return is_3_0 ? emu_info(&numeric, sizeof(numeric), param_value_size, param_value,
                                 param_value_size_ret)
                      : CL_INVALID_VALUE;
    case CL_PLATFORM_EXTENSIONS_WITH_VERSION:
        return is_3_0 ? emu_info(&icd, sizeof(icd), param_value_size, param_value,
                                 param_value_size_ret)
                      : CL_INVALID_VALUE;
    case CL_PLATFORM_HOST_TIMER_RESOLUTION:
        return emu_info(&timer, sizeof(timer), param_value_size, param_value, param_value_size_ret);
    default:
        return CL_INVALID_VALUE;
    }
    return emu_info(text, strlen(text) + 1, param_value_size, param_value, param_value_size_ret);
}

/* The devices of @type that are there, as a context or a listing would take them. */
static cl_uint devices_of_type(cl_device_type type, cl_device_id *devices)
{
    cl_uint count = 0;
    bool defaulted = (type & CL_DEVICE_TYPE_DEFAULT) != 0 && type != CL_DEVICE_TYPE_ALL;
    for (size_t i = 0; i < emu_platform.device_count; i++) {
        struct emu_device *device = &emu_platform.devices[i];
        if (atomic_load(&device->shared->vanished) != 0)
            continue;
        if (type == CL_DEVICE_TYPE_ALL
                ? device->config.type != CL_DEVICE_TYPE_CUSTOM
                : (type & device->config.type) != 0 || (defaulted && count == 0))
            devices[count++] = (cl_device_id)device;
    }
    return count;
}

cl_int CL_API_CALL emu_raw_clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type,
                                          cl_uint num_entries, cl_device_id *devices,
                                          cl_uint *num_devices)
{
    cl_device_id found[EMU_DEVICES_MAX];
    cl_device_type known = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                           CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
    cl_int err = emu_platform_open();
    if (err == CL_SUCCESS && platform != NULL)
        err = emu_check(platform, EMU_PLATFORM);
    if (err != CL_SUCCESS)
        return err;
    if (device_type != CL_DEVICE_TYPE_ALL && (device_type == 0 || (device_type & ~known) != 0))
        return CL_INVALID_DEVICE_TYPE;
    if ((devices == NULL && num_devices == NULL) || (devices != NULL && num_entries == 0))
        return CL_INVALID_VALUE;
    cl_uint count = devices_of_type(device_type, found);
    if (count == 0)
        return CL_DEVICE_NOT_FOUND;
    for (cl_uint i = 0; devices != NULL && i < count && i < num_entries; i++)
        devices[i] = found[i];
    if (num_devices != NULL)
        *num_devices = count;
    return CL_SUCCESS;
}

cl_context CL_API_CALL emu_raw_clCreateContextFromType(
    const cl_context_properties *properties, cl_device_type device_type,
    void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *), void *user_data,
    cl_int *errcode_ret)
{
    cl_device_id devices[EMU_DEVICES_MAX];
    cl_uint count = 0;
    cl_int err = emu_raw_clGetDeviceIDs(NULL, device_type, EMU_DEVICES_MAX, devices, &count);
    if (err == CL_SUCCESS)
        return emu_dispatch.clCreateContext(properties, count, devices, pfn_notify, user_data,
                                            errcode_ret);
    if (errcode_ret != NULL)
        *errcode_ret = err;
    return NULL;
}

cl_int CL_API_CALL emu_raw_clUnloadCompiler(void)
{
    return CL_SUCCESS;
}

cl_int CL_API_CALL emu_raw_clUnloadPlatformCompiler(cl_platform_id platform)
{
    return emu_check(platform, EMU_PLATFORM);
}

void *CL_API_CALL emu_raw_clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size,
                                     unsigned int alignment)
{
    (void)context;
    (void)flags;
    (void)size;
    (void)alignment;
    return NULL;
}

void CL_API_CALL emu_raw_clSVMFree(cl_context context, void *svm_pointer)
{
    (void)context;
    (void)svm_pointer;
}

cl_int CL_API_CALL emu_raw_clGetGLContextInfoKHR(const cl_context_properties *properties,
                                                 cl_gl_context_info param_name,
                                                 size_t param_value_size, void *param_value,
                                                 size_t *param_value_size_ret)
{
    (void)properties;
    (void)param_name;
    (void)param_value_size;
    (void)param_value;
    (void)param_value_size_ret;
    return CL_INVALID_OPERATION;
}

void *CL_API_CALL emu_raw_clGetExtensionFunctionAddress(const char *function_name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } extensions[] = {
        {"clIcdGetPlatformIDsKHR", (void (*)(void))emu_raw_clGetPlatformIDs},
        {"clGetPlatformInfo", (void (*)(void))emu_raw_clGetPlatformInfo},
    };
    void *address = NULL;
    for (size_t i = 0; function_name != NULL && i < ARRAY_SIZE(extensions); i++)
        if (strcmp(function_name, extensions[i].name) == 0)
            memcpy(&address, &extensions[i].function, sizeof(address));
    return address;
}

void *CL_API_CALL emu_raw_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                                   const char *function_name)
{
    if (emu_check(platform, EMU_PLATFORM) != CL_SUCCESS)
        return NULL;
    return emu_raw_clGetExtensionFunctionAddress(function_name);
}
