#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/object/lost.h"
#include "state/program/program_priv.h"
#include "state/recipe/preprocess.h"

const char *program_prologue = "";

/* Attempts at a build that loses its files. With ten faults a second every third build does. */
#define BUILDS_MAX 8

/* A string about the build, to be freed; NULL when the driver has none. */
static char *program_follow_query_build_string(struct residence *residence, cl_program real,
                                               cl_program_build_info name)
{
    size_t size = 0;
    cl_device_id device = residence->device->id;
    if (residence->cl->clGetProgramBuildInfo(real, device, name, 0, NULL, &size) != CL_SUCCESS ||
        size == 0 || size == SIZE_MAX)
        return NULL;
    char *text = calloc(1, size + 1);
    if (text &&
        residence->cl->clGetProgramBuildInfo(real, device, name, size, text, NULL) != CL_SUCCESS) {
        free(text);
        return NULL;
    }
    return text;
}

static void program_follow_query_kernels(struct residence *residence, cl_program real,
                                         struct program_outcome *outcome)
{
    const cl_icd_dispatch *cl = residence->cl;
    size_t size = 0;
    if (device_version(residence->device) < CL_MAKE_VERSION(1, 2, 0) ||
        cl->clGetProgramInfo(real, CL_PROGRAM_NUM_KERNELS, sizeof(outcome->kernel_count),
                             &outcome->kernel_count, NULL) != CL_SUCCESS ||
        cl->clGetProgramInfo(real, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &size) != CL_SUCCESS ||
        size == SIZE_MAX)
        return;
    outcome->kernel_names = calloc(1, size + 1);
    if (outcome->kernel_names && size &&
        cl->clGetProgramInfo(real, CL_PROGRAM_KERNEL_NAMES, size, outcome->kernel_names, NULL) !=
            CL_SUCCESS) {
        free(outcome->kernel_names);
        outcome->kernel_names = NULL;
    }
}

/* A number about the build; unchanged when the driver does not answer. */
static void program_follow_query_build(struct residence *residence, cl_program real,
                                       cl_program_build_info name, size_t size, void *value,
                                       struct program_outcome *outcome)
{
    cl_int error =
        residence->cl->clGetProgramBuildInfo(real, residence->device->id, name, size, value, NULL);
    outcome->doubtful = outcome->doubtful || lost_may_say(error);
}

