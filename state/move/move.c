#include "state/move/move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan.h"
#include "state/base/clock.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/work.h"
#include "state/budget/budget.h"
#include "state/command/journal.h"
#include "state/driver/offer.h"
#include "state/memory/write_tracked.h"
#include "state/move/move_priv.h"
#include "state/move/spread.h"
#include "state/object/lost.h"
#include "state/object/usage.h"
#include "state/program/program.h"

/* Passes of PREPARE before a move gives up on a program that keeps making contexts or building
 * programs. */
#define ATTEMPTS 10
/* How often a move that waits for another operation checks its deadline and cancellation. */
#define RETRY_STEP_NS 10000000u
/* The same for one that waits until the speed of a launch is known. */
#define SPREAD_STEP_NS 1000000u

/* Update the high-water marks in @use with the live objects. */
static void move_measure_memory(const struct vdev *vdev, struct plan_use *use)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->root == memory && context_vdev_index(memory->context, vdev) >= 0) {
            use->device_memory += memory->size;
            if (memory->size > use->largest_object)
                use->largest_object = memory->size;
        }
        object_unhold(memory);
    }
}

/* The device that it runs on, or ran on before it was suspended. */
static const struct device *move_served_by(const struct vdev *vdev)
{
    const struct device *here = atomic_load(&vdev->device);
    return here ? here : atomic_load(&vdev->last);
}

/* When the grant is less than the program has, at least what one command uses must fit in it. */
static void move_limit_to_grant(const struct move *move, struct plan_use *use,
                                struct plan_offer *offer)
{
    const uint64_t *grant = move->request->grant;
    const struct device *here = atomic_load(&move->vdev->device);
    bool past = move->basis == MOVE_BY_REST;
    uint64_t least = here && !past ? atomic_load(&here->budget.least) : 0;
    if (!grant)
        return;
    if (least < use->largest_object)
        least = use->largest_object;
    if (use->device_memory > *grant)
        use->device_memory = least;
    if (offer->memory_available > *grant)
        offer->memory_available = *grant;
}

static int move_plan(struct move *move)
{
    int refused = move_check_pins(move);
    move->recovers = move_can_recover(move);
    if (refused == 0)
        refused = move_check_survivors(move);
    if (refused != 0)
        return refused;
    if (!move->request->target) {
        if (!atomic_load(&move->vdev->device))
            return move_fail(move, -EALREADY, "the program is suspended already");
        return move_rehearse(move);
    }
    int error = driver_open_device(move->request->target, &move->target);
    if (error != 0)
        return move_fail(move, -ENOTSUP, "%s cannot be opened: %s",
                         move->request->target_name[0] ? move->request->target_name
                                                       : move->request->target->device,
                         strerror(-error));
    device_call(move->target, move->request->target_name);
    if (move->target == atomic_load(&move->vdev->device) && !move->recovers)
        return move_fail(move, -EALREADY, "the program is on %s already",
                         device_name(move->target));
    if (device_version(move->target) < CL_MAKE_VERSION(1, 2, 0))
        return move_fail(move, -ENOTSUP, "%s has OpenCL %u.%u, and moving there takes 1.2",
                         device_name(move->target), CL_VERSION_MAJOR(device_version(move->target)),
                         CL_VERSION_MINOR(device_version(move->target)));
    struct plan_use use;
    struct plan_offer offer, served;
    if (move->basis == MOVE_BY_MINIMUM) {
        use = *move->minimum;
    } else {
        usage_read(&use);
        move_measure_memory(move->vdev, &use);
        offer_from_devinfo(&move_served_by(move->vdev)->info, &served);
        use.served = &served;
    }
    offer_from_devinfo(&move->target->info, &offer);
    offer.name = device_name(move->target);
    if (move->basis != MOVE_BY_MINIMUM)
        move_limit_to_grant(move, &use, &offer);
    if (!plan_fits(&use, &offer, move->report->reason, sizeof(move->report->reason)))
        return -ENOTSUP;
    char kernels[128];
    if (!program_library_serves(move->vdev, move->target, kernels, sizeof(kernels)))
        return move_fail(move, -ENOTSUP, "%s has no compiler and no binary in the library for %s",
                         device_name(move->target), kernels);
    return 0;
}

/* From now on the pause is not limited any more: the move is about to commit. */
static void move_pause_is_kept(struct move *move)
{
    move->limits.deadline_ns = move->request->deadline_ns;
}

static void move_pause_end(struct move *move)
{
    move_pause_is_kept(move);
    if (!move->paused)
        return;
    gate_open();
    move->paused = false;
    span_end_at(span_wanted() ? move->paused_at : 0, SPAN_GATE, "gate", "gate closed", NULL, 0);
    move->report->downtime_ns += clock_now_ns() - move->paused_at;
}

