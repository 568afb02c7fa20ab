#include "stream/worker/choose.h"

#include <math.h>
#include <string.h>

#include "state/base/clock.h"

#define PAYLOAD_LEAST (4u << 10)   /* bytes */
#define PAYLOAD_FIRST (256u << 10) /* what is tried first */
#define PAYLOAD_MOST  (8u << 20)
#define PAYLOAD_CPU   (1u << 20) /* the most for host cores, whose caches should hold the rings */
/* Of the client's rings, the share that a payload may have. */
#define RING_SHARE   3
#define MEMORY_SHARE 8 /* the same of the device's memory for rings */
#define SEEN_ENOUGH  3
/* A stage that waits for another gets parts of payloads. It need not be known better: it is not the
 * slowest. */
#define TRIED_ENOUGH 8
#define CHEAPER      1.03 /* a record, with twice the payload: then a larger one is tried */
#define MEAN_WEIGHT  0.25 /* of a new figure */
#define OFF          0.25
#define WINDOW       32 /* payloads whose mean is compared with what was predicted */
#define CORRECTIONS  8  /* choices with better figures, before a stage's time is taken as it is */
#define SLACK        0.02
/* How much faster than the slowest stage the others should be: two that are as fast as each other
 * wait for each other. */
#define HEADROOM      1.5
#define PATIENCE_NS   NS_PER_S
#define PATIENCE_MOST (64 * NS_PER_S)
/* Until another process has woken: what handing over a payload costs the client. */
#define HAND_SECONDS 20e-6

/* The nearest: 3 records are 4. */
static unsigned choose_size_of(uint64_t records)
{
    unsigned size = 0;
    while (size + 1 < CHOOSE_SIZES && 2 * records >= UINT64_C(3) << size)
        size++;
    return size;
}

/* The largest size of at most @bytes and @records. */
static unsigned choose_size_within(uint32_t record, uint64_t bytes, uint64_t records)
{
    unsigned size = 0;
    while (size + 1 < CHOOSE_SIZES && (UINT64_C(2) << size) * record <= bytes &&
           UINT64_C(2) << size <= records)
        size++;
    return size;
}

static void choose_learn(struct choose *choose)
{
    choose->chosen = false;
    choose->corrections = 0;
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++) {
        choose->stages[i] = (struct choose_figures){.size = choose->first[i]};
        choose->payloads[i] = 1u << choose->first[i];
    }
}

void choose_init(struct choose *choose, const struct choose_world *world)
{
    const uint32_t larger = world->input > world->output ? world->input : world->output;
    const uint32_t bytes[CHOOSE_STAGES] = {world->input, world->input, larger, world->output,
                                           world->output};
    uint64_t most = world->cpu ? PAYLOAD_CPU : PAYLOAD_MOST;
    if (most > world->device_memory / MEMORY_SHARE)
        most = world->device_memory / MEMORY_SHARE;
    *choose = (struct choose){.patience_ns = PATIENCE_NS};
    /* A device that is the host's cores takes all of them: stages share one such processor. */
    choose->flow =
        (struct cost_flow){.count = CHOOSE_STAGES,
                           .memory = {[COST_HOST] = world->capacity, [COST_DEVICE] = UINT64_MAX},
                           .cores = world->cpu ? 1 : world->cores};
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        bool device = i >= CHOOSE_WRITE && i <= CHOOSE_READ;
        choose->flow.stages[i] =
            (struct cost_flow_stage){.kind = device && !world->cpu ? COST_LINK : COST_WORK,
                                     .record = 1,
                                     .depth = device ? CHOOSE_DEPTH : 1,
                                     .memory = COST_HOST};
        choose->most[i] = choose_size_within(bytes[i], most, world->capacity / RING_SHARE);
        choose->least[i] = choose_size_within(bytes[i], PAYLOAD_LEAST, 1u << choose->most[i]);
        choose->first[i] = choose_size_within(bytes[i], PAYLOAD_FIRST, 1u << choose->most[i]);
        choose->payloads[i] = 1u << choose->first[i];
    }
    choose_learn(choose);
}

uint32_t choose_most(const struct choose *choose, enum choose_stage stage)
{
    return 1u << choose->most[stage];
}

static double choose_record_seconds(const struct choose_figures *figures, unsigned size)
{
    return figures->sizes[size].seconds / (double)(1u << size);
}

