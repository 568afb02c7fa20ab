#ifndef RESEAT_STATE_OPENCL_ARGUMENT_H
#define RESEAT_STATE_OPENCL_ARGUMENT_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Arguments of kernels (5.9.2): what a parameter takes, and which memory objects may be given to
 * it, for the engine, the remote driver and its server. Pure.
 */

/** What kind of value a parameter takes. */
enum argument_kind {
    ARGUMENT_UNKNOWN, /**< The compiler does not tell: a struct, or a type that the program named.
                       */
    ARGUMENT_VALUE,
    ARGUMENT_BUFFER,
    ARGUMENT_IMAGE,
    ARGUMENT_OBJECT, /**< A buffer or an image. */
    ARGUMENT_SAMPLER,
    ARGUMENT_LOCAL
};

/** Bytes of a built-in type (6.3.1, 6.3.2): "float", "uint4", "unsigned int"; 0 for other names. */
size_t argument_builtin_size(const char *type);

/** The kind of a parameter that clGetKernelArgInfo describes in this way. */
enum argument_kind argument_declared(cl_kernel_arg_address_qualifier address,
                                     cl_kernel_arg_access_qualifier access, const char *type);

/**
 * May a memory object be the argument?
 *
 * @access    Of an image: CL_KERNEL_ARG_ACCESS_NONE where it is not known.
 * @is_image  Of the object, as are @flags.
 */
static inline cl_int argument_check_memory(enum argument_kind kind,
                                           cl_kernel_arg_access_qualifier access, bool is_image,
                                           cl_mem_flags flags)
{
    if (is_image ? kind == ARGUMENT_BUFFER : kind == ARGUMENT_IMAGE)
        return CL_INVALID_MEM_OBJECT;
    bool reads =
        access == CL_KERNEL_ARG_ACCESS_READ_ONLY || access == CL_KERNEL_ARG_ACCESS_READ_WRITE;
    bool writes =
        access == CL_KERNEL_ARG_ACCESS_WRITE_ONLY || access == CL_KERNEL_ARG_ACCESS_READ_WRITE;
    return kind == ARGUMENT_IMAGE && ((reads && (flags & CL_MEM_WRITE_ONLY)) ||
                                      (writes && (flags & CL_MEM_READ_ONLY)))
               ? CL_INVALID_ARG_VALUE
               : CL_SUCCESS;
}

#endif
