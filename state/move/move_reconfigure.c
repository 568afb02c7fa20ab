#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plan.h"
#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/budget/budget.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "state/object/usage.h"
#include "state/program/kernel.h"
#include "state/program/program.h"
#include "state/recipe/recipe.h"

/*
 * Moves of a program that reconfigures itself: it is asked before the transaction and told after
 * it, through move_partner. The transaction is the same as for other programs.
 */

/* How long a move waits for a program that is opening its first driver. */
#define START_PATIENCE_NS 30000000000u

static const struct move_partner *_Atomic the_partner;

void move_set_partner(const struct move_partner *partner)
{
    atomic_store(&the_partner, partner);
}

/* ---- what the program has used ---- */

static void move_reconfigure_note_memory(void)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->image)
            usage_note_image(memory->image);
        if (memory->root == memory)
            usage_note_object(memory->size);
        else if (memory->type == CL_MEM_OBJECT_BUFFER)
            usage_note_sub_buffer(memory->origin);
        object_unhold(memory);
    }
}

static void move_reconfigure_note_programs(void)
{
    uintptr_t cursor = 0;
    struct program *program;
    while ((program = object_next(OBJECT_PROGRAM, &cursor))) {
        pthread_mutex_lock(&program->lock);
        struct recipe *recipe = program->recipe ? recipe_ref(program->recipe) : NULL;
        pthread_mutex_unlock(&program->lock);
        if (recipe)
            usage_note_recipe(recipe);
        recipe_unref(recipe);
        object_unhold(program);
    }
}

/* Marks of kernels, to be restored. Guarded by the movers' lock. */
static struct {
    struct saved {
        struct kernel *kernel; /* held */
        struct kernel_marks marks;
    } * list;
    size_t count;
} saved;

static void move_reconfigure_renew_kernels(void)
{
    uintptr_t cursor = 0;
    struct kernel *kernel;
    while ((kernel = object_next(OBJECT_KERNEL, &cursor))) {
        if (!array_make_room(&saved.list, saved.count, sizeof(saved.list[0]))) {
            object_unhold(kernel); /* its marks stay as they are */
            continue;
        }
        saved.list[saved.count].kernel = kernel;
        kernel_marks_renew(kernel, &saved.list[saved.count++].marks);
    }
}

static void move_reconfigure_forget_saved(void)
{
    for (size_t i = 0; i < saved.count; i++)
        object_unhold(saved.list[i].kernel);
    free(saved.list);
    saved.list = NULL;
    saved.count = 0;
}

void reconfigure_marks_renew(void)
{
    usage_renew();
    move_reconfigure_renew_kernels();
    move_reconfigure_note_memory();
    move_reconfigure_note_programs();
}

void reconfigure_marks_end(bool restore)
{
    if (restore)
        usage_restore();
    for (size_t i = 0; restore && i < saved.count; i++)
        kernel_marks_restore(saved.list[i].kernel, &saved.list[i].marks);
    move_reconfigure_forget_saved();
}

/* ---- the move ---- */

static void move_reconfigure_transact(const struct move_request *request, enum move_basis basis,
                                      const struct plan_use *minimum, struct move_report *report)
{
    struct move move = {.basis = basis,
                        .minimum = minimum,
                        .request = request,
                        .report = report,
                        .vdev = the_vdevs[request->vdev]};
    memset(report, 0, sizeof(*report));
    move_transact(&move);
}

/* True when the target has what the program requires, so that asking it makes sense. */
static bool move_reconfigure_is_worth_asking(const struct move_request *request,
                                             const struct plan_use *minimum,
                                             struct move_report *report)
{
    struct move_request question = *request;
    question.dry_run = true;
    move_reconfigure_transact(&question, MOVE_BY_MINIMUM, minimum, report);
    return report->result == MOVE_DONE;
}

/* The former device, and the former grant there. */
struct origin {
    const struct device *device;
    struct budget_use room;
};

