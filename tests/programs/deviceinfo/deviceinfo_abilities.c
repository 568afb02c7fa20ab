#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviceinfo.h"

/* What 3.0 makes optional: each ability, its numbers, its feature and its calls, all or none. */

static const char *const source = "kernel void set(global int *to) { to[0] = 1; }";

static void check_features(void)
{
    struct versions features = versions_of(CL_DEVICE_OPENCL_C_FEATURES);
    uint64_t atomics = number64(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES);
    const struct {
        const char *feature;
        bool there;
    } abilities[] = {
        {"__opencl_c_images", truth(CL_DEVICE_IMAGE_SUPPORT)},
        {"__opencl_c_read_write_images", number32(CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS) != 0},
        {"__opencl_c_3d_image_writes", words_have(facts.extensions, "cl_khr_3d_image_writes")},
        {"__opencl_c_fp64", words_have(facts.extensions, "cl_khr_fp64")},
        {"__opencl_c_subgroups", number32(CL_DEVICE_MAX_NUM_SUB_GROUPS) != 0},
        {"__opencl_c_generic_address_space", truth(CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT)},
        {"__opencl_c_work_group_collective_functions",
         truth(CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT)},
        {"__opencl_c_pipes", truth(CL_DEVICE_PIPE_SUPPORT)},
        {"__opencl_c_device_enqueue", number32(CL_DEVICE_MAX_ON_DEVICE_QUEUES) != 0},
        {"__opencl_c_program_scope_global_variables",
         number_size(CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE) != 0},
        {"__opencl_c_atomic_order_acq_rel", (atomics & CL_DEVICE_ATOMIC_ORDER_ACQ_REL) != 0},
        {"__opencl_c_atomic_order_seq_cst", (atomics & CL_DEVICE_ATOMIC_ORDER_SEQ_CST) != 0},
        {"__opencl_c_atomic_scope_device", (atomics & CL_DEVICE_ATOMIC_SCOPE_DEVICE) != 0},
        {"__opencl_c_atomic_scope_all_devices",
         (atomics & CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES) != 0},
    };

    for (size_t i = 0; i < sizeof(abilities) / sizeof(abilities[0]); i++) {
        if (!wanted(abilities[i].feature) ||
            versions_have(&features, abilities[i].feature) == abilities[i].there)
            continue;
        check_failed(abilities[i].feature, __FILE__, __LINE__);
    }
    CHECK(!facts.full || versions_have(&features, "__opencl_c_int64"));
}

static void check_no_svm(cl_kernel kernel)
{
    void *bogus = &bogus;
    cl_uint pattern = 7;

    CHECK(!clSVMAlloc(facts.context, CL_MEM_READ_WRITE, 64, 0));
    CHECK(clEnqueueSVMMemFill(facts.queue, bogus, &pattern, sizeof(pattern), 16, 0, NULL, NULL) ==
          CL_INVALID_OPERATION);
    CHECK(clEnqueueSVMMemcpy(facts.queue, CL_TRUE, bogus, bogus, 16, 0, NULL, NULL) ==
          CL_INVALID_OPERATION);
    CHECK(clEnqueueSVMMap(facts.queue, CL_TRUE, CL_MAP_READ, bogus, 16, 0, NULL, NULL) ==
          CL_INVALID_OPERATION);
    CHECK(clEnqueueSVMUnmap(facts.queue, bogus, 0, NULL, NULL) == CL_INVALID_OPERATION);
    CHECK(clEnqueueSVMMigrateMem(facts.queue, 1, (const void **)&bogus, NULL, 0, 0, NULL, NULL) ==
          CL_INVALID_OPERATION);
    CHECK(clEnqueueSVMFree(facts.queue, 1, &bogus, NULL, NULL, 0, NULL, NULL) ==
          CL_INVALID_OPERATION);
    CHECK(clSetKernelArgSVMPointer(kernel, 0, NULL) == CL_INVALID_OPERATION);
    CHECK(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL) ==
          CL_INVALID_OPERATION);
}

