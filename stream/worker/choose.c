#include "stream/worker/choose.h"

#include <math.h>
#include <string.h>

#include "state/base/clock.h"

#define PAYLOAD_LEAST (4u << 10) /* bytes */
#define PAYLOAD_MOST  (2u << 20)
/* Of the client's rings, the share that a payload may have: others are packed and unpacked
 * meanwhile. */
#define RING_SHARE   4
#define MEMORY_SHARE 8 /* the same of the device's memory for rings */
#define SEEN_ENOUGH  3
/* A stage that waits for another gets parts of payloads. It need not be known better: it is not the
 * slowest. */
#define TRIED_ENOUGH  16
#define CHEAPER       0.97
#define SLOWER_ENOUGH 2
#define MEAN_WEIGHT   0.25 /* of a new figure */
#define OFF           0.25
#define WINDOW        32 /* payloads whose mean is compared with what was predicted */
#define SLACK         0.02
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
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++) {
        choose->stages[i] = (struct choose_figures){.size = choose->least[i]};
        choose->payloads[i] = 1u << choose->least[i];
    }
}

void choose_init(struct choose *choose, const struct choose_world *world)
{
    const uint32_t records[CHOOSE_STAGES] = {
        world->input, world->input, world->input + world->output, world->output, world->output};
    uint64_t most = world->device_memory / MEMORY_SHARE;
    most = most < PAYLOAD_MOST ? most : PAYLOAD_MOST;
    *choose = (struct choose){.patience_ns = PATIENCE_NS};
    /* A device that is the host's cores takes all of them: stages share one such processor. */
    choose->flow = (struct cost_flow){
        .count = CHOOSE_STAGES,
        .memory = {[COST_HOST] = UINT64_MAX, [COST_DEVICE] = world->device_memory},
        .cores = world->cpu ? 1 : world->cores};
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        bool device = i >= CHOOSE_WRITE && i <= CHOOSE_READ;
        choose->flow.stages[i] =
            (struct cost_flow_stage){.kind = device && !world->cpu ? COST_LINK : COST_WORK,
                                     .record = records[i],
                                     .depth = CHOOSE_DEPTH,
                                     .memory = device ? COST_DEVICE : COST_HOST};
        choose->most[i] = choose_size_within(records[i], most, world->capacity / RING_SHARE);
        choose->least[i] =
            choose_size_within(records[i], PAYLOAD_LEAST, world->capacity / RING_SHARE);
        choose->payloads[i] = 1u << choose->least[i];
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
    const struct choose_size *now = &figures->sizes[figures->size];
    if (now->seen < SEEN_ENOUGH && figures->tried < TRIED_ENOUGH)
        return false;
    bool starved = now->seen < SEEN_ENOUGH;
    bool cheaper = figures->size == choose->least[stage];
    if (!starved && !cheaper) {
        double before = INFINITY;
        for (unsigned i = choose->least[stage]; i < figures->size; i++)
            if (figures->sizes[i].seen)
                before = fmin(before, choose_record_seconds(figures, i));
        cheaper = choose_record_seconds(figures, figures->size) < CHEAPER * before;
    }
    figures->slower = cheaper ? 0 : figures->slower + 1;
    figures->tried = 0;
    if (starved || figures->slower == SLOWER_ENOUGH || figures->size == choose->most[stage]) {
        figures->known = true;
        figures->size = choose_cheapest(figures);
    } else {
        figures->size++;
    }
    choose->payloads[stage] = 1u << figures->size;
    return true;
}

/* What the client's stages need, as it measures. */
static void choose_fill_client(const struct choose *choose, enum choose_stage stage, uint32_t ns,
                               struct cost_flow_stage *ret)
{
    struct cost_stage figures = {.kind = COST_WORK, .setup = HAND_SECONDS, .bandwidth = INFINITY};
    if (ns)
        figures.bandwidth = ret->record / (ns * 1e-9);
    cost_payloads_fill(&figures, (uint64_t)ret->record << choose->most[stage], ret);
}

static bool choose_fill_device(const struct choose_figures *figures, struct cost_flow_stage *ret)
{
    ret->count = 0;
    for (unsigned i = 0; i < CHOOSE_SIZES; i++)
        if (figures->sizes[i].seen)
            ret->payloads[ret->count++] =
                (struct cost_payload){UINT64_C(1) << i, figures->sizes[i].seconds};
    return ret->count > 0;
}

/* All is known: choose. */
static void choose_choose(struct choose *choose, uint64_t now_ns, const uint32_t client_ns[2])
{
    struct cost_flow flow = choose->flow;
    struct cost_flow_choice choice;
    choose->chosen = true;
    choose->again_ns = now_ns + choose->patience_ns;
    choose_fill_client(choose, CHOOSE_PACK, client_ns[0], &flow.stages[CHOOSE_PACK]);
    choose_fill_client(choose, CHOOSE_UNPACK, client_ns[1], &flow.stages[CHOOSE_UNPACK]);
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        if (!choose_fill_device(&choose->stages[i], &flow.stages[i]))
            return;
    if (cost_payloads(&flow, SLACK, &choice))
        return; /* too little memory for any: the worker cuts payloads to what its rings hold */
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        const struct cost_payload *payload = &flow.stages[i].payloads[choice.payloads[i]];
        choose->payloads[i] = (uint32_t)payload->records;
        choose->stages[i].size = choose_size_of(payload->records);
        choose->stages[i].predicted = payload->seconds;
        choose->stages[i].tried = 0;
    }
}

/* A payload of the size that was chosen. Is the stage so far from what was predicted that its world
 * must be another one? */
static bool choose_is_off(struct choose *choose, enum choose_stage stage, double seconds,
                          uint64_t now_ns)
{
    struct choose_figures *figures = &choose->stages[stage];
    figures->sum += seconds;
    if (++figures->tried < WINDOW)
        return false;
    double mean = figures->sum / WINDOW;
    bool off = figures->predicted > 0 && fabs(mean / figures->predicted - 1) > OFF;
    figures->tried = 0;
    figures->sum = 0;
    if (!off && !figures->settled) {
        figures->predicted = mean;
        figures->settled = true;
    }
    return off && now_ns >= choose->again_ns;
}

bool choose_seen(struct choose *choose, enum choose_stage stage, uint64_t records, double seconds,
                 uint64_t now_ns, const uint32_t pack_unpack_ns[2])
{
    struct choose_figures *figures = &choose->stages[stage];
    unsigned size = choose_size_of(records);
    struct choose_size *seen = &figures->sizes[size];
    seconds *= (double)(1u << size) / (double)records;
    seen->seconds += (seen->seen ? MEAN_WEIGHT : 1) * (seconds - seen->seconds);
    seen->seen++;
    if (choose->chosen) {
        if (size != figures->size || !choose_is_off(choose, stage, seconds, now_ns))
            return false;
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
