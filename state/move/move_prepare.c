#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/move/move_priv.h"
#include "state/program/kernel.h"
#include "state/program/sampler.h"
#include "state/room/room.h"

static bool known(const struct move *move, const struct context *context)
{
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == context)
            return true;
    return false;
}

/* The place of @context's residence on @device, or PLACE_NONE. */
static uint8_t place_on(const struct context *context, const struct device *device)
{
    for (uint8_t place = 0; place < PLACES; place++)
        if (context->at[place] && context->at[place]->device == device)
            return place;
    return PLACE_NONE;
}

static uint8_t free_place(const struct context *context)
{
    uint8_t place = 0;
    while (place < PLACES && context->at[place])
        place++;
    return place;
}

static bool others_stay(const struct context *context, int seat_index, uint8_t from)
{
    for (cl_uint i = 0; i < context->seat_count; i++)
        if ((int)i != seat_index && atomic_load(&context->place[i]) == from)
            return true;
    return false;
}

static int add_context(struct move *move, struct context *context, int seat_index)
{
    struct move_context *grown =
        reallocarray(move->contexts, move->context_count + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    move->contexts = grown;
    uint8_t place = atomic_load(&context->place[seat_index]);
    struct move_context added = {
        .context = context,
        .seat_index = seat_index,
        .from = place == PLACE_NONE ? PLACE_HOST : place,
        .to = PLACE_HOST,
        .leaves = place != PLACE_NONE && !others_stay(context, seat_index, place),
    };
    if (move->target) {
        added.to = move->rehearses ? PLACE_NONE : place_on(context, move->target);
        if (added.to == PLACE_NONE) {
            struct residence *made;
            cl_int error;
            added.to = free_place(context);
            if (added.to == PLACES)
                return move_fail(move, -ENOSPC, "a context has no room for another residence");
            int failed = residence_create(context, move->target, &made, &error);
            if (failed == -EIO)
                return move_fail(move, failed, "%s gives no context (OpenCL error %d)",
                                 device_name(move->target), error);
            if (failed != 0)
                return failed;
            added.made = true;
            gate_enter(); /* who has it closed walks over at[] */
            context->at[added.to] = made;
            gate_leave();
        } else {
            added.made = move_take_vacant(context->at[added.to]);
        }
    }
    object_hold(context);
    grown[move->context_count++] = added;
    return 0;
}

int move_find_contexts(struct move *move)
{
    uintptr_t cursor = 0;
    struct context *context;
    int error = 0;
    while (error == 0 && (context = object_next(OBJECT_CONTEXT, &cursor))) {
        int seat_index = context_seat_index(context, move->seat);
        if (seat_index >= 0 && !known(move, context))
            error = add_context(move, context, seat_index);
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

/* The entry of @context, or NULL. */
static const struct move_context *entry_of(const struct move *move, const struct context *context)
{
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == context && move->contexts[i].to != PLACE_HOST)
            return &move->contexts[i];
    return NULL;
}

static struct residence *target_of(const struct move_context *entry)
{
    return entry->context->at[entry->to];
}

/* Another virtual device lives there, and the program runs: it makes real objects there itself when
 * it first uses them. Those that are missing then are made when it does not run. */
static bool is_busy(const struct move *move, const struct move_context *entry)
{
    return !entry->made && !move->paused;
}

/* The seat never used it, and its bytes are elsewhere: it is made when it is first used. */
static bool stays_away(const struct move_context *entry, const struct memory *memory)
{
    return entry->from != PLACE_HOST && !memory->real[entry->from];
}

bool move_is_stale(struct move *move)
{
    bool stale = false;
    uintptr_t cursor = 0;
    struct context *context;
    while ((context = object_next(OBJECT_CONTEXT, &cursor))) {
        stale = stale || (context_seat_index(context, move->seat) >= 0 && !known(move, context));
        object_unhold(context);
    }
    struct program *program;
    for (cursor = 0; (program = object_next(OBJECT_PROGRAM, &cursor));) {
        const struct move_context *entry = entry_of(move, program->context);
        stale = stale ||
                (entry && atomic_load(&program->made[entry->to]) != atomic_load(&program->edition));
        object_unhold(program);
    }
    return stale;
}

static bool is_to_build(const struct move *move, const struct program *program)
{
    const struct move_context *entry = entry_of(move, program->context);
    return entry && atomic_load(&program->made[entry->to]) != atomic_load(&program->edition);
}

static uint32_t count_builds(const struct move *move)
{
    uint32_t count = 0;
    uintptr_t cursor = 0;
    struct program *program;
    while ((program = object_next(OBJECT_PROGRAM, &cursor))) {
        count += is_to_build(move, program);
        object_unhold(program);
    }
    return count;
}

/* Programs have no names: a kernel of it, if there is one. */
static void name_program(const struct program *program, char *ret_name, size_t size)
{
    uintptr_t cursor = 0;
    struct kernel *kernel;
    ret_name[0] = '\0';
    while (!ret_name[0] && (kernel = object_next(OBJECT_KERNEL, &cursor))) {
        if (kernel->program == program)
            (void)!snprintf(ret_name, size, "%s", kernel->name);
        object_unhold(kernel);
    }
}

/* Not for want of memory, nor because the device is gone: so the same again, if it is tried again.
 */
static bool is_lasting(cl_int error)
{
    return error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
           error == CL_LINK_PROGRAM_FAILURE || error == CL_COMPILER_NOT_AVAILABLE ||
           error == CL_LINKER_NOT_AVAILABLE ||
           (error <= CL_INVALID_VALUE && error >= CL_INVALID_LINKER_OPTIONS);
}

static int prepare_program(struct move *move, void *object)
{
    struct program *program = object;
    const struct move_context *entry = entry_of(move, program->context);
    if (!entry)
        return 0;
    bool builds = is_to_build(move, program);
    if (builds) {
        name_program(program, move->builds.building, sizeof(move->builds.building));
        move_tell(move);
    }
    cl_int error = program_make_real(program, target_of(entry), entry->to);
    move->builds.built += builds;
    if (error != CL_SUCCESS) {
        char name[64];
        name_program(program, name, sizeof(name));
        move->report->lasting = is_lasting(error);
        return move_fail(move, -EIO, "a program%s%s does not build on %s (OpenCL error %d)",
                         name[0] ? " with the kernel " : "", name, device_name(move->target),
                         error);
    }
    return 0;
}

static int prepare_kernel(struct move *move, void *object)
{
    struct kernel *kernel = object;
    const struct move_context *entry = entry_of(move, kernel->program->context);
    const struct program *program = kernel->program;
    char reason[256];
    /* One of a program that was built since: move_is_stale asks for another pass. */
    if (!entry || is_busy(move, entry) || kernel->real[entry->to] || !program->real[entry->to] ||
        atomic_load(&program->made[entry->to]) != atomic_load(&program->edition))
        return 0;
    cl_int error = kernel_make_real(kernel, target_of(entry), entry->to);
    if (error != CL_SUCCESS) {
        move->report->lasting = is_lasting(error);
        return move_fail(move, -EIO, "kernel %s cannot be made on %s (OpenCL error %d)",
                         kernel->name, device_name(move->target), error);
    }
    if (!kernel_can_launch(kernel, target_of(entry), entry->to, reason, sizeof(reason))) {
        move->report->lasting = true;
        return move_fail(move, -ENOTSUP, "%s", reason);
    }
    return 0;
}

static int prepare_sampler(struct move *move, void *object)
{
    struct sampler *sampler = object;
    const struct move_context *entry = entry_of(move, sampler->context);
    if (!entry || is_busy(move, entry))
        return 0;
    cl_int error = sampler_make_real(sampler, target_of(entry), entry->to);
    if (error != CL_SUCCESS)
        return move_fail(move, -EIO, "%s refuses a sampler (OpenCL error %d)",
                         device_name(move->target), error);
    return 0;
}

static int prepare_memory(struct move *move, void *object)
{
    struct memory *memory = object;
    const struct move_context *entry = entry_of(move, memory->context);
    if (!entry || is_busy(move, entry) || memory->real[entry->to] || stays_away(entry, memory))
        return 0;
    /* A view of an object is made with it; inside the gate, lest a command of another virtual
     * device that is there already makes it at the same time. */
    gate_enter();
    cl_int error = memory_make_real(memory, target_of(entry), entry->to);
    gate_leave();
    /* More than it may have there: it stays in host memory until a command needs it. */
    if (error == NO_ROOM) {
        atomic_store(&move->target->account.tight, true);
        return 0;
    }
    /* The program may have freed its memory since it released the object. */
    if (error != CL_SUCCESS && !move->paused && object_refs(memory->root) == 0)
        return 0;
    if (error != CL_SUCCESS)
        return move_fail(move, -EIO, "%s has no room for an object of %zu bytes (OpenCL error %d)",
                         device_name(move->target), memory->size, error);
    return 0;
}

static int prepare_queue(struct move *move, void *object)
{
    struct queue *queue = object;
    const struct move_context *entry = entry_of(move, queue->context);
    if (!entry || queue->seat != move->seat || queue->next)
        return 0;
    queue->next_place = entry->to;
    cl_int error = queue_make_real(queue, target_of(entry), &queue->next);
    if (error != CL_SUCCESS)
        return move_fail(move, -EIO, "%s refuses a queue (OpenCL error %d)",
                         device_name(move->target), error);
    return 0;
}

static int for_each(struct move *move, enum object_type type,
                    int (*prepare)(struct move *move, void *object))
{
    uintptr_t cursor = 0;
    void *object;
    int error = 0;
    while (error == 0 && (object = object_next(type, &cursor))) {
        error = prepare(move, object);
        if (error == 0)
            error = move_check(move);
        object_unhold(object);
    }
    return error;
}

int move_prepare(struct move *move)
{
    int error = move_find_contexts(move);
    if (error == 0 && move->target) {
        move->builds = (struct move_progress){.builds = count_builds(move)};
        error = for_each(move, OBJECT_PROGRAM, prepare_program);
        move->builds = (struct move_progress){0};
    }
    return error == 0 ? move_prepare_rest(move) : error;
}

/*
 * What was to work on the program's memory has been written elsewhere since, so that its bytes
 * would have to be brought there: it is made anew beside it, and so is what was made from it.
 */
static void part_from_window(struct memory *root, struct residence *residence, uint8_t place)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    if (!memory_would_write(root, place))
        return;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->root == root && memory != root) {
            residence_release(residence->cl, OBJECT_MEMORY, memory->real[place]);
            memory_left(memory, residence, place);
        }
    residence_release(residence->cl, OBJECT_MEMORY, root->real[place]);
    memory_left(root, residence, place);
    extents_dropped(root, place);
}

