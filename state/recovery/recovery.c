#include "state/recovery/recovery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/budget/budget.h"
#include "state/command/journal.h"
#include "state/image/stored.h"
#include "state/move/elastic.h"
#include "state/move/move.h"
#include "state/object/lost.h"
#include "state/object/pin.h"
#include "state/recovery/protect.h"

/* How often the thread looks whether a snapshot is due. */
#define IDLE_NS UINT64_C(100000000)
/* The pause after all devices were tried in vain. */
#define SEARCH_NS UINT64_C(200000000)
/* Devices that a program without a context tries before it pauses. */
#define AT_ONCE 4
/* How often a thread that waits for a recovery looks whether there can be one. */
#define LOOK_NS UINT64_C(50000000)

/* A lost residence whose work is not done again yet: threads wait for its flag `recovered`. */
struct awaited_residence {
    struct awaited_residence *next;
    struct residence *residence; /* with a reference */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic enum recovery_state state; /* written under the lock, which guards all below, too */
    bool running;                      /* the thread runs */
    bool unseen;                       /* a residence was lost since the thread looked */
    _Atomic uint64_t count;            /* number of recoveries; written under lock */
    _Atomic uint64_t outage_ns;        /* recovery_outage_ns */
    bool replace, replaced;  /* a program without a context wants another device; it has one */
    unsigned replacements;   /* used by the thread alone */
    struct device_key *keys; /* owned; written while the thread does not run, like... */
    size_t key_count;        /* ...this */
    struct awaited_residence *awaited; /* used by movers alone */
} machine = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

enum recovery_state recovery_state(void)
{
    return atomic_load(&machine.state);
}

const char *recovery_state_text(enum recovery_state state)
{
    static const char *const texts[] = {
        [RECOVERY_RUNNING] = "",
        [RECOVERY_NOTICED] = "a loss was noticed",
        [RECOVERY_CHOOSING] = "another device is being chosen",
        [RECOVERY_OPENING] = "another device is being opened",
        [RECOVERY_RESTORING] = "the bytes of the last copy are being restored",
        [RECOVERY_REPLAYING] = "what it did since the last copy is being done again",
        [RECOVERY_FAILED] = "it cannot be recovered",
    };
    return texts[state];
}

/* Lock held. */
static void recovery_enter(enum recovery_state state)
{
    atomic_store(&machine.state, state);
    pthread_cond_broadcast(&machine.changed);
}

/* True for the states that only a mover ends. */
static bool recovery_is_movers(enum recovery_state state)
{
    return state >= RECOVERY_OPENING && state <= RECOVERY_REPLAYING;
}

/* Trace how long the loss was not noticed. Not under the lock: lost_last takes a lock of the same
 * rank. */
static void recovery_trace_notice(void)
{
    struct loss loss;
    lost_last(&loss);
    if (span_wanted())
        span_end(loss.at_ns, "recovery", "notice", NULL, 0);
}

/*
 * Events.
 */

/* A residence was lost. Any thread. */
static void recovery_notice(void)
{
    pthread_mutex_lock(&machine.lock);
    enum recovery_state state = recovery_state();
    machine.unseen = true;
    if (machine.running && (state == RECOVERY_RUNNING || state == RECOVERY_FAILED))
        state = RECOVERY_NOTICED;
    recovery_enter(state);
    pthread_mutex_unlock(&machine.lock);
}

/* The thread has looked. @lost: the program's device is lost. @refused: the program cannot be
 * recovered. Ignored if a recovery happened since @count. Returns the state. */
static enum recovery_state recovery_judge(bool lost, bool refused, uint64_t count)
{
    pthread_mutex_lock(&machine.lock);
    enum recovery_state before = recovery_state(), after = before;
    if (!recovery_is_movers(before) && machine.count == count)
        after = !lost ? RECOVERY_RUNNING : refused ? RECOVERY_FAILED : RECOVERY_CHOOSING;
    else if (before == RECOVERY_NOTICED)
        after = RECOVERY_RUNNING;
    if (after != before)
        recovery_enter(after);
    pthread_mutex_unlock(&machine.lock);
    if (after == RECOVERY_CHOOSING && before != after)
        recovery_trace_notice();
    return after;
}

