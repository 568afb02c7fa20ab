#include "state/present/proposal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/object/context.h"

#define VERSION_3 CL_MAKE_VERSION(3, 0, 0)
#define ANY_BIT   UINT64_MAX

/* Access flags of image formats: all, and those for which kernels write. */
#define WRITTEN      (CL_MEM_WRITE_ONLY | CL_MEM_READ_WRITE | CL_MEM_KERNEL_READ_AND_WRITE)
#define EVERY_ACCESS (WRITTEN | CL_MEM_READ_ONLY)

#define WITHOUT(name) name, "not offered without " name

/* Limits that the specification requires to be 0 without images (table 5: "if
 * CL_DEVICE_IMAGE_..."). */
static const cl_device_info image_limits[] = {
    CL_DEVICE_MAX_READ_IMAGE_ARGS,
    CL_DEVICE_MAX_WRITE_IMAGE_ARGS,
    CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS,
    CL_DEVICE_IMAGE2D_MAX_WIDTH,
    CL_DEVICE_IMAGE2D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_WIDTH,
    CL_DEVICE_IMAGE3D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_DEPTH,
    CL_DEVICE_MAX_SAMPLERS,
    CL_DEVICE_IMAGE_MAX_BUFFER_SIZE,
    CL_DEVICE_IMAGE_MAX_ARRAY_SIZE,
    CL_DEVICE_IMAGE_PITCH_ALIGNMENT,
    CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT,
};

static const char *const image_extensions[] = {
    "cl_khr_3d_image_writes",
    "cl_khr_image2d_from_buffer",
    "cl_khr_depth_images",
    "cl_khr_srgb_image_writes",
};

/* An extension and the parameter that goes with it: neither is offered without the other. */
static const struct {
    const char *extension, *without;
    cl_device_info param;
} extension_numbers[] = {
    {WITHOUT("cl_khr_fp64"), CL_DEVICE_DOUBLE_FP_CONFIG},
    {WITHOUT("cl_khr_fp16"), CL_DEVICE_HALF_FP_CONFIG},
    {WITHOUT("cl_khr_image2d_from_buffer"), CL_DEVICE_IMAGE_PITCH_ALIGNMENT},
    {WITHOUT("cl_khr_image2d_from_buffer"), CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT},
    {WITHOUT("cl_khr_integer_dot_product"), CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR},
    {WITHOUT("cl_khr_subgroup_named_barrier"), CL_DEVICE_MAX_NAMED_BARRIER_COUNT_KHR},
};

/* Parameters that exist only with an extension. */
static const struct {
    const char *extension, *without;
    cl_device_info param;
} extension_widths[] = {
    {WITHOUT("cl_khr_fp64"), CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE},
    {WITHOUT("cl_khr_fp64"), CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE},
    {WITHOUT("cl_khr_fp16"), CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF},
    {WITHOUT("cl_khr_fp16"), CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF},
};

/* A feature of OpenCL C 3.0 and its capability: neither is offered without the other. */
static const struct {
    const char *feature, *without;
    cl_device_info param;
    uint64_t bits;
} feature_numbers[] = {
    {WITHOUT("__opencl_c_images"), CL_DEVICE_IMAGE_SUPPORT, ANY_BIT},
    {WITHOUT("__opencl_c_read_write_images"), CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, ANY_BIT},
    {WITHOUT("__opencl_c_generic_address_space"), CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT, ANY_BIT},
    {WITHOUT("__opencl_c_program_scope_global_variables"), CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE,
     ANY_BIT},
    {WITHOUT("__opencl_c_work_group_collective_functions"),
     CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT, ANY_BIT},
    {WITHOUT("__opencl_c_atomic_order_acq_rel"), CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_ORDER_ACQ_REL},
    {WITHOUT("__opencl_c_atomic_order_seq_cst"), CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_ORDER_SEQ_CST},
    {WITHOUT("__opencl_c_atomic_scope_device"), CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_SCOPE_DEVICE},
};

static const struct {
    const char *feature, *without;
    uint64_t bits;
} fence_features[] = {
    {WITHOUT("__opencl_c_atomic_order_seq_cst"), CL_DEVICE_ATOMIC_ORDER_SEQ_CST},
    {WITHOUT("__opencl_c_atomic_scope_device"), CL_DEVICE_ATOMIC_SCOPE_DEVICE},
};

