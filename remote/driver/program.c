#include <stdlib.h>
#include <string.h>

#include "remote/driver/kernel.h"
#include "remote/driver/remote.h"

/* Programs and their builds. */

typedef void(CL_CALLBACK *build_notify)(cl_program, void *);

struct program *program_get(cl_program program)
{
    return handle_get(program, ID_PROGRAM);
}

static void forget_binaries(struct program *program)
{
    for (cl_uint i = 0; program->binaries && i < program->device_count; i++)
        free(program->binaries[i]);
    free(program->binaries);
    free(program->binary_sizes);
    program->binaries = NULL;
    program->binary_sizes = NULL;
}

static void program_finish(struct object *object)
{
    struct program *program = container_of(object, struct program, base);
    (void)POST(object->client, release, {.object = object->id});
    endings_run(program->endings);
    forget_binaries(program);
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

static const struct object_class program_class = {sizeof(struct program), program_finish};

/* For these devices, or all of the context's. */
static struct program *program_create(struct context *context, cl_uint count,
                                      const cl_device_id *devices)
{
    struct program *program = handle_create(context->base.client, ID_PROGRAM, &program_class);
    if (!program)
        return NULL;
    pthread_mutex_init(&program->lock, NULL);
    program->context = context;
    handle_use(context);
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

static int device_index(const struct program *program, const struct device_object *device)
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
    int index = device_index(program, device);
    pthread_mutex_lock(&program->lock);
    const char *options = index >= 0 ? program->builds[index].options : NULL;
    if (program->source) {
        /* Without -cl-std, OpenCL C 1.2 is compiled (5.8.6.4), which has none of that. */
        const char *std = options ? strstr(options, "-cl-std=CL") : NULL;
        takes = std && std[strlen("-cl-std=CL")] >= '2' &&
                !strstr(options, "-cl-uniform-work-group-size");
    }
    pthread_mutex_unlock(&program->lock);
    return takes;
}

/* ---- making ---- */

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings,
                                     const size_t *lengths, cl_int *errcode_ret)
{
    struct context *c = context_get(context);
    size_t size = 0;
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    if (count == 0 || !strings)
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    for (cl_uint i = 0; i < count; i++) {
        if (!strings[i])
            return created(NULL, CL_INVALID_VALUE, errcode_ret);
        size += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
    }
    struct program *program = program_create(c, 0, NULL);
    char *source = malloc(size + 1), *at = source;
    if (!program || !source) {
        free(source);
        return created_if(program, CL_OUT_OF_HOST_MEMORY, errcode_ret);
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
    return created_if(program, error, errcode_ret);
}

cl_program clCreateProgramWithIL(cl_context context, const void *il, size_t length,
                                 cl_int *errcode_ret)
{
    struct context *c = context_get(context);
    bool offered = false;
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    for (cl_uint i = 0; i < c->device_count; i++)
        offered =
            offered || *devinfo_string(&c->devices[i]->answers->info, CL_DEVICE_IL_VERSION) != '\0';
    if (!offered)
        return created(NULL, CL_INVALID_OPERATION, errcode_ret);
    if (!il || length == 0)
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    struct program *program = program_create(c, 0, NULL);
    if (!program)
        return created(NULL, CL_OUT_OF_HOST_MEMORY, errcode_ret);
    program->il = malloc(length);
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (program->il) {
        memcpy(program->il, il, length);
        program->il_size = length;
        error = POST(
            c->base.client, create_il,
            {.program = handle_id(program), .context = handle_id(c), .il = il, .il_size = length});
    }
    return created_if(program, error, errcode_ret);
}

static cl_int check_devices(const struct context *context, cl_uint count,
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

/* Binaries one behind the other, with their sizes. */
static cl_int post_binaries(struct program *program, struct call *call, const size_t *lengths,
                            const unsigned char **binaries)
{
    size_t size = 0;
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    cl_uint count = program->device_count;
    uint64_t *ids = calloc(count, sizeof(*ids)), *sizes = calloc(count, sizeof(*sizes));
    for (cl_uint i = 0; ids && sizes && i < count; i++) {
        ids[i] = handle_id(program->devices[i]);
        sizes[i] = lengths[i];
        size += lengths[i];
    }
    unsigned char *all = malloc(size + 1), *at = all;
    if (ids && sizes && all) {
        for (cl_uint i = 0; i < count; i++) {
            memcpy(at, binaries[i], lengths[i]);
            at += lengths[i];
        }
        error = call_wait(call, POST(program->base.client, create_binary,
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
    free(ids);
    free(sizes);
    free(all);
    return error;
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint num_devices,
                                     const cl_device_id *device_list, const size_t *lengths,
                                     const unsigned char **binaries, cl_int *binary_status,
                                     cl_int *errcode_ret)
{
    struct context *c = context_get(context);
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    if (num_devices == 0 || !device_list || !lengths || !binaries)
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    cl_int error = check_devices(c, num_devices, device_list);
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_devices; i++)
        if (lengths[i] == 0 || !binaries[i]) {
            error = CL_INVALID_VALUE;
            if (binary_status)
                binary_status[i] = CL_INVALID_VALUE;
        }
    if (error)
        return created(NULL, error, errcode_ret);
    struct call *call = call_create(c->base.client);
    struct program *program = call ? program_create(c, num_devices, device_list) : NULL;
    if (!program) {
        if (call)
            handle_release(call);
        error = client_state(c->base.client);
        return created(NULL, error ? error : CL_OUT_OF_HOST_MEMORY, errcode_ret);
    }
    error = post_binaries(program, call, lengths, binaries);
    for (cl_uint i = 0; binary_status && i < num_devices; i++) {
        binary_status[i] = error ? CL_INVALID_BINARY : CL_SUCCESS;
        if (call->size == num_devices * sizeof(cl_int))
            memcpy(&binary_status[i], call->content + i * sizeof(cl_int), sizeof(cl_int));
    }
    handle_release(call);
    return created_if(program, error, errcode_ret);
}

cl_program clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
                                             const cl_device_id *device_list,
                                             const char *kernel_names, cl_int *errcode_ret)
{
    struct context *c = context_get(context);
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    if (num_devices == 0 || !device_list || !kernel_names)
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    cl_int error = check_devices(c, num_devices, device_list);
    return created(NULL, error ? error : CL_INVALID_VALUE, errcode_ret); /* There are none. */
}

cl_int clSetProgramSpecializationConstant(cl_program program, cl_uint spec_id, size_t spec_size,
                                          const void *spec_value)
{
    struct program *p = program_get(program);
    if (!p || !p->il)
        return CL_INVALID_PROGRAM;
    if (!spec_value || spec_size == 0 || spec_size > 8)
        return CL_INVALID_VALUE;
    return POST(p->base.client, set_constant,
                {.program = handle_id(p),
                 .constant = spec_id,
                 .value = spec_value,
                 .value_size = spec_size});
}

/* ---- building ---- */

/* One under way. */
struct building {
    struct program *program; /* Used. */
    struct device_object **devices;
    uint64_t *ids;
    cl_uint count;
    bool linked;
    build_notify notify;
    void *data;
};

static void building_destroy(struct building *building)
{
    if (building->program)
        handle_unuse(building->program);
    free(building->devices);
    free(building->ids);
    free(building);
}

static struct building *building_create(struct program *program, cl_uint count,
                                        const cl_device_id *devices, build_notify notify,
                                        void *data)
{
    struct building *building = calloc(1, sizeof(*building));
    if (!building)
        return NULL;
    building->count = count ? count : program->device_count;
    building->devices = calloc(building->count, sizeof(struct device_object *));
    building->ids = calloc(building->count, sizeof(*building->ids));
    if (!building->devices || !building->ids) {
        building_destroy(building);
        return NULL;
    }
    for (cl_uint i = 0; i < building->count; i++) {
        building->devices[i] = count ? device_get(devices[i]) : program->devices[i];
        building->ids[i] = handle_id(building->devices[i]);
    }
    building->program = program;
    handle_use(program);
    building->notify = notify;
    building->data = data;
    return building;
}

static cl_int check_build(struct program *program, cl_uint count, const cl_device_id *devices,
                          build_notify notify, void *data)
{
    if ((count == 0) != (devices == NULL) || (!notify && data))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++)
        if (device_index(program, device_get(devices[i])) < 0)
            return CL_INVALID_DEVICE;
    return CL_SUCCESS;
}

/* From here on its status is that it is under way. */
static cl_int start(const struct building *building, const char *options)
{
    struct program *program = building->program;
    cl_int error = CL_SUCCESS;
    pthread_mutex_lock(&program->lock);
    if (program->building || program->kernel_objects)
        error = CL_INVALID_OPERATION;
    for (cl_uint i = 0; error == CL_SUCCESS && i < building->count; i++) {
        struct build_state *state = &program->builds[device_index(program, building->devices[i])];
        free(state->log);
        free(state->options);
        *state = (struct build_state){.status = CL_BUILD_IN_PROGRESS,
                                      .options = strdup(options ? options : "")};
    }
    if (error == CL_SUCCESS) {
        program->building = true;
        program->built = false;
        kernel_facts_destroy(program->facts);
        program->facts = NULL;
        forget_binaries(program);
    }
    pthread_mutex_unlock(&program->lock);
    return error;
}

/* Kernels of a list of names. The server's own number may be another one. */
static size_t count_names(const char *names)
{
    size_t count = 0;
    for (const char *at = names; *at; at += *at == ';') {
        size_t length = strcspn(at, ";");
        count += length != 0;
        at += length;
    }
    return count;
}

/* What the server says of a build. The program's lock is held. */
static void take_result(struct program *program, const struct building *building,
                        const struct call *call, cl_int error)
{
    struct unpack body = {call->content, call->content + call->size, false};
    struct msg_built built;
    bool told = call->content && unpack_built(&body, &built);
    free(program->names);
    program->names = told ? strdup(built.names) : NULL;
    program->kernels = program->names ? count_names(program->names) : 0;
    for (cl_uint i = 0; i < building->count; i++) {
        int index = device_index(program, building->devices[i]);
        struct build_state *state = index < 0 ? NULL : &program->builds[index];
        struct msg_build_device row;
        told = told && unpack_build_device(&body, &row);
        if (!state)
            continue;
        state->status = told ? row.status : CL_BUILD_ERROR;
        if (error && state->status == CL_BUILD_IN_PROGRESS)
            state->status = CL_BUILD_ERROR;
        if (!told)
            continue;
        state->binary_type = row.binary_type;
        state->globals = row.globals;
        state->log = strdup(row.log);
        if (state->status == CL_BUILD_SUCCESS &&
            state->binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
            program->built = true;
    }
    program->building = false;
}

static cl_int finish(const struct building *building, const struct call *call, cl_int error)
{
    struct program *program = building->program;
    pthread_mutex_lock(&program->lock);
    take_result(program, building, call, error);
    pthread_mutex_unlock(&program->lock);
    return error;
}

static void notify_call(void *data)
{
    const struct building *building = data;
    building->notify((cl_program)building->program, building->data);
}

static void notify_gone(void *data)
{
    building_destroy(data);
}

/* In a thread of callbacks. */
static void build_answered(struct call *call)
{
    struct building *building = call->data;
    (void)finish(building, call, call->error);
    callback_program(notify_call, notify_gone, building);
    building_destroy(building);
}

static cl_int give_up(struct building *building, struct call *call, cl_int error)
{
    if (building->program) {
        pthread_mutex_lock(&building->program->lock);
        building->program->building = false;
        pthread_mutex_unlock(&building->program->lock);
    }
    handle_release(call);
    building_destroy(building);
    return error;
}

/* The answer is waited for, or waits for its callback. */
static cl_int await(struct building *building, struct call *call, cl_int posted_error)
{
    struct client *client = call->base.client;
    if (posted_error && (!building->notify || call_take_back(call)))
        return give_up(building, call, posted_error);
    if (building->notify) {
        client_flush(client);
        return CL_SUCCESS; /* The call's reference goes with its callback. */
    }
    cl_int error = finish(building, call, call_wait(call, CL_SUCCESS));
    handle_release(call);
    building_destroy(building);
    return error;
}

/* A call for a build, which calls back when it is to. */
static struct call *build_call(struct client *client, struct building *building)
{
    struct call *call = building ? call_create(client) : NULL;
    if (!call)
        return NULL;
    call->data = building;
    if (building->notify) {
        call->job.run = call_run;
        call->then = build_answered;
    }
    return call;
}

/* What builds and compilations begin with. */
static cl_int begin_build(cl_program handle, cl_uint count, const cl_device_id *devices,
                          const char *options, build_notify notify, void *data,
                          struct building **ret_building, struct call **ret_call)
{
    struct program *program = program_get(handle);
    if (!program)
        return CL_INVALID_PROGRAM;
    cl_int error = check_build(program, count, devices, notify, data);
    if (error == CL_SUCCESS)
        error = client_state(program->base.client);
    if (error)
        return error;
    struct building *building = building_create(program, count, devices, notify, data);
    struct call *call = build_call(program->base.client, building);
    if (!call) {
        if (building)
            building_destroy(building);
        return CL_OUT_OF_HOST_MEMORY;
    }
    error = start(building, options);
    if (error) {
        handle_release(call);
        building_destroy(building);
        return error;
    }
    *ret_building = building;
    *ret_call = call;
    return CL_SUCCESS;
}

cl_int clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                      const char *options, void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                      void *user_data)
{
    struct building *building = NULL;
    struct call *call = NULL;
    cl_int error = begin_build(program, num_devices, device_list, options, pfn_notify, user_data,
                               &building, &call);
    if (error)
        return error;
    return await(building, call,
                 POST(call->base.client, build,
                      {.program = handle_id(building->program),
                       .call = handle_id(call),
                       .devices = building->ids,
                       .devices_count = building->count,
                       .options = options ? options : ""}));
}

/* Ids of programs, and their names one behind the other. */
static cl_int take_headers(const struct context *context, cl_uint count, const cl_program *programs,
                           const char **names, uint64_t **ret_ids, char **ret_names,
                           size_t *ret_size)
{
    size_t size = 0;
    for (cl_uint i = 0; i < count; i++) {
        const struct program *header = program_get(programs[i]);
        if (!header || header->context != context)
            return CL_INVALID_PROGRAM;
        if (!names[i])
            return CL_INVALID_VALUE;
        size += strlen(names[i]) + 1;
    }
    uint64_t *ids = calloc((size_t)count + 1, sizeof(*ids));
    char *all = malloc(size + 1), *at = all;
    if (!ids || !all) {
        free(ids);
        free(all);
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < count; i++) {
        ids[i] = handle_id(program_get(programs[i]));
        at = stpcpy(at, names[i]) + 1;
    }
    *ret_ids = ids;
    *ret_names = all;
    *ret_size = size;
    return CL_SUCCESS;
}

cl_int clCompileProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                        const char *options, cl_uint num_input_headers,
                        const cl_program *input_headers, const char **header_include_names,
                        void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    struct program *p = program_get(program);
    struct building *building = NULL;
    struct call *call = NULL;
    uint64_t *ids = NULL;
    char *names = NULL;
    size_t size = 0;
    if (!p)
        return CL_INVALID_PROGRAM;
    if ((num_input_headers == 0) != (input_headers == NULL) ||
        (num_input_headers == 0) != (header_include_names == NULL))
        return CL_INVALID_VALUE;
    if (!p->source && !p->il)
        return CL_INVALID_OPERATION;
    cl_int error = take_headers(p->context, num_input_headers, input_headers, header_include_names,
                                &ids, &names, &size);
    if (error == CL_SUCCESS)
        error = begin_build(program, num_devices, device_list, options, pfn_notify, user_data,
                            &building, &call);
    if (error == CL_SUCCESS)
        error = await(building, call,
                      POST(call->base.client, compile,
                           {.program = handle_id(p),
                            .call = handle_id(call),
                            .devices = building->ids,
                            .devices_count = building->count,
                            .options = options ? options : "",
                            .headers = ids,
                            .headers_count = num_input_headers,
                            .names = names,
                            .names_size = size}));
    free(ids);
    free(names);
    return error;
}

/* All of the context's, each of them compiled or a library. */
static cl_int take_inputs(const struct context *context, cl_uint count, const cl_program *programs,
                          uint64_t **ret_ids)
{
    if (count == 0 || !programs)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        const struct program *program = program_get(programs[i]);
        if (!program || program->context != context)
            return CL_INVALID_PROGRAM;
    }
    uint64_t *ids = calloc(count, sizeof(*ids));
    if (!ids)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count; i++)
        ids[i] = handle_id(program_get(programs[i]));
    *ret_ids = ids;
    return CL_SUCCESS;
}

