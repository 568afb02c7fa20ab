#include "state/recovery/protect.h"

#include <errno.h>

#include "policy/interval.h"
#include "state/base/clock.h"
#include "state/base/files/owned.h"
#include "state/base/threads/fork.h"
#include "state/budget/budget.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/driver/served.h"
#include "state/image/snapshot.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/object/pin.h"
#include "state/recovery/recovery.h"

/* How often the thread checks while the program has no objects, or no snapshot is due. */
#define RETRY_NS UINT64_C(100000000)
/* Pause after a snapshot that failed, but not for a loss that is over by now: another one may
 * follow. */
#define FAILED_NS UINT64_C(1000000000)
/* A snapshot is begun when the journal has reached this share of its limit. */
#define NEARLY 0.5

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct protect_settings settings; /* guarded by lock, like all below */
    unsigned under_way; /* snapshots in progress, until the journal before them is let go */
    struct protect_status status;          /* the fields that snapshots change */
    uint64_t begun_ns, tried_ns, total_ns; /* of the last snapshot, without its waits, like... */
    int error;                             /* ...this, and... */
    uint64_t recoveries;                   /* ...how many recoveries were before it */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static atomic_bool on;
_Atomic uint64_t protect_fault_ns;

const char *protect_refusal(void)
{
    return vdevs_count() > 1 ? "it has several virtual devices" : journal_broken();
}

/* True when snapshots begin a journal. With several virtual devices no recovery comes, and commands
 * that a lost device ended in error would wait for it for ever. */
static bool protect_keeps_journal(void)
{
    return atomic_load(&on) && vdevs_count() <= 1;
}

bool protect_wants_thread(void)
{
    return atomic_load(&on);
}

bool protect_is_on(void)
{
    return atomic_load(&on) && !protect_refusal();
}

/* Settle the events of commands and pieces that have ended, so that none of them need be in the
 * journal. A command whose driver reports otherwise, as that of a device being lost does, stays in
 * the journal alone. */
static int protect_settle_events(void)
{
    uintptr_t cursor = 0;
    struct event *event;
    bool doubted = false;
    for (; (event = object_next(OBJECT_EVENT, &cursor)); object_unhold(event))
        if (event_state(event) == EVENT_ISSUED && event->parts && event->parts->pieces) {
            doubted = !parts_note_ends(event) || doubted;
        } else if (event_state(event) == EVENT_ISSUED && !event->parts) {
            (void)event_status_inside(event);
            doubted = doubted || event_is_doubted(event);
        }
    return doubted ? -EIO : 0;
}

/* Context of a snapshot request. */
struct beginning {
    const struct snapshot_request *wanted;
    struct journal_entry *former;
    bool protects; /* the journal starts again with it, for a protected program */
};

/* Called at the moment of a snapshot: the journal starts again with the commands that follow. */
static int protect_begin_journal(void *data, const struct snapshot *snapshot)
{
    struct beginning *beginning = data;
    const struct snapshot_request *wanted = beginning->wanted;
    bool protects = protect_keeps_journal();
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
    struct beginning beginning = {.wanted = wanted, .protects = protect_keeps_journal()};
    struct snapshot_request request = *wanted;
    request.moment = protect_begin_journal;
    request.stand = wanted->stand ? protect_stand : NULL;
    request.data = &beginning;
    uint64_t begun = clock_now_ns(), recoveries = recovery_count();
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
        state.recoveries = recoveries;
        state.begun_ns = begun;
        state.tried_ns = clock_now_ns();
        state.total_ns = ret_report->total_ns - ret_report->waited_ns;
        state.status.put_off_ns = wanted->most_ns != 0 ? ret_report->expected_ns : 0;
    }
    if (beginning.protects && error == 0) {
        state.status.snapshots++;
        state.status.at_ns = state.tried_ns;
        state.status.downtime_ns = ret_report->downtime_ns;
        state.status.paused_ns += ret_report->downtime_ns;
    }
    pthread_mutex_unlock(&state.lock);
    return error;
}

static int protect_make(uint64_t most_ns)
{
    const struct snapshot_request request = {.most_ns = most_ns, .in_launches = true};
    struct snapshot_report report;
    return protect_snapshot(&request, &report);
}

