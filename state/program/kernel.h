#ifndef RESEAT_STATE_PROGRAM_KERNEL_H
#define RESEAT_STATE_PROGRAM_KERNEL_H

#include "state/memory/memory.h"
#include "state/opencl/argument.h"
#include "state/program/pace.h"
#include "state/program/program.h"

struct launch_space; /* usage.h */

enum kernel_arg_kind { ARG_UNSET, ARG_VALUE, ARG_MEMORY, ARG_SAMPLER, ARG_LOCAL, ARG_SVM };

struct kernel_arg {
    uint8_t kind;
    uint8_t declared;     /**< enum argument_kind: what the compiler says of the parameter. */
    uint8_t builtin_size; /**< Of a value of a built-in type; 0: only the compiler knows. */
    uint8_t element : 4;  /**< The same for what a pointer points to, up to 8. */
    /** The kernel may write through it: not __constant, not a read_only image. A pointer to const
     * may be cast, so it counts as writable. */
    bool writes : 1;
    uint8_t access : 2; /**< Of an image, above CL_KERNEL_ARG_ACCESS_READ_ONLY. */
    uint32_t size;      /**< As given to clSetKernelArg. */
    /** The object of ARG_MEMORY (NULL object: a NULL buffer) and ARG_SAMPLER. Kernels do not retain
     *  their arguments (5.9.2), so the reference is weak. A sampler is held nevertheless: drivers
     *  copy it, and programs rely on that. */
    struct object_weak object;
    union {
        unsigned char small[16];
        unsigned char *big; /**< Owned, when size > sizeof small. */
        void *pointer;      /**< Of ARG_SVM. */
    } value;
};

struct kernel {
    struct object object;
    struct context *context; /**< The program's. */
    struct kernel_arg *args; /**< Owned. Not locked: 5.9.2 leaves that to the program. */
    cl_uint arg_count;
    cl_uint unset;                  /**< Arguments that have no value yet. Not locked either. */
    _Atomic uint32_t edition;       /**< Incremented when an argument changes, by the thread that
                                         sets it. */
    bool requires_group;            /**< It has a reqd_work_group_size. */
    bool has_implementations;       /**< Other kernels do its work: implementations.h */
    struct pace *pace;              /**< The program's, with the kernel's name: pace.h */
    struct kernel_details *details; /**< Memoised answers and what was launched: kernel_priv.h */
    cl_kernel *real;                /**< Owned, with applied[] behind: one for each of the context's
                                       residences. */
    uint32_t *applied;       /**< The edition that each of real[] was given: kernel_is_ready. */
    struct program *program; /**< Held. */
};

static inline struct kernel *kernel_get(cl_kernel handle)
{
    return object_get(handle, OBJECT_KERNEL);
}

/**
 * clCreateKernel (5.9.1): in the residence where its program has an executable, with what the
 * compiler says of its parameters. Waits while the context is suspended; not inside the gate.
 */
cl_int kernel_create(struct program *program, const char *name, struct kernel **ret_kernel);
/** clCloneKernel (5.9.1): the same kernel with the same arguments. As kernel_create. */
cl_int kernel_clone(struct kernel *source, struct kernel **ret_kernel);

/**
 * clSetKernelArg (5.9.2). What the kernel already has is not given again, so the driver is asked
 * only about what is new to it. Waits while the context is suspended; not inside the gate.
 */
cl_int kernel_set_arg(struct kernel *kernel, cl_uint index, size_t size, const void *value);

/** Give @target, whose parameters are of the same kinds, the arguments of @source but those of
 *  __local memory. 0 or -ENOMEM: it has some of them. */
MUST_CHECK int kernel_copy_args(const struct kernel *source, struct kernel *target);

/**
 * clSetKernelArgSVMPointer (5.9.2). A pointer that is in no allocation pins the context for good.
 * As kernel_set_arg.
 */
cl_int kernel_set_arg_svm(struct kernel *kernel, cl_uint index, const void *pointer);
/** clSetKernelExecInfo (5.9.2). @count pointers, or @system: whether it may follow any. */
cl_int kernel_set_svm_pointers(struct kernel *kernel, size_t count, void *const *pointers);
cl_int kernel_set_svm_system(struct kernel *kernel, cl_bool system);

/*
 * What the driver says of a kernel: asked once, then the same wherever the kernel lives. Each waits
 * while the context is suspended and the answer is not known yet; not inside the gate. The answer
 * is borrowed, for as long as the kernel.
 */

/** CL_KERNEL_ATTRIBUTES (5.9.3); "" where the device has no such query. */
cl_int kernel_attributes(struct kernel *kernel, const void **ret_value, size_t *ret_size);
/** clGetKernelArgInfo (5.9.3). */
cl_int kernel_arg_info(struct kernel *kernel, cl_uint index, cl_kernel_arg_info name,
                       const void **ret_value, size_t *ret_size);
/** clGetKernelWorkGroupInfo (5.9.3). @vdev: its index in the context. */
cl_int kernel_work_group_info(struct kernel *kernel, cl_uint vdev, cl_kernel_work_group_info name,
                              const void **ret_value, size_t *ret_size);
/** clGetKernelSubGroupInfo (5.9.3). @input: the program's, of @input_size bytes. */
cl_int kernel_sub_group_info(struct kernel *kernel, cl_uint vdev, cl_kernel_sub_group_info name,
                             size_t input_size, const void *input, const void **ret_value,
                             size_t *ret_size);
