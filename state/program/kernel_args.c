#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory/memory.h"
#include "state/object/lost.h"
#include "state/program/kernel_priv.h"
#include "state/program/sampler.h"

/* The usual case is one function that calls nothing but the driver. The other cases are kept out of
 * line, so that it needs few registers. */

/* The real object behind an argument in @residence_index, made where it is not yet; NULL for a NULL
 * buffer.
 */
static cl_int kernel_args_real_object(const struct kernel_arg *arg, struct object *object,
                                      struct residence *residence, uint8_t residence_index,
                                      void **ret_real)
{
    cl_int error = CL_SUCCESS;
    if (!object) {
        *ret_real = NULL;
    } else if (arg->kind == ARG_SAMPLER) {
        struct sampler *sampler = (struct sampler *)object;
        if (UNLIKELY(!sampler->real[residence_index]))
            error = sampler_make_real(sampler, residence, residence_index);
        *ret_real = sampler->real[residence_index];
    } else {
        struct memory *memory = (struct memory *)object;
        if (UNLIKELY(!memory->real[residence_index]))
            error = budget_is_tight(&residence->device->budget)
                        ? OVER_BUDGET
                        : memory_make_real(memory, residence, residence_index);
        *ret_real = memory->real[residence_index];
    }
    return error;
}

/* Give one argument to a real kernel. Its object is made real where it is not yet. */
static cl_int kernel_arg_give(const struct kernel_arg *arg, cl_uint index,
                              struct residence *residence, uint8_t residence_index, cl_kernel real)
{
    const cl_icd_dispatch *cl = residence->cl;
    if (arg->kind == ARG_UNSET)
        return CL_SUCCESS;
    if (arg->kind == ARG_LOCAL)
        return cl->clSetKernelArg(real, index, arg->size, NULL);
    if (arg->kind == ARG_VALUE)
        return cl->clSetKernelArg(real, index, arg->size, kernel_arg_bytes(arg));
    if (arg->kind == ARG_SVM) {
        /* The driver took it before, and takes it again unless its allocation is gone. */
        if (cl->clSetKernelArgSVMPointer)
            (void)cl->clSetKernelArgSVMPointer(real, index, arg->value.pointer);
        return CL_SUCCESS;
    }
    struct object *object = object_weak_get(arg->object);
    void *handle;
    /* Its object is gone: natively the launch has no defined effect; here it is refused. */
    if (!object && arg->object.object)
        return CL_SUCCESS;
    cl_int error = kernel_args_real_object(arg, object, residence, residence_index, &handle);
    return error ? error : cl->clSetKernelArg(real, index, sizeof(handle), &handle);
}

cl_int kernel_apply(struct kernel *kernel, struct residence *residence, uint8_t residence_index)
{
    cl_int error = CL_SUCCESS;
    uint32_t edition = kernel_edition(kernel);
    if (kernel_has(kernel, residence_index, edition))
        return CL_SUCCESS;
    pthread_mutex_lock(&kernel->details->lock);
    bool has = kernel_has(kernel, residence_index, edition);
    for (cl_uint i = 0; !has && error == CL_SUCCESS && i < kernel->arg_count; i++)
        error = kernel_arg_give(&kernel->args[i], i, residence, residence_index,
                                kernel->real[residence_index]);
    kernel_exec_give(kernel->details->exec, residence, kernel->real[residence_index]);
    if (error == CL_SUCCESS)
        __atomic_store_n(&kernel->applied[residence_index], edition, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&kernel->details->lock);
    return error;
}

uint64_t kernel_argument_bytes(const struct kernel *kernel)
{
    uint64_t bytes = 0;
    for (cl_uint i = 0; i < kernel->arg_count; i++) {
        const struct kernel_arg *arg = &kernel->args[i];
        const struct memory *memory = arg->kind == ARG_MEMORY ? object_weak_get(arg->object) : NULL;
        bytes += memory ? memory->root->size : 0;
    }
    return bytes;
}