static int move_pause_begin(struct move *move)
{
    move->paused_at = clock_now_ns();
    move->report->aim_ns = move_downtime_limit(move);
    move->limits.deadline_ns = move_pause_limit(move);
    int error = move_close_gate(move);
    if (error == 0)
        move->paused = true;
    else
        move->report->downtime_ns += clock_now_ns() - move->paused_at;
    return error;
}

/* In the pause: make and copy what was added or written since. */
static int move_bring_up_to_date(struct move *move)
{
    uint64_t begun = clock_now_ns();
    int error = move_drain(move);
    move->report->drain_ns += clock_now_ns() - begun;
    if (error == 0)
        error = move_check_pause(move);
    if (error == 0)
        error = move_prepare_rest(move);
    if (error != 0)
        return error;
    move_enter_phase(move, MOVE_COPY);
    return move->recovers ? 0 : move_copy_rest(move);
}

/* True when a strict move's pause was undone for lasting too long, and another may be tried. */
static bool move_may_try_again(const struct move *move, int error)
{
    uint64_t deadline = move->request->deadline_ns;
    return error == -ETIMEDOUT && move_is_strict(move) &&
           (deadline == 0 || clock_now_ns() < deadline);
}

static bool move_offers_target(const void *data, const struct context *context,
                               uint8_t residence_index)
{
    const struct move *move = data;
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == context)
            return move->contexts[i].to == residence_index;
    return false;
}

static bool move_has_to_stop(const void *data)
{
    return move_check((struct move *)(uintptr_t)data) != 0;
}

/* Have source and target run the current launch together. What the source did of it is copied
 * during the pause. */
static int move_spread(struct move *move)
{
    const struct spread_request request = {.vdev = move->vdev,
                                           .offers = move_offers_target,
                                           .stops = move_has_to_stop,
                                           .data = move,
                                           .limits = move->limits};
    uint64_t bytes, ns;
    int error, spread;
    /* Wait while the launch's speed is unknown: a pause would wait for its first piece as well. */
    while ((error = move_check(move)) == 0 &&
           (spread = spread_run(&request, &move->spread)) == -EAGAIN)
        clock_sleep(SPREAD_STEP_NS);
    if (error == 0 && spread == 0)
        error = move_copy_round(move, 1, &bytes, &ns);
    return error == 0 ? move_check(move) : error;
}

static void move_spread_over(struct move *move)
{
    spread_end(move->spread);
    move->spread = NULL;
}

/* PREPARE. @again: what was made or copied before was too little. */
static int move_do_prepare(struct move *move, bool again)
{
    move_enter_phase(move, MOVE_PREPARE);
    int error = move_prepare(move);
    move->on_demand = error == 0 && move_is_on_demand(move);
    bool by_itself =
        move->on_demand || move->recovers; /* its bytes are fetched or restored later */
    if (error == 0 && !again && !by_itself)
        error = move_copy_ahead(move);
    if (error == 0 && move->request->spreads && move->target && !by_itself)
        error = move_spread(move);
    return error == 0 ? move_quiesce(move) : error;
}

/* PAUSE and COPY. @last: what the program made meanwhile is made while it is paused, unless the
 * pause is limited. @ret_stale: it is to be prepared again. */
static int move_do_pause(struct move *move, bool last, bool *ret_stale)
{
    move_enter_phase(move, MOVE_PAUSE);
    int error = move_pause_begin(move);
    bool stale = error == 0 && move_is_stale(move);
    if (stale && last && !move_is_strict(move)) {
        error = move_prepare(move);
        stale = false;
    }
    if (error == 0 && !stale)
        error = move_bring_up_to_date(move);
    *ret_stale = stale;
    return error;
}

/* PREPARE, PAUSE and COPY, repeated when the program made something that takes long to make at the
 * target, or when the pause would be too long. A program that makes more each time is paused for as
 * long as that takes in the end, unless the pause is limited. */
static int move_prepare_and_copy(struct move *move)
{
    int error = 0, attempt = 0;
    bool stale = false;
    while (error == 0 && attempt < ATTEMPTS) {
        error = move_do_prepare(move, stale);
        if (error != 0)
            return error;
        error = move_do_pause(move, attempt + 1 == ATTEMPTS, &stale);
        if (!stale && !move_may_try_again(move, error))
            return error;
        move_pause_end(move);
        move_spread_over(move);
        attempt += stale;
        error = stale ? 0 : move_rest(move);
    }
    return error != 0 ? error
                      : move_fail(move, -EBUSY,
                                  "the program makes contexts or builds programs faster than they "
                                  "can be made on the target");
}

