#include <stdlib.h>
#include <string.h>

#include "remote/driver/programs/program.h"
#include "state/base/cleanup.h"

/* Kernels. The server is asked about a kernel once, when the first object of that name is made. */

struct kernel *kernel_get(cl_kernel kernel)
{
    return object_get(kernel, ID_KERNEL);
}

static void kernel_handle_finish(struct handle *handle)
{
    struct kernel *kernel = container_of(handle, struct kernel, base);
    (void)POST(handle->client, release, {.object = handle->id});
    pthread_mutex_lock(&kernel->program->lock);
    kernel->program->kernel_objects--;
    pthread_mutex_unlock(&kernel->program->lock);
    free(kernel->set);
    free(kernel->local);
    pthread_mutex_destroy(&kernel->lock);
    handle_unuse(kernel->program);
}

static const struct handle_class kernel_class = {sizeof(struct kernel), kernel_handle_finish};

void kernel_facts_destroy(struct kernel_facts *facts)
{
    while (facts) {
        struct kernel_facts *next = facts->next;
        for (cl_uint i = 0; facts->arguments && i < facts->count; i++) {
            free(facts->arguments[i].type);
            free(facts->arguments[i].name);
        }
        free(facts->arguments);
        free(facts->groups);
        free(facts->name);
        free(facts->attributes);
        free(facts);
        facts = next;
    }
}

static cl_int kernel_take_arguments(struct kernel_facts *facts, struct unpack *body)
{
    facts->arguments = calloc((size_t)facts->count + 1, sizeof(*facts->arguments));
    for (cl_uint i = 0; facts->arguments && i < facts->count; i++) {
        struct argument_facts *argument = &facts->arguments[i];
        struct msg_kernel_argument row;
        if (!unpack_kernel_argument(body, &row))
            return CL_OUT_OF_RESOURCES;
        argument->address = row.address;
        argument->access = row.access;
        argument->qualifiers = row.qualifiers;
        argument->type = strdup(row.type);
        argument->name = strdup(row.name);
        if (!argument->type || !argument->name)
            return CL_OUT_OF_HOST_MEMORY;
        argument->kind =
            row.kind <= ARGUMENT_LOCAL ? (enum argument_kind)row.kind : ARGUMENT_UNKNOWN;
        argument->size = row.size;
    }
    return facts->arguments ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

static cl_int kernel_take_facts(const struct call *call, const char *name, cl_uint devices,
                                struct kernel_facts **ret_facts)
{
    struct unpack body = {call->content, call->content + call->size, false};
    struct msg_kernel_info info;
    struct kernel_facts *facts = calloc(1, sizeof(*facts));
    /* Each argument takes at least one byte of the reply: larger counts are wrong. */
    if (!facts || !unpack_kernel_info(&body, &info) || info.arguments > call->size) {
        free(facts);
        return CL_OUT_OF_RESOURCES;
    }
    facts->name = strdup(name);
    facts->attributes = strdup(info.attributes);
    facts->groups = calloc(devices, sizeof(*facts->groups));
    facts->count = info.arguments;
    cl_int error = kernel_take_arguments(facts, &body);
    if (error == CL_SUCCESS && (!facts->name || !facts->attributes || !facts->groups))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error) {
        if (!facts->arguments)
            facts->count = 0;
        kernel_facts_destroy(facts);
    } else {
        *ret_facts = facts;
    }
    return error;
}

/* The facts of the kernel of that name, or NULL. Under the program's lock. */
static struct kernel_facts *kernel_find_facts(const struct program *program, const char *name)
{
    struct kernel_facts *facts = program->facts;
    while (facts && strcmp(facts->name, name) != 0)
        facts = facts->next;
    return facts;
}

/* Ask what a device says of a kernel. The caller waits for @ret_call. */
static cl_int kernel_ask_later(struct kernel *kernel, const struct device_object *device,
                               uint32_t what, const void *input, size_t input_size,
                               struct call **ret_call)
{
    struct call *call = call_create(kernel->base.client);
    if (!call)
        return client_state(kernel->base.client) ? CL_DEVICE_NOT_AVAILABLE : CL_OUT_OF_HOST_MEMORY;
    cl_int error = POST(kernel->base.client, get_kernel_group,
                        {.kernel = handle_id(kernel),
                         .device = handle_id(device),
                         .call = handle_id(call),
                         .what = what,
                         .input = input,
                         .input_size = input_size});
    return created_if(call, error, ret_call);
}