void program_outcome_query(struct residence *residence, cl_program real,
                           struct program_outcome *outcome)
{
    cl_version version = device_version(residence->device);
    outcome->known = true;
    outcome->status = CL_BUILD_ERROR;
    program_follow_query_build(residence, real, CL_PROGRAM_BUILD_STATUS, sizeof(outcome->status),
                               &outcome->status, outcome);
    outcome->log = program_follow_query_build_string(residence, real, CL_PROGRAM_BUILD_LOG);
    if (outcome->status != CL_BUILD_SUCCESS)
        return;
    outcome->type = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
    outcome->globals = 0;
    if (version >= CL_MAKE_VERSION(1, 2, 0))
        program_follow_query_build(residence, real, CL_PROGRAM_BINARY_TYPE, sizeof(outcome->type),
                                   &outcome->type, outcome);
    if (version >= CL_MAKE_VERSION(2, 0, 0))
        program_follow_query_build(residence, real, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
                                   sizeof(outcome->globals), &outcome->globals, outcome);
    if (outcome->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
        program_follow_query_kernels(residence, real, outcome);
    outcome->doubtful = outcome->doubtful || (outcome->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE &&
                                              !outcome->kernel_names);
}

void program_outcome_finish(struct program_outcome *outcome)
{
    free(outcome->log);
    free(outcome->kernel_names);
    source_facts_free(outcome->facts);
    *outcome = (struct program_outcome){0};
}

static cl_int program_follow_build_with(const struct residence *residence, cl_program real,
                                        const char *options, const struct program_headers *headers)
{
    const cl_icd_dispatch *cl = residence->cl;
    const cl_device_id *device = &residence->device->id;
    if (!headers)
        return cl->clBuildProgram(real, 1, device, options, NULL, NULL);
    if (!cl->clCompileProgram)
        return CL_INVALID_OPERATION;
    bool any = headers->count != 0;
    return cl->clCompileProgram(real, 1, device, options, headers->count,
                                any ? headers->reals : NULL, any ? headers->names : NULL, NULL,
                                NULL);
}

bool recipe_is_refused(cl_int error)
{
    return error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
           error == CL_INVALID_BUILD_OPTIONS || error == CL_INVALID_COMPILER_OPTIONS;
}

cl_int recipe_build_real(const struct recipe *origin, const struct residence *residence,
                         cl_program real, const char *options,
                         const struct program_headers *headers)
{
    static const char tell[] = "-cl-kernel-arg-info";
    if (!origin || origin->kind != RECIPE_SOURCE ||
        device_version(residence->device) < CL_MAKE_VERSION(1, 2, 0) || strstr(options, tell))
        return program_follow_build_with(residence, real, options, headers);
    char *CLEANUP(cleanup_free) longer = NULL;
    /* In front: what the program wrote may end in a way that swallows another word. */
    if (asprintf(&longer, "%s%s%s", tell, *options ? " " : "", options) < 0) {
        longer = NULL;
        return CL_OUT_OF_HOST_MEMORY;
    }
    cl_int error = program_follow_build_with(residence, real, longer, headers);
    if (!recipe_is_refused(error))
        return error;
    error = program_follow_build_with(residence, real, options, headers);
    if (error == CL_SUCCESS)
        log_info("a program builds on %s only without %s: nothing is known of its kernels' "
                 "parameters there",
                 device_name(residence->device), tell);
    return error;
}

cl_int recipe_specialise(const struct residence *residence, cl_program real,
                         const struct recipe_constant *constants, uint32_t count)
{
    cl_int error = CL_SUCCESS;
    if (count && !residence->cl->clSetProgramSpecializationConstant)
        return CL_INVALID_OPERATION;
    for (uint32_t i = 0; error == CL_SUCCESS && i < count; i++)
        error = residence->cl->clSetProgramSpecializationConstant(
            real, constants[i].id, constants[i].size, constants[i].bytes);
    return error;
}

static cl_int program_follow_leaf(const struct recipe *recipe, struct residence *residence,
                                  cl_program *ret_real)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_int error = CL_SUCCESS;
    cl_program real;
    if (recipe->kind == RECIPE_SOURCE) {
        size_t mark = *program_prologue ? text_mark(recipe->bytes, recipe->size) : 0;
        const char *sources[] = {program_prologue, recipe->bytes + mark};
        const size_t sizes[] = {strlen(program_prologue), recipe->size - mark};
        cl_uint first = sizes[0] ? 0 : 1;
        /* An empty string with the length 0 means the same as one that ends at its NUL. */
        real = cl->clCreateProgramWithSource(residence->context, 2 - first, sources + first,
                                             sizes + first, &error);
    } else {
        if (!cl->clCreateProgramWithIL)
            return CL_INVALID_OPERATION;
        real = cl->clCreateProgramWithIL(residence->context, recipe->bytes, recipe->size, &error);
    }
    if (!real)
        return error ? error : CL_OUT_OF_RESOURCES;
    *ret_real = real;
    return CL_SUCCESS;
}

void program_log_line(const char *log, char *ret_line, size_t size)
{
    const char *line = log ? strstr(log, "error") : NULL;
    while (line && line > log && line[-1] != '\n')
        line--;
    line = line ? line : log ? log + strspn(log, " \r\n") : "";
    (void)!snprintf(ret_line, size, "%.*s", (int)strcspn(line, "\r\n"), line);
}

bool program_log_lost_files(const char *log)
{
    return log && strstr(log, "unable to rename temporary '");
}

static void program_follow_outcome_forget(struct program_outcome *outcome)
{
    program_outcome_finish(outcome);
    outcome->status = CL_BUILD_ERROR;
}

