#include "state/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/entry/entry.h"
#include "state/base/log.h"
#include "state/object/context.h"
#include "state/object/upcalls.h"
#include "state/recipe/container.h"
#include "state/recipe/recipe.h"

/* Programs (5.8 of the OpenCL 3.0 specification). */

/* The journal cannot repeat launches of the earlier build. As long as it has such launches, the
 * program has kernels, and cannot be built: so they are dropped first. */
static void entry_program_build_begins(const struct program *program)
{
    if (atomic_load(&program->edition) != 0)
        (void)the_upcalls->relieve(true);
}

static uint32_t entry_program_all_vdevs(const struct context *context)
{
    return vdevs_mask(context->vdev_count);
}

/* The virtual devices of @devices. Each has to be in @context, and one of @allowed. */
static cl_int entry_program_vdevs_of(const struct context *context, uint32_t allowed, cl_uint count,
                                     const cl_device_id *devices, uint32_t *ret_vdevs)
{
    uint32_t vdevs = 0;
    for (cl_uint i = 0; i < count; i++) {
        const struct vdev *vdev = vdev_get(devices[i]);
        int index = vdev ? context_vdev_index(context, vdev) : -1;
        if (index < 0 || !(allowed & (1u << index)))
            return CL_INVALID_DEVICE;
        vdevs |= 1u << index;
    }
    *ret_vdevs = vdevs;
    return CL_SUCCESS;
}

static bool entry_program_is_part_of_any(const struct context *context, cl_uint index,
                                         uint32_t vdevs)
{
    const struct sub_device *part = context->vdevs[index]->part;
    for (; part; part = part->parent->part) {
        int parent = context_vdev_index(context, part->parent);
        if (parent >= 0 && (vdevs & (1u << parent)))
            return true;
    }
    return false;
}

/* The same for a list that may be left out, which means all of @allowed. A build for a device is
 * one for its sub-devices as well. */
static cl_int entry_program_vdevs_to_build(const struct context *context, uint32_t allowed,
                                           cl_uint count, const cl_device_id *devices,
                                           uint32_t *ret_vdevs)
{
    uint32_t vdevs = allowed;
    if (!devices != (count == 0))
        return CL_INVALID_VALUE;
    cl_int error =
        devices ? entry_program_vdevs_of(context, allowed, count, devices, &vdevs) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
    for (cl_uint i = 0; i < context->vdev_count; i++)
        if ((allowed & (1u << i)) && entry_program_is_part_of_any(context, i, vdevs))
            vdevs |= 1u << i;
    *ret_vdevs = vdevs;
    return CL_SUCCESS;
}

static cl_int entry_program_create(struct context *context, int err, struct recipe *recipe,
                                   struct program **ret_program)
{
    if (err)
        return program_error(err);
    cl_int error =
        program_create(context, entry_program_all_vdevs(context), recipe, false, ret_program);
    recipe_unref(recipe);
    return error;
}

cl_int program_create_with_source(struct context *context, cl_uint count, const char **strings,
                                  const size_t *lengths, struct program **ret_program)
{
    struct recipe *recipe = NULL;
    bool given = count > 0 && strings;
    for (cl_uint i = 0; given && i < count; i++)
        given = strings[i] != NULL;
    if (!given)
        return CL_INVALID_VALUE;
    int err = recipe_source(count, strings, lengths, &recipe);
    return entry_program_create(context, err, recipe, ret_program);
}

static bool entry_program_has_il(void)
{
    return devinfo_string(&the_present.device, CL_DEVICE_IL_VERSION)[0] != '\0';
}

cl_int program_create_with_il(struct context *context, const void *il, size_t length,
                              struct program **ret_program)
{
    struct recipe *recipe = NULL;
    if (!entry_program_has_il())
        return CL_INVALID_OPERATION;
    if (!il || length == 0)
        return CL_INVALID_VALUE;
    int err = recipe_il(il, length, &recipe);
    return entry_program_create(context, err, recipe, ret_program);
}

