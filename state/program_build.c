#include <stdlib.h>
#include <string.h>

#include "state/kernel.h"
#include "state/log.h"
#include "state/program_priv.h"
#include "state/usage.h"

/* One build or compilation that the program asked for. */
struct build {
    struct program *program;
    uint32_t seats;
    const char *options;
    const struct program_list *headers; /* NULL: a build */
    struct recipe *recipe;              /* what it is, if it succeeds; a reference */
    cl_program replaced[SEATS];         /* by the real programs of a link, one a site */
};

static bool succeeded(const struct program_outcome *outcome)
{
    return outcome->error == CL_SUCCESS && outcome->status == CL_BUILD_SUCCESS;
}

/* 5.8.3: kernels that the program still has a handle to; the count alone includes those that are
 * only kept by a held launch or a mover. */
static bool has_kernels(struct program *program)
{
    bool found = false;
    uintptr_t cursor = 0;
    struct kernel *kernel;
    if (atomic_load(&program->kernels) == 0)
        return false;
    while (!found && (kernel = object_next(OBJECT_KERNEL, &cursor))) {
        found = kernel->program == program && object_refs(kernel) > 0;
        object_unhold(kernel);
    }
    return found;
}

static void in_progress(struct program *program, uint32_t seats)
{
    pthread_mutex_lock(&program->lock);
    for (unsigned i = 0; i < SEATS; i++)
        if (seats & (1u << i))
            program->details->seat[i].status = CL_BUILD_IN_PROGRESS;
    pthread_mutex_unlock(&program->lock);
}

static cl_int list_recipes(const struct program_list *list, bool bases,
                           struct recipe ***ret_recipes)
{
    struct recipe **recipes = calloc(list->count ? list->count : 1, sizeof(struct recipe *));
    if (!recipes)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < list->count; i++) {
        struct program *program = list->programs[i];
        pthread_mutex_lock(&program->lock);
        struct recipe *recipe = bases ? program->details->base : program->recipe;
        recipes[i] = recipe ? recipe_ref(recipe) : NULL;
        pthread_mutex_unlock(&program->lock);
        if (!recipes[i]) {
            while (i > 0)
                recipe_unref(recipes[--i]);
            free(recipes);
            return CL_INVALID_PROGRAM;
        }
    }
    *ret_recipes = recipes;
    return CL_SUCCESS;
}

static void recipes_free(struct recipe **recipes, cl_uint count)
{
    for (cl_uint i = 0; i < count; i++)
        recipe_unref(recipes[i]);
    free(recipes);
}

static cl_int build_recipe(struct build *build)
{
    struct program_details *details = build->program->details;
    pthread_mutex_lock(&build->program->lock);
    uint32_t count = details->constant_count;
    struct recipe_constant *constants = calloc(count ? count : 1, sizeof(*constants));
    if (constants && count)
        memcpy(constants, details->constants, count * sizeof(*constants));
    pthread_mutex_unlock(&build->program->lock);
    if (!constants)
        return CL_OUT_OF_HOST_MEMORY;
    int err = 0;
    cl_int error = CL_SUCCESS;
    if (!build->headers) {
        err = recipe_built(details->base, build->options, constants, count, &build->recipe);
    } else {
        struct recipe **headers;
        error = list_recipes(build->headers, true, &headers);
        if (error == CL_SUCCESS) {
            err = recipe_compiled(details->base, build->options, build->headers->count, headers,
                                  build->headers->names, constants, count, &build->recipe);
            recipes_free(headers, build->headers->count);
        }
    }
    free(constants);
    return err ? program_error(err) : error;
}

/* The reals of a list at a site, read inside the gate; NULL without memory. Objects in the list are
 * held by the caller, the site's residence keeps what a mover sets aside. */
static cl_program *list_reals(const struct program_list *list, const struct program_sites *sites)
{
    cl_program *reals = calloc((size_t)list->count * sites->count + 1, sizeof(cl_program));
    for (unsigned s = 0; reals && s < sites->count; s++)
        for (cl_uint i = 0; i < list->count; i++)
            reals[s * list->count + i] = list->programs[i]->real[sites->site[s].place];
    return reals;
}

static void list_hold(const struct program_list *list)
{
    for (cl_uint i = 0; i < list->count; i++)
        object_hold(list->programs[i]);
}

static void list_unhold(const struct program_list *list)
{
    for (cl_uint i = 0; i < list->count; i++)
        object_unhold(list->programs[i]);
}