static void check_device_queues(void)
{
    uint64_t has = wanted("enqueue-size") ? number64(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) : 0;
    cl_command_queue queue = facts.queue;
    cl_uint size = 0;

    if (has) {
        CHECK(has & CL_DEVICE_QUEUE_SUPPORTED);
        CHECK(truth(CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT));
        return;
    }
    CHECK(number64(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES) == 0);
    CHECK(number32(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE) == 0);
    CHECK(number32(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE) == 0);
    CHECK(number32(CL_DEVICE_MAX_ON_DEVICE_QUEUES) == 0);
    CHECK(number32(CL_DEVICE_MAX_ON_DEVICE_EVENTS) == 0);
    if (!wanted("queue-size"))
        return;
    CHECK(clGetCommandQueueInfo(facts.queue, CL_QUEUE_SIZE, sizeof(size), &size, NULL) ==
          CL_INVALID_COMMAND_QUEUE);
    CHECK(clGetCommandQueueInfo(facts.queue, CL_QUEUE_DEVICE_DEFAULT, sizeof(queue), &queue,
                                NULL) == CL_SUCCESS &&
          !queue);
    CHECK(clSetDefaultDeviceCommandQueue(facts.context, facts.device, NULL) ==
          CL_INVALID_OPERATION);
}

static void check_pipes(void)
{
    cl_int error = CL_SUCCESS;

    if (truth(CL_DEVICE_PIPE_SUPPORT))
        return;
    CHECK(number32(CL_DEVICE_MAX_PIPE_ARGS) == 0);
    CHECK(number32(CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS) == 0);
    CHECK(number32(CL_DEVICE_PIPE_MAX_PACKET_SIZE) == 0);
    CHECK(!clCreatePipe(facts.context, CL_MEM_HOST_NO_ACCESS, 4, 4, NULL, &error));
    CHECK(error == CL_INVALID_OPERATION);
}

static void check_subgroups(cl_kernel kernel)
{
    size_t size = 0;
    bool there = number32(CL_DEVICE_MAX_NUM_SUB_GROUPS) != 0;

    CHECK(!words_have(facts.extensions, "cl_khr_subgroups") || there);
    if (there)
        return;
    CHECK(!truth(CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS));
    if (wanted("sub-group-info"))
        CHECK(clGetKernelSubGroupInfo(kernel, facts.device, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL,
                                      sizeof(size), &size, NULL) == CL_INVALID_OPERATION);
}

static void check_global_variables(cl_program program)
{
    size_t size = 1;

    if (number_size(CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE))
        return;
    CHECK(number_size(CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE) == 0);
    CHECK(clGetProgramBuildInfo(program, facts.device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                                sizeof(size), &size, NULL) == CL_SUCCESS);
    CHECK(size == 0);
}

static void check_partitions(void)
{
    cl_device_partition_property properties[16] = {1};
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    size_t size = 0;
    cl_device_id part = NULL;

    if (!wanted("partitions"))
        return;
    CHECK(clGetDeviceInfo(facts.device, CL_DEVICE_PARTITION_PROPERTIES, sizeof(properties),
                          properties, &size) == CL_SUCCESS);
    CHECK(size >= sizeof(properties[0]) && size % sizeof(properties[0]) == 0);
    CHECK(clGetDeviceInfo(facts.device, CL_DEVICE_PARENT_DEVICE, sizeof(part), &part, &size) ==
              CL_SUCCESS &&
          size == sizeof(part) && !part);
    CHECK(number32(CL_DEVICE_REFERENCE_COUNT) == 1);
    number64(CL_DEVICE_PARTITION_AFFINITY_DOMAIN);
    if (properties[0])
        return;
    CHECK(number32(CL_DEVICE_PARTITION_MAX_SUB_DEVICES) <= 1);
    CHECK(clCreateSubDevices(facts.device, equally, 0, NULL, NULL) == CL_INVALID_VALUE);
}

void check_abilities(void)
{
    struct prog p = {facts.platform, facts.device, facts.context, facts.queue};
    cl_program program;
    cl_kernel kernel;

    check_partitions();
    if (facts.version < V(3, 0))
        return;
    program = prog_build(&p, source, "");
    kernel = prog_kernel(program, "set");
    check_features();
    if (number64(CL_DEVICE_SVM_CAPABILITIES) == 0)
        check_no_svm(kernel);
    check_device_queues();
    check_pipes();
    check_subgroups(kernel);
    check_global_variables(program);
    number32(CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT);
    number32(CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT);
    number32(CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
}
