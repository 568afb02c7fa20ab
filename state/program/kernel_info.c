#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/program/kernel_priv.h"

/* Flag in the name of a kept query: the driver answered with an error, which is kept. */
#define ANSWER_ERROR 0x80000000u

/* Larger than any answer about a kernel; attributes and type names are program text. */
#define ANSWER_MAX ((size_t)1 << 20)

/* One of the four info calls, as answers.h keeps it. */
enum topic { TOPIC_KERNEL, TOPIC_ARG, TOPIC_WORK_GROUP, TOPIC_SUB_GROUP };

struct question {
    struct kernel *kernel;
    enum topic topic;
    cl_uint name;
    cl_uint index; /* of the parameter, or the virtual device */
    size_t input_size;
    const void *input;
    unsigned char key[64]; /* what the answer depends on besides the name */
    size_t key_size;
};

static cl_int kernel_info_call(const struct question *question, const struct residence *residence,
                               cl_kernel real, size_t size, void *value, size_t *ret_size)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_device_id device = residence->device->id;
    bool old = device_version(residence->device) < CL_MAKE_VERSION(1, 2, 0);
    switch (question->topic) {
    case TOPIC_KERNEL:
        return old ? CL_INVALID_VALUE
                   : cl->clGetKernelInfo(real, question->name, size, value, ret_size);
    case TOPIC_ARG:
        return old ? CL_KERNEL_ARG_INFO_NOT_AVAILABLE
                   : cl->clGetKernelArgInfo(real, question->index, question->name, size, value,
                                            ret_size);
    case TOPIC_WORK_GROUP:
        return cl->clGetKernelWorkGroupInfo(real, device, question->name, size, value, ret_size);
    default:
        if (!cl->clGetKernelSubGroupInfo)
            return CL_INVALID_OPERATION;
        return cl->clGetKernelSubGroupInfo(real, device, question->name, question->input_size,
                                           question->input, size, value, ret_size);
    }
}

/* True for an error that is about the question and stays the same, not about the driver's state. */
static bool kernel_info_is_answer(cl_int error)
{
    return error == CL_INVALID_VALUE || error == CL_INVALID_OPERATION ||
           error == CL_INVALID_ARG_INDEX || error == CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}

static uint32_t kernel_info_query_of(const struct question *question)
{
    return (uint32_t)question->topic << 16 | question->name;
}

/* The program gets the same answer for ever, also when that is an error. */
static cl_int kernel_info_keep_error(const struct question *question, cl_int error)
{
    size_t size;
    const cl_int *kept = NULL;
    if (kernel_info_is_answer(error))
        kept = answers_add(&question->kernel->details->answers,
                           kernel_info_query_of(question) | ANSWER_ERROR, question->key,
                           question->key_size, &error, sizeof(error), &size);
    return kept ? *kept : error;
}