/**
 * Make real[residence_index] from the program's, without arguments. As program_make_real; threads
 * that launch the same kernel may come at once.
 */
cl_int kernel_make_real(struct kernel *kernel, struct residence *residence,
                        uint8_t residence_index);

/**
 * Give real[residence_index] all arguments that differ from what it has (applied != edition). Every
 * memory object named must be real in @residence_index. An argument whose object is gone is left
 * unset, as native. Inside the gate, or with it closed; threads that launch the same kernel may
 * come at once.
 */
cl_int kernel_apply(struct kernel *kernel, struct residence *residence, uint8_t residence_index);

/** True when kernel_make_real and kernel_apply have nothing to do in @residence_index. */
static inline bool kernel_is_ready(const struct kernel *kernel, uint8_t residence_index)
{
    return __atomic_load_n(&kernel->real[residence_index], __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&kernel->applied[residence_index], __ATOMIC_ACQUIRE) ==
               atomic_load_explicit(&kernel->edition, memory_order_relaxed);
}

/** True when it may follow pointers that no memory object says: its launches may use any memory. */
bool kernel_follows_pointers(const struct kernel *kernel);

/** A copy of all arguments that holds its objects, for a launch that is held. 0 or -ENOMEM. */
struct kernel_captured_args;
MUST_CHECK int kernel_captured_args_take(struct kernel *kernel,
                                         struct kernel_captured_args **ret_captured_args);
/** True when all its objects were alive. */
bool kernel_captured_args_is_whole(const struct kernel_captured_args *captured_args);
/** Make a real kernel with the captured arguments. It is a kernel of its own, because the program
 *  may set other arguments on its kernel meanwhile. @program: the real program to make it from, or
 *  a variant of it. The caller releases the kernel. Inside the gate. */
cl_int kernel_captured_args_make(const struct kernel_captured_args *captured_args,
                                 struct residence *residence, uint8_t residence_index,
                                 cl_program program, cl_kernel *ret_real);
/** The i-th memory object among the captured arguments, NULL past the end. */
struct memory *kernel_captured_args_memory(const struct kernel_captured_args *captured_args,
                                           unsigned i, bool *ret_writes);
/** Bytes of the built-in type to which the kernel's pointer to that object points; 0: not known. */
size_t kernel_captured_args_element(const struct kernel_captured_args *captured_args, unsigned i);
/** Bytes of its __local arguments. */
uint64_t kernel_captured_args_local_bytes(const struct kernel_captured_args *captured_args);
/** They do not change, so several launches may share them. Any thread. */
struct kernel_captured_args *kernel_captured_args_ref(struct kernel_captured_args *captured_args);
/** NULL is allowed. */
void kernel_captured_args_unref(struct kernel_captured_args *captured_args);

/** The work-group size that its source requires (reqd_work_group_size), or NULL. Borrowed. */
const size_t *kernel_required_sizes(const struct kernel *kernel);
static inline const size_t *kernel_required_group(const struct kernel *kernel)
{
    return UNLIKELY(kernel->requires_group) ? kernel_required_sizes(kernel) : NULL;
}
/** The largest work-group that can run in @residence_index, at most what the program was told.
 *  Inside the gate. */
size_t kernel_group_most(struct kernel *kernel, struct residence *residence,
                         uint8_t residence_index);
/** True when a work-group of @items can run in @residence_index. Never blocks; inside the gate. */
bool kernel_group_fits(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                       size_t items);

/** True when the device in @residence_index can never run a launch in work-groups of @items (0: the
 *  driver chooses) with @local bytes of __local arguments, however much memory is free. Inside the
 *  gate. */
bool kernel_exceeds(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                    size_t items, uint64_t local);
/** True when the local memory of @device suffices with @local bytes of __local arguments.
 *  Wait-free. */
bool kernel_local_fits(const struct kernel *kernel, const struct device *device, uint64_t local);
/** Bytes of its __local arguments now. */
uint64_t kernel_local_bytes(const struct kernel *kernel);

/** Bytes of all memory objects that its arguments name now. Gate closed. */
uint64_t kernel_argument_bytes(const struct kernel *kernel);
/** Memory objects left @residence_index: make real[residence_index] release them, and give it the
 *  arguments that name them again before its next launch. Gate closed. */
void kernel_forget(struct kernel *kernel, struct residence *residence, uint8_t residence_index);

/** Note the largest sizes launched, for PLAN and PREPARE. A few loads when nothing is new. */
void kernel_note_launch(struct kernel *kernel, const struct launch_space *space);
/**
 * True when real[residence_index] can run every local size launched so far, by its
 * CL_KERNEL_WORK_GROUP_SIZE, reqd_work_group_size and local memory. Else @ret_reason gets one line.
 * A mover, in PREPARE: real[residence_index] was made and has no arguments yet.
 */
bool kernel_can_launch(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                       char *ret_reason, size_t reason_size);

/** The largest launches so far. */
struct kernel_marks {
    _Atomic uint64_t group_size, item_sizes[3], local_memory;
    _Atomic uint64_t uneven; /**< 1: there was a launch that its work-groups do not divide. */
};
/** Forget the launches so far, and undo that; as usage_renew and usage_restore. One mover at a
 *  time. */
void kernel_marks_renew(struct kernel *kernel, struct kernel_marks *ret_before);
void kernel_marks_restore(struct kernel *kernel, const struct kernel_marks *before);

#endif
