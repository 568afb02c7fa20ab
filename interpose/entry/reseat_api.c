#include "interpose/entry/reseat_api.h"

#include <stddef.h>
#include <string.h>

#include "interpose/aware/aware.h"
#include "interpose/control/control.h"
#include "interpose/entry/start.h"

/* What programs that include policy/reseat.h call. */

static int api_add(const struct reseat_program *program)
{
    int result = aware_register(program);
    if (result == RESEAT_OK)
        control_wake();
    return result;
}

static int api_remove(void)
{
    int result = aware_unregister();
    if (result != RESEAT_UNREGISTERED)
        control_wake();
    return result;
}

static int api_wish(const struct reseat_limits *minimum, const struct reseat_limits *preferred)
{
    int result = aware_change_wish(minimum, preferred);
    return result != RESEAT_OK ? result : control_wake() ? RESEAT_OK : RESEAT_NO_AGENT;
}

static int api_current(struct _cl_device_id *handle, struct reseat_device *ret_device)
{
    struct reseat_device device;
    const uint32_t least = offsetof(struct reseat_device, limits);
    if (!ret_device || ret_device->size < least)
        return RESEAT_INVALID;
    if (start() != 0)
        return RESEAT_NO_DEVICE;
    const struct seat *seat = handle ? object_get(handle, OBJECT_DEVICE) : the_seats[0];
    if (!seat)
        return RESEAT_NO_DEVICE;
    uint32_t size = ret_device->size < sizeof(device) ? ret_device->size : (uint32_t)sizeof(device);
    aware_describe(atomic_load(&seat->device), &device);
    device.granted = aware_granted(seat->index);
    device.size = size;
    memcpy(ret_device, &device, size);
    return RESEAT_OK;
}

const struct reseat_api *reseat_api(uint32_t version)
{
    static const struct reseat_api api = {
        .size = sizeof(api),
        .version = RESEAT_API_VERSION,
        .add = api_add,
        .remove = api_remove,
        .wish = api_wish,
        .current = api_current,
    };
    return version >> 16 == RESEAT_API_MAJOR ? &api : NULL;
}