void kernel_forget(struct kernel *kernel, struct residence *residence, uint8_t residence_index)
{
    const cl_mem none = NULL;
    for (cl_uint i = 0; i < kernel->arg_count; i++) {
        const struct kernel_arg *arg = &kernel->args[i];
        const struct memory *memory = arg->kind == ARG_MEMORY ? object_weak_get(arg->object) : NULL;
        if (!memory || memory->real[residence_index])
            continue;
        kernel->applied[residence_index] = kernel_edition(kernel) - 1;
        /* Some drivers' kernels retain their arguments (5.9.2 says that they need not). */
        if (arg->declared == ARGUMENT_BUFFER || arg->declared == ARGUMENT_OBJECT)
            (void)residence->cl->clSetKernelArg(kernel->real[residence_index], i, sizeof(none),
                                                &none);
    }
}

int kernel_arg_copy(const struct kernel_arg *arg, struct kernel_arg *ret_arg)
{
    struct kernel_arg copy = *arg;
    if (arg->kind == ARG_VALUE && arg->size > sizeof(arg->value.small)) {
        copy.value.big = malloc(arg->size);
        if (!copy.value.big)
            return -ENOMEM;
        memcpy(copy.value.big, arg->value.big, arg->size);
    }
    if (arg->kind == ARG_SAMPLER)
        object_hold(arg->object.object);
    *ret_arg = copy;
    return 0;
}

/* Replace the value of an argument, not what is declared of its parameter. */
static int kernel_arg_replace(struct kernel *kernel, struct kernel_arg *arg,
                              const struct kernel_arg *value)
{
    struct kernel_arg next;
    if (kernel_arg_copy(value, &next) != 0)
        return -ENOMEM;
    kernel_arg_leave(kernel, arg, false);
    kernel->unset += next.kind == ARG_UNSET;
    arg->kind = next.kind;
    arg->size = next.size;
    arg->object = next.object;
    arg->value = next.value;
    return 0;
}

int kernel_copy_args(const struct kernel *source, struct kernel *target)
{
    int err = 0;
    for (cl_uint i = 0; !err && i < source->arg_count; i++)
        if (target->args[i].kind != ARG_LOCAL && source->args[i].kind != ARG_LOCAL)
            err = kernel_arg_replace(target, &target->args[i], &source->args[i]);
    kernel_exec_unref(target->details->exec);
    target->details->exec = kernel_exec_ref(source->details->exec);
    kernel_changed(target, 0, false);
    return err;
}

/* Make the real kernel in @residence, if there is none yet. */
static inline cl_int kernel_args_home_real(struct kernel *kernel, struct residence *residence,
                                           uint8_t residence_index)
{
    return LIKELY(kernel->real[residence_index] != NULL)
               ? CL_SUCCESS
               : kernel_make_real(kernel, residence, residence_index);
}

/* True when the real kernel in the home residence has all arguments. */
static inline bool kernel_args_is_current(const struct kernel *kernel, uint8_t home)
{
    return kernel->applied[home] == kernel_edition(kernel);
}

/* Set any value: also a first one, one of an unusual size, and none at all. */
static NOINLINE cl_int kernel_args_set_new_value(struct kernel *kernel, cl_uint index, size_t size,
                                                 const void *value)
{
    struct kernel_arg *arg = &kernel->args[index];
    uint8_t home = kernel_home(kernel);
    struct residence *residence = kernel->context->at[home];
    bool current = kernel_args_is_current(kernel, home);
    bool is_big = value && size > sizeof(arg->value.small);
    bool same_size = value && arg->kind == ARG_VALUE && arg->size == size;
    unsigned char *big = NULL;
    /* POCL takes any size. */
    if (size > UINT32_MAX || (arg->builtin_size != 0 && size != arg->builtin_size))
        return CL_INVALID_ARG_SIZE;
    if (!value && arg->builtin_size != 0)
        return CL_INVALID_ARG_VALUE;
    if (same_size && current && memcmp(kernel_arg_bytes(arg), value, size) == 0)
        return CL_SUCCESS;
    if (is_big && !same_size && !(big = malloc(size)))
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = kernel_args_home_real(kernel, residence, home);
    if (error == CL_SUCCESS)
        error = residence->cl->clSetKernelArg(kernel->real[home], index, size, value);
    if (error != CL_SUCCESS) {
        free(big);
        return error;
    }
    kernel_arg_leave(kernel, arg, same_size);
    /* Accepted without a value: it is local memory or a NULL buffer, though undeclared. */
    arg->kind = value ? ARG_VALUE : ARG_LOCAL;
    arg->size = (uint32_t)size;
    if (!value) {
        kernel->details->local_dynamic += size;
    } else if (is_big) {
        if (!same_size)
            arg->value.big = big;
        memcpy(arg->value.big, value, size);
    } else {
        memset(arg->value.small, 0, sizeof(arg->value.small)); /* kernel_args_set_value */
        memcpy(arg->value.small, value, size);
    }
    kernel_changed(kernel, home, current);
    return CL_SUCCESS;
}

