#include "state/driver/cost.h"

#include <errno.h>
#include <math.h>

#include "state/base/memory/pages.h"

/* Of a chunk: from the link to who waits for it, and from one to the other until it is on its way
 * again. */
#define HANDS 3
/* Of the difference between what was expected and what was measured. */
#define LEARN 0.25

static uint64_t cost_steps_of(const struct cost_problem *problem, size_t chunk)
{
    return (problem->total + chunk - 1) / chunk;
}

double cost_stage_seconds(const struct cost_stage *stage, double bytes, unsigned threads)
{
    double workers = threads < 2 ? 1 : 1 + (threads - 1) * COST_EFFICIENCY;
    return stage->setup + bytes / (stage->bandwidth * workers);
}

void cost_stage_learn(struct cost_stage *stage, double bytes, double seconds)
{
    double expected = cost_stage_seconds(stage, bytes, 1), setup_part = stage->setup / expected;
    double times = fmin(fmax(seconds / expected, 1.0 / COST_LEARN_MOST), COST_LEARN_MOST);
    stage->setup *= pow(times, LEARN * setup_part);
    stage->bandwidth /= pow(times, LEARN * (1 - setup_part));
}

/* A chunk size and number of chunks, with what the stages are known to take there. */
struct part {
    double bytes, steps;
    unsigned chunks;
    double once;    /* seconds: the ring, and threads so far */
    double sum;     /* of the stages so far */
    double slowest; /* of them, and COST_TURN */
};

static double cost_part_seconds(const struct part *part)
{
    double around = (part->sum + COST_LATE) / (part->chunks > 1 ? part->chunks - 1 : 1);
    double period = around > part->slowest ? around : part->slowest;
    return part->once + part->sum + (part->steps - 1) * period;
}

static void cost_part_add(struct part *part, double seconds)
{
    part->sum += seconds;
    if (seconds > part->slowest)
        part->slowest = seconds;
}

/* The cost that threads do not change: links and the ring. */
static struct part cost_part_begin(const struct cost_problem *problem, size_t chunk,
                                   unsigned chunks)
{
    double steps = (double)cost_steps_of(problem, chunk);
    struct part part = {.steps = steps,
                        .bytes = (double)problem->total / steps,
                        .chunks = chunks,
                        .slowest = COST_TURN};
    for (size_t i = 0; i < problem->count; i++) {
        const struct cost_stage *stage = &problem->stages[i];
        if (stage->kind == COST_RING)
            part.once += stage->setup + (double)chunk * chunks / stage->bandwidth;
        else if (stage->kind == COST_LINK)
            cost_part_add(&part, cost_stage_seconds(stage, part.bytes, 1));
        else if (stage->kind == COST_HAND)
            part.sum += stage->setup;
    }
    return part;
}

/* The problem's COST_WORK stage, or NULL. */
static const struct cost_stage *cost_work_of(const struct cost_problem *problem)
{
    for (size_t i = 0; i < problem->count; i++)
        if (problem->stages[i].kind == COST_WORK)
            return &problem->stages[i];
    return NULL;
}

/* @threads  0: the caller works. */
static void cost_part_add_work(struct part *part, const struct cost_stage *work, unsigned threads)
{
    if (!work)
        return;
    part->once += threads * COST_THREAD_START;
    cost_part_add(part, cost_stage_seconds(work, part->bytes, threads));
}

double cost_predict(const struct cost_problem *problem, const struct cost_choice *choice)
{
    struct part part = cost_part_begin(problem, choice->chunk, choice->chunks);
    cost_part_add_work(&part, cost_work_of(problem), choice->threads);
    return cost_part_seconds(&part);
}

struct search {
    const struct cost_problem *problem;
    const struct cost_stage *work; /* or NULL */
    unsigned most;                 /* threads for it; 0: only the caller works */
    double limit;                  /* upper bound: slower choices are dropped */
    bool least; /* of the choices within `limit`, prefer few threads and a small ring */
    struct cost_choice choice, best;
};

static bool cost_is_better(const struct search *search, const struct cost_choice *choice)
{
    const struct cost_choice *best = &search->best;
    if (choice->seconds > search->limit)
        return false;
    if (best->chunk == 0)
        return true;
    if (!search->least)
        return choice->seconds < best->seconds;
    uint64_t ring = (uint64_t)choice->chunk * choice->chunks;
    uint64_t best_ring = (uint64_t)best->chunk * best->chunks;
    if (choice->threads != best->threads)
        return choice->threads < best->threads;
    return ring != best_ring ? ring < best_ring : choice->seconds < best->seconds;
}

/* Consider the present chunks with @threads; @part is what they take without the work. */
static void cost_consider(struct search *search, struct part part, unsigned threads)
{
    cost_part_add_work(&part, search->work, threads);
    search->choice.threads = threads;
    search->choice.seconds = cost_part_seconds(&part);
    if (!cost_is_better(search, &search->choice))
        return;
    search->best = search->choice;
    if (!search->least)
        search->limit = search->best.seconds;
}

