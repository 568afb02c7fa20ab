#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu_entries.h"
#include "tests/emu/keep.h"
#include "tests/emu/object.h"

#define BUILD_LOG "emulated device: the configuration makes this build fail"
#define LOST_LOG                                                                                   \
    "error: <invalid loc>: unable to rename temporary 'a.cl.tmp' to output file 'a.cl': "          \
    "'No such file or directory'\nDevice emulated failed to build the program"

typedef void(CL_CALLBACK *program_notify)(cl_program program, void *user_data);

/** The driver's devices for a list of ours, each once, and where each of ours went. */
struct device_map {
    cl_device_id real[EMU_DEVICES_MAX];
    cl_uint at[EMU_DEVICES_MAX];
    cl_uint count;
};

static void free_text(char **text)
{
    free(*text);
}

static struct emu_program *program_of(cl_program program)
{
    return (struct emu_program *)program;
}

static void device_map_init(struct device_map *map, struct emu_device *const *devices,
                            cl_uint count)
{
    map->count = 0;
    for (cl_uint i = 0; i < count; i++) {
        cl_device_id real = devices[i]->object.real;
        cl_uint at = 0;
        while (at < map->count && map->real[at] != real)
            at++;
        map->real[at] = real;
        map->at[i] = at;
        if (at == map->count)
            map->count++;
    }
}

/* The devices that a call names, or the program's when it names none. */
static cl_int devices_of(const struct emu_program *program, cl_uint num_devices,
                         const cl_device_id *device_list, struct emu_device **ret_devices,
                         cl_uint *ret_count)
{
    if (num_devices > EMU_DEVICES_MAX)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_devices; i++)
        ret_devices[i] = emu_device_of(device_list[i]);
    if (num_devices == 0 && program != NULL)
        memcpy(ret_devices, program->devices, sizeof(program->devices));
    *ret_count = num_devices == 0 && program != NULL ? program->device_count : num_devices;
    return CL_SUCCESS;
}

/* True when @source uses double without first asking whether there is any. */
static bool needs_fp64(const char *source)
{
    if (strstr(source, "ifdef cl_khr_fp64") != NULL ||
        strstr(source, "defined(cl_khr_fp64)") != NULL)
        return false;
    for (const char *at = strstr(source, "double"); at != NULL; at = strstr(at + 1, "double")) {
        bool starts = at == source || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');
        if (starts && !isalpha((unsigned char)at[strlen("double")]))
            return true;
    }
    return false;
}

/* Has it a kernel without parameters, and does it print? */
static bool prints_without_parameters(const char *source)
{
    if (strstr(source, "printf") == NULL)
        return false;
    for (const char *at = strstr(source, "kernel"); at != NULL; at = strstr(at, "kernel")) {
        at += strcspn(at, "({;");
        if (strncmp(at, "()", 2) == 0 || strncmp(at, "(void)", strlen("(void)")) == 0)
            return true;
    }
    return false;
}

/* Nothing of this process's is kept open by them. */
static bool start_processes(uint64_t count)
{
    for (; count > 0; count--) {
        pid_t pid = fork();
        if (pid < 0)
            return false;
        if (pid == 0) {
            close_range(0, ~0U, 0);
            for (;;)
                pause();
        }
    }
    return true;
}

/* Take the time that a build takes; fail if the configuration says that this one fails. */
static cl_int build_emulate(struct emu_program *program, struct emu_device *const *devices,
                            cl_uint count, const char *options, cl_int failure)
{
    bool asks = options != NULL && strstr(options, "-cl-kernel-arg-info") != NULL;
    atomic_store(&program->asks, asks);
    CLEANUP(free_text) char *source = emu_keep_source(program);
    const char *text = source != NULL ? source : "";
    cl_int err = CL_SUCCESS;
    atomic_store(&program->log, BUILD_LOG);
    for (cl_uint i = 0; i < count; i++) {
        const struct emu_config *config = &devices[i]->config;
        /* A binary has no source. */
        if (config->no_compiler && text[0] != '\0')
            return CL_COMPILER_NOT_AVAILABLE;
        emu_sleep_ms(config->build_ms);
        if (!start_processes(config->build_starts))
            return CL_OUT_OF_HOST_MEMORY;
        if ((config->build_fails[0] != '\0' && emu_config_matches(config->build_fails, text)) ||
            (config->no_fp64 && needs_fp64(text)) ||
            (config->arg_info_fails && asks && prints_without_parameters(text)))
            err = failure;
        if (atomic_load(&devices[i]->builds_lost) < config->build_loses) {
            atomic_fetch_add(&devices[i]->builds_lost, 1);
            atomic_store(&program->log, LOST_LOG);
            err = failure;
        }
    }
    return err;
}

