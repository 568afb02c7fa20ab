#include "state/move/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/thread.h"
#include "state/command/share.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/merge.h"
#include "state/memory/replica.h"
#include "state/object/lost.h"
#include "state/program/pace.h"
#include "state/program/program.h"

/* Pieces of a place with its driver at once, at most. */
#define AT_ONCE 2
/* A thread may be giving a piece just now. */
#define JOIN_TRIES   100
#define JOIN_STEP_NS 100000u
/* Less than that is over before anybody has joined. */
#define LEAST_NS (20 * NS_PER_MS)
/* What is gained must be so many times what it costs: neither is known well. */
#define WORTH 2.0
/* Piece by which it is decided whether it is worth it: a driver compiles for the first. */
#define MEASURED_AT 2
/* How often it is looked whether the queue's own pieces have ended, and all others. */
#define IDLE_STEP_NS 50000u
#define HELP_STEP_NS 200000u
/* So long home waits for a place in any case. */
#define PATIENCE_NS NS_PER_MS

/* The bytes of one root that the launch names. */
struct named {
    struct memory *root; /* held, collected and watched */
    struct range range;
    uint64_t version;
    bool writes;
    size_t unit; /* that kernels write at once there, at most */
};

struct flight {
    cl_event event;
    size_t count;
    uint64_t given;
};

/* A place that does a part. */
struct helper {
    struct spread *spread;
    uint8_t place;
    struct residence *residence;
    struct command *command;          /* owned */
    struct pieces *pieces;            /* the command's: what it is to do next */
    cl_command_queue queues[AT_ONCE]; /* what one piece leaves idle at its end the next one fills */
    struct merge **merges;            /* owned; one for each of spread->named, or NULL */
    struct groups *groups;            /* owned: what it has done, or is at */
    struct flight flights[AT_ONCE];
    unsigned running;
    uint64_t items, claimed, since; /* done; taken; and when the last one ended, or it began */
    unsigned pieces_given, pieces_done;
    double per_s;   /* work-items a second; 0: not known */
    double cost_s;  /* of bringing home what it does, at most */
    double fetch_s; /* of it until home is asked, of the whole launch */
    int error;      /* what it did is to be thrown away */
    uint64_t deadline_ns;
    bool ended;
    atomic_bool abandoned;
    bool started; /* has a thread */
    pthread_t thread;
};

struct spread {
    struct shared_launch launch;
    const struct spread_request *request; /* while it is run */
    struct context *context;
    uint8_t home;
    struct named *named;
    size_t named_count;
    struct helper helpers[PLACES];
    unsigned helper_count;
    pthread_mutex_t lock; /* of what helpers have taken and done, while their threads run */
};

static _Atomic uint64_t launch_count, item_count;

void spread_read(uint64_t *ret_launches, uint64_t *ret_items)
{
    *ret_launches = atomic_load(&launch_count);
    *ret_items = atomic_load(&item_count);
}

static double home_per_s(const struct spread *s)
{
    return (double)pace_items(s->launch.pieces->pace, NS_PER_S);
}

static double slice_s(void)
{
    return (double)atomic_load(&pace_slice_ns) / (double)NS_PER_S;
}

/* ---- joining ---- */

static int join(struct spread *s)
{
    int error = share_join(s->request->seat, &s->launch);
    for (unsigned i = 0; error == -EAGAIN && i < JOIN_TRIES; i++) {
        clock_sleep(JOIN_STEP_NS);
        error = share_join(s->request->seat, &s->launch);
    }
    if (error != 0)
        return error;
    const struct queue *queue = s->launch.queue;
    s->context = queue->context;
    s->home = atomic_load(&s->context->place[queue->seat_index]);
    double per_s = home_per_s(s), left = (double)share_left(&s->launch);
    if (s->home == PLACE_NONE || s->context->at[s->home]->runs_in_caller || queue->seat->part)
        return -ENOTSUP;
    if (per_s <= 0)
        return -EAGAIN;
    return left / per_s * NS_PER_S >= LEAST_NS ? 0 : -ENOENT;
}

