#include <stdlib.h>
#include <string.h>

#include "tests/emu/keep.h"

/* A source and options that were built for a device, and what the driver made of them. */
struct kept {
    struct kept *next;
    cl_device_id device;
    char *source, *options;
    unsigned char *binary;
    size_t size;
};

static struct kept *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_text(char **text)
{
    free(*text);
}

char *emu_keep_source(const struct emu_program *program)
{
    cl_program real = program->origin != NULL ? program->origin : program->object.real;
    size_t size = 0;
    char *source = NULL;
    if (emu_driver->clGetProgramInfo(real, CL_PROGRAM_SOURCE, 0, NULL, &size) == CL_SUCCESS)
        source = calloc(1, size + 1);
    if (source != NULL)
        emu_driver->clGetProgramInfo(real, CL_PROGRAM_SOURCE, size, source, NULL);
    return source;
}

/* What a source says is not all of it where it includes files. */
static bool can_keep(const char *source)
{
    return source != NULL && source[0] != '\0' && strstr(source, "#include") == NULL;
}

static const struct kept *find(cl_device_id device, const char *source, const char *options)
{
    pthread_mutex_lock(&kept_lock);
    const struct kept *at = kept;
    while (at != NULL && (at->device != device || strcmp(at->source, source) != 0 ||
                          strcmp(at->options, options) != 0))
        at = at->next;
    pthread_mutex_unlock(&kept_lock);
    return at;
}

/* Nothing that a program made of the binary would say differently: a log, variables. */
static bool says_all(cl_program program, cl_device_id device)
{
    char log[8] = "";
    size_t size = 0, variables = 0;
    emu_driver->clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    if (size > sizeof(log) ||
        emu_driver->clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log), log,
                                          NULL) != CL_SUCCESS)
        return false;
    emu_driver->clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                                      sizeof(variables), &variables, NULL);
    return log[0] == '\0' && variables == 0;
}

static void keep(cl_program program, cl_device_id device, const char *source, const char *options)
{
    struct kept *new = calloc(1, sizeof(*new));
    if (new != NULL && says_all(program, device) &&
        emu_driver->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(new->size),
                                     &new->size, NULL) == CL_SUCCESS &&new->size != 0) {
        new->device = device;
        new->source = strdup(source);
        new->options = strdup(options);
        new->binary = malloc(new->size);
        if (new->source != NULL &&new->options != NULL &&new->binary != NULL &&
            emu_driver->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(new->binary),
                                         &new->binary, NULL) == CL_SUCCESS) {
            pthread_mutex_lock(&kept_lock);
            new->next = kept;
            kept = new;
            pthread_mutex_unlock(&kept_lock);
            return;
        }
        free(new->source);
        free(new->options);
        free(new->binary);
    }
    free(new);
}

/* The driver's program made of what was kept, built; NULL when that fails. */
static cl_program rebuild(const struct kept *from, cl_context context, const char *options)
{
    const unsigned char *binary = from->binary;
    cl_int status = CL_SUCCESS, err = CL_SUCCESS;
    cl_program program = emu_driver->clCreateProgramWithBinary(context, 1, &from->device,
                                                               &from->size, &binary, &status, &err);
    if (program == NULL)
        return NULL;
    if (emu_driver->clBuildProgram(program, 1, &from->device, options, NULL, NULL) == CL_SUCCESS)
        return program;
    emu_driver->clReleaseProgram(program);
    return NULL;
}

cl_int emu_keep_undo(struct emu_program *program)
{
    if (program->origin == NULL)
        return CL_SUCCESS;
    if (atomic_load(&program->object.holds) > 1)
        return CL_INVALID_OPERATION; /* it has kernels */
    emu_driver->clReleaseProgram(program->object.real);
    program->object.real = program->origin;
    program->origin = NULL;
    return CL_SUCCESS;
}

cl_int emu_keep_build(struct emu_program *program, cl_uint count, const cl_device_id *devices,
                      const char *options)
{
    const char *said = options != NULL ? options : "";
    CLEANUP(free_text) char *source = NULL;
    if (count != 1 || program->built || !can_keep(source = emu_keep_source(program))) {
        cl_int undone = emu_keep_undo(program);
        if (undone != CL_SUCCESS)
            return undone;
        return emu_driver->clBuildProgram(program->object.real, count, devices, options, NULL,
                                          NULL);
    }
    program->built = true;
    const struct kept *from = find(devices[0], source, said);
    cl_program made =
        from != NULL ? rebuild(from, program->object.context->object.real, options) : NULL;
    if (made != NULL) {
        program->origin = program->object.real;
        program->object.real = made;
        return CL_SUCCESS;
    }
    cl_int err =
        emu_driver->clBuildProgram(program->object.real, count, devices, options, NULL, NULL);
    if (err == CL_SUCCESS && from == NULL)
        keep(program->object.real, devices[0], source, said);
    return err;
}
