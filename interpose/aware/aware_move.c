#include <errno.h>
#include <stdio.h>

#include "interpose/aware/aware_priv.h"
#include "policy/reseat_limits.h"
#include "state/base/clock.h"
#include "state/base/threads/work.h"

/*
 * The mover's side: has the program save and clean up before a move and configure itself after it,
 * and waits for that. The mover never calls the program itself, so that a callback that hangs
 * delays nobody beyond its deadline.
 */

/* How often a mover checks whether it was canceled. */
#define LOOK_NS 10000000u

static bool aware_move_minimum_of(struct plan_use *ret_use)
{
    pthread_mutex_lock(&aware.lock);
    bool registered = aware.registered;
    if (registered)
        reseat_limits_plan(&aware.program.minimum, ret_use);
    pthread_mutex_unlock(&aware.lock);
    return registered;
}

/* 0, -ECANCELED or -ETIMEDOUT, with the reason. */
static int aware_move_check(const struct move_request *request, char *ret_reason, size_t size)
{
    const char *stage = aware_stage_name(aware.now.stage);
    bool runs = aware.now.stage != AWARE_IDLE;
    if (work_is_over()) {
        snprintf(ret_reason, size, "the program ends");
        return -ECANCELED;
    }
    if (request->cancel && atomic_load(request->cancel)) {
        snprintf(ret_reason, size, "canceled while the program reconfigures itself%s%s%s",
                 runs ? " (its callback " : "", runs ? stage : "", runs ? " runs)" : "");
        return -ECANCELED;
    }
    if (request->deadline_ns != 0 && clock_now_ns() >= request->deadline_ns) {
        snprintf(ret_reason, size,
                 "the deadline passed while the program reconfigures itself%s%s%s",
                 runs ? " (its callback " : "", runs ? stage : "", runs ? " runs)" : "");
        return -ETIMEDOUT;
    }
    return 0;
}

/* Wait for a change, or until it is time to look again. */
static void aware_move_look_later(uint64_t until_ns)
{
    uint64_t soon = clock_now_ns() + LOOK_NS;
    aware_wait(until_ns != 0 && until_ns < soon ? until_ns : soon);
}

/* True when a callback exceeds its time. */
static bool aware_move_is_overdue(void)
{
    return aware.now.stage != AWARE_IDLE && clock_now_ns() >= aware.now.deadline_ns;
}

static void aware_move_say_overdue(char *ret_reason, size_t size)
{
    const struct aware_now *now = &aware.now;
    if (now->stage == AWARE_IDLE) {
        snprintf(ret_reason, size, "the program's callback did not begin in time");
        return;
    }
    snprintf(ret_reason, size,
             "the program's %s callback has not returned for %llu ms; it had %llu",
             aware_stage_name(now->stage),
             (unsigned long long)((clock_now_ns() - now->since_ns) / 1000000u),
             (unsigned long long)((now->deadline_ns - now->since_ns) / 1000000u));
}

static void aware_move_say_failed(char *ret_reason, size_t size)
{
    snprintf(ret_reason, size, "the program's %s callback failed (%d)",
             aware_stage_name(aware.failed), aware.failure);
}

static bool aware_move_is_settled(void)
{
    bool settled = aware.now.stage == AWARE_IDLE || aware.now.stage == AWARE_NOTIFY;
    for (uint32_t i = 0; settled && i < VDEVS; i++)
        settled = aware_due(i) == 0;
    return settled;
}

int aware_claim(const struct move_request *request, char *ret_reason, size_t size)
{
    while (aware.mover) {
        int error = aware_move_check(request, ret_reason, size);
        if (error != 0)
            return error;
        aware_move_look_later(0);
    }
    /* Without a device nothing can be asked, and a callback may be waiting for one. */
    bool has_device = atomic_load(&the_vdevs[request->vdev]->device);
    while (has_device && aware.registered && !aware_move_is_settled()) {
        int error = aware_move_check(request, ret_reason, size);
        if (error != 0)
            return error;
        if (aware_move_is_overdue())
            break;
        aware_move_look_later(aware.now.stage != AWARE_IDLE ? aware.now.deadline_ns : 0);
    }
    /* A move that takes the program goes on without its help. */
    bool overdue = aware.registered && aware_move_is_overdue();
    if (overdue && has_device && request->manner != MOVE_TAKEN) {
        aware_move_say_overdue(ret_reason, size);
        return -EBUSY;
    }
    aware.mover = true;
    aware.mover_vdev = request->vdev;
    struct aware_vdev *vdev = &aware.vdevs[request->vdev];
    vdev->from = atomic_load(&the_vdevs[request->vdev]->device);
    vdev->elsewhere = false;
    return aware.registered && !overdue && has_device ? 0 : 1;
}