/* A mover begins to recover the program. */
static void recovery_open(void)
{
    pthread_mutex_lock(&machine.lock);
    bool first = recovery_state() != RECOVERY_CHOOSING;
    recovery_enter(RECOVERY_OPENING);
    pthread_mutex_unlock(&machine.lock);
    if (first)
        recovery_trace_notice();
}

/* The recovering move is over. Unless it succeeded or protection is off, another one is tried. */
static void recovery_close(void)
{
    pthread_mutex_lock(&machine.lock);
    if (recovery_is_movers(recovery_state()))
        recovery_enter(machine.running ? RECOVERY_CHOOSING : RECOVERY_RUNNING);
    pthread_mutex_unlock(&machine.lock);
}

uint64_t recovery_outage_ns(void)
{
    return atomic_load(&machine.outage_ns);
}

void recovery_step(enum recovery_state state)
{
    struct loss loss;
    lost_last(&loss);
    if (state == RECOVERY_REPLAYING)
        atomic_store(&machine.outage_ns, clock_now_ns() - loss.at_ns);
    pthread_mutex_lock(&machine.lock);
    recovery_enter(state);
    pthread_mutex_unlock(&machine.lock);
}

/* The journal was replayed. */
static void recovery_succeed(void)
{
    struct awaited_residence *one = machine.awaited;
    machine.awaited = NULL;
    pthread_mutex_lock(&machine.lock);
    machine.count++; /* before a thread goes on */
    for (const struct awaited_residence *each = one; each; each = each->next)
        atomic_store(&each->residence->recovered, true);
    recovery_enter(RECOVERY_RUNNING);
    pthread_mutex_unlock(&machine.lock);
    while (one) {
        struct awaited_residence *next = one->next;
        residence_unref(one->residence);
        free(one);
        one = next;
    }
}

/*
 * What movers ask (upcalls.h).
 */

static bool recovery_can(const struct vdev *vdev)
{
    return vdev_is_lost(vdev) && protect_is_on() && vdev == the_vdevs[0];
}

/* Have threads that wait for @residence wait for this recovery or a later one. Without memory they
 * get the errors of an unprotected program. */
static void recovery_await_one(struct residence *residence)
{
    struct awaited_residence *one = malloc(sizeof(*one));
    if (!one) {
        journal_break("there is no memory for what it does");
        return;
    }
    residence_ref(residence);
    *one = (struct awaited_residence){machine.awaited, residence};
    machine.awaited = one;
}

static int recovery_replay(struct move_context *contexts, size_t count, struct residence *left,
                           char *ret_reason, size_t reason_size)
{
    int error = replay_run(contexts, count, ret_reason, reason_size);
    for (size_t i = 0; error != 0 && i < count; i++) {
        struct residence *residence = contexts[i].context->at[contexts[i].to];
        if (!residence_failed(residence, CL_OUT_OF_RESOURCES))
            residence_give_up(residence, "what was lost elsewhere cannot be done again there");
    }
    for (; left; left = left->next)
        recovery_await_one(left);
    if (error == 0)
        recovery_succeed();
    return error;
}

/*
 * What threads of the program wait for.
 */

/* Enters the gate, so the lock must not be held. */
static bool recovery_is_lost(void)
{
    return vdevs_count() == 1 && vdev_is_lost(the_vdevs[0]);
}

static bool recovery_await(struct residence *residence)
{
    pthread_mutex_lock(&machine.lock);
    while (!atomic_load(&residence->recovered) && protect_is_on() && !work_is_over())
        (void)clock_wait(&machine.changed, &machine.lock, clock_now_ns() + LOOK_NS);
    pthread_mutex_unlock(&machine.lock);
    return atomic_load(&residence->recovered);
}

/* For a program without a context. Several threads may ask at once: one answer is for all. */
static bool recovery_await_replacement(void)
{
    bool replaced = false;
    if (!protect_is_on())
        return false;
    pthread_mutex_lock(&machine.lock);
    if (machine.running) {
        machine.replace = true;
        pthread_cond_broadcast(&machine.changed);
        while (machine.replace && machine.running)
            (void)clock_wait(&machine.changed, &machine.lock, 0);
        replaced = !machine.replace && machine.replaced;
        machine.replace = false;
    }
    pthread_mutex_unlock(&machine.lock);
    return replaced;
}

