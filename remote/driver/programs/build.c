#include <stdlib.h>
#include <string.h>

#include "remote/driver/programs/program.h"
#include "state/base/cleanup.h"

/* Building, compiling and linking programs. */

typedef void(CL_CALLBACK *build_notify)(cl_program, void *);

/* One under way. */
struct building {
    struct program *program; /* Used. */
    struct device_object **devices;
    uint64_t *ids;
    cl_uint count;
    build_notify notify;
    void *data;
};

static void build_building_destroy(struct building *building)
{
    if (!building)
        return;
    handle_unuse(building->program);
    free(building->devices);
    free(building->ids);
    free(building);
}

static struct building *build_building_create(struct program *program, cl_uint count,
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
        build_building_destroy(building);
        return NULL;
    }
    for (cl_uint i = 0; i < building->count; i++) {
        building->devices[i] = count ? device_get(devices[i]) : program->devices[i];
        building->ids[i] = handle_id(building->devices[i]);
    }
    building->program = program;
    object_hold(program);
    building->notify = notify;
    building->data = data;
    return building;
}

static cl_int build_check_build(struct program *program, cl_uint count, const cl_device_id *devices,
                                build_notify notify, void *data)
{
    if ((count == 0) != (devices == NULL) || (!notify && data))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++)
        if (program_device_index(program, device_get(devices[i])) < 0)
            return CL_INVALID_DEVICE;
    return CL_SUCCESS;
}

/* Mark the program as being built, for all devices of the build. */
static cl_int build_start(const struct building *building, const char *options)
{
    struct program *program = building->program;
    cl_int error = CL_SUCCESS;
    pthread_mutex_lock(&program->lock);
    if (program->building || program->kernel_objects)
        error = CL_INVALID_OPERATION;
    for (cl_uint i = 0; error == CL_SUCCESS && i < building->count; i++) {
        struct build_state *state =
            &program->builds[program_device_index(program, building->devices[i])];
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
        program_forget_binaries(program);
    }
    pthread_mutex_unlock(&program->lock);
    return error;
}

/* The number of names in a list. It is counted, since the number that the server tells may differ.
 */
static size_t build_count_names(const char *names)
{
    size_t count = 0;
    for (const char *at = names; *at; at += *at == ';') {
        size_t length = strcspn(at, ";");
        count += length != 0;
        at += length;
    }
    return count;
}

/* Keep the result that the server tells of a build. The program's lock is held. */
static void build_take_result(struct program *program, const struct building *building,
                              const struct call *call, cl_int error)
{
    struct unpack body = {call->content, call->content + call->size, false};
    struct msg_built built;
    bool told = call->content && unpack_built(&body, &built);
    free(program->names);
    program->names = told ? strdup(built.names) : NULL;
    program->kernels = program->names ? build_count_names(program->names) : 0;
    for (cl_uint i = 0; i < building->count; i++) {
        int index = program_device_index(program, building->devices[i]);
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

static cl_int build_finish(const struct building *building, const struct call *call, cl_int error)
{
    struct program *program = building->program;
    pthread_mutex_lock(&program->lock);
    build_take_result(program, building, call, error);
    pthread_mutex_unlock(&program->lock);
    return error;
}

static void build_notify_call(void *data)
{
    const struct building *building = data;
    building->notify((cl_program)building->program, building->data);
}

static void build_notify_gone(void *data)
{
    build_building_destroy(data);
}

/* In a thread of callbacks. */
static void build_answered(struct call *call)
{
    struct building *building = call->data;
    (void)build_finish(building, call, call->error);
    callback_program(build_notify_call, build_notify_gone, building);
    build_building_destroy(building);
}

static cl_int build_give_up(struct building *building, struct call *call, cl_int error)
{
    if (building->program) {
        pthread_mutex_lock(&building->program->lock);
        building->program->building = false;
        pthread_mutex_unlock(&building->program->lock);
    }
    handle_release(call);
    build_building_destroy(building);
    return error;
}

/* Wait for the reply, or leave it to the callback that the program asked for. */
static cl_int build_await(struct building *building, struct call *call, cl_int posted_error)
{
    struct client *client = call->base.client;
    if (posted_error && (!building->notify || call_take_back(call)))
        return build_give_up(building, call, posted_error);
    if (building->notify) {
        client_flush(client);
        return CL_SUCCESS; /* The callback gives the call's reference back. */
    }
    cl_int error = build_finish(building, call, call_wait(call, CL_SUCCESS));
    handle_release(call);
    build_building_destroy(building);
    return error;
}

/* A call for a build, with build_answered() where the program gave a callback. */
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
static cl_int build_begin_build(struct program *program, cl_uint count, const cl_device_id *devices,
                                const char *options, build_notify notify, void *data,
                                struct building **ret_building, struct call **ret_call)
{
    cl_int error = build_check_build(program, count, devices, notify, data);
    if (error == CL_SUCCESS)
        error = client_state(program->base.client);
    if (error)
        return error;
    struct building *building = build_building_create(program, count, devices, notify, data);
    struct call *call = build_call(program->base.client, building);
    if (!call) {
        build_building_destroy(building);
        return CL_OUT_OF_HOST_MEMORY;
    }
    error = build_start(building, options);
    if (error) {
        handle_release(call);
        build_building_destroy(building);
        return error;
    }
    *ret_building = building;
    *ret_call = call;
    return CL_SUCCESS;
}

cl_int program_begin_build(struct program *program, cl_uint num_devices,
                           const cl_device_id *device_list, const char *options,
                           void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    struct building *building = NULL;
    struct call *call = NULL;
    cl_int error = build_begin_build(program, num_devices, device_list, options, pfn_notify,
                                     user_data, &building, &call);
    if (error)
        return error;
    return build_await(building, call,
                       POST(call->base.client, build,
                            {.program = handle_id(building->program),
                             .call = handle_id(call),
                             .devices = building->ids,
                             .devices_count = building->count,
                             .options = options ? options : ""}));
}

/* The ids of header programs, and their names, each with its NUL. The caller frees both lists, also
 * after an error. */
static cl_int build_take_headers(const struct context *context, cl_uint count,
                                 const cl_program *programs, const char **names, uint64_t **ret_ids,
                                 char **ret_names, size_t *ret_size)
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
    char *at = *ret_names = malloc(size + 1);
    uint64_t *ids = *ret_ids = calloc((size_t)count + 1, sizeof(*ids));
    if (!ids || !at)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count; i++) {
        ids[i] = handle_id(program_get(programs[i]));
        at = stpcpy(at, names[i]) + 1;
    }
    *ret_size = size;
    return CL_SUCCESS;
}

