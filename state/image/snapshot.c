#include "state/image/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/command/command.h"
#include "state/command/parts.h"
#include "state/image/snapshot_making.h"
#include "state/image/stored.h"

/* Fewer bytes than this are not worth a round of copies ahead. */
#define WORTH ((uint64_t)8 << 20)
/* A round helps when it leaves less than this much of what the one before left; so many that do not
 * are made. */
#define HELPS       0.9
#define IN_VAIN_MAX 2
/* Interval between two checks whether a launch that runs in pieces has ended. */
#define PIECES_STEP_NS 2000000u
/* How long deferred commands may take to be issued while the program stands still. */
#define SETTLE_NS NS_PER_S

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snapshot *latest; /* guarded by lock; one reference */
static uint64_t last_serial;    /* guarded by the mover's lock */

struct snapshot *snapshot_pin(void)
{
    pthread_mutex_lock(&lock);
    struct snapshot *snapshot = latest;
    if (snapshot)
        atomic_fetch_add_explicit(&snapshot->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return snapshot;
}

/* Make @snapshot, which is owned from now on, the latest. Returns the previous one, the caller's.
 */
static struct snapshot *snapshot_publish(struct snapshot *snapshot)
{
    pthread_mutex_lock(&lock);
    struct snapshot *before = latest;
    latest = snapshot;
    pthread_mutex_unlock(&lock);
    return before;
}

void snapshot_forget(void)
{
    snapshot_unpin(snapshot_publish(NULL));
}

/* Predicted pause: time to read what is expected to have changed, and to digest all that was
 * compared. */
static uint64_t snapshot_predict(const struct making *making)
{
    double seconds = making->move.rounds.bandwidth > 0
                         ? (double)making->expected / making->move.rounds.bandwidth
                         : 0;
    if (making->digested != 0)
        seconds += (double)making->digest_ns / (double)NS_PER_S * (double)making->compared /
                   (double)making->digested;
    return seconds < 1e6 ? (uint64_t)(seconds * NS_PER_S) : UINT64_C(1000000) * NS_PER_S;
}

/* 1: another round. 0: begin the pause. -EBUSY with the reason. */
static int snapshot_decide(struct making *making)
{
    uint64_t bytes = making->expected, predicted = snapshot_predict(making);
    bool fits = predicted <= move_downtime_limit(&making->move) &&
                (making->move.rounds.bandwidth > 0 || bytes < WORTH);
    if (making->report->rounds != 0)
        making->move.rounds.in_vain += (double)bytes >= HELPS * (double)making->left;
    making->left = bytes;
    if (fits)
        return making->report->rounds == 0 && bytes >= WORTH &&
               !move_rounds_is_late(&making->move, predicted);
    if (making->move.rounds.in_vain < IN_VAIN_MAX && !move_rounds_is_late(&making->move, predicted))
        return 1;
    uint64_t most = making->request->move.strict ? move_downtime_limit(&making->move)
                                                 : making->request->most_ns;
    if (most == 0 || (!making->request->move.strict && predicted <= most))
        return 0;
    making->report->expected_ns = predicted;
    return move_fail(&making->move, -EBUSY,
                     "the program keeps writing %.1f MB, which would stop it for %.0f ms, and it "
                     "may be stopped for %.0f ms",
                     (double)bytes / 1e6, (double)predicted / NS_PER_MS, (double)most / NS_PER_MS);
}

/* True when a launch is in progress in whose middle no snapshot may be made. *ret_suspended: it
 * continues only when the program is resumed, by a mover that waits for this snapshot. Gate closed.
 */
static bool snapshot_is_in_pieces(const struct making *making, bool *ret_suspended)
{
    bool any = false;
    *ret_suspended = false;
    uintptr_t cursor = 0;
    struct queue *queue;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue)) {
        struct event *event;
        bool busy = false;
        pthread_mutex_lock(&engine_lock);
        bool found = defer_in_pieces(queue, &event, &busy) || busy;
        if (found && making->request->in_launches)
            found = event->parts->sharers != 0; /* what helpers have done is not merged yet */
        any = any || found;
        *ret_suspended = *ret_suspended || (found && !queue->real);
        pthread_mutex_unlock(&engine_lock);
    }
    return any;
}

