#include "state/snapshot/protect.h"

#include <errno.h>
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
#include "state/driver/isolated.h"
#include "state/move/move.h"
#include "state/object/lost.h"
#include "state/object/pin.h"
#include "state/snapshot/recover.h"
#include "state/snapshot/snapshot.h"

/* Until the program has something, and between two snapshots that are not due yet. */
#define RETRY_NS UINT64_C(100000000)
/* After one that could not be made. */
#define FAILED_NS UINT64_C(1000000000)
/* Between two rounds of the devices that there are, of a program that has lost its own. */
#define SEARCH_NS UINT64_C(200000000)
/* So many devices in a row are tried without a pause by one that has nothing yet. */
#define AT_ONCE 4
/* How often who waits for a recovery looks whether there can be one. */
#define LOOK_NS UINT64_C(50000000)
/* A snapshot is begun when the journal has this much of what it may. */
#define NEARLY 0.5

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct protect_settings settings; /* guarded by lock, like all below */
    bool running;
    bool woken;            /* something was lost since the thread looked */
    unsigned under_way;    /* snapshots that are made, until the journal before them is let go */
    bool wanted, replaced; /* a device for a program that has nothing on its own; it is there */
    unsigned replacements; /* how many there were; of the thread alone */
    uint64_t snapshots, recoveries, at_ns, begun_ns, tried_ns, downtime_ns, total_ns, paused_ns,
        since_ns;
    uint64_t put_off_ns;     /* what the last one was expected to take, which was put off; or 0 */
    int error;               /* of the last snapshot */
    struct device_key *keys; /* owned; written before the thread runs, like... */
    size_t key_count;        /* ...this */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static atomic_bool on;
static bool (*_Atomic others)(void); /* protect_let_choose */
static atomic_bool seeks;            /* protect_status */

static const char *protect_refusal(void)
{
    return the_vdev_count > 1 ? "it has several virtual devices" : journal_broken();
}

static bool protect_is_on(void)
{
    return atomic_load(&on) && !protect_refusal();
}

/* What has ended by now the program need not have been told: nothing of it is in the journal. All
 * that was given has; where its driver says otherwise, as one does whose device is lost at this
 * moment, it is in the journal alone. */
static int protect_settle_events(void)
{
    uintptr_t cursor = 0;
    struct event *event;
    bool doubted = false;
    for (; (event = object_next(OBJECT_EVENT, &cursor)); object_unhold(event))
        if (event_state(event) == EVENT_ISSUED && !event->parts) {
            (void)event_status_inside(event);
            doubted = doubted || event_is_doubted(event);
        }
    return doubted ? -EIO : 0;
}

/* What a snapshot is made for, besides. */
struct beginning {
    const struct snapshot_request *wanted;
    struct journal_entry *former;
    bool protects; /* it is the point of a protected program */
};

/* At the moment of a snapshot: what comes from here on is not in it. */
static int protect_begin_journal(void *data, const struct snapshot *snapshot)
{
    struct beginning *beginning = data;
    const struct snapshot_request *wanted = beginning->wanted;
    bool protects = atomic_load(&on);
    int error = protects ? protect_settle_events() : 0;
    if (error == 0 && wanted->moment)
        error = wanted->moment(wanted->data, snapshot);
    if (error)
        return error;
    beginning->protects = protects;
    if (protects)
        beginning->former = journal_begin();
    return 0;
}

static int protect_stand(void *data)
{
    const struct snapshot_request *wanted = ((const struct beginning *)data)->wanted;
    return wanted->stand(wanted->data);
}