int protect_now(void)
{
    return protect_make(0);
}

void protect_forget(void)
{
    if (!protect_keeps_journal())
        snapshot_forget();
}

/* Wait until other threads have freed the journal entries that they took out. True if there was
 * something to wait for. */
static bool protect_await_snapshots(void)
{
    pthread_mutex_lock(&state.lock);
    bool waits = state.under_way != 0;
    while (state.under_way != 0)
        (void)clock_wait(&state.changed, &state.lock, 0);
    pthread_mutex_unlock(&state.lock);
    return waits;
}

/* Largest share of the time for snapshots where the journal is not complete, or is full before a
 * snapshot is due. */
#define HASTE 0.1

/* For how long the last snapshot delayed the program: the time for which it stopped it, and a tenth
 * of the rest, in which it took some of the device's time. Lock held. */
static uint64_t protect_cost(void)
{
    return (state.error == 0 ? state.status.downtime_ns : 0) + state.total_ns / 10;
}

/* Mean time to a fault: configured, or measured in this run; 0: there was no fault. Lock held. */
static uint64_t protect_fault(void)
{
    uint64_t configured = atomic_load(&protect_fault_ns), losses = recovery_count();
    if (configured != 0 || losses == 0)
        return configured;
    return (clock_now_ns() - state.status.since_ns) / losses;
}

/* The interval between snapshots. Lock held. */
static uint64_t protect_interval(void)
{
    const struct interval_costs costs = {.fault = (double)protect_fault(),
                                         .snapshot = (double)protect_cost()};
    if (state.settings.interval_ns != 0)
        return state.settings.interval_ns;
    return costs.fault > 0 ? (uint64_t)interval_best(&costs) : PROTECT_INTERVAL_NS;
}

/* When the next snapshot is due, from the begin of the last. Lock held. */
static uint64_t protect_due_at(bool hurries)
{
    uint64_t cost = hurries ? state.total_ns : protect_cost();
    uint64_t least = (uint64_t)((double)cost / (hurries ? HASTE : PROTECT_BUDGET));
    uint64_t interval = hurries ? RETRY_NS : protect_interval();
    if (state.tried_ns == 0)
        return 0;
    if (state.error != 0 && state.status.put_off_ns == 0 && state.recoveries == recovery_count())
        return state.tried_ns + FAILED_NS;
    return state.begun_ns + (interval > least ? interval : least);
}

/* The same when the program waits to be told that an object is gone: as soon as the budget allows,
 * and after an interval even if that exceeds it. Lock held. */
static uint64_t protect_due_for_ends(void)
{
    uint64_t hasty = protect_due_at(true), interval = protect_interval();
    uint64_t least = (uint64_t)((double)protect_cost() / PROTECT_BUDGET);
    uint64_t due = state.begun_ns + (least < interval ? least : interval);
    return hasty > due ? hasty : due;
}

/* True when the last snapshot is so recent that another one now would exceed the share of the time
 * for snapshots. */
static bool protect_was_lately(void)
{
    pthread_mutex_lock(&state.lock);
    bool lately = clock_now_ns() < protect_due_at(true);
    pthread_mutex_unlock(&state.lock);
    return lately;
}

void protect_end_journal(const char *why)
{
    struct journal_entry *former = NULL;
    move_lock(); /* a recovery that has begun still adds to the events that have to end */
    if (gate_close(0) == 0) {
        replay_end_events(CL_OUT_OF_RESOURCES);
        former = journal_end(why);
        gate_open();
    }
    move_unlock();
    journal_free(former);
}

/* Make a snapshot so that kept objects can be freed. If that fails, end the journal: without a
 * snapshot it is useless, and then nothing is kept for it. But if the snapshot failed because of a
 * loss, the recovery needs the journal first. */
bool protect_relieve(bool anyway)
{
    uint64_t entries, bytes;
    journal_size(&entries, &bytes);
    if (!protect_keeps_journal() || (!anyway && protect_was_lately()))
        return false;
    if (entries == 0)
        return protect_await_snapshots();
    uint64_t before;
    int error;
    do {
        before = recovery_count();
        error = protect_now();
    } while (error != 0 && recovery_outlived(before, 0, NULL));
    if (error != 0)
        protect_end_journal(JOURNAL_NONE);
    (void)protect_await_snapshots();
    return true;
}

