#include "state/command/place.h"

#include <stdlib.h>
#include <string.h>

#include "policy/costs.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/object/upcalls.h"
#include "state/program/pace.h"
#include "state/program/program.h"

/* Shorter launches are not worth a decision. */
#define LEAST_NS 100000u
/* Closing the gate twice, and two threads that wake. */
#define OVERHEAD_NS 50000u
/* What trials of helpers may cost in all: a part of the time since they were opened, and more. */
#define RISK_PART     50
#define RISK_FIRST_NS (50 * NS_PER_MS)
#define AGAIN_NS      (5 * NS_PER_S)
/* A launch is given back when its helper takes so many times as long as it should, and more. */
#define LATE_TIMES 4
#define LATE_NS    (250 * NS_PER_MS)
/* For how long a helper that could not run a launch is given none. */
#define REST_NS NS_PER_S
/* A session ends when for so long, and of so many launches, none was sooner elsewhere: each choice
 * costs a little. The next one comes after the first of these times, then after twice that, and so
 * on, as long as nothing is gained. */
#define UNPAID_NS        NS_PER_S
#define UNPAID_LAUNCHES  256
#define UNPAID_REST_NS   NS_PER_S
#define UNPAID_REST_MOST (64 * NS_PER_S)
/* Kernels, by device, whose times are kept. */
#define LEARNT_MOST 4096

atomic_bool place_wanted;

struct place_helper {
    struct device *device;
    bool open, given, busy; /* busy: until it has ended; given: until the helper takes it */
    struct placed placed;
    uint64_t ns_per_kib; /* of copies to and from it */
    uint64_t free_ns;    /* while it is busy: when it is likely to have ended */
    uint64_t rests_until_ns;
};

/* Guarded by engine_lock. */
static struct {
    pthread_cond_t changed;
    enum schedule_objective objective;
    bool any_float, is_open, asked;
    struct place_helper helpers[PLACE_HELPERS];
    uint32_t count;
    uint64_t opened_ns, asks_from_ns, risked_ns, last_ns;
    uint64_t paid_ns, unpaid, unpaid_rest_ns; /* unpaid: launches decided since paid_ns */
    const char *stayed;
    struct place_count counts[PLACE_COUNTS_MAX];
    uint32_t counted;
    uint64_t helped, helped_items, by_time;
    uint64_t idle_mw;
} places = {.changed = PTHREAD_COND_INITIALIZER};

void place_configure(enum schedule_objective objective, bool any_float)
{
    places.objective = objective;
    places.any_float = any_float;
    atomic_store(&pace_whole_ns, LEAST_NS);
    atomic_store(&place_wanted, true);
}

bool place_begins_slow(void)
{
    pthread_mutex_lock(&engine_lock);
    if (!places.is_open)
        places.stayed = places.unpaid_rest_ns != 0
                            ? "launches were not sooner elsewhere, which is tried now and then"
                            : "no other device was ready for it";
    uint64_t now = clock_now_ns();
    bool open = places.is_open,
         asks = !open && !places.asked && atomic_load(&pieces_shared) && now >= places.asks_from_ns;
    places.asked = places.asked || asks;
    places.last_ns = now;
    pthread_mutex_unlock(&engine_lock);
    if (asks)
        the_upcalls->share();
    return open;
}

uint64_t place_last_ns(void)
{
    pthread_mutex_lock(&engine_lock);
    uint64_t last = places.last_ns;
    pthread_mutex_unlock(&engine_lock);
    return last;
}

/* ---- times ---- */

static struct pace_learnt *place_learnt_of(struct pace *pace, const struct device *device)
{
    struct pace_learnt *oldest = &pace->learnt[0];
    for (size_t i = 0; i < PACE_ELSEWHERE; i++) {
        struct pace_learnt *learnt = &pace->learnt[i];
        if (learnt->device == device || !learnt->device)
            return learnt;
        oldest = learnt->at_ns < oldest->at_ns ? learnt : oldest;
    }
    return oldest;
}

void place_learn(struct pace *pace, const struct device *device, uint64_t items, uint64_t ns)
{
    struct pace_learnt *learnt = place_learnt_of(pace, device);
    if (!learnt->costs && atomic_load(&pace_learnt_count) < LEARNT_MOST) {
        learnt->costs = calloc(1, sizeof(*learnt->costs));
        atomic_fetch_add(&pace_learnt_count, learnt->costs != NULL);
    }
    if (!learnt->costs)
        return;
    learnt->at_ns = clock_now_ns();
    if (learnt->device == device) {
        costs_add(learnt->costs, items, ns);
        return;
    }
    /* A driver may compile the kernel during its first launch there, which says nothing of others.
     */
    memset(learnt->costs, 0, sizeof(*learnt->costs));
    learnt->device = device;
}

