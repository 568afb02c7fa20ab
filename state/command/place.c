#include "state/command/place.h"

#include <stdlib.h>
#include <string.h>

#include "policy/costs.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/driver/cost.h"
#include "state/object/upcalls.h"
#include "state/program/pace.h"
#include "state/program/program.h"

/* Shorter launches are not worth a decision. */
#define LEAST_NS 100000u
/* Closing the gate twice, and two threads that wake. */
#define OVERHEAD_NS 50000u
/* What was measured on a helper so long ago is measured anew. */
#define AGAIN_NS (5 * NS_PER_S)
/* A launch is given back when its helper takes so many times as long as it should, and more. */
#define LATE_TIMES 4
#define LATE_NS    (250 * NS_PER_MS)
/* For how long a helper that could not run a launch is given none. */
#define REST_NS NS_PER_S
/* A session that gains nothing does not end before so many launches. */
#define UNPAID_LAUNCHES  256
#define UNPAID_REST_MOST (64 * NS_PER_S)
/* Kernels, by device, whose times are kept. */
#define LEARNT_MOST 4096

atomic_bool place_wanted;

/* What may be lost where nothing is gained. */
struct place_limits {
    /* A trial of a helper is made only while those before have cost less than this part of the time
     * since helpers were first opened, and this time. */
    uint64_t risk_part, risk_first_ns;
    /* The trial is given back when it takes LATE_TIMES as long as it should, and more. */
    uint64_t late_ns;
    /* A session ends when for so long no launch was better elsewhere: each choice costs a little.
     * The next one comes after the second time, then after twice that, and so on. */
    uint64_t unpaid_ns, rest_ns;
};
/* Trials cost less than 1 % of any program that runs for 12 s: 10 ms, 47 ms, and the last one. */
static const struct place_limits no_loss_limits = {.risk_part = 256,
                                                   .risk_first_ns = 10 * NS_PER_MS,
                                                   .late_ns = 50 * NS_PER_MS,
                                                   .unpaid_ns = NS_PER_S / 2,
                                                   .rest_ns = 4 * NS_PER_S};
/* For energy a program may take longer, and power is learnt only while launches are placed. */
static const struct place_limits energy_limits = {.risk_part = 50,
                                                  .risk_first_ns = 50 * NS_PER_MS,
                                                  .late_ns = LATE_NS,
                                                  .unpaid_ns = NS_PER_S,
                                                  .rest_ns = NS_PER_S};

struct place_helper {
    struct device *device;
    bool open, given, busy; /* busy: until it has ended; given: until the helper takes it */
    struct placed placed;
    struct cost_stage expected[PLACE_COPIES]; /* what copies take by the links' figures... */
    struct cost_stage copies[PLACE_COPIES];   /* ...and as those show that were made */
    uint64_t copied_ns;                       /* when `copies` learnt last */
    uint64_t free_ns; /* while it is busy: when it is likely to have ended */
    uint64_t rests_until_ns;
    const struct device *compared; /* with this device: */
    bool same_model; /* ...it takes as long, and its results are equal to the last bit */
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

static const struct place_limits *place_limits(void)
{
    return places.objective == SCHEDULE_ENERGY ? &energy_limits : &no_loss_limits;
}

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
    learnt->power_mw = 0;
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
            struct pace_learnt *learnt = &pace->learnt[i];
            if (learnt->device && device_key_equal(&learnt->device->key, &power->device))
                learnt->power_mw = power->power_mw;
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

/* What the launch is likely to cost on @device, which is @candidate. The model is asked until it
 * knows: that takes longer than all else of a choice. */
static const struct piece_cost *place_cost(struct pieces *pieces, uint32_t candidate,
                                           const struct device *device)
{
    struct piece_cost *cost = &pieces->costs[candidate];
    const struct pace_learnt *learnt;
    struct cost_guess guess;
    if (cost->device == device && cost->ns != 0 &&
        (cost->energy_uj != 0 || places.objective == SCHEDULE_TIME))
        return cost;
    *cost = (struct piece_cost){.device = device};
    learnt = place_learnt_of(pieces->pace, device);
    if (learnt->device != device || !learnt->costs ||
        !costs_guess(learnt->costs, pieces->row, &guess))
        return cost;
    cost->ns = guess.ns;
    if (learnt->power_mw != 0)
        cost->energy_uj = schedule_energy(learnt->power_mw, guess.ns);
    if (learnt->power_mw != 0 && cost->energy_uj == 0)
        cost->energy_uj = 1;
    return cost;
}

bool place_is_worth_it(const struct queue *queue, struct pieces *pieces)
{
    if (atomic_load(&queue->deferred_count) != 0)
        return true;
    const struct device *home = atomic_load(&queue->vdev->device);
    pthread_mutex_lock(&engine_lock);
    uint64_t ns = home ? place_cost(pieces, PLACE_HOME, home)->ns : 0;
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
    places.unpaid++;
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
                                        .by_time = places.by_time,
                                        .risked_ns = places.risked_ns};
    if (atomic_load(&place_wanted))
        ret_status->objective = 1u + places.objective;
    memcpy(ret_status->counts, places.counts, sizeof(places.counts));
    pthread_mutex_unlock(&engine_lock);
}