uint64_t recovery_count(void)
{
    return atomic_load(&machine.count);
}

/* A snapshot may fail with a driver's error before anybody checked whether a loss is behind it. */
static bool recovery_find_loss(void)
{
    uintptr_t cursor = 0;
    struct event *event;
    bool lost = false;
    for (; (event = object_next(OBJECT_EVENT, &cursor)); object_unhold(event))
        lost = event_is_lost(event) || lost;
    return budget_find_data_lost() || lost || recovery_is_lost();
}

bool recovery_outlived(uint64_t count, uint64_t deadline_ns, const atomic_bool *cancel)
{
    bool found = recovery_find_loss(), lost;
    if (!found && recovery_count() == count)
        return false;
    while ((lost = recovery_is_lost()) && protect_is_on() && !work_is_over() &&
           !(cancel && atomic_load(cancel)) && (deadline_ns == 0 || clock_now_ns() < deadline_ns)) {
        pthread_mutex_lock(&machine.lock);
        (void)clock_wait(&machine.changed, &machine.lock, clock_now_ns() + LOOK_NS);
        pthread_mutex_unlock(&machine.lock);
    }
    return !lost;
}

/* Choice of a device without an agent. */

static bool recovery_move_to(const struct device_key *key)
{
    struct move_request request = {.target = key, .manner = MOVE_NEEDED};
    struct move_report report;
    move_run(&request, &report);
    if (report.result != MOVE_DONE) {
        log_info("%s: %s", key->device, report.reason);
        return false;
    }
    log_warn("what the program did since its last snapshot was done again on %s", key->device);
    return true;
}

/* Move to one of @keys, starting after @here, since earlier ones may be those that it lost before.
 */
static bool recovery_move_to_other(const struct device_key *const *keys, size_t count,
                                   const struct device_key *here)
{
    size_t at = 0;
    bool done = false;
    while (at < count && !device_key_equal(keys[at], here))
        at++;
    for (size_t i = 1; i <= count && !done && !work_is_over(); i++) {
        const struct device_key *key = keys[(at + i) % count];
        done = !device_key_equal(key, here) && recovery_move_to(key);
    }
    return done;
}

/* The devices given in the settings; without any, those of the drivers. NULL: none. Owned by the
 * caller. */
static const struct device_key **recovery_list_keys(size_t *ret_count)
{
    struct device **devices = NULL;
    size_t count = machine.key_count;
    if (count == 0 && driver_list(&devices, &count) != 0)
        count = 0;
    const struct device_key **keys =
        count != 0 ? malloc(count * sizeof(const struct device_key *)) : NULL;
    for (size_t i = 0; keys && i < count; i++)
        keys[i] = devices ? &devices[i]->key : &machine.keys[i];
    free(devices);
    *ret_count = keys ? count : 0;
    return keys;
}

/* Try all other devices, then the lost device itself, which may have come back. */
static bool recovery_choose(void)
{
    const struct device *here = atomic_load(&the_vdevs[0]->device);
    struct owned_room room;
    size_t count;
    owned_room_begin(&room); /* opening drivers needs descriptors */
    const struct device_key **keys = recovery_list_keys(&count);
    owned_room_end(&room);
    bool done = here && recovery_move_to_other(keys, count, &here->key);
    free(keys);
    if (!done && here && !work_is_over())
        done = recovery_move_to(&here->key);
    if (!done)
        clock_sleep(SEARCH_NS);
    return done;
}

/* The agent is not told: no data was lost. */
static void recovery_replace(void)
{
    /* Give devices time if none can be used. */
    if (machine.replacements++ >= AT_ONCE)
        clock_sleep(SEARCH_NS);
    bool done = recovery_choose();
    pthread_mutex_lock(&machine.lock);
    machine.replace = false;
    machine.replaced = done;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
}

/*
 * The thread.
 */

/* Work for the thread. */
struct turn {
    bool unseen, replace; /* as in the machine */
    uint64_t count;
};

