#include "interpose/aware/aware_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/thread_own.h"
#include "state/base/threads/work.h"

#define PATIENCE_MS 5000
/* Most notices that are queued for a program that does not take them. */
#define NOTICES_MAX 64

struct aware aware = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .process = 1,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .notices_end = &aware.notices};

const char *aware_stage_name(enum aware_stage stage)
{
    static const char *const names[] = {"",          "checkpoint", "clean_up", "cancel",
                                        "configure", "resume",     "notify",   "save"};
    return names[stage];
}

uint32_t aware_patience(enum aware_stage stage)
{
    const struct reseat_program *program = &aware.program;
    uint32_t ms = stage == AWARE_CHECKPOINT  ? program->checkpoint_ms
                  : stage == AWARE_CLEAN_UP  ? program->clean_up_ms
                  : stage == AWARE_CONFIGURE ? program->configure_ms
                  : stage == AWARE_SAVE      ? program->save_ms
                                             : program->resume_ms;
    return ms != 0 ? ms : PATIENCE_MS;
}

unsigned aware_due(uint32_t vdev)
{
    bool has_device = vdev < vdevs_count() && atomic_load(&the_vdevs[vdev]->device);
    return aware.vdevs[vdev].due & (has_device ? UINT32_MAX : AWARE_BIT(AWARE_CANCEL));
}

void aware_wait(uint64_t until_ns)
{
    (void)clock_wait(&aware.changed, &aware.lock, until_ns);
}

/* ---- the thread that calls the program back ---- */

/* A callback to make, with copies of all that it needs. */
struct call {
    enum aware_stage stage;
    struct reseat_program program;
    struct reseat_change change;
    struct reseat_device from, to;
    struct reseat_notice notice;
    struct aware_notice *taken; /* owned */
    bool of_here;               /* `to` is the present device of `vdev` */
    uint32_t vdev;
};

static int aware_make_call(struct call *call)
{
    void *data = call->program.data;
    int (*step)(void *, const struct reseat_change *) = NULL;
    switch (call->stage) {
    case AWARE_CHECKPOINT:
        step = call->program.checkpoint;
        break;
    case AWARE_CLEAN_UP:
        step = call->program.clean_up;
        break;
    case AWARE_CONFIGURE:
        step = call->program.configure;
        break;
    case AWARE_RESUME:
        step = call->program.resume;
        break;
    case AWARE_SAVE:
        step = call->program.save;
        break;
    case AWARE_CANCEL:
        if (call->program.cancel)
            call->program.cancel(data, &call->change);
        break;
    case AWARE_NOTIFY:
        if (call->program.notify)
            call->program.notify(data, &call->notice);
        break;
    case AWARE_IDLE:
        break;
    }
    return step ? step(data, &call->change) : 0;
}

static void aware_describe_change(struct call *call, uint32_t vdev, uint32_t reason,
                                  const struct device *from, const struct device *to)
{
    aware_describe(from, &call->from);
    aware_describe(to, &call->to);
    call->change = (struct reseat_change){
        .size = sizeof(call->change),
        .reason = reason,
        .device = (cl_device_id)the_vdevs[vdev],
        .deadline_ns = aware.now.deadline_ns,
        .from = &call->from,
        .to = &call->to,
    };
}

void aware_give_up(uint32_t vdev)
{
    struct aware_vdev *one = &aware.vdevs[vdev];
    one->due = one->begun ? AWARE_BIT(AWARE_CANCEL) | AWARE_BIT(AWARE_RESUME) : 0;
    if (one->begun & AWARE_BIT(AWARE_CLEAN_UP))
        one->due |= AWARE_BIT(AWARE_CONFIGURE);
    one->reason = RESEAT_CANCELED;
}

static void aware_begin(struct call *call, enum aware_stage stage, uint32_t vdev,
                        uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    call->stage = stage;
    call->program = aware.program;
    aware.now = (struct aware_now){
        .stage = stage,
        .vdev = vdev,
        .registration = aware.registration,
        .since_ns = now,
        .deadline_ns = deadline_ns ? deadline_ns : now + aware_patience(stage) * 1000000ull,
    };
}

