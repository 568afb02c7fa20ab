#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/server/session/binary.h"
#include "remote/server/session/server.h"
#include "state/base/cleanup.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/* Programs. Compilers are slow: each build runs in a thread of its own, while the client's next
 * messages are executed. */

#define BUILDS_MAX    64
#define ARGUMENT_INFO "-cl-kernel-arg-info"

void server_create_source(struct server *server, const struct msg_create_source *message)
{
    struct entry *entry = server_add_to(server, message->program, message->context);
    const char *source = message->source;
    size_t length = message->source_size;
    if (!entry)
        return;
    entry->text = true;
    if (length == 0)
        entry->error = CL_INVALID_VALUE;
    else
        entry->real = entry->cl->clCreateProgramWithSource(entry->context, 1, &source, &length,
                                                           &entry->error);
}

void server_create_il(struct server *server, const struct msg_create_il *message)
{
    struct entry *entry = server_add_to(server, message->program, message->context);
    if (!entry)
        return;
    entry->text = true;
    if (entry->cl->clCreateProgramWithIL)
        entry->real = entry->cl->clCreateProgramWithIL(entry->context, message->il,
                                                       message->il_size, &entry->error);
    else
        entry->error = CL_INVALID_OPERATION;
}

/* The common part of create_binary and create_kept. */
struct loading {
    uint64_t program, context, call;
    const void *devices;
    uint32_t count;
    const unsigned char **binaries; /* An array of `count`, as are those below. */
    size_t *sizes;
    cl_int *status;
};

static bool programs_loading_init(struct loading *loading)
{
    uint32_t count = loading->count;
    loading->binaries = calloc(count + 1, sizeof(*loading->binaries));
    loading->sizes = calloc(count + 1, sizeof(*loading->sizes));
    loading->status = calloc(count + 1, sizeof(*loading->status));
    return loading->binaries && loading->sizes && loading->status;
}

static void programs_loading_finish(struct loading *loading)
{
    free(loading->binaries);
    free(loading->sizes);
    free(loading->status);
}

/* With @error, add a program that could not be created. */
static void programs_load_binary(struct server *server, const struct loading *loading, cl_int error)
{
    struct entry *entry = server_add_to(server, loading->program, loading->context);
    CLEANUP(cleanup_free) void **devices = NULL;
    if (entry)
        devices = server_find_all(server, loading->devices, loading->count,
                                  server_find(server, loading->context), &error);
    if (entry && !error && !server->wrong) {
        entry->real = entry->cl->clCreateProgramWithBinary(
            entry->context, loading->count, (cl_device_id *)devices, loading->sizes,
            loading->binaries, loading->status, &entry->error);
        error = entry->error;
    } else if (entry) {
        entry->error = error;
    }
    server_reply(server, loading->call,
                 error   ? error
                 : entry ? CL_SUCCESS
                         : CL_INVALID_CONTEXT,
                 loading->status, loading->status ? loading->count * sizeof(*loading->status) : 0);
}

static void programs_split_binaries(struct server *server, const struct msg_create_binary *message,
                                    const struct loading *loading)
{
    const unsigned char *at = message->binaries;
    uint64_t left = message->binaries_size;
    if (message->sizes_size != loading->count * sizeof(uint64_t)) {
        server_wrong(server, "the number of binaries and devices differs");
        return;
    }
    for (uint32_t i = 0; i < loading->count; i++) {
        uint64_t size = id_at(message->sizes, i);
        if (size == 0 || size > left) {
            server_wrong(server, "a binary is longer than the message");
            return;
        }
        loading->binaries[i] = at;
        loading->sizes[i] = size;
        at += size;
        left -= size;
    }
}