/* The size with the cheapest records. */
static unsigned choose_cheapest(const struct choose_figures *figures)
{
    unsigned best = figures->size;
    for (unsigned i = 0; i < CHOOSE_SIZES; i++)
        if (figures->sizes[i].seen &&
            (!figures->sizes[best].seen ||
             choose_record_seconds(figures, i) < choose_record_seconds(figures, best)))
            best = i;
    return best;
}

/* The next size of a stage whose figures are not complete. Returns true when it has changed. */
static bool choose_grow(struct choose *choose, enum choose_stage stage)
{
    struct choose_figures *figures = &choose->stages[stage];
    unsigned size = figures->size;
    bool starved = figures->sizes[size].seen < SEEN_ENOUGH;
    if (starved && figures->tried < TRIED_ENOUGH)
        return false;
    bool cheaper = size == choose->first[stage] || CHEAPER * choose_record_seconds(figures, size) <
                                                       choose_record_seconds(figures, size - 1);
    figures->tried = 0;
    figures->known = starved || !cheaper || size == choose->most[stage];
    figures->size = figures->known ? choose_cheapest(figures) : size + 1;
    choose->payloads[stage] = 1u << figures->size;
    return true;
}

/* What the client's stages need, as it measures. */
static void choose_fill_client(const struct choose *choose, enum choose_stage stage, uint32_t ns,
                               struct cost_flow_stage *ret)
{
    struct cost_stage figures = {.kind = COST_WORK, .setup = HAND_SECONDS, .bandwidth = INFINITY};
    if (ns)
        figures.bandwidth = 1 / (ns * 1e-9);
    cost_payloads_fill(&figures, UINT64_C(1) << choose->most[stage], ret);
    ret->count -= choose->least[stage];
    memmove(ret->payloads, ret->payloads + choose->least[stage],
            ret->count * sizeof(*ret->payloads));
}

/* As measured, and for other payloads by the set-up and bandwidth that the smallest and the largest
 * that were measured have. The worker's thread needs COST_TURN for each payload besides. */
static bool choose_fill_device(const struct choose *choose, enum choose_stage stage,
                               struct cost_flow_stage *ret)
{
    const struct choose_size *sizes = choose->stages[stage].sizes;
    unsigned small = 0, large = CHOOSE_SIZES - 1;
    while (small < large && !sizes[small].seen)
        small++;
    while (large > small && !sizes[large].seen)
        large--;
    double records = (double)(1u << small), record = 0;
    if (large > small)
        record = (sizes[large].seconds - sizes[small].seconds) / ((double)(1u << large) - records);
    record = fmin(fmax(record, 0), sizes[small].seconds / records);
    ret->count = 0;
    for (unsigned i = choose->least[stage]; i <= choose->most[stage]; i++) {
        unsigned as = i < small ? small : i > large ? large : i;
        double more = ((double)(1u << i) - (double)(1u << as)) * record;
        if (sizes[as].seen)
            ret->payloads[ret->count++] =
                (struct cost_payload){UINT64_C(1) << i, COST_TURN + sizes[as].seconds + more};
    }
    return ret->count > 0;
}

/* Leave out the payloads with which a record takes longer than @seconds, unless all do. */
static void choose_keep_faster(struct cost_flow_stage *stage, double seconds)
{
    size_t kept = 0;
    for (size_t i = 0; i < stage->count; i++)
        if (stage->payloads[i].seconds <= seconds * (double)stage->payloads[i].records)
            stage->payloads[kept++] = stage->payloads[i];
    stage->count = kept ? kept : stage->count;
}

/* All is known: choose. */
static void choose_choose(struct choose *choose, uint64_t now_ns, const uint32_t client_ns[2])
{
    struct cost_flow flow = choose->flow;
    struct cost_flow_choice choice, roomy;
    choose->chosen = true;
    choose->again_ns = now_ns + choose->patience_ns;
    choose_fill_client(choose, CHOOSE_PACK, client_ns[0], &flow.stages[CHOOSE_PACK]);
    choose_fill_client(choose, CHOOSE_UNPACK, client_ns[1], &flow.stages[CHOOSE_UNPACK]);
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        if (!choose_fill_device(choose, i, &flow.stages[i]))
            return;
    if (cost_payloads(&flow, 0, &choice))
        return; /* too little memory for any: the worker cuts payloads to what its rings hold */
    struct cost_flow faster = flow;
    for (size_t i = 0; i < CHOOSE_STAGES; i++)
        choose_keep_faster(&faster.stages[i], choice.seconds / HEADROOM);
    bool enough = cost_payloads(&faster, SLACK, &roomy) == 0 &&
                  roomy.seconds <= choice.seconds * (1 + SLACK) * (1 + SLACK);
    if (enough) {
        flow = faster;
        choice = roomy;
    }
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        struct choose_figures *figures = &choose->stages[i];
        const struct cost_payload *payload = &flow.stages[i].payloads[choice.payloads[i]];
        choose->payloads[i] = (uint32_t)payload->records;
        figures->size = choose_size_of(payload->records);
        figures->predicted = payload->seconds - COST_TURN;
        figures->tried = 0;
        figures->sum = 0;
        figures->settled = false;
    }
    /* The device is given whole payloads only if the client hands them over whole; and a client
     * that waits for room is woken once for each payload that is given back. */
    if (choose->payloads[CHOOSE_PACK] < choose->payloads[CHOOSE_WRITE])
        choose->payloads[CHOOSE_PACK] = choose->payloads[CHOOSE_WRITE];
    if (choose->payloads[CHOOSE_UNPACK] < choose->payloads[CHOOSE_READ])
        choose->payloads[CHOOSE_UNPACK] = choose->payloads[CHOOSE_READ];
}

