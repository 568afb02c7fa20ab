#include <stdlib.h>
#include <string.h>

#include "remote/server/session/server.h"
#include "state/base/log.h"

/*
 * Kernels. A driver interprets the bytes of an argument by the kernel's declaration, and may take
 * them for an address of an object of its own. So the server finds out what each argument is and
 * lets the client set only that. Only the server sets objects, from its tables.
 */

static char *kernels_argument_text(const struct entry *kernel, cl_uint index,
                                   cl_kernel_arg_info what)
{
    size_t size = 0;
    if (kernel->cl->clGetKernelArgInfo(kernel->real, index, what, 0, NULL, &size) ||
        size > SERVER_TEXT_MAX)
        return NULL;
    char *text = calloc(1, size + 1);
    if (text && kernel->cl->clGetKernelArgInfo(kernel->real, index, what, size, text, NULL)) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Find out about an argument whose declared type is not known, by how the driver reacts to values
 * that no kernel can take: for an object, NULL means none; for a value, it is an error. @kernel is
 * used only for this. */
static enum argument_kind kernels_try_argument(const cl_icd_dispatch *cl, cl_kernel kernel,
                                               cl_uint index, bool private)
{
    const uint64_t none = 0;
    cl_int nothing = cl->clSetKernelArg(kernel, index, sizeof(void *), NULL);
    cl_int odd = cl->clSetKernelArg(kernel, index, 3, NULL);
    if (nothing == CL_SUCCESS) {
        if (private)
            return ARGUMENT_SAMPLER;
        return odd == CL_SUCCESS ? ARGUMENT_LOCAL : ARGUMENT_OBJECT;
    }
    cl_int zero = cl->clSetKernelArg(kernel, index, sizeof(none), &none);
    if (zero == CL_INVALID_SAMPLER)
        return ARGUMENT_SAMPLER;
    if (zero == CL_INVALID_MEM_OBJECT)
        return ARGUMENT_IMAGE;
    /* CL_SUCCESS: an eight-byte value, or a driver that takes 0 for no object. */
    return private || zero == CL_INVALID_ARG_SIZE ? ARGUMENT_VALUE : ARGUMENT_UNKNOWN;
}

/* Fills in the row, with address 0 if the driver does not tell. */
static void kernels_describe_argument(const struct entry *kernel, cl_uint index, cl_program program,
                                      const char *name, cl_kernel *trial, struct pack *pack)
{
    const cl_icd_dispatch *cl = kernel->cl;
    struct argument *argument = &kernel->arguments[index];
    struct msg_kernel_argument row = {0};
    char *type = kernels_argument_text(kernel, index, CL_KERNEL_ARG_TYPE_NAME);
    char *own_name = kernels_argument_text(kernel, index, CL_KERNEL_ARG_NAME);
    if (!type || cl->clGetKernelArgInfo(kernel->real, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                                        sizeof(row.address), &row.address, NULL))
        row.address = 0;
    else {
        cl->clGetKernelArgInfo(kernel->real, index, CL_KERNEL_ARG_ACCESS_QUALIFIER,
                               sizeof(row.access), &row.access, NULL);
        cl->clGetKernelArgInfo(kernel->real, index, CL_KERNEL_ARG_TYPE_QUALIFIER,
                               sizeof(row.qualifiers), &row.qualifiers, NULL);
    }
    row.type = type ? type : "";
    row.name = own_name ? own_name : "";
    argument->kind = argument_declared(row.address, row.access, row.type);
    if (argument->kind == ARGUMENT_VALUE)
        argument->size = argument_builtin_size(row.type);
    if (argument->kind == ARGUMENT_UNKNOWN && !*trial)
        *trial = cl->clCreateKernel(program, name, NULL);
    if (argument->kind == ARGUMENT_UNKNOWN && *trial)
        argument->kind =
            kernels_try_argument(cl, *trial, index, row.address == CL_KERNEL_ARG_ADDRESS_PRIVATE);
    row.kind = argument->kind;
    row.size = argument->size;
    if (pack)
        pack_kernel_argument(pack, &row);
    free(type);
    free(own_name);
}

/* @pack  Gets the answer; or NULL. */
static void kernels_describe_kernel(struct entry *kernel, cl_program program, const char *name,
                                    struct pack *pack)
{
    const cl_icd_dispatch *cl = kernel->cl;
    struct msg_kernel_info info = {.attributes = ""};
    size_t size = 0;
    char *attributes = NULL;
    cl_kernel trial = NULL;
    cl->clGetKernelInfo(kernel->real, CL_KERNEL_NUM_ARGS, sizeof(info.arguments), &info.arguments,
                        NULL);
    kernel->arguments = calloc((size_t)info.arguments + 1, sizeof(*kernel->arguments));
    if (!kernel->arguments) {
        cl->clReleaseKernel(kernel->real);
        kernel->real = NULL;
        kernel->error = CL_OUT_OF_HOST_MEMORY;
        return;
    }
    kernel->argument_count = info.arguments;
    if (!cl->clGetKernelInfo(kernel->real, CL_KERNEL_ATTRIBUTES, 0, NULL, &size) &&
        size <= SERVER_TEXT_MAX && (attributes = calloc(1, size + 1)) &&
        !cl->clGetKernelInfo(kernel->real, CL_KERNEL_ATTRIBUTES, size, attributes, NULL))
        info.attributes = attributes;
    if (pack)
        pack_kernel_info(pack, &info);
    free(attributes);
    for (cl_uint i = 0; i < info.arguments; i++)
        kernels_describe_argument(kernel, i, program, name, &trial, pack);
    if (trial)
        cl->clReleaseKernel(trial);
}

void server_create_kernel(struct server *server, const struct msg_create_kernel *message)
{
    const struct entry *program = server_find(server, message->program);
    struct entry *entry = program ? server_add(server, message->kernel) : NULL;
    struct pack pack;
    if (!entry)
        return;
    entry->cl = program->cl;
    entry->context = program->context;
    entry->error = program->error;
    pack_init(&pack);
    if (program->real)
        entry->real = entry->cl->clCreateKernel(program->real, message->name, &entry->error);
    if (entry->real)
        kernels_describe_kernel(entry, program->real, message->name, message->call ? &pack : NULL);
    if (message->call)
        server_reply(server, message->call, pack.failed ? CL_OUT_OF_HOST_MEMORY : entry->error,
                     pack.bytes, pack.used);
    pack_finish(&pack);
}

void server_clone_kernel(struct server *server, const struct msg_clone_kernel *message)
{
    struct entry *entry =
        server_find(server, message->source) ? server_add(server, message->kernel) : NULL;
    if (!entry)
        return;
    /* server_add() may have moved the table. */
    const struct entry *source = server_find(server, message->source);
    entry->cl = source->cl;
    entry->context = source->context;
    entry->error = source->error ? source->error : CL_INVALID_OPERATION;
    entry->arguments = calloc(source->argument_count + 1, sizeof(*entry->arguments));
    if (!entry->arguments) {
        entry->error = CL_OUT_OF_HOST_MEMORY;
        return;
    }
    if (source->arguments) /* NULL if the kernel could not be created. */
        memcpy(entry->arguments, source->arguments,
               source->argument_count * sizeof(*entry->arguments));
    entry->argument_count = source->argument_count;
    if (source->real && source->cl->clCloneKernel)
        entry->real = source->cl->clCloneKernel(source->real, &entry->error);
}

/* ---- arguments ---- */

/* A kernel and its argument of that index, if the argument is of one of @kinds or unknown. NULL:
 * there is no driver's kernel, or the session ends. */
static struct entry *kernels_take_argument(struct server *server, uint64_t id, uint32_t index,
                                           unsigned kinds, struct argument **ret_argument)
{
    struct entry *kernel = server_find(server, id);
    if (!kernel || !kernel->real)
        return NULL;
    if (index >= kernel->argument_count) {
        server_wrong(server, "a kernel argument's index is wrong");
        return NULL;
    }
    *ret_argument = &kernel->arguments[index];
    if (!((kinds | 1u << ARGUMENT_UNKNOWN) & 1u << (*ret_argument)->kind)) {
        server_wrong(server, "a kernel argument's type is wrong");
        return NULL;
    }
    return kernel;
}

/* If the driver refuses an argument, the client has already returned from the call. Launches fail
 * with the error until the argument is set again, as they must not run with the old value. */
static void kernels_set_argument(struct entry *kernel, struct argument *argument, size_t size,
                                 const void *value)
{
    cl_uint index = (cl_uint)(argument - kernel->arguments);
    argument->error = kernel->cl->clSetKernelArg(kernel->real, index, size, value);
    if (argument->error)
        log_info("the driver refused argument %u of a kernel: OpenCL error %d", index,
                 argument->error);
}

cl_int server_kernel_error(const struct entry *kernel)
{
    if (!kernel->real)
        return kernel->error;
    for (cl_uint i = 0; i < kernel->argument_count; i++)
        if (kernel->arguments[i].error)
            return kernel->arguments[i].error;
    return CL_SUCCESS;
}

void server_set_value(struct server *server, const struct msg_set_value *message)
{
    union {
        cl_double16 aligned;
        unsigned char bytes[WIRE_VALUE_MAX];
    } value;
    struct argument *argument = NULL;
    struct entry *kernel = kernels_take_argument(server, message->kernel, message->index,
                                                 1u << ARGUMENT_VALUE, &argument);
    if (!kernel)
        return;
    if (message->value_size == 0 || message->value_size > sizeof(value) ||
        (argument->size && argument->size != message->value_size)) {
        server_wrong(server, "a kernel argument's size is wrong");
        return;
    }
    memcpy(value.bytes, message->value, message->value_size);
    kernels_set_argument(kernel, argument, message->value_size, value.bytes);
}

void server_set_local(struct server *server, const struct msg_set_local *message)
{
    struct argument *argument = NULL;
    struct entry *kernel = kernels_take_argument(server, message->kernel, message->index,
                                                 1u << ARGUMENT_LOCAL, &argument);
    if (kernel)
        kernels_set_argument(kernel, argument, message->size, NULL);
}

void server_set_memory(struct server *server, const struct msg_set_memory *message)
{
    const unsigned objects = 1u << ARGUMENT_BUFFER | 1u << ARGUMENT_IMAGE | 1u << ARGUMENT_OBJECT;
    struct argument *argument = NULL;
    struct entry *kernel =
        kernels_take_argument(server, message->kernel, message->index, objects, &argument);
    const struct entry *memory = NULL;
    if (kernel && message->memory)
        memory = server_find_with(server, message->memory, kernel);
    if (!kernel || (message->memory && !memory))
        return;
    bool image = memory && memory->image;
    if ((argument->kind == ARGUMENT_IMAGE && !image) ||
        (argument->kind == ARGUMENT_BUFFER && image))
        server_wrong(server, "a kernel argument's type is wrong");
    else if (memory && !memory->real)
        argument->error = memory->error;
    else
        kernels_set_argument(kernel, argument, sizeof(cl_mem), memory ? &memory->real : NULL);
}

void server_set_sampler(struct server *server, const struct msg_set_sampler *message)
{
    struct argument *argument = NULL;
    struct entry *kernel = kernels_take_argument(server, message->kernel, message->index,
                                                 1u << ARGUMENT_SAMPLER, &argument);
    const struct entry *sampler =
        kernel ? server_find_with(server, message->sampler, kernel) : NULL;
    if (sampler && !sampler->real)
        argument->error = sampler->error;
    else if (sampler)
        kernels_set_argument(kernel, argument, sizeof(cl_sampler), &sampler->real);
}

/* ---- queries ---- */

/* The client treats the group size as a limit. */
static cl_int kernels_describe_group(const struct entry *kernel, const struct device *on,
                                     struct pack *pack)
{
    const cl_icd_dispatch *cl = kernel->cl;
    cl_device_id device = on->id;
    struct msg_kernel_group row = {0};
    cl_int error = cl->clGetKernelWorkGroupInfo(kernel->real, device, CL_KERNEL_WORK_GROUP_SIZE,
                                                sizeof(row.size), &row.size, NULL);
    if (error)
        return error;
    row.size = device_group_size(on, row.size);
    cl->clGetKernelWorkGroupInfo(kernel->real, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                 sizeof(row.multiple), &row.multiple, NULL);
    cl->clGetKernelWorkGroupInfo(kernel->real, device, CL_KERNEL_LOCAL_MEM_SIZE,
                                 sizeof(row.local_memory), &row.local_memory, NULL);
    cl->clGetKernelWorkGroupInfo(kernel->real, device, CL_KERNEL_PRIVATE_MEM_SIZE,
                                 sizeof(row.private_memory), &row.private_memory, NULL);
    cl->clGetKernelWorkGroupInfo(kernel->real, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                 sizeof(row.compiled), row.compiled, NULL);
    pack_kernel_group(pack, &row);
    return CL_SUCCESS;
}

#define SUB_GROUP_ANSWER_MAX 64
#define SUB_GROUP_INPUT_MAX  (3 * sizeof(size_t))

static cl_int kernels_describe_sub_groups(const struct entry *kernel, cl_device_id device,
                                          const struct msg_get_kernel_group *message,
                                          struct pack *pack)
{
    size_t input[3] = {0}, size = 0;
    unsigned char answer[SUB_GROUP_ANSWER_MAX];
    if (message->input_size > SUB_GROUP_INPUT_MAX || !kernel->cl->clGetKernelSubGroupInfo)
        return CL_INVALID_OPERATION;
    memcpy(input, message->input, message->input_size);
    /* How many bytes a driver writes depends on the query; the rest must be 0. */
    memset(answer, 0, sizeof(answer));
    size_t room =
        message->what == CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT ? sizeof(input) : sizeof(size_t);
    cl_int error = kernel->cl->clGetKernelSubGroupInfo(
        kernel->real, device, message->what, message->input_size,
        message->input_size ? input : NULL, room, answer, &size);
    if (error == CL_SUCCESS)
        pack_bytes(pack, answer, size < room ? size : room);
    return error;
}

void server_get_kernel_group(struct server *server, const struct msg_get_kernel_group *message)
{
    const struct entry *kernel = server_find(server, message->kernel);
    const struct entry *device = kernel ? server_find_with(server, message->device, kernel) : NULL;
    struct pack pack;
    if (!device)
        return;
    pack_init(&pack);
    cl_int error = kernel->error;
    if (kernel->real)
        error =
            message->what
                ? kernels_describe_sub_groups(kernel, device->real, message, &pack)
                : kernels_describe_group(kernel, server->devices[id_place(message->device)], &pack);
    server_reply(server, message->call, error, pack.bytes, error ? 0 : pack.used);
    pack_finish(&pack);
}