void server_create_binary(struct server *server, const struct msg_create_binary *message)
{
    struct loading loading = {.program = message->program,
                              .context = message->context,
                              .call = message->call,
                              .devices = message->devices,
                              .count = message->devices_count};
    bool room = programs_loading_init(&loading);
    if (room)
        programs_split_binaries(server, message, &loading);
    for (uint32_t i = 0; room && !server->wrong && i < loading.count; i++)
        binary_keep_bytes(server, loading.binaries[i], loading.sizes[i]);
    programs_load_binary(server, &loading, room ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    programs_loading_finish(&loading);
}

/* Answers BINARY_LACKING if the binary is not kept: then no program is added, and the client sends
 * the binary. */
void server_create_kept(struct server *server, const struct msg_create_kept *message)
{
    struct binary binary;
    if (!server->keeps || message->name_size != CONTENT_HASH_SIZE) {
        server_wrong(server, "the name of a binary is invalid");
        return;
    }
    if (binary_find(server, message->name, &binary)) {
        server_reply(server, message->call, BINARY_LACKING, NULL, 0);
        return;
    }
    const unsigned char *bytes = binary.bytes;
    cl_int status = CL_SUCCESS;
    const struct loading loading = {.program = message->program,
                                    .context = message->context,
                                    .call = message->call,
                                    .devices = &message->device,
                                    .count = 1,
                                    .binaries = &bytes,
                                    .sizes = &binary.size,
                                    .status = &status};
    programs_load_binary(server, &loading, CL_SUCCESS);
    binary_close(&binary);
}

void server_set_constant(struct server *server, const struct msg_set_constant *message)
{
    struct entry *entry = server_find(server, message->program);
    cl_int error = CL_INVALID_OPERATION;
    if (!entry || !entry->real)
        return;
    if (entry->cl->clSetProgramSpecializationConstant)
        error = entry->cl->clSetProgramSpecializationConstant(entry->real, message->constant,
                                                              message->value_size, message->value);
    if (error)
        log_info("a specialization constant was refused: %d", error);
}

/* ---- builds ---- */

struct build {
    struct server *server;
    const cl_icd_dispatch *cl;
    cl_program program; /* A reference. */
    uint64_t call;
    void **devices; /* On the heap, as are the pointers below. */
    uint32_t device_count;
    char *options;
    size_t added; /* How many bytes of the options we put in front of the client's. */
    void **inputs;
    const char **names; /* NULL: clBuildProgram(), else clCompileProgram(). */
    char *names_text;
    uint32_t input_count;
    bool compile;
};

static atomic_uint builds_running;

static void programs_build_destroy(struct build *build)
{
    if (build->program)
        build->cl->clReleaseProgram(build->program);
    for (uint32_t i = 0; build->inputs && i < build->input_count; i++)
        build->cl->clReleaseProgram(build->inputs[i]);
    free(build->devices);
    free(build->options);
    free(build->inputs);
    free(build->names);
    free(build->names_text);
    free(build);
}

/* Text of a driver's answer, on the heap; "" if there is none. */
static char *programs_build_text(const struct build *build, cl_device_id device,
                                 cl_program_build_info what)
{
    size_t size = 0;
    if (build->cl->clGetProgramBuildInfo(build->program, device, what, 0, NULL, &size) ||
        size > SERVER_TEXT_MAX)
        size = 0;
    char *text = calloc(1, size + 1);
    if (text && size &&
        build->cl->clGetProgramBuildInfo(build->program, device, what, size, text, NULL))
        text[0] = '\0';
    return text;
}

static void programs_pack_device(struct pack *pack, const struct build *build, cl_device_id device)
{
    struct msg_build_device row = {.status = CL_BUILD_NONE};
    size_t globals = 0;
    build->cl->clGetProgramBuildInfo(build->program, device, CL_PROGRAM_BUILD_STATUS,
                                     sizeof(row.status), &row.status, NULL);
    build->cl->clGetProgramBuildInfo(build->program, device, CL_PROGRAM_BINARY_TYPE,
                                     sizeof(row.binary_type), &row.binary_type, NULL);
    if (build->cl->clGetProgramBuildInfo(build->program, device,
                                         CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                                         sizeof(globals), &globals, NULL) == CL_SUCCESS)
        row.globals = globals;
    CLEANUP(cleanup_free) char *log = programs_build_text(build, device, CL_PROGRAM_BUILD_LOG);
    row.log = log ? log : "";
    pack_build_device(pack, &row);
}

static void programs_answer_build(const struct build *build, cl_int error)
{
    struct pack pack;
    struct msg_built built = {.names = ""};
    size_t kernels = 0, size = 0;
    char *names = NULL;
    if (build->program && !build->cl->clGetProgramInfo(build->program, CL_PROGRAM_NUM_KERNELS,
                                                       sizeof(kernels), &kernels, NULL))
        built.kernels = kernels;
    if (built.kernels &&
        !build->cl->clGetProgramInfo(build->program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &size) &&
        size <= SERVER_TEXT_MAX && (names = calloc(1, size + 1)) &&
        !build->cl->clGetProgramInfo(build->program, CL_PROGRAM_KERNEL_NAMES, size, names, NULL))
        built.names = names;
    pack_init(&pack);
    pack_built(&pack, &built);
    for (uint32_t i = 0; build->program && i < build->device_count; i++)
        programs_pack_device(&pack, build, build->devices[i]);
    /* Without content: the driver made no program. */
    server_reply(build->server, build->call, pack.failed ? CL_OUT_OF_HOST_MEMORY : error,
                 pack.bytes, build->program ? pack.used : 0);
    pack_finish(&pack);
    free(names);
}

static cl_int programs_build_with(const struct build *build, const char *options)
{
    cl_device_id *devices = (cl_device_id *)build->devices;
    return build->compile
               ? build->cl->clCompileProgram(build->program, build->device_count, devices, options,
                                             build->input_count, (cl_program *)build->inputs,
                                             build->input_count ? build->names : NULL, NULL, NULL)
               : build->cl->clBuildProgram(build->program, build->device_count, devices, options,
                                           NULL, NULL);
}

/* If the build fails with the option that we add, build with the client's options alone. Then the
 * driver tells nothing of the kernels' arguments, and kernels_try_argument() finds out. */
static void *programs_run_build(void *data)
{
    struct build *build = data;
    cl_int error = programs_build_with(build, build->options);
    if (build->added && (error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
                         error == CL_INVALID_BUILD_OPTIONS || error == CL_INVALID_COMPILER_OPTIONS))
        error = programs_build_with(build, build->options + build->added);
    programs_answer_build(build, error);
    programs_build_destroy(build);
    atomic_fetch_sub(&builds_running, 1);
    return NULL;
}

/* Add the option that makes the driver tell of kernel arguments, which decides what a client may
 * set. Drivers of OpenCL 1.1 do not know it, and it has no effect on binaries. It goes in front,
 * since the end of the client's options may swallow a word. False: out of memory. */
static bool programs_add_options(struct build *build, const struct entry *program,
                                 const void *devices, const char *options)
{
    const struct server *server = build->server;
    bool tells = program->text && !strstr(options, ARGUMENT_INFO);
    for (uint32_t i = 0; i < build->device_count; i++) {
        uint32_t place = id_place(id_at(devices, i));
        tells = tells && place < server->device_count &&
                devinfo_version(&server->devices[place]->info) >= CL_MAKE_VERSION(1, 2, 0);
    }
    build->added = tells ? strlen(ARGUMENT_INFO " ") : 0;
    if (asprintf(&build->options, "%s%s", tells ? ARGUMENT_INFO " " : "", options) < 0)
        build->options = NULL;
    return build->options != NULL;
}

/* The common beginning of all builds. NULL: the call was answered, or the session ends. */
static struct build *programs_build_create(struct server *server, const struct entry *program,
                                           const void *devices, uint32_t device_count,
                                           const char *options, uint64_t call)
{
    if (!program)
        return NULL;
    cl_int error = program->error;
    struct build *build = calloc(1, sizeof(*build));
    if (!build) {
        server_wrong(server, "out of memory for its builds");
        return NULL;
    }
    build->server = server;
    build->cl = program->cl;
    build->call = call;
    build->device_count = device_count;
    bool room = programs_add_options(build, program, devices, options);
    build->devices = server_find_all(server, devices, device_count, program, &error);
    if (!room)
        error = CL_OUT_OF_HOST_MEMORY;
    if (error || device_count == 0) {
        server_reply(server, call, error ? error : CL_INVALID_VALUE, NULL, 0);
        programs_build_destroy(build);
        return NULL;
    }
    if (program->real) {
        build->program = program->real;
        build->cl->clRetainProgram(build->program);
    }
    return build;
}

static bool programs_add_inputs(struct build *build, const struct entry *with, const void *ids,
                                uint32_t count)
{
    cl_int error = CL_SUCCESS;
    if (count == 0)
        return true;
    build->inputs = server_find_all(build->server, ids, count, with, &error);
    if (!build->inputs) {
        server_reply(build->server, build->call, error, NULL, 0);
        return false;
    }
    build->input_count = count;
    for (uint32_t i = 0; i < count; i++)
        build->cl->clRetainProgram(build->inputs[i]);
    return true;
}

static void programs_start_build(struct build *build)
{
    bool many = atomic_fetch_add(&builds_running, 1) >= BUILDS_MAX;
    if (many || thread_start("reseat-build", 0, programs_run_build, build, NULL))
        programs_run_build(build);
}

void server_build(struct server *server, const struct msg_build *message)
{
    struct build *build =
        programs_build_create(server, server_find(server, message->program), message->devices,
                              message->devices_count, message->options, message->call);
    if (build)
        programs_start_build(build);
}

/* Drivers write headers to files of these names in a temporary folder. */
static bool programs_stays_inside(const char *name)
{
    if (*name == '/')
        return false;
    for (const char *at = name; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (!strncmp(at, "..", 2) && (at[2] == '/' || at[2] == '\0'))
            return false;
    }
    return true;
}

/* Split names of headers, each of which ends with NUL. */
static bool programs_split_names(struct build *build, const void *names, uint64_t size)
{
    build->names_text = malloc(size + 1);
    build->names = calloc(build->input_count + 1, sizeof(*build->names));
    if (!build->names_text || !build->names)
        return false;
    memcpy(build->names_text, names, size);
    build->names_text[size] = '\0';
    const char *at = build->names_text, *end = at + size;
    for (uint32_t i = 0; i < build->input_count; i++) {
        if (at >= end)
            return false;
        build->names[i] = at;
        at += strlen(at) + 1;
    }
    return at == end;
}

static bool programs_all_stay_inside(const struct build *build)
{
    for (uint32_t i = 0; i < build->input_count; i++)
        if (!programs_stays_inside(build->names[i]))
            return false;
    return true;
}

void server_compile(struct server *server, const struct msg_compile *message)
{
    const struct entry *program = server_find(server, message->program);
    struct build *build = programs_build_create(
        server, program, message->devices, message->devices_count, message->options, message->call);
    if (!build)
        return;
    build->compile = true;
    if (!programs_add_inputs(build, program, message->headers, message->headers_count)) {
        programs_build_destroy(build);
    } else if (!programs_split_names(build, message->names, message->names_size)) {
        server_wrong(server, "the number of headers and names differs");
        programs_build_destroy(build);
    } else if (!programs_all_stay_inside(build)) {
        server_reply(server, message->call, CL_INVALID_VALUE, NULL, 0);
        programs_build_destroy(build);
    } else {
        programs_start_build(build);
    }
}

/* Links in the session's thread: the new program's id must be valid for the next message. */
void server_link(struct server *server, const struct msg_link *message)
{
    struct entry *entry = server_add_to(server, message->program, message->context);
    struct build *build = programs_build_create(
        server, entry, message->devices, message->devices_count, message->options, message->call);
    if (!build)
        return;
    if (!programs_add_inputs(build, server_find(server, message->context), message->inputs,
                             message->inputs_count)) {
        entry->error = CL_INVALID_PROGRAM;
        programs_build_destroy(build);
        return;
    }
    cl_int error = CL_SUCCESS;
    entry->real = build->cl->clLinkProgram(
        entry->context, build->device_count, (cl_device_id *)build->devices, build->options,
        build->input_count, (cl_program *)build->inputs, NULL, NULL, &error);
    entry->error = error;
    if (entry->real) {
        build->program = entry->real;
        build->cl->clRetainProgram(build->program);
    }
    programs_answer_build(build, error);
    programs_build_destroy(build);
}

/* The driver's binaries, in the order of its devices. */
static cl_int programs_read_binaries(const struct entry *program, struct pack *pack)
{
    cl_uint count = 0;
    size_t *sizes = NULL;
    unsigned char **binaries = NULL;
    cl_int error = program->cl->clGetProgramInfo(program->real, CL_PROGRAM_NUM_DEVICES,
                                                 sizeof(count), &count, NULL);
    if (error)
        return error;
    sizes = calloc(count + 1, sizeof(*sizes));
    binaries = calloc(count + 1, sizeof(*binaries));
    if (!sizes || !binaries)
        error = CL_OUT_OF_HOST_MEMORY;
    else
        error = program->cl->clGetProgramInfo(program->real, CL_PROGRAM_BINARY_SIZES,
                                              count * sizeof(*sizes), sizes, NULL);
    for (cl_uint i = 0; error == CL_SUCCESS && i < count; i++)
        if (sizes[i] && !(binaries[i] = malloc(sizes[i])))
            error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = program->cl->clGetProgramInfo(program->real, CL_PROGRAM_BINARIES,
                                              count * sizeof(*binaries), binaries, NULL);
    for (cl_uint i = 0; error == CL_SUCCESS && i < count; i++) {
        pack_binary(pack, &(struct msg_binary){.size = sizes[i]});
        pack_bytes(pack, binaries[i], sizes[i]);
    }
    for (cl_uint i = 0; binaries && i < count; i++)
        free(binaries[i]);
    free(binaries);
    free(sizes);
    return pack->failed ? CL_OUT_OF_HOST_MEMORY : error;
}

void server_get_binaries(struct server *server, const struct msg_get_binaries *message)
{
    const struct entry *program = server_find(server, message->program);
    struct pack pack;
    if (!program)
        return;
    pack_init(&pack);
    cl_int error = program->real ? programs_read_binaries(program, &pack) : program->error;
    server_reply(server, message->call, error, pack.bytes, error ? 0 : pack.used);
    pack_finish(&pack);
}
