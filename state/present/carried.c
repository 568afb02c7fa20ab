#include "state/present/proposal.h"

#include <assert.h>
#include <string.h>

#include "state/base/compiler.h"

const char *const carried_names[] = {
    /* Features of the language only: each compiler either has them or the common set lacks them. */
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
    /* Allowed because kernels query the size of their sub-group at run time. */
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
    /* Images whose bytes can be copied like any other image's. */
    "cl_khr_3d_image_writes",
    "cl_khr_image2d_from_buffer",
    "cl_khr_depth_images",
    "cl_khr_srgb_image_writes",
    /* Older names of core calls, which the library provides whatever the driver has. */
    "cl_khr_create_command_queue",
    "cl_khr_il_program",
    "cl_khr_extended_versioning",
    "cl_khr_spirv_no_integer_wrap_decoration",
    "cl_khr_spirv_linkonce_odr",
    /* Hints: a target that ignores them breaks no promise. */
    "cl_khr_priority_hints",
    "cl_khr_throttle_hints",
    /* Features. */
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
    "__opencl_c_program_scope_global_variables", /* never offered by all devices: see proposal.c and
                                                    DEVINFO_PINS */
    "__opencl_c_read_write_images",
    "__opencl_c_subgroups",
    "__opencl_c_work_group_collective_functions",
};
const size_t carried_count = ARRAY_SIZE(carried_names);

static_assert(ARRAY_SIZE(carried_names) <= CARRIED_MAX, "room for the names");

/* Reasons for leaving an extension out, by the beginning of its name. The first match counts. */
static const struct {
    const char *beginning, *why;
} refusals[] = {
    {"cl_khr_gl_", "objects of OpenGL belong to one device's driver"},
    {"cl_khr_egl_", "objects of EGL belong to one device's driver"},
    {"cl_khr_d3d", "objects of Direct3D belong to one device's driver"},
    {"cl_khr_dx9", "objects of Direct3D belong to one device's driver"},
    {"cl_intel_va_api", "surfaces of VA-API belong to one device's driver"},
    {"cl_khr_external_", "handles of another API belong to one device's driver"},
    {"cl_khr_semaphore", "no call reads a semaphore's state"},
    {"cl_khr_command_buffer", "no call reads recorded commands back"},
    {"cl_khr_spir", "a binary of one compiler; programs stay source or SPIR-V"},
    {"cl_khr_device_uuid", "which hardware it is changes with a move"},
    {"cl_khr_pci_bus_info", "which hardware it is changes with a move"},
    {"cl_khr_terminate_context", "not every target can repeat it"},
    {"cl_khr_initialize_memory", "not every target can repeat it"},
    {"cl_khr_suggested_local_work_size", "the suggestion is one device's"},
    {"cl_khr_mipmap_image", "not every target can repeat it"},
    {"cl_khr_device_enqueue_local_arg_types", "no call reads a device queue's state"},
    {"cl_ext_device_fission", "a part of a device is of that device"},
    {"cl_intel_device_partition_by_names", "a part of a device is of that device"},
    {"cl_arm_shared_virtual_memory", "an address is of one device"},
    {"cl_intel_unified_shared_memory", "an address is of one device"},
    {"__opencl_c_device_enqueue", "no call reads a device queue's state"},
    {"__opencl_c_pipes", "no call reads a pipe's content"},
    {"__opencl_c_program_scope_global_variables", "no call reads a program's variables"},
    {"__opencl_c_atomic_scope_all_devices", "it needs shared virtual memory"},
};

const char *carried_refusal(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
        if (strncmp(name, refusals[i].beginning, strlen(refusals[i].beginning)) == 0)
            return refusals[i].why;
    return "not known to work on every target";
}

int carried_find(const char *name)
{
    for (size_t i = 0; i < carried_count; i++)
        if (!strcmp(carried_names[i], name))
            return (int)i;
    return -1;
}
