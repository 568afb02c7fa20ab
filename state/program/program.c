#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/object/lost.h"
#include "state/program/kernel.h"
#include "state/program/kernel_traits.h"
#include "state/program/pace.h"
#include "state/program/program_cut.h"
#include "state/program/program_priv.h"

cl_int program_error(int err)
{
    return err == -ENOMEM ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES;
}

/* Inside the gate with each of @vdevs on a device. */
static void program_enter_all(struct context *context, uint32_t vdevs)
{
    gate_enter();
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        if ((vdevs & (1u << i)) && atomic_load(&context->residence_index[i]) == RESIDENCE_NONE) {
            context_enter_slow(context, 1u << i);
            /* One of the others may have left meanwhile. */
            i = UINT32_MAX;
        }
    }
}

void program_sites_enter(struct context *context, uint32_t vdevs, bool all,
                         struct program_sites *ret_sites)
{
    struct program_sites *sites = ret_sites;
    *sites = (struct program_sites){0};
    program_enter_all(context, all ? vdevs : 0);
    if (!all)
        context_enter_slow(context, vdevs);
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint8_t residence_index =
            atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
        unsigned s = 0;
        if (!(vdevs & (1u << i)) || residence_index == RESIDENCE_NONE)
            continue;
        while (s < sites->count && sites->site[s].residence_index != residence_index)
            s++;
        if (s == sites->count) {
            sites->site[sites->count++] = (struct program_site){
                .residence = context->at[residence_index], .residence_index = residence_index};
            residence_ref(context->at[residence_index]);
        }
        sites->site[s].vdevs |= 1u << i;
    }
}

bool program_sites_hold(const struct context *context, uint32_t vdevs,
                        const struct program_sites *sites)
{
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        if (!(vdevs & (1u << i)))
            continue;
        uint8_t residence_index =
            atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
        unsigned s = 0;
        while (s < sites->count && !(sites->site[s].vdevs & (1u << i)))
            s++;
        /* A virtual device that stays suspended gets its real program when it is resumed. */
        if (s == sites->count && residence_index == RESIDENCE_NONE)
            continue;
        if (s == sites->count || residence_index == RESIDENCE_NONE ||
            sites->site[s].residence_index != residence_index ||
            sites->site[s].residence != context->at[residence_index])
            return false;
    }
    return true;
}

void program_sites_drop(struct program_sites *sites)
{
    for (unsigned s = 0; s < sites->count; s++)
        residence_unref(sites->site[s].residence);
    sites->count = 0;
}

static void program_details_free(struct program_details *details, cl_uint vdev_count)
{
    if (!details)
        return;
    for (unsigned i = 0; details->vdev && i < vdev_count; i++) {
        free(details->vdev[i].options);
        free(details->vdev[i].log);
        recipe_unref(details->vdev[i].recipe);
    }
    recipe_unref(details->base);
    recipe_unref(details->contained);
    free(details->container);
    free(details->kernel_names);
    source_facts_free(details->facts);
    pace_list_free(details->paces);
    free(details->constants);
    free(details->vdev);
    free(details->cut);
    pthread_cond_destroy(&details->built);
    free(details);
}

struct program *program_new(struct context *context, uint32_t vdevs, enum program_origin origin,
                            struct recipe *base)
{
    struct program *program = object_create(OBJECT_PROGRAM);
    struct program_details *details = calloc(1, sizeof(*details));
    if (!program || !details) {
        free(details);
        if (program)
            object_discard(program);
        return NULL;
    }
    pthread_mutex_init(&program->lock, NULL);
    pthread_cond_init(&details->built, NULL);
    program->details = details;
    program->context = context;
    object_hold(context);
    size_t residences = context->residences;
    program->real = calloc(residences, sizeof(cl_program) + sizeof(uint32_t));
    program->made = (_Atomic uint32_t *)(program->real + residences);
    details->cut = calloc(residences, sizeof(cl_program));
    details->vdev = calloc(context->vdev_count, sizeof(details->vdev[0]));
    details->pin = PIN_NONE;
    if (!program->real || !details->cut || !details->vdev) {
        program_discard(program);
        return NULL;
    }
    details->origin = origin;
    details->vdevs = vdevs;
    for (unsigned i = 0; i < context->vdev_count; i++)
        details->vdev[i].status = CL_BUILD_NONE;
    if (base) {
        details->base = recipe_ref(base);
        program->recipe = recipe_ref(base);
    }
    atomic_store(&program->edition, 1);
    return program;
}

static void program_finish(struct program *program)
{
    pin_drop(&program->context->pins, program->details->pin);
    recipe_unref(program->recipe);
    program_details_free(program->details, program->context->vdev_count);
    free(program->real);
    pthread_mutex_destroy(&program->lock);
    object_unhold(program->context);
}

void program_discard(struct program *program)
{
    program_finish(program);
    object_discard(program);
}

static void program_leave(struct object *object)
{
    struct program *program = (struct program *)object;
    for (unsigned residence_index = 0; residence_index < program->context->residences;
         residence_index++) {
        if (program->real[residence_index])
            program->context->at[residence_index]->cl->clReleaseProgram(
                program->real[residence_index]);
        program->real[residence_index] = NULL;
    }
    program_cut_drop(program);
}