/* The driver's call at one site. @headers: as many as the build has. */
static cl_int build_at(const struct build *build, const struct program_site *site, cl_program real,
                       const cl_program *headers)
{
    const cl_icd_dispatch *cl = site->residence->cl;
    const cl_device_id *device = &site->residence->device->id;
    const struct recipe *recipe = build->recipe;
    if (!real)
        return CL_INVALID_PROGRAM;
    char *options =
        recipe_driver_options(build->program->details->base, site->residence, build->options);
    if (!options)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error =
        recipe_specialise(site->residence, real, recipe->constants, recipe->constant_count);
    if (error == CL_SUCCESS && !build->headers)
        error = cl->clBuildProgram(real, 1, device, options, NULL, NULL);
    else if (error == CL_SUCCESS && !cl->clCompileProgram)
        error = CL_INVALID_OPERATION;
    else if (error == CL_SUCCESS)
        error = cl->clCompileProgram(
            real, 1, device, options, build->headers->count, build->headers->count ? headers : NULL,
            build->headers->count ? build->headers->names : NULL, NULL, NULL);
    free(options);
    return error;
}

/*
 * A program that came from a container was built when it was created, so that a device which cannot
 * is refused there. What was only compiled is linked now, into a real program of its own.
 */
static cl_int build_container(struct build *build, const struct program_site *site, unsigned s,
                              cl_program *real)
{
    cl_program made = NULL;
    if (recipe_binary_type(build->program->details->base) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE &&
        *real)
        return CL_SUCCESS;
    cl_int error = recipe_follow(build->recipe, site->residence, &made);
    if (error == CL_SUCCESS)
        *real = build->replaced[s] = made;
    return error == CL_LINK_PROGRAM_FAILURE ? CL_BUILD_PROGRAM_FAILURE : error;
}

/*
 * The driver refuses because kernels of its program live: not the program's, which has none, but
 * ones that a mover or a command in flight still keeps. A new real program takes the old one's
 * part.
 */
static cl_int build_anew(struct build *build, const struct program_site *site, unsigned s,
                         cl_program *real)
{
    cl_program made = NULL;
    cl_int error = recipe_follow(build->recipe, site->residence, &made);
    if (error == CL_SUCCESS)
        *real = build->replaced[s] = made;
    return error;
}

/* A container of plain source or IL behaves as if its source had been given. */
static bool is_in_place(const struct program *program)
{
    const struct recipe *base = program->details->base;
    return base->kind == RECIPE_SOURCE || base->kind == RECIPE_IL;
}

static void replace_string(char **string, const char *value)
{
    char *copy = value ? strdup(value) : NULL;
    free(*string);
    *string = copy;
}

/* What the program will be told, and where it is built again from now on. Inside the gate or with
 * it closed; takes the outcomes' names. */