/* Of 4 or 8 bytes, as most are, in place of one of the same size that the real kernel has: one
 * comparison and one store of 8 bytes, since those behind a smaller value are zero. */
static ALWAYS_INLINE cl_int kernel_args_set_value(struct kernel *kernel, uint8_t home,
                                                  cl_uint index, size_t size, const void *value)
{
    struct kernel_arg *arg = &kernel->args[index];
    cl_kernel real = kernel->real[home];
    uint64_t bytes = 0, kept;
    if (UNLIKELY(arg->kind != ARG_VALUE || arg->size != size || !value || !real ||
                 !kernel_args_is_current(kernel, home)))
        return kernel_args_set_new_value(kernel, index, size, value);
    if (size == 4)
        memcpy(&bytes, value, 4);
    else if (LIKELY(size == 8))
        memcpy(&bytes, value, 8);
    else
        return kernel_args_set_new_value(kernel, index, size, value);
    memcpy(&kept, arg->value.small, sizeof(kept));
    if (bytes == kept)
        return CL_SUCCESS;
    cl_int error = kernel->context->at[home]->cl->clSetKernelArg(real, index, size, value);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    memcpy(arg->value.small, &bytes, sizeof(bytes));
    kernel_changed(kernel, home, true);
    return CL_SUCCESS;
}

/* Set any object: also NULL, and when there is no real object or real kernel here yet. */
static NOINLINE cl_int kernel_args_set_new_object(struct kernel *kernel, cl_uint index,
                                                  struct object *object, enum kernel_arg_kind kind)
{
    struct kernel_arg *arg = &kernel->args[index];
    uint8_t home = kernel_home(kernel);
    struct residence *residence = kernel->context->at[home];
    bool current = kernel_args_is_current(kernel, home);
    const struct kernel_arg next = {.kind = (uint8_t)kind};
    void *handle = NULL;
    cl_int error = kernel_args_home_real(kernel, residence, home);
    if (error == CL_SUCCESS)
        error = kernel_args_real_object(&next, object, residence, home, &handle);
    /* There is no room for it now: the argument is given when a launch brings it. */
    bool later = error == OVER_BUDGET;
    if (error == CL_SUCCESS)
        error = residence->cl->clSetKernelArg(kernel->real[home], index, sizeof(handle), &handle);
    if (error != CL_SUCCESS && !later)
        return error;
    if (kind == ARG_SAMPLER)
        object_hold(object);
    kernel_arg_leave(kernel, arg, false);
    arg->kind = (uint8_t)kind;
    arg->size = sizeof(handle);
    arg->object = object_weak(object);
    kernel_changed(kernel, home, current && !later);
    return CL_SUCCESS;
}

static ALWAYS_INLINE cl_int kernel_args_set_buffer(struct kernel *kernel, uint8_t home,
                                                   cl_uint index, struct memory *memory)
{
    struct kernel_arg *arg = &kernel->args[index];
    cl_kernel real = kernel->real[home];
    uint32_t generation = atomic_load_explicit(&memory->object.generation, memory_order_relaxed);
    if (UNLIKELY(arg->kind != ARG_MEMORY || !real || !memory->real[home] ||
                 !kernel_args_is_current(kernel, home)))
        return kernel_args_set_new_object(kernel, index, &memory->object, ARG_MEMORY);
    if (arg->object.object == &memory->object && arg->object.generation == generation)
        return CL_SUCCESS;
    cl_int error = kernel->context->at[home]->cl->clSetKernelArg(real, index, sizeof(cl_mem),
                                                                 &memory->real[home]);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    arg->object.object = &memory->object;
    arg->object.generation = generation;
    kernel_changed(kernel, home, true);
    return CL_SUCCESS;
}