/* Write the log of a failed build to our log; the program is released afterwards. */
static void program_follow_tell_failure(const struct recipe *recipe, struct residence *residence,
                                        cl_program real, cl_int error,
                                        struct program_outcome *outcome)
{
    if (real && (recipe_is_refused(error) || error == CL_LINK_PROGRAM_FAILURE)) {
        program_outcome_query(residence, real, outcome);
        outcome->status = CL_BUILD_ERROR;
    }
    log_warn("a program cannot be built on %s (error %d, options \"%s\"): %s",
             residence->device->key.device, error, recipe->options ? recipe->options : "",
             outcome->log ? outcome->log : "no log");
}

/* The real programs that are the inputs of a step, made only for it. */
struct inputs {
    const cl_icd_dispatch *cl;
    cl_program *reals;
    uint32_t count;
};

static void program_follow_inputs_finish(struct inputs *inputs)
{
    for (uint32_t i = 0; i < inputs->count; i++)
        if (inputs->reals[i])
            inputs->cl->clReleaseProgram(inputs->reals[i]);
    free(inputs->reals);
}

static cl_int program_follow_inputs_follow(const struct recipe *recipe, struct residence *residence,
                                           struct inputs *inputs, struct program_outcome *outcome)
{
    cl_int error = CL_SUCCESS;
    inputs->cl = residence->cl;
    inputs->reals = calloc(recipe->input_count, sizeof(cl_program));
    if (!inputs->reals)
        return CL_OUT_OF_HOST_MEMORY;
    inputs->count = recipe->input_count;
    for (uint32_t i = 0; error == CL_SUCCESS && i < inputs->count; i++) {
        error = recipe_follow(recipe->inputs[i], residence, &inputs->reals[i], outcome);
        if (error == CL_SUCCESS)
            program_follow_outcome_forget(outcome);
    }
    return error;
}

/* Do a step that changes its first input instead of making a new program. */
static cl_int program_follow_in_place(const struct recipe *recipe, struct residence *residence,
                                      const struct inputs *inputs)
{
    cl_program real = inputs->reals[0];
    const struct program_headers headers = {inputs->count - 1, inputs->reals + 1,
                                            recipe->names ? (const char **)recipe->names + 1
                                                          : NULL};
    cl_int error = recipe_specialise(residence, real, recipe->constants, recipe->constant_count);
    if (error != CL_SUCCESS)
        return error;
    return recipe_build_real(recipe_origin(recipe), residence, real, recipe->options,
                             recipe->kind == RECIPE_BUILT ? NULL : &headers);
}

static cl_int program_follow_link(const struct recipe *recipe, struct residence *residence,
                                  const struct inputs *inputs, cl_program *ret_real,
                                  struct program_outcome *outcome)
{
    cl_int error = CL_SUCCESS;
    if (!residence->cl->clLinkProgram)
        return CL_INVALID_OPERATION;
    /* To build a compiled program is to link it. Options of a compilation do not count then. */
    const char *options = recipe->kind == RECIPE_LINKED ? recipe->options : "";
    cl_program real =
        residence->cl->clLinkProgram(residence->context, 1, &residence->device->id, options,
                                     inputs->count, inputs->reals, NULL, NULL, &error);
    if (real && error == CL_SUCCESS) {
        *ret_real = real;
        return CL_SUCCESS;
    }
    program_follow_tell_failure(recipe, residence, real, error, outcome);
    if (real)
        residence->cl->clReleaseProgram(real);
    return error ? error : CL_LINK_PROGRAM_FAILURE;
}

/* True for steps that change their first input instead of making a new program. */
static bool program_follow_is_in_place(const struct recipe *recipe)
{
    return recipe->kind != RECIPE_LINKED &&
           (recipe->inputs[0]->kind == RECIPE_SOURCE || recipe->inputs[0]->kind == RECIPE_IL);
}

