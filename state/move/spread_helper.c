#include "state/move/spread_helper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/command/share.h"
#include "state/memory/compare.h"
#include "state/memory/merge.h"
#include "state/memory/replica.h"
#include "state/object/lost.h"
#include "state/program/pace.h"
#include "state/program/program.h"

/* Least ratio of gain to cost: both are estimates. */
#define WORTH 2.0
/* Index of the piece after which it is decided whether helping is worth it; a driver may compile
 * for the first ones. */
#define MEASURED_AT 2

double spread_home_per_s(const struct spread *s)
{
    return (double)pace_items(s->launch.pieces->pace, NS_PER_S);
}

static double spread_helper_slice_s(void)
{
    return (double)atomic_load(&pace_slice_ns) / (double)NS_PER_S;
}

/* ---- a place that helps ---- */

/* True when every program of the context is built there in its current edition. */
static bool spread_helper_is_ready(const struct context *context, uint8_t residence_index)
{
    uintptr_t cursor = 0;
    struct program *program;
    bool ready = true;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program))
        ready = ready &&
                (program->context != context ||
                 atomic_load(&program->made[residence_index]) == atomic_load(&program->edition));
    return ready;
}

static int spread_helper_make_real(struct helper *h)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(h->command, &i, &writes));)
        if (memory_make_real(memory, h->residence, h->residence_index) != CL_SUCCESS)
            return -ENOSPC;
    gate_enter();
    bool fits =
        h->command->ops->ready(h->command, h->residence, h->residence_index) == CL_SUCCESS &&
        !h->command->ops->exceeds(h->command, h->residence, h->residence_index);
    gate_leave();
    return fits ? 0 : -ENOTSUP;
}

/* Copy the launch's objects to the helper: those it only reads (@writes false) must be unchanged
 * since it began; those it writes are copied in their present state. */
static int spread_helper_bring(const struct helper *h, bool writes)
{
    struct spread *s = h->spread;
    int error = 0;
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        struct named *named = &s->named[i];
        const struct replica_batch batch = {.context = s->context,
                                            .from = s->home,
                                            .to = h->residence_index,
                                            .roots = &named->root,
                                            .ranges = &named->range,
                                            .versions = &named->version,
                                            .count = 1,
                                            .torn = writes,
                                            .busy = true,
                                            .limits = &s->request->limits};
        uint64_t bytes;
        cl_int reason;
        if (named->writes != writes)
            continue;
        error = replica_refresh(&batch, &bytes, &reason);
        if (error == 0 && !writes && !replica_has(named->root, h->residence_index, named->range))
            error = -EBUSY; /* another command writes what this launch reads */
    }
    return error;
}

/* Remember what each written range begins with, to find what the helper writes. */
static int spread_helper_keep(struct helper *h)
{
    struct spread *s = h->spread;
    int error = 0;
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        const struct named *named = &s->named[i];
        if (!named->writes)
            continue;
        /* Helper and home share these bytes, so its results could not be thrown away. */
        if (merge_is_shared(named->root, s->home, h->residence_index))
            return -ENOTSUP;
        compare_forget_at(named->root, h->residence_index);
        error = merge_begin(named->root, named->range, named->unit, s->home, h->residence_index,
                            &s->request->limits, &h->merges[i]);
    }
    return error;
}

/* Predicted seconds for copying what the helper lacks. Also notes the cost of bringing its results
 * home. */
static double spread_helper_predict(struct helper *h)
{
    const struct spread *s = h->spread;
    uint64_t lacks = 0, writes = 0;
    for (size_t i = 0; i < s->named_count; i++) {
        const struct named *named = &s->named[i];
        if (merge_is_shared(named->root, s->home, h->residence_index))
            continue;
        lacks += named->writes ? named->range.end - named->range.begin
                               : replica_lacking(named->root, s->home, h->residence_index);
        writes += named->writes ? named->range.end - named->range.begin : 0;
    }
    struct residence *home = s->context->at[s->home];
    h->fetch_s = 2 * transfer_predict(h->residence, NULL, writes);
    h->cost_s = h->fetch_s + 2 * transfer_predict(NULL, home, writes);
    return lacks != 0 ? transfer_predict(home, h->residence, lacks) : 0;
}

