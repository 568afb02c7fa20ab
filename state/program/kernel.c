#include "state/program/kernel.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/program/implementations.h"
#include "state/program/kernel_priv.h"

void kernel_arg_finish(struct kernel_arg *arg)
{
    if (arg->kind == ARG_VALUE && arg->size > sizeof(arg->value.small))
        free(arg->value.big);
    if (arg->kind == ARG_SAMPLER)
        object_unhold(arg->object.object);
}

static void kernel_finish(struct kernel *kernel)
{
    for (cl_uint i = 0; kernel->args && i < kernel->arg_count; i++)
        kernel_arg_finish(&kernel->args[i]);
    free(kernel->args);
    free(kernel->real);
    if (kernel->details) {
        answers_finish(&kernel->details->answers);
        pthread_mutex_destroy(&kernel->details->lock);
        kernel_exec_unref(kernel->details->exec);
        implementations_free(kernel->details->implementations);
    }
    free(kernel->details);
    atomic_fetch_sub_explicit(&kernel->program->kernels, 1, memory_order_relaxed);
    object_unhold(kernel->program);
}

static void kernel_leave(struct object *object)
{
    struct kernel *kernel = (struct kernel *)object;
    for (unsigned residence_index = 0; residence_index < kernel->context->residences;
         residence_index++) {
        if (kernel->real[residence_index])
            kernel->context->at[residence_index]->cl->clReleaseKernel(
                kernel->real[residence_index]);
        kernel->real[residence_index] = NULL;
    }
}

static void kernel_destroy(struct object *object)
{
    kernel_finish((struct kernel *)object);
}

static void kernel_release_real(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)kept;
    cl->clReleaseKernel(real);
}

static void kernel_describe_name(const struct object *object, char *ret_text, size_t size)
{
    (void)!snprintf(ret_text, size, "kernel %s", ((const struct kernel *)object)->pace->name);
}

static cl_int kernel_prepare(struct object *object, struct move_context *move)
{
    struct kernel *kernel = (struct kernel *)object;
    const struct program *program = kernel->program;
    struct residence *target = move->context->at[move->to];
    /* Its program was built again since the move began: the move makes another pass. */
    if (move_is_busy(move) || kernel->real[move->to] || !program->real[move->to] ||
        atomic_load(&program->made[move->to]) != atomic_load(&program->edition))
        return CL_SUCCESS;
    cl_int error = kernel_make_real(kernel, target, move->to);
    if (error == CL_SUCCESS &&
        !kernel_can_launch(kernel, target, move->to, move->reason, sizeof(move->reason)))
        error = CL_INVALID_WORK_GROUP_SIZE;
    return error;
}

static cl_int kernel_arrive(struct object *object, const struct move_context *move)
{
    struct kernel *kernel = (struct kernel *)object;
    if (!kernel->real[move->to] || kernel->applied[move->to] == kernel->edition)
        return CL_SUCCESS;
    cl_int error = kernel_apply(kernel, move->context->at[move->to], move->to);
    /* An argument whose object does not fit on the device is set at the next launch. */
    return error == OVER_BUDGET ? CL_SUCCESS : error;
}

static void kernel_vacate(struct object *object, const struct move_context *move,
                          uint8_t residence_index)
{
    struct kernel *kernel = (struct kernel *)object;
    if (!move_empties(move, residence_index))
        return;
    residence_retire(kernel->context->at[residence_index], OBJECT_KERNEL,
                     kernel->real[residence_index], NULL);
    kernel->real[residence_index] = NULL;
    if (residence_index == move->from)
        pace_forget(kernel->pace);
}

OBJECT_CLASS(kernel_class) = {
    .type = OBJECT_KERNEL,
    .size = sizeof(struct kernel),
    .leave = kernel_leave,
    .destroy = kernel_destroy,
    .release = kernel_release_real,
    .context = offsetof(struct kernel, context),
    .name = "a kernel",
    .describe = kernel_describe_name,
    .make_real = kernel_prepare,
    .arrive = kernel_arrive,
    .vacate = kernel_vacate,
};