/* ---- choice ---- */

static uint8_t place_index_of(const struct context *context, const struct device *device)
{
    uint8_t i = 0;
    while (i < context->residences && atomic_load(&context->ready[i]) != device)
        i++;
    return i < context->residences ? i : RESIDENCE_NONE;
}

/* What copies of the inputs that are not there, and of the results, take. Without the extents'
 * lock, which comes before engine_lock: what is told apart counts as absent. */
static uint64_t place_copies_ns(const struct command *command, uint8_t residence_index,
                                const struct cost_stage *copies)
{
    struct memory *memory;
    bool writes;
    double seconds = 0;
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));) {
        double bytes = (double)memory->size;
        if (!replica_is_latest_whole(memory->root, residence_index))
            seconds += cost_stage_seconds(&copies[PLACE_INPUT], bytes, 1);
        if (writes)
            seconds += cost_stage_seconds(&copies[PLACE_FETCH], bytes, 1) +
                       cost_stage_seconds(&copies[PLACE_STORE], bytes, 1);
    }
    return (uint64_t)(seconds * (double)NS_PER_S);
}

/* A launch that is not measured there may be tried. */
static bool place_may_try(uint64_t now)
{
    const struct place_limits *limits = place_limits();
    return places.risked_ns <= (now - places.opened_ns) / limits->risk_part + limits->risk_first_ns;
}

/* It was not measured there, or long ago: another program may have come or gone. */
static bool place_wants_trial(struct pace *pace, const struct device *device, uint64_t ns,
                              uint64_t now)
{
    return ns == 0 || now - place_learnt_of(pace, device)->at_ns > AGAIN_NS;
}

/* The launch could be better there if only its copies took anything. What was learnt of copies long
 * ago may have changed. */
static bool place_may_gain(const struct command *command, const struct place_helper *helper,
                           uint8_t residence_index, const struct piece_cost *home, uint64_t now)
{
    bool old = now - helper->copied_ns > AGAIN_NS;
    uint64_t copies_ns =
        place_copies_ns(command, residence_index, old ? helper->expected : helper->copies);
    return places.objective == SCHEDULE_ENERGY && home->energy_uj != 0
               ? schedule_energy(places.idle_mw, copies_ns) < home->energy_uj
               : copies_ns < home->ns;
}

static bool place_is_candidate(struct place_helper *helper, const struct device *home,
                               uint8_t residence_index, uint64_t now)
{
    if (helper->compared != home) {
        helper->compared = home;
        helper->same_model = devinfo_same_model(&home->info, &helper->device->info);
    }
    return helper->open && (helper->same_model || places.any_float) &&
           now >= helper->rests_until_ns && residence_index != RESIDENCE_NONE &&
           helper->device != home;
}

