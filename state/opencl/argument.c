#include "state/opencl/argument.h"

#include <string.h>

#include "state/base/compiler.h"

size_t argument_builtin_size(const char *type)
{
    static const struct {
        const char *word;
        size_t size;
    } scalars[] = {
        {"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"int", 4},    {"uint", 4},
        {"long", 8}, {"ulong", 8}, {"half", 2},  {"float", 4},  {"double", 8},
    };
    static const char *const widths[] = {"", "2", "3", "4", "8", "16"};
    static const size_t elements[] = {1, 2, 4, 4, 8, 16};
    if (strncmp(type, "unsigned ", 9) == 0)
        type += 9;
    for (size_t i = 0; i < ARRAY_SIZE(scalars); i++) {
        size_t length = strlen(scalars[i].word);
        for (size_t w = 0; w < ARRAY_SIZE(widths); w++)
            if (!strncmp(type, scalars[i].word, length) && !strcmp(type + length, widths[w]))
                return scalars[i].size * elements[w];
    }
    return 0;
}

enum argument_kind argument_declared(cl_kernel_arg_address_qualifier address,
                                     cl_kernel_arg_access_qualifier access, const char *type)
{
    if (!strncmp(type, "image", 5) && strstr(type, "_t") && !strchr(type, '*'))
        return ARGUMENT_IMAGE;
    if (!strcmp(type, "sampler_t"))
        return ARGUMENT_SAMPLER;
    switch (address) {
    case CL_KERNEL_ARG_ADDRESS_LOCAL:
        return ARGUMENT_LOCAL;
    case CL_KERNEL_ARG_ADDRESS_GLOBAL:
    case CL_KERNEL_ARG_ADDRESS_CONSTANT:
        /* A type without an asterisk may be a typedef of a pointer or an image. */
        return strchr(type, '*') ? ARGUMENT_BUFFER : ARGUMENT_OBJECT;
    case CL_KERNEL_ARG_ADDRESS_PRIVATE:
        if (access != CL_KERNEL_ARG_ACCESS_NONE && strncmp(type, "pipe", 4) != 0)
            return ARGUMENT_OBJECT;
        return argument_builtin_size(type) ? ARGUMENT_VALUE : ARGUMENT_UNKNOWN;
    default:
        return ARGUMENT_UNKNOWN;
    }
}