/* Load one binary of a list. All have to equal the first valid one, because a program has one
 * recipe. CL_SUCCESS, CL_INVALID_VALUE, CL_INVALID_BINARY or CL_OUT_OF_HOST_MEMORY. */
static cl_int entry_program_load_binary(const unsigned char *bytes, size_t size,
                                        const unsigned char *first, size_t first_size,
                                        struct recipe **recipe)
{
    char what[80];
    if (!bytes || size == 0)
        return CL_INVALID_VALUE;
    if (*recipe && size == first_size && memcmp(bytes, first, size) == 0)
        return CL_SUCCESS;
    int err = *recipe ? -EBADMSG : container_read(bytes, size, recipe);
    if (!err)
        return CL_SUCCESS;
    if (err == -ENOMEM)
        return CL_OUT_OF_HOST_MEMORY;
    container_describe(bytes, size, what, sizeof(what));
    log_info("a program binary is refused, so that its source is used: it is %s", what);
    return CL_INVALID_BINARY;
}

cl_int program_create_with_binary(struct context *context, cl_uint num_devices,
                                  const cl_device_id *devices, const size_t *lengths,
                                  const unsigned char **binaries, cl_int *binary_status,
                                  struct program **ret_program)
{
    struct recipe *CLEANUP(recipe_unref_pointer) recipe = NULL;
    uint32_t vdevs = 0;
    if (!devices || num_devices == 0 || !lengths || !binaries)
        return CL_INVALID_VALUE;
    cl_int error = entry_program_vdevs_of(context, entry_program_all_vdevs(context), num_devices,
                                          devices, &vdevs);
    if (error != CL_SUCCESS)
        return error;
    cl_uint first = 0;
    for (cl_uint i = 0; i < num_devices; i++) {
        bool had = recipe != NULL;
        cl_int status = entry_program_load_binary(binaries[i], lengths[i], binaries[first],
                                                  lengths[first], &recipe);
        if (!had && recipe)
            first = i;
        if (binary_status)
            binary_status[i] = status;
        /* A value that is missing outweighs a binary that is wrong (5.8.1). */
        if (status != CL_SUCCESS && error != CL_INVALID_VALUE)
            error = status;
    }
    if (error == CL_SUCCESS)
        error = program_create(context, vdevs, recipe, true, ret_program);
    /* The recipe does not build on this device: the error makes the program use its source. */
    if (error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
        error == CL_LINK_PROGRAM_FAILURE) {
        error = CL_INVALID_BINARY;
        for (cl_uint i = 0; binary_status && i < num_devices; i++)
            binary_status[i] = CL_INVALID_BINARY;
    }
    return error;
}

/* No device offers built-in kernels: they are hardware of one vendor. */
cl_int program_create_built_in(struct context *context, cl_uint num_devices,
                               const cl_device_id *devices, const char *names,
                               struct program **ret_program)
{
    uint32_t vdevs;
    (void)ret_program;
    if (!devices || num_devices == 0 || !names)
        return CL_INVALID_VALUE;
    cl_int error = entry_program_vdevs_of(context, entry_program_all_vdevs(context), num_devices,
                                          devices, &vdevs);
    return error ? error : CL_INVALID_VALUE;
}

/* This call was for programs with global constructors and destructors, which 3.0 does not have. */
cl_int program_set_release(struct program *program,
                           void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    (void)program, (void)user_data;
    return pfn_notify ? CL_INVALID_OPERATION : CL_INVALID_VALUE;
}

cl_int program_set_constant(struct program *program, cl_uint id, size_t size, const void *value)
{
    return entry_program_has_il() ? program_specialise(program, id, size, value)
                                  : CL_INVALID_OPERATION;
}

cl_int program_begin_build(struct program *program, cl_uint num_devices,
                           const cl_device_id *devices, const char *options,
                           void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    uint32_t vdevs;
    if (!pfn_notify && user_data)
        return CL_INVALID_VALUE;
    cl_int error = entry_program_vdevs_to_build(program->context, program_vdevs(program),
                                                num_devices, devices, &vdevs);
    if (error != CL_SUCCESS)
        return error;
    entry_program_build_begins(program);
    return program_build(program, vdevs, options, (struct program_notify){pfn_notify, user_data});
}