/* False where even the work of all threads for the start of one would be too slow. */
static bool cost_may_be_better(const struct search *search, struct part part)
{
    part.once += COST_THREAD_START;
    cost_part_add(&part, cost_stage_seconds(search->work, part.bytes, search->most));
    return cost_part_seconds(&part) <= search->limit;
}

static void cost_search_all(struct search *search)
{
    const struct cost_problem *problem = search->problem;
    for (size_t chunk = COST_CHUNK_MIN; chunk <= COST_CHUNK_MAX; chunk *= 2) {
        uint64_t steps = cost_steps_of(problem, chunk);
        for (unsigned chunks = 1; chunks <= COST_CHUNKS_MAX && chunks <= steps; chunks++) {
            if ((uint64_t)chunk * chunks > problem->ring)
                break;
            const struct part part = cost_part_begin(problem, chunk, chunks);
            search->choice = (struct cost_choice){.chunk = chunk, .chunks = chunks};
            cost_consider(search, part, 0);
            if (search->most != 0 && cost_may_be_better(search, part))
                for (unsigned threads = 1; threads <= search->most; threads++)
                    cost_consider(search, part, threads);
        }
        if (steps == 1)
            break;
    }
}

static unsigned cost_most_threads(const struct cost_problem *problem, const struct cost_stage *work)
{
    unsigned most = work && problem->cores > 1 ? problem->cores : 0;
    if (work && work->most && work->most < most)
        most = work->most;
    return most < COST_THREADS_MAX ? most : COST_THREADS_MAX;
}

void cost_choose(const struct cost_problem *problem, double slack, struct cost_choice *ret)
{
    struct search search = {.problem = problem, .work = cost_work_of(problem), .limit = INFINITY};
    search.most = cost_most_threads(problem, search.work);
    cost_search_all(&search);
    if (slack > 0) {
        search.limit = search.best.seconds * (1 + slack);
        search.least = true;
        cost_search_all(&search);
    }
    *ret = search.best;
}

static void cost_add_stage(struct cost_problem *problem, const struct cost_stage *stage)
{
    problem->stages[problem->count++] = *stage;
}

/* The cost of copying to host memory by one thread, which first makes the pages of a part, then
 * copies it. The kernel lets PAGES_THREADS make pages at a time, and as many copying threads keep
 * up (an H200's host: 0.37 to 0.50 of the link's speed with 11 and 12 threads, 0.30 to 0.37 with 6
 * to 9). */
static struct cost_stage cost_out_stage(const struct cost_way *way)
{
    struct cost_stage stage = way->host->out;
    if (way->fresh) {
        stage.bandwidth = 1 / (1 / way->host->fresh.bandwidth + 1 / stage.bandwidth);
        stage.most = 2 * PAGES_THREADS;
    }
    return stage;
}

/* Set up the stages of a transfer through a ring. */
static void cost_stages(const struct cost_way *way, struct cost_problem *ret_problem)
{
    struct cost_problem problem = {.total = way->total, .cores = way->cores, .ring = COST_RING_MAX};
    const struct cost_stage out = cost_out_stage(way);
    cost_add_stage(&problem, way->from ? &way->from->read : &way->host->copy);
    cost_add_stage(&problem, way->to ? &way->to->write : &out);
    struct cost_stage hands = way->host->hand;
    hands.setup *= HANDS;
    cost_add_stage(&problem, &hands);
    cost_add_stage(&problem, &way->host->ring);
    *ret_problem = problem;
}

static bool cost_needs_ring(const struct cost_way *way)
{
    return way->ring || (way->from && way->to);
}

bool cost_is_simple(const struct cost_way *way, struct cost_choice *ret)
{
    bool measured = way->link || (way->from && way->to);
    if (measured && way->total >= COST_MEASURE_FROM)
        return false;
    *ret = (struct cost_choice){0};
    if (cost_needs_ring(way)) {
        size_t half = way->total / 2 + 1;
        ret->chunk = COST_CHUNK_MIN;
        while (ret->chunk < half && ret->chunk < (1u << 20))
            ret->chunk *= 2;
        ret->chunks = 4;
    }
    return true;
}

static double cost_plain_seconds(const struct cost_way *way)
{
    const struct cost_stage *plain = way->from ? &way->from->plain_read : &way->to->plain_write;
    double seconds = plain->setup + (double)way->total / plain->bandwidth;
    if (way->from && way->fresh) {
        unsigned threads = way->cores < PAGES_THREADS ? way->cores : PAGES_THREADS;
        seconds += (double)way->total / way->host->fresh.bandwidth / threads;
    }
    return seconds;
}

void cost_route(const struct cost_way *way, struct cost_choice *ret)
{
    struct cost_problem problem;
    cost_stages(way, &problem);
    if (cost_is_simple(way, ret)) {
        ret->seconds = ret->chunk ? cost_predict(&problem, ret) : cost_plain_seconds(way);
        return;
    }
    cost_choose(&problem, COST_SLACK, ret);
    if (!cost_needs_ring(way) && cost_plain_seconds(way) <= ret->seconds)
        *ret = (struct cost_choice){.seconds = cost_plain_seconds(way)};
}

