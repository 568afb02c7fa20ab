#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A driver with three devices that only answer questions: two called "Stub", one
 * called "Other" with bytes in between that are none of a name.
 * What it does wrong is chosen at build time: STUB_CRASH, STUB_HANG, STUB_OURS, STUB_SAME_UUID.
 */

struct _cl_platform_id {
    const cl_icd_dispatch *dispatch;
};
struct _cl_device_id {
    const cl_icd_dispatch *dispatch;
    const char *name;
    const char *extensions;
    unsigned char mark;
};

static cl_icd_dispatch dispatch;
static struct _cl_platform_id platform = {&dispatch};
static struct _cl_device_id devices[] = {
    {&dispatch, "Stub", "cl_khr_device_uuid cl_khr_pci_bus_info", 0xa1},
    {&dispatch, "Stub", "cl_khr_device_uuid cl_khr_pci_bus_info", 0xb2},
    {&dispatch, " Ot\xc2\x9bher\xff\t ", "cl_nv_device_attribute_query", 0xc3},
};

#ifdef STUB_OURS
__attribute__((visibility("default"))) const int reseat_marker = 1;
#endif

static cl_int answer(const void *bytes, size_t size, size_t room, void *to, size_t *ret_size)
{
    if (to && room < size)
        return CL_INVALID_VALUE;
    if (to)
        memcpy(to, bytes, size);
    if (ret_size)
        *ret_size = size;
    return CL_SUCCESS;
}

static cl_int answer_text(const char *text, size_t room, void *to, size_t *ret_size)
{
    return answer(text, strlen(text) + 1, room, to, ret_size);
}

static cl_int CL_API_CALL stub_platform_info(cl_platform_id id, cl_platform_info name, size_t room,
                                             void *to, size_t *ret_size)
{
    (void)id;
    return name == CL_PLATFORM_NAME ? answer_text("Stub platform", room, to, ret_size)
                                    : CL_INVALID_VALUE;
}

static cl_int CL_API_CALL stub_devices(cl_platform_id id, cl_device_type type, cl_uint room,
                                       cl_device_id *to, cl_uint *ret_count)
{
    cl_uint count = sizeof(devices) / sizeof(devices[0]);

    (void)id;
    (void)type;
    for (cl_uint i = 0; to && i < count && i < room; i++)
        to[i] = &devices[i];
    if (ret_count)
        *ret_count = count;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL stub_device_info(cl_device_id device, cl_device_info name, size_t room,
                                           void *to, size_t *ret_size)
{
    cl_device_pci_bus_info_khr pci = {1, device->mark, 2, 3};
    cl_uint nv_bus = 0x3b, nv_slot = 0x1a, nv_domain = 0x10;
    cl_ulong memory = 1234567;
    size_t sizes[3] = {8, 4, 2};
    unsigned char uuid[16];

#ifdef STUB_CRASH
    abort();
#endif
    memset(uuid, device->mark, sizeof(uuid));
#ifdef STUB_SAME_UUID
    memset(uuid, 0x77, sizeof(uuid));
    pci.pci_bus = 9;
#endif
    switch (name) {
    case CL_DEVICE_NAME:
        return answer_text(device->name, room, to, ret_size);
    case CL_DEVICE_VERSION:
        return answer_text("OpenCL 3.0 stub", room, to, ret_size);
    case CL_DEVICE_EXTENSIONS:
        return answer_text(device->extensions, room, to, ret_size);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return answer(&memory, sizeof(memory), room, to, ret_size);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return answer(sizes, sizeof(sizes), room, to, ret_size);
    case CL_DEVICE_UUID_KHR:
        return answer(uuid, sizeof(uuid), room, to, ret_size);
    case CL_DEVICE_PCI_BUS_INFO_KHR:
        return answer(&pci, sizeof(pci), room, to, ret_size);
    case 0x4008:
        return answer(&nv_bus, sizeof(nv_bus), room, to, ret_size);
    case 0x4009:
        return answer(&nv_slot, sizeof(nv_slot), room, to, ret_size);
    case 0x400A:
        return answer(&nv_domain, sizeof(nv_domain), room, to, ret_size);
    default:
        return CL_INVALID_VALUE;
    }
}

static cl_int CL_API_CALL stub_platforms(cl_uint room, cl_platform_id *to, cl_uint *ret_count)
{
#ifdef STUB_HANG
    for (;;)
        pause();
#endif
    dispatch.clGetPlatformInfo = stub_platform_info;
    dispatch.clGetDeviceIDs = stub_devices;
    dispatch.clGetDeviceInfo = stub_device_info;
    if (to && room)
        to[0] = &platform;
    if (ret_count)
        *ret_count = 1;
    return CL_SUCCESS;
}

__attribute__((visibility("default"))) void *CL_API_CALL
clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)stub_platforms;
}