static bool aware_take_ask(struct call *call)
{
    const struct aware_ask ask = aware.ask;
    if (ask.stage == AWARE_IDLE)
        return false;
    aware.ask.stage = AWARE_IDLE;
    aware.vdevs[ask.vdev].begun |= AWARE_BIT(ask.stage) & AWARE_FIRST_HALF;
    aware_begin(call, ask.stage, ask.vdev, ask.deadline_ns);
    aware.now.asked = true;
    aware_describe_change(call, ask.vdev, ask.reason, ask.from, ask.to);
    return true;
}

static bool aware_take_due(struct call *call)
{
    for (uint32_t vdev = 0; vdev < VDEVS; vdev++) {
        unsigned due = aware_due(vdev);
        struct aware_vdev *one = &aware.vdevs[vdev];
        if (due == 0)
            continue;
        enum aware_stage stage = (enum aware_stage)__builtin_ctz(due);
        const struct device *here = atomic_load(&the_vdevs[vdev]->device);
        one->due &= ~AWARE_BIT(stage);
        one->begun |= AWARE_BIT(stage) & AWARE_FIRST_HALF;
        if (stage == AWARE_CONFIGURE ||
            (stage == AWARE_CANCEL && one->due & AWARE_BIT(AWARE_CONFIGURE)))
            aware_follow(vdev);
        aware_begin(call, stage, vdev, 0);
        aware_describe_change(call, vdev, one->reason, one->from, here);
        call->of_here = here != NULL;
        call->vdev = vdev;
        return true;
    }
    return false;
}

static bool aware_take_notice(struct call *call)
{
    struct aware_notice *notice = aware.notices;
    if (!notice)
        return false;
    aware.notices = notice->next;
    if (!aware.notices)
        aware.notices_end = &aware.notices;
    aware.notice_count--;
    aware_begin(call, AWARE_NOTIFY, notice->vdev, 0);
    call->taken = notice;
    call->notice = (struct reseat_notice){
        .size = sizeof(call->notice),
        .what = notice->what,
        .device = notice->vdev < vdevs_count() ? (cl_device_id)the_vdevs[notice->vdev] : NULL,
        .in_ns = notice->in_ns,
        .value = notice->value,
        .text = notice->text,
    };
    return true;
}

/* Handle the result of a callback that ended, if anybody still needs it. */
static void aware_take_result(int result)
{
    const struct aware_now *now = &aware.now;
    if (now->abandoned || now->registration != aware.registration || now->stage == AWARE_NOTIFY)
        return;
    struct aware_vdev *vdev = &aware.vdevs[now->vdev];
    bool first_half = AWARE_BIT(now->stage) & (AWARE_FIRST_HALF | AWARE_BIT(AWARE_SAVE));
    if (result != 0 && (now->asked || (aware.mover_listens && !first_half))) {
        /* The mover decides what comes next. */
        aware.failed = now->stage;
        aware.failure = result;
        if (!first_half)
            vdev->due = 0;
    } else if (result != 0 && first_half) {
        aware_give_up(now->vdev);
    } else if (now->stage == AWARE_RESUME) {
        vdev->begun = 0;
    }
}

/* The callback ended its thread: it has failed, and another thread makes the next one. */
static void aware_thread_gone(void *data)
{
    struct call *call = data;
    free(call->taken);
    pthread_mutex_lock(&aware.lock);
    aware_take_result(-1);
    aware.now.stage = AWARE_IDLE;
    aware.thread = false;
    if (aware.registered)
        (void)!aware_start_thread();
    pthread_cond_broadcast(&aware.changed);
    pthread_mutex_unlock(&aware.lock);
}

static void aware_make_call_at_risk(struct call *call, int *ret_result)
{
    pthread_cleanup_push(aware_thread_gone, call);
    cancel_allow(PTHREAD_CANCEL_ENABLE);
    *ret_result = aware_make_call(call);
    (void)cancel_hold();
    pthread_cleanup_pop(0);
}

