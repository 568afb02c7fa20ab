#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/keep.h"

/* What the driver made of a source for a device. Its binary is taken when it is made for the fourth
 * time: POCL takes 256 MiB to write a binary in, several times, which costs more than a program
 * that is built a few times. */
#define TAKEN_AT 4

struct kept {
    struct kept *next;
    cl_device_id device;
    char *key;             /* how it was made, of what */
    unsigned times;        /* how often, up to TAKEN_AT */
    unsigned char *binary; /* NULL: not taken yet, or it would not say all */
    size_t size;
};

static struct kept *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_text(char **text)
{
    free(*text);
}

static char *source_of(cl_program real)
{
    size_t size = 0;
    char *source = NULL;
    if (emu_driver->clGetProgramInfo(real, CL_PROGRAM_SOURCE, 0, NULL, &size) == CL_SUCCESS)
        source = calloc(1, size + 1);
    if (source != NULL)
        emu_driver->clGetProgramInfo(real, CL_PROGRAM_SOURCE, size, source, NULL);
    return source;
}

char *emu_keep_source(const struct emu_program *program)
{
    return source_of(program->origin != NULL ? program->origin : program->object.real);
}

/* Nothing that @text includes comes from elsewhere than @call. */
static bool is_whole(const char *text, const struct emu_keep_call *call)
{
    for (const char *at = strstr(text, "#include"); at != NULL; at = strstr(at + 1, "#include")) {
        const char *begin = strchr(at, '"');
        const char *end = begin != NULL ? strchr(begin + 1, '"') : NULL;
        bool known = false;
        for (cl_uint i = 0; end != NULL && i < call->header_count; i++) {
            size_t length = strlen(call->names[i]);
            known = known || (length == (size_t)(end - begin - 1) &&
                              strncmp(call->names[i], begin + 1, length) == 0);
        }
        if (!known)
            return false;
    }
    return true;
}

static char *options_of(const struct emu_keep_call *call)
{
    char *options;
    return asprintf(&options, "%s -D EMU_MAKER_%s", call->options != NULL ? call->options : "",
                    call->maker) >= 0
               ? options
               : NULL;
}

/* All that the result depends on; NULL: that is not known. */
static char *key_of(const struct emu_program *program, const struct emu_keep_call *call,
                    const char *options)
{
    char *key = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&key, &size);
    CLEANUP(free_text) char *source = emu_keep_source(program);
    bool whole = file != NULL && source != NULL && source[0] != '\0' && is_whole(source, call);
    if (file == NULL)
        return NULL;
    fprintf(file, "%s %s\n", call->compiles ? "compile" : "build", options);
    for (cl_uint i = 0; whole && i < call->header_count; i++) {
        CLEANUP(free_text) char *header = source_of(call->headers[i]);
        whole = header != NULL && is_whole(header, call);
        fprintf(file, "%s\n%s\n", call->names[i], whole ? header : "");
    }
    fputs(whole ? source : "", file);
    if (fclose(file) != 0 || !whole) {
        free(key);
        return NULL;
    }
    return key;
}

/* @key is taken, or freed. NULL: no memory. */
static struct kept *find(cl_device_id device, char *key)
{
    pthread_mutex_lock(&kept_lock);
    struct kept *at = kept;
    while (at != NULL && (at->device != device || strcmp(at->key, key) != 0))
        at = at->next;
    if (at != NULL) {
        free(key);
    } else if ((at = calloc(1, sizeof(*at))) != NULL) {
        *at = (struct kept){.next = kept, .device = device, .key = key};
        kept = at;
    } else {
        free(key);
    }
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

/* What the driver made, as a binary; NULL: it would not say all, or the driver does not give it. */
static unsigned char *binary_of(cl_program program, cl_device_id device, size_t *ret_size)
{
    if (!says_all(program, device) ||
        emu_driver->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(*ret_size), ret_size,
                                     NULL) != CL_SUCCESS ||
        *ret_size == 0)
        return NULL;
    unsigned char *binary = malloc(*ret_size);
    if (binary != NULL && emu_driver->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary),
                                                       &binary, NULL) == CL_SUCCESS)
        return binary;
    free(binary);
    return NULL;
}

/* The driver has made it of source once more. */
static void keep(struct kept *from, cl_program program)
{
    size_t size = 0;
    unsigned char *binary = NULL;
    pthread_mutex_lock(&kept_lock);
    bool take = from->times < TAKEN_AT && ++from->times == TAKEN_AT;
    pthread_mutex_unlock(&kept_lock);
    if (take)
        binary = binary_of(program, from->device, &size);
    if (binary == NULL)
        return;
    pthread_mutex_lock(&kept_lock);
    from->size = size;
    from->binary = binary;
    pthread_mutex_unlock(&kept_lock);
}

static bool has_binary(const struct kept *from)
{
    pthread_mutex_lock(&kept_lock);
    bool has = from->binary != NULL;
    pthread_mutex_unlock(&kept_lock);
    return has;
}

/* The driver's program made of what was kept; NULL when that fails. */
static cl_program make(const struct kept *from, cl_context context,
                       const struct emu_keep_call *call, const char *options)
{
    const unsigned char *binary = from->binary;
    cl_int status = CL_SUCCESS, err = CL_SUCCESS;
    cl_program program = emu_driver->clCreateProgramWithBinary(context, 1, &from->device,
                                                               &from->size, &binary, &status, &err);
    if (program == NULL || call->compiles)
        return program;
    if (emu_driver->clBuildProgram(program, 1, &from->device, options, NULL, NULL) == CL_SUCCESS)
        return program;
    emu_driver->clReleaseProgram(program);
    return NULL;
}

static cl_int ask_driver(cl_program real, const struct emu_keep_call *call, const char *options)
{
    if (!call->compiles)
        return emu_driver->clBuildProgram(real, call->count, call->devices, options, NULL, NULL);
    return emu_driver->clCompileProgram(real, call->count, call->devices, options,
                                        call->header_count,
                                        call->header_count ? call->headers : NULL,
                                        call->header_count ? call->names : NULL, NULL, NULL);
}

/* It is to be built in another way, of its source again. */
static cl_int undo(struct emu_program *program)
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

static bool note_options(struct emu_program *program, const char *options)
{
    free(program->options);
    program->options = strdup(options != NULL ? options : "");
    return program->options != NULL;
}

cl_int emu_keep_build(struct emu_program *program, const struct emu_keep_call *call)
{
    CLEANUP(free_text) char *options = options_of(call);
    char *key = NULL;
    cl_int err = undo(program);
    if (err != CL_SUCCESS)
        return err;
    if (options == NULL || !note_options(program, call->options))
        return CL_OUT_OF_HOST_MEMORY;
    if (call->count == 1 && !program->built)
        key = key_of(program, call, options);
    program->built = true;
    /* POCL's 256 MiB for a binary, and 2 MiB for each file that it reads, would all be filled. */
    const char *perturbs = getenv("MALLOC_PERTURB_");
    mallopt(M_PERTURB, 0);
    struct kept *from = key != NULL ? find(call->devices[0], key) : NULL;
    cl_context context = program->object.context->object.real;
    cl_program made = from != NULL && has_binary(from) ? make(from, context, call, options) : NULL;
    if (made != NULL) {
        program->origin = program->object.real;
        program->object.real = made;
    } else {
        err = ask_driver(program->object.real, call, options);
        if (err == CL_SUCCESS && from != NULL)
            keep(from, program->object.real);
    }
    mallopt(M_PERTURB, perturbs != NULL ? atoi(perturbs) : 0);
    return err;
}
