#include "state/move/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/thread.h"
#include "state/command/share.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/merge.h"
#include "state/memory/replica.h"
#include "state/move/spread_helper.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/program/pace.h"
#include "state/program/program.h"

/* Tries to join a launch while one of its pieces is just being enqueued. */
#define JOIN_TRIES   100
#define JOIN_STEP_NS 100000u
/* Shorter rests of a launch end before a helper could join. */
#define LEAST_NS (20 * NS_PER_MS)
/* Polling intervals: for the queue's own pieces, and for the helpers. */
#define IDLE_STEP_NS 50000u
#define HELP_STEP_NS 200000u
/* Least time that home, when it is done, waits for a helper. */
#define PATIENCE_NS NS_PER_MS

static _Atomic uint64_t launch_count, item_count;

void spread_read(uint64_t *ret_launches, uint64_t *ret_items)
{
    *ret_launches = atomic_load(&launch_count);
    *ret_items = atomic_load(&item_count);
}

/* ---- joining ---- */

static int spread_join(struct spread *s)
{
    int error = share_join(s->request->vdev, &s->launch);
    for (unsigned i = 0; error == -EAGAIN && i < JOIN_TRIES; i++) {
        clock_sleep(JOIN_STEP_NS);
        error = share_join(s->request->vdev, &s->launch);
    }
    if (error != 0)
        return error;
    const struct queue *queue = s->launch.queue;
    s->context = queue->context;
    s->home = atomic_load(&s->context->residence_index[queue->vdev_index]);
    double per_s = spread_home_per_s(s), left = (double)share_left(&s->launch);
    if (s->home == RESIDENCE_NONE || s->context->at[s->home]->runs_in_caller || queue->vdev->part)
        return -ENOTSUP;
    if (per_s <= 0)
        return -EAGAIN;
    return left / per_s * NS_PER_S >= LEAST_NS ? 0 : -ENOENT;
}

static struct named *spread_named_of(struct spread *s, struct memory *root)
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

/* Size of the elements that the kernel writes through argument @use. Where it is unknown or a
 * structure: the most that any device writes at once. */
static size_t spread_unit_of(const struct command *command, unsigned use)
{
    enum { MOST = 8 };
    size_t element = command->ops->element ? command->ops->element(command, use) : 0;
    return element == 0 || element > MOST ? MOST : element;
}

/* Gate closed. */
static int spread_add_use(struct spread *s, struct memory *memory, unsigned use, bool writes)
{
    struct memory *root = memory->root;
    struct range range = command_range(s->launch.command, use, memory);
    if (root->uses_svm || memory->type == CL_MEM_OBJECT_PIPE || (writes && memory->image) ||
        (writes && root->image))
        return -ENOTSUP;
    if (map_any(root) || !memory->real[s->home] || !replica_has(root, s->home, range))
        return -EBUSY;
    struct named *named = spread_named_of(s, root);
    if (!named)
        return -ENOMEM;
    named->range.begin = range.begin < named->range.begin ? range.begin : named->range.begin;
    named->range.end = range.end > named->range.end ? range.end : named->range.end;
    named->writes = named->writes || writes;
    size_t unit = writes ? spread_unit_of(s->launch.command, use) : 0;
    named->unit = unit > named->unit ? unit : named->unit;
    return 0;
}

/* Give written ranges a new version at home before helpers copy them, so that no helper's copy
 * counts as the latest. */
static void spread_watch(struct spread *s)
{
    for (size_t i = 0; i < s->named_count; i++) {
        struct named *named = &s->named[i];
        atomic_store(&named->root->collected, true);
        named->version = extents_watch(named->root);
        if (named->writes)
            replica_written(named->root, s->home, named->range);
    }
}

static void spread_unwatch(struct spread *s)
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

static int spread_list_named(struct spread *s)
{
    struct memory *memory;
    bool writes;
    int error = gate_close(s->request->limits.deadline_ns);
    if (error != 0)
        return error;
    if (pin_reason(s->request->vdev))
        error = -ENOTSUP;
    for (unsigned i = 0; error == 0 && (memory = command_use(s->launch.command, &i, &writes));)
        error = spread_add_use(s, memory, i - 1, writes);
    if (error == 0)
        spread_watch(s);
    gate_open();
    return error;
}

/* Wait until the first piece has begun: in an in-order queue, everything before the launch has
 * ended then. */
static int spread_await_first_piece(const struct spread *s, struct move *move)
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

/* Wait until all commands before the launch have ended. */
static int spread_quiesce(const struct spread *s)
{
    const struct queue *queue = s->launch.queue;
    const bool ordered = (queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    const struct move_request request = {.vdev = s->request->vdev->index};
    struct move_report report = {0};
    struct move move = {.request = &request,
                        .report = &report,
                        .vdev = s->request->vdev,
                        .apart = ordered ? queue : NULL,
                        .yields = s->request->yields,
                        .limits = s->request->limits};
    int error = ordered ? spread_await_first_piece(s, &move) : 0;
    if (error == 0)
        error = move_quiesce(&move);
    return error == -EAGAIN ? -EINTR : error;
}

/* True when home, idle since @idle_since, would do the helper's whole part again faster than the
 * helper finishes. A helper of unknown speed is assumed to need as long again as it has taken. Lock
 * held. */
static bool spread_is_behind(const struct helper *h, uint64_t idle_since)
{
    uint64_t now = clock_now_ns();
    double lasted = (double)(now - h->since) / (double)NS_PER_S;
    double waited = (double)(now - idle_since) / (double)NS_PER_S;
    double again = (double)h->claimed / spread_home_per_s(h->spread);
    double rest = h->per_s > 0 ? (double)(h->claimed - h->items) / h->per_s - lasted : lasted;
    return now - idle_since > PATIENCE_NS && (rest > again || waited > again);
}

/* Stop waiting for @h and throw its results away; only spread_end joins its thread. Lock held. */
static void spread_abandon(struct helper *h)
{
    log_info("%s does no part of a launch any more: it takes longer than the rest",
             device_name(h->residence->device));
    h->abandoned = true;
    share_give_back(&h->spread->launch, h->groups);
    h->groups = NULL;
}

/* An abandoned helper still writes to its residence: not allowed where a virtual device lives,
 * whose commands would read that, or where the caller moves one to. */
static bool spread_may_be_abandoned(const struct helper *h)
{
    return h->spread->request->abandons &&
           !context_is_inhabited(h->spread->context, h->residence_index);
}

/* Wait until all helpers have ended or are abandoned. */
static void spread_await_helpers(struct spread *s)
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
            if (at_it && idle && spread_may_be_abandoned(h) && spread_is_behind(h, idle_since))
                spread_abandon(h);
            else
                some = some || at_it;
        }
        pthread_mutex_unlock(&s->lock);
        if (some)
            clock_sleep(HELP_STEP_NS);
    }
}