cl_int program_begin_compile(struct program *p, cl_uint num_devices,
                             const cl_device_id *device_list, const char *options,
                             cl_uint num_input_headers, const cl_program *input_headers,
                             const char **header_include_names,
                             void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    struct building *building = NULL;
    struct call *call = NULL;
    CLEANUP(cleanup_free) uint64_t *ids = NULL;
    CLEANUP(cleanup_free) char *names = NULL;
    size_t size = 0;
    if ((num_input_headers == 0) != (input_headers == NULL) ||
        (num_input_headers == 0) != (header_include_names == NULL))
        return CL_INVALID_VALUE;
    if (!p->source && !p->il)
        return CL_INVALID_OPERATION;
    cl_int error = build_take_headers(p->context, num_input_headers, input_headers,
                                      header_include_names, &ids, &names, &size);
    if (error == CL_SUCCESS)
        error = build_begin_build(p, num_devices, device_list, options, pfn_notify, user_data,
                                  &building, &call);
    if (error == CL_SUCCESS)
        error = build_await(building, call,
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
    return error;
}

/* The ids of programs to be linked, which have to be the context's. */
static cl_int build_take_inputs(const struct context *context, cl_uint count,
                                const cl_program *programs, uint64_t **ret_ids)
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
    CLEANUP(cleanup_free) uint64_t *ids = NULL;
    if (!c)
        return created(NULL, CL_INVALID_CONTEXT, errcode_ret);
    if ((num_devices == 0) != (device_list == NULL) || (!pfn_notify && user_data))
        return created(NULL, CL_INVALID_VALUE, errcode_ret);
    cl_int error = program_check_devices(c, num_devices, device_list);
    if (error == CL_SUCCESS)
        error = build_take_inputs(c, num_input_programs, input_programs, &ids);
    if (error == CL_SUCCESS)
        error = client_state(c->base.client);
    struct program *program = error ? NULL : program_make(c, num_devices, device_list);
    struct building *building =
        program ? build_building_create(program, 0, NULL, pfn_notify, user_data) : NULL;
    struct call *call = build_call(c->base.client, building);
    if (!call) {
        build_building_destroy(building);
        error = error ? error : CL_OUT_OF_HOST_MEMORY;
        return created(NULL, created_if(program, error, &program), errcode_ret);
    }
    error = build_start(building, options);
    if (error == CL_SUCCESS)
        error = build_await(building, call,
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
        error = build_give_up(building, call, error);
    /* Some drivers make the program after a failed link too: then the server has told its log. */
    if (error == CL_LINK_PROGRAM_FAILURE && program->names) {
        if (errcode_ret)
            *errcode_ret = error;
        return (cl_program)program;
    }
    return created(program, created_if(program, error, &program), errcode_ret);
}
