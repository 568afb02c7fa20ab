#include "state/object/pin.h"

#include <stddef.h>

#include "state/object/context.h"

void pin_take(struct pins *pins, enum pin_kind pin)
{
    if (pin != PIN_NONE)
        atomic_fetch_add_explicit(&pins->count[pin], 1, memory_order_relaxed);
}

void pin_drop(struct pins *pins, enum pin_kind pin)
{
    if (pin != PIN_NONE)
        atomic_fetch_sub_explicit(&pins->count[pin], 1, memory_order_relaxed);
}

void pin_keep(struct pins *pins, enum pin_kind pin)
{
    uint32_t count = atomic_load_explicit(&pins->count[pin], memory_order_relaxed);
    while (count > 1 &&
           !atomic_compare_exchange_weak_explicit(&pins->count[pin], &count, count - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static const char *pin_reason_of(const struct pins *pins)
{
    static const char *const reasons[PINS] = {
        [PIN_VARIABLES] = "a program keeps variables in device memory that OpenCL lets nobody read",
        [PIN_BUILDS] = "a program was built in different ways for different devices",
        [PIN_SVM] = "it has shared virtual memory, whose addresses are those of its device",
        [PIN_POINTERS] = "its kernels follow pointers into host memory, as its device can",
        [PIN_NATIVE] = "it runs native kernels, which know addresses in its device's memory",
        [PIN_SUB_DEVICES] = "it has divided its device into sub-devices",
    };
    for (size_t i = 0; i < PINS; i++)
        if (atomic_load_explicit(&pins->count[i], memory_order_relaxed) != 0)
            return reasons[i];
    return NULL;
}

const char *pin_reason(struct vdev *vdev)
{
    const char *reason = pin_reason_of(&vdev->pins);
    uintptr_t cursor = 0;
    struct context *context;
    while (!reason && (context = object_next(OBJECT_CONTEXT, &cursor))) {
        if (context_vdev_index(context, vdev) >= 0)
            reason = pin_reason_of(&context->pins);
        object_unhold(context);
    }
    return reason;
}

/* The first virtual device of @context whose device lacks some of @bits; NULL when none does.
 * Inside the gate. */
static struct vdev *pin_vdev_without(const struct context *context, cl_device_info name,
                                     uint64_t bits)
{
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint8_t residence_index =
            atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
        if ((devinfo_scalar(&context->at[residence_index]->device->info, name, 0) & bits) != bits)
            return context->vdevs[i];
    }
    return NULL;
}

/* Enter the gate with no virtual device of @context suspended. */
static void pin_enter_whole(struct context *context)
{
    gate_enter();
    for (cl_uint i = 0; i < context->vdev_count;) {
        if (atomic_load_explicit(&context->residence_index[i], memory_order_relaxed) !=
            RESIDENCE_NONE) {
            i++;
        } else {
            context_enter_slow(context, 1u << i);
            i = 0; /* the gate was left: another may be suspended by now */
        }
    }
}

cl_int pin_enter(struct context *context, cl_device_info name, uint64_t bits,
                 struct vdev **ret_stray)
{
    pin_enter_whole(context);
    *ret_stray = pin_vdev_without(context, name, bits);
    if (!*ret_stray)
        return CL_SUCCESS;
    gate_leave();
    return CL_OUT_OF_RESOURCES;
}