void place_learn_power(const struct place_power *power)
{
    uintptr_t cursor = 0;
    struct program *program;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program)) {
        struct pace *pace = pace_with_id(program, power->id);
        if (!pace)
            continue;
        pthread_mutex_lock(&engine_lock);
        for (size_t i = 0; i < PACE_ELSEWHERE; i++) {
            const struct pace_learnt *learnt = &pace->learnt[i];
            if (learnt->costs && device_key_equal(&learnt->device->key, &power->device))
                costs_add_power(learnt->costs, power->items, power->power_mw);
        }
        pthread_mutex_unlock(&engine_lock);
    }
}

void place_set_idle(uint64_t idle_mw)
{
    pthread_mutex_lock(&engine_lock);
    places.idle_mw = idle_mw;
    pthread_mutex_unlock(&engine_lock);
}

/* What a launch of @items is likely to cost on @device: as costs_guess; ns 0: not known. */
static struct cost_guess place_guess(struct pace *pace, const struct device *device, uint64_t items)
{
    const struct pace_learnt *learnt = place_learnt_of(pace, device);
    struct cost_guess guess;
    if (learnt->device != device || !learnt->costs || !costs_guess(learnt->costs, items, &guess))
        return (struct cost_guess){0};
    return guess;
}

/* Its energy above idle; 0: not known. */
static uint64_t place_energy(const struct cost_guess *guess)
{
    uint64_t energy_uj = schedule_energy(guess->power_mw, guess->ns);
    return guess->power_samples <= 0 ? 0 : energy_uj != 0 ? energy_uj : 1;
}

bool place_is_worth_it(const struct queue *queue, struct pace *pace, uint64_t items)
{
    if (atomic_load(&queue->deferred_count) != 0)
        return true;
    const struct device *home = atomic_load(&queue->vdev->device);
    pthread_mutex_lock(&engine_lock);
    uint64_t ns = home ? place_guess(pace, home, items).ns : 0;
    pthread_mutex_unlock(&engine_lock);
    return ns == 0 || ns >= LEAST_NS;
}

/* ---- what was placed ---- */

void place_stays(const char *reason)
{
    pthread_mutex_lock(&engine_lock);
    places.stayed = reason;
    pthread_mutex_unlock(&engine_lock);
}

void place_count(const struct pieces *pieces, const struct device *device)
{
    uint32_t i = 0;
    places.by_time += pieces->by_time;
    while (i < places.counted && places.counts[i].device != device)
        i++;
    if (i == PLACE_COUNTS_MAX)
        return;
    places.counted += i == places.counted;
    places.counts[i].device = device;
    places.counts[i].launches++;
}

void place_read(struct place_status *ret_status)
{
    pthread_mutex_lock(&engine_lock);
    *ret_status = (struct place_status){.stayed = places.stayed ? places.stayed : "",
                                        .count = places.counted,
                                        .helped = places.helped,
                                        .helped_items = places.helped_items,
                                        .by_time = places.by_time};
    if (atomic_load(&place_wanted))
        ret_status->objective = 1u + places.objective;
    memcpy(ret_status->counts, places.counts, sizeof(places.counts));
    pthread_mutex_unlock(&engine_lock);
}

/* ---- order ---- */

/* What it reads and writes is not known: all before it, and all behind it, keep their place. */
static bool place_is_unknown(const struct command *command)
{
    const struct command_ops *ops = command->ops;
    bool launch = ops->type == CL_COMMAND_NDRANGE_KERNEL || ops->type == CL_COMMAND_TASK;
    return (command->use_count == 0 && !command->more) || (launch && !ops->pieces);
}

bool place_conflict(const struct command *earlier, const struct command *later)
{
    struct memory *a, *b;
    bool a_writes, b_writes;
    if (place_is_unknown(earlier) || place_is_unknown(later))
        return true;
    for (unsigned i = 0; (a = command_use(earlier, &i, &a_writes));)
        for (unsigned j = 0; (b = command_use(later, &j, &b_writes));)
            if (a->root == b->root && (a_writes || b_writes))
                return true;
    return false;
}

/* ---- choice ---- */

static uint8_t place_index_of(const struct context *context, const struct device *device)
{
    uint8_t i = 0;
    while (i < RESIDENCES_MAX && atomic_load(&context->ready[i]) != device)
        i++;
    return i < RESIDENCES_MAX ? i : RESIDENCE_NONE;
}

/* Bytes that go there, and back. Without the extents' lock, which comes before engine_lock: what
 * is told apart counts as absent. */