static void *aware_thread_main(void *unused)
{
    struct call call;
    int result;
    (void)unused;
    (void)cancel_hold(); /* the program may know this thread, from a callback */
    pthread_mutex_lock(&aware.lock);
    the_thread.aware = aware.process;
    for (;;) {
        call.taken = NULL;
        call.of_here = false;
        /* The process is exiting: objects that callbacks use may be gone. */
        if (!aware.registered || work_is_over() ||
            !(aware_take_ask(&call) || aware_take_due(&call) || aware_take_notice(&call))) {
            pthread_cond_wait(&aware.changed, &aware.lock);
            continue;
        }
        pthread_mutex_unlock(&aware.lock);
        if (call.of_here)
            call.to.granted = aware_granted(call.vdev);
        aware_make_call_at_risk(&call, &result);
        free(call.taken);
        pthread_mutex_lock(&aware.lock);
        /* The callback forked, and this is the child. */
        if (the_thread.aware != aware.process)
            break;
        aware_take_result(result);
        aware.now.stage = AWARE_IDLE;
        pthread_cond_broadcast(&aware.changed);
    }
    pthread_mutex_unlock(&aware.lock);
    return NULL;
}

int aware_start_thread(void)
{
    int error = aware.thread ? 0 : thread_start("reseat-aware", 0, aware_thread_main, NULL, NULL);
    aware.thread = error == 0;
    return error;
}

static void aware_drop_notices(void)
{
    struct aware_notice *next;
    for (struct aware_notice *notice = aware.notices; notice; notice = next) {
        next = notice->next;
        free(notice);
    }
    aware.notices = NULL;
    aware.notices_end = &aware.notices;
    aware.notice_count = 0;
}

/* Drop what was under way for the old registration. Lock held. */
void aware_forget(void)
{
    aware.registered = false;
    aware.registration++;
    aware.edition++;
    for (unsigned i = 0; i < VDEVS; i++)
        aware.vdevs[i] = (struct aware_vdev){0};
    aware.ask.stage = AWARE_IDLE;
    aware_drop_notices();
    if (aware.started)
        aware_follow_none();
}

static void aware_in_child(void)
{
    aware.process++;
    aware.thread = aware.mover = aware.mover_listens = false;
    aware.now.stage = AWARE_IDLE;
    aware_saving_over(false);
    if (aware.registered)
        aware_forget();
}

FORK_PART = {.rank = FORK_TABLE,
             .lock = &aware.lock,
             .changed = {&aware.changed},
             .in_child = aware_in_child};

/* ---- what the rest of the library calls ---- */

void aware_wish(struct aware_wish *ret_wish)
{
    pthread_mutex_lock(&aware.lock);
    *ret_wish = (struct aware_wish){aware.edition, aware.registered, aware.program.minimum,
                                    aware.program.preferred};
    pthread_mutex_unlock(&aware.lock);
}

void aware_notice(uint32_t what, uint32_t vdev, uint64_t in_ns, uint64_t value, const char *text)
{
    struct aware_notice *notice = calloc(1, sizeof(*notice));
    if (!notice)
        return;
    *notice = (struct aware_notice){.what = what, .vdev = vdev, .in_ns = in_ns, .value = value};
    snprintf(notice->text, sizeof(notice->text), "%s", text);
    pthread_mutex_lock(&aware.lock);
    if (aware.registered && aware.program.notify && aware.notice_count < NOTICES_MAX) {
        *aware.notices_end = notice;
        aware.notices_end = &notice->next;
        aware.notice_count++;
        notice = NULL;
        pthread_cond_broadcast(&aware.changed);
    }
    pthread_mutex_unlock(&aware.lock);
    free(notice);
}

void aware_started(void)
{
    pthread_mutex_lock(&aware.lock);
    aware.started = true;
    for (uint32_t i = 0; aware.registered && i < vdevs_count(); i++)
        aware_follow(i);
    pthread_mutex_unlock(&aware.lock);
}