cl_program clLinkProgram(cl_context context, cl_uint num_devices, const cl_device_id *device_list,
                         const char *options, cl_uint num_input_programs,
                         const cl_program *input_programs,
                         void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data,
                         cl_int *errcode_ret)
{
    struct context *c = context_get(context);
    uint64_t *ids = NULL;
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    if ((num_devices == 0) != (device_list == NULL) || (!pfn_notify && user_data))
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    cl_int error = check_devices(c, num_devices, device_list);
    if (error == CL_SUCCESS)
        error = take_inputs(c, num_input_programs, input_programs, &ids);
    if (error == CL_SUCCESS)
        error = client_state(c->base.client);
    struct program *program = error ? NULL : program_create(c, num_devices, device_list);
    struct building *building =
        program ? building_create(program, 0, NULL, pfn_notify, user_data) : NULL;
    struct call *call = build_call(c->base.client, building);
    if (!call) {
        free(ids);
        if (building)
            building_destroy(building);
        return created_if(program, error ? error : CL_OUT_OF_HOST_MEMORY, errcode_ret);
    }
    error = start(building, options);
    if (error == CL_SUCCESS)
        error = await(building, call,
                      POST(c->base.client, link,
                           {.program = handle_id(program),
                            .context = handle_id(c),
                            .call = handle_id(call),
                            .devices = building->ids,
                            .devices_count = building->count,
                            .options = options ? options : "",
                            .inputs = ids,
                            .inputs_count = num_input_programs}));
    else
        error = give_up(building, call, error);
    free(ids);
    /* A link that failed has a program with a log all the same. */
    if (error == CL_LINK_PROGRAM_FAILURE) {
        if (errcode_ret)
            *errcode_ret = error;
        return (cl_program)program;
    }
    return created_if(program, error, errcode_ret);
}