static void aware_move_release(void)
{
    aware.mover = aware.mover_listens = false;
    pthread_cond_broadcast(&aware.changed);
}

/* True when the device of @vdev is lost: the callback may then be waiting for a command that ends
 * only once the program was recovered, and the recovery waits for the caller. The lock is released
 * meanwhile, as it must not be held inside the gate. */
static bool aware_move_is_lost(uint32_t vdev)
{
    pthread_mutex_unlock(&aware.lock);
    bool lost = vdev_is_lost(the_vdevs[vdev]);
    pthread_mutex_lock(&aware.lock);
    return lost;
}

/* The callback is still waited for. Returns 0, or -errno with the reason why it need not be. */
static int aware_move_go_on(const struct move_request *request, enum aware_stage stage,
                            uint64_t deadline, char *ret_reason, size_t size)
{
    int error = aware_move_check(request, ret_reason, size);
    if (error != 0)
        return error;
    if (stage == AWARE_SAVE && aware_move_is_lost(request->vdev)) {
        snprintf(ret_reason, size, "its device was lost while it was asked for its progress");
        return -EIO;
    }
    if (clock_now_ns() >= deadline) {
        aware_move_say_overdue(ret_reason, size);
        return -EIO;
    }
    return 0;
}

int aware_ask(const struct move_request *request, enum aware_stage stage,
              const struct device *target, const bool *enough, char *ret_reason, size_t size)
{
    uint64_t registration = aware.registration;
    uint64_t deadline = clock_now_ns() + aware_patience(stage) * 1000000ull;
    if (request->deadline_ns != 0 && request->deadline_ns < deadline)
        deadline = request->deadline_ns;
    aware.ask = (struct aware_ask){
        .stage = stage,
        .vdev = request->vdev,
        .reason = stage == AWARE_SAVE             ? RESEAT_IMAGE
                  : request->manner == MOVE_TAKEN ? RESEAT_TAKEN
                                                  : RESEAT_MOVE,
        .deadline_ns = deadline,
        .from = atomic_load(&the_vdevs[request->vdev]->device),
        .to = target,
    };
    aware.failed = AWARE_IDLE;
    pthread_cond_broadcast(&aware.changed);
    int error = 0;
    while (error == 0 && !(enough && *enough) && aware.registration == registration &&
           (aware.ask.stage != AWARE_IDLE || aware.now.stage == stage)) {
        error = aware_move_go_on(request, stage, deadline, ret_reason, size);
        if (error == 0)
            aware_move_look_later(deadline);
    }
    if (aware.registration != registration)
        return 1;
    if (enough && *enough) {
        aware.now.abandoned = true;
        return 0;
    }
    if (error != 0) {
        aware.ask.stage = AWARE_IDLE;
        aware.now.abandoned = true;
        return error;
    }
    if (aware.failed == AWARE_IDLE)
        return 0;
    aware_move_say_failed(ret_reason, size);
    return -EIO;
}

/* True while a `resume` callback runs: the program may have continued, so what it saved is out of
 * date. */
static bool aware_move_is_resuming(uint32_t vdev)
{
    return aware.now.stage == AWARE_RESUME && aware.now.vdev == vdev &&
           aware.now.registration == aware.registration;
}

/* The virtual device is on another device now. What is not cleaned up is done first. */
static void aware_move_arrived(uint32_t vdev, uint32_t reason)
{
    struct aware_vdev *one = &aware.vdevs[vdev];
    if (aware_move_is_resuming(vdev))
        one->begun = 0;
    if (aware.now.stage != AWARE_IDLE && aware.now.vdev == vdev)
        aware.now.abandoned = true; /* it concerns the device where the program was */
    bool cleaned = one->begun & AWARE_BIT(AWARE_CLEAN_UP);
    one->due = AWARE_SECOND_HALF | (cleaned ? 0 : AWARE_FIRST_HALF);
    one->reason = cleaned ? reason : RESEAT_MOVED;
    if (!cleaned)
        one->from = aware_followed(vdev);
}

static int aware_move_leave(const struct move_request *request, const struct device *target,
                            char *ret_reason, size_t reason_size)
{
    pthread_mutex_lock(&aware.lock);
    int error = aware_claim(request, ret_reason, reason_size);
    bool claimed = error >= 0;
    if (error == 0)
        error = aware_ask(request, AWARE_CHECKPOINT, target, NULL, ret_reason, reason_size);
    if (error == 0)
        error = aware_ask(request, AWARE_CLEAN_UP, target, NULL, ret_reason, reason_size);
    if (error == -EIO && request->manner == MOVE_TAKEN)
        error = 1;
    if (error < 0 && claimed) {
        aware_give_up(request->vdev);
        aware_move_release();
    }
    pthread_mutex_unlock(&aware.lock);
    return error;
}