/* Wait until there may be something to do. False: the thread ends. */
static bool recovery_await_turn(struct turn *ret_turn)
{
    bool lost = recovery_is_lost();
    pthread_mutex_lock(&machine.lock);
    bool goes_on = protect_wants_thread() && !work_is_over();
    if (!goes_on) {
        machine.running = false;
        recovery_enter(RECOVERY_RUNNING);
    } else if ((!lost || recovery_state() == RECOVERY_FAILED) && !machine.unseen &&
               !machine.replace) {
        (void)clock_wait(&machine.changed, &machine.lock, clock_now_ns() + IDLE_NS);
    }
    *ret_turn = (struct turn){machine.unseen, machine.replace, machine.count};
    if (goes_on)
        machine.unseen = false;
    pthread_mutex_unlock(&machine.lock);
    return goes_on;
}

/* The program is pinned and cannot be recovered: threads that wait for a recovery get their errors.
 */
static void recovery_give_up_if_pinned(void)
{
    const char *pinned = pin_reason(the_vdevs[0]);
    if (pinned)
        journal_break(pinned);
}

static bool (*_Atomic agent)(void); /* recovery_install */

static void *recovery_thread(void *unused)
{
    struct turn turn;
    (void)unused;
    while (recovery_await_turn(&turn)) {
        /* The lost device may be a source, with bytes that are nowhere else. */
        bool lost = recovery_is_lost() || (turn.unseen && budget_find_data_lost());
        if (lost)
            recovery_give_up_if_pinned();
        const char *refusal = protect_refusal();
        enum recovery_state state = recovery_judge(lost, refusal != NULL, turn.count);
        bool (*chooses)(void) = atomic_load(&agent);
        if (recovery_is_movers(state) || (state == RECOVERY_CHOOSING && chooses && chooses()))
            clock_sleep(LOOK_NS);
        else if (state == RECOVERY_CHOOSING)
            (void)recovery_choose();
        else if (state == RECOVERY_FAILED && refusal && atomic_load(&journal_is_kept))
            protect_end_journal(refusal);
        else if (turn.replace)
            recovery_replace();
        else if (!lost)
            protect_make_if_due();
    }
    return NULL;
}

int recovery_start(const struct device_key *keys, size_t key_count)
{
    int error = 0;
    pthread_mutex_lock(&machine.lock);
    if (!machine.running && key_count != 0) {
        struct device_key *copy = calloc(key_count, sizeof(*copy));
        if (!copy) {
            pthread_mutex_unlock(&machine.lock);
            return -ENOMEM;
        }
        memcpy(copy, keys, key_count * sizeof(*copy));
        free(machine.keys);
        machine.keys = copy;
        machine.key_count = key_count;
    }
    if (!machine.running)
        error = thread_start("reseat-protect", 0, recovery_thread, NULL, NULL);
    machine.running = machine.running || error == 0;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
    return error;
}

void recovery_await_end(void)
{
    pthread_mutex_lock(&machine.lock);
    pthread_cond_broadcast(&machine.changed);
    while (machine.running)
        (void)clock_wait(&machine.changed, &machine.lock, 0);
    pthread_mutex_unlock(&machine.lock);
}

void recovery_install(bool (*agent_chooses)(void))
{
    static const struct upcalls upcalls = {.ask_for_budget = budget_ask,
                                           .bring = command_bring,
                                           .move_back = move_back,
                                           .await_move = move_await,
                                           .share = elastic_wake,
                                           .made_with = journal_add_content,
                                           .lost = recovery_notice,
                                           .await_recovery = recovery_await,
                                           .await_replacement = recovery_await_replacement,
                                           .is_protected = protect_is_on,
                                           .relieve = protect_relieve,
                                           .can_recover = recovery_can,
                                           .recovery_opens = recovery_open,
                                           .recover = recovery_replay,
                                           .recovery_closes = recovery_close,
                                           .make_snapshot = protect_snapshot,
                                           .forget_snapshot = protect_forget,
                                           .recovery_count = recovery_count,
                                           .recovery_outlived = recovery_outlived,
                                           .bring_stored = stored_bring};
    atomic_store(&agent, agent_chooses);
    the_upcalls = &upcalls;
}

/* The child has no such thread: it is protected only when it asks for it. */
static void recovery_in_child(void)
{
    atomic_store(&machine.state, RECOVERY_RUNNING);
    machine.running = machine.replace = false;
}

FORK_PART = {.rank = FORK_OBJECT,
             .lock = &machine.lock,
             .changed = {&machine.changed},
             .in_child = recovery_in_child};
