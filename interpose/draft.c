#include "interpose/draft.h"

#include <string.h>

#include "interpose/reply.h"
#include "state/context.h"

#define VERSION_3 CL_MAKE_VERSION(3, 0, 0)
#define ANY_BIT   UINT64_MAX

/* Limits that the specification wants to be 0 without images (table 5: "if CL_DEVICE_IMAGE_...").
 */
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

/* An extension and the number that says how far it goes: neither without the other. */
static const struct {
    const char *extension;
    cl_device_info param;
} extension_numbers[] = {
    {"cl_khr_fp64", CL_DEVICE_DOUBLE_FP_CONFIG},
    {"cl_khr_fp16", CL_DEVICE_HALF_FP_CONFIG},
    {"cl_khr_image2d_from_buffer", CL_DEVICE_IMAGE_PITCH_ALIGNMENT},
    {"cl_khr_image2d_from_buffer", CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT},
    {"cl_khr_integer_dot_product", CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR},
    {"cl_khr_subgroup_named_barrier", CL_DEVICE_MAX_NAMED_BARRIER_COUNT_KHR},
};

/* Numbers that follow from an extension alone. */
static const struct {
    const char *extension;
    cl_device_info param;
} extension_widths[] = {
    {"cl_khr_fp64", CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE},
    {"cl_khr_fp64", CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE},
    {"cl_khr_fp16", CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF},
    {"cl_khr_fp16", CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF},
};

/* A feature of OpenCL C 3.0 and the capability that it stands for: neither without the other. */
static const struct {
    const char *feature;
    cl_device_info param;
    uint64_t bits;
} feature_numbers[] = {
    {"__opencl_c_images", CL_DEVICE_IMAGE_SUPPORT, ANY_BIT},
    {"__opencl_c_read_write_images", CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, ANY_BIT},
    {"__opencl_c_generic_address_space", CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT, ANY_BIT},
    {"__opencl_c_program_scope_global_variables", CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE, ANY_BIT},
    {"__opencl_c_work_group_collective_functions",
     CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT, ANY_BIT},
    {"__opencl_c_atomic_order_acq_rel", CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_ORDER_ACQ_REL},
    {"__opencl_c_atomic_order_seq_cst", CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_ORDER_SEQ_CST},
    {"__opencl_c_atomic_scope_device", CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
     CL_DEVICE_ATOMIC_SCOPE_DEVICE},
};

static const struct {
    const char *feature, *extension;
} feature_extensions[] = {
    {"__opencl_c_fp64", "cl_khr_fp64"},
    {"__opencl_c_3d_image_writes", "cl_khr_3d_image_writes"},
    {"__opencl_c_integer_dot_product_input_4x8bit", "cl_khr_integer_dot_product"},
    {"__opencl_c_integer_dot_product_input_4x8bit_packed", "cl_khr_integer_dot_product"},
};

bool draft_has_extension(const struct draft *draft, const char *name)
{
    int at = allow_extension_find(name);

    return at >= 0 && draft->extensions[at];
}

bool draft_has_feature(const struct draft *draft, const char *name)
{
    int at = allow_feature_find(name);

    return at >= 0 && draft->features[at];
}

static void drop_extension(struct draft *draft, const char *name)
{
    int at = allow_extension_find(name);

    if (at >= 0)
        draft->extensions[at] = false;
}

static void drop_feature(struct draft *draft, const char *name)
{
    int at = allow_feature_find(name);

    if (at >= 0)
        draft->features[at] = false;
}

static uint64_t number(const struct draft *draft, cl_device_info name)
{
    return devinfo_scalar(&draft->answers, name, 0);
}

static void cap(struct draft *draft, cl_device_info name, uint64_t most)
{
    if (number(draft, name) > most)
        reply_change(&draft->answers, name, most);
}

static void agree_images(struct draft *draft)
{
    bool formats = false;

    /* Images whose formats nobody knows cannot be made. */
    for (size_t i = 0; i < draft->answers.format_count; i++)
        formats = formats || draft->answers.formats[i].count;
    if (formats && number(draft, CL_DEVICE_IMAGE_SUPPORT))
        return;
    reply_change(&draft->answers, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE);
    for (size_t i = 0; i < ARRAY_SIZE(image_limits); i++)
        reply_change(&draft->answers, image_limits[i], 0);
    for (size_t i = 0; i < ARRAY_SIZE(image_extensions); i++)
        drop_extension(draft, image_extensions[i]);
    for (size_t i = 0; i < draft->answers.format_count; i++)
        draft->answers.formats[i].count = 0;
}