/* A real kernel that its driver is asked about. */
struct described {
    const struct residence *residence;
    cl_kernel real;
    cl_int error; /* the last error that may be the answer of a lost device */
};

static bool kernel_answered(struct described *of, cl_int error)
{
    if (lost_may_say(error))
        of->error = error;
    return error == CL_SUCCESS;
}

/* What the driver answers about one parameter; false where it does not answer. */
static bool kernel_arg_query(struct described *of, cl_uint index, cl_kernel_arg_info name,
                             size_t size, void *ret_value)
{
    return kernel_answered(
        of, of->residence->cl->clGetKernelArgInfo(of->real, index, name, size, ret_value, NULL));
}

static void kernel_group_query(struct described *of, cl_kernel_work_group_info name, size_t size,
                               void *ret_value)
{
    (void)kernel_answered(
        of, of->residence->cl->clGetKernelWorkGroupInfo(of->real, of->residence->device->id, name,
                                                        size, ret_value, NULL));
}

/* True for the widths of vectors (6.3.2); "float9" is a type of the program. */
static bool kernel_is_width(unsigned long width)
{
    return width == 2 || width == 3 || width == 4 || width == 8 || width == 16;
}

/* "double", "double4*", but not "doubles". */
static bool kernel_is_type(const char *type, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(type, word, length) != 0)
        return false;
    char *end;
    unsigned long width = strtoul(type + length, &end, 10);
    return (end == type + length || kernel_is_width(width)) && !isalnum((unsigned char)*end) &&
           *end != '_';
}

/* The size of what a pointer of a built-in type points to: "float4*". */
static uint8_t kernel_pointed_size(char *type)
{
    size_t length = strcspn(type, "*");
    bool once = type[length] == '*' && type[length + 1] == '\0';
    while (length > 0 && type[length - 1] == ' ')
        length--;
    char *end = type + length, kept = *end;
    *end = '\0';
    uint8_t size = once ? (uint8_t)argument_builtin_size(type) : 0;
    *end = kept;
    return size;
}

static void kernel_note_type(struct usage_kernel *usage, const char *type)
{
    usage->fp64 = usage->fp64 || kernel_is_type(type, "double");
    /* A pointer to half alone needs no extension: vload_half reads it. */
    usage->fp16 = usage->fp16 || (kernel_is_type(type, "half") && strcmp(type, "half*") != 0);
}

static void kernel_describe_arg(struct described *of, cl_uint index, struct kernel_arg *arg,
                                struct usage_kernel *usage)
{
    cl_kernel_arg_address_qualifier address;
    cl_kernel_arg_access_qualifier access = CL_KERNEL_ARG_ACCESS_NONE;
    char type[256] = "";
    arg->writes = true;
    if (!kernel_arg_query(of, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(address), &address))
        return;
    (void)kernel_arg_query(of, index, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof(access), &access);
    (void)kernel_arg_query(of, index, CL_KERNEL_ARG_TYPE_NAME, sizeof(type), type);
    kernel_note_type(usage, type);
    arg->declared = (uint8_t)argument_declared(address, access, type);
    arg->access = (access - CL_KERNEL_ARG_ACCESS_READ_ONLY) & 3;
    switch (arg->declared) {
    case ARGUMENT_SAMPLER:
        usage->samplers++;
        break;
    case ARGUMENT_BUFFER:
        arg->writes = address != CL_KERNEL_ARG_ADDRESS_CONSTANT;
        arg->element = kernel_pointed_size(type);
        break;
    case ARGUMENT_IMAGE:
    case ARGUMENT_OBJECT:
        arg->writes =
            access != CL_KERNEL_ARG_ACCESS_READ_ONLY && address != CL_KERNEL_ARG_ADDRESS_CONSTANT;
        usage->read_images += access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
        usage->write_images +=
            access == CL_KERNEL_ARG_ACCESS_WRITE_ONLY || access == CL_KERNEL_ARG_ACCESS_READ_WRITE;
        break;
    case ARGUMENT_VALUE:
        arg->builtin_size = (uint8_t)argument_builtin_size(type);
        break;
    default:
        break;
    }
    /* A struct, or a typedef that may be a sampler: kernel_args_set_any looks at the value. */
}