static int part_memory(struct move *move, void *object)
{
    struct memory *memory = object;
    const struct move_context *entry = entry_of(move, memory->context);
    if (move->paused && entry && entry->made && memory->root == memory)
        part_from_window(memory, target_of(entry), entry->to);
    return 0;
}

int move_prepare_rest(struct move *move)
{
    static const struct {
        enum object_type type;
        int (*prepare)(struct move *move, void *object);
    } steps[] = {
        {OBJECT_MEMORY, part_memory},      {OBJECT_MEMORY, prepare_memory},
        {OBJECT_SAMPLER, prepare_sampler}, {OBJECT_KERNEL, prepare_kernel},
        {OBJECT_QUEUE, prepare_queue},
    };
    int error = 0;
    for (size_t i = 0; move->target && error == 0 && i < ARRAY_SIZE(steps); i++)
        error = for_each(move, steps[i].type, steps[i].prepare);
    return error;
}

int move_rehearse(struct move *move)
{
    struct device *here = atomic_load(&move->seat->device);
    struct move_report *report = move->report;
    struct move resume = {.request = move->request,
                          .report = report,
                          .seat = move->seat,
                          .target = here,
                          .limits = move->limits,
                          .rehearses = true};
    struct reach now;
    char why[256];
    reach_read(&now);
    const char *lost = reach_lost(&here->reach, &now);
    if (!lost)
        return 0;
    int error = move_find_contexts(&resume);
    if (error == 0)
        error = for_each(&resume, OBJECT_PROGRAM, prepare_program);
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