static void agree_extensions(struct draft *draft)
{
    for (size_t i = 0; i < ARRAY_SIZE(extension_numbers); i++) {
        if (!number(draft, extension_numbers[i].param))
            drop_extension(draft, extension_numbers[i].extension);
    }
    /* Programs in intermediate language need one that every device takes. */
    if (!devinfo_string(&draft->answers, CL_DEVICE_IL_VERSION)[0])
        drop_extension(draft, "cl_khr_il_program");
    if (!number(draft, CL_DEVICE_MAX_NUM_SUB_GROUPS) || draft->version < VERSION_3) {
        for (size_t i = 0; i < allow_extension_count; i++) {
            if (!strncmp(allow_extensions[i], "cl_khr_subgroup", strlen("cl_khr_subgroup")))
                draft->extensions[i] = false;
        }
        drop_feature(draft, "__opencl_c_subgroups");
        reply_change(&draft->answers, CL_DEVICE_MAX_NUM_SUB_GROUPS, 0);
        reply_change(&draft->answers, CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS, 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(extension_numbers); i++) {
        if (!draft_has_extension(draft, extension_numbers[i].extension))
            reply_change(&draft->answers, extension_numbers[i].param, 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(extension_widths); i++) {
        if (!draft_has_extension(draft, extension_widths[i].extension))
            reply_change(&draft->answers, extension_widths[i].param, 0);
    }
}

static void agree_features(struct draft *draft)
{
    /* A scope over all devices needs fine-grained shared virtual memory. */
    reply_change(&draft->answers, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
                 number(draft, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES) &
                     ~(uint64_t)CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES);
    reply_change(&draft->answers, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES,
                 number(draft, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES) &
                     ~(uint64_t)CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES);
    for (size_t i = 0; i < ARRAY_SIZE(feature_extensions); i++) {
        if (!draft_has_extension(draft, feature_extensions[i].extension))
            drop_feature(draft, feature_extensions[i].feature);
    }
    for (size_t i = 0; i < ARRAY_SIZE(feature_numbers); i++) {
        uint64_t has = number(draft, feature_numbers[i].param);

        if (!(has & feature_numbers[i].bits))
            drop_feature(draft, feature_numbers[i].feature);
        /* Only 3.0 names features, so only there does a missing name mean something. */
        else if (draft->version >= VERSION_3 &&
                 feature_numbers[i].param != CL_DEVICE_IMAGE_SUPPORT &&
                 !draft_has_feature(draft, feature_numbers[i].feature))
            reply_change(&draft->answers, feature_numbers[i].param, has & ~feature_numbers[i].bits);
    }
}

static void agree_memory(struct draft *draft)
{
    cap(draft, CL_DEVICE_MAX_MEM_ALLOC_SIZE, number(draft, CL_DEVICE_GLOBAL_MEM_SIZE));
    cap(draft, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, number(draft, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
    if (!number(draft, CL_DEVICE_GLOBAL_MEM_CACHE_TYPE) ||
        !number(draft, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE)) {
        reply_change(&draft->answers, CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, CL_NONE);
        reply_change(&draft->answers, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, 0);
        reply_change(&draft->answers, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 0);
    }
    /* A native kernel gets pointers into a device's memory, which a move would take from under it:
     * it pins the program. */
    reply_change(&draft->answers, CL_DEVICE_EXECUTION_CAPABILITIES,
                 number(draft, CL_DEVICE_EXECUTION_CAPABILITIES) &
                     (draft->native ? CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL : CL_EXEC_KERNEL));
    cap(draft, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, SEATS);
    cap(draft, CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE,
        number(draft, CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE) ? UINT64_MAX : 0);
    /* Linking needs a compiler (4.2: the linker is there whenever the compiler is). */
    if (!number(draft, CL_DEVICE_COMPILER_AVAILABLE))
        reply_change(&draft->answers, CL_DEVICE_LINKER_AVAILABLE, CL_FALSE);
}

void draft_agree(struct draft *draft)
{
    agree_images(draft);
    agree_extensions(draft);
    agree_features(draft);
    agree_memory(draft);
}
