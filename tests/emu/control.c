#include "emu_entries.h"
#include "tests/emu/object.h"

/* What the library exports: the ICD's three symbols and emu_control_*. See emu.h. */

EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *function_name)
{
    return emu_raw_clGetExtensionFunctionAddress(function_name);
}

EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name,
                                            size_t param_value_size, void *param_value,
                                            size_t *param_value_size_ret)
{
    return emu_raw_clGetPlatformInfo(platform, param_name, param_value_size, param_value,
                                     param_value_size_ret);
}

EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms,
                                                 cl_uint *num_platforms)
{
    return emu_raw_clGetPlatformIDs(num_entries, platforms, num_platforms);
}

EXPORT int emu_control_arm(const char *device, uint64_t n, const char *function, int error);
EXPORT int emu_control_disarm(const char *device);
EXPORT int emu_control_vanish(const char *device);
EXPORT int emu_control_restore(const char *device);
EXPORT uint64_t emu_control_calls(const char *device, const char *function);
EXPORT uint64_t emu_control_fired(const char *device);
EXPORT int64_t emu_control_live(const char *device, enum emu_kind kind);
EXPORT int64_t emu_control_live_all(const char *device);
EXPORT uint64_t emu_control_bytes(const char *device);

int emu_control_arm(const char *device, uint64_t n, const char *function, int error)
{
    return emu_shared_arm(emu_control_shared(), device, n, function, error);
}

int emu_control_disarm(const char *device)
{
    return emu_shared_disarm(emu_control_shared(), device);
}

int emu_control_vanish(const char *device)
{
    return emu_shared_vanish(emu_control_shared(), device);
}

int emu_control_restore(const char *device)
{
    return emu_shared_restore(emu_control_shared(), device);
}

uint64_t emu_control_calls(const char *device, const char *function)
{
    return emu_shared_calls(emu_control_shared(), device, function);
}

uint64_t emu_control_fired(const char *device)
{
    return emu_shared_fired(emu_control_shared(), device);
}

int64_t emu_control_live(const char *device, enum emu_kind kind)
{
    return emu_shared_live(emu_control_shared(), device, kind);
}

int64_t emu_control_live_all(const char *device)
{
    return emu_shared_live_all(emu_control_shared(), device);
}

uint64_t emu_control_bytes(const char *device)
{
    return emu_shared_bytes(emu_control_shared(), device);
}