static cl_int kernel_ask(struct kernel *kernel, const struct device_object *device, uint32_t what,
                         const void *input, size_t input_size, struct call **ret_call)
{
    struct call *call = NULL;
    cl_int error = kernel_ask_later(kernel, device, what, input, input_size, &call);
    if (error)
        return error;
    error = call_wait(call, CL_SUCCESS);
    return created_if(call, error, ret_call);
}

/* False: it is no answer. */
static bool kernel_take_group(const struct call *call, struct msg_kernel_group *ret_group)
{
    struct unpack body = {call->content, call->content + call->size, false};
    struct msg_kernel_group group;
    if (!unpack_kernel_group(&body, &group) || group.size == 0)
        return false;
    *ret_group = group;
    return true;
}

static struct kernel *kernel_create_object(struct program *program)
{
    struct kernel *kernel = handle_create(program->base.client, ID_KERNEL, &kernel_class);
    if (!kernel)
        return NULL;
    pthread_mutex_init(&kernel->lock, NULL);
    kernel->program = program;
    object_hold(program);
    pthread_mutex_lock(&program->lock);
    program->kernel_objects++;
    pthread_mutex_unlock(&program->lock);
    return kernel;
}

/* The two questions about a kernel that is being made: its arguments, and what its first device
 * says of it, which programs ask for before a launch. */
struct inquiry {
    struct kernel *kernel;
    struct call *info, *group; /* NULL: not asked. */
};

static void kernel_inquiry_finish(const struct inquiry *inquiry)
{
    handle_release(inquiry->info);
    handle_release(inquiry->group);
}

static cl_int kernel_inquiry_post(struct kernel *kernel, const char *name, bool asks,
                                  struct inquiry *ret_inquiry)
{
    struct client *client = kernel->base.client;
    const struct context *context = kernel->program->context;
    struct inquiry inquiry = {kernel, asks ? call_create(client) : NULL, NULL};
    if (asks && !inquiry.info)
        return client_state(client) ? CL_DEVICE_NOT_AVAILABLE : CL_OUT_OF_HOST_MEMORY;
    cl_int error = POST(client, create_kernel,
                        {.kernel = handle_id(kernel),
                         .program = handle_id(kernel->program),
                         .call = handle_id(inquiry.info),
                         .name = name});
    if (error == CL_SUCCESS && asks)
        (void)kernel_ask_later(kernel, context->devices[0], 0, NULL, 0, &inquiry.group);
    if (error)
        kernel_inquiry_finish(&inquiry);
    else
        *ret_inquiry = inquiry;
    return error;
}

/* Wait for both answers, and keep them with the program. */
static cl_int kernel_inquiry_take(const struct inquiry *inquiry, const char *name)
{
    struct program *program = inquiry->kernel->program;
    struct kernel_facts *facts = NULL;
    cl_int error = call_wait(inquiry->info, CL_SUCCESS);
    if (error == CL_SUCCESS)
        error = kernel_take_facts(inquiry->info, name, program->context->device_count, &facts);
    if (error)
        return error;
    if (inquiry->group && call_wait(inquiry->group, CL_SUCCESS) == CL_SUCCESS)
        (void)kernel_take_group(inquiry->group, &facts->groups[0]);
    pthread_mutex_lock(&program->lock);
    inquiry->kernel->facts = kernel_find_facts(program, name);
    if (!inquiry->kernel->facts) {
        facts->next = program->facts;
        program->facts = inquiry->kernel->facts = facts;
        facts = NULL;
    }
    pthread_mutex_unlock(&program->lock);
    kernel_facts_destroy(facts); /* Another thread's are there. */
    return CL_SUCCESS;
}

/* A program that makes one kernel usually makes the others next, and would wait for a round trip
 * each time. So all kernels are asked about at once, by kernel objects that are made for the
 * questions alone. Not for programs with more kernels: of those, few are used. */
#define TOGETHER_MOST 64

struct together {
    struct inquiry inquiries[TOGETHER_MOST];
    const char *names[TOGETHER_MOST];
    unsigned count;
    char *text; /* What the names are in. */
};