static const struct {
    const char *feature, *extension, *without;
} feature_extensions[] = {
    {"__opencl_c_fp64", WITHOUT("cl_khr_fp64")},
    {"__opencl_c_3d_image_writes", WITHOUT("cl_khr_3d_image_writes")},
    {"__opencl_c_integer_dot_product_input_4x8bit", WITHOUT("cl_khr_integer_dot_product")},
    {"__opencl_c_integer_dot_product_input_4x8bit_packed", WITHOUT("cl_khr_integer_dot_product")},
};

bool proposal_has(const struct proposal *proposal, const char *name)
{
    int at = carried_find(name);

    return at >= 0 && proposal->names[at];
}

bool proposal_is_embedded(const struct proposal *proposal)
{
    for (size_t i = 0; i < proposal->common.count; i++)
        if (!strcmp(devinfo_string(proposal->common.devices[i], CL_DEVICE_PROFILE),
                    "EMBEDDED_PROFILE"))
            return true;
    return false;
}

static void proposal_drop(struct proposal *proposal, const char *name, const char *because)
{
    int at = carried_find(name);

    if (at < 0 || !proposal->names[at])
        return;
    proposal->names[at] = false;
    reasons_note_name(proposal->common.reasons, carried_kind(name), name, REASON_AGREES, because);
}

static uint64_t proposal_number(const struct proposal *proposal, cl_device_info name)
{
    return devinfo_scalar(&proposal->answers, name, 0);
}

static void proposal_change(struct proposal *proposal, cl_device_info name, uint64_t value,
                            const char *because)
{
    if (!devinfo_find(&proposal->answers, name) || proposal_number(proposal, name) == value)
        return;
    reply_change(&proposal->answers, name, value);
    reasons_note_answer(proposal->common.reasons, name, REASON_AGREES, because);
}

static void proposal_cap(struct proposal *proposal, cl_device_info name, cl_device_info most,
                         const char *because)
{
    if (proposal_number(proposal, name) > proposal_number(proposal, most))
        proposal_change(proposal, name, proposal_number(proposal, most), because);
}

/* Number of formats in the lists of these accesses, for one image type (0: all), that satisfy @is.
 */
static size_t proposal_formats_of(const struct proposal *proposal, cl_mem_flags accesses,
                                  cl_mem_object_type type, bool (*is)(const cl_image_format *))
{
    size_t count = 0;

    for (size_t i = 0; i < proposal->answers.format_count; i++) {
        const struct devinfo_formats *list = &proposal->answers.formats[i];

        if (!(list->flags & accesses) || (type && list->type != type))
            continue;
        for (uint32_t j = 0; j < list->count; j++)
            count += is(&list->formats[j]);
    }
    return count;
}

/* Remove the formats that proposal_formats_of counts. */
static void proposal_drop_formats(struct proposal *proposal, cl_mem_flags accesses,
                                  cl_mem_object_type type, bool (*is)(const cl_image_format *),
                                  const char *because)
{
    for (size_t i = 0; i < proposal->answers.format_count; i++) {
        struct devinfo_formats *list = &proposal->answers.formats[i];
        uint32_t kept = 0;

        if (!(list->flags & accesses) || (type && list->type != type))
            continue;
        for (uint32_t j = 0; j < list->count; j++) {
            if (!is(&list->formats[j])) {
                list->formats[kept++] = list->formats[j];
                continue;
            }
            reasons_note(proposal->common.reasons, &(struct reason){.kind = REASON_FORMAT,
                                                                    .rule = REASON_AGREES,
                                                                    .flags = list->flags,
                                                                    .type = list->type,
                                                                    .format = list->formats[j],
                                                                    .because = because});
        }
        list->count = kept;
    }
}

static bool proposal_any_format(const cl_image_format *format)
{
    (void)format;
    return true;
}

static bool proposal_depth_format(const cl_image_format *format)
{
    return format->image_channel_order == CL_DEPTH;
}

static bool proposal_shared_format(const cl_image_format *format)
{
    return format->image_channel_order == CL_DEPTH_STENCIL;
}