/* The entry that remembers its device's speed, or a free one. */
static struct pace_elsewhere *spread_helper_pace_of(const struct helper *h)
{
    struct pace *pace = h->spread->launch.pieces->pace;
    const struct device *device = h->residence->device;
    for (size_t i = 0; i < PACE_ELSEWHERE; i++)
        if (pace->elsewhere[i].device == device || !pace->elsewhere[i].device)
            return &pace->elsewhere[i];
    return &pace->elsewhere[0];
}

void helper_remember(const struct helper *h)
{
    pthread_mutex_lock(&h->spread->lock); /* It may go on, abandoned. */
    if (h->per_s > 0)
        *spread_helper_pace_of(h) =
            (struct pace_elsewhere){.device = h->residence->device, .per_s = h->per_s};
    pthread_mutex_unlock(&h->spread->lock);
}

/* Least seconds that a piece takes there: a piece smaller than what fills the device takes as long.
 */
static double spread_helper_least_s(const struct helper *h)
{
    return (double)h->pieces->fill * (double)h->pieces->row / h->per_s;
}

/* Where its speed is remembered: compare the launch's gain with the cost of bringing results home
 * and with the last piece, which the launch may have to wait for. */
static bool spread_helper_was_worth_it(const struct helper *h, double left)
{
    double home = spread_home_per_s(h->spread), items = left * home;
    double gain = left - items / (home + h->per_s), part = h->per_s / (home + h->per_s);
    return gain > WORTH * (part * h->cost_s + spread_helper_least_s(h));
}

/* As far as its speed is remembered. Others may have used the device when that was measured: it is
 * thought to be twice as fast after each refusal, so that it is measured anew some time. */
static bool spread_helper_is_fast_enough(struct helper *h, double left)
{
    enum { REFUSED_MOST = 30 };
    struct pace_elsewhere *known = spread_helper_pace_of(h);
    if (known->device != h->residence->device)
        return true;
    h->per_s = known->per_s * (double)(UINT64_C(1) << known->refused);
    bool fast = spread_helper_was_worth_it(h, left);
    if (fast && known->refused != 0)
        h->per_s = 0;
    if (!fast && known->refused < REFUSED_MOST)
        known->refused++;
    return fast;
}

static bool spread_helper_is_worth_beginning(struct helper *h)
{
    double left = (double)share_left(&h->spread->launch) / spread_home_per_s(h->spread);
    double begin = spread_helper_predict(h);
    log_debug("what is left of a launch takes %.1f ms, joining it %.1f and bringing it home %.1f",
              left * 1e3, begin * 1e3, h->cost_s * 1e3);
    return left > WORTH * (begin + h->cost_s) + AT_ONCE * spread_helper_slice_s() &&
           spread_helper_is_fast_enough(h, left - begin);
}

int helper_begin(struct helper *h)
{
    const struct spread *s = h->spread;
    cl_int error;
    if (h->residence->runs_in_caller || residence_is_lost(h->residence) ||
        !spread_helper_is_ready(s->context, h->residence_index))
        return -ENOTSUP;
    h->command = share_copy(&s->launch);
    h->merges = calloc(s->named_count + 1, sizeof(struct merge *));
    if (!h->command || !h->merges)
        return -ENOMEM;
    h->pieces = h->command->ops->pieces(h->command);
    pieces_refit(h->pieces, h->residence);
    int failed = spread_helper_make_real(h);
    if (failed == 0 && !spread_helper_is_worth_beginning(h))
        failed = -ENOENT;
    if (failed == 0)
        failed = spread_helper_bring(h, false);
    if (failed == 0)
        failed = spread_helper_bring(h, true);
    if (failed == 0)
        failed = spread_helper_keep(h);
    if (failed != 0)
        return failed;
    for (unsigned i = 0; i < AT_ONCE; i++) {
        h->queues[i] = h->residence->cl->clCreateCommandQueue(h->residence->context,
                                                              h->residence->device->id, 0, &error);
        if (!h->queues[i])
            return -EIO;
    }
    return 0;
}

void helper_end(struct helper *h)
{
    for (size_t i = 0; h->merges && i < h->spread->named_count; i++)
        merge_end(h->merges[i]);
    free(h->merges);
    free(h->command);
    for (unsigned i = 0; i < AT_ONCE; i++)
        if (h->queues[i])
            h->residence->cl->clReleaseCommandQueue(h->queues[i]);
    residence_unref(h->residence);
}