int protect_snapshot(const struct snapshot_request *wanted, struct snapshot_report *ret_report)
{
    struct beginning beginning = {.wanted = wanted, .protects = atomic_load(&on)};
    struct snapshot_request request = *wanted;
    request.moment = protect_begin_journal;
    request.stand = wanted->stand ? protect_stand : NULL;
    request.data = &beginning;
    uint64_t begun = clock_now_ns();
    pthread_mutex_lock(&state.lock);
    state.under_way++;
    pthread_mutex_unlock(&state.lock);
    int error = snapshot_make(&request, ret_report);
    journal_free(beginning.former);
    pthread_mutex_lock(&state.lock);
    state.under_way--;
    pthread_cond_broadcast(&state.changed);
    if (beginning.protects) {
        state.error = error;
        state.begun_ns = begun;
        state.tried_ns = clock_now_ns();
        state.total_ns = ret_report->total_ns;
        state.put_off_ns = wanted->most_ns != 0 ? ret_report->expected_ns : 0;
    }
    if (beginning.protects && error == 0) {
        state.snapshots++;
        state.at_ns = state.tried_ns;
        state.downtime_ns = ret_report->downtime_ns;
        state.paused_ns += ret_report->downtime_ns;
    }
    pthread_mutex_unlock(&state.lock);
    return error;
}

static int protect_make(uint64_t most_ns)
{
    const struct snapshot_request request = {.most_ns = most_ns};
    struct snapshot_report report;
    return protect_snapshot(&request, &report);
}

int protect_now(void)
{
    return protect_make(0);
}

void protect_forget(void)
{
    if (!atomic_load(&on))
        snapshot_forget();
}

/* Enters the gate, so not for under the lock, which a mover takes with the gate closed. */
static bool protect_is_lost(void)
{
    return the_vdev_count == 1 && vdev_is_lost(the_vdevs[0]);
}

/* True when the program is on a device that is not lost. @deadline_ns: 0: none; @cancel: or NULL.
 */
static bool protect_await_end_of_loss(uint64_t deadline_ns, const atomic_bool *cancel)
{
    bool lost;
    while ((lost = protect_is_lost()) && protect_is_on() && !work_is_over() &&
           !(cancel && atomic_load(cancel)) && (deadline_ns == 0 || clock_now_ns() < deadline_ns)) {
        pthread_mutex_lock(&state.lock);
        (void)clock_wait(&state.changed, &state.lock, clock_now_ns() + LOOK_NS);
        pthread_mutex_unlock(&state.lock);
    }
    return !lost;
}

/* A snapshot fails for what a driver says of a command, before anybody asked what is behind that.
 */
static bool protect_is_found_lost(void)
{
    uintptr_t cursor = 0;
    struct event *event;
    bool lost = false;
    for (; (event = object_next(OBJECT_EVENT, &cursor)); object_unhold(event))
        lost = event_is_lost(event) || lost;
    return budget_find_data_lost() || lost || protect_is_lost();
}

uint64_t protect_recoveries(void)
{
    pthread_mutex_lock(&state.lock);
    uint64_t recoveries = state.recoveries;
    pthread_mutex_unlock(&state.lock);
    return recoveries;
}

bool protect_outlives_loss(uint64_t recoveries, uint64_t deadline_ns, const atomic_bool *cancel)
{
    bool lost = protect_is_found_lost();
    return (lost || protect_recoveries() != recoveries) &&
           protect_await_end_of_loss(deadline_ns, cancel);
}

/* What another thread took out of the journal is being let go: true once it is. */
static bool protect_await_snapshots(void)
{
    pthread_mutex_lock(&state.lock);
    bool waits = state.under_way != 0;
    while (state.under_way != 0)
        pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    return waits;
}

/* So much of the time may snapshots take where the journal is not whole, or full before its time.
 */
#define HASTE 0.1

/* When the next one is due, from when the last was begun: the budget is for what stops the program,
 * and a tenth of it for the rest. Under the lock. */
static uint64_t protect_due_at(bool hurries)
{
    uint64_t stopped = state.error == 0 ? state.downtime_ns : 0;
    uint64_t cost = hurries ? state.total_ns : stopped + state.total_ns / 10;
    uint64_t least = (uint64_t)((double)cost / (hurries ? HASTE : PROTECT_BUDGET));
    uint64_t interval = hurries ? RETRY_NS : state.settings.interval_ns;
    if (state.tried_ns == 0)
        return 0;
    if (state.error != 0 && state.put_off_ns == 0)
        return state.tried_ns + FAILED_NS;
    return state.begun_ns + (interval > least ? interval : least);
}

/* The same where somebody waits to be told that something is gone: after an interval, also where
 * snapshots cost more than their budget. Under the lock. */