static uint64_t place_bytes(const struct command *command, uint8_t residence_index,
                            uint64_t *ret_back)
{
    struct memory *memory;
    bool writes;
    uint64_t there = 0;
    *ret_back = 0;
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));) {
        there += replica_is_latest_whole(memory->root, residence_index) ? 0 : memory->size;
        *ret_back += writes ? memory->size : 0;
    }
    return there;
}

/* A launch that is not measured there may be tried. */
static bool place_may_try(uint64_t now)
{
    return places.risked_ns <= (now - places.opened_ns) / RISK_PART + RISK_FIRST_NS;
}

/* It was not measured there, or long ago: another program may have come or gone. */
static bool place_wants_trial(struct pace *pace, const struct device *device, uint64_t ns,
                              uint64_t now)
{
    return ns == 0 || now - place_learnt_of(pace, device)->at_ns > AGAIN_NS;
}

static bool place_is_candidate(const struct place_helper *helper, const struct device *home,
                               uint8_t residence_index, uint64_t now)
{
    return helper->open && now >= helper->rests_until_ns && residence_index != RESIDENCE_NONE &&
           helper->device != home &&
           (places.any_float || devinfo_same_model(&home->info, &helper->device->info));
}

/* The objective, or time while the energy is not known at home, or on every other device. */
static enum schedule_objective place_objective(const struct schedule_candidate *candidates,
                                               struct pieces *pieces)
{
    bool others = false, known = false;
    for (uint32_t i = 0; i < PLACE_HELPERS; i++) {
        others = others || candidates[i].ready_ns != 0;
        known = known || (candidates[i].allowed && candidates[i].energy_uj != 0);
    }
    known = known && candidates[PLACE_HOME].energy_uj != 0;
    pieces->by_time = others && !known && places.objective != SCHEDULE_TIME;
    return pieces->by_time ? SCHEDULE_TIME : places.objective;
}

uint32_t place_decide(const struct command *command, struct pieces *pieces, uint64_t home_free_ns,
                      uint64_t leaves_at_ns)
{
    const struct queue *queue = command->queue;
    struct device *home = atomic_load(&queue->vdev->device);
    uint64_t now = clock_now_ns(), items = pieces->row;
    struct cost_guess guess = place_guess(pieces->pace, home, items);
    struct schedule_candidate candidates[SCHEDULE_CANDIDATES] = {
        [PLACE_HOME] = {.allowed = true,
                        .ready_ns = now,
                        .free_ns = home_free_ns,
                        .run_ns = guess.ns,
                        .energy_uj = place_energy(&guess)}};
    uint64_t home_ns = guess.ns;
    pieces->expected_ns = home_ns;
    pieces->explores = false;
    places.unpaid++;
    uint32_t count =
        places.is_open && leaves_at_ns != UINT64_MAX && home_ns != 0 ? places.count : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct place_helper *helper = &places.helpers[i];
        uint8_t index = place_index_of(queue->context, helper->device);
        if (!place_is_candidate(helper, home, index, now))
            continue;
        guess = place_guess(pieces->pace, helper->device, items);
        uint64_t back, there = place_bytes(command, index, &back);
        uint64_t copies = (there + 2 * back) / 1024 * helper->ns_per_kib;
        if (!helper->busy && leaves_at_ns == 0 &&
            place_wants_trial(pieces->pace, helper->device, guess.ns, now) && copies < home_ns &&
            place_may_try(now)) {
            pieces->explores = true;
            return i;
        }
        uint64_t ready_ns = helper->busy && helper->free_ns > now ? helper->free_ns : now;
        ready_ns = leaves_at_ns > ready_ns ? leaves_at_ns : ready_ns;
        candidates[i] = (struct schedule_candidate){.allowed = guess.ns != 0,
                                                    .ready_ns = ready_ns + OVERHEAD_NS + copies,
                                                    .run_ns = guess.ns + guess.ns / 16,
                                                    .energy_uj = place_energy(&guess)};
    }
    const struct schedule_launch launch = {.objective = place_objective(candidates, pieces),
                                           .home = PLACE_HOME,
                                           .now_ns = now,
                                           .idle_mw = places.idle_mw};
    uint32_t to = schedule_choose(&launch, candidates, SCHEDULE_CANDIDATES).candidate;
    return to != PLACE_HOME && (places.helpers[to].busy || leaves_at_ns != 0) ? PLACE_WAIT : to;
}

/* ---- helpers ---- */