/* The call is over: remember an emulated failure, and tell the program, which asked to hear. */
static cl_int build_end(cl_program handle, cl_int err, bool emulated, program_notify notify,
                        void *data)
{
    atomic_store(&program_of(handle)->build_error, emulated ? err : CL_SUCCESS);
    bool began =
        err == CL_SUCCESS || err == CL_BUILD_PROGRAM_FAILURE || err == CL_COMPILE_PROGRAM_FAILURE;
    if (notify != NULL && began)
        notify(handle, data);
    return err;
}

cl_int emu_do_clBuildProgram(struct emu_device *device, cl_program program, cl_uint num_devices,
                             const cl_device_id *device_list, const char *options,
                             program_notify pfn_notify, void *user_data)
{
    struct emu_device *devices[EMU_DEVICES_MAX];
    struct device_map map;
    cl_uint count;
    (void)device;
    if (pfn_notify == NULL && user_data != NULL)
        return CL_INVALID_VALUE;
    cl_int err = devices_of(program_of(program), num_devices, device_list, devices, &count);
    if (err != CL_SUCCESS)
        return err;
    device_map_init(&map, devices, count);
    err = build_emulate(program_of(program), devices, count, options, CL_BUILD_PROGRAM_FAILURE);
    bool emulated = err != CL_SUCCESS;
    /* The driver builds while we wait; its callback would only bring its own handle. */
    if (!emulated)
        err = emu_keep_build(program_of(program),
                             &(struct emu_keep_call){.count = map.count,
                                                     .devices = map.real,
                                                     .options = options,
                                                     .maker = devices[0]->config.section});
    return build_end(program, err, emulated, pfn_notify, user_data);
}

cl_int emu_do_clCompileProgram(struct emu_device *device, cl_program program, cl_uint num_devices,
                               const cl_device_id *device_list, const char *options,
                               cl_uint num_input_headers, const cl_program *input_headers,
                               const char **header_include_names, program_notify pfn_notify,
                               void *user_data)
{
    struct emu_device *devices[EMU_DEVICES_MAX];
    struct device_map map;
    struct emu_list headers CLEANUP(emu_list_finish);
    cl_uint count;
    (void)device;
    cl_int err = emu_list_init(&headers, num_input_headers, input_headers, EMU_PROGRAM);
    if (err == CL_SUCCESS && pfn_notify == NULL && user_data != NULL)
        err = CL_INVALID_VALUE;
    if (err == CL_SUCCESS)
        err = devices_of(program_of(program), num_devices, device_list, devices, &count);
    if (err != CL_SUCCESS)
        return err;
    device_map_init(&map, devices, count);
    err = build_emulate(program_of(program), devices, count, options, CL_COMPILE_PROGRAM_FAILURE);
    bool emulated = err != CL_SUCCESS;
    if (!emulated)
        err = emu_keep_build(
            program_of(program),
            &(struct emu_keep_call){.compiles = true,
                                    .count = map.count,
                                    .devices = map.real,
                                    .options = options,
                                    .maker = devices[0]->config.section,
                                    .header_count = num_input_headers,
                                    .headers = (const cl_program *)(const void *)headers.real,
                                    .names = header_include_names});
    return build_end(program, err, emulated, pfn_notify, user_data);
}