static uint64_t protect_due_for_ends(void)
{
    uint64_t hasty = protect_due_at(true), interval = state.begun_ns + state.settings.interval_ns;
    return hasty > interval ? hasty : interval;
}

/* The last snapshot is so near that with one more at its distance snapshots took too much of the
 * time. */
static bool protect_was_lately(void)
{
    pthread_mutex_lock(&state.lock);
    bool lately = clock_now_ns() < protect_due_at(true);
    pthread_mutex_unlock(&state.lock);
    return lately;
}

/* Without a snapshot the journal is worth nothing, but nothing is kept for it any more. Where it is
 * for a loss that there is no snapshot, the journal is needed first. */
static bool protect_relieve(bool anyway)
{
    uint64_t entries, bytes;
    journal_size(&entries, &bytes);
    if (!atomic_load(&on) || (!anyway && protect_was_lately()))
        return false;
    if (entries == 0)
        return protect_await_snapshots();
    uint64_t before;
    int error;
    do {
        before = protect_recoveries();
        error = protect_now();
    } while (error != 0 && protect_outlives_loss(before, 0, NULL));
    if (error != 0 && gate_close(0) == 0) {
        struct journal_entry *former = journal_end();
        gate_open();
        journal_free(former);
    }
    (void)protect_await_snapshots();
    return true;
}

/* What one that is made now may stop the program for: the budget, which it would use up for that
 * long. Under the lock. */
static uint64_t protect_most_now(void)
{
    uint64_t since = state.at_ns > state.since_ns ? state.at_ns : state.since_ns;
    uint64_t most = (uint64_t)((double)(clock_now_ns() - since) * PROTECT_BUDGET);
    return most > PROTECT_PAUSE_NS ? most : PROTECT_PAUSE_NS;
}

bool protect_is_waited_for(void)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    struct context *context;
    bool waits = false;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        waits = waits || (object_refs(memory) == 0 && atomic_load(&memory->farewell));
    cursor = 0;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        waits = waits || (object_refs(context) == 0 && atomic_load(&context->destructors));
    return waits;
}

/* @ret_most_ns  Where it is due: what it may stop the program for; 0: however long, as without it
 * the program would soon not be protected, or would wait. */
static bool protect_is_due(uint64_t *ret_most_ns)
{
    uint64_t count, bytes;
    journal_size(&count, &bytes);
    pthread_mutex_lock(&state.lock);
    bool hurries = journal_broken() || (double)bytes > NEARLY * (double)state.settings.bytes;
    bool due = (hurries || count != 0) && clock_now_ns() >= protect_due_at(hurries);
    bool in_time = due && state.put_off_ns == 0;
    bool for_ends = !in_time && count != 0 && clock_now_ns() >= protect_due_for_ends();
    *ret_most_ns = hurries ? 0 : protect_most_now();
    pthread_mutex_unlock(&state.lock);
    if (!for_ends || !protect_is_waited_for())
        return due;
    *ret_most_ns = 0;
    return true;
}

static bool protect_recover_on(const struct device_key *key)
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

/* One of @keys, from the one after @here on: those before it may be the ones that it lost first. */
static bool protect_recover_on_other(const struct device_key *const *keys, size_t count,
                                     const struct device_key *here)
{
    size_t at = 0;
    bool done = false;
    while (at < count && !device_key_equal(keys[at], here))
        at++;
    for (size_t i = 1; i <= count && !done && !work_is_over(); i++) {
        const struct device_key *key = keys[(at + i) % count];
        done = !device_key_equal(key, here) && protect_recover_on(key);
    }
    return done;
}

/* Those that were said; without any, those that drivers list. NULL: none. Owned by the caller. */
static const struct device_key **protect_list_keys(size_t *ret_count)
{
    struct device **devices = NULL;
    size_t count = state.key_count;
    if (count == 0 && driver_list(&devices, &count) != 0)
        count = 0;
    const struct device_key **keys =
        count != 0 ? malloc(count * sizeof(const struct device_key *)) : NULL;
    for (size_t i = 0; keys && i < count; i++)
        keys[i] = devices ? &devices[i]->key : &state.keys[i];
    free(devices);
    *ret_count = keys ? count : 0;
    return keys;
}

