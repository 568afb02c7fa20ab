#include "interpose/entry/reseat_api.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "interpose/aware/aware.h"
#include "interpose/control/control.h"
#include "interpose/entry/start.h"
#include "state/base/bytes/text.h"
#include "state/base/log.h"
#include "state/image/image_graph.h"
#include "state/image/restore.h"
#include "state/program/implementations.h"

/* What programs that include policy/reseat.h call. */

static int reseat_api_add(const struct reseat_program *program)
{
    int result = aware_register(program);
    if (result == RESEAT_OK)
        control_wake();
    return result;
}

static int reseat_api_remove(void)
{
    int result = aware_unregister();
    if (result != RESEAT_UNREGISTERED)
        control_wake();
    return result;
}

static int reseat_api_wish(const struct reseat_limits *minimum,
                           const struct reseat_limits *preferred)
{
    int result = aware_change_wish(minimum, preferred);
    return result != RESEAT_OK ? result : control_wake() ? RESEAT_OK : RESEAT_NO_AGENT;
}

static int reseat_api_current(struct _cl_device_id *handle, struct reseat_device *ret_device)
{
    struct reseat_device device;
    const uint32_t least = offsetof(struct reseat_device, limits);
    if (!ret_device || ret_device->size < least)
        return RESEAT_INVALID;
    if (start() != 0)
        return RESEAT_NO_DEVICE;
    const struct vdev *vdev = handle ? object_get(handle, OBJECT_DEVICE) : the_vdevs[0];
    if (!vdev)
        return RESEAT_NO_DEVICE;
    uint32_t size = ret_device->size < sizeof(device) ? ret_device->size : (uint32_t)sizeof(device);
    aware_describe(atomic_load(&vdev->device), &device);
    device.granted = aware_granted(vdev->index);
    device.size = size;
    memcpy(ret_device, &device, size);
    return RESEAT_OK;
}

static int reseat_api_save(const void *bytes, size_t count)
{
    return aware_save(bytes, count);
}

static int reseat_api_restored(struct reseat_restored *ret_restored)
{
    const uint32_t least = offsetof(struct reseat_restored, problem);
    struct reseat_restored told = {0};
    struct restored restored = {0};
    char problem[IMAGE_PROBLEM_MAX] = "";
    if (!ret_restored || ret_restored->size < least)
        return RESEAT_INVALID;
    uint32_t size = ret_restored->size < sizeof(told) ? ret_restored->size : (uint32_t)sizeof(told);
    int error = restore_progress(&restored, problem);
    /* A longer text is truncated. */
    text_make_safe(told.problem, sizeof(told.problem), problem, strlen(problem));
    told.size = size;
    told.bytes = restored.bytes;
    told.count = restored.size;
    told.saved_ms = restored.created_ms;
    if (error == 0)
        memcpy(ret_restored, &told, size);
    else if (size > least)
        memcpy((char *)ret_restored + least, told.problem, size - least);
    if (error != 0 && error != -ENOENT)
        log_error("the program cannot be restored: %s", problem);
    return error == 0         ? RESEAT_OK
           : error == -ENOENT ? RESEAT_NO_IMAGE
           : error == -ESTALE ? RESEAT_DIFFERENT
           : error == -ENOMEM ? RESEAT_NO_MEMORY
                              : RESEAT_DAMAGED;
}

/* With @memory held. */
static int reseat_api_name_root(struct memory *memory, const char *name, int *ret_filled)
{
    char problem[IMAGE_PROBLEM_MAX] = "";
    bool filled = false;
    if (names_taken(memory, name))
        return RESEAT_ALREADY;
    int error = restore_fill(memory, name, &filled, problem);
    if (error != 0)
        log_error("a memory object cannot be restored: %s", problem);
    if (error != 0 && error != -ENOENT)
        return error == -ESTALE   ? RESEAT_DIFFERENT
               : error == -EBUSY  ? RESEAT_BUSY
               : error == -ENOMEM ? RESEAT_NO_MEMORY
                                  : RESEAT_DAMAGED;
    int named = names_set(memory, name);
    if (named != 0)
        return named == -EEXIST ? RESEAT_ALREADY : RESEAT_NO_MEMORY;
    if (error == 0 && ret_filled)
        *ret_filled = filled;
    return error == 0 ? RESEAT_OK : RESEAT_MISSING;
}

static int reseat_api_name(struct _cl_mem *handle, const char *name, int *ret_filled)
{
    if (!name_is_valid(name))
        return RESEAT_INVALID;
    gate_enter();
    struct memory *memory = memory_get(handle);
    bool whole = memory && memory->root == memory && memory->type != CL_MEM_OBJECT_PIPE;
    if (whole)
        object_hold(memory);
    gate_leave();
    if (!whole)
        return RESEAT_INVALID;
    int result = reseat_api_name_root(memory, name, ret_filled);
    object_unhold(memory);
    return result;
}

static int reseat_api_offer(struct _cl_kernel *handle, struct _cl_kernel *other_handle,
                            const struct reseat_implementation *implementation)
{
    struct implementation_shape shape;
    if (!implementation || implementation->size < sizeof(*implementation))
        return RESEAT_INVALID;
    shape.dims = implementation->dims;
    memcpy(shape.replaces, implementation->replaces, sizeof(shape.replaces));
    memcpy(shape.local, implementation->local, sizeof(shape.local));
    struct kernel *kernel = kernel_get(handle), *other = kernel_get(other_handle);
    int error = kernel && other ? implementations_add(kernel, other, &shape) : -EINVAL;
    return error == 0         ? RESEAT_OK
           : error == -EDOM   ? RESEAT_DIFFERENT
           : error == -ENOSPC ? RESEAT_TOO_MANY
           : error == -ENOMEM ? RESEAT_NO_MEMORY
                              : RESEAT_INVALID;
}

const struct reseat_api *reseat_api(uint32_t version)
{
    static const struct reseat_api api = {
        .size = sizeof(api),
        .version = RESEAT_API_VERSION,
        .add = reseat_api_add,
        .remove = reseat_api_remove,
        .wish = reseat_api_wish,
        .current = reseat_api_current,
        .save = reseat_api_save,
        .restored = reseat_api_restored,
        .name = reseat_api_name,
        .offer = reseat_api_offer,
    };
    return version >> 16 == RESEAT_API_MAJOR ? &api : NULL;
}
