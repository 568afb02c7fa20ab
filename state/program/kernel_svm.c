#include <stdlib.h>
#include <string.h>

#include "state/memory/svm.h"
#include "state/program/kernel_priv.h"

/* clSetKernelArgSVMPointer and clSetKernelExecInfo. What they set is kept as arguments are, for
 * clones and deferred launches. */

void kernel_exec_unref(struct kernel_exec *exec)
{
    if (exec && atomic_fetch_sub_explicit(&exec->refs, 1, memory_order_acq_rel) == 1)
        free(exec);
}

void kernel_exec_give(const struct kernel_exec *exec, struct residence *residence, cl_kernel real)
{
    const cl_icd_dispatch *cl = residence->cl;
    if (!exec || !cl->clSetKernelExecInfo)
        return;
    if (exec->pointers_known)
        (void)cl->clSetKernelExecInfo(real, CL_KERNEL_EXEC_INFO_SVM_PTRS,
                                      exec->count * sizeof(exec->pointers[0]), exec->pointers);
    if (exec->system_known)
        (void)cl->clSetKernelExecInfo(real, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM,
                                      sizeof(exec->system), &exec->system);
}

/* The real kernel in the home residence, whose driver checks the values. Inside the gate. */
static cl_int kernel_svm_home_kernel(struct kernel *kernel, struct residence **ret_residence)
{
    uint8_t home = context_home(kernel->context);
    *ret_residence = kernel->context->at[home];
    return kernel_make_real(kernel, *ret_residence, home);
}

static void kernel_svm_pin_for_good(struct context *context)
{
    pin_take(&context->pins, PIN_POINTERS);
    pin_keep(&context->pins, PIN_POINTERS);
}

static cl_int kernel_svm_set_arg(struct kernel *kernel, cl_uint index, const void *pointer)
{
    uint8_t home = context_home(kernel->context);
    bool current = kernel->applied[home] == kernel_edition(kernel);
    struct residence *residence;
    if (index >= kernel->arg_count)
        return CL_INVALID_ARG_INDEX;
    cl_int error = kernel_svm_home_kernel(kernel, &residence);
    if (error != CL_SUCCESS)
        return error;
    if (!residence->cl->clSetKernelArgSVMPointer)
        return CL_INVALID_OPERATION;
    error = residence->cl->clSetKernelArgSVMPointer(kernel->real[home], index, pointer);
    if (error != CL_SUCCESS)
        return error;
    struct kernel_arg *arg = &kernel->args[index];
    kernel_arg_leave(kernel, arg, false);
    arg->kind = ARG_SVM;
    arg->size = sizeof(pointer);
    arg->value.pointer = (void *)(uintptr_t)pointer;
    kernel_changed(kernel, home, current);
    if (pointer && !svm_has(&kernel->context->svm, pointer))
        kernel_svm_pin_for_good(kernel->context);
    return CL_SUCCESS;
}

cl_int kernel_set_arg_svm(struct kernel *kernel, cl_uint index, const void *pointer)
{
    context_enter(kernel->context);
    cl_int error = kernel_svm_set_arg(kernel, index, pointer);
    gate_leave();
    return error;
}

/* A copy of @before, or an empty one, with room for @count pointers. NULL without memory. */
static struct kernel_exec *kernel_svm_exec_new(const struct kernel_exec *before, size_t count)
{
    struct kernel_exec *exec = calloc(1, sizeof(*exec) + count * sizeof(exec->pointers[0]));
    if (!exec)
        return NULL;
    atomic_init(&exec->refs, 1);
    exec->count = count;
    if (before) {
        exec->system_known = before->system_known;
        exec->system = before->system;
        exec->pointers_known = before->pointers_known;
    }
    return exec;
}

/* Give @exec to the driver, and keep it in @kernel if the driver accepts it. Owns @exec. */
static cl_int kernel_svm_set_exec(struct kernel *kernel, struct kernel_exec *exec,
                                  cl_kernel_exec_info name, size_t size, const void *value)
{
    struct residence *residence;
    if (!exec)
        return CL_OUT_OF_HOST_MEMORY;
    context_enter(kernel->context);
    cl_int error = kernel_svm_home_kernel(kernel, &residence);
    if (error == CL_SUCCESS && !residence->cl->clSetKernelExecInfo)
        error = CL_INVALID_OPERATION;
    if (error == CL_SUCCESS)
        error = residence->cl->clSetKernelExecInfo(kernel->real[context_home(kernel->context)],
                                                   name, size, value);
    if (error == CL_SUCCESS) {
        kernel_exec_unref(kernel->details->exec);
        kernel->details->exec = exec;
        if (exec->system_known && exec->system)
            kernel_svm_pin_for_good(kernel->context);
    } else {
        kernel_exec_unref(exec);
    }
    gate_leave();
    return error;
}

cl_int kernel_set_svm_pointers(struct kernel *kernel, size_t count, void *const *pointers)
{
    struct kernel_exec *exec = kernel_svm_exec_new(kernel->details->exec, count);
    if (exec) {
        exec->pointers_known = true;
        memcpy(exec->pointers, pointers, count * sizeof(pointers[0]));
    }
    return kernel_svm_set_exec(kernel, exec, CL_KERNEL_EXEC_INFO_SVM_PTRS,
                               count * sizeof(pointers[0]), pointers);
}

cl_int kernel_set_svm_system(struct kernel *kernel, cl_bool system)
{
    const struct kernel_exec *before = kernel->details->exec;
    struct kernel_exec *exec = kernel_svm_exec_new(before, before ? before->count : 0);
    if (exec) {
        exec->system_known = true;
        exec->system = system;
        if (before)
            memcpy(exec->pointers, before->pointers, before->count * sizeof(before->pointers[0]));
    }
    return kernel_svm_set_exec(kernel, exec, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM,
                               sizeof(system), &system);
}