static struct named *named_of(struct spread *s, struct memory *root)
{
    for (size_t i = 0; i < s->named_count; i++)
        if (s->named[i].root == root)
            return &s->named[i];
    if (!array_make_room(&s->named, s->named_count, sizeof(s->named[0])))
        return NULL;
    struct named *named = &s->named[s->named_count++];
    object_hold(root);
    *named = (struct named){.root = root, .range = {root->size, 0}};
    return named;
}

/* Where that is not known, or it is a structure: as much as any device does. */
static size_t unit_of(const struct command *command, unsigned use)
{
    enum { MOST = 8 };
    size_t element = command->ops->element ? command->ops->element(command, use) : 0;
    return element == 0 || element > MOST ? MOST : element;
}

/* Gate closed. */
static int add_use(struct spread *s, struct memory *memory, unsigned use, bool writes)
{
    struct memory *root = memory->root;
    struct range range = command_range(s->launch.command, use, memory);
    if (root->uses_svm || memory->type == CL_MEM_OBJECT_PIPE || (writes && memory->image) ||
        (writes && root->image))
        return -ENOTSUP;
    if (map_any(root) || !memory->real[s->home] || !replica_has(root, s->home, range))
        return -EBUSY;
    struct named *named = named_of(s, root);
    if (!named)
        return -ENOMEM;
    named->range.begin = range.begin < named->range.begin ? range.begin : named->range.begin;
    named->range.end = range.end > named->range.end ? range.end : named->range.end;
    named->writes = named->writes || writes;
    size_t unit = writes ? unit_of(s->launch.command, use) : 0;
    named->unit = unit > named->unit ? unit : named->unit;
    return 0;
}

/* What is written has a new version from here on, which no other place has: whatever is copied
 * there is none. */
static void watch(struct spread *s)
{
    for (size_t i = 0; i < s->named_count; i++) {
        struct named *named = &s->named[i];
        atomic_store(&named->root->collected, true);
        named->version = extents_watch(named->root);
        if (named->writes)
            replica_written(named->root, s->home, named->range);
    }
}

static void unwatch(struct spread *s)
{
    for (size_t i = 0; i < s->named_count; i++) {
        extents_unwatch(s->named[i].root);
        atomic_store(&s->named[i].root->collected, false);
        object_unhold(s->named[i].root);
    }
    free(s->named);
    s->named = NULL;
    s->named_count = 0;
}

static int list_named(struct spread *s)
{
    struct memory *memory;
    bool writes;
    int error = gate_close(s->request->limits.deadline_ns);
    if (error != 0)
        return error;
    if (pin_reason(s->request->seat))
        error = -ENOTSUP;
    for (unsigned i = 0; error == 0 && (memory = command_use(s->launch.command, &i, &writes));)
        error = add_use(s, memory, i - 1, writes);
    if (error == 0)
        watch(s);
    gate_open();
    return error;
}

/* Then what came before the launch in its own queue has ended, where that is in order. */
static int await_first_piece(const struct spread *s, struct move *move)
{
    int error = 0;
    while (error == 0 && !share_has_begun(&s->launch)) {
        error = residence_is_lost(s->context->at[s->home]) ? -EIO
                : share_is_idle(&s->launch)                ? -ENOENT
                                                           : move_check(move);
        if (error == 0)
            clock_sleep(IDLE_STEP_NS);
    }
    return error;
}

/* What came before the launch has ended. */
static int quiesce(const struct spread *s)
{
    const struct queue *queue = s->launch.queue;
    const bool ordered = (queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    const struct move_request request = {.seat = s->request->seat->index};
    struct move_report report = {0};
    struct move move = {.request = &request,
                        .report = &report,
                        .seat = s->request->seat,
                        .apart = ordered ? queue : NULL,
                        .limits = s->request->limits};
    int error = ordered ? await_first_piece(s, &move) : 0;
    return error != 0 ? error : move_quiesce(&move);
}

/* ---- a place that helps ---- */

/* Every program of the context is there as it is here. */
static bool is_ready(const struct context *context, uint8_t place)
{
    uintptr_t cursor = 0;
    struct program *program;
    bool ready = true;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program))
        ready = ready && (program->context != context ||
                          atomic_load(&program->made[place]) == atomic_load(&program->edition));
    return ready;
}