static int move_transact_phases(struct move *move)
{
    int error = move_prepare_and_copy(move);
    move_pause_is_kept(move);
    if (error == 0)
        error = move_arrive(move);
    if (error == 0)
        error = move_reserve(move);
    if (error == 0)
        error = move_check(move);
    if (error != 0)
        return error;
    move_enter_phase(move, MOVE_COMMIT);
    move_commit(move);
    if (move->recovers)
        move->unrecovered = move_recover(move);
    return 0;
}

enum move_result move_result_of(int error)
{
    switch (error) {
    case 0:
        return MOVE_DONE;
    case -ETIMEDOUT:
        return MOVE_EXPIRED;
    case -ECANCELED:
        return MOVE_CANCELED;
    case -ESHUTDOWN:
        return MOVE_ENDED;
    case -EPERM:
        return MOVE_REFUSED;
    default:
        return MOVE_ROLLED_BACK;
    }
}

static void move_conclude(struct move *move, int error)
{
    move_end_phase(move);
    if (error == -ETIMEDOUT)
        (void)move_fail(move, error, "the deadline passed while it was in phase %s",
                        move_phase_name(move->report->reached));
    else if (error == -ECANCELED)
        (void)move_fail(move, error, "canceled in phase %s",
                        move_phase_name(move->report->reached));
    else if (error == -ESHUTDOWN)
        (void)move_fail(move, error, "the program ends");
    else if (error != 0)
        (void)move_fail(move, error, "%s in phase %s", strerror(-error),
                        move_phase_name(move->report->reached));
    else
        move->report->reason[0] = '\0';
    move->report->lasting = error != 0 && move->report->lasting;
    move->report->result = move_result_of(error);
    if (move->report->result == MOVE_ROLLED_BACK && move->report->reached == MOVE_PLAN)
        move->report->result = MOVE_REFUSED; /* nothing was made yet */
}

static void move_run_phases(struct move *move)
{
    move_enter_phase(move, MOVE_PLAN);
    if (move->basis == MOVE_BY_REST)
        reconfigure_marks_renew();
    int error = move_plan(move);
    if (error != 0 || move->request->dry_run) {
        if (move->basis == MOVE_BY_REST)
            reconfigure_marks_end(true);
        move_conclude(move, error);
        return;
    }
    if (move->target)
        ready_examine(move->target);
    if (move->request->prewarm) {
        error = ready_make(move);
        if (!move->gave_way)
            move_conclude(move, error);
        return;
    }
    atomic_store(&move->vdev->moving, true);
    if (move->recovers)
        the_upcalls->recovery_opens();
    if (move->target && move->request->grant)
        budget_reserve(move->target, *move->request->grant);
    if (move->resumes) {
        move_enter_phase(move, MOVE_PREPARE);
        error = the_upcalls->bring_stored(move);
    }
    if (error == 0)
        error = move_transact_phases(move);
    move_end_phase(move);
    move_pause_end(move);
    move_spread_over(move);
    transfer_series_finish(&move->series);
    write_tracked_end_all();
    if (error == 0) {
        move_enter_phase(move, MOVE_RESUME);
        move->report->arrived_ns = clock_now_ns() - move->begun_at;
        atomic_store(&move->vdev->last_downtime_ns, move->report->downtime_ns);
        context_wake();
        defer_pump_soon();
        move_release_left(move);
        move->report->left =
            fetch_begin(move->vdev, move->on_demand, throttle_rate(&move->throttle));
        (void)ready_drop(NULL, move->vdev); /* the program moved, to this device or another one */
    } else {
        if (error == -EIO)
            move_examine_target(move);
        error = move_rescue(move, error);
        move_undo(move);
        budget_unreserve();
    }
    if (move->basis == MOVE_BY_REST)
        reconfigure_marks_end(error != 0);
    move_release_vacant();
    move_conclude(move, error != 0 ? error : move->unrecovered);
    if (move->recovers)
        the_upcalls->recovery_closes();
    atomic_store(&move->vdev->moving, false);
    move_forget_contexts(move);
}

/* True when another operation on @move's device must finish first. Movers' lock held. */
static bool move_must_wait(const struct move *move)
{
    if (move->request->dry_run)
        return false;
    if (move->request->prewarm)
        return move_is_awaited() || move_is_made_ready(move->request->target);
    return !move->resumes && !vdev_is_lost(move->vdev) && retry_delays_moves(move->vdev);
}

/*
 * Take the movers' lock once nothing has to finish first. 0, or -errno with the reason written and
 * the lock not held.
 */
static int move_lock_to_move(struct move *move)
{
    const struct move_request *request = move->request;
    for (;;) {
        if (!(request->prewarm ? move_lock_to_prewarm(move->limits.deadline_ns, move->limits.cancel)
                               : move_lock_unless(move->limits.deadline_ns, move->limits.cancel))) {
            bool canceled = move->limits.cancel && atomic_load(move->limits.cancel);
            return move_fail(move, canceled ? -ECANCELED : -ETIMEDOUT,
                             "another move of the program went on");
        }
        move->resumes = request->target && !request->prewarm && !atomic_load(&move->vdev->device);
        if (!move_must_wait(move))
            return 0;
        move_unlock();
        retry_wait(RETRY_STEP_NS);
        int error = move_check(move);
        if (error != 0 && error != -EAGAIN)
            return move_fail(move, error,
                             "what the program builds, and moves made start over, goes first");
    }
}

