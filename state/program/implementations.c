#include "state/program/implementations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/thread.h"
#include "state/program/kernel_priv.h"

/* The kernel itself, and those that may be launched instead. */
#define IMPLEMENTATIONS_MOST 8

/* Each one's speed is measured again after a while, because neighbours come and go, and what is
 * launched first on a device has to be loaded: after this time, and so late that what slower ones
 * take longer is at most 1 % of all time. */
#define AGAIN_NS    (25 * NS_PER_MS)
#define AGAIN_TIMES 100

struct implementation {
    struct kernel *kernel; /* held; of the first, which is the kernel itself, borrowed */
    struct implementation_shape shape;
    uint64_t tried_ns;
    uint32_t copied, edition; /* the kernel's edition of which it has the arguments, and its own */
};

/* Guarded by the kernel's details->lock. */
struct implementations {
    const struct device *device; /* that `tried_ns` is of */
    uint32_t best;               /* the fastest there, as far as is known */
    uint32_t count;
    struct implementation list[IMPLEMENTATIONS_MOST];
};

static int implementations_refuse(const struct kernel *kernel, const struct kernel *other,
                                  const char *reason, int error)
{
    log_error("kernel %s cannot be launched instead of %s: %s", other->pace->name,
              kernel->pace->name, reason);
    return error;
}

static bool implementations_shape_is_valid(const struct kernel *other,
                                           const struct implementation_shape *shape)
{
    const size_t *required = kernel_required_group(other);
    size_t items = 1;
    if (shape->dims < 1 || shape->dims > 3)
        return false;
    for (cl_uint i = 0; i < shape->dims; i++)
        if (shape->replaces[i] == 0 || shape->local[i] == 0 ||
            __builtin_mul_overflow(items, shape->local[i], &items))
            return false;
    for (cl_uint i = 0; required && i < 3; i++)
        if (required[i] != (i < shape->dims ? shape->local[i] : 1))
            return false;
    return true;
}

/* A structure has no size that the compiler tells, but a name. */
static bool implementations_type_is_equal(struct kernel *kernel, struct kernel *other,
                                          cl_uint index)
{
    const void *type, *other_type;
    size_t size, other_size;
    if (kernel_arg_info(kernel, index, CL_KERNEL_ARG_TYPE_NAME, &type, &size) != CL_SUCCESS ||
        kernel_arg_info(other, index, CL_KERNEL_ARG_TYPE_NAME, &other_type, &other_size) !=
            CL_SUCCESS)
        return true;
    return size == other_size && memcmp(type, other_type, size) == 0;
}

/* True when each can be given what the other is given. Pointers may be of different types. */
static bool implementations_parameters_are_equal(struct kernel *kernel, struct kernel *other)
{
    if (kernel->arg_count != other->arg_count)
        return false;
    for (cl_uint i = 0; i < kernel->arg_count; i++) {
        const struct kernel_arg *arg = &kernel->args[i], *of_other = &other->args[i];
        if (arg->declared != of_other->declared || arg->access != of_other->access ||
            arg->builtin_size != of_other->builtin_size ||
            (arg->declared == ARGUMENT_VALUE && arg->builtin_size == 0 &&
             !implementations_type_is_equal(kernel, other, i)))
            return false;
    }
    return true;
}

int implementations_add(struct kernel *kernel, struct kernel *other,
                        const struct implementation_shape *shape)
{
    struct implementations *all = kernel->details->implementations;
    if (kernel->context != other->context)
        return implementations_refuse(kernel, other, "it is of another context", -EINVAL);
    if (kernel->context->vdev_count != 1)
        return implementations_refuse(kernel, other, "their context has several devices", -EINVAL);
    if (kernel->pace == other->pace)
        return implementations_refuse(kernel, other, "it is the same kernel", -EINVAL);
    if (other->has_implementations)
        return implementations_refuse(kernel, other, "others are launched instead of it", -EINVAL);
    if (!implementations_shape_is_valid(other, shape))
        return implementations_refuse(kernel, other, "its work-groups cannot be such", -EINVAL);
    if (!implementations_parameters_are_equal(kernel, other))
        return implementations_refuse(kernel, other, "its parameters differ", -EDOM);
    if (!all && !(all = calloc(1, sizeof(*all))))
        return -ENOMEM;
    if (all->count == IMPLEMENTATIONS_MOST)
        return implementations_refuse(kernel, other, "there are too many already", -ENOSPC);
    if (all->count == 0)
        all->list[all->count++].kernel = kernel;
    object_hold(other);
    all->list[all->count++] = (struct implementation){
        .kernel = other, .shape = *shape, .copied = kernel_edition(kernel) - 1};
    kernel->details->implementations = all;
    kernel->has_implementations = true;
    return 0;
}

void implementations_free(struct implementations *implementations)
{
    for (uint32_t i = 1; implementations && i < implementations->count; i++)
        object_unhold(implementations->list[i].kernel);
    free(implementations);
}

/* ---- a launch ---- */