static void publish(struct build *build, const struct program_sites *sites,
                    struct program_outcome *outcomes)
{
    struct program *program = build->program;
    struct program_details *details = program->details;
    struct recipe *recipe = NULL;
    bool lost = true;
    pthread_mutex_lock(&program->lock);
    for (unsigned s = 0; s < sites->count; s++) {
        struct program_outcome *outcome = &outcomes[s];
        bool done = succeeded(outcome);
        if (done)
            recipe = build->recipe;
        /* An error that left an earlier build intact (options that the driver does not know). */
        lost = lost && outcome->status != CL_BUILD_SUCCESS;
        for (unsigned i = 0; i < SEATS; i++) {
            struct program_seat *seat = &details->seat[i];
            if (!(sites->site[s].seats & (1u << i)))
                continue;
            seat->status = outcome->status;
            seat->type = outcome->type;
            seat->globals = outcome->globals;
            replace_string(&seat->log, outcome->log);
            replace_string(&seat->options, build->options);
            if (done || outcome->status != CL_BUILD_SUCCESS) {
                recipe_unref(seat->recipe);
                seat->recipe = done ? recipe_ref(build->recipe) : NULL;
            }
        }
        if (done && outcome->kernel_names) {
            free(details->kernel_names);
            details->kernel_names = outcome->kernel_names;
            details->kernel_count = outcome->kernel_count;
            outcome->kernel_names = NULL;
        }
    }
    if (recipe || lost) {
        struct recipe *next = recipe ? recipe : details->base;
        recipe_unref(program->recipe);
        program->recipe = next ? recipe_ref(next) : NULL;
    }
    enum pin_kind before = details->pin;
    details->pin = program_find_pin(program);
    pin_take(&program->context->pins, details->pin);
    pin_drop(&program->context->pins, before);
    details->executable = false;
    for (unsigned i = 0; i < SEATS; i++)
        details->executable =
            details->executable || (details->seat[i].status == CL_BUILD_SUCCESS &&
                                    details->seat[i].type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    for (unsigned s = 0; s < sites->count; s++) {
        if (build->replaced[s]) {
            cl_program old = program->real[sites->site[s].place];
            program->real[sites->site[s].place] = build->replaced[s];
            build->replaced[s] = old;
        }
    }
    /* Every residence that the program lives in has what it asked for; only those that a mover
     * prepares are out of date. */
    uint32_t edition = atomic_load(&program->edition) + 1;
    for (cl_uint i = 0; i < program->context->seat_count; i++) {
        uint8_t place = atomic_load(&program->context->place[i]);
        if (place != PLACE_NONE)
            atomic_store(&program->made[place], edition);
    }
    atomic_store(&program->edition, edition);
    pthread_mutex_unlock(&program->lock);
}

/* One attempt; false when the program was moved meanwhile. */
static bool build_once(struct build *build, cl_int *ret_error)
{
    struct program *program = build->program;
    struct program_sites sites;
    struct program_outcome outcomes[SEATS] = {0};
    cl_program reals[SEATS];
    cl_program *headers = NULL;
    bool swaps = !is_in_place(program), replaces = false, settled;
    cl_int error = CL_SUCCESS;
    program_sites_enter(program->context, build->seats, &sites);
    for (unsigned s = 0; s < sites.count; s++)
        reals[s] = program->real[sites.site[s].place];
    if (build->headers)
        headers = list_reals(build->headers, &sites);
    gate_leave();
    for (unsigned s = 0; s < sites.count; s++) {
        struct program_outcome *outcome = &outcomes[s];
        outcome->status = CL_BUILD_ERROR;
        if (build->headers && !headers)
            outcome->error = CL_OUT_OF_HOST_MEMORY;
        else if (swaps)
            outcome->error = build_container(build, &sites.site[s], s, &reals[s]);
        else
            outcome->error = build_at(build, &sites.site[s], reals[s],
                                      headers ? headers + (size_t)s * build->headers->count : NULL);
        if (!swaps && outcome->error == CL_INVALID_OPERATION)
            outcome->error = build_anew(build, &sites.site[s], s, &reals[s]);
        replaces = replaces || build->replaced[s] != NULL;
        if (reals[s] && (!swaps || outcome->error == CL_SUCCESS))
            program_outcome_query(sites.site[s].residence, reals[s], outcome);
        if (error == CL_SUCCESS)
            error = outcome->error;
    }
    free(headers);
    /* A real program is replaced, and the old one let go, only when no other thread is inside. */
    if (replaces && gate_close(0) != 0)
        replaces = false;
    if (!replaces)
        context_enter(program->context);
    settled = program_sites_hold(program->context, build->seats, &sites);
    if (settled)
        publish(build, &sites, outcomes);
    if (replaces)
        gate_open();
    else
        gate_leave();
    for (unsigned s = 0; s < sites.count; s++) {
        residence_release(sites.site[s].residence->cl, OBJECT_PROGRAM, build->replaced[s]);
        build->replaced[s] = NULL;
        program_outcome_finish(&outcomes[s]);
    }
    program_sites_drop(&sites);
    *ret_error = error;
    return settled;
}

static cl_int build_run(struct build *build)
{
    struct program *program = build->program;
    cl_int error;
    pthread_mutex_lock(&program->details->turn);
    if (has_kernels(program)) {
        error = CL_INVALID_OPERATION;
        goto out;
    }
    error = build_recipe(build);
    if (error != CL_SUCCESS)
        goto out;
    if (build->headers)
        list_hold(build->headers);
    in_progress(program, build->seats);
    while (!build_once(build, &error))
        log_info("a program was moved while it was built: once more on its new device");
    if (build->headers)
        list_unhold(build->headers);
    if (error == CL_SUCCESS)
        usage_note_recipe(build->recipe);
    recipe_unref(build->recipe);
out:
    pthread_mutex_unlock(&program->details->turn);
    return error;
}

cl_int program_build(struct program *program, uint32_t seats, const char *options)
{
    struct build build = {.program = program, .seats = seats, .options = options ? options : ""};
    if (program->details->origin == PROGRAM_LINKED)
        return CL_INVALID_OPERATION;
    return build_run(&build);
}

cl_int program_compile(struct program *program, uint32_t seats, const char *options,
                       const struct program_list *headers)
{
    struct build build = {
        .program = program,
        .seats = seats,
        .options = options ? options : "",
        .headers = headers,
    };
    enum program_origin origin = program->details->origin;
    if (origin != PROGRAM_FROM_SOURCE && origin != PROGRAM_FROM_IL)
        return CL_INVALID_OPERATION;
    return build_run(&build);
}

/* The driver's call at one site. */
static void link_at(struct build *build, const struct program_site *site, unsigned s, cl_uint count,
                    const cl_program *inputs, struct program_outcome *outcome)
{
    const cl_icd_dispatch *cl = site->residence->cl;
    outcome->status = CL_BUILD_ERROR;
    for (cl_uint i = 0; i < count; i++) {
        if (!inputs[i]) {
            outcome->error = CL_INVALID_PROGRAM;
            return;
        }
    }
    if (!cl->clLinkProgram) {
        outcome->error = CL_INVALID_OPERATION;
        return;
    }
    build->replaced[s] =
        cl->clLinkProgram(site->residence->context, 1, &site->residence->device->id, build->options,
                          count, inputs, NULL, NULL, &outcome->error);
    if (build->replaced[s])
        program_outcome_query(site->residence, build->replaced[s], outcome);
    else if (outcome->error == CL_SUCCESS)
        outcome->error = CL_LINK_PROGRAM_FAILURE;
}

/* One attempt; false when the context was moved meanwhile. */
static bool link_once(struct build *build, const struct program_list *inputs, bool *ret_made,
                      cl_int *ret_error)
{
    struct program *program = build->program;
    struct program_sites sites;
    struct program_outcome outcomes[SEATS] = {0};
    cl_int error = CL_SUCCESS;
    bool made = false, settled;
    program_sites_enter(program->context, build->seats, &sites);
    cl_program *reals = list_reals(inputs, &sites);
    gate_leave();
    for (unsigned s = 0; s < sites.count; s++) {
        if (reals)
            link_at(build, &sites.site[s], s, inputs->count, reals + (size_t)s * inputs->count,
                    &outcomes[s]);
        else
            outcomes[s].error = CL_OUT_OF_HOST_MEMORY;
        made = made || build->replaced[s];
        if (error == CL_SUCCESS)
            error = outcomes[s].error;
    }
    free(reals);
    context_enter(program->context);
    settled = program_sites_hold(program->context, build->seats, &sites);
    if (settled && made) {
        publish(build, &sites, outcomes);
        object_publish(program);
    }
    gate_leave();
    for (unsigned s = 0; s < sites.count; s++) {
        residence_release(sites.site[s].residence->cl, OBJECT_PROGRAM, build->replaced[s]);
        build->replaced[s] = NULL;
        program_outcome_finish(&outcomes[s]);
    }
    program_sites_drop(&sites);
    *ret_made = made;
    *ret_error = error;
    return settled;
}

cl_int program_link(struct context *context, uint32_t seats, const char *options,
                    const struct program_list *inputs, struct program **ret_program)
{
    struct build build = {.seats = seats, .options = options ? options : ""};
    struct recipe **recipes;
    bool made = false;
    cl_int error = list_recipes(inputs, false, &recipes);
    if (error != CL_SUCCESS)
        return error;
    int err = recipe_linked(inputs->count, recipes, build.options, &build.recipe);
    recipes_free(recipes, inputs->count);
    if (err)
        return program_error(err);
    build.program = program_new(context, seats, PROGRAM_LINKED, NULL);
    if (!build.program) {
        recipe_unref(build.recipe);
        return CL_OUT_OF_HOST_MEMORY;
    }
    list_hold(inputs);
    while (!link_once(&build, inputs, &made, &error))
        log_info("a program was moved while it was linked: once more on its new device");
    list_unhold(inputs);
    if (error == CL_SUCCESS)
        usage_note_recipe(build.recipe);
    recipe_unref(build.recipe);
    if (made)
        *ret_program = build.program;
    else
        program_discard(build.program);
    return error;
}
