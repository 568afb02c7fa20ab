#ifndef RESEAT_STATE_PROGRAM_KERNEL_PRIV_H
#define RESEAT_STATE_PROGRAM_KERNEL_PRIV_H

#include "state/driver/answers.h"
#include "state/object/usage.h"
#include "state/program/kernel.h"

/** What clSetKernelExecInfo was told. Immutable: held launches keep the one of their time. */
struct kernel_exec {
    _Atomic uint32_t refs;
    bool system_known, pointers_known;
    cl_bool system;
    size_t count;
    void *pointers[];
};
static inline struct kernel_exec *kernel_exec_ref(struct kernel_exec *exec)
{
    if (exec)
        atomic_fetch_add_explicit(&exec->refs, 1, memory_order_relaxed);
    return exec;
}
void kernel_exec_unref(struct kernel_exec *exec); /**< NULL is allowed. */
/** Tell a real kernel. Does nothing where its device has no shared virtual memory. */
void kernel_exec_give(const struct kernel_exec *exec, struct residence *residence, cl_kernel real);

struct kernel_details {
    struct answers answers;
    struct usage_kernel usage; /**< What its parameters take; noted at the first launch. */
    atomic_bool launched;
    /** Local memory, without that of arguments, where the kernel was first made. The program is
     *  told this on every device. */
    cl_ulong local_static;
    _Atomic cl_ulong local_dynamic; /**< Bytes of its ARG_LOCAL arguments now; movers read it. */
    struct kernel_exec *exec;       /**< Or NULL. */
    struct implementations *implementations; /**< Owned; or NULL. */
    size_t required[3];                      /**< By reqd_work_group_size; zeroes without. */
    _Atomic uint32_t told_group; /**< The least CL_KERNEL_WORK_GROUP_SIZE it was told; 0: none. */
    _Atomic uint32_t largest_group; /**< A driver's last answer, and where: see kernel_info.c. */
    /** For making a real kernel and giving it its arguments. Driver calls are made with it held:
     *  they only set values, and wait for no other thread. */
    pthread_mutex_t lock;
    struct kernel_marks marks;
};

static inline uint32_t kernel_edition(const struct kernel *kernel)
{
    return atomic_load_explicit(&kernel->edition, memory_order_relaxed);
}

/** The largest work-group that the program may count on, SIZE_MAX where it did not ask. */
static inline size_t kernel_told_group(const struct kernel *kernel)
{
    uint32_t told = atomic_load_explicit(&kernel->details->told_group, memory_order_relaxed);
    return told ? told : SIZE_MAX;
}
/** The largest that the driver has for @real, of @kernel in @residence_index. Inside the gate, or a
 * mover. */
size_t kernel_largest_group(const struct kernel *kernel, const struct residence *residence,
                            uint8_t residence_index, cl_kernel real);

/** The place whose real kernel answers queries. Inside the gate, after program_enter. */
static inline uint8_t kernel_home(const struct kernel *kernel)
{
    const struct context *context = kernel->context;
    return LIKELY(context->vdev_count == 1)
               ? atomic_load_explicit(&context->residence_index[0], memory_order_relaxed)
               : program_kernel_place(kernel->program);
}

/* True when real[residence_index] has the arguments of @edition. For several threads that launch
 * the kernel; by 5.9.2 the program sets no argument meanwhile. */
static inline bool kernel_has(const struct kernel *kernel, uint8_t residence_index,
                              uint32_t edition)
{
    return __atomic_load_n(&kernel->applied[residence_index], __ATOMIC_ACQUIRE) == edition;
}

/** Copy an argument into an unset one; 0 or -ENOMEM. A weak reference stays weak. */
MUST_CHECK int kernel_arg_copy(const struct kernel_arg *arg, struct kernel_arg *ret_arg);
void kernel_arg_finish(struct kernel_arg *arg);

/** A new value is about to replace @arg. @in_place: its memory is kept for the new bytes. */
static inline void kernel_arg_leave(struct kernel *kernel, struct kernel_arg *arg, bool in_place)
{
    if (arg->kind == ARG_LOCAL)
        kernel->details->local_dynamic -= arg->size;
    kernel->unset -= arg->kind == ARG_UNSET;
    if (!in_place)
        kernel_arg_finish(arg);
}

static inline const void *kernel_arg_bytes(const struct kernel_arg *arg)
{
    return arg->size > sizeof(arg->value.small) ? arg->value.big : arg->value.small;
}

/** An argument changed; @residence_index has it if @current says that it had all others. */
static inline void kernel_changed(struct kernel *kernel, uint8_t residence_index, bool current)
{
    uint32_t edition = kernel_edition(kernel) + 1;
    atomic_store_explicit(&kernel->edition, edition, memory_order_relaxed);
    if (current)
        kernel->applied[residence_index] = edition;
}

#endif