/* Move @vdev to @to. False when it is there already; @ret_report has the result. */
static bool move_to(struct vdev *vdev, const struct device *to, struct move_report *ret_report)
{
    struct move_request request = {.target = &to->key, .vdev = vdev->index, .manner = MOVE_NEEDED};
    move_run(&request, ret_report);
    return ret_report->result == MOVE_DONE;
}

bool move_home(struct vdev *vdev)
{
    struct device *here = atomic_load(&vdev->device);
    struct move_report report;
    return here && here != vdev->origin && move_to(vdev, vdev->origin, &report);
}

/* Move back to the device where the program began, or where that fails (it may be gone) to the one
 * before. */
bool move_back(struct vdev *vdev, struct device *here, const char *kernel)
{
    struct device *const ways[] = {vdev->origin, atomic_load(&vdev->last)};
    struct move_report report;
    for (size_t i = 0; here && i < ARRAY_SIZE(ways); i++) {
        if (atomic_load(&vdev->device) != here)
            return true;
        if (ways[i] == here || (i > 0 && ways[i] == ways[0]))
            continue;
        log_info("kernel %s cannot run on %s: going back to %s", kernel, here->key.device,
                 ways[i]->key.device);
        if (move_to(vdev, ways[i], &report))
            return true;
        log_warn("kernel %s: no way back to %s: %s", kernel, ways[i]->key.device, report.reason);
    }
    return false;
}

void move_await(void)
{
    move_lock();
    move_unlock();
}

void move_transact(struct move *move)
{
    const struct move_request *request = move->request;
    move->limits = (struct transfer_limits){
        .deadline_ns = request->deadline_ns, .cancel = request->cancel, .done = &move->done};
    move->throttle.rate = request->bandwidth;
    move->throttle.changed = request->change ? &request->change->bandwidth : NULL;
    move->yields = request->prewarm;
    move->begun_at = clock_now_ns();
    do {
        move->gave_way = false;
        int error = move_lock_to_move(move);
        if (error != 0) {
            move_conclude(move, error);
            return;
        }
        struct owned_room room = {0, 0};
        /* A program that uses up its limit of open files cannot close any while it waits for this
         * move: give the move room. */
        if (move_can_recover(move))
            owned_room_begin(&room);
        if (work_begin() || move->resumes) {
            the_thread.worked = true;
            move_run_phases(move);
        } else {
            move_conclude(move, -ESHUTDOWN);
        }
        work_end();
        owned_room_end(&room);
        move_unlock();
    } while (move->gave_way);
}

int move_cool(const struct device_key *target, uint64_t deadline_ns)
{
    struct device *device = NULL;
    if (target && driver_open_device(target, &device) != 0)
        return -ENOENT;
    int error = move_lock_until(deadline_ns, false) ? 0 : -ETIMEDOUT;
    if (error == 0) {
        /* When the process exits, these residences go with it. */
        error = work_begin() && ready_drop(device, NULL) != 0 ? 0 : -ENOENT;
        work_end();
        move_unlock();
    }
    return error;
}

/* A span around all phases. */
static void move_trace_whole(const struct move_request *request, uint64_t begun,
                             const struct move_report *report)
{
    char name[SPAN_NAME];
    const char *to = !request->target          ? "host memory"
                     : request->target_name[0] ? request->target_name
                                               : request->target->device;
    if (!span_wanted())
        return;
    (void)!snprintf(name, sizeof(name), "%s %.24s: %s",
                    request->prewarm ? "made ready for" : "move to", to,
                    move_result_name(report->result));
    span_end(begun, "move", name, "bytes", report->bytes);
}

void move_run(const struct move_request *request, struct move_report *ret_report)
{
    uint64_t start = clock_now_ns();
    memset(ret_report, 0, sizeof(*ret_report));
    reconfigure_run(request, ret_report);
    ret_report->total_ns = clock_now_ns() - start;
    move_trace_whole(request, start, ret_report);
    log_info("%s to %s: %s%s%s, %.3f ms in all, %.3f ms paused, %llu bytes",
             request->prewarm ? "made ready to go" : "move",
             request->target ? request->target->device : "host memory",
             move_result_name(ret_report->result), ret_report->reason[0] ? ": " : "",
             ret_report->reason, (double)ret_report->total_ns / 1e6,
             (double)ret_report->downtime_ns / 1e6, (unsigned long long)ret_report->bytes);
}