/* ---- its part ---- */

/* Seconds until home alone would have done everything. Pieces that are running count as half done.
 */
static double spread_helper_home_s(const struct spread *s, double left)
{
    const struct pieces *pieces = s->launch.pieces;
    double home = spread_home_per_s(s), piece = (double)pieces->fill * (double)pieces->row / home;
    double running =
        PIECES_AT_ONCE * (piece > spread_helper_slice_s() ? piece : spread_helper_slice_s()) / 2;
    return running + left / home;
}

/* Seconds until the helper has done the pieces it has taken. */
static double spread_helper_busy_s(const struct helper *h)
{
    double lasted = (double)(clock_now_ns() - h->since) / (double)NS_PER_S;
    double rest = (double)(h->claimed - h->items) / h->per_s - lasted;
    return h->running != 0 && rest > 0 ? rest : 0;
}

/* Seconds to fetch the results of what it has taken and of @more work-items. */
static double spread_helper_fetch_s(const struct helper *h, double more)
{
    double all = (double)h->pieces->groups * (double)h->pieces->row;
    return h->fetch_s * ((double)h->claimed + more) / all;
}

/* Number of work-groups for the next piece: as many as take a slice; towards the end fewer, so that
 * all devices end at the same time, fetching included; but at least as many as fill the device,
 * since fewer take as long. 0: home would finish before such a piece. */
static size_t spread_helper_choose_count(const struct helper *h)
{
    double home = spread_home_per_s(h->spread), left = (double)share_left(&h->spread->launch);
    double row = (double)h->pieces->row;
    size_t fill = h->pieces->fill;
    if (h->per_s <= 0) {
        double few = left / row / 8;
        return (double)fill < few ? fill : (size_t)few;
    }
    double items = h->per_s * spread_helper_slice_s(),
           ahead = home * spread_helper_fetch_s(h, items);
    double part = ahead < left ? (left - ahead) * h->per_s / (h->per_s + home) / AT_ONCE : 0;
    size_t count = (size_t)((items < part ? items : part) / row);
    count = count < fill ? fill : count - count % fill;
    double more = (double)count * row;
    /* Home would do everything that is left before this piece is done. */
    return spread_helper_busy_s(h) + more / h->per_s + spread_helper_fetch_s(h, more) <
                   spread_helper_home_s(h->spread, left)
               ? count
               : 0;
}

static void spread_helper_note_claim(struct helper *h, struct groups *entry, size_t at,
                                     size_t count)
{
    if (h->groups && at + count == h->groups->at) {
        h->groups->at = at;
        h->groups->count += count;
        free(entry);
        return;
    }
    *entry = (struct groups){h->groups, at, count};
    h->groups = entry;
}

/* The driver reported @error for this residence. */
static void spread_helper_failed(struct helper *h, cl_int error)
{
    bool lost = residence_failed(h->residence, error);
    log_info("%s does no part of a launch any more: %s (OpenCL error %d)",
             device_name(h->residence->device), lost ? "it is lost" : "it failed", error);
    h->error = -EIO;
}

/* Claim the next piece to give to the driver, or NULL. Lock held. */
static struct flight *spread_helper_claim(struct helper *h)
{
    const struct spread_request *request = h->spread->request;
    bool alone = h->per_s <= 0 || (h->residence->device->quirks & QUIRK_OFFSETS_MIXED) != 0;
    size_t at;
    if (h->abandoned || h->error != 0 || h->running == (alone ? 1 : AT_ONCE) ||
        request->stops(request->data))
        return NULL;
    struct groups *entry = malloc(sizeof(*entry));
    size_t count = entry ? share_claim(&h->spread->launch, spread_helper_choose_count(h), &at) : 0;
    if (count == 0) {
        free(entry);
        return NULL;
    }
    spread_helper_note_claim(h, entry, at, count);
    h->pieces->at = at;
    h->pieces->count = count;
    h->claimed += (uint64_t)count * h->pieces->row;
    struct flight *flight = &h->flights[h->running];
    *flight = (struct flight){.count = count, .given = clock_now_ns()};
    if (h->running == 0)
        h->since = flight->given;
    return flight;
}

