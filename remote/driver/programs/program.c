#include <stdlib.h>
#include <string.h>

#include "remote/driver/programs/program.h"
#include "state/base/cleanup.h"

/* Programs: how they are made, and questions about them. */

struct program *program_get(cl_program program)
{
    return object_get(program, ID_PROGRAM);
}

void program_forget_binaries(struct program *program)
{
    for (cl_uint i = 0; program->binaries && i < program->device_count; i++)
        free(program->binaries[i]);
    free(program->binaries);
    free(program->binary_sizes);
    program->binaries = NULL;
    program->binary_sizes = NULL;
}

static void program_handle_finish(struct handle *handle)
{
    struct program *program = container_of(handle, struct program, base);
    (void)POST(handle->client, release, {.object = handle->id});
    destructor_run_later(&program->destructors);
    program_forget_binaries(program);
    for (cl_uint i = 0; program->builds && i < program->device_count; i++) {
        free(program->builds[i].options);
        free(program->builds[i].log);
    }
    kernel_facts_destroy(program->facts);
    free(program->builds);
    free(program->devices);
    free(program->source);
    free(program->il);
    free(program->names);
    pthread_mutex_destroy(&program->lock);
    handle_unuse(program->context);
}

static const struct handle_class program_class = {sizeof(struct program), program_handle_finish};

struct program *program_make(struct context *context, cl_uint count, const cl_device_id *devices)
{
    struct program *program = handle_create(context->base.client, ID_PROGRAM, &program_class);
    if (!program)
        return NULL;
    pthread_mutex_init(&program->lock, NULL);
    program->context = context;
    object_hold(context);
    cl_uint all = count ? count : context->device_count;
    program->devices = calloc(all, sizeof(struct device_object *));
    program->builds = calloc(all, sizeof(*program->builds));
    if (!program->devices || !program->builds) {
        handle_release(program);
        return NULL;
    }
    program->device_count = all;
    for (cl_uint i = 0; i < all; i++) {
        program->devices[i] = count ? device_get(devices[i]) : context->devices[i];
        program->builds[i].status = CL_BUILD_NONE;
    }
    return program;
}

int program_device_index(const struct program *program, const struct device_object *device)
{
    for (cl_uint i = 0; device && i < program->device_count; i++)
        if (program->devices[i] == device)
            return (int)i;
    return -1;
}

bool program_is_built(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    bool built = program->built;
    pthread_mutex_unlock(&program->lock);
    return built;
}

bool program_has_kernel(struct program *program, const char *name)
{
    bool found = false;
    size_t length = strlen(name);
    pthread_mutex_lock(&program->lock);
    const char *at = program->built && program->names ? program->names : "";
    while (!found && *at) {
        size_t one = strcspn(at, ";");
        found = one == length && !memcmp(at, name, length);
        at += one + (at[one] == ';');
    }
    pthread_mutex_unlock(&program->lock);
    return found && length;
}

bool program_takes_uneven(struct program *program, const struct device_object *device)
{
    bool takes = true;
    int index = program_device_index(program, device);
    pthread_mutex_lock(&program->lock);
    const char *options = index >= 0 ? program->builds[index].options : NULL;
    if (program->source) {
        /* Without -cl-std the source is OpenCL C 1.2 (5.8.6.4), which has only uniform groups. */
        takes = options_standard(options) >= CL_MAKE_VERSION(2, 0, 0) &&
                !strstr(options, "-cl-uniform-work-group-size");
    }
    pthread_mutex_unlock(&program->lock);
    return takes;
}

/* ---- making ---- */

cl_int program_create_with_source(struct context *c, cl_uint count, const char **strings,
                                  const size_t *lengths, struct program **ret_program)
{
    size_t size = 0;
    if (count == 0 || !strings)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        if (!strings[i])
            return CL_INVALID_VALUE;
        size += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
    }
    struct program *program = program_make(c, 0, NULL);
    char *source = malloc(size + 1), *at = source;
    if (!program || !source) {
        free(source);
        return created_if(program, CL_OUT_OF_HOST_MEMORY, ret_program);
    }
    for (cl_uint i = 0; i < count; i++) {
        size_t length = lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
        memcpy(at, strings[i], length);
        at += length;
    }
    *at = '\0';
    program->source = source;
    program->source_size = size + 1;
    cl_int error = POST(c->base.client, create_source,
                        {.program = handle_id(program),
                         .context = handle_id(c),
                         .source = source,
                         .source_size = size});
    return created_if(program, error, ret_program);
}

