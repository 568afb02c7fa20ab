#include <stdio.h>
#include <string.h>

#include "deviceinfo.h"

/* What the compiler says by macros of what is there, against what the device says (6.2.1, 6.10). */

static const char *const extensions[] = {
    "cl_khr_fp64",
    "cl_khr_fp16",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_3d_image_writes",
    "cl_khr_subgroups",
    "cl_khr_depth_images",
    "cl_khr_byte_addressable_store",
};
static const char *const features[] = {
    "__opencl_c_fp64",
    "__opencl_c_pipes",
    "__opencl_c_device_enqueue",
    "__opencl_c_program_scope_global_variables",
    "__opencl_c_generic_address_space",
    "__opencl_c_read_write_images",
    "__opencl_c_3d_image_writes",
    "__opencl_c_subgroups",
    "__opencl_c_work_group_collective_functions",
    "__opencl_c_atomic_order_acq_rel",
    "__opencl_c_atomic_order_seq_cst",
    "__opencl_c_atomic_scope_device",
    "__opencl_c_atomic_scope_all_devices",
};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define NAMES_MAX   16

/* One number for each name, 1 where it is defined; then the version, and the line of the end. */
static void ask(const char *const *names, size_t count, const char *options,
                cl_int ret_answers[NAMES_MAX + 2])
{
    struct prog p = {facts.platform, facts.device, facts.context, facts.queue};
    char source[8192] = "kernel void ask(global int *to) {\n";
    cl_mem answers =
        prog_buffer(facts.context, CL_MEM_WRITE_ONLY, (NAMES_MAX + 2) * sizeof(cl_int), NULL);
    size_t used = strlen(source);
    cl_program program;
    cl_kernel kernel;

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(source + used, sizeof(source) - used,
                                 "to[%zu] = 0;\n#ifdef %s\nto[%zu] = 1;\n#endif\n", i, names[i], i);
    snprintf(source + used, sizeof(source) - used,
             "to[%d] = __OPENCL_VERSION__; to[%d] = __LINE__; }\n", NAMES_MAX, NAMES_MAX + 1);
    program = prog_build(&p, source, options);
    kernel = prog_kernel(program, "ask");
    prog_arg(kernel, 0, sizeof(answers), &answers);
    prog_run(facts.queue, kernel, 1);
    prog_read(facts.queue, answers, 0, (NAMES_MAX + 2) * sizeof(cl_int), ret_answers);
    CHECK(ret_answers[NAMES_MAX + 1] == (cl_int)(2 + 4 * count));
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseMemObject(answers);
}

void check_macros(void)
{
    cl_int answers[NAMES_MAX + 2];
    cl_int version =
        (cl_int)(CL_VERSION_MAJOR(facts.version) * 100 + CL_VERSION_MINOR(facts.version) * 10);

    if (!wanted("macros"))
        return;
    ask(extensions, COUNT(extensions), "", answers);
    for (size_t i = 0; i < COUNT(extensions); i++)
        if ((answers[i] != 0) != words_have(facts.extensions, extensions[i]) &&
            wanted(extensions[i]))
            check_failed(extensions[i], __FILE__, __LINE__);
    if (wanted("macro-version"))
        CHECK(answers[NAMES_MAX] == version);
    if (facts.version < V(3, 0))
        return;
    struct versions told = versions_of(CL_DEVICE_OPENCL_C_FEATURES);

    ask(features, COUNT(features), "-cl-std=CL3.0", answers);
    for (size_t i = 0; i < COUNT(features); i++)
        if ((answers[i] != 0) != versions_have(&told, features[i]) && wanted(features[i]))
            check_failed(features[i], __FILE__, __LINE__);
}