/* The launch of @one that does what one of @space does. False: there is none. */
static bool implementation_translate(const struct implementation *one,
                                     const struct launch_space *space,
                                     struct implementation_launch *ret_launch)
{
    const struct implementation_shape *shape = &one->shape;
    bool empty;
    if (shape->dims != space->dims)
        return false;
    for (cl_uint i = 0; i < space->dims; i++) {
        size_t groups = space->global[i] / shape->replaces[i];
        if (space->global[i] % shape->replaces[i] != 0 ||
            (space->offset && space->offset[i] != 0) ||
            __builtin_mul_overflow(groups, shape->local[i], &ret_launch->global[i]))
            return false;
        ret_launch->local[i] = shape->local[i];
    }
    ret_launch->kernel = one->kernel;
    ret_launch->is_trial = false;
    ret_launch->space = (struct launch_space){.dims = space->dims,
                                              .global = ret_launch->global,
                                              .local = ret_launch->local,
                                              .presented = space->presented};
    const struct launch_rules rules = {space->presented, NULL, NULL, SIZE_MAX};
    return check_launch(&ret_launch->space, &rules, &empty) == CL_SUCCESS;
}

/* True when @residence can run it. Inside the gate. */
static bool implementation_fits(const struct implementation_launch *launch,
                                struct residence *residence, uint8_t residence_index)
{
    struct kernel *kernel = launch->kernel;
    if (!kernel->program->real[residence_index] ||
        kernel_make_real(kernel, residence, residence_index) != CL_SUCCESS)
        return false;
    for (cl_uint i = 0; i < launch->space.dims; i++)
        if (launch->local[i] > atomic_load(&residence->groups.sizes[i]))
            return false;
    return kernel_group_fits(kernel, residence, residence_index, launch->space.items) &&
           kernel_local_fits(kernel, residence->device, kernel_local_bytes(kernel));
}

/* 0: not known. */
static double implementation_seconds(const struct implementation_launch *launch)
{
    uint64_t per_s = atomic_load(&launch->kernel->pace->per_s);
    return per_s ? (double)launch_item_count(&launch->space) / (double)per_s : 0;
}

/* The one that is launched, of those that @fits has a bit for. With the lock. */
static uint32_t implementations_pick(struct implementations *all, uint32_t fits,
                                     struct implementation_launch *launches)
{
    uint64_t now = clock_now_ns();
    double seconds[IMPLEMENTATIONS_MOST] = {0};
    uint32_t best = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        seconds[i] = fits >> i & 1 ? implementation_seconds(&launches[i]) : 0;
        if (seconds[i] != 0 && (seconds[best] == 0 || seconds[i] < seconds[best]))
            best = i;
    }
    all->best = best;
    uint32_t due = IMPLEMENTATIONS_MOST;
    for (uint32_t i = 0; i < all->count; i++) {
        double longer = seconds[i] != 0 ? seconds[i] - seconds[best] : 0;
        double since_ns = (double)(now - all->list[i].tried_ns);
        if ((fits >> i & 1) && since_ns >= AGAIN_NS + AGAIN_TIMES * longer * NS_PER_S &&
            (due == IMPLEMENTATIONS_MOST || all->list[i].tried_ns < all->list[due].tried_ns))
            due = i;
    }
    if (due == IMPLEMENTATIONS_MOST)
        return best;
    all->list[due].tried_ns = now;
    launches[due].is_trial = true;
    return due;
}

/* False: it lacks one. With the lock. */
static bool implementation_copy_args(struct implementation *one, const struct kernel *kernel)
{
    struct kernel *other = one->kernel;
    if (one->copied != kernel_edition(kernel) || one->edition != kernel_edition(other)) {
        if (kernel_copy_args(kernel, other) != 0)
            return false;
        one->copied = kernel_edition(kernel);
        one->edition = kernel_edition(other);
    }
    return other->unset == 0;
}

/* The one that is launched on @device. */
static uint32_t implementations_settle(struct kernel *kernel, const struct device *device,
                                       uint32_t fits, struct implementation_launch *launches)
{
    struct implementations *all = kernel->details->implementations;
    int before = cancel_hold();
    pthread_mutex_lock(&kernel->details->lock);
    for (uint32_t i = 0; all->device != device && i < all->count; i++)
        all->list[i].tried_ns = 0;
    all->device = device;
    uint32_t best_before = all->best, index = implementations_pick(all, fits, launches);
    if (index != 0 && !implementation_copy_args(&all->list[index], kernel))
        index = 0;
    const struct kernel *best = launches[all->best].kernel;
    bool changes = all->best != best_before;
    pthread_mutex_unlock(&kernel->details->lock);
    cancel_allow(before);
    if (changes)
        log_info("launches of kernel %s run %s on %s", kernel->pace->name, best->pace->name,
                 device->key.device);
    return index;
}

void implementations_choose(struct kernel *kernel, const struct launch_space *space,
                            struct implementation_launch *ret_launch)
{
    const struct implementations *all = kernel->details->implementations;
    const struct context *context = kernel->context;
    struct implementation_launch launches[IMPLEMENTATIONS_MOST];
    const struct device *device = NULL;
    uint32_t fits = 1, index = 0;
    launches[0] = (struct implementation_launch){.kernel = kernel, .space = *space};
    gate_enter();
    uint8_t residence_index = atomic_load(&context->residence_index[0]);
    if (residence_index != RESIDENCE_NONE)
        device = context->at[residence_index]->device;
    for (uint32_t i = 1; device && i < all->count; i++)
        if (implementation_translate(&all->list[i], space, &launches[i]) &&
            implementation_fits(&launches[i], context->at[residence_index], residence_index))
            fits |= 1u << i;
    gate_leave();
    if (fits != 1)
        index = implementations_settle(kernel, device, fits, launches);
    *ret_launch = launches[index];
    if (index != 0) {
        ret_launch->space.global = ret_launch->global;
        ret_launch->space.local = ret_launch->local;
    }
}