bool place_give(uint32_t helper, struct placed placed)
{
    struct place_helper *h = &places.helpers[helper];
    if (!places.is_open || !h->open || h->busy)
        return false;
    object_hold(placed.queue);
    object_hold(placed.event);
    placed.home_ns = placed.pieces->expected_ns;
    uint64_t ns = place_guess(placed.pieces->pace, h->device, placed.pieces->row).ns;
    h->free_ns = clock_now_ns() + (ns != 0 ? ns : placed.home_ns);
    placed.patience_ns = LATE_TIMES * (ns > placed.home_ns ? ns : placed.home_ns) + LATE_NS;
    h->placed = placed;
    h->given = h->busy = true;
    pthread_cond_broadcast(&places.changed);
    return true;
}

void place_open(struct device *const *devices, uint32_t count)
{
    pthread_mutex_lock(&engine_lock);
    places.count = count < PLACE_HELPERS ? count : PLACE_HELPERS;
    for (uint32_t i = 0; i < places.count; i++) {
        struct place_helper *helper = &places.helpers[i];
        if (helper->device != devices[i])
            *helper = (struct place_helper){.device = devices[i], .ns_per_kib = 1000};
        helper->open = true;
    }
    places.last_ns = clock_now_ns();
    places.opened_ns = places.opened_ns ? places.opened_ns : places.last_ns;
    places.paid_ns = places.last_ns;
    places.unpaid = 0;
    pthread_mutex_unlock(&engine_lock);
}

void place_offer(void)
{
    pthread_mutex_lock(&engine_lock);
    places.is_open = true;
    pthread_mutex_unlock(&engine_lock);
}

bool place_pays(void)
{
    pthread_mutex_lock(&engine_lock);
    uint64_t now = clock_now_ns(), rest_ns = 2 * places.unpaid_rest_ns;
    bool pays = places.unpaid < UNPAID_LAUNCHES || now - places.paid_ns < UNPAID_NS;
    if (!pays) {
        rest_ns = rest_ns == 0 ? UNPAID_REST_NS : rest_ns;
        places.unpaid_rest_ns = rest_ns < UNPAID_REST_MOST ? rest_ns : UNPAID_REST_MOST;
        places.asks_from_ns = now + places.unpaid_rest_ns;
    }
    pthread_mutex_unlock(&engine_lock);
    return pays;
}

void place_close(uint64_t rest_ns)
{
    pthread_mutex_lock(&engine_lock);
    uint64_t from_ns = clock_now_ns() + rest_ns;
    places.is_open = places.asked = false;
    places.asks_from_ns = places.asks_from_ns > from_ns ? places.asks_from_ns : from_ns;
    for (uint32_t i = 0; i < places.count; i++)
        places.helpers[i].open = false;
    pthread_cond_broadcast(&places.changed);
    pthread_mutex_unlock(&engine_lock);
}

bool place_await(uint32_t helper, struct placed *ret_placed)
{
    struct place_helper *h = &places.helpers[helper];
    pthread_mutex_lock(&engine_lock);
    while (!h->given && h->open)
        (void)clock_wait(&places.changed, &engine_lock, 0);
    bool any = h->given;
    if (any)
        *ret_placed = h->placed;
    h->given = false;
    pthread_mutex_unlock(&engine_lock);
    return any;
}

void place_ended(uint32_t helper, struct placed *placed, bool done, uint64_t run_ns, uint64_t bytes,
                 uint64_t copy_ns)
{
    struct place_helper *h = &places.helpers[helper];
    struct pieces *pieces = placed->pieces;
    uint64_t now = clock_now_ns();
    /* The command may be gone once this has given it back, or said that it is done. */
    if (done && run_ns != 0)
        pace_sample(pieces->pace, h->device, pieces->row, pieces->row, run_ns);
    pthread_mutex_lock(&engine_lock);
    if (run_ns != 0)
        place_learn(pieces->pace, h->device, pieces->row, run_ns);
    if (bytes >= 1024)
        h->ns_per_kib = (3 * h->ns_per_kib + copy_ns / (bytes / 1024)) / 4;
    uint64_t lost = run_ns + copy_ns;
    if (pieces->explores && lost > placed->home_ns)
        places.risked_ns += lost - placed->home_ns;
    places.last_ns = now;
    h->busy = false;
    pieces->taken = 0;
    pieces->placed = false;
    if (done && !pieces->explores) {
        places.paid_ns = now;
        places.unpaid = places.unpaid_rest_ns = 0;
    }
    if (done) {
        place_count(pieces, h->device);
        places.helped++;
        places.helped_items += pieces->row;
    } else {
        pieces->done = 0; /* it is given at home */
        h->rests_until_ns = now + REST_NS;
    }
    pthread_mutex_unlock(&engine_lock);
}

static void place_in_child(void)
{
    pthread_cond_init(&places.changed, NULL);
    places.is_open = places.asked = false;
    places.count = 0;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = place_in_child};