static void proposal_agree_work(struct proposal *proposal)
{
    const struct devinfo_value *sizes =
        devinfo_find(&proposal->answers, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    uint64_t dimensions = proposal_number(proposal, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
    size_t listed = sizes ? sizes->size / sizeof(size_t) : 0;

    if (listed && dimensions > listed)
        proposal_change(proposal, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, listed,
                        "as many as CL_DEVICE_MAX_WORK_ITEM_SIZES lists");
    else if (dimensions && dimensions < listed)
        reply_shorten(&proposal->answers, CL_DEVICE_MAX_WORK_ITEM_SIZES,
                      dimensions * sizeof(size_t));
}

/* Without known formats, images are not offered. */
static void proposal_agree_images(struct proposal *proposal)
{
    const char *because = "no images without a format that all devices have";

    proposal_drop_formats(proposal, EVERY_ACCESS, 0, proposal_shared_format,
                          "a format of images shared with OpenGL");
    if (proposal_formats_of(proposal, EVERY_ACCESS, 0, proposal_any_format) &&
        proposal_number(proposal, CL_DEVICE_IMAGE_SUPPORT))
        return;
    if (!proposal_number(proposal, CL_DEVICE_IMAGE_SUPPORT))
        because = "no images: CL_DEVICE_IMAGE_SUPPORT is false";
    proposal_change(proposal, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE, because);
    for (size_t i = 0; i < ARRAY_SIZE(image_limits); i++)
        proposal_change(proposal, image_limits[i], 0, because);
    for (size_t i = 0; i < ARRAY_SIZE(image_extensions); i++)
        proposal_drop(proposal, image_extensions[i], because);
    proposal_drop_formats(proposal, EVERY_ACCESS, 0, proposal_any_format, because);
}

/* Image abilities beyond reading, and the formats for which they hold (5.3.2.1). */
static void proposal_agree_image_formats(struct proposal *proposal)
{
    if (!proposal_formats_of(proposal, WRITTEN, CL_MEM_OBJECT_IMAGE2D, proposal_depth_format))
        proposal_drop(proposal, "cl_khr_depth_images", "no depth format that all devices have");
    if (!proposal_has(proposal, "cl_khr_depth_images"))
        proposal_drop_formats(proposal, EVERY_ACCESS, 0, proposal_depth_format,
                              "not offered without cl_khr_depth_images");

    if (!proposal_formats_of(proposal, WRITTEN, CL_MEM_OBJECT_IMAGE3D, proposal_any_format))
        proposal_drop(proposal, "cl_khr_3d_image_writes",
                      "no 3D format that all devices can write to");
    /* Before 3.0, CL_MEM_READ_WRITE in a list does not imply that kernels write. */
    if (proposal->version >= VERSION_3 && !proposal_has(proposal, "cl_khr_3d_image_writes"))
        proposal_drop_formats(proposal, WRITTEN, CL_MEM_OBJECT_IMAGE3D, proposal_any_format,
                              "not offered without cl_khr_3d_image_writes");

    if (!proposal_formats_of(proposal, CL_MEM_KERNEL_READ_AND_WRITE, 0, proposal_any_format))
        proposal_change(proposal, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, 0,
                        "no format that all devices read and write in one kernel");
    if (proposal->version >= VERSION_3 && !proposal_has(proposal, "__opencl_c_read_write_images"))
        proposal_change(proposal, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, 0,
                        "not offered without __opencl_c_read_write_images");
    if (!proposal_number(proposal, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS))
        proposal_drop_formats(proposal, CL_MEM_KERNEL_READ_AND_WRITE, 0, proposal_any_format,
                              "CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS is 0");
}

/* The parameters of sub-groups, the feature, and whatever builds on either. */
static void proposal_agree_subgroups(struct proposal *proposal)
{
    const char *because = NULL;

    if (proposal->version < VERSION_3)
        because = "sub-groups are offered with OpenCL 3.0 only";
    else if (!proposal_number(proposal, CL_DEVICE_MAX_NUM_SUB_GROUPS))
        because = "CL_DEVICE_MAX_NUM_SUB_GROUPS is 0";
    else if (!proposal_has(proposal, "__opencl_c_subgroups"))
        because = "not offered without __opencl_c_subgroups";
    if (!because)
        return;
    for (size_t i = 0; i < carried_count; i++)
        if (!strncmp(carried_names[i], "cl_khr_subgroup", strlen("cl_khr_subgroup")))
            proposal_drop(proposal, carried_names[i], because);
    proposal_drop(proposal, "__opencl_c_subgroups", because);
    proposal_change(proposal, CL_DEVICE_MAX_NUM_SUB_GROUPS, 0, because);
    proposal_change(proposal, CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS, 0, because);
}

static void proposal_agree_extensions(struct proposal *proposal)
{
    for (size_t i = 0; i < ARRAY_SIZE(extension_numbers); i++) {
        if (!proposal_number(proposal, extension_numbers[i].param))
            proposal_drop(proposal, extension_numbers[i].extension,
                          "the number that goes with it is 0");
    }
    /* Intermediate language is offered only if some version suits every device. */
    if (!devinfo_string(&proposal->answers, CL_DEVICE_IL_VERSION)[0])
        proposal_drop(proposal, "cl_khr_il_program",
                      "no intermediate language that all devices take");
    proposal_agree_subgroups(proposal);
    for (size_t i = 0; i < ARRAY_SIZE(extension_numbers); i++)
        if (!proposal_has(proposal, extension_numbers[i].extension))
            proposal_change(proposal, extension_numbers[i].param, 0, extension_numbers[i].without);
    for (size_t i = 0; i < ARRAY_SIZE(extension_widths); i++) {
        if (!proposal_has(proposal, extension_widths[i].extension))
            proposal_change(proposal, extension_widths[i].param, 0, extension_widths[i].without);
        else if (!proposal_number(proposal, extension_widths[i].param))
            proposal_change(proposal, extension_widths[i].param, 1,
                            "the type is there: a width of 1 at least");
    }
}

static void proposal_mask(struct proposal *proposal, cl_device_info name, uint64_t bits,
                          const char *because)
{
    proposal_change(proposal, name, proposal_number(proposal, name) & bits, because);
}

/* Memory orders and scopes of atomic operations, each with its feature; fences have the same two
 * lists. */
static void proposal_agree_atomics(struct proposal *proposal)
{
    static const cl_device_info lists[] = {CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
                                           CL_DEVICE_ATOMIC_FENCE_CAPABILITIES};

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        proposal_mask(proposal, lists[i], ~(uint64_t)CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES,
                      "a scope of all devices needs shared virtual memory");
        if (!(proposal_number(proposal, lists[i]) & CL_DEVICE_ATOMIC_ORDER_ACQ_REL))
            proposal_mask(proposal, lists[i], ~(uint64_t)CL_DEVICE_ATOMIC_ORDER_SEQ_CST,
                          "sequential consistency needs acquire and release");
    }
    if (proposal->version < VERSION_3)
        return;
    if (!proposal_has(proposal, "__opencl_c_atomic_order_acq_rel"))
        proposal_drop(proposal, "__opencl_c_atomic_order_seq_cst",
                      "not offered without __opencl_c_atomic_order_acq_rel");
}

static void proposal_agree_features(struct proposal *proposal)
{
    proposal_agree_atomics(proposal);
    for (size_t i = 0; i < ARRAY_SIZE(feature_extensions); i++)
        if (!proposal_has(proposal, feature_extensions[i].extension))
            proposal_drop(proposal, feature_extensions[i].feature, feature_extensions[i].without);
    for (size_t i = 0; i < ARRAY_SIZE(feature_numbers); i++) {
        uint64_t has = proposal_number(proposal, feature_numbers[i].param);

        if (!(has & feature_numbers[i].bits))
            proposal_drop(proposal, feature_numbers[i].feature,
                          "the capability that it stands for is not there");
        /* Only 3.0 lists features, so only there does a missing name mean something. */
        else if (proposal->version >= VERSION_3 &&
                 feature_numbers[i].param != CL_DEVICE_IMAGE_SUPPORT &&
                 !proposal_has(proposal, feature_numbers[i].feature))
            proposal_change(proposal, feature_numbers[i].param, has & ~feature_numbers[i].bits,
                            feature_numbers[i].without);
    }
    /* Acquire and release are always allowed for fences; the rest needs the feature. */
    for (size_t i = 0; proposal->version >= VERSION_3 && i < ARRAY_SIZE(fence_features); i++) {
        if (!proposal_has(proposal, fence_features[i].feature))
            proposal_mask(proposal, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, ~fence_features[i].bits,
                          fence_features[i].without);
    }
}

/* 4.2: the least size of the largest object for so much memory. */
static uint64_t proposal_required_object(const struct proposal *proposal, uint64_t memory)
{
    uint64_t share = memory / 4, floor = 1 << 20;

    if (proposal->version >= VERSION_3)
        share = share < 1 << 30 ? share : 1 << 30;
    if (!proposal_is_embedded(proposal))
        floor = proposal->version >= VERSION_3 ? 32 << 20 : 128 << 20;
    share = share > floor ? share : floor;
    return share < memory ? share : memory;
}

static void proposal_take_memory(struct proposal *proposal)
{
    uint64_t least = proposal_required_object(proposal, proposal->memory);

    reply_change(&proposal->answers, CL_DEVICE_GLOBAL_MEM_SIZE, proposal->memory);
    reasons_note_answer(proposal->common.reasons, CL_DEVICE_GLOBAL_MEM_SIZE, REASON_OURS,
                        "as --memory says");
    if (proposal_number(proposal, CL_DEVICE_MAX_MEM_ALLOC_SIZE) < least)
        proposal_change(proposal, CL_DEVICE_MAX_MEM_ALLOC_SIZE, least,
                        "what OpenCL requires of the memory that --memory says");
}

static void proposal_agree_sizes(struct proposal *proposal)
{
    uint64_t object;

    if (proposal->memory)
        proposal_take_memory(proposal);
    proposal_cap(proposal, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_GLOBAL_MEM_SIZE,
                 "no more than CL_DEVICE_GLOBAL_MEM_SIZE");
    /* A 3.0 device presented as 1.2 would promise larger objects than it takes. */
    object = proposal_number(proposal, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (!proposal->native && proposal->version < VERSION_3 && object &&
        object < proposal_number(proposal, CL_DEVICE_GLOBAL_MEM_SIZE) / 4)
        proposal_change(proposal, CL_DEVICE_GLOBAL_MEM_SIZE, 4 * object,
                        "before OpenCL 3.0 one object may have a quarter of it");
    /* A pixel has at least one byte. */
    if (!proposal->native)
        proposal_cap(proposal, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                     "no more than CL_DEVICE_MAX_MEM_ALLOC_SIZE");
}

static void proposal_agree_memory(struct proposal *proposal)
{
    proposal_agree_sizes(proposal);
    proposal_cap(proposal, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                 "no more than CL_DEVICE_MAX_MEM_ALLOC_SIZE");
    if (!proposal_number(proposal, CL_DEVICE_LOCAL_MEM_TYPE))
        proposal_change(proposal, CL_DEVICE_LOCAL_MEM_SIZE, 0,
                        "CL_DEVICE_LOCAL_MEM_TYPE is CL_NONE");
    if (!proposal_number(proposal, CL_DEVICE_GLOBAL_MEM_CACHE_TYPE) ||
        !proposal_number(proposal, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE)) {
        const char *because = "not every device has a cache";

        proposal_change(proposal, CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, CL_NONE, because);
        proposal_change(proposal, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, 0, because);
        proposal_change(proposal, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 0, because);
    }
    if (proposal->pins)
        proposal_mask(proposal, CL_DEVICE_EXECUTION_CAPABILITIES,
                      CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL,
                      "of kernels, and of native ones, which pin the program");
    else
        proposal_mask(proposal, CL_DEVICE_EXECUTION_CAPABILITIES, CL_EXEC_KERNEL,
                      "a native kernel has pointers into one device's memory");
    if (proposal_number(proposal, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) > VDEVS)
        proposal_change(proposal, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, VDEVS,
                        "a program has no more virtual devices");
    if (!proposal_number(proposal, CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE))
        proposal_change(proposal, CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE, 0,
                        "CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE is 0");
    /* Linking needs a compiler (4.2: the linker is there whenever the compiler is). */
    if (!proposal_number(proposal, CL_DEVICE_COMPILER_AVAILABLE))
        proposal_change(proposal, CL_DEVICE_LINKER_AVAILABLE, CL_FALSE, "linking needs a compiler");
}

void proposal_agree(struct proposal *proposal)
{
    proposal_agree_work(proposal);
    proposal_agree_images(proposal);
    proposal_agree_image_formats(proposal);
    proposal_agree_extensions(proposal);
    proposal_agree_features(proposal);
    proposal_agree_memory(proposal);
}

/*
 * The prologue is put before each source. A compiler defines a macro for each extension and feature
 * of its device; the prologue undefines those that the virtual device does not have, so that a
 * source takes the same branches on every device.
 */

#define HIDDEN_SIZE 16384

/* Names come from drivers: only valid macro names may be put into a program's source. */
static bool proposal_prologue_is_macro(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    if (strncmp(name, "cl", 2) != 0 && strncmp(name, "__opencl_c_", 11) != 0)
        return false;
    return !name[strspn(name, letters)];
}

/* Add #undef of @name, once for each name. */
static void proposal_prologue_hide(FILE *text, const char *name, char *hidden, size_t size)
{
    size_t used = strlen(hidden);

    if (!proposal_prologue_is_macro(name) || devinfo_names_have(hidden, name) ||
        used + strlen(name) + 2 > size)
        return;
    sprintf(hidden + used, "%s%s", used ? " " : "", name);
    fprintf(text, "#undef %s\n", name);
}

static void proposal_prologue_extensions(const struct proposal *proposal,
                                         const struct devinfo *device, FILE *text, char *hidden,
                                         size_t size)
{
    const char *names = devinfo_string(device, CL_DEVICE_EXTENSIONS);
    char CLEANUP(cleanup_free) *words = strdup(names);
    char *rest = NULL;

    for (char *word = words ? strtok_r(words, " ", &rest) : NULL; word;
         word = strtok_r(NULL, " ", &rest))
        if (!proposal_has(proposal, word))
            proposal_prologue_hide(text, word, hidden, size);
}

static void proposal_prologue_features(const struct proposal *proposal,
                                       const struct devinfo *device, FILE *text, char *hidden,
                                       size_t size)
{
    const struct devinfo_value *list = devinfo_find(device, CL_DEVICE_OPENCL_C_FEATURES);

    for (size_t i = 0; i < devinfo_list_count(list); i++) {
        const cl_name_version entry = devinfo_list_entry(list, i);

        if (!proposal_has(proposal, entry.name))
            proposal_prologue_hide(text, entry.name, hidden, size);
    }
}

int proposal_prologue(const struct proposal *proposal, char **ret_text)
{
    char CLEANUP(cleanup_free) *hidden =
        calloc(1, HIDDEN_SIZE); /* Names that were put, once each. */
    char *result = NULL;
    size_t size = 0; /* Of `result`, as of the last fflush(). */
    FILE *text = hidden ? open_memstream(&result, &size) : NULL;
    bool other = false;

    if (!text)
        return -ENOMEM;
    for (size_t i = 0; i < proposal->common.count; i++) {
        proposal_prologue_extensions(proposal, proposal->common.devices[i], text, hidden,
                                     HIDDEN_SIZE);
        proposal_prologue_features(proposal, proposal->common.devices[i], text, hidden,
                                   HIDDEN_SIZE);
        other = other || devinfo_version(proposal->common.devices[i]) != proposal->version;
    }
    if (other)
        fprintf(text, "#undef __OPENCL_VERSION__\n#define __OPENCL_VERSION__ %u%u0\n",
                CL_VERSION_MAJOR(proposal->version), CL_VERSION_MINOR(proposal->version));
    if (!devinfo_scalar(&proposal->answers, CL_DEVICE_IMAGE_SUPPORT, 0))
        fprintf(text, "#undef __IMAGE_SUPPORT__\n");
    fflush(text);
    if (size) /* Errors of the compiler name the lines of the program's own text. */
        fprintf(text, "#line 1\n");
    if (fclose(text) != 0) {
        free(result);
        return -ENOMEM;
    }
    *ret_text = result;
    return 0;
}