static void kernel_together_post(struct program *program, const char *but,
                                 struct together *together)
{
    pthread_mutex_lock(&program->lock);
    together->text =
        program->names && program->kernels <= TOGETHER_MOST ? strdup(program->names) : NULL;
    pthread_mutex_unlock(&program->lock);
    char *rest = together->text;
    for (const char *name; (name = strsep(&rest, ";")) && together->count < TOGETHER_MOST;) {
        pthread_mutex_lock(&program->lock);
        bool known = kernel_find_facts(program, name) != NULL;
        pthread_mutex_unlock(&program->lock);
        struct kernel *kernel =
            known || !*name || strcmp(name, but) == 0 ? NULL : kernel_create_object(program);
        if (!kernel)
            continue;
        together->names[together->count] = name;
        if (kernel_inquiry_post(kernel, name, true, &together->inquiries[together->count]) ==
            CL_SUCCESS)
            together->count++;
        else
            handle_release(kernel);
    }
}

static void kernel_together_take(struct together *together)
{
    for (unsigned i = 0; i < together->count; i++) {
        (void)kernel_inquiry_take(&together->inquiries[i], together->names[i]);
        kernel_inquiry_finish(&together->inquiries[i]);
        handle_release(together->inquiries[i].kernel);
    }
    free(together->text);
}

/* Make the kernel at the server, and ask about it unless its facts are known. */
static cl_int kernel_describe_arguments(struct kernel *kernel, const char *name)
{
    struct program *program = kernel->program;
    struct inquiry inquiry = {0};
    pthread_mutex_lock(&program->lock);
    kernel->facts = kernel_find_facts(program, name);
    pthread_mutex_unlock(&program->lock);
    bool asks = !kernel->facts;
    cl_int error = kernel_inquiry_post(kernel, name, asks, &inquiry);
    if (error || !asks)
        return error;
    struct together together = {.count = 0};
    kernel_together_post(program, name, &together);
    error = kernel_inquiry_take(&inquiry, name);
    kernel_inquiry_finish(&inquiry);
    kernel_together_take(&together);
    return error;
}