/* A new program for the named devices (all of the context's when none are). */
static struct emu_program *program_new(struct emu_device *device, cl_context context,
                                       cl_uint num_devices, const cl_device_id *device_list,
                                       struct device_map *ret_map, cl_int *err)
{
    struct emu_program *program = NULL;
    if (num_devices > EMU_DEVICES_MAX) {
        *err = CL_INVALID_VALUE;
        return NULL;
    }
    program = (struct emu_program *)emu_object_new(EMU_PROGRAM, device, emu_object_of(context));
    if (program == NULL) {
        *err = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    *err = devices_of(program, num_devices, device_list, program->devices, &program->device_count);
    device_map_init(ret_map, program->devices, program->device_count);
    return program;
}

cl_program emu_do_clLinkProgram(struct emu_device *device, cl_context context, cl_uint num_devices,
                                const cl_device_id *device_list, const char *options,
                                cl_uint num_input_programs, const cl_program *input_programs,
                                program_notify pfn_notify, void *user_data, cl_int *errcode_ret)
{
    struct device_map map;
    struct emu_list inputs CLEANUP(emu_list_finish);
    *errcode_ret = emu_list_init(&inputs, num_input_programs, input_programs, EMU_PROGRAM);
    if (*errcode_ret != CL_SUCCESS)
        return NULL;
    struct emu_program *program =
        program_new(device, context, num_devices, device_list, &map, errcode_ret);
    if (program == NULL)
        return NULL;
    for (cl_uint i = 0; i < num_input_programs && *errcode_ret == CL_SUCCESS; i++)
        *errcode_ret = build_emulate(program_of(input_programs[i]), program->devices,
                                     program->device_count, NULL, CL_LINK_PROGRAM_FAILURE);
    if (*errcode_ret == CL_SUCCESS)
        program->object.real = emu_driver->clLinkProgram(
            emu_real_of(context), map.count, map.real, options, num_input_programs,
            (const cl_program *)(const void *)inputs.real, NULL, NULL, errcode_ret);
    cl_program handle = emu_object_publish(&program->object, errcode_ret);
    if (handle != NULL && pfn_notify != NULL)
        pfn_notify(handle, user_data);
    return handle;
}

/* ---- large binaries ---- */

/* A binary of a device with a `binary_size`: the wrapped driver's, noise, and how long the former
   is. One that is too long for that is as it is. */
#define LENGTH_SIZE sizeof(uint64_t)

static size_t padded_size(const struct emu_device *device, size_t size)
{
    size_t wanted = (size_t)device->config.binary_size;
    return wanted >= size + LENGTH_SIZE ? wanted : size;
}

static unsigned char noise(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned char)(*state >> 24);
}

static void pad(unsigned char *binary, size_t size, size_t padded)
{
    uint64_t state = 0x9e3779b97f4a7c15u ^ size, length = size;
    for (size_t i = size; i < padded - LENGTH_SIZE; i++)
        binary[i] = noise(&state);
    memcpy(binary + padded - LENGTH_SIZE, &length, LENGTH_SIZE);
}

/* False: a bit of the noise is another one. */
static bool unpad(const struct emu_device *device, const unsigned char *binary, size_t *size)
{
    uint64_t length;
    if (*size < LENGTH_SIZE || *size != device->config.binary_size)
        return true;
    memcpy(&length, binary + *size - LENGTH_SIZE, LENGTH_SIZE);
    uint64_t state = 0x9e3779b97f4a7c15u ^ length;
    if (length > *size - LENGTH_SIZE)
        return false;
    for (size_t i = (size_t)length; i < *size - LENGTH_SIZE; i++)
        if (binary[i] != noise(&state))
            return false;
    *size = (size_t)length;
    return true;
}