/* ---- answers ---- */

/* Asked once; they do not change until the next build. */
static cl_int fetch_binaries(struct program *program)
{
    struct call *call = call_create(program->base.client);
    if (!call)
        return client_state(program->base.client) ? CL_DEVICE_NOT_AVAILABLE : CL_OUT_OF_HOST_MEMORY;
    cl_int error = call_wait(call, POST(program->base.client, get_binaries,
                                        {.program = handle_id(program), .call = handle_id(call)}));
    struct unpack body = {call->content, call->content + call->size, false};
    pthread_mutex_lock(&program->lock);
    forget_binaries(program);
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
        forget_binaries(program);
    pthread_mutex_unlock(&program->lock);
    handle_release(call);
    return error;
}

static cl_int answer_binaries(struct program *program, const struct request *request)
{
    size_t size = program->device_count * sizeof(unsigned char *);
    unsigned char **targets = request->value;
    if (targets && request->size < size)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; targets && i < program->device_count; i++)
        if (targets[i])
            memcpy(targets[i], program->binaries[i], program->binary_sizes[i]);
    if (request->ret_size)
        *request->ret_size = size;
    return CL_SUCCESS;
}

static cl_int answer_program(struct program *program, cl_program_info name,
                             const struct request *request)
{
    switch (name) {
    case CL_PROGRAM_REFERENCE_COUNT:
        return request_uint(request, handle_count(program));
    case CL_PROGRAM_CONTEXT:
        return request_handle(request, program->context);
    case CL_PROGRAM_NUM_DEVICES:
        return request_uint(request, program->device_count);
    case CL_PROGRAM_DEVICES:
        return request_bytes(request, program->devices,
                             program->device_count * sizeof(cl_device_id));
    case CL_PROGRAM_SOURCE:
        return program->source ? request_bytes(request, program->source, program->source_size)
                               : request_text(request, "");
    case CL_PROGRAM_IL:
        return request_bytes(request, program->il, program->il_size);
    case CL_PROGRAM_BINARY_SIZES:
        return request_bytes(request, program->binary_sizes,
                             program->device_count * sizeof(size_t));
    case CL_PROGRAM_BINARIES:
        return answer_binaries(program, request);
    case CL_PROGRAM_NUM_KERNELS:
        return program->built ? request_size(request, program->kernels)
                              : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_KERNEL_NAMES:
        return program->built ? request_text(request, program->names ? program->names : "")
                              : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
    case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
        return request_uint(request, CL_FALSE);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetProgramInfo(cl_program program, cl_program_info param_name, size_t param_value_size,
                        void *param_value, size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    struct program *p = program_get(program);
    cl_int error = CL_SUCCESS;
    if (!p)
        return CL_INVALID_PROGRAM;
    if (param_name == CL_PROGRAM_BINARY_SIZES || param_name == CL_PROGRAM_BINARIES) {
        pthread_mutex_lock(&p->lock);
        bool known = p->binary_sizes;
        pthread_mutex_unlock(&p->lock);
        error = known ? CL_SUCCESS : fetch_binaries(p);
    }
    pthread_mutex_lock(&p->lock);
    if (error == CL_SUCCESS)
        error = answer_program(p, param_name, &request);
    pthread_mutex_unlock(&p->lock);
    return error;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                             cl_program_build_info param_name, size_t param_value_size,
                             void *param_value, size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    struct program *p = program_get(program);
    cl_int error;
    if (!p)
        return CL_INVALID_PROGRAM;
    int index = device_index(p, device_get(device));
    if (index < 0)
        return CL_INVALID_DEVICE;
    pthread_mutex_lock(&p->lock);
    const struct build_state *state = &p->builds[index];
    switch (param_name) {
    case CL_PROGRAM_BUILD_STATUS:
        error = request_bytes(&request, &state->status, sizeof(state->status));
        break;
    case CL_PROGRAM_BUILD_OPTIONS:
        error = request_text(&request, state->options ? state->options : "");
        break;
    case CL_PROGRAM_BUILD_LOG:
        error = request_text(&request, state->log ? state->log : "");
        break;
    case CL_PROGRAM_BINARY_TYPE:
        error = request_uint(&request, state->binary_type);
        break;
    case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
        error = request_size(&request, state->globals);
        break;
    default:
        error = CL_INVALID_VALUE;
    }
    pthread_mutex_unlock(&p->lock);
    return error;
}

static void call_release(struct ending *ending)
{
    ((build_notify)ending->function)(ending->handle, ending->data);
}

cl_int clSetProgramReleaseCallback(cl_program program,
                                   void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                                   void *user_data)
{
    struct program *p = program_get(program);
    if (!p)
        return CL_INVALID_PROGRAM;
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    return ending_add(p->base.client, &p->endings, call_release, (void (*)(void))pfn_notify,
                      program, user_data);
}