/* How long a snapshot now may stop the program: as long as the budget allows for the time since the
 * last one. Lock held. */
static uint64_t protect_most_now(void)
{
    uint64_t since =
        state.status.at_ns > state.status.since_ns ? state.status.at_ns : state.status.since_ns;
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

/* @ret_most_ns  If a snapshot is due: how long it may stop the program; 0: without limit, because
 *               the program would soon not be protected, or would wait. */
static bool protect_is_due(uint64_t *ret_most_ns)
{
    uint64_t count, bytes;
    journal_size(&count, &bytes);
    pthread_mutex_lock(&state.lock);
    bool hurries = journal_broken() || (double)bytes > NEARLY * (double)state.settings.bytes;
    bool due = (hurries || count != 0) && clock_now_ns() >= protect_due_at(hurries);
    bool in_time = due && state.status.put_off_ns == 0;
    bool for_ends = !in_time && count != 0 && clock_now_ns() >= protect_due_for_ends();
    *ret_most_ns = hurries ? 0 : protect_most_now();
    pthread_mutex_unlock(&state.lock);
    if (!for_ends || !protect_is_waited_for())
        return due;
    *ret_most_ns = 0;
    return true;
}

/* Have a standby process for the isolated driver ready, so that recovery need not wait for one when
 * the driver's process dies. */
static void protect_keep_standby(bool wanted)
{
    const struct device *device = vdevs_count() == 1 ? atomic_load(&the_vdevs[0]->device) : NULL;
    if (device)
        isolated_standby(device->platform, wanted);
}

void protect_make_if_due(void)
{
    uint64_t most_ns;
    if (vdevs_count() == 1 && object_count(OBJECT_CONTEXT) != 0 && protect_is_due(&most_ns))
        (void)protect_make(most_ns);
    pthread_mutex_lock(&state.lock);
    bool has_snapshot = state.status.snapshots != 0;
    pthread_mutex_unlock(&state.lock);
    if (has_snapshot)
        protect_keep_standby(true);
}

int protect_begin(const struct protect_settings *settings)
{
    pthread_mutex_lock(&state.lock);
    state.settings = *settings;
    if (state.settings.bytes == 0)
        state.settings.bytes = PROTECT_BYTES;
    atomic_store(&journal_limit, state.settings.bytes);
    if (!atomic_exchange(&on, true)) {
        state.status.paused_ns = 0;
        state.status.since_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&state.lock);
    int error = recovery_start(settings->keys, settings->key_count);
    if (error != 0)
        atomic_store(&on, false);
    /* For a program without objects, make the first snapshot at once. */
    if (error == 0 && vdevs_count() == 1 && object_count(OBJECT_CONTEXT) == 0)
        (void)protect_now();
    return error;
}

void protect_end(void)
{
    atomic_store(&on, false);
    recovery_await_end();
    protect_keep_standby(false);
    protect_end_journal(JOURNAL_NONE);
    snapshot_forget();
}

void protect_read(struct protect_status *ret_status)
{
    pthread_mutex_lock(&state.lock);
    *ret_status = state.status;
    ret_status->interval_ns = protect_interval();
    ret_status->cost_ns = protect_cost();
    ret_status->fault_ns = protect_fault();
    pthread_mutex_unlock(&state.lock);
    ret_status->outage_ns = recovery_outage_ns();
    ret_status->on = atomic_load(&on);
    ret_status->broken = protect_refusal();
    ret_status->recovery = recovery_state();
    ret_status->recoveries = recovery_count();
    ret_status->differences = replay_differences();
    ret_status->snapshot_bytes = snapshot_bytes();
    journal_size(&ret_status->commands, &ret_status->bytes);
}

/* The child has no such thread: it is protected only when it asks for it. */
static void protect_in_child(void)
{
    atomic_store(&on, false);
    state.under_way = 0;
}

FORK_PART = {.rank = FORK_OBJECT,
             .lock = &state.lock,
             .changed = {&state.changed},
             .in_child = protect_in_child};
