#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/span.h"
#include "state/move/move_priv.h"
#include "state/program/program.h"

static bool move_prepare_known(const struct move *move, const struct context *context)
{
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == context)
            return true;
    return false;
}

/* Index of @context's residence on @device, or RESIDENCE_NONE. */
static uint8_t move_prepare_index_on(const struct context *context, const struct device *device)
{
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (context->at[residence_index] && context->at[residence_index]->device == device &&
            !residence_is_lost(context->at[residence_index]))
            return residence_index;
    return RESIDENCE_NONE;
}

/* A free residence index that leaves @standby others free; RESIDENCE_NONE where there is none. */
static uint8_t move_prepare_free_index(const struct context *context, unsigned standby)
{
    uint8_t found = RESIDENCE_NONE;
    unsigned count = 0;
    for (uint8_t residence_index = context->residences; residence_index-- > 0;)
        if (!context->at[residence_index]) {
            found = residence_index;
            count++;
        }
    return count > standby ? found : RESIDENCE_NONE;
}

static bool move_prepare_others_stay(const struct context *context, int vdev_index, uint8_t from)
{
    for (cl_uint i = 0; i < context->vdev_count; i++)
        if ((int)i != vdev_index && atomic_load(&context->residence_index[i]) == from)
            return true;
    return false;
}

static int move_prepare_add_context(struct move *move, struct context *context, int vdev_index)
{
    if (!array_make_room(&move->contexts, move->context_count, sizeof(move->contexts[0])))
        return -ENOMEM;
    uint8_t residence_index = atomic_load(&context->residence_index[vdev_index]);
    struct move_context added = {
        .context = context,
        .vdev_index = vdev_index,
        .from = residence_index == RESIDENCE_NONE ? RESIDENCE_HOST : residence_index,
        .to = RESIDENCE_HOST,
        .leaves = residence_index != RESIDENCE_NONE &&
                  !move_prepare_others_stay(context, vdev_index, residence_index),
        .recovers = move->recovers,
    };
    if (move->target) {
        added.to = move->rehearses ? RESIDENCE_NONE : move_prepare_index_on(context, move->target);
        if (added.to == RESIDENCE_NONE) {
            struct residence *made;
            cl_int error;
            added.to = move_prepare_free_index(context, move->request->prewarm ? READY_STANDBY : 0);
            if (added.to == RESIDENCE_NONE)
                return move_fail(move, -ENOSPC, "a context has no room for another residence");
            uint64_t begun = span_begin();
            int failed = residence_create(context, move->target, &made, &error);
            span_end(begun, "move", "open", "failed", failed != 0);
            if (failed == -EIO)
                return move_fail(move, failed, "%s gives no context (OpenCL error %d)",
                                 device_name(move->target), error);
            if (failed != 0)
                return failed;
            added.made = true;
            gate_enter(); /* a mover that closed the gate walks over at[] */
            context->at[added.to] = made;
            gate_leave();
        } else {
            added.returns = context_life(context, added.to) == RESIDENCE_SOURCE;
            if (added.returns && move->request->prewarm)
                return move_fail(move, -EBUSY, "memory that was left on %s is still on its way",
                                 device_name(move->target));
            added.made = added.returns || ready_take(context, added.to) ||
                         move_take_vacant(context->at[added.to]);
        }
    }
    object_hold(context);
    move->contexts[move->context_count++] = added;
    return 0;
}

/* How many contexts of the virtual device are not in move->contexts yet. */
static size_t move_prepare_count_contexts(const struct move *move)
{
    uintptr_t cursor = 0;
    struct context *context;
    size_t count = 0;
    while ((context = object_next(OBJECT_CONTEXT, &cursor))) {
        count += context_vdev_index(context, move->vdev) >= 0 && !move_prepare_known(move, context);
        object_unhold(context);
    }
    return count;
}

/* Add them: no more than there are now, as the program may make others faster than these are added.
 * 0 or -errno. */
static int move_prepare_find_contexts(struct move *move)
{
    size_t left = move_prepare_count_contexts(move);
    uintptr_t cursor = 0;
    struct context *context;
    int error = 0;
    while (error == 0 && left != 0 && (context = object_next(OBJECT_CONTEXT, &cursor))) {
        int vdev_index = context_vdev_index(context, move->vdev);
        if (vdev_index >= 0 && !move_prepare_known(move, context)) {
            error = move_prepare_add_context(move, context, vdev_index);
            left--;
        }
        if (error == 0)
            error = move_check(move);
        object_unhold(context);
    }
    return error;
}

void move_forget_contexts(struct move *move)
{
    for (size_t i = 0; i < move->context_count; i++)
        object_unhold(move->contexts[i].context);
    free(move->contexts);
    move->contexts = NULL;
    move->context_count = 0;
}

static bool move_prepare_is_to_build(const struct move *move, const struct program *program)
{
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == program->context && move->target)
            return atomic_load(&program->made[move->contexts[i].to]) !=
                   atomic_load(&program->edition);
    return false;
}