static void program_destroy(struct object *object)
{
    struct program *program = (struct program *)object;
    program_finish(program);
}

static void program_release_real(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)kept;
    cl->clReleaseProgram(real);
}

void program_kernel_name(const struct program *program, char *ret_name, size_t size)
{
    uintptr_t cursor = 0;
    struct kernel *kernel;
    ret_name[0] = '\0';
    while (!ret_name[0] && (kernel = object_next(OBJECT_KERNEL, &cursor))) {
        if (kernel->program == program)
            (void)!snprintf(ret_name, size, "%s", kernel->pace->name);
        object_unhold(kernel);
    }
}

static void program_describe(const struct object *object, char *ret_text, size_t size)
{
    char name[64];
    program_kernel_name((const struct program *)object, name, sizeof(name));
    if (name[0])
        (void)!snprintf(ret_text, size, "a program with the kernel %s", name);
}

static cl_int program_prepare(struct object *object, struct move_context *move)
{
    struct program *program = (struct program *)object;
    struct residence *target = move->context->at[move->to];
    struct program_outcome CLEANUP(program_outcome_finish) outcome = {0};
    cl_int error = program_make_real(program, target, move->to, &outcome);
    if (error == CL_SUCCESS)
        return program_cut_prepare(program, target, move->to, move->recovers);
    program_log_line(outcome.log, move->build_log, sizeof(move->build_log));
    move->build_passing = program_log_lost_files(outcome.log);
    return error;
}

static void program_vacate(struct object *object, const struct move_context *move,
                           uint8_t residence_index)
{
    struct program *program = (struct program *)object;
    if (!move_empties(move, residence_index))
        return;
    program_cut_vacate(program, program->context->at[residence_index], residence_index);
    residence_retire(program->context->at[residence_index], OBJECT_PROGRAM,
                     program->real[residence_index], NULL);
    program->real[residence_index] = NULL;
    atomic_store(&program->made[residence_index], 0);
}

OBJECT_CLASS(program_class) = {
    .type = OBJECT_PROGRAM,
    .size = sizeof(struct program),
    .leave = program_leave,
    .destroy = program_destroy,
    .release = program_release_real,
    .context = offsetof(struct program, context),
    .name = "a program",
    .describe = program_describe,
    .make_real = program_prepare,
    .vacate = program_vacate,
};

/* CL_PROGRAM_BINARY_TYPE of a program that was loaded and not built yet. */
static void program_vdevs_from_container(struct program *program)
{
    for (unsigned i = 0; i < program->context->vdev_count; i++)
        program->details->vdev[i].type = recipe_binary_type(program->details->base);
}

cl_int program_create(struct context *context, uint32_t vdevs, struct recipe *base,
                      bool from_binary, struct program **ret_program)
{
    enum program_origin origin = from_binary                   ? PROGRAM_FROM_BINARY
                                 : base->kind == RECIPE_SOURCE ? PROGRAM_FROM_SOURCE
                                                               : PROGRAM_FROM_IL;
    struct program *program = program_new(context, vdevs, origin, base);
    if (!program)
        return CL_OUT_OF_HOST_MEMORY;
    if (from_binary)
        program_vdevs_from_container(program);
    struct retry retry = {context->vdevs, context->vdev_count, 0};
    cl_int error;
    bool settled, built;
    do {
        struct program_sites sites;
        cl_program reals[VDEVS] = {NULL};
        program_sites_enter(context, vdevs, false, &sites);
        gate_leave();
        bool lost = false;
        built = false;
        error = CL_SUCCESS;
        for (unsigned s = 0; error == CL_SUCCESS && s < sites.count; s++) {
            struct program_outcome outcome = {0};
            error = recipe_follow(base, sites.site[s].residence, &reals[s], &outcome);
            lost = residence_outlives(sites.site[s].residence, error);
            built = built || !outcome.known;
            program_take_facts(program->details, &outcome);
            program_outcome_finish(&outcome);
        }
        gate_enter();
        settled = !lost && program_sites_hold(context, vdevs, &sites);
        if (settled && error == CL_SUCCESS) {
            for (unsigned s = 0; s < sites.count; s++) {
                program->real[sites.site[s].residence_index] = reals[s];
                atomic_store(&program->made[sites.site[s].residence_index], 1);
            }
            object_publish(program);
        }
        gate_leave();
        for (unsigned s = 0; s < sites.count && !(settled && error == CL_SUCCESS); s++)
            residence_release(sites.site[s].residence->cl, OBJECT_PROGRAM, reals[s]);
        program_sites_drop(&sites);
        if (!settled)
            retry_again(&retry);
    } while (!settled);
    retry_end(&retry);
    if (error != CL_SUCCESS) {
        program_discard(program);
        return error;
    }
    for (cl_uint i = 0; from_binary && built && i < context->vdev_count; i++)
        program_keep_binary(program, i);
    *ret_program = program;
    return CL_SUCCESS;
}