/* The program could not configure itself for the target: move it back. */
static void move_reconfigure_go_back(const struct move_partner *partner,
                                     const struct move_request *request,
                                     const struct origin *origin, struct move_report *report,
                                     const char *why)
{
    const struct device *from = origin->device;
    struct move_request back = {
        .target = &from->key,
        .vdev = request->vdev,
        .manner = MOVE_NEEDED,
        .grant = origin->room.limited ? &origin->room.granted : NULL,
    };
    struct move_report way_back;
    /* Its failed attempt may have released objects, so compare live objects only. */
    move_reconfigure_transact(&back, MOVE_BY_REST, NULL, &way_back);
    report->downtime_ns += way_back.downtime_ns;
    report->bytes += way_back.bytes;
    /* Another mover may have moved it in between. */
    bool gone =
        way_back.result != MOVE_DONE && atomic_load(&the_vdevs[request->vdev]->device) != from;
    partner->told(&back, gone ? MOVE_NEWS_STAYS : MOVE_NEWS_BACK);
    if (gone) {
        log_warn("%s; and it cannot go back to %s: %s", why, from->key.device, way_back.reason);
        return;
    }
    report->result = MOVE_ROLLED_BACK;
    snprintf(report->reason, sizeof(report->reason), "%.380s; it is back on %.100s", why,
             device_name(from));
}

static void move_reconfigure_run_asked(const struct move_partner *partner,
                                       const struct plan_use *minimum,
                                       const struct move_request *request,
                                       struct move_report *report)
{
    char reason[512] = "";
    struct device *target = NULL;
    if (!move_reconfigure_is_worth_asking(request, minimum, report) || request->dry_run)
        return;
    if (request->target && driver_open_device(request->target, &target) != 0)
        return; /* the driver is open since move_reconfigure_is_worth_asking */
    struct origin origin = {.device = atomic_load(&the_vdevs[request->vdev]->device)};
    int left = partner->leave(request, target, reason, sizeof(reason));
    if (left < 0) {
        report->result = left == -EBUSY ? MOVE_REFUSED : move_result_of(left);
        snprintf(report->reason, sizeof(report->reason), "%s", reason);
        return;
    }
    budget_read(request->vdev, &origin.room);
    move_reconfigure_transact(request, left == 0 ? MOVE_BY_REST : MOVE_BY_USE, NULL, report);
    bool done = report->result == MOVE_DONE;
    if (partner->arrive(request, done, reason, sizeof(reason)) == 0)
        return;
    move_reconfigure_go_back(partner, request, &origin, report, reason);
}

/* True when a thread of the program waits, or may wait, for this move: then the program cannot be
 * asked first. */
static bool move_reconfigure_is_needed(const struct move_request *request)
{
    struct device *here = atomic_load(&the_vdevs[request->vdev]->device);
    return request->manner == MOVE_NEEDED ||
           (request->manner == MOVE_ASKED && here && atomic_load(&here->budget.asking) != 0);
}

bool move_await_start(uint64_t deadline_ns, struct move_report *ret_report)
{
    uint64_t patience = clock_now_ns() + START_PATIENCE_NS;
    if (deadline_ns != 0 && deadline_ns < patience)
        patience = deadline_ns;
    if (vdevs_wait_init(patience) == 0)
        return true;
    ret_report->result = MOVE_EXPIRED;
    snprintf(ret_report->reason, sizeof(ret_report->reason), "the program is still starting");
    return false;
}

void reconfigure_run(const struct move_request *request, struct move_report *ret_report)
{
    struct move_report *report = ret_report;
    const struct move_partner *partner = atomic_load(&the_partner);
    struct plan_use minimum;
    if (!move_await_start(request->deadline_ns, report))
        return;
    if (request->vdev >= vdevs_count()) {
        report->result = MOVE_REFUSED;
        snprintf(report->reason, sizeof(report->reason), "the program has no virtual device %u",
                 request->vdev);
        return;
    }
    if (!partner || !partner->minimum(&minimum)) {
        move_reconfigure_transact(request, MOVE_BY_USE, NULL, report);
        return;
    }
    if (request->prewarm) { /* it is asked when it really moves */
        move_reconfigure_transact(request, MOVE_BY_MINIMUM, &minimum, report);
        return;
    }
    if (!move_reconfigure_is_needed(request)) {
        move_reconfigure_run_asked(partner, &minimum, request, report);
        return;
    }
    move_reconfigure_transact(request, MOVE_BY_USE, NULL, report);
    if (report->result == MOVE_DONE && !request->dry_run)
        partner->told(request, MOVE_NEWS_MOVED);
}