/* Live programs of @context behind handles; owned by the caller (free()). */
static cl_int entry_program_programs_of(const struct context *context, cl_uint count,
                                        const cl_program *handles, struct program ***ret_programs)
{
    struct program **programs = calloc(count ? count : 1, sizeof(struct program *));
    if (!programs)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count; i++) {
        programs[i] = program_get(handles[i]);
        if (!programs[i] || programs[i]->context != context) {
            free(programs);
            return CL_INVALID_PROGRAM;
        }
    }
    *ret_programs = programs;
    return CL_SUCCESS;
}

cl_int program_begin_compile(struct program *program, cl_uint num_devices,
                             const cl_device_id *devices, const char *options,
                             cl_uint num_input_headers, const cl_program *input_headers,
                             const char **header_include_names,
                             void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    struct program_list headers = {.count = num_input_headers, .names = header_include_names};
    uint32_t vdevs;
    if ((!pfn_notify && user_data) || !input_headers != (num_input_headers == 0) ||
        !header_include_names != (num_input_headers == 0))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_input_headers; i++)
        if (!header_include_names[i])
            return CL_INVALID_VALUE;
    cl_int error = entry_program_vdevs_to_build(program->context, program_vdevs(program),
                                                num_devices, devices, &vdevs);
    if (error == CL_SUCCESS)
        error = entry_program_programs_of(program->context, num_input_headers, input_headers,
                                          &headers.programs);
    if (error != CL_SUCCESS)
        return error;
    entry_program_build_begins(program);
    error = program_compile(program, vdevs, options, &headers,
                            (struct program_notify){pfn_notify, user_data});
    free(headers.programs);
    return error;
}

cl_program clLinkProgram(cl_context context_handle, cl_uint num_devices,
                         const cl_device_id *devices, const char *options,
                         cl_uint num_input_programs, const cl_program *input_programs,
                         void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data,
                         cl_int *errcode_ret)
{
    struct context *context = context_get(context_handle);
    struct program_list inputs = {.count = num_input_programs};
    struct program *program = NULL;
    uint32_t vdevs;
    cl_int error = !context ? CL_INVALID_CONTEXT
                   : (!pfn_notify && user_data) || num_input_programs == 0 || !input_programs
                       ? CL_INVALID_VALUE
                       : entry_program_vdevs_to_build(context, entry_program_all_vdevs(context),
                                                      num_devices, devices, &vdevs);
    if (error == CL_SUCCESS)
        error = entry_program_programs_of(context, num_input_programs, input_programs,
                                          &inputs.programs);
    if (error != CL_SUCCESS)
        return created(NULL, error, errcode_ret);
    error = program_link(context, vdevs, options, &inputs,
                         (struct program_notify){pfn_notify, user_data}, &program);
    free(inputs.programs);
    if (errcode_ret)
        *errcode_ret = error;
    /* After a failed link the program exists too, and has the build log. */
    return (cl_program)program;
}