static void spread_join_helper(struct helper *h)
{
    if (h->started)
        (void)pthread_join(h->thread, NULL);
    h->started = false;
}

static void spread_run_all(struct spread *s)
{
    for (unsigned i = 0; i < s->helper_count; i++) {
        struct helper *h = &s->helpers[i];
        pthread_mutex_lock(&s->lock);
        h->started = thread_start("reseat-spread", 0, helper_run, h, &h->thread) == 0;
        pthread_mutex_unlock(&s->lock);
    }
    spread_await_helpers(s);
    for (unsigned i = 0; i < s->helper_count; i++) {
        if (!s->helpers[i].abandoned)
            spread_join_helper(&s->helpers[i]);
        helper_remember(&s->helpers[i]);
    }
}

/* ---- what it did ---- */

static void spread_await_idle(const struct spread *s)
{
    while (!share_is_idle(&s->launch) && !residence_is_lost(s->context->at[s->home]))
        clock_sleep(IDLE_STEP_NS);
}

/* Find what the helper wrote. -EEXIST: it wrote bytes that the queue's own pieces wrote
 * differently. */
static int spread_find(struct helper *h, const struct transfer_limits *limits)
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

/* Store the helper's results at home. False: home failed, and so does the launch. */
static bool spread_apply(struct helper *h)
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

static void spread_bring_home(struct helper *h)
{
    struct spread *s = h->spread;
    const struct transfer_limits limits = {.deadline_ns = s->request->limits.deadline_ns};
    int error = spread_find(h, &limits);
    struct groups *groups = h->groups;
    h->groups = NULL;
    if (error == 0 && spread_apply(h)) {
        share_arrived(&s->launch, groups);
        atomic_fetch_add(&item_count, h->items);
        return;
    }
    /* Home's replica is partly updated: no matter where a recovery makes another one. */
    bool failed = error == 0 && !(the_upcalls->is_protected() &&
                                  residence_failed(s->context->at[s->home], CL_OUT_OF_RESOURCES));
    log_info("what %s did of a launch is %s (%s)", device_name(h->residence->device),
             failed ? "lost, and so is the launch" : "done again",
             error == 0 ? "it could not be brought home" : strerror(-error));
    if (failed)
        share_fail(&s->launch);
    share_give_back(&s->launch, groups);
}

static bool spread_some_helped(const struct spread *s)
{
    bool some = false;
    for (unsigned i = 0; i < s->helper_count; i++)
        some = some || s->helpers[i].groups;
    return some;
}

static void spread_gather(struct spread *s)
{
    uint64_t begun = span_begin();
    /* The queue rests until the helpers' results are merged, also for groups that are given back.
     */
    share_rest(&s->launch);
    spread_await_idle(s);
    for (unsigned i = 0; i < s->helper_count; i++)
        if (s->helpers[i].groups)
            spread_bring_home(&s->helpers[i]);
    span_end(begun, "spread", "merge", NULL, 0);
}

/* 0 when at least one helper began, else why none did. */
static int spread_begin_helpers(struct spread *s)
{
    const struct spread_request *request = s->request;
    int result = -ENOENT;
    for (uint8_t residence_index = 0;
         residence_index < s->context->residences && s->helper_count < SPREAD_HELPERS;
         residence_index++) {
        struct residence *residence = s->context->at[residence_index];
        if (residence_index == s->home || !residence ||
            !request->offers(request->data, s->context, residence_index))
            continue;
        struct helper *h = &s->helpers[s->helper_count];
        *h = (struct helper){.spread = s,
                             .residence_index = residence_index,
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
    int error = spread_join(s);
    if (error == 0)
        error = spread_list_named(s);
    if (error == 0)
        error = spread_quiesce(s);
    if (error == 0)
        error = spread_begin_helpers(s);
    if (s->launch.pieces && (error == 0 || (error == -ENOENT && !request->again)))
        pace_spread(s->launch.pieces->pace, error == 0);
    if (error != 0) {
        log_debug("no launch is done in several places: %s", strerror(-error));
        spread_end(s);
        return error;
    }
    spread_run_all(s);
    if (spread_some_helped(s))
        spread_gather(s);
    else
        pace_spread(s->launch.pieces->pace, false);
    atomic_fetch_add(&launch_count, 1);
    pthread_mutex_lock(&s->lock); /* An abandoned helper may be reading it. */
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
        spread_join_helper(&s->helpers[i]);
        helper_end(&s->helpers[i]);
    }
    spread_unwatch(s);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