cl_int program_create_with_il(struct context *c, const void *il, size_t length,
                              struct program **ret_program)
{
    bool offered = false;
    for (cl_uint i = 0; i < c->device_count; i++)
        offered =
            offered || *devinfo_string(&c->devices[i]->answers->info, CL_DEVICE_IL_VERSION) != '\0';
    if (!offered)
        return CL_INVALID_OPERATION;
    if (!il || length == 0)
        return CL_INVALID_VALUE;
    struct program *program = program_make(c, 0, NULL);
    if (!program)
        return CL_OUT_OF_HOST_MEMORY;
    program->il = malloc(length);
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (program->il) {
        memcpy(program->il, il, length);
        program->il_size = length;
        error = POST(
            c->base.client, create_il,
            {.program = handle_id(program), .context = handle_id(c), .il = il, .il_size = length});
    }
    return created_if(program, error, ret_program);
}

cl_int program_check_devices(const struct context *context, cl_uint count,
                             const cl_device_id *devices)
{
    for (cl_uint i = 0; i < count; i++) {
        if (!context_has(context, device_get(devices[i])))
            return CL_INVALID_DEVICE;
        for (cl_uint j = 0; j < i; j++)
            if (devices[j] == devices[i])
                return CL_INVALID_DEVICE;
    }
    return CL_SUCCESS;
}

/* Send the binaries, one behind the other, with their sizes. */
static cl_int program_send_binaries(struct program *program, struct call *call,
                                    const size_t *lengths, const unsigned char **binaries)
{
    size_t size = 0;
    cl_uint count = program->device_count;
    CLEANUP(cleanup_free) uint64_t *ids = calloc(count, sizeof(*ids));
    CLEANUP(cleanup_free) uint64_t *sizes = calloc(count, sizeof(*sizes));
    for (cl_uint i = 0; ids && sizes && i < count; i++) {
        ids[i] = handle_id(program->devices[i]);
        sizes[i] = lengths[i];
        size += lengths[i];
    }
    CLEANUP(cleanup_free) unsigned char *all = malloc(size + 1);
    unsigned char *at = all;
    if (!ids || !sizes || !all)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count; i++) {
        memcpy(at, binaries[i], lengths[i]);
        at += lengths[i];
    }
    return call_wait(call, POST(program->base.client, create_binary,
                                {.program = handle_id(program),
                                 .context = handle_id(program->context),
                                 .call = handle_id(call),
                                 .devices = ids,
                                 .devices_count = count,
                                 .sizes = sizes,
                                 .sizes_size = (uint32_t)(count * sizeof(*sizes)),
                                 .binaries = all,
                                 .binaries_size = size}));
}

/* Make the program of a binary that the server keeps. BINARY_LACKING: it does not have it. */
static cl_int program_name_binary(struct program *program, struct call *call,
                                  const struct binary_name *name)
{
    return call_wait(call, POST(program->base.client, create_kept,
                                {.program = handle_id(program),
                                 .context = handle_id(program->context),
                                 .call = handle_id(call),
                                 .device = handle_id(program->devices[0]),
                                 .name = name,
                                 .name_size = sizeof(*name)}));
}

/* A call answers once. */
static bool program_renew(struct call **call)
{
    struct client *client = (*call)->base.client;
    handle_release(*call);
    *call = call_create(client);
    return *call;
}