/* Ask the driver what the parameters of @kernel are: fills arg_count, args and the usage. */
static cl_int kernel_describe(struct kernel *kernel, struct residence *residence, cl_kernel real)
{
    const cl_icd_dispatch *cl = residence->cl;
    struct kernel_details *details = kernel->details;
    struct described of = {residence, real, CL_SUCCESS};
    cl_uint count = 0;
    cl_int error = cl->clGetKernelInfo(real, CL_KERNEL_NUM_ARGS, sizeof(count), &count, NULL);
    if (error != CL_SUCCESS)
        return error;
    kernel->args = calloc(count ? count : 1, sizeof(*kernel->args));
    if (!kernel->args)
        return CL_OUT_OF_HOST_MEMORY;
    kernel->arg_count = kernel->unset = count;
    bool tells = device_version(residence->device) >= CL_MAKE_VERSION(1, 2, 0);
    for (cl_uint i = 0; i < count; i++) {
        kernel->args[i].writes = true;
        if (tells)
            kernel_describe_arg(&of, i, &kernel->args[i], &details->usage);
    }
    /* Where the driver does not answer, these stay zero. */
    kernel_group_query(&of, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(details->local_static),
                       &details->local_static);
    kernel_group_query(&of, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(details->required),
                       details->required);
    kernel->requires_group = details->required[0] != 0;
    return the_upcalls && the_upcalls->is_protected() ? of.error : CL_SUCCESS;
}

/* Unpublished; NULL without memory. */
static struct kernel *kernel_new(struct program *program, const char *name)
{
    struct kernel *kernel = object_create(OBJECT_KERNEL);
    if (!kernel)
        return NULL;
    object_hold(program);
    atomic_fetch_add_explicit(&program->kernels, 1, memory_order_relaxed);
    kernel->program = program;
    kernel->context = program->context;
    kernel->real = calloc(kernel->context->residences, sizeof(cl_kernel) + sizeof(uint32_t));
    kernel->applied = (uint32_t *)(kernel->real + kernel->context->residences);
    kernel->details = calloc(1, sizeof(*kernel->details));
    if (kernel->details)
        pthread_mutex_init(&kernel->details->lock, NULL);
    kernel->pace = pace_of(program, name);
    if (kernel->real && kernel->details && kernel->pace)
        return kernel;
    kernel_finish(kernel);
    object_discard(kernel);
    return NULL;
}

/* Inside the gate: make the real kernel where the program has an executable, and describe its
 * parameters. */
static cl_int kernel_create_first(struct kernel *kernel)
{
    struct program *program = kernel->program;
    uint8_t residence_index = program_kernel_place(program);
    struct residence *residence = kernel->context->at[residence_index];
    cl_int error = CL_SUCCESS;
    if (!program->real[residence_index])
        return CL_INVALID_PROGRAM_EXECUTABLE;
    cl_kernel real =
        residence->cl->clCreateKernel(program->real[residence_index], kernel->pace->name, &error);
    if (!real)
        return error ? error : CL_OUT_OF_RESOURCES;
    error = kernel_describe(kernel, residence, real);
    if (error != CL_SUCCESS) {
        residence->cl->clReleaseKernel(real);
        return error;
    }
    kernel->real[residence_index] = real;
    return CL_SUCCESS;
}