static uint32_t move_prepare_count_builds(const struct move *move)
{
    uint32_t count = 0;
    uintptr_t cursor = 0;
    struct program *program;
    while ((program = object_next(OBJECT_PROGRAM, &cursor))) {
        count += move_prepare_is_to_build(move, program);
        object_unhold(program);
    }
    return count;
}

bool move_is_stale(struct move *move)
{
    return move_prepare_count_builds(move) != 0 || move_prepare_count_contexts(move) != 0;
}

/* True for errors that a second try would repeat: not a shortage of memory, nor a lost device. */
static bool move_prepare_is_lasting(cl_int error)
{
    return error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
           error == CL_LINK_PROGRAM_FAILURE || error == CL_COMPILER_NOT_AVAILABLE ||
           error == CL_LINKER_NOT_AVAILABLE ||
           (error <= CL_INVALID_VALUE && error >= CL_INVALID_LINKER_OPTIONS);
}

int move_fail_object(struct move *move, const struct object_class *class,
                     const struct object *object, const struct move_context *entry,
                     const char *done, cl_int error)
{
    char name[128];
    move->report->lasting =
        entry->reason[0] != '\0' || (move_prepare_is_lasting(error) && !entry->build_passing);
    if (entry->reason[0] != '\0')
        return move_fail(move, -ENOTSUP, "%s", entry->reason);
    (void)!snprintf(name, sizeof(name), "%s", class->name);
    if (class->describe)
        class->describe(object, name, sizeof(name));
    return move_fail(move, -EIO, "%s cannot be %s on %s (OpenCL error %d)%s%s", name, done,
                     device_name(move->target), error, entry->build_log[0] ? ": " : "",
                     entry->build_log);
}

bool move_is_made(const struct object_class *class)
{
    return class->make_real != NULL;
}

static bool move_prepare_is_program(const struct object_class *class)
{
    return class->type == OBJECT_PROGRAM;
}

static int move_prepare_make_real(struct move *move, const struct object_class *class,
                                  struct object *object, struct move_context *entry)
{
    bool builds =
        move_prepare_is_program(class) && move_prepare_is_to_build(move, (struct program *)object);
    if (builds) {
        program_kernel_name((struct program *)object, move->builds.building,
                            sizeof(move->builds.building));
        move_tell(move);
    }
    uint64_t begun = clock_now_ns();
    cl_int error = class->make_real(object, entry);
    if (builds) {
        move->builds.built++;
        move->report->built++;
        move->report->build_ns += clock_now_ns() - begun;
    }
    return error == CL_SUCCESS ? move_check(move)
                               : move_fail_object(move, class, object, entry, "made", error);
}

static int move_prepare_make(struct move *move, const struct move_walk *walk)
{
    move->builds = (struct move_progress){.builds = move_prepare_count_builds(move)};
    int error = move_walk(move, walk);
    move->builds = (struct move_progress){0};
    return error;
}

static const struct move_walk everything = {.takes = move_is_made, .act = move_prepare_make_real};

int move_prepare(struct move *move)
{
    int error = move_prepare_find_contexts(move);
    return error == 0 && move->target ? move_prepare_make(move, &everything) : error;
}

int move_prepare_rest(struct move *move)
{
    return move->target ? move_walk(move, &everything) : 0;
}

/* Queues are left out: those of the next move are made when it begins. */
static bool move_prepare_is_code(const struct object_class *class)
{
    return class->type == OBJECT_PROGRAM || class->type == OBJECT_KERNEL ||
           class->type == OBJECT_SAMPLER;
}

int move_prepare_code(struct move *move)
{
    static const struct move_walk code = {.takes = move_prepare_is_code,
                                          .act = move_prepare_make_real};
    int error = move_prepare_find_contexts(move);
    if (error != 0)
        return error;
    move_make_begin(move);
    error = move_prepare_make(move, &code);
    move_make_end(move);
    return error;
}

int move_rehearse(struct move *move)
{
    struct device *here = atomic_load(&move->vdev->device);
    struct move_report *report = move->report;
    struct move resume = {.request = move->request,
                          .report = report,
                          .vdev = move->vdev,
                          .target = here,
                          .limits = move->limits,
                          .rehearses = true};
    struct reach now;
    char why[256];
    reach_read(&now);
    const char *lost = reach_lost(&here->reach, &now);
    if (!lost)
        return 0;
    static const struct move_walk programs = {.takes = move_prepare_is_program,
                                              .act = move_prepare_make_real};
    int error = move_prepare_find_contexts(&resume);
    if (error == 0)
        error = move_walk(&resume, &programs);
    move_undo(&resume);
    move_forget_contexts(&resume);
    move_release_vacant();
    if (error == 0)
        here->reach = now;
    if (error == 0 || error == -ETIMEDOUT || error == -ECANCELED)
        return error;
    snprintf(why, sizeof(why), "%.255s", report->reason[0] ? report->reason : strerror(-error));
    report->reason[0] = '\0';
    return move_fail(move, -EPERM,
                     "it could not be resumed: the program has given up %s since its driver was "
                     "opened, and now %s",
                     lost, why);
}