/* A binary that servers keep is sent only if this server lacks it and no other server gives it. */
static cl_int program_load_kept(struct program *program, struct call **call, const size_t *lengths,
                                const unsigned char **binaries)
{
    struct client *client = program->base.client;
    struct binary_name name;
    content_hash_of(binaries[0], lengths[0], name.bytes);
    cl_int error = program_name_binary(program, *call, &name);
    bool there = error == BINARY_LACKING && binaries_bring(client, &name, lengths[0]);
    if (error == BINARY_LACKING && !there) {
        binaries_send(client, &name, binaries[0], lengths[0]);
        there = true;
    }
    if (there)
        error = program_renew(call) ? program_name_binary(program, *call, &name)
                                    : CL_DEVICE_NOT_AVAILABLE;
    if (error == BINARY_LACKING)
        error = program_renew(call) ? program_send_binaries(program, *call, lengths, binaries)
                                    : CL_DEVICE_NOT_AVAILABLE;
    binaries_learn(client, &name, error == CL_SUCCESS);
    return error;
}

static cl_int program_load_binaries(struct program *program, struct call **call,
                                    const size_t *lengths, const unsigned char **binaries)
{
    if (program->device_count == 1 && binaries_are_kept(program->base.client, lengths[0]))
        return program_load_kept(program, call, lengths, binaries);
    return program_send_binaries(program, *call, lengths, binaries);
}

cl_int program_create_with_binary(struct context *c, cl_uint num_devices,
                                  const cl_device_id *device_list, const size_t *lengths,
                                  const unsigned char **binaries, cl_int *binary_status,
                                  struct program **ret_program)
{
    if (num_devices == 0 || !device_list || !lengths || !binaries)
        return CL_INVALID_VALUE;
    cl_int error = program_check_devices(c, num_devices, device_list);
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_devices; i++)
        if (lengths[i] == 0 || !binaries[i]) {
            error = CL_INVALID_VALUE;
            if (binary_status)
                binary_status[i] = CL_INVALID_VALUE;
        }
    if (error)
        return error;
    struct call *call = call_create(c->base.client);
    struct program *program = call ? program_make(c, num_devices, device_list) : NULL;
    if (!program) {
        handle_release(call);
        error = client_state(c->base.client);
        return error ? error : CL_OUT_OF_HOST_MEMORY;
    }
    error = program_load_binaries(program, &call, lengths, binaries);
    for (cl_uint i = 0; binary_status && i < num_devices; i++) {
        binary_status[i] = error ? CL_INVALID_BINARY : CL_SUCCESS;
        if (call && call->size == num_devices * sizeof(cl_int))
            memcpy(&binary_status[i], call->content + i * sizeof(cl_int), sizeof(cl_int));
    }
    handle_release(call);
    return created_if(program, error, ret_program);
}

cl_int program_create_built_in(struct context *c, cl_uint num_devices,
                               const cl_device_id *device_list, const char *kernel_names,
                               struct program **ret_program)
{
    (void)ret_program;
    if (num_devices == 0 || !device_list || !kernel_names)
        return CL_INVALID_VALUE;
    cl_int error = program_check_devices(c, num_devices, device_list);
    return error ? error : CL_INVALID_VALUE; /* There are none. */
}

cl_int program_set_constant(struct program *p, cl_uint spec_id, size_t spec_size,
                            const void *spec_value)
{
    if (!p->il)
        return CL_INVALID_PROGRAM;
    if (!spec_value || spec_size == 0 || spec_size > 8)
        return CL_INVALID_VALUE;
    return POST(p->base.client, set_constant,
                {.program = handle_id(p),
                 .constant = spec_id,
                 .value = spec_value,
                 .value_size = spec_size});
}

/* ---- answers ---- */