static int make_real(struct helper *h)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(h->command, &i, &writes));)
        if (memory_make_real(memory, h->residence, h->place) != CL_SUCCESS)
            return -ENOSPC;
    gate_enter();
    bool fits = h->command->ops->ready(h->command, h->residence, h->place) == CL_SUCCESS &&
                !h->command->ops->exceeds(h->command, h->residence, h->place);
    gate_leave();
    return fits ? 0 : -ENOTSUP;
}

/* What the launch only reads as it was when it began; what it writes as it is now. */
static int bring(const struct helper *h, bool writes)
{
    struct spread *s = h->spread;
    int error = 0;
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        struct named *named = &s->named[i];
        const struct replica_batch batch = {.context = s->context,
                                            .from = s->home,
                                            .to = h->place,
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
        if (error == 0 && !writes && !replica_has(named->root, h->place, named->range))
            error = -EBUSY; /* somebody writes what this launch reads */
    }
    return error;
}

/* From here on what it writes is kept apart from what it began with. */
static int keep(struct helper *h)
{
    struct spread *s = h->spread;
    int error = 0;
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        const struct named *named = &s->named[i];
        if (!named->writes)
            continue;
        /* The same bytes as at home: nothing that is written there can be thrown away. */
        if (merge_is_shared(named->root, s->home, h->place))
            return -ENOTSUP;
        compare_forget_at(named->root, h->place);
        error = merge_begin(named->root, named->range, named->unit, s->home, h->place,
                            &s->request->limits, &h->merges[i]);
    }
    return error;
}

/* Seconds that copying takes what it lacks; of bringing home what it writes it is noted. */
static double predict(struct helper *h)
{
    const struct spread *s = h->spread;
    uint64_t lacks = 0, writes = 0;
    for (size_t i = 0; i < s->named_count; i++) {
        const struct named *named = &s->named[i];
        if (merge_is_shared(named->root, s->home, h->place))
            continue;
        lacks += named->writes ? named->range.end - named->range.begin
                               : replica_lacking(named->root, s->home, h->place);
        writes += named->writes ? named->range.end - named->range.begin : 0;
    }
    struct residence *home = s->context->at[s->home];
    h->fetch_s = 2 * transfer_predict(h->residence, NULL, writes);
    h->cost_s = h->fetch_s + 2 * transfer_predict(NULL, home, writes);
    return lacks != 0 ? transfer_predict(home, h->residence, lacks) : 0;
}

/* What is remembered of its device; or room for it. */
static struct pace_elsewhere *memory_of(const struct helper *h)
{
    struct pace *pace = h->spread->launch.pieces->pace;
    const struct device *device = h->residence->device;
    for (size_t i = 0; i < PACE_ELSEWHERE; i++)
        if (pace->elsewhere[i].device == device || !pace->elsewhere[i].device)
            return &pace->elsewhere[i];
    return &pace->elsewhere[0];
}

static void remember(const struct helper *h)
{
    if (h->per_s > 0)
        *memory_of(h) = (struct pace_elsewhere){h->residence->device, h->per_s};
}

static void recall(struct helper *h)
{
    const struct pace_elsewhere *known = memory_of(h);
    if (known->device == h->residence->device)
        h->per_s = known->per_s;
}

/* Seconds that a piece takes there, however small: as long as one that fills the device. */
static double least_s(const struct helper *h)
{
    return (double)h->pieces->fill * (double)h->pieces->row / h->per_s;
}

/* Where its speed is remembered: what the launch gains by it, against what bringing it home costs,
 * and its last piece, which the launch may have to wait for. */
static bool was_worth_it(const struct helper *h, double left)
{
    double home = home_per_s(h->spread), items = left * home;
    double gain = left - items / (home + h->per_s), part = h->per_s / (home + h->per_s);
    return gain > WORTH * (part * h->cost_s + least_s(h));
}