/* The objective, or time while the energy is not known at home, or on every helper. */
static enum schedule_objective place_objective(const struct schedule_candidate *helpers,
                                               uint32_t count, uint64_t home_uj,
                                               struct pieces *pieces)
{
    bool others = false, known = false;
    for (uint32_t i = 0; i < count; i++) {
        others = others || helpers[i].ready_ns != 0;
        known = known || (helpers[i].allowed && helpers[i].energy_uj != 0 && home_uj != 0);
    }
    pieces->by_time = others && !known && places.objective != SCHEDULE_TIME;
    return pieces->by_time ? SCHEDULE_TIME : places.objective;
}

bool place_is_any_free(void)
{
    bool free = false;
    for (uint32_t i = 0; i < places.count && places.is_open; i++)
        free = free || (places.helpers[i].open && !places.helpers[i].busy);
    return free;
}

/* A launch that could be given to helpers. */
struct place_question {
    const struct command *command;
    struct pieces *pieces;
    struct device *device; /* at home, with... */
    const struct piece_cost *home;
    uint64_t now, leaves_at_ns;
};

/* What the @i-th helper would do with it. @ret_explores: it is to run there to be measured. Returns
 * true when the time it takes there is guessed, because the helper is a device like home's. */
static bool place_ask_helper(const struct place_question *asked, uint32_t i,
                             struct schedule_candidate *ret_candidate, bool *ret_explores)
{
    struct place_helper *helper = &places.helpers[i];
    uint8_t index = place_index_of(asked->command->queue->context, helper->device);
    uint64_t now = asked->now;
    *ret_candidate = (struct schedule_candidate){.allowed = false};
    if (!place_is_candidate(helper, asked->device, index, now))
        return false;
    const struct piece_cost *cost = place_cost(asked->pieces, i, helper->device);
    uint64_t ns = cost->ns;
    bool guessed = ns == 0 && helper->same_model && places.objective == SCHEDULE_TIME;
    if (guessed && place_may_try(now))
        ns = asked->home->ns;
    else if (!helper->busy && asked->leaves_at_ns == 0 &&
             place_wants_trial(asked->pieces->pace, helper->device, cost->ns, now) &&
             place_may_try(now) && place_may_gain(asked->command, helper, index, asked->home, now))
        *ret_explores = true;
    uint64_t copies = place_copies_ns(asked->command, index, helper->copies);
    uint64_t ready_ns = helper->busy && helper->free_ns > now ? helper->free_ns : now;
    ready_ns = asked->leaves_at_ns > ready_ns ? asked->leaves_at_ns : ready_ns;
    *ret_candidate = (struct schedule_candidate){.allowed = ns != 0,
                                                 .ready_ns = ready_ns + OVERHEAD_NS + copies,
                                                 .run_ns = ns + ns / 16,
                                                 .energy_uj = cost->energy_uj};
    return guessed;
}