/* The handle that @value points to, which need not be aligned. */
static inline void *kernel_args_handle_at(const void *value)
{
    void *handle;
    memcpy(&handle, value, sizeof(handle));
    return handle;
}

/* Of an image, or for a parameter that is one. */
static NOINLINE cl_int kernel_args_set_image(struct kernel *kernel, cl_uint index, size_t size,
                                             const void *value)
{
    const struct kernel_arg *arg = &kernel->args[index];
    if (size != sizeof(cl_mem))
        return CL_INVALID_ARG_SIZE;
    if (!value)
        return CL_INVALID_ARG_VALUE;
    struct memory *memory = memory_get(kernel_args_handle_at(value));
    if (!memory || memory->context != kernel->context)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        argument_check_memory(arg->declared, CL_KERNEL_ARG_ACCESS_READ_ONLY + arg->access,
                              memory->image != NULL, memory->flags);
    return error ? error : kernel_args_set_buffer(kernel, kernel_home(kernel), index, memory);
}

static ALWAYS_INLINE cl_int kernel_args_set_memory(struct kernel *kernel, uint8_t home,
                                                   cl_uint index, size_t size, const void *value)
{
    void *handle = LIKELY(value != NULL) ? kernel_args_handle_at(value) : NULL;
    if (UNLIKELY(size != sizeof(handle)))
        return CL_INVALID_ARG_SIZE;
    if (UNLIKELY(!handle))
        return kernel_args_set_new_object(kernel, index, NULL, ARG_MEMORY);
    struct memory *memory = memory_get(handle);
    /* An object of another context cannot be used. */
    if (UNLIKELY(!memory || memory->context != kernel->context))
        return CL_INVALID_MEM_OBJECT;
    return UNLIKELY(memory->type != CL_MEM_OBJECT_BUFFER)
               ? kernel_args_set_image(kernel, index, size, value)
               : kernel_args_set_buffer(kernel, home, index, memory);
}

static cl_int kernel_args_set_sampler(struct kernel *kernel, cl_uint index, size_t size,
                                      const void *value)
{
    const struct kernel_arg *arg = &kernel->args[index];
    if (size != sizeof(cl_sampler))
        return CL_INVALID_ARG_SIZE;
    if (!value)
        return CL_INVALID_ARG_VALUE;
    struct sampler *sampler = sampler_get(kernel_args_handle_at(value));
    if (!sampler || sampler->context != kernel->context)
        return CL_INVALID_SAMPLER;
    struct object_weak weak = object_weak(sampler);
    if (kernel_args_is_current(kernel, kernel_home(kernel)) && arg->kind == ARG_SAMPLER &&
        arg->object.object == weak.object && arg->object.generation == weak.generation)
        return CL_SUCCESS;
    return kernel_args_set_new_object(kernel, index, &sampler->object, ARG_SAMPLER);
}

/* Set a parameter of unknown kind: a value that is one of our handles is taken for a handle. */
static NOINLINE cl_int kernel_args_set_any(struct kernel *kernel, cl_uint index, size_t size,
                                           const void *value)
{
    void *handle = value && size == sizeof(handle) ? kernel_args_handle_at(value) : NULL;
    if (handle && object_was_handle(handle, OBJECT_MEMORY))
        return kernel_args_set_memory(kernel, kernel_home(kernel), index, size, value);
    if (handle && object_was_handle(handle, OBJECT_SAMPLER))
        return kernel_args_set_sampler(kernel, index, size, value);
    return kernel_args_set_value(kernel, kernel_home(kernel), index, size, value);
}

static cl_int kernel_args_set_local(struct kernel *kernel, cl_uint index, size_t size,
                                    const void *value)
{
    const struct kernel_arg *arg = &kernel->args[index];
    if (size == 0)
        return CL_INVALID_ARG_SIZE;
    if (value)
        return CL_INVALID_ARG_VALUE;
    if (arg->kind == ARG_LOCAL && arg->size == size &&
        kernel_args_is_current(kernel, kernel_home(kernel)))
        return CL_SUCCESS;
    return kernel_args_set_new_value(kernel, index, size, value);
}