/* Is the stage, or was it, the slowest of all? Others vary as they like. */
static bool choose_is_slowest(const struct choose *choose, enum choose_stage stage, double mean,
                              const uint32_t client_ns[2])
{
    double own = fmax(mean, choose->stages[stage].predicted) / choose->payloads[stage];
    double slowest = fmax(client_ns[0], client_ns[1]) * 1e-9;
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        slowest = fmax(slowest, choose->stages[i].predicted / choose->payloads[i]);
    return own >= slowest;
}

/* A payload of the chosen size was measured: true when the stage's time is far from the predicted
 * one. Then conditions have changed or, before the choice has settled, the prediction from other
 * sizes was wrong. */
static bool choose_is_off(struct choose *choose, enum choose_stage stage, double seconds,
                          uint64_t now_ns, const uint32_t client_ns[2])
{
    struct choose_figures *figures = &choose->stages[stage];
    figures->sum += seconds;
    if (++figures->tried < WINDOW)
        return false;
    double mean = figures->sum / WINDOW;
    bool off = fabs(mean / figures->predicted - 1) > OFF;
    figures->tried = 0;
    figures->sum = 0;
    if (figures->settled)
        return off && now_ns >= choose->again_ns &&
               choose_is_slowest(choose, stage, mean, client_ns);
    figures->sizes[figures->size].seconds = figures->predicted = mean;
    figures->settled = !off || choose->corrections == CORRECTIONS;
    return !figures->settled;
}

void choose_adopt(struct choose *choose, const uint32_t payloads[CHOOSE_STAGES])
{
    choose->chosen = true;
    choose->corrections = CORRECTIONS; /* What a stage takes with them is taken as it is. */
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        struct choose_figures *figures = &choose->stages[i];
        figures->size = choose_size_of(payloads[i]);
        if (figures->size < choose->least[i])
            figures->size = choose->least[i];
        if (figures->size > choose->most[i])
            figures->size = choose->most[i];
        choose->payloads[i] = 1u << figures->size;
        figures->tried = 0;
        figures->sum = 0;
        figures->settled = false;
    }
}

bool choose_seen(struct choose *choose, enum choose_stage stage, uint64_t records, double seconds,
                 uint64_t now_ns, const uint32_t pack_unpack_ns[2])
{
    struct choose_figures *figures = &choose->stages[stage];
    unsigned size = choose_size_of(records);
    struct choose_size *seen = &figures->sizes[size];
    seconds *= (double)(1u << size) / (double)records;
    /* While it is learnt the least counts: first launches, and other programs, take longer. */
    if (!choose->chosen && seen->seen)
        seen->seconds = fmin(seen->seconds, seconds);
    else
        seen->seconds += (seen->seen ? MEAN_WEIGHT : 1) * (seconds - seen->seconds);
    seen->seen++;
    if (choose->chosen) {
        if (size != figures->size || !choose_is_off(choose, stage, seconds, now_ns, pack_unpack_ns))
            return false;
        if (!figures->settled) {
            choose->corrections++;
            choose_choose(choose, now_ns, pack_unpack_ns);
            return true;
        }
        /* Where nothing stays as it is, learning must not take more than its share of the time. */
        choose->patience_ns *= choose->patience_ns < PATIENCE_MOST ? 2 : 1;
        choose_learn(choose);
        return true;
    }
    figures->tried++;
    bool changed = !figures->known && choose_grow(choose, stage);
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        if (!choose->stages[i].known)
            return changed;
    choose_choose(choose, now_ns, pack_unpack_ns);
    return true;
}