static bool is_worth_beginning(struct helper *h)
{
    double left = (double)share_left(&h->spread->launch) / home_per_s(h->spread);
    double begin = predict(h);
    log_debug("what is left of a launch takes %.1f ms, joining it %.1f and bringing it home %.1f",
              left * 1e3, begin * 1e3, h->cost_s * 1e3);
    recall(h);
    return left > WORTH * (begin + h->cost_s) + AT_ONCE * slice_s() &&
           (h->per_s <= 0 || was_worth_it(h, left - begin));
}

static int helper_begin(struct helper *h)
{
    const struct spread *s = h->spread;
    cl_int error;
    if (h->residence->runs_in_caller || residence_is_lost(h->residence) ||
        !is_ready(s->context, h->place))
        return -ENOTSUP;
    h->command = share_copy(&s->launch);
    h->merges = calloc(s->named_count + 1, sizeof(struct merge *));
    if (!h->command || !h->merges)
        return -ENOMEM;
    h->pieces = h->command->ops->pieces(h->command);
    pieces_refit(h->pieces, h->residence);
    int failed = make_real(h);
    if (failed == 0 && !is_worth_beginning(h))
        failed = -ENOENT;
    if (failed == 0)
        failed = bring(h, false);
    if (failed == 0)
        failed = bring(h, true);
    if (failed == 0)
        failed = keep(h);
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

static void helper_end(struct helper *h)
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

/* Seconds until the queue itself would have done all that is left: its pieces that run, of which
 * nobody knows how far they are, are taken to be half done. */
static double home_s(const struct spread *s, double left)
{
    const struct pieces *pieces = s->launch.pieces;
    double home = home_per_s(s), piece = (double)pieces->fill * (double)pieces->row / home;
    double running = PIECES_AT_ONCE * (piece > slice_s() ? piece : slice_s()) / 2;
    return running + left / home;
}

/* Seconds until it has done all that it has taken. */
static double busy_s(const struct helper *h)
{
    double lasted = (double)(clock_now_ns() - h->since) / (double)NS_PER_S;
    double rest = (double)(h->claimed - h->items) / h->per_s - lasted;
    return h->running != 0 && rest > 0 ? rest : 0;
}

/* Seconds that it takes to fetch what it has done, and @more work-items. */
static double fetch_s(const struct helper *h, double more)
{
    double all = (double)h->pieces->groups * (double)h->pieces->row;
    return h->fetch_s * ((double)h->claimed + more) / all;
}

/* As many as take a slice, but towards the end fewer, so that all places end at once, with what
 * they did fetched from all: as many as fill the device at least, for fewer take as long. */
static size_t choose_count(const struct helper *h)
{
    double home = home_per_s(h->spread), left = (double)share_left(&h->spread->launch);
    double row = (double)h->pieces->row;
    size_t fill = h->pieces->fill;
    if (h->per_s <= 0) {
        double few = left / row / 8;
        return (double)fill < few ? fill : (size_t)few;
    }
    double items = h->per_s * slice_s(), ahead = home * fetch_s(h, items);
    double part = ahead < left ? (left - ahead) * h->per_s / (h->per_s + home) / AT_ONCE : 0;
    size_t count = (size_t)((items < part ? items : part) / row);
    count = count < fill ? fill : count - count % fill;
    double more = (double)count * row;
    /* The queue itself would do all that is left before this. */
    return busy_s(h) + more / h->per_s + fetch_s(h, more) < home_s(h->spread, left) ? count : 0;
}

static void note_claim(struct helper *h, struct groups *entry, size_t at, size_t count)
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

/* The driver's word of this residence. */
static void helper_failed(struct helper *h, cl_int error)
{
    bool lost = residence_failed(h->residence, error);
    log_info("%s does no part of a launch any more: %s (OpenCL error %d)",
             device_name(h->residence->device), lost ? "it is lost" : "it failed", error);
    h->error = -EIO;
}

/* A piece that is to be given now, or NULL. */
static struct flight *claim(struct helper *h)
{
    const struct spread_request *request = h->spread->request;
    bool alone = h->per_s <= 0 || (h->residence->device->quirks & QUIRK_OFFSETS_MIXED) != 0;
    size_t at;
    if (h->abandoned || h->error != 0 || h->running == (alone ? 1 : AT_ONCE) ||
        request->stops(request->data))
        return NULL;
    struct groups *entry = malloc(sizeof(*entry));
    size_t count = entry ? share_claim(&h->spread->launch, choose_count(h), &at) : 0;
    if (count == 0) {
        free(entry);
        return NULL;
    }
    note_claim(h, entry, at, count);
    h->pieces->at = at;
    h->pieces->count = count;
    h->claimed += (uint64_t)count * h->pieces->row;
    struct flight *flight = &h->flights[h->running];
    *flight = (struct flight){.count = count, .given = clock_now_ns()};
    if (h->running == 0)
        h->since = flight->given;
    return flight;
}

static bool give(struct helper *h)
{
    pthread_mutex_t *lock = &h->spread->lock;
    pthread_mutex_lock(lock);
    struct flight *flight = claim(h);
    pthread_mutex_unlock(lock);
    if (!flight)
        return false;
    cl_command_queue queue = h->queues[h->pieces_given++ % AT_ONCE];
    gate_enter();
    cl_int error =
        h->command->ops->issue(h->command, h->residence, h->place, queue, 0, NULL, &flight->event);
    if (error == CL_SUCCESS)
        residence_flush(h->residence, queue);
    gate_leave();
    pthread_mutex_lock(lock);
    if (error == CL_SUCCESS)
        h->running++;
    else
        helper_failed(h, error);
    pthread_mutex_unlock(lock);
    return error == CL_SUCCESS;
}

/* The first pieces are small, and a driver may compile for them: as pace_measured. */
static void measure(struct helper *h, const struct flight *flight)
{
    uint64_t now = clock_now_ns(), since = flight->given > h->since ? flight->given : h->since;
    double items = (double)flight->count * (double)h->pieces->row;
    double per_s = items * (double)NS_PER_S / (double)(now - since + 1);
    h->per_s = per_s > h->per_s ? per_s : (h->per_s + per_s) / 2;
    h->since = now;
    h->items += (uint64_t)items;
}

/* What the rest of the launch gains by it, against what it costs to bring its part home. */
static bool is_worth_it(const struct helper *h)
{
    double home = home_per_s(h->spread), left = (double)share_left(&h->spread->launch);
    double gain = left / home - left / (home + h->per_s);
    double part = h->per_s / (home + h->per_s);
    return gain > WORTH * part * h->cost_s;
}

/* Whatever a wait said, what counts is how the command ended. */
static cl_int await_piece(struct residence *residence, cl_event event)
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

static void await_first(struct helper *h)
{
    struct flight flight = h->flights[0];
    cl_int error = await_piece(h->residence, flight.event);
    pthread_mutex_lock(&h->spread->lock);
    memmove(&h->flights[0], &h->flights[1], (AT_ONCE - 1) * sizeof(flight));
    h->running--;
    unsigned pieces = h->pieces_done++;
    if (error != CL_SUCCESS)
        helper_failed(h, error);
    else
        measure(h, &flight);
    if (pieces == MEASURED_AT && h->error == 0 && !h->abandoned && !is_worth_it(h))
        h->error = -ENOENT;
    pthread_mutex_unlock(&h->spread->lock);
}

/* What it did, to host memory, while home may still do its own part. */
static void fetch(struct helper *h)
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

static void *helper_run(void *data)
{
    struct helper *h = data;
    uint64_t begun = span_begin();
    for (;;) {
        while (give(h))
            ;
        if (h->running == 0)
            break;
        await_first(h);
    }
    span_end(begun, "spread", device_name(h->residence->device), "items", h->items);
    begun = span_begin();
    fetch(h);
    span_end(begun, "spread", "fetch", NULL, 0);
    pthread_mutex_lock(&h->spread->lock);
    h->ended = true;
    pthread_mutex_unlock(&h->spread->lock);
    return NULL;
}

/* Would home, which has nothing else to do since @idle_since, do all of its part again before it
 * has ended? One whose speed is not known takes as long again as it has taken. Under the lock. */
static bool is_behind(const struct helper *h, uint64_t idle_since)
{
    uint64_t now = clock_now_ns();
    double lasted = (double)(now - h->since) / (double)NS_PER_S;
    double waited = (double)(now - idle_since) / (double)NS_PER_S;
    double again = (double)h->claimed / home_per_s(h->spread);
    double rest = h->per_s > 0 ? (double)(h->claimed - h->items) / h->per_s - lasted : lasted;
    return now - idle_since > PATIENCE_NS && (rest > again || waited > again);
}

/* Nobody waits for it but who takes it apart: what it does is thrown away. Under the lock. */
static void abandon(struct helper *h)
{
    log_info("%s does no part of a launch any more: it takes longer than the rest",
             device_name(h->residence->device));
    h->abandoned = true;
    share_give_back(&h->spread->launch, h->groups);
    h->groups = NULL;
}

/* Where a seat lives the program's commands would come upon what it still writes; and so would
 * whoever moves a seat there. */
static bool may_be_abandoned(const struct helper *h)
{
    return h->spread->request->abandons && !context_is_inhabited(h->spread->context, h->place);
}

/* Until all have ended, or are not waited for. */
static void await_helpers(struct spread *s)
{
    uint64_t idle_since = 0;
    for (bool some = true; some;) {
        bool idle = share_left(&s->launch) == 0 && share_is_idle(&s->launch);
        idle_since = !idle ? 0 : idle_since != 0 ? idle_since : clock_now_ns();
        some = false;
        pthread_mutex_lock(&s->lock);
        for (unsigned i = 0; i < s->helper_count; i++) {
            struct helper *h = &s->helpers[i];
            bool at_it = h->started && !h->ended && !h->abandoned;
            if (at_it && idle && may_be_abandoned(h) && is_behind(h, idle_since))
                abandon(h);
            else
                some = some || at_it;
        }
        pthread_mutex_unlock(&s->lock);
        if (some)
            clock_sleep(HELP_STEP_NS);
    }
}

static void join_helper(struct helper *h)
{
    if (h->started)
        (void)pthread_join(h->thread, NULL);
    h->started = false;
}

static void run_all(struct spread *s)
{
    for (unsigned i = 0; i < s->helper_count; i++) {
        struct helper *h = &s->helpers[i];
        pthread_mutex_lock(&s->lock);
        h->started = thread_start("reseat-spread", 0, helper_run, h, &h->thread) == 0;
        pthread_mutex_unlock(&s->lock);
    }
    await_helpers(s);
    for (unsigned i = 0; i < s->helper_count; i++) {
        if (!s->helpers[i].abandoned)
            join_helper(&s->helpers[i]);
        remember(&s->helpers[i]);
    }
}

/* ---- what it did ---- */

static void await_idle(const struct spread *s)
{
    while (!share_is_idle(&s->launch) && !residence_is_lost(s->context->at[s->home]))
        clock_sleep(IDLE_STEP_NS);
}

/* All that it wrote, but where the queue's own pieces wrote something else. */
static int find(struct helper *h, const struct transfer_limits *limits)
{
    struct spread *s = h->spread;
    bool overlaps = false;
    int error = h->error;
    for (size_t i = 0; error == 0 && !overlaps && i < s->named_count; i++)
        if (h->merges[i])
            error = merge_find(h->merges[i], limits, &overlaps);
    if (!overlaps)
        return error;
    pace_overlaps(s->launch.pieces->pace);
    log_info("a launch is not spread any more: two of its work-groups write the same bytes");
    return -EEXIST;
}

/* False when home failed: then the launch has. */
static bool apply(struct helper *h)
{
    struct spread *s = h->spread;
    int error = 0;
    for (size_t i = 0; error == 0 && i < s->named_count; i++) {
        const struct named *named = &s->named[i];
        if (!h->merges[i])
            continue;
        error = merge_apply(h->merges[i]);
        compare_forget(named->root);
        gate_enter();
        replica_written(named->root, s->home, named->range);
        gate_leave();
    }
    return error == 0;
}

static void bring_home(struct helper *h)
{
    struct spread *s = h->spread;
    const struct transfer_limits limits = {.deadline_ns = s->request->limits.deadline_ns};
    int error = find(h, &limits);
    struct groups *groups = h->groups;
    h->groups = NULL;
    if (error == 0 && apply(h)) {
        share_arrived(&s->launch, groups);
        atomic_fetch_add(&item_count, h->items);
        return;
    }
    bool failed = error == 0; /* what home has is neither this nor that */
    log_info("what %s did of a launch is %s (%s)", device_name(h->residence->device),
             failed ? "lost, and so is the launch" : "done again",
             error == 0 ? "it could not be brought home" : strerror(-error));
    if (failed)
        share_fail(&s->launch, CL_OUT_OF_RESOURCES);
    share_give_back(&s->launch, groups);
}

static bool some_helped(const struct spread *s)
{
    bool some = false;
    for (unsigned i = 0; i < s->helper_count; i++)
        some = some || s->helpers[i].groups;
    return some;
}

static void gather(struct spread *s)
{
    uint64_t begun = span_begin();
    /* Nor what is given back before all that was done is here. */
    share_rest(&s->launch, true);
    await_idle(s);
    for (unsigned i = 0; i < s->helper_count; i++)
        if (s->helpers[i].groups)
            bring_home(&s->helpers[i]);
    span_end(begun, "spread", "merge", NULL, 0);
}

/* 0, or why nobody does. */
static int begin_helpers(struct spread *s)
{
    const struct spread_request *request = s->request;
    int result = -ENOENT;
    for (uint8_t place = 0; place < PLACES; place++) {
        struct residence *residence = s->context->at[place];
        if (place == s->home || !residence || !request->offers(request->data, s->context, place))
            continue;
        struct helper *h = &s->helpers[s->helper_count];
        *h = (struct helper){.spread = s,
                             .place = place,
                             .residence = residence,
                             .deadline_ns = request->limits.deadline_ns};
        residence_ref(residence);
        int error = helper_begin(h);
        if (error == 0) {
            s->helper_count++;
            continue;
        }
        log_info("%s does no part of a launch: %s", device_name(residence->device),
                 error == -ENOENT ? "it is not worth it" : strerror(-error));
        helper_end(h);
        result = error;
    }
    return s->helper_count != 0 ? 0 : result;
}

int spread_run(const struct spread_request *request, struct spread **ret_spread)
{
    struct spread *s = calloc(1, sizeof(*s));
    *ret_spread = NULL;
    if (!s)
        return -ENOMEM;
    s->request = request;
    pthread_mutex_init(&s->lock, NULL);
    int error = join(s);
    if (error == 0)
        error = list_named(s);
    if (error == 0)
        error = quiesce(s);
    if (error == 0)
        error = begin_helpers(s);
    if (s->launch.pieces && (error == 0 || (error == -ENOENT && !request->again)))
        pace_spread(s->launch.pieces->pace, error == 0);
    if (error != 0) {
        log_debug("no launch is done in several places: %s", strerror(-error));
        spread_end(s);
        return error;
    }
    run_all(s);
    if (some_helped(s))
        gather(s);
    else
        pace_spread(s->launch.pieces->pace, false);
    atomic_fetch_add(&launch_count, 1);
    pthread_mutex_lock(&s->lock); /* Who was abandoned may look whether it was. */
    s->request = NULL;
    pthread_mutex_unlock(&s->lock);
    *ret_spread = s;
    return 0;
}

void spread_end(struct spread *s)
{
    if (!s)
        return;
    if (s->launch.event)
        share_leave(&s->launch);
    for (unsigned i = 0; i < s->helper_count; i++) {
        join_helper(&s->helpers[i]);
        helper_end(&s->helpers[i]);
    }
    unwatch(s);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