void cost_payloads_fill(const struct cost_stage *stage, uint64_t most,
                        struct cost_flow_stage *ret_stage)
{
    ret_stage->kind = stage->kind;
    ret_stage->count = 0;
    for (uint64_t records = 1; ret_stage->count < COST_PAYLOADS_MAX; records *= 2) {
        uint64_t bytes = records * ret_stage->record;
        if (records > 1 && bytes > most)
            break;
        ret_stage->payloads[ret_stage->count++] =
            (struct cost_payload){records, cost_stage_seconds(stage, (double)bytes, 1)};
    }
}

/* Some stages of a stream with payloads chosen. */
struct flow {
    double slowest, work; /* seconds for a record: of the slowest stage, of all COST_WORK */
    uint64_t memory[2];
};

struct flow_search {
    const struct cost_flow *flow;
    double limit; /* seconds for a record: slower choices are dropped */
    bool least;   /* of the choices within `limit`, prefer little memory */
    bool found;
    struct cost_flow_choice choice, best;
};

static double cost_flow_seconds(const struct cost_flow *flow, const struct flow *part)
{
    double shared = flow->cores ? part->work / flow->cores : 0;
    return shared > part->slowest ? shared : part->slowest;
}

static double cost_record_seconds(const struct cost_flow_stage *stage, size_t payload)
{
    return stage->payloads[payload].seconds / (double)stage->payloads[payload].records;
}

static uint64_t cost_payload_memory(const struct cost_flow_stage *stage, size_t payload)
{
    return stage->payloads[payload].records * stage->record * stage->depth;
}

static void cost_flow_add(struct flow *part, const struct cost_flow_stage *stage, double seconds,
                          uint64_t memory)
{
    if (seconds > part->slowest)
        part->slowest = seconds;
    if (stage->kind == COST_WORK)
        part->work += seconds;
    part->memory[stage->memory] += memory;
}

static bool cost_flow_is_better(const struct flow_search *search, const struct flow *part)
{
    const struct cost_flow *flow = search->flow;
    double seconds = cost_flow_seconds(flow, part);
    if (part->memory[COST_HOST] > flow->memory[COST_HOST] ||
        part->memory[COST_DEVICE] > flow->memory[COST_DEVICE] || seconds > search->limit)
        return false;
    if (!search->found)
        return true;
    if (!search->least)
        return seconds < search->limit;
    return part->memory[COST_HOST] + part->memory[COST_DEVICE] <
           search->best.memory[COST_HOST] + search->best.memory[COST_DEVICE];
}

/* Could a choice that goes on from @part be better? Asked as if each stage from @stage on had the
 * fastest payload's time and the smallest one's memory, of those that are fast enough. */
static bool cost_flow_may_be_better(const struct flow_search *search, const struct flow *part,
                                    size_t stage)
{
    struct flow bound = *part;
    for (; stage < search->flow->count; stage++) {
        const struct cost_flow_stage *rest = &search->flow->stages[stage];
        double seconds = INFINITY;
        uint64_t memory = UINT64_MAX;
        for (size_t i = 0; i < rest->count; i++) {
            double its_seconds = cost_record_seconds(rest, i);
            uint64_t its_memory = cost_payload_memory(rest, i);
            if (its_seconds > search->limit)
                continue;
            seconds = its_seconds < seconds ? its_seconds : seconds;
            memory = its_memory < memory ? its_memory : memory;
        }
        if (memory == UINT64_MAX)
            return false;
        cost_flow_add(&bound, rest, seconds, memory);
    }
    return cost_flow_is_better(search, &bound);
}

/* Payloads for the stages from @stage on: large ones first when the time counts, small ones first
 * when memory does, as these are likely to be the best. */
static void cost_search_payloads(struct flow_search *search, const struct flow *part, size_t stage)
{
    if (!cost_flow_may_be_better(search, part, stage))
        return;
    if (stage == search->flow->count) {
        search->found = true;
        search->best = search->choice;
        search->best.seconds = cost_flow_seconds(search->flow, part);
        for (size_t i = 0; i < 2; i++)
            search->best.memory[i] = part->memory[i];
        if (!search->least)
            search->limit = search->best.seconds;
        return;
    }
    const struct cost_flow_stage *next = &search->flow->stages[stage];
    for (size_t i = 0; i < next->count; i++) {
        size_t payload = search->least ? i : next->count - 1 - i;
        struct flow more = *part;
        cost_flow_add(&more, next, cost_record_seconds(next, payload),
                      cost_payload_memory(next, payload));
        search->choice.payloads[stage] = payload;
        cost_search_payloads(search, &more, stage + 1);
    }
}

int cost_payloads(const struct cost_flow *flow, double slack, struct cost_flow_choice *ret)
{
    struct flow_search search = {.flow = flow, .limit = INFINITY};
    const struct flow none = {0};
    cost_search_payloads(&search, &none, 0);
    if (!search.found)
        return -ENOMEM;
    search.limit = search.best.seconds * (1 + slack);
    search.least = true;
    cost_search_payloads(&search, &none, 0);
    *ret = search.best;
    return 0;
}