cl_program emu_do_clCreateProgramWithBinary(struct emu_device *device, cl_context context,
                                            cl_uint num_devices, const cl_device_id *device_list,
                                            const size_t *lengths, const unsigned char **binaries,
                                            cl_int *binary_status, cl_int *errcode_ret)
{
    struct device_map map;
    size_t real_lengths[EMU_DEVICES_MAX];
    const unsigned char *real_binaries[EMU_DEVICES_MAX];
    cl_int real_status[EMU_DEVICES_MAX] = {0};
    if (num_devices == 0 || device_list == NULL || lengths == NULL || binaries == NULL) {
        *errcode_ret = CL_INVALID_VALUE;
        return NULL;
    }
    struct emu_program *program =
        program_new(device, context, num_devices, device_list, &map, errcode_ret);
    if (program == NULL)
        return NULL;
    for (cl_uint i = 0; i < num_devices; i++) {
        real_lengths[map.at[i]] = lengths[i];
        real_binaries[map.at[i]] = binaries[i];
        if (binaries[i] != NULL &&
            !unpad(program->devices[i], binaries[i], &real_lengths[map.at[i]])) {
            real_status[map.at[i]] = CL_INVALID_BINARY;
            *errcode_ret = CL_INVALID_BINARY;
        }
    }
    if (*errcode_ret == CL_SUCCESS)
        program->object.real = emu_driver->clCreateProgramWithBinary(
            emu_real_of(context), map.count, map.real, real_lengths, real_binaries, real_status,
            errcode_ret);
    for (cl_uint i = 0; i < num_devices && binary_status != NULL; i++)
        binary_status[i] = real_status[map.at[i]];
    return emu_object_publish(&program->object, errcode_ret);
}

cl_program emu_do_clCreateProgramWithBuiltInKernels(struct emu_device *device, cl_context context,
                                                    cl_uint num_devices,
                                                    const cl_device_id *device_list,
                                                    const char *kernel_names, cl_int *errcode_ret)
{
    struct device_map map;
    struct emu_program *program =
        program_new(device, context, num_devices, device_list, &map, errcode_ret);
    if (program == NULL)
        return NULL;
    program->object.real = emu_driver->clCreateProgramWithBuiltInKernels(
        emu_real_of(context), map.count, map.real, kernel_names, errcode_ret);
    return emu_object_publish(&program->object, errcode_ret);
}

/* Where each of the program's devices is in the driver's list of them. */
static cl_int real_positions(const struct emu_program *program, cl_uint *ret_at,
                             cl_uint *ret_real_count)
{
    cl_device_id real[EMU_DEVICES_MAX];
    size_t size = 0;
    cl_int err = emu_driver->clGetProgramInfo(program->object.real, CL_PROGRAM_DEVICES,
                                              sizeof(real), real, &size);
    if (err != CL_SUCCESS)
        return err;
    cl_uint count = (cl_uint)(size / sizeof(real[0]));
    for (cl_uint i = 0; i < program->device_count; i++) {
        ret_at[i] = 0;
        while (ret_at[i] < count && real[ret_at[i]] != program->devices[i]->object.real)
            ret_at[i]++;
        if (ret_at[i] == count)
            return CL_INVALID_DEVICE;
    }
    *ret_real_count = count;
    return CL_SUCCESS;
}

static cl_int binary_info(const struct emu_program *program, cl_program_info param_name,
                          size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    size_t sizes[EMU_DEVICES_MAX], real_sizes[EMU_DEVICES_MAX];
    unsigned char *real_binaries[EMU_DEVICES_MAX] = {NULL};
    unsigned char **binaries = param_value;
    cl_uint at[EMU_DEVICES_MAX], real_count = 0;
    cl_uint count = program->device_count;
    void *real = program->object.real;
    cl_int err = real_positions(program, at, &real_count);
    if (err == CL_SUCCESS)
        err = emu_driver->clGetProgramInfo(real, CL_PROGRAM_BINARY_SIZES, sizeof(real_sizes),
                                           real_sizes, NULL);
    if (err != CL_SUCCESS)
        return err;
    for (cl_uint i = 0; i < count; i++)
        sizes[i] = padded_size(program->devices[i], real_sizes[at[i]]);
    if (param_name == CL_PROGRAM_BINARY_SIZES)
        return emu_info(sizes, count * sizeof(sizes[0]), param_value_size, param_value,
                        param_value_size_ret);
    if (param_value != NULL && param_value_size < count * sizeof(binaries[0]))
        return CL_INVALID_VALUE;
    if (param_value_size_ret != NULL)
        *param_value_size_ret = count * sizeof(binaries[0]);
    if (param_value == NULL)
        return CL_SUCCESS;
    for (cl_uint i = 0; i < count; i++)
        if (binaries[i] != NULL)
            real_binaries[at[i]] = binaries[i];
    err = emu_driver->clGetProgramInfo(real, CL_PROGRAM_BINARIES,
                                       real_count * sizeof(real_binaries[0]), real_binaries, NULL);
    for (cl_uint i = 0; i < count && err == CL_SUCCESS; i++)
        if (binaries[i] != NULL && binaries[i] != real_binaries[at[i]])
            memcpy(binaries[i], real_binaries[at[i]], real_sizes[at[i]]);
    for (cl_uint i = 0; i < count && err == CL_SUCCESS; i++)
        if (binaries[i] != NULL && sizes[i] > real_sizes[at[i]])
            pad(binaries[i], real_sizes[at[i]], sizes[i]);
    return err;
}