/* Create a kernel, with the arguments of @source unless that is NULL. */
static cl_int kernel_create_once(struct program *program, const char *name,
                                 const struct kernel *source, struct kernel **ret_kernel)
{
    struct kernel *kernel = kernel_new(program, name);
    if (!kernel)
        return CL_OUT_OF_HOST_MEMORY;
    program_enter(program);
    cl_int error = kernel_create_first(kernel);
    for (cl_uint i = 0; error == CL_SUCCESS && source && i < kernel->arg_count; i++)
        if (kernel_arg_copy(&source->args[i], &kernel->args[i]) != 0)
            error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS && source) {
        /* No real kernel has them yet. */
        atomic_store(&kernel->edition, 1);
        kernel->details->local_dynamic = source->details->local_dynamic;
        kernel->unset = source->unset;
        kernel->details->exec = kernel_exec_ref(source->details->exec);
    }
    if (error == CL_SUCCESS)
        object_publish(kernel);
    else
        kernel_leave(&kernel->object);
    gate_leave();
    if (error != CL_SUCCESS) {
        kernel_finish(kernel);
        object_discard(kernel);
        return error;
    }
    *ret_kernel = kernel;
    return CL_SUCCESS;
}

static cl_int kernel_create_from(struct program *program, const char *name,
                                 const struct kernel *source, struct kernel **ret_kernel)
{
    unsigned tries = 0;
    cl_int error;
    do
        error = kernel_create_once(program, name, source, ret_kernel);
    while (error != CL_SUCCESS && context_outlives(program->context, error, &tries));
    return error;
}

cl_int kernel_create(struct program *program, const char *name, struct kernel **ret_kernel)
{
    if (!name)
        return CL_INVALID_VALUE;
    program_settle(program);
    if (!program_is_executable(program, ~0u))
        return CL_INVALID_PROGRAM_EXECUTABLE;
    return kernel_create_from(program, name, NULL, ret_kernel);
}

/* Only drivers since 2.1 have clCloneKernel. A new kernel of the same name with the same arguments
 * is the same. */
cl_int kernel_clone(struct kernel *source, struct kernel **ret_kernel)
{
    return kernel_create_from(source->program, source->pace->name, source, ret_kernel);
}

/* Under the lock, with none there yet. */
static cl_int kernel_make_real_locked(struct kernel *kernel, struct residence *residence,
                                      uint8_t residence_index)
{
    cl_int error = CL_SUCCESS;
    if (!kernel->program->real[residence_index])
        return CL_INVALID_PROGRAM_EXECUTABLE;
    cl_kernel real = residence->cl->clCreateKernel(kernel->program->real[residence_index],
                                                   kernel->pace->name, &error);
    if (!real) {
        log_warn("kernel %s cannot be made on %s (error %d)", kernel->pace->name,
                 residence->device->key.device, error);
        return error ? error : CL_OUT_OF_RESOURCES;
    }
    kernel->applied[residence_index] = kernel_edition(kernel) - 1; /* any but the kernel's */
    atomic_store(&kernel->details->largest_group, 0);
    __atomic_store_n(&kernel->real[residence_index], real, __ATOMIC_RELEASE);
    return CL_SUCCESS;
}

cl_int kernel_make_real(struct kernel *kernel, struct residence *residence, uint8_t residence_index)
{
    cl_int error = CL_SUCCESS;
    if (__atomic_load_n(&kernel->real[residence_index], __ATOMIC_ACQUIRE))
        return CL_SUCCESS;
    int before = cancel_hold();
    pthread_mutex_lock(&kernel->details->lock);
    if (!kernel->real[residence_index])
        error = kernel_make_real_locked(kernel, residence, residence_index);
    pthread_mutex_unlock(&kernel->details->lock);
    cancel_allow(before);
    return error;
}

static void kernel_in_child(void)
{
    uintptr_t cursor = 0;
    struct kernel *kernel;
    for (; (kernel = object_next(OBJECT_KERNEL, &cursor)); object_unhold(kernel))
        pthread_mutex_init(&kernel->details->lock, NULL);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = kernel_in_child};