static cl_int kernel_make_room(struct kernel *kernel)
{
    kernel->set = calloc((size_t)kernel->facts->count + 1, sizeof(*kernel->set));
    kernel->local = calloc((size_t)kernel->facts->count + 1, sizeof(*kernel->local));
    return kernel->set && kernel->local ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

cl_int kernel_create(struct program *program, const char *name, struct kernel **ret_kernel)
{
    if (!name)
        return CL_INVALID_VALUE;
    if (!program_has_kernel(program, name))
        return program_is_built(program) ? CL_INVALID_KERNEL_NAME : CL_INVALID_PROGRAM_EXECUTABLE;
    struct kernel *kernel = kernel_create_object(program);
    if (!kernel)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = kernel_describe_arguments(kernel, name);
    if (error == CL_SUCCESS)
        error = kernel_make_room(kernel);
    return created_if(kernel, error, ret_kernel);
}

cl_int kernel_clone(struct kernel *source, struct kernel **ret_kernel)
{
    struct kernel *kernel = kernel_create_object(source->program);
    if (!kernel)
        return CL_OUT_OF_HOST_MEMORY;
    kernel->facts = source->facts;
    cl_int error = kernel_make_room(kernel);
    if (error == CL_SUCCESS) {
        pthread_mutex_lock(&source->lock);
        memcpy(kernel->set, source->set, kernel->facts->count * sizeof(*kernel->set));
        memcpy(kernel->local, source->local, kernel->facts->count * sizeof(*kernel->local));
        error = POST(kernel->base.client, clone_kernel,
                     {.kernel = handle_id(kernel), .source = handle_id(source)});
        pthread_mutex_unlock(&source->lock);
    }
    return created_if(kernel, error, ret_kernel);
}

/* ---- arguments ---- */

static cl_int kernel_set_object(struct kernel *kernel, cl_uint index, size_t size,
                                const void *value)
{
    const struct argument_facts *facts = &kernel->facts->arguments[index];
    cl_mem handle = NULL;
    if (size != sizeof(handle))
        return CL_INVALID_ARG_SIZE;
    if (!value && facts->kind == ARGUMENT_IMAGE)
        return CL_INVALID_ARG_VALUE;
    if (value)
        memcpy(&handle, value, sizeof(handle));
    const struct memory *memory = memory_get(handle);
    if ((handle || facts->kind == ARGUMENT_IMAGE) &&
        (!memory || memory->context != kernel->program->context))
        return CL_INVALID_MEM_OBJECT;
    cl_int error = memory ? argument_check_memory(facts->kind, facts->access, memory->image != NULL,
                                                  memory->flags)
                          : CL_SUCCESS;
    if (error)
        return error;
    return POST(kernel->base.client, set_memory,
                {.kernel = handle_id(kernel), .index = index, .memory = handle_id(memory)});
}

static cl_int kernel_set_sampler(struct kernel *kernel, cl_uint index, size_t size,
                                 const void *value)
{
    cl_sampler handle = NULL;
    if (size != sizeof(handle))
        return CL_INVALID_ARG_SIZE;
    if (!value)
        return CL_INVALID_ARG_VALUE;
    memcpy(&handle, value, sizeof(handle));
    const struct sampler *sampler = object_get(handle, ID_SAMPLER);
    if (!sampler || sampler->context != kernel->program->context)
        return CL_INVALID_SAMPLER;
    return POST(kernel->base.client, set_sampler,
                {.kernel = handle_id(kernel), .index = index, .sampler = handle_id(sampler)});
}

static cl_int kernel_set_value(struct kernel *kernel, cl_uint index, size_t size, const void *value)
{
    size_t own = kernel->facts->arguments[index].size;
    if (!value)
        return CL_INVALID_ARG_VALUE;
    if (size == 0 || size > WIRE_VALUE_MAX || (own && size != own))
        return CL_INVALID_ARG_SIZE;
    return POST(kernel->base.client, set_value,
                {.kernel = handle_id(kernel), .index = index, .value = value, .value_size = size});
}

static cl_int kernel_set_local(struct kernel *kernel, cl_uint index, size_t size, const void *value)
{
    if (value)
        return CL_INVALID_ARG_VALUE;
    if (size == 0)
        return CL_INVALID_ARG_SIZE;
    kernel->local[index] = size;
    return POST(kernel->base.client, set_local,
                {.kernel = handle_id(kernel), .index = index, .size = size});
}

/* The kind of the argument is not known: tell it by what is given. */
static cl_int kernel_set_unknown(struct kernel *kernel, cl_uint index, size_t size,
                                 const void *value)
{
    void *handle = NULL;
    if (!value)
        return size == sizeof(cl_mem) ? kernel_set_object(kernel, index, size, NULL)
                                      : kernel_set_local(kernel, index, size, NULL);
    if (size == sizeof(handle))
        memcpy(&handle, value, sizeof(handle));
    if (object_get(handle, ID_MEMORY))
        return kernel_set_object(kernel, index, size, value);
    if (object_get(handle, ID_SAMPLER))
        return kernel_set_sampler(kernel, index, size, value);
    return kernel_set_value(kernel, index, size, value);
}

static cl_int kernel_set_argument(struct kernel *kernel, cl_uint index, size_t size,
                                  const void *value)
{
    switch (kernel->facts->arguments[index].kind) {
    case ARGUMENT_VALUE:
        return kernel_set_value(kernel, index, size, value);
    case ARGUMENT_BUFFER:
    case ARGUMENT_IMAGE:
    case ARGUMENT_OBJECT:
        return kernel_set_object(kernel, index, size, value);
    case ARGUMENT_SAMPLER:
        return kernel_set_sampler(kernel, index, size, value);
    case ARGUMENT_LOCAL:
        return kernel_set_local(kernel, index, size, value);
    default:
        return kernel_set_unknown(kernel, index, size, value);
    }
}

cl_int kernel_set_arg(struct kernel *k, cl_uint arg_index, size_t arg_size, const void *arg_value)
{
    if (arg_index >= k->facts->count)
        return CL_INVALID_ARG_INDEX;
    pthread_mutex_lock(&k->lock);
    cl_int error = kernel_set_argument(k, arg_index, arg_size, arg_value);
    if (error == CL_SUCCESS)
        k->set[arg_index] = true;
    pthread_mutex_unlock(&k->lock);
    return error;
}

/* ---- answers ---- */

cl_int kernel_check_arg_info(const struct kernel *kernel, cl_uint index)
{
    if (index >= kernel->facts->count)
        return CL_INVALID_ARG_INDEX;
    return kernel->facts->arguments[index].address ? CL_SUCCESS : CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}

/* The device behind a handle; NULL stands for the only one. */
static struct device_object *kernel_which_device(const struct kernel *kernel, cl_device_id device)
{
    struct context *context = kernel->program->context;
    struct device_object *d = device ? device_get(device) : NULL;
    if (!device && context->device_count == 1)
        return context->devices[0];
    return context_has(context, d) ? d : NULL;
}

cl_int kernel_group(struct kernel *kernel, const struct device_object *device,
                    struct msg_kernel_group *ret_group)
{
    struct program *program = kernel->program;
    struct msg_kernel_group group;
    struct call *call = NULL;
    cl_uint at = 0;
    while (program->context->devices[at] != device)
        at++;
    pthread_mutex_lock(&program->lock);
    group = kernel->facts->groups[at];
    pthread_mutex_unlock(&program->lock);
    if (group.size == 0) {
        cl_int error = kernel_ask(kernel, device, 0, NULL, 0, &call);
        if (error)
            return error;
        bool good = kernel_take_group(call, &group);
        handle_release(call);
        if (!good)
            return CL_OUT_OF_RESOURCES;
        pthread_mutex_lock(&program->lock);
        kernel->facts->groups[at] = group;
        pthread_mutex_unlock(&program->lock);
    }
    *ret_group = group;
    return CL_SUCCESS;
}

/* Bytes of the local memory arguments that were set. */
static size_t kernel_local_arguments(struct kernel *kernel)
{
    size_t size = 0;
    pthread_mutex_lock(&kernel->lock);
    for (cl_uint i = 0; i < kernel->facts->count; i++)
        size += kernel->local[i];
    pthread_mutex_unlock(&kernel->lock);
    return size;
}

cl_int kernel_answer_group(struct kernel *k, cl_device_id device,
                           cl_kernel_work_group_info param_name, size_t param_value_size,
                           void *param_value, size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    struct msg_kernel_group group;
    const struct device_object *d = kernel_which_device(k, device);
    if (!d)
        return CL_INVALID_DEVICE;
    cl_int error = kernel_group(k, d, &group);
    if (error)
        return error;
    switch (param_name) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return info_size(&request, group.size);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
        return info_bytes(&request, group.compiled, sizeof(group.compiled));
    case CL_KERNEL_LOCAL_MEM_SIZE: {
        /* The answer is that of the kernel object that was asked first, for which some drivers
         * count what was set there. */
        size_t set = kernel_local_arguments(k);
        return info_ulong(&request, group.local_memory + set);
    }
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return info_size(&request, group.multiple);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return info_ulong(&request, group.private_memory);
    default:
        return CL_INVALID_VALUE; /* CL_KERNEL_GLOBAL_WORK_SIZE: of custom devices and built-in
                                    kernels. */
    }
}