/* True while deferred commands should be waited for: those behind a launch in pieces are issued
 * without further calls of the program, but those that wait for the program are not. */
static bool snapshot_is_settling(const struct making *making)
{
    return making->stands && defer_any() && clock_now_ns() < making->stood_at + SETTLE_NS;
}

static int snapshot_close_gate(struct making *making)
{
    int error = 0;
    making->closed_at = clock_now_ns();
    for (uint32_t i = 0; error == 0 && i < vdevs_count(); i++) {
        making->move.vdev = the_vdevs[i];
        error = i == 0 ? move_close_gate(&making->move) : move_check_pins(&making->move);
        if (error != 0 && i != 0)
            gate_open();
    }
    making->closed = error == 0;
    return error;
}

static void snapshot_open_gate(struct making *making)
{
    if (!making->closed)
        return;
    making->closed = false;
    gate_open();
    span_end_at(span_wanted() ? making->closed_at : 0, SPAN_GATE, "gate", "gate closed", NULL, 0);
    making->report->downtime_ns += clock_now_ns() - making->closed_at;
}

/* Let a launch in pieces go on. A snapshot that nobody asked for gives up when a move waits, so
 * that the move need not wait for the launch. */
static int snapshot_await_pieces(struct making *making)
{
    snapshot_open_gate(making);
    if (making->request->most_ns != 0 && move_is_awaited())
        return move_fail(&making->move, -EBUSY, "a move goes first, in the middle of a launch");
    clock_sleep(PIECES_STEP_NS);
    defer_pump();
    return move_check(&making->move);
}

/* Copy the rest, with the program paused and all its commands ended. */
static int snapshot_conclude(struct making *making)
{
    int error = making_copy(making, false);
    if (error == 0)
        making->report->shared = making_shared(making);
    if (error == 0 && making->request->moment)
        error = making->request->moment(making->request->data, making->next);
    return error;
}

/* Wait until all commands given so far have ended, while the program runs. */
static int snapshot_quiesce(struct making *making)
{
    uint64_t since = clock_now_ns();
    int error = move_quiesce(&making->move);
    making->report->waited_ns += clock_now_ns() - since;
    return error;
}

/* 0: the snapshot is complete. 1: another attempt is needed. Called with the gate closed; it may be
 * open afterwards. */
static int snapshot_attempt(struct making *making)
{
    int error = making_collect(making);
    int ahead = error != 0 ? error : making->stands ? 0 : snapshot_decide(making);
    if (ahead < 0)
        return ahead;
    if (ahead == 0 && making->request->stand && !making->stands) {
        snapshot_open_gate(making);
        making->stands = true;
        error = making->request->stand(making->request->data);
        making->stood_at = clock_now_ns();
        return error == 0 ? 1 : error;
    }
    if (ahead > 0) {
        uint64_t began = clock_now_ns();
        snapshot_open_gate(making);
        making->report->rounds++;
        error = snapshot_quiesce(making);
        if (error == 0)
            error = making_copy(making, true);
        making->move.rounds.took_ns = clock_now_ns() - began;
        return error == 0 ? 1 : error;
    }
    making->move.limits.deadline_ns = move_pause_limit(&making->move);
    error = move_drain(&making->move);
    bool suspended = false;
    if (error == 0 && (snapshot_is_in_pieces(making, &suspended) || snapshot_is_settling(making))) {
        if (suspended)
            return move_fail(&making->move, -EBUSY, "it is suspended in the middle of a launch");
        making->move.limits.deadline_ns = making->request->move.deadline_ns;
        error = snapshot_await_pieces(making);
        return error == 0 ? 1 : error;
    }
    if (error == 0)
        error = snapshot_conclude(making);
    if (error == -ETIMEDOUT && making->request->move.strict &&
        (making->request->move.deadline_ns == 0 ||
         clock_now_ns() < making->request->move.deadline_ns))
        error = move_fail(&making->move, -EBUSY,
                          "the program would be stopped for longer than the %.0f ms that it may be",
                          (double)move_downtime_limit(&making->move) / NS_PER_MS);
    return error;
}