/* Any that there is; then the device itself, which may have come back. */
static bool protect_recover(void)
{
    const struct device *here = atomic_load(&the_vdevs[0]->device);
    struct owned_room room;
    size_t count;
    owned_room_begin(&room); /* to find them */
    const struct device_key **keys = protect_list_keys(&count);
    owned_room_end(&room);
    bool done = here && protect_recover_on_other(keys, count, &here->key);
    free(keys);
    if (!done && here && !work_is_over())
        done = protect_recover_on(&here->key);
    if (!done)
        clock_sleep(SEARCH_NS);
    return done;
}

static void protect_recover_unless_others_do(void)
{
    bool (*chooses)(void) = atomic_load(&others);
    if (chooses && chooses())
        clock_sleep(LOOK_NS);
    else
        (void)protect_recover();
}

/* Nobody else is asked: nothing that the program has is lost, so nobody is told that it seeks. */
static void protect_replace(void)
{
    /* Where none can be used they are given time. */
    if (state.replacements++ >= AT_ONCE)
        clock_sleep(SEARCH_NS);
    bool done = protect_recover();
    pthread_mutex_lock(&state.lock);
    state.wanted = false;
    state.replaced = done;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

/* Others may ask meanwhile: one answer is for all. */
static bool protect_await_replacement(void)
{
    bool replaced = false;
    if (!protect_is_on())
        return false;
    pthread_mutex_lock(&state.lock);
    if (state.running) {
        state.wanted = true;
        pthread_cond_broadcast(&state.changed);
        while (state.wanted && state.running)
            pthread_cond_wait(&state.changed, &state.lock);
        replaced = !state.wanted && state.replaced;
        state.wanted = false;
    }
    pthread_mutex_unlock(&state.lock);
    return replaced;
}

/* From the loss until somebody looks for another device. */
static void protect_trace_notice(void)
{
    struct loss loss;
    lost_last(&loss);
    if (span_wanted())
        span_end(loss.at_ns, "recovery", "notice", NULL, 0);
}

static bool protect_has_snapshot(void)
{
    pthread_mutex_lock(&state.lock);
    bool has = state.snapshots != 0;
    pthread_mutex_unlock(&state.lock);
    return has;
}

/* A driver's process that dies is what a snapshot is there for: the next one is not waited for. */
static void protect_keep_standby(bool wanted)
{
    const struct device *device = the_vdev_count == 1 ? atomic_load(&the_vdevs[0]->device) : NULL;
    if (device)
        isolated_standby(device->platform, wanted);
}

/* It can go nowhere: who waits for a recovery is told. */
static void protect_give_up_if_pinned(void)
{
    const char *pinned = pin_reason(the_vdevs[0]);
    if (pinned)
        journal_break(pinned);
}

static void *protect_thread(void *unused)
{
    (void)unused;
    for (;;) {
        uint64_t most_ns;
        bool lost = protect_is_lost();
        pthread_mutex_lock(&state.lock);
        if (!atomic_load(&on) || work_is_over()) {
            state.running = false;
            atomic_store(&seeks, false);
            pthread_cond_broadcast(&state.changed);
            pthread_mutex_unlock(&state.lock);
            return NULL;
        }
        if (!lost && !state.woken && !state.wanted)
            (void)clock_wait(&state.changed, &state.lock, clock_now_ns() + RETRY_NS);
        bool woken = state.woken, wanted = state.wanted;
        state.woken = false;
        pthread_mutex_unlock(&state.lock);
        /* What is lost may be what it left, with bytes that are nowhere else. */
        lost = protect_is_lost() || (woken && budget_find_data_lost());
        if (lost)
            protect_give_up_if_pinned();
        bool recovers = lost && !protect_refusal();
        if (atomic_exchange(&seeks, recovers) != recovers && recovers)
            protect_trace_notice();
        if (recovers)
            protect_recover_unless_others_do();
        else if (wanted)
            protect_replace();
        else if (!lost && the_vdev_count == 1 && object_count(OBJECT_CONTEXT) != 0 &&
                 protect_is_due(&most_ns))
            (void)protect_make(most_ns);
        if (!lost && protect_has_snapshot())
            protect_keep_standby(true);
    }
}

static bool protect_may(const struct vdev *vdev)
{
    return protect_is_on() && vdev == the_vdevs[0];
}

static void protect_wake(void)
{
    pthread_mutex_lock(&state.lock);
    state.woken = true;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

/* Before anybody goes on. */
static void protect_done(void)
{
    pthread_mutex_lock(&state.lock);
    state.recoveries++;
    atomic_store(&seeks, false);
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

static bool protect_await(struct residence *residence)
{
    pthread_mutex_lock(&state.lock);
    while (!atomic_load(&residence->recovered) && protect_is_on() && !work_is_over())
        (void)clock_wait(&state.changed, &state.lock, clock_now_ns() + LOOK_NS);
    pthread_mutex_unlock(&state.lock);
    return atomic_load(&residence->recovered);
}

int protect_begin(const struct protect_settings *settings)
{
    static const struct move_recovery recovery = {.may = protect_may,
                                                  .again = recover_again,
                                                  .done = protect_done,
                                                  .lost = protect_wake,
                                                  .await = protect_await,
                                                  .replace = protect_await_replacement,
                                                  .is_on = protect_is_on,
                                                  .relieve = protect_relieve};
    int error = 0;
    move_set_recovery(&recovery);
    pthread_mutex_lock(&state.lock);
    if (!state.running && settings->key_count != 0) {
        struct device_key *keys = calloc(settings->key_count, sizeof(*keys));
        if (!keys) {
            pthread_mutex_unlock(&state.lock);
            return -ENOMEM;
        }
        memcpy(keys, settings->keys, settings->key_count * sizeof(*keys));
        free(state.keys);
        state.keys = keys;
        state.key_count = settings->key_count;
    }
    state.settings = *settings;
    if (state.settings.interval_ns == 0)
        state.settings.interval_ns = PROTECT_INTERVAL_NS;
    if (state.settings.bytes == 0)
        state.settings.bytes = PROTECT_BYTES;
    atomic_store(&journal_limit, state.settings.bytes);
    if (!atomic_exchange(&on, true)) {
        state.paused_ns = 0;
        state.since_ns = clock_now_ns();
    }
    if (!state.running)
        error = thread_start("reseat-protect", 0, protect_thread, NULL, NULL);
    state.running = state.running || error == 0;
    if (error != 0)
        atomic_store(&on, false);
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
    /* Of a program that has nothing yet it is this at once. */
    if (error == 0 && the_vdev_count != 0 && object_count(OBJECT_CONTEXT) == 0)
        (void)protect_now();
    return error;
}

void protect_end(void)
{
    pthread_mutex_lock(&state.lock);
    atomic_store(&on, false);
    pthread_cond_broadcast(&state.changed);
    while (state.running)
        pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    protect_keep_standby(false);
    if (gate_close(0) == 0) {
        struct journal_entry *former = journal_end();
        gate_open();
        journal_free(former);
    }
    snapshot_forget();
}

void protect_let_choose(bool (*chooses)(void))
{
    atomic_store(&others, chooses);
}

void protect_read(struct protect_status *ret_status)
{
    ret_status->on = atomic_load(&on);
    ret_status->broken = protect_refusal();
    ret_status->seeks = atomic_load(&seeks);
    journal_size(&ret_status->commands, &ret_status->bytes);
    ret_status->snapshot_bytes = snapshot_bytes();
    ret_status->differences = recover_differences();
    pthread_mutex_lock(&state.lock);
    ret_status->snapshots = state.snapshots;
    ret_status->recoveries = state.recoveries;
    ret_status->at_ns = state.at_ns;
    ret_status->downtime_ns = state.downtime_ns;
    ret_status->paused_ns = state.paused_ns;
    ret_status->since_ns = state.since_ns;
    ret_status->put_off_ns = state.put_off_ns;
    pthread_mutex_unlock(&state.lock);
}

/* The parent's thread is not here: a child is protected when it says so. */
static void protect_in_child(void)
{
    atomic_store(&on, false);
    atomic_store(&seeks, false);
    state.running = state.wanted = false;
    state.under_way = 0;
}

FORK_PART = {.rank = FORK_OBJECT,
             .lock = &state.lock,
             .changed = {&state.changed},
             .in_child = protect_in_child};