static bool kernel_is_sub_group_info(cl_kernel_sub_group_info name)
{
    switch (name) {
    case CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE:
    case CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE:
    case CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT:
    case CL_KERNEL_MAX_NUM_SUB_GROUPS:
    case CL_KERNEL_COMPILE_NUM_SUB_GROUPS:
        return true;
    default:
        return false;
    }
}

cl_int kernel_answer_sub_group(struct kernel *k, cl_device_id device,
                               cl_kernel_sub_group_info param_name, size_t input_value_size,
                               const void *input_value, size_t param_value_size, void *param_value,
                               size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    struct call *call = NULL;
    const struct device_object *d = kernel_which_device(k, device);
    if (!d)
        return CL_INVALID_DEVICE;
    if (!device_number(d, CL_DEVICE_MAX_NUM_SUB_GROUPS))
        return CL_INVALID_OPERATION;
    if (!kernel_is_sub_group_info(param_name) || (input_value_size && !input_value) ||
        input_value_size > 3 * sizeof(size_t))
        return CL_INVALID_VALUE;
    cl_int error = kernel_ask(k, d, param_name, input_value, input_value_size, &call);
    if (error)
        return error;
    /* A smaller buffer asks for fewer dimensions. */
    size_t size = call->size;
    if (param_name == CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT && param_value_size < size)
        size = param_value_size;
    error = info_bytes(&request, call->content, size);
    handle_release(call);
    return error;
}