cl_int clUnloadPlatformCompiler(cl_platform_id platform)
{
    return object_get(platform, OBJECT_PLATFORM) ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

/* A text that was copied for this answer, with its NUL. */
static cl_int entry_program_info_text(const struct info_request *request, char *text)
{
    if (!text)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = info_text(request, text);
    free(text);
    return error;
}

/* The program's devices, in the order of its context's. */
static cl_uint entry_program_list_vdevs(const struct program *program, cl_uint *ret_indices)
{
    cl_uint count = 0;
    for (cl_uint i = 0; i < program->context->vdev_count; i++)
        if (program_vdevs(program) & (1u << i))
            ret_indices[count++] = i;
    return count;
}

cl_int program_answer_binary_sizes(struct program *program, const struct info_request *request)
{
    cl_uint indices[VDEVS];
    size_t sizes[VDEVS];
    cl_uint count = entry_program_list_vdevs(program, indices);
    program_settle(program);
    for (cl_uint i = 0; i < count; i++) {
        int err = program_container(program, indices[i], NULL, &sizes[i]);
        if (err)
            return program_error(err);
    }
    return info_bytes(request, sizes, count * sizeof(sizes[0]));
}

/* 5.8.7: param_value is an array of pointers to the program's own buffers; NULL ones are skipped.
 */
cl_int program_answer_binaries(struct program *program, const struct info_request *request)
{
    cl_uint indices[VDEVS];
    cl_uint count = entry_program_list_vdevs(program, indices);
    unsigned char **buffers = request->value;
    if (buffers && request->size < count * sizeof(buffers[0]))
        return CL_INVALID_VALUE;
    program_settle(program);
    for (cl_uint i = 0; buffers && i < count; i++) {
        unsigned char *bytes;
        size_t size;
        if (!buffers[i])
            continue;
        int err = program_container(program, indices[i], &bytes, &size);
        if (err)
            return program_error(err);
        if (size)
            memcpy(buffers[i], bytes, size);
        free(bytes);
        program_keep_binary(program, indices[i]);
    }
    if (request->ret_size)
        *request->ret_size = count * sizeof(buffers[0]);
    return CL_SUCCESS;
}

cl_int program_answer_kernels(struct program *program, cl_program_info name,
                              const struct info_request *request)
{
    program_settle(program);
    if (!program_is_executable(program, ~0u))
        return CL_INVALID_PROGRAM_EXECUTABLE;
    if (name == CL_PROGRAM_KERNEL_NAMES)
        return entry_program_info_text(request, program_text(program, 0, PROGRAM_TEXT_KERNELS));
    return info_size(request, program_kernel_count(program));
}

cl_int program_answer_source(const struct program *program, const struct info_request *request)
{
    const struct recipe *base = program_base(program);
    bool source = base && base->kind == RECIPE_SOURCE;
    return info_bytes(request, source ? base->bytes : "", source ? base->size + 1 : 1);
}

cl_int program_answer_il(const struct program *program, const struct info_request *request)
{
    const struct recipe *base = program_base(program);
    bool il = base && base->kind == RECIPE_IL;
    return info_bytes(request, il ? base->bytes : NULL, il ? base->size : 0);
}

cl_int program_answer_devices(const struct program *program, const struct info_request *request)
{
    cl_uint indices[VDEVS];
    cl_device_id devices[VDEVS];
    cl_uint count = entry_program_list_vdevs(program, indices);
    for (cl_uint i = 0; i < count; i++)
        devices[i] = (cl_device_id)program->context->vdevs[indices[i]];
    return info_bytes(request, devices, count * sizeof(devices[0]));
}

cl_int program_answer_build(struct program *program, cl_device_id device,
                            cl_program_build_info name, size_t param_value_size, void *param_value,
                            size_t *ret_size)
{
    const struct info_request request = {param_value_size, param_value, ret_size};
    struct program_state state;
    uint32_t vdevs;
    if (entry_program_vdevs_of(program->context, program_vdevs(program), 1, &device, &vdevs) !=
        CL_SUCCESS)
        return CL_INVALID_DEVICE;
    cl_uint vdev = (cl_uint)__builtin_ctz(vdevs);
    program_vdev_state(program, vdev, &state);
    switch (name) {
    case CL_PROGRAM_BUILD_STATUS:
        return info_uint(&request, (cl_uint)state.status);
    case CL_PROGRAM_BUILD_OPTIONS:
        return entry_program_info_text(&request, program_text(program, vdev, PROGRAM_TEXT_OPTIONS));
    case CL_PROGRAM_BUILD_LOG:
        return entry_program_info_text(&request, program_text(program, vdev, PROGRAM_TEXT_LOG));
    case CL_PROGRAM_BINARY_TYPE:
        return info_uint(&request, state.type);
    case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
        return info_size(&request, state.globals);
    default:
        return CL_INVALID_VALUE;
    }
}
