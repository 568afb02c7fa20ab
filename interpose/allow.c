#include "interpose/allow.h"

#include <assert.h>
#include <string.h>

#include "state/compiler.h"

/*
 * Kept out, and why:
 * - cl_khr_{gl,egl,d3d,dx9}*, external_memory*, external_semaphore*, semaphore: objects that belong
 *   to another API and to one device's driver.
 * - cl_khr_command_buffer*: recorded commands that no call can read back.
 * - cl_khr_spir: binaries, where programs stay source (IL is carried: every driver that has it
 *   takes the same).
 * - cl_khr_device_uuid, pci_bus_info: which hardware it is changes with a move.
 * - cl_khr_terminate_context, initialize_memory, suggested_local_work_size, mipmap_image*: calls
 *   and context properties that not every target can repeat.
 * - cl_ext_device_fission, cl_intel_device_partition_by_names: sub-devices.
 * - every kind of shared virtual memory, and vendors' own calls and queries.
 */
const char *const allow_extensions[] = {
    /* Pure OpenCL C: a compiler has them or the meet drops them. */
    "cl_khr_byte_addressable_store",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_fp64",
    "cl_khr_fp16",
    "cl_khr_select_fprounding_mode",
    "cl_khr_extended_async_copies",
    "cl_khr_extended_bit_ops",
    "cl_khr_expect_assume",
    "cl_khr_integer_dot_product",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_ext_cxx_for_opencl",
    "cl_nv_compiler_options",
    "cl_nv_pragma_unroll",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
    /* Kernels ask for the size of their sub-group when they run. */
    "cl_khr_subgroups",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_named_barrier",
    /* Images whose bytes are read and written like any other's. */
    "cl_khr_3d_image_writes",
    "cl_khr_image2d_from_buffer",
    "cl_khr_depth_images",
    "cl_khr_srgb_image_writes",
    /* Older names of core calls, which we have whatever the driver has. */
    "cl_khr_create_command_queue",
    "cl_khr_il_program",
    "cl_khr_extended_versioning",
    "cl_khr_spirv_no_integer_wrap_decoration",
    "cl_khr_spirv_linkonce_odr",
    /* Hints promise nothing, so a target that ignores them keeps the promise. */
    "cl_khr_priority_hints",
    "cl_khr_throttle_hints",
};
const size_t allow_extension_count = ARRAY_SIZE(allow_extensions);

/*
 * Kept out: device_enqueue and pipes (state that no call can read), atomic_scope_all_devices (it
 * needs fine-grained shared virtual memory).
 */
const char *const allow_features[] = {
    "__opencl_c_3d_image_writes",
    "__opencl_c_atomic_order_acq_rel",
    "__opencl_c_atomic_order_seq_cst",
    "__opencl_c_atomic_scope_device",
    "__opencl_c_fp64",
    "__opencl_c_generic_address_space",
    "__opencl_c_images",
    "__opencl_c_int64",
    "__opencl_c_integer_dot_product_input_4x8bit",
    "__opencl_c_integer_dot_product_input_4x8bit_packed",
    "__opencl_c_program_scope_global_variables", /* never in all: see draft.c and DEVINFO_PINS */
    "__opencl_c_read_write_images",
    "__opencl_c_subgroups",
    "__opencl_c_work_group_collective_functions",
};
const size_t allow_feature_count = ARRAY_SIZE(allow_features);

static_assert(ARRAY_SIZE(allow_extensions) <= ALLOW_MAX, "room for the extensions");
static_assert(ARRAY_SIZE(allow_features) <= ALLOW_MAX, "room for the features");

static int find(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(list[i], name))
            return (int)i;
    }
    return -1;
}

int allow_extension_find(const char *name)
{
    return find(allow_extensions, allow_extension_count, name);
}

int allow_feature_find(const char *name)
{
    return find(allow_features, allow_feature_count, name);
}