static int snapshot_make_once(struct making *making)
{
    int error = 0, again = 1;
    gate_enter();
    error = making_find(making);
    gate_leave();
    while (error == 0 && again > 0) {
        making_let_go(making);
        error = snapshot_quiesce(making);
        if (error == 0)
            error = snapshot_close_gate(making);
        if (error != 0)
            break;
        again = snapshot_attempt(making);
        if (again == 0) {
            /* Publish before the gate opens, so that no command comes between this moment and the
             * snapshot. */
            making->before = snapshot_publish(making->next);
            making->next = NULL;
        }
        snapshot_open_gate(making);
        making->move.limits.deadline_ns = making->request->move.deadline_ns;
    }
    return error != 0 ? error : again;
}

static const char *snapshot_reason_of(int error)
{
    switch (error) {
    case -ETIMEDOUT:
        return "the deadline passed";
    case -ECANCELED:
        return "canceled";
    case -ESHUTDOWN:
        return "the program ends";
    default:
        return strerror(-error);
    }
}

static int snapshot_run_turn(const struct snapshot_request *request, struct snapshot_report *report)
{
    const struct move_request *asked = &request->move;
    struct move_report said = {0};
    struct making making = {
        .request = request,
        .report = report,
        .serial = last_serial + 1,
        .move = {.request = asked,
                 .report = &said,
                 .vdev = the_vdevs[0],
                 .throttle = {.rate = asked->bandwidth},
                 .limits = {.deadline_ns = asked->deadline_ns, .cancel = asked->cancel}}};
    making.base = snapshot_pin();
    /* A snapshot reads host memory, which lacks bytes that are stored in an image. */
    int error = stored_bytes() == 0
                    ? snapshot_make_once(&making)
                    : move_fail(&making.move, -EBUSY, "it is suspended to an image");
    if (error == 0)
        report->serial = last_serial = making.serial;
    report->downtime_ns += said.downtime_ns;
    making_finish(&making);
    if (error != 0)
        (void)snprintf(report->reason, sizeof(report->reason), "%s",
                       said.reason[0] ? said.reason : snapshot_reason_of(error));
    return error;
}

int snapshot_make(const struct snapshot_request *request, struct snapshot_report *ret_report)
{
    uint64_t start = clock_now_ns();
    int before = cancel_hold(), error = -ETIMEDOUT;
    memset(ret_report, 0, sizeof(*ret_report));
    (void)snprintf(ret_report->reason, sizeof(ret_report->reason), "another move went on");
    if (vdevs_count() == 0) {
        error = -ENOENT;
        (void)snprintf(ret_report->reason, sizeof(ret_report->reason), "it has no device yet");
    } else if (move_lock_until(request->move.deadline_ns, false)) {
        ret_report->reason[0] = '\0';
        ret_report->waited_ns = clock_now_ns() - start;
        error = work_begin() ? snapshot_run_turn(request, ret_report) : -ESHUTDOWN;
        work_end();
        move_unlock();
    }
    cancel_allow(before);
    ret_report->error = error;
    ret_report->total_ns = clock_now_ns() - start;
    log_info("snapshot: %s%s, %.3f ms in all, %.3f ms paused, %llu bytes copied, %llu kept",
             error == 0 ? "made" : "not made: ", error == 0 ? "" : ret_report->reason,
             (double)ret_report->total_ns / 1e6, (double)ret_report->downtime_ns / 1e6,
             (unsigned long long)ret_report->copied, (unsigned long long)ret_report->shared);
    return error;
}

/* A forked child has no drivers, so it has no snapshot either. */
static void snapshot_in_child(void)
{
    latest = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock, .in_child = snapshot_in_child};