/* Do such a step. The driver reads the headers where it finds them. */
static cl_int program_follow_source(const struct recipe *recipe, struct residence *residence,
                                    cl_program *ret_real, struct program_outcome *outcome)
{
    struct inputs CLEANUP(program_follow_inputs_finish) inputs = {0};
    cl_int error = program_follow_inputs_follow(recipe, residence, &inputs, outcome);
    if (error != CL_SUCCESS)
        return error;
    error = program_follow_in_place(recipe, residence, &inputs);
    if (error != CL_SUCCESS) {
        program_follow_tell_failure(recipe, residence, inputs.reals[0], error, outcome);
        return error;
    }
    *ret_real = inputs.reals[0];
    inputs.reals[0] = NULL;
    return CL_SUCCESS;
}

/* Build with the headers of the first build. Where the files on disk are still the same, the driver
 * gets exactly the text and options of the first build, so that it finds that build in its cache.
 */
static cl_int program_follow_with_headers(const struct recipe *recipe, struct residence *residence,
                                          cl_program *ret_real, struct program_outcome *outcome)
{
    struct staged staged;
    if (recipe_headers_hold(recipe)) {
        cl_program real = NULL;
        cl_int error = program_follow_source(recipe, residence, &real, outcome);
        if (recipe_headers_hold(recipe)) {
            if (error == CL_SUCCESS)
                *ret_real = real;
            return error;
        }
        if (real)
            residence->cl->clReleaseProgram(real);
        program_follow_outcome_forget(outcome);
    }
    log_info("the headers of a program are not what they were: it is built from those it had");
    int err = headers_stage(recipe, &staged);
    if (err)
        return program_error(err);
    cl_int error = program_follow_source(staged.recipe, residence, ret_real, outcome);
    headers_unstage(&staged);
    return error;
}

/* Follow a recipe without the library. */
static cl_int program_follow_steps(const struct recipe *recipe, struct residence *residence,
                                   cl_program *ret_real, struct program_outcome *outcome)
{
    struct inputs CLEANUP(program_follow_inputs_finish) inputs = {0};
    if (recipe_is_of_source(recipe))
        return program_follow_with_headers(recipe, residence, ret_real, outcome);
    if (program_follow_is_in_place(recipe))
        return program_follow_source(recipe, residence, ret_real, outcome);
    cl_int error = program_follow_inputs_follow(recipe, residence, &inputs, outcome);
    if (error != CL_SUCCESS)
        return error;
    return program_follow_link(recipe, residence, &inputs, ret_real, outcome);
}

static cl_int program_follow(const struct recipe *recipe, struct residence *residence,
                             cl_program *ret_real, struct program_outcome *outcome)
{
    struct program_outcome CLEANUP(program_outcome_finish) own = {0};
    struct program_lookup lookup;
    if (recipe->kind == RECIPE_SOURCE || recipe->kind == RECIPE_IL)
        return program_follow_leaf(recipe, residence, ret_real);
    if (recipe_executed(recipe) != recipe)
        return recipe_follow(recipe_executed(recipe), residence, ret_real, outcome);
    outcome = outcome ? outcome : &own;
    if (program_library_load(recipe, residence, ret_real, outcome, &lookup))
        return CL_SUCCESS;
    cl_int error = program_follow_steps(recipe, residence, ret_real, outcome);
    for (unsigned builds = 1;
         builds < BUILDS_MAX && error != CL_SUCCESS && program_log_lost_files(outcome->log);
         builds++) {
        program_follow_outcome_forget(outcome);
        error = program_follow_steps(recipe, residence, ret_real, outcome);
    }
    if (error != CL_SUCCESS || !lookup.keep)
        return error;
    program_outcome_query(residence, *ret_real, outcome);
    program_library_keep(&lookup, recipe, residence, *ret_real, outcome);
    return CL_SUCCESS;
}

cl_int recipe_follow(const struct recipe *recipe, struct residence *residence, cl_program *ret_real,
                     struct program_outcome *outcome)
{
    uint64_t begun = span_begin();
    cl_int error = program_follow(recipe, residence, ret_real, outcome);
    if (recipe->kind != RECIPE_SOURCE && recipe->kind != RECIPE_IL)
        span_end(begun, "build", "build", "failed", error != CL_SUCCESS);
    return error;
}