/* A virtual device is about to join a residence where the program was not built for it. Threads of
 * the other virtual device may use the real program that is there. So a new one replaces it, and
 * the old one is released with the residence. */
static cl_int program_make_anew(struct program *program, struct recipe *recipe,
                                struct residence *residence, uint8_t residence_index,
                                uint32_t edition, struct program_outcome *outcome)
{
    cl_program real = NULL;
    bool owner = the_thread.gate.owner;
    cl_int error = recipe ? recipe_follow(recipe, residence, &real, outcome) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
    if (residence_reserve(residence, 1) != 0 || (!owner && gate_close(0) != 0)) {
        residence_release(residence->cl, OBJECT_PROGRAM, real);
        return CL_OUT_OF_HOST_MEMORY;
    }
    residence_retire(residence, OBJECT_PROGRAM, program->real[residence_index], NULL);
    program->real[residence_index] = real;
    atomic_store(&program->made[residence_index], edition);
    if (!owner)
        gate_open();
    return CL_SUCCESS;
}

cl_int program_make_real(struct program *program, struct residence *residence,
                         uint8_t residence_index, struct program_outcome *outcome)
{
    cl_program real = NULL;
    pthread_mutex_lock(&program->lock);
    uint32_t edition = atomic_load(&program->edition);
    struct recipe *CLEANUP(recipe_unref_pointer) recipe =
        program->recipe ? recipe_ref(program->recipe) : NULL;
    pthread_mutex_unlock(&program->lock);
    if (atomic_load(&program->made[residence_index]) == edition &&
        (program->real[residence_index] || !recipe))
        return CL_SUCCESS;
    if (program->real[residence_index] && context_is_inhabited(program->context, residence_index))
        return program_make_anew(program, recipe, residence, residence_index, edition, outcome);
    residence_release(residence->cl, OBJECT_PROGRAM, program->real[residence_index]);
    program->real[residence_index] = NULL;
    cl_int error = recipe ? recipe_follow(recipe, residence, &real, outcome) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
    program->real[residence_index] = real;
    atomic_store(&program->made[residence_index], edition);
    return CL_SUCCESS;
}

cl_int program_specialise(struct program *program, cl_uint id, size_t size, const void *value)
{
    struct program_details *details = program->details;
    struct recipe_constant constant = {.id = id, .size = (uint32_t)size};
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (details->origin != PROGRAM_FROM_IL)
        return CL_INVALID_PROGRAM;
    if (!value || size == 0 || size > sizeof(constant.bytes))
        return CL_INVALID_VALUE;
    memcpy(constant.bytes, value, size);
    struct program_sites sites;
    program_sites_enter(program->context, details->vdevs, false, &sites);
    pthread_mutex_lock(&program->lock);
    uint32_t i = 0;
    while (i < details->constant_count && details->constants[i].id != id)
        i++;
    if (!array_make_room(&details->constants, i, sizeof(constant)))
        goto out;
    /* The driver knows the module's constants; one that it refuses is not kept. This driver call
     * only copies a value, so the lock may be held over it. */
    error = CL_SUCCESS;
    for (unsigned s = 0; error == CL_SUCCESS && s < sites.count; s++)
        if (program->real[sites.site[s].residence_index])
            error = recipe_specialise(sites.site[s].residence,
                                      program->real[sites.site[s].residence_index], &constant, 1);
    if (error == CL_SUCCESS) {
        details->constants[i] = constant;
        details->constant_count += i == details->constant_count;
    }
out:
    pthread_mutex_unlock(&program->lock);
    gate_leave();
    program_sites_drop(&sites);
    return error;
}

bool program_is_executable(const struct program *program, uint32_t vdevs)
{
    return (atomic_load_explicit(&program->executable, memory_order_relaxed) & vdevs) != 0;
}

uint8_t program_kernel_place(const struct program *program)
{
    const struct context *context = program->context;
    uint32_t vdevs = atomic_load_explicit(&program->executable, memory_order_relaxed);
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint8_t residence_index =
            atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
        if ((vdevs & (1u << i)) && residence_index != RESIDENCE_NONE)
            return residence_index;
    }
    return context_home(context);
}

static bool program_keeps_variables(const struct program_details *details,
                                    const struct recipe *recipe)
{
    return source_facts_are_of(details->facts, recipe) ? details->facts->keeps_variables
                                                       : recipe_keeps_variables(recipe);
}

enum pin_kind program_find_pin(const struct program *program)
{
    const struct program_details *details = program->details;
    const struct recipe *first = NULL;
    for (unsigned i = 0; i < program->context->vdev_count; i++) {
        const struct program_vdev *vdev = &details->vdev[i];
        if (!vdev->recipe)
            continue;
        if ((vdev->globals > 0 && recipe_may_keep_variables(vdev->recipe)) ||
            (vdev->recipe != first && program_keeps_variables(details, vdev->recipe)))
            return PIN_VARIABLES;
        if (first && !recipe_same(first, vdev->recipe))
            return PIN_BUILDS;
        first = vdev->recipe;
    }
    return PIN_NONE;
}