static ALWAYS_INLINE cl_int kernel_args_set_arg(struct kernel *kernel, uint8_t home, cl_uint index,
                                                size_t size, const void *value)
{
    if (UNLIKELY(index >= kernel->arg_count))
        return CL_INVALID_ARG_INDEX;
    unsigned declared = kernel->args[index].declared;
    if (LIKELY(declared == ARGUMENT_VALUE))
        return kernel_args_set_value(kernel, home, index, size, value);
    if (LIKELY(declared == ARGUMENT_BUFFER || declared == ARGUMENT_OBJECT))
        return kernel_args_set_memory(kernel, home, index, size, value);
    return declared == ARGUMENT_LOCAL     ? kernel_args_set_local(kernel, index, size, value)
           : declared == ARGUMENT_SAMPLER ? kernel_args_set_sampler(kernel, index, size, value)
           : declared == ARGUMENT_UNKNOWN ? kernel_args_set_any(kernel, index, size, value)
                                          : kernel_args_set_image(kernel, index, size, value);
}

/* Enter the gate, also when the context has several virtual devices or is suspended. */
static NOINLINE uint8_t kernel_args_enter_home(struct kernel *kernel)
{
    program_enter(kernel->program);
    return kernel_home(kernel);
}

static ALWAYS_INLINE cl_int kernel_args_set(struct kernel *kernel, cl_uint index, size_t size,
                                            const void *value)
{
    const struct context *context = kernel->context;
    uint8_t home = RESIDENCE_NONE;
    gate_enter();
    if (LIKELY(context->vdev_count == 1))
        home = atomic_load_explicit(&context->residence_index[0], memory_order_relaxed);
    if (UNLIKELY(home == RESIDENCE_NONE)) {
        gate_leave();
        home = kernel_args_enter_home(kernel);
    }
    cl_int error = kernel_args_set_arg(kernel, home, index, size, value);
    gate_leave();
    return error;
}

/* Try again after @error if it means that the device was lost, once the program runs elsewhere. */
static NOINLINE cl_int kernel_args_set_again(struct kernel *kernel, cl_uint index, size_t size,
                                             const void *value, cl_int error)
{
    unsigned tries = 0;
    while (error != CL_SUCCESS && context_outlives(kernel->context, error, &tries))
        error = kernel_args_set(kernel, index, size, value);
    return error;
}

HOT cl_int kernel_set_arg(struct kernel *kernel, cl_uint index, size_t size, const void *value)
{
    cl_int error = kernel_args_set(kernel, index, size, value);
    return LIKELY(error == CL_SUCCESS) ? error
                                       : kernel_args_set_again(kernel, index, size, value, error);
}

bool kernel_follows_pointers(const struct kernel *kernel)
{
    bool follows = kernel->details->exec != NULL;
    for (cl_uint i = 0; i < kernel->arg_count; i++)
        follows = follows || kernel->args[i].kind == ARG_SVM;
    return follows;
}

struct kernel_captured_args {
    _Atomic uint32_t refs;
    struct kernel *kernel;    /* held */
    struct kernel_exec *exec; /* or NULL */
    cl_uint count;
    struct kernel_arg args[]; /* their memory objects are held, too */
};

int kernel_captured_args_take(struct kernel *kernel,
                              struct kernel_captured_args **ret_captured_args)
{
    struct kernel_captured_args *captured_args =
        calloc(1, sizeof(*captured_args) + kernel->arg_count * sizeof(captured_args->args[0]));
    if (!captured_args)
        return -ENOMEM;
    atomic_init(&captured_args->refs, 1);
    captured_args->kernel = kernel;
    object_hold(kernel);
    atomic_fetch_add_explicit(&kernel->program->held, 1, memory_order_relaxed);
    captured_args->exec = kernel_exec_ref(kernel->details->exec);
    for (cl_uint i = 0; i < kernel->arg_count; i++) {
        struct kernel_arg *arg = &captured_args->args[i];
        if (kernel_arg_copy(&kernel->args[i], arg) != 0) {
            kernel_captured_args_unref(captured_args);
            return -ENOMEM;
        }
        captured_args->count = i + 1;
        struct object *object = arg->kind == ARG_MEMORY ? object_weak_get(arg->object) : NULL;
        if (object)
            object_hold(object);
        else if (arg->kind == ARG_MEMORY && arg->object.object)
            *arg = (struct kernel_arg){.kind = ARG_UNSET};
    }
    *ret_captured_args = captured_args;
    return 0;
}