/* Asked for once: binaries do not change until the next build. */
static cl_int program_fetch_binaries(struct program *program)
{
    struct call *call = call_create(program->base.client);
    if (!call)
        return client_state(program->base.client) ? CL_DEVICE_NOT_AVAILABLE : CL_OUT_OF_HOST_MEMORY;
    cl_int error = call_wait(call, POST(program->base.client, get_binaries,
                                        {.program = handle_id(program), .call = handle_id(call)}));
    struct unpack body = {call->content, call->content + call->size, false};
    pthread_mutex_lock(&program->lock);
    program_forget_binaries(program);
    program->binary_sizes = calloc(program->device_count, sizeof(*program->binary_sizes));
    program->binaries = calloc(program->device_count, sizeof(*program->binaries));
    if (!program->binary_sizes || !program->binaries)
        error = CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; error == CL_SUCCESS && i < program->device_count; i++) {
        struct msg_binary row;
        const void *bytes = NULL;
        if (unpack_binary(&body, &row))
            bytes = unpack_bytes(&body, row.size);
        program->binaries[i] = bytes ? malloc(row.size + 1) : NULL;
        if (!program->binaries[i]) {
            error = CL_OUT_OF_RESOURCES;
            break;
        }
        memcpy(program->binaries[i], bytes, row.size);
        program->binary_sizes[i] = row.size;
    }
    if (error)
        program_forget_binaries(program);
    pthread_mutex_unlock(&program->lock);
    handle_release(call);
    return error;
}

/* After success the program's lock is held, and its binaries are known. */
static cl_int program_lock_binaries(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    while (!program->binary_sizes) {
        pthread_mutex_unlock(&program->lock);
        cl_int error = program_fetch_binaries(program);
        if (error)
            return error;
        pthread_mutex_lock(&program->lock);
    }
    return CL_SUCCESS;
}

cl_int program_answer_binary_sizes(struct program *program, const struct info_request *request)
{
    cl_int error = program_lock_binaries(program);
    if (error)
        return error;
    error = info_bytes(request, program->binary_sizes, program->device_count * sizeof(size_t));
    pthread_mutex_unlock(&program->lock);
    return error;
}

cl_int program_answer_binaries(struct program *program, const struct info_request *request)
{
    size_t size = program->device_count * sizeof(unsigned char *);
    unsigned char **targets = request->value;
    if (targets && request->size < size)
        return CL_INVALID_VALUE;
    cl_int error = program_lock_binaries(program);
    if (error)
        return error;
    for (cl_uint i = 0; targets && i < program->device_count; i++)
        if (targets[i])
            memcpy(targets[i], program->binaries[i], program->binary_sizes[i]);
    pthread_mutex_unlock(&program->lock);
    if (request->ret_size)
        *request->ret_size = size;
    return CL_SUCCESS;
}

cl_int program_answer_kernels(struct program *program, cl_program_info name,
                              const struct info_request *request)
{
    cl_int error = CL_INVALID_PROGRAM_EXECUTABLE;
    pthread_mutex_lock(&program->lock);
    if (program->built)
        error = name == CL_PROGRAM_NUM_KERNELS
                    ? info_size(request, program->kernels)
                    : info_text(request, program->names ? program->names : "");
    pthread_mutex_unlock(&program->lock);
    return error;
}

cl_int program_answer_build(struct program *p, cl_device_id device,
                            cl_program_build_info param_name, size_t param_value_size,
                            void *param_value, size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    cl_int error;
    int index = program_device_index(p, device_get(device));
    if (index < 0)
        return CL_INVALID_DEVICE;
    pthread_mutex_lock(&p->lock);
    const struct build_state *state = &p->builds[index];
    switch (param_name) {
    case CL_PROGRAM_BUILD_STATUS:
        error = info_bytes(&request, &state->status, sizeof(state->status));
        break;
    case CL_PROGRAM_BUILD_OPTIONS:
        error = info_text(&request, state->options ? state->options : "");
        break;
    case CL_PROGRAM_BUILD_LOG:
        error = info_text(&request, state->log ? state->log : "");
        break;
    case CL_PROGRAM_BINARY_TYPE:
        error = info_uint(&request, state->binary_type);
        break;
    case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
        error = info_size(&request, state->globals);
        break;
    default:
        error = CL_INVALID_VALUE;
    }
    pthread_mutex_unlock(&p->lock);
    return error;
}

cl_int program_set_release(struct program *program,
                           void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    return object_add_destructor(&program->destructors, (void (*)(void))pfn_notify, program,
                                 user_data);
}