static bool spread_helper_give(struct helper *h)
{
    pthread_mutex_t *lock = &h->spread->lock;
    pthread_mutex_lock(lock);
    struct flight *flight = spread_helper_claim(h);
    pthread_mutex_unlock(lock);
    if (!flight)
        return false;
    cl_command_queue queue = h->queues[h->pieces_given++ % AT_ONCE];
    gate_enter();
    cl_int error = h->command->ops->issue(h->command, h->residence, h->residence_index, queue, 0,
                                          NULL, &flight->event);
    if (error == CL_SUCCESS)
        residence_flush(h->residence, queue);
    gate_leave();
    pthread_mutex_lock(lock);
    if (error == CL_SUCCESS)
        h->running++;
    else
        spread_helper_failed(h, error);
    pthread_mutex_unlock(lock);
    return error == CL_SUCCESS;
}

/* Update the speed. The first pieces are small and a driver may compile for them, so a higher speed
 * counts at once and a lower one by half. */
static void spread_helper_measure(struct helper *h, const struct flight *flight)
{
    uint64_t now = clock_now_ns(), since = flight->given > h->since ? flight->given : h->since;
    double items = (double)flight->count * (double)h->pieces->row;
    double per_s = items * (double)NS_PER_S / (double)(now - since + 1);
    h->per_s = per_s > h->per_s ? per_s : (h->per_s + per_s) / 2;
    h->since = now;
    h->items += (uint64_t)items;
}

/* Compare the gain for the rest of the launch with the cost of bringing the helper's part home. */
static bool spread_helper_is_worth_it(const struct helper *h)
{
    double home = spread_home_per_s(h->spread), left = (double)share_left(&h->spread->launch);
    double gain = left / home - left / (home + h->per_s);
    double part = h->per_s / (home + h->per_s);
    return gain > WORTH * part * h->cost_s;
}

/* Wait for a piece and return its own final status, since a wait may succeed for a command that
 * failed. */
static cl_int spread_helper_await_piece(struct residence *residence, cl_event event)
{
    cl_int status = CL_COMPLETE, error = residence_await_events(residence, 1, &event);
    cl_int asked = residence->cl->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                 sizeof(status), &status, NULL);
    residence->cl->clReleaseEvent(event);
    return error != CL_SUCCESS   ? error
           : asked != CL_SUCCESS ? asked
           : status < 0          ? status
                                 : CL_SUCCESS;
}

static void spread_helper_await_first(struct helper *h)
{
    struct flight flight = h->flights[0];
    cl_int error = spread_helper_await_piece(h->residence, flight.event);
    pthread_mutex_lock(&h->spread->lock);
    memmove(&h->flights[0], &h->flights[1], (AT_ONCE - 1) * sizeof(flight));
    h->running--;
    unsigned pieces = h->pieces_done++;
    if (error != CL_SUCCESS)
        spread_helper_failed(h, error);
    else
        spread_helper_measure(h, &flight);
    if (pieces == MEASURED_AT && h->error == 0 && !h->abandoned && !spread_helper_is_worth_it(h))
        h->error = -ENOENT;
    pthread_mutex_unlock(&h->spread->lock);
}

/* Fetch its results to host memory while home still does its own part. */
static void spread_helper_fetch(struct helper *h)
{
    struct spread *s = h->spread;
    const struct transfer_limits limits = {.deadline_ns = h->deadline_ns, .cancel = &h->abandoned};
    pthread_mutex_lock(&s->lock);
    int error = h->groups ? h->error : -ENOENT;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        uint64_t bytes;
        if (h->merges[i])
            error = merge_fetch(h->merges[i], &limits, &bytes);
    }
    pthread_mutex_lock(&s->lock);
    h->error = error;
    pthread_mutex_unlock(&s->lock);
}

void *helper_run(void *data)
{
    struct helper *h = data;
    uint64_t begun = span_begin();
    for (;;) {
        while (spread_helper_give(h))
            ;
        if (h->running == 0)
            break;
        spread_helper_await_first(h);
    }
    span_end(begun, "spread", device_name(h->residence->device), "items", h->items);
    begun = span_begin();
    spread_helper_fetch(h);
    span_end(begun, "spread", "fetch", NULL, 0);
    pthread_mutex_lock(&h->spread->lock);
    h->ended = true;
    pthread_mutex_unlock(&h->spread->lock);
    return NULL;
}