uint32_t place_decide(const struct command *command, struct pieces *pieces, uint64_t now,
                      uint64_t home_free_ns, uint64_t leaves_at_ns)
{
    struct device *device = atomic_load(&command->queue->vdev->device);
    const struct piece_cost *home = place_cost(pieces, PLACE_HOME, device);
    const struct place_question asked = {command, pieces, device, home, now, leaves_at_ns};
    struct schedule_candidate candidates[SCHEDULE_CANDIDATES];
    uint32_t count =
        places.is_open && leaves_at_ns != UINT64_MAX && home->ns != 0 ? places.count : 0;
    bool guessed[SCHEDULE_CANDIDATES] = {false};
    pieces->explores = false;
    pieces->home_end_ns = home_free_ns + home->ns;
    for (uint32_t i = 0; i < count; i++) {
        guessed[i] = place_ask_helper(&asked, i, &candidates[i], &pieces->explores);
        if (pieces->explores)
            return i;
    }
    candidates[count] = (struct schedule_candidate){.allowed = true,
                                                    .ready_ns = now,
                                                    .free_ns = home_free_ns,
                                                    .run_ns = home->ns,
                                                    .energy_uj = home->energy_uj};
    const struct schedule_launch launch = {
        .objective = place_objective(candidates, count, home->energy_uj, pieces),
        .home = count,
        .now_ns = now,
        .idle_mw = places.idle_mw};
    uint32_t to = schedule_choose(&launch, candidates, count + 1).candidate;
    if (to == count)
        return PLACE_HOME;
    pieces->explores = guessed[to];
    return places.helpers[to].busy || leaves_at_ns != 0 ? PLACE_WAIT : to;
}

/* ---- helpers ---- */

bool place_give(uint32_t helper, struct placed placed)
{
    struct place_helper *h = &places.helpers[helper];
    if (!places.is_open || !h->open || h->busy)
        return false;
    object_hold(placed.queue);
    object_hold(placed.event);
    placed.home_ns = placed.pieces->costs[PLACE_HOME].ns;
    uint64_t ns = place_cost(placed.pieces, helper, h->device)->ns;
    placed.given_ns = clock_now_ns();
    placed.patience_ns = LATE_TIMES * (ns > placed.home_ns ? ns : placed.home_ns) +
                         (placed.pieces->explores ? place_limits()->late_ns : LATE_NS);
    h->free_ns = placed.given_ns + (ns != 0 ? ns : placed.home_ns);
    h->placed = placed;
    h->given = h->busy = true;
    pthread_cond_broadcast(&places.changed);
    return true;
}

void place_open(struct device *const *devices, const struct cost_stage (*copies)[PLACE_COPIES],
                uint32_t count)
{
    pthread_mutex_lock(&engine_lock);
    places.count = count < PLACE_HELPERS ? count : PLACE_HELPERS;
    for (uint32_t i = 0; i < places.count; i++) {
        struct place_helper *helper = &places.helpers[i];
        if (helper->device != devices[i]) {
            *helper = (struct place_helper){.device = devices[i]};
            memcpy(helper->copies, copies[i], sizeof(helper->copies));
            memcpy(helper->expected, copies[i], sizeof(helper->expected));
        }
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
    bool pays = places.unpaid < UNPAID_LAUNCHES || now - places.paid_ns < place_limits()->unpaid_ns;
    if (!pays) {
        rest_ns = rest_ns == 0 ? place_limits()->rest_ns : rest_ns;
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

/* Whether the launch ended about when it was expected to, or for energy. */
static bool place_was_gain(const struct pieces *pieces, uint64_t now)
{
    bool for_time = places.objective == SCHEDULE_TIME || pieces->by_time;
    return !for_time || now <= pieces->home_end_ns + pieces->costs[PLACE_HOME].ns;
}

void place_copied(uint32_t helper, enum place_copy copy, uint64_t bytes, uint64_t ns)
{
    struct place_helper *h = &places.helpers[helper];
    pthread_mutex_lock(&engine_lock);
    cost_stage_learn(&h->copies[copy], (double)bytes, (double)ns / (double)NS_PER_S);
    h->copied_ns = clock_now_ns();
    pthread_mutex_unlock(&engine_lock);
}

void place_ended(uint32_t helper, struct placed *placed, bool done, uint64_t run_ns)
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
    uint64_t lost_from_ns = done ? pieces->home_end_ns : placed->given_ns;
    if (pieces->explores && now > lost_from_ns)
        places.risked_ns += now - lost_from_ns;
    places.last_ns = now;
    h->busy = false;
    pieces->taken = 0;
    pieces->placed = false;
    if (done && !pieces->explores && place_was_gain(pieces, now)) {
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