cl_int emu_do_clGetProgramInfo(struct emu_device *device, cl_program handle,
                               cl_program_info param_name, size_t param_value_size,
                               void *param_value, size_t *param_value_size_ret)
{
    struct emu_program *program = program_of(handle);
    (void)device;
    switch (param_name) {
    case CL_PROGRAM_REFERENCE_COUNT:
        return emu_info_refs(&program->object, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_CONTEXT:
        return emu_info_handle(program->object.context, param_value_size, param_value,
                               param_value_size_ret);
    case CL_PROGRAM_NUM_DEVICES:
        return emu_info(&program->device_count, sizeof(program->device_count), param_value_size,
                        param_value, param_value_size_ret);
    case CL_PROGRAM_DEVICES:
        return emu_info(program->devices, program->device_count * sizeof(program->devices[0]),
                        param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_BINARY_SIZES:
    case CL_PROGRAM_BINARIES:
        return binary_info(program, param_name, param_value_size, param_value,
                           param_value_size_ret);
    case CL_PROGRAM_SOURCE:
        return emu_driver->clGetProgramInfo(
            program->origin != NULL ? program->origin : program->object.real, param_name,
            param_value_size, param_value, param_value_size_ret);
    default:
        return emu_driver->clGetProgramInfo(program->object.real, param_name, param_value_size,
                                            param_value, param_value_size_ret);
    }
}

cl_int emu_do_clGetProgramBuildInfo(struct emu_device *reached, cl_program program,
                                    cl_device_id device, cl_program_build_info param_name,
                                    size_t param_value_size, void *param_value,
                                    size_t *param_value_size_ret)
{
    (void)reached;
    cl_build_status status = CL_BUILD_ERROR;
    bool failed = atomic_load(&program_of(program)->build_error) != CL_SUCCESS;
    if (failed && param_name == CL_PROGRAM_BUILD_STATUS)
        return emu_info(&status, sizeof(status), param_value_size, param_value,
                        param_value_size_ret);
    /* A binary of a compiled object is not built. */
    status = CL_BUILD_SUCCESS;
    if (!failed && program_of(program)->origin != NULL && param_name == CL_PROGRAM_BUILD_STATUS)
        return emu_info(&status, sizeof(status), param_value_size, param_value,
                        param_value_size_ret);
    const char *options = program_of(program)->options;
    if (options != NULL && param_name == CL_PROGRAM_BUILD_OPTIONS)
        return emu_info(options, strlen(options) + 1, param_value_size, param_value,
                        param_value_size_ret);
    if (failed && param_name == CL_PROGRAM_BUILD_LOG) {
        const char *log = atomic_load(&program_of(program)->log);
        return emu_info(log, strlen(log) + 1, param_value_size, param_value, param_value_size_ret);
    }
    return emu_driver->clGetProgramBuildInfo(emu_real_of(program), emu_real_of(device), param_name,
                                             param_value_size, param_value, param_value_size_ret);
}

cl_int emu_do_clSetProgramReleaseCallback(struct emu_device *device, cl_program program,
                                          program_notify pfn_notify, void *user_data)
{
    (void)device;
    return emu_object_on_destroy(emu_object_of(program), (void (*)(void))pfn_notify, user_data);
}