/* Wait for the callbacks after a move. A failure is reported to the mover until its own deadline
 * passes. */
static int aware_move_await_second_half(const struct move_request *request, char *ret_reason,
                                        size_t size)
{
    uint64_t registration = aware.registration;
    const struct aware_now *now = &aware.now;
    int error = 0;
    aware.failed = AWARE_IDLE;
    aware.mover_listens = true;
    pthread_cond_broadcast(&aware.changed);
    while (error == 0 && aware.failed == AWARE_IDLE && aware.registration == registration &&
           !work_is_over() && !aware_move_is_settled() &&
           (request->deadline_ns == 0 || clock_now_ns() < request->deadline_ns)) {
        if (aware_move_is_overdue()) {
            aware_move_say_overdue(ret_reason, size);
            aware.now.abandoned = true;
            aware.vdevs[request->vdev].due = 0;
            error = -EIO;
        } else {
            aware_move_look_later(now->stage != AWARE_IDLE ? now->deadline_ns : 0);
        }
    }
    if (aware.registration != registration)
        return 0;
    if (aware.failed != AWARE_IDLE) {
        aware_move_say_failed(ret_reason, size);
        error = -EIO;
    }
    return error;
}

/* The move did not happen: the program continues, unless another mover moved it meanwhile. */
static void aware_move_stayed(const struct move_request *request)
{
    struct aware_vdev *vdev = &aware.vdevs[request->vdev];
    aware_give_up(request->vdev);
    if (vdev->elsewhere && !vdev->begun)
        aware_move_arrived(request->vdev, RESEAT_MOVE);
}

void aware_unclaim(const struct move_request *request)
{
    const struct aware_vdev *vdev = &aware.vdevs[request->vdev];
    if (aware.registered && vdev->from)
        aware_move_stayed(request);
    aware_move_release();
}

static int aware_move_arrive(const struct move_request *request, bool done, char *ret_reason,
                             size_t reason_size)
{
    struct aware_vdev *vdev = &aware.vdevs[request->vdev];
    int error = 0;
    pthread_mutex_lock(&aware.lock);
    if (!aware.registered) {
        vdev->begun = vdev->due = 0;
    } else if (done) {
        bool returns = vdev->from && request->target;
        vdev->due = 0;
        if (request->target)
            aware_move_arrived(request->vdev,
                               request->manner == MOVE_TAKEN ? RESEAT_TAKEN : RESEAT_MOVE);
        if (returns && request->manner != MOVE_TAKEN)
            error = aware_move_await_second_half(request, ret_reason, reason_size);
    } else if (vdev->from) {
        aware_move_stayed(request);
    }
    /* A mover that moves back stays the mover until `told` is called. */
    if (error == 0)
        aware_move_release();
    pthread_mutex_unlock(&aware.lock);
    return error;
}

static void aware_move_told(const struct move_request *request, enum move_news news)
{
    struct aware_vdev *vdev = &aware.vdevs[request->vdev];
    pthread_mutex_lock(&aware.lock);
    bool others = news == MOVE_NEWS_MOVED && aware.mover && aware.mover_vdev == request->vdev &&
                  !aware.mover_listens;
    if (news != MOVE_NEWS_MOVED)
        aware_move_release();
    if (others) {
        /* Another mover is between leave and arrive: its later callbacks are about the device where
         * the virtual device is then. */
        vdev->elsewhere = true;
    } else if (aware.registered && news == MOVE_NEWS_MOVED) {
        /* Results from now on do not belong to that mover's move. */
        if (aware.mover && aware.mover_vdev == request->vdev)
            aware.mover_listens = false;
        vdev->due = 0;
        if (request->target)
            aware_move_arrived(request->vdev, RESEAT_MOVE);
    } else if (aware.registered && news == MOVE_NEWS_BACK) {
        if (aware_move_is_resuming(request->vdev))
            aware_move_arrived(request->vdev, RESEAT_MOVED);
        else
            aware_give_up(request->vdev);
    } else if (aware.registered) {
        vdev->due = AWARE_BIT(AWARE_RESUME);
    }
    pthread_cond_broadcast(&aware.changed);
    pthread_mutex_unlock(&aware.lock);
}

const struct move_partner aware_partner = {
    .minimum = aware_move_minimum_of,
    .leave = aware_move_leave,
    .arrive = aware_move_arrive,
    .told = aware_move_told,
};
