#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/log.h"
#include "state/program_priv.h"
#include "state/usage.h"
#include "state/variables.h"

cl_int program_error(int err)
{
    return err == -ENOMEM ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES;
}

void program_sites_enter(struct context *context, uint32_t seats, struct program_sites *ret_sites)
{
    struct program_sites *sites = ret_sites;
    *sites = (struct program_sites){0};
    context_enter(context);
    /* The fast path above looks at the first seat alone. */
    if (context->seat_count > 1)
        context_enter_slow(context);
    for (cl_uint i = 0; i < context->seat_count; i++) {
        uint8_t place = atomic_load_explicit(&context->place[i], memory_order_relaxed);
        unsigned s = 0;
        if (!(seats & (1u << i)))
            continue;
        while (s < sites->count && sites->site[s].place != place)
            s++;
        if (s == sites->count) {
            sites->site[sites->count++] =
                (struct program_site){.residence = context->at[place], .place = place};
            residence_ref(context->at[place]);
        }
        sites->site[s].seats |= 1u << i;
    }
}

bool program_sites_hold(const struct context *context, uint32_t seats,
                        const struct program_sites *sites)
{
    for (cl_uint i = 0; i < context->seat_count; i++) {
        if (!(seats & (1u << i)))
            continue;
        uint8_t place = atomic_load_explicit(&context->place[i], memory_order_relaxed);
        unsigned s = 0;
        while (s < sites->count && !(sites->site[s].seats & (1u << i)))
            s++;
        if (s == sites->count || place == PLACE_NONE || sites->site[s].place != place ||
            sites->site[s].residence != context->at[place])
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

static void details_free(struct program_details *details)
{
    if (!details)
        return;
    for (unsigned i = 0; i < SEATS; i++) {
        free(details->seat[i].options);
        free(details->seat[i].log);
        recipe_unref(details->seat[i].recipe);
    }
    recipe_unref(details->base);
    recipe_unref(details->contained);
    free(details->container);
    free(details->kernel_names);
    free(details->constants);
    pthread_mutex_destroy(&details->turn);
    free(details);
}

struct program *program_new(struct context *context, uint32_t seats, enum program_origin origin,
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
    pthread_mutex_init(&details->turn, NULL);
    details->origin = origin;
    details->pin = PIN_NONE;
    details->seats = seats;
    for (unsigned i = 0; i < SEATS; i++)
        details->seat[i].status = CL_BUILD_NONE;
    if (base) {
        details->base = recipe_ref(base);
        program->recipe = recipe_ref(base);
    }
    atomic_store(&program->edition, 1);
    program->details = details;
    program->context = context;
    object_hold(context);
    return program;
}

static void program_finish(struct program *program)
{
    pin_drop(&program->context->pins, program->details->pin);
    recipe_unref(program->recipe);
    details_free(program->details);
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
    for (unsigned place = 0; place < PLACES; place++) {
        if (program->real[place])
            program->context->at[place]->cl->clReleaseProgram(program->real[place]);
        program->real[place] = NULL;
    }
}

static void program_destroy(struct object *object)
{
    struct program *program = (struct program *)object;
    destructor_run(&program->destructors, program);
    program_finish(program);
}

const struct object_class program_class = {
    .size = sizeof(struct program),
    .leave = program_leave,
    .destroy = program_destroy,
};

/* CL_PROGRAM_BINARY_TYPE of a program that was loaded and not built yet. */
static void seats_from_container(struct program *program)
{
    for (unsigned i = 0; i < SEATS; i++)
        program->details->seat[i].type = recipe_binary_type(program->details->base);
}

cl_int program_create(struct context *context, uint32_t seats, struct recipe *base,
                      bool from_binary, struct program **ret_program)
{
    enum program_origin origin = from_binary                   ? PROGRAM_FROM_BINARY
                                 : base->kind == RECIPE_SOURCE ? PROGRAM_FROM_SOURCE
                                                               : PROGRAM_FROM_IL;
    struct program *program = program_new(context, seats, origin, base);
    if (!program)
        return CL_OUT_OF_HOST_MEMORY;
    if (from_binary)
        seats_from_container(program);
    cl_int error;
    bool settled;
    do {
        struct program_sites sites;
        cl_program reals[SEATS] = {NULL};
        program_sites_enter(context, seats, &sites);
        gate_leave();
        error = CL_SUCCESS;
        for (unsigned s = 0; error == CL_SUCCESS && s < sites.count; s++)
            error = recipe_follow(base, sites.site[s].residence, &reals[s]);
        context_enter(context);
        settled = program_sites_hold(context, seats, &sites);
        if (settled && error == CL_SUCCESS) {
            for (unsigned s = 0; s < sites.count; s++) {
                program->real[sites.site[s].place] = reals[s];
                atomic_store(&program->made[sites.site[s].place], 1);
            }
            object_publish(program);
        }
        gate_leave();
        for (unsigned s = 0; s < sites.count && !(settled && error == CL_SUCCESS); s++)
            residence_release(sites.site[s].residence->cl, OBJECT_PROGRAM, reals[s]);
        program_sites_drop(&sites);
    } while (!settled);
    if (error != CL_SUCCESS) {
        program_discard(program);
        return error;
    }
    *ret_program = program;
    return CL_SUCCESS;
}

cl_int program_make_real(struct program *program, struct residence *residence, uint8_t place)
{
    cl_program real = NULL;
    pthread_mutex_lock(&program->lock);
    uint32_t edition = atomic_load(&program->edition);
    struct recipe *CLEANUP(recipe_unref_pointer) recipe =
        program->recipe ? recipe_ref(program->recipe) : NULL;
    pthread_mutex_unlock(&program->lock);
    if (atomic_load(&program->made[place]) == edition && (program->real[place] || !recipe))
        return CL_SUCCESS;
    residence_release(residence->cl, OBJECT_PROGRAM, program->real[place]);
    program->real[place] = NULL;
    cl_int error = recipe ? recipe_follow(recipe, residence, &real) : CL_SUCCESS;
    if (error != CL_SUCCESS)
        return error;
    program->real[place] = real;
    atomic_store(&program->made[place], edition);
    return CL_SUCCESS;
}

cl_int program_specialise(struct program *program, cl_uint id, size_t size, const void *value)
{
    struct program_details *details = program->details;
    struct recipe_constant constant = {.id = id, .size = (uint32_t)size};
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    if (details->origin != PROGRAM_FROM_IL)
        return CL_INVALID_OPERATION;
    if (!value || size == 0 || size > sizeof(constant.bytes))
        return CL_INVALID_VALUE;
    memcpy(constant.bytes, value, size);
    struct program_sites sites;
    program_sites_enter(program->context, details->seats, &sites);
    pthread_mutex_lock(&program->lock);
    uint32_t i = 0;
    while (i < details->constant_count && details->constants[i].id != id)
        i++;
    if (i == details->constant_count) {
        struct recipe_constant *grown =
            reallocarray(details->constants, (size_t)i + 1, sizeof(*grown));
        if (!grown)
            goto out;
        details->constants = grown;
    }
    /* The driver knows the module; an id or size that it refuses is not kept. Copying a value into
     * a program blocks nobody, so this lock may be held over it. */
    error = CL_SUCCESS;
    for (unsigned s = 0; error == CL_SUCCESS && s < sites.count; s++)
        if (program->real[sites.site[s].place])
            error = recipe_specialise(sites.site[s].residence, program->real[sites.site[s].place],
                                      &constant, 1);
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

bool program_is_executable(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    bool executable = program->details->executable;
    pthread_mutex_unlock(&program->lock);
    return executable;
}

uint8_t program_kernel_place(struct program *program)
{
    const struct context *context = program->context;
    const struct program_details *details = program->details;
    uint8_t place = context_home(context);
    if (LIKELY(context->seat_count == 1))
        return place;
    pthread_mutex_lock(&program->lock);
    for (cl_uint i = 0; i < context->seat_count; i++) {
        if (details->seat[i].status == CL_BUILD_SUCCESS &&
            details->seat[i].type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE) {
            place = atomic_load_explicit(&context->place[i], memory_order_relaxed);
            break;
        }
    }
    pthread_mutex_unlock(&program->lock);
    return place;
}

enum pin_kind program_find_pin(const struct program *program)
{
    const struct program_details *details = program->details;
    const struct recipe *first = NULL;
    for (unsigned i = 0; i < SEATS; i++) {
        const struct program_seat *seat = &details->seat[i];
        if (!seat->recipe)
            continue;
        if ((seat->globals > 0 && recipe_may_keep_variables(seat->recipe)) ||
            (seat->recipe != first && recipe_keeps_variables(seat->recipe)))
            return PIN_VARIABLES;
        if (first && !recipe_same(first, seat->recipe))
            return PIN_BUILDS;
        first = seat->recipe;
    }
    return PIN_NONE;
}