bool kernel_captured_args_is_whole(const struct kernel_captured_args *captured_args)
{
    for (cl_uint i = 0; i < captured_args->count; i++)
        if (captured_args->args[i].kind == ARG_UNSET)
            return false;
    return true;
}

cl_int kernel_captured_args_make(const struct kernel_captured_args *captured_args,
                                 struct residence *residence, uint8_t residence_index,
                                 cl_program program, cl_kernel *ret_real)
{
    cl_int error = CL_SUCCESS;
    if (!program)
        return CL_INVALID_PROGRAM_EXECUTABLE;
    cl_kernel real =
        residence->cl->clCreateKernel(program, captured_args->kernel->pace->name, &error);
    if (!real)
        return error ? error : CL_OUT_OF_RESOURCES;
    for (cl_uint i = 0; error == CL_SUCCESS && i < captured_args->count; i++)
        error = kernel_arg_give(&captured_args->args[i], i, residence, residence_index, real);
    kernel_exec_give(captured_args->exec, residence, real);
    if (error != CL_SUCCESS) {
        residence->cl->clReleaseKernel(real);
        return error;
    }
    *ret_real = real;
    return CL_SUCCESS;
}

/* The i-th argument that is a memory object, or NULL. */
static const struct kernel_arg *
kernel_captured_args_at(const struct kernel_captured_args *captured_args, unsigned i)
{
    for (cl_uint a = 0; a < captured_args->count; a++) {
        const struct kernel_arg *arg = &captured_args->args[a];
        if (arg->kind == ARG_MEMORY && arg->object.object && i-- == 0)
            return arg;
    }
    return NULL;
}

struct memory *kernel_captured_args_memory(const struct kernel_captured_args *captured_args,
                                           unsigned i, bool *ret_writes)
{
    const struct kernel_arg *arg = kernel_captured_args_at(captured_args, i);
    struct memory *memory = arg ? (struct memory *)arg->object.object : NULL;
    /* 5.2.1: a kernel that writes to a CL_MEM_READ_ONLY object has no defined effect. */
    if (memory)
        *ret_writes = arg->writes && !(memory->flags & CL_MEM_READ_ONLY);
    return memory;
}

size_t kernel_captured_args_element(const struct kernel_captured_args *captured_args, unsigned i)
{
    const struct kernel_arg *arg = kernel_captured_args_at(captured_args, i);
    return arg ? arg->element : 0;
}

uint64_t kernel_captured_args_local_bytes(const struct kernel_captured_args *captured_args)
{
    uint64_t bytes = 0;
    for (cl_uint i = 0; i < captured_args->count; i++)
        bytes += captured_args->args[i].kind == ARG_LOCAL ? captured_args->args[i].size : 0;
    return bytes;
}

struct kernel_captured_args *kernel_captured_args_ref(struct kernel_captured_args *captured_args)
{
    atomic_fetch_add_explicit(&captured_args->refs, 1, memory_order_relaxed);
    return captured_args;
}

void kernel_captured_args_unref(struct kernel_captured_args *captured_args)
{
    if (!captured_args ||
        atomic_fetch_sub_explicit(&captured_args->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (cl_uint i = 0; i < captured_args->count; i++) {
        struct kernel_arg *arg = &captured_args->args[i];
        if (arg->kind == ARG_MEMORY)
            object_unhold(arg->object.object);
        kernel_arg_finish(arg);
    }
    atomic_fetch_sub_explicit(&captured_args->kernel->program->held, 1, memory_order_relaxed);
    kernel_exec_unref(captured_args->exec);
    object_unhold(captured_args->kernel);
    free(captured_args);
}