/* Ask the driver in @residence_index and keep the answer. Inside the gate. */
static cl_int kernel_info_ask(const struct question *question, uint8_t residence_index,
                              const void **ret_value, size_t *ret_size)
{
    struct kernel *kernel = question->kernel;
    struct residence *residence = kernel->context->at[residence_index];
    size_t size = 0;
    cl_int error = kernel_make_real(kernel, residence, residence_index);
    cl_kernel real = kernel->real[residence_index];
    if (error != CL_SUCCESS)
        return error;
    error = kernel_info_call(question, residence, real, 0, NULL, &size);
    if (error != CL_SUCCESS)
        return kernel_info_keep_error(question, error);
    if (size > ANSWER_MAX)
        return CL_OUT_OF_RESOURCES;
    unsigned char *bytes = calloc(1, size ? size : 1);
    if (!bytes)
        return CL_OUT_OF_HOST_MEMORY;
    error = kernel_info_call(question, residence, real, size, bytes, NULL);
    const void *kept = NULL;
    if (error == CL_SUCCESS) {
        kept = answers_add(&kernel->details->answers, kernel_info_query_of(question), question->key,
                           question->key_size, bytes, size, &size);
        error = kept ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    free(bytes);
    if (error != CL_SUCCESS)
        return error;
    *ret_value = kept;
    *ret_size = size;
    return CL_SUCCESS;
}

static void kernel_info_key_add(struct question *question, const void *bytes, size_t size)
{
    memcpy(question->key + question->key_size, bytes, size);
    question->key_size += size;
}

/* @vdev: whose residence to ask, or -1 for where the kernel was made first. */
static cl_int kernel_info_answer(const struct question *question, int vdev, const void **ret_value,
                                 size_t *ret_size)
{
    struct kernel *kernel = question->kernel;
    const void *known = answers_find(&kernel->details->answers, kernel_info_query_of(question),
                                     question->key, question->key_size, ret_size);
    if (known) {
        *ret_value = known;
        return CL_SUCCESS;
    }
    size_t size;
    const cl_int *refusal =
        answers_find(&kernel->details->answers, kernel_info_query_of(question) | ANSWER_ERROR,
                     question->key, question->key_size, &size);
    if (refusal)
        return *refusal;
    program_enter(kernel->program);
    if (vdev >= 0)
        context_enter_slow(kernel->context, 1u << vdev);
    uint8_t residence_index =
        vdev < 0
            ? kernel_home(kernel)
            : atomic_load_explicit(&kernel->context->residence_index[vdev], memory_order_relaxed);
    cl_int error = kernel_info_ask(question, residence_index, ret_value, ret_size);
    gate_leave();
    return error;
}

cl_int kernel_attributes(struct kernel *kernel, const void **ret_value, size_t *ret_size)
{
    struct question question = {
        .kernel = kernel, .topic = TOPIC_KERNEL, .name = CL_KERNEL_ATTRIBUTES};
    cl_int error = kernel_info_answer(&question, -1, ret_value, ret_size);
    if (error != CL_INVALID_VALUE)
        return error;
    *ret_value = "";
    *ret_size = 1;
    return CL_SUCCESS;
}

cl_int kernel_arg_info(struct kernel *kernel, cl_uint index, cl_kernel_arg_info name,
                       const void **ret_value, size_t *ret_size)
{
    struct question question = {.kernel = kernel, .topic = TOPIC_ARG, .name = name, .index = index};
    if (index >= kernel->arg_count)
        return CL_INVALID_ARG_INDEX;
    kernel_info_key_add(&question, &index, sizeof(index));
    return kernel_info_answer(&question, -1, ret_value, ret_size);
}

/* The program may rely on this group size from now on. */
static void kernel_info_tell_group(struct kernel *kernel, size_t size)
{
    _Atomic uint32_t *told = &kernel->details->told_group;
    uint32_t before = atomic_load(told);
    while (size < UINT32_MAX && (before == 0 || size < before) &&
           !atomic_compare_exchange_weak(told, &before, (uint32_t)size))
        ;
}

cl_int kernel_work_group_info(struct kernel *kernel, cl_uint vdev, cl_kernel_work_group_info name,
                              const void **ret_value, size_t *ret_size)
{
    struct question question = {
        .kernel = kernel, .topic = TOPIC_WORK_GROUP, .name = name, .index = vdev};
    kernel_info_key_add(&question, &vdev, sizeof(vdev));
    /* CL_KERNEL_GLOBAL_WORK_SIZE is for custom devices and built-in kernels (5.9.3), which are not
     * offered. */
    if (name < CL_KERNEL_WORK_GROUP_SIZE || name >= CL_KERNEL_GLOBAL_WORK_SIZE)
        return CL_INVALID_VALUE;
    if (name == CL_KERNEL_LOCAL_MEM_SIZE) {
        /* Local arguments count, which some drivers forget. Static local memory differs between
         * compilers. */
        const struct kernel_details *details = kernel->details;
        cl_ulong bytes = details->local_static + details->local_dynamic;
        kernel_info_key_add(&question, &bytes, sizeof(bytes));
        *ret_value = answers_add(&kernel->details->answers, kernel_info_query_of(&question),
                                 question.key, question.key_size, &bytes, sizeof(bytes), ret_size);
        return *ret_value ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    cl_int error = kernel_info_answer(&question, (int)vdev, ret_value, ret_size);
    if (error == CL_SUCCESS && name == CL_KERNEL_WORK_GROUP_SIZE && *ret_size == sizeof(size_t))
        kernel_info_tell_group(kernel, *(const size_t *)*ret_value);
    return error;
}

cl_int kernel_sub_group_info(struct kernel *kernel, cl_uint vdev, cl_kernel_sub_group_info name,
                             size_t input_size, const void *input, const void **ret_value,
                             size_t *ret_size)
{
    struct question question = {.kernel = kernel,
                                .topic = TOPIC_SUB_GROUP,
                                .name = name,
                                .index = vdev,
                                .input_size = input_size,
                                .input = input};
    /* 5.9.3: the input is up to three sizes, or one number. */
    if (input_size > 3 * sizeof(size_t) || (!input && input_size))
        return CL_INVALID_VALUE;
    kernel_info_key_add(&question, &vdev, sizeof(vdev));
    if (input)
        kernel_info_key_add(&question, input, input_size);
    usage_note_subgroups();
    return kernel_info_answer(&question, (int)vdev, ret_value, ret_size);
}

static bool kernel_info_exceeds(const _Atomic uint64_t *mark, uint64_t value)
{
    return value > atomic_load_explicit(mark, memory_order_relaxed);
}

static NOINLINE void kernel_info_note_new_launch(struct kernel *kernel,
                                                 const struct launch_space *space)
{
    struct kernel_details *details = kernel->details;
    uint64_t memory = details->local_static + details->local_dynamic;
    mark_raise(&details->marks.local_memory, memory);
    for (cl_uint i = 0; space->local && i < space->dims; i++)
        mark_raise(&details->marks.item_sizes[i], space->local[i]);
    mark_raise(&details->marks.uneven, space->uneven);
    mark_raise(&details->marks.group_size, space->items);
    if (!atomic_exchange_explicit(&details->launched, true, memory_order_relaxed)) {
        for (cl_uint i = 0; i < kernel->arg_count; i++)
            details->usage.parameter_bytes +=
                kernel->args[i].kind == ARG_LOCAL ? (uint32_t)sizeof(void *) : kernel->args[i].size;
        usage_note_kernel(&details->usage);
    }
    usage_note_launch(space, memory);
}

HOT void kernel_note_launch(struct kernel *kernel, const struct launch_space *space)
{
    const struct kernel_details *details = kernel->details;
    const struct kernel_marks *marks = &details->marks;
    bool is_new =
        !atomic_load_explicit(&details->launched, memory_order_relaxed) ||
        kernel_info_exceeds(&marks->local_memory, details->local_static + details->local_dynamic) ||
        kernel_info_exceeds(&marks->group_size, space->items) ||
        kernel_info_exceeds(&marks->uneven, space->uneven);
    for (cl_uint i = 0; space->local && i < space->dims; i++)
        is_new = is_new || kernel_info_exceeds(&marks->item_sizes[i], space->local[i]);
    if (UNLIKELY(is_new))
        kernel_info_note_new_launch(kernel, space);
}

/* A remembered group size has the residence index in the bits above it. */
#define GROUP_BITS 24
#define GROUP_MASK ((1u << GROUP_BITS) - 1)

size_t kernel_largest_group(const struct kernel *kernel, const struct residence *residence,
                            uint8_t residence_index, cl_kernel real)
{
    struct kernel_details *details = kernel->details;
    uint32_t known = atomic_load_explicit(&details->largest_group, memory_order_relaxed);
    if (known >> GROUP_BITS == residence_index + 1u && details->local_dynamic == 0)
        return known & GROUP_MASK;
    size_t group = SIZE_MAX;
    residence->cl->clGetKernelWorkGroupInfo(real, residence->device->id, CL_KERNEL_WORK_GROUP_SIZE,
                                            sizeof(group), &group, NULL);
    group = device_group_size(residence->device, group);
    /* The answer may depend on the local memory that arguments ask for. */
    if (details->local_dynamic == 0 && group <= GROUP_MASK)
        atomic_store_explicit(&details->largest_group,
                              (residence_index + 1u) << GROUP_BITS | (uint32_t)group,
                              memory_order_relaxed);
    return group;
}

size_t kernel_group_most(struct kernel *kernel, struct residence *residence,
                         uint8_t residence_index)
{
    size_t told = kernel_told_group(kernel), most = told;
    if (kernel_make_real(kernel, residence, residence_index) == CL_SUCCESS)
        most =
            kernel_largest_group(kernel, residence, residence_index, kernel->real[residence_index]);
    return most < told ? most : told;
}

bool kernel_group_fits(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                       size_t items)
{
    return items == 0 || kernel_make_real(kernel, residence, residence_index) != CL_SUCCESS ||
           items <= kernel_largest_group(kernel, residence, residence_index,
                                         kernel->real[residence_index]);
}

/* Ask a kernel without arguments: drivers do not agree whether local arguments count. */
static uint64_t kernel_info_static_local_bytes(const struct kernel *kernel,
                                               const struct residence *residence,
                                               uint8_t residence_index)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_ulong bytes = kernel->details->local_static;
    cl_program program = kernel->program->real[residence_index];
    cl_int error;
    cl_kernel bare = program ? cl->clCreateKernel(program, kernel->pace->name, &error) : NULL;
    if (!bare)
        return bytes;
    (void)cl->clGetKernelWorkGroupInfo(bare, residence->device->id, CL_KERNEL_LOCAL_MEM_SIZE,
                                       sizeof(bytes), &bytes, NULL);
    cl->clReleaseKernel(bare);
    return bytes;
}

bool kernel_exceeds(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                    size_t items, uint64_t local)
{
    uint64_t most = devinfo_scalar(&residence->device->info, CL_DEVICE_LOCAL_MEM_SIZE, UINT64_MAX);
    return !kernel_group_fits(kernel, residence, residence_index, items) ||
           kernel_info_static_local_bytes(kernel, residence, residence_index) + local > most;
}

bool kernel_local_fits(const struct kernel *kernel, const struct device *device, uint64_t local)
{
    local += kernel->details->local_static;
    return local == 0 ||
           local <= devinfo_scalar(&device->info, CL_DEVICE_LOCAL_MEM_SIZE, UINT64_MAX);
}

uint64_t kernel_local_bytes(const struct kernel *kernel)
{
    return kernel->details->local_dynamic;
}

const size_t *kernel_required_sizes(const struct kernel *kernel)
{
    return kernel->details->required;
}

bool kernel_can_launch(struct kernel *kernel, struct residence *residence, uint8_t residence_index,
                       char *ret_reason, size_t reason_size)
{
    const struct kernel_details *details = kernel->details;
    const struct devinfo *info = &residence->device->info;
    const char *name = residence->device->key.device;
    uint64_t used = atomic_load(&details->marks.group_size);
    size_t group =
        kernel_largest_group(kernel, residence, residence_index, kernel->real[residence_index]);
    cl_ulong local = 0;
    if (used > group) {
        snprintf(ret_reason, reason_size,
                 "kernel %s was launched with work-groups of %llu, on %s its largest is %zu",
                 kernel->pace->name, (unsigned long long)used, name, group);
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        size_t most = devinfo_item_size(info, i, SIZE_MAX);
        used = atomic_load(&details->marks.item_sizes[i]);
        if (used > most) {
            snprintf(ret_reason, reason_size,
                     "kernel %s was launched with work-groups %llu long in dimension %u, %s allows "
                     "%zu",
                     kernel->pace->name, (unsigned long long)used, i, name, most);
            return false;
        }
    }
    /* Static local memory differs with the compiler; what the arguments add does not, and
     * real[residence_index] has none yet. */
    uint64_t most = devinfo_scalar(info, CL_DEVICE_LOCAL_MEM_SIZE, UINT64_MAX);
    used = atomic_load(&details->marks.local_memory);
    if (used > 0 && used >= details->local_static &&
        residence->cl->clGetKernelWorkGroupInfo(kernel->real[residence_index],
                                                residence->device->id, CL_KERNEL_LOCAL_MEM_SIZE,
                                                sizeof(local), &local, NULL) == CL_SUCCESS)
        used = used - details->local_static + local;
    if (used > most) {
        snprintf(ret_reason, reason_size, "kernel %s uses %llu bytes of local memory, %s has %llu",
                 kernel->pace->name, (unsigned long long)used, name, (unsigned long long)most);
        return false;
    }
    return true;
}

void kernel_marks_renew(struct kernel *kernel, struct kernel_marks *ret_before)
{
    struct kernel_marks *now = &kernel->details->marks;
    atomic_store(&ret_before->group_size, atomic_exchange(&now->group_size, 0));
    atomic_store(&ret_before->local_memory, atomic_exchange(&now->local_memory, 0));
    atomic_store(&ret_before->uneven, atomic_exchange(&now->uneven, 0));
    for (unsigned i = 0; i < 3; i++)
        atomic_store(&ret_before->item_sizes[i], atomic_exchange(&now->item_sizes[i], 0));
}

void kernel_marks_restore(struct kernel *kernel, const struct kernel_marks *before)
{
    struct kernel_marks *now = &kernel->details->marks;
    mark_raise(&now->group_size, atomic_load(&before->group_size));
    mark_raise(&now->local_memory, atomic_load(&before->local_memory));
    mark_raise(&now->uneven, atomic_load(&before->uneven));
    for (unsigned i = 0; i < 3; i++)
        mark_raise(&now->item_sizes[i], atomic_load(&before->item_sizes[i]));
}
