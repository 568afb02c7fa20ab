#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "simulate/published.h"

/*
 * The paper prints no graph. A step is made by this rule, for all networks alike: nine launches a
 * layer. Forward, one after another: a MatMul or Conv2D, and two small ones. Backward, from the
 * last layer on: a small one, then the gradients of filter, input and bias, of which the input's
 * leads to the layer before; then an update of filter and bias each. Table 2's share of launches is
 * offloaded: first the layers' MatMul and Conv2D, then filter updates, then the last of forward.
 * Times on the GPU are in proportion to Table 1, so that what is offloaded has Table 2's share.
 */

enum published_part {
    PART_FORWARD,
    PART_BIAS,
    PART_ACTIVATION,
    PART_BACK,
    PART_FILTER,
    PART_INPUT,
    PART_BIAS_GRADIENT,
    PART_UPDATE_FILTER,
    PART_UPDATE_BIAS,
    PARTS
};
#define FORWARDS       3
#define EDGES_EACH     2 /* At most, of a launch; or one for each GPU. */
#define FPGAS_MEASURED 3 /* Table 1's large operations ran on so many. */

static bool published_large(enum published_operation operation)
{
    return operation != PUBLISHED_MUL && operation != PUBLISHED_TRANSPOSE;
}

double published_clock_power(const struct published_options *options, double clock)
{
    return pow(clock / PUBLISHED_CLOCK_MHZ, options->value[PUBLISHED_CLOCK_POWER]);
}

double published_clock_time(const struct published_options *options, double clock)
{
    return pow(PUBLISHED_CLOCK_MHZ / clock, options->value[PUBLISHED_CLOCK_TIME]);
}

static enum published_operation published_operation_of(const struct published_network *network,
                                                       unsigned layer, enum published_part part)
{
    switch (part) {
    case PART_FORWARD:
        return network->forward[layer % 2];
    case PART_ACTIVATION:
        return network->small;
    case PART_FILTER:
        return PUBLISHED_FILTER_GRADIENT;
    case PART_INPUT:
        return PUBLISHED_INPUT_GRADIENT;
    case PART_BIAS_GRADIENT:
        return PUBLISHED_BIAS_GRADIENT;
    default:
        return PUBLISHED_MUL;
    }
}

/* Sizes change every second layer, since MatMul and Conv2D change every layer. */
static enum published_size published_size_of(const struct published_options *options,
                                             unsigned layer)
{
    unsigned used = (unsigned)options->value[PUBLISHED_SIZES_USED];
    enum published_size sizes[PUBLISHED_SIZES] = {PUBLISHED_SMALL};
    unsigned count = 0;

    for (unsigned i = 0; i < PUBLISHED_SIZES; i++)
        if (used & 1u << i)
            sizes[count++] = (enum published_size)i;
    return sizes[layer / 2 % count];
}

/* Whether the launch is one of Table 2's: @wanted of them, first those that come first above. */
static bool published_is_offloaded(unsigned layers, unsigned wanted, unsigned layer,
                                   enum published_part part)
{
    static const enum published_part order[] = {PART_FORWARD, PART_UPDATE_FILTER, PART_ACTIVATION};

    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        unsigned here = wanted < layers ? wanted : layers;
        /* Evenly over the layers. */
        if (order[i] == part)
            return layer * here / layers != (layer + 1) * here / layers;
        wanted -= here;
    }
    return false;
}

/* In the order in which a program would give them. */
static uint32_t published_index(unsigned layers, unsigned layer, enum published_part part)
{
    if (part < FORWARDS)
        return layer * FORWARDS + part;
    return layers * FORWARDS + (layers - 1 - layer) * (PARTS - FORWARDS) + part - FORWARDS;
}

static void published_need(struct published_step *step, uint32_t *edges, unsigned layer,
                           enum published_part part, unsigned copy)
{
    unsigned layers = step->network->layers;

    step->edges[(*edges)++] =
        (struct schedule_edge){published_index(layers, layer, part) * step->gpus + copy,
                               (uint64_t)(step->options->value[PUBLISHED_MOVE_KB] * 1024)};
}

static void published_needs(struct published_step *step, uint32_t *edges, unsigned layer,
                            enum published_part part, unsigned copy)
{
    unsigned layers = step->network->layers;

    switch (part) {
    case PART_FORWARD:
        if (layer)
            published_need(step, edges, layer - 1, PART_ACTIVATION, copy);
        break;
    case PART_BIAS:
    case PART_ACTIVATION:
        published_need(step, edges, layer, part - 1, copy);
        break;
    case PART_BACK:
        published_need(step, edges, layer, PART_ACTIVATION, copy);
        if (layer + 1 < layers)
            published_need(step, edges, layer + 1, PART_INPUT, copy);
        break;
    case PART_UPDATE_FILTER:
    case PART_UPDATE_BIAS:
        /* Of a batch in several parts the gradients of all. */
        for (unsigned other = 0; other < step->gpus; other++)
            published_need(step, edges, layer,
                           part == PART_UPDATE_FILTER ? PART_FILTER : PART_BIAS_GRADIENT, other);
        break;
    default:
        published_need(step, edges, layer, PART_BACK, copy);
    }
}

/* The part and layer of the launch at @index of its copy. */
static void published_launch_of(const struct published_step *step, uint32_t index,
                                unsigned *ret_layer, enum published_part *ret_part)
{
    unsigned layers = step->network->layers;

    if (index < layers * FORWARDS) {
        *ret_layer = index / FORWARDS;
        *ret_part = (enum published_part)(index % FORWARDS);
        return;
    }
    index -= layers * FORWARDS;
    *ret_layer = layers - 1 - index / (PARTS - FORWARDS);
    *ret_part = (enum published_part)(FORWARDS + index % (PARTS - FORWARDS));
}

static void published_make_launches(struct published_step *step)
{
    const struct published_network *network = step->network;
    unsigned layers = network->layers, count = layers * PARTS;
    unsigned wanted = (unsigned)lround(network->launches / 100 * count);
    double sums[2] = {0, 0};
    uint32_t edges = 0;

    for (uint32_t i = 0; i < step->graph.launches; i++) {
        struct published_launch *launch = &step->launches[i];
        enum published_part part;
        unsigned layer;
        published_launch_of(step, i / step->gpus, &layer, &part);
        *launch = (struct published_launch){
            .operation = published_operation_of(network, layer, part),
            .size = published_size_of(step->options, layer),
            .copy = i % step->gpus,
            .offloaded = published_is_offloaded(layers, wanted, layer, part)};
        sums[launch->offloaded] += published_costs[launch->operation][launch->size].gpu_us;
        step->first[i] = edges;
        published_needs(step, &edges, layer, part, launch->copy);
    }
    step->first[step->graph.launches] = edges;
    for (uint32_t i = 0; i < step->graph.launches; i++) {
        struct published_launch *launch = &step->launches[i];
        double part = published_costs[launch->operation][launch->size].gpu_us /
                      sums[launch->offloaded] * step->gpus;
        part *= launch->offloaded ? network->time / 100 : 1 - network->time / 100;
        launch->gpu_ns = (uint64_t)(part * (double)step->alone_ns) + 1;
    }
}

static struct schedule_cost published_cost_of(double ns, double mean_w, double peak_w)
{
    uint64_t whole = (uint64_t)ns + 1;

    return (struct schedule_cost){whole, schedule_energy((uint64_t)(mean_w * 1000), whole) + 1,
                                  (uint64_t)(peak_w * 1000)};
}

void published_step_cost(struct published_step *step, double clock_mhz, double part)
{
    const double *assumed = step->options->value;
    uint32_t candidates = step->graph.candidates;
    double idle = assumed[PUBLISHED_GPU_IDLE];
    double power = published_clock_power(step->options, clock_mhz);
    double slower = published_clock_time(step->options, clock_mhz);
    double faster = 1 + part * step->network->faster / 100 * assumed[PUBLISHED_FASTER];

    for (uint32_t i = 0; i < step->graph.launches; i++) {
        const struct published_launch *launch = &step->launches[i];
        const struct published_cost *cost = &published_costs[launch->operation][launch->size];
        struct schedule_cost *costs = &step->costs[(size_t)i * candidates];
        bool large = published_large(launch->operation);
        double gpu_ns = (double)launch->gpu_ns * slower;
        if (large && !launch->offloaded)
            gpu_ns /= faster;
        /* Partitioned, a large operation takes as much energy on any number of cards. */
        double parts = large && step->fpgas ? (double)FPGAS_MEASURED * step->gpus / step->fpgas : 1;
        double fpga_ns = (double)launch->gpu_ns * cost->fpga_us / cost->gpu_us * parts;
        double cards = assumed[PUBLISHED_CARDS] / parts;
        for (uint32_t c = 0; c < candidates; c++) {
            if (c < step->gpus)
                costs[c] = published_cost_of(gpu_ns, (cost->gpu_mean_w - idle) * power,
                                             (cost->gpu_peak_w - idle) * power);
            else if (large || launch->offloaded)
                costs[c] = published_cost_of(fpga_ns, cost->fpga_mean_w * cards,
                                             cost->fpga_peak_w * cards);
        }
    }
}

double published_step_offloaded(const struct published_step *step,
                                const struct schedule_slot *slots)
{
    double all = 0, part = 0;

    for (uint32_t i = 0; i < step->graph.launches; i++) {
        uint32_t unit = step->graph.unit[slots[i].candidate];
        all += (double)step->launches[i].gpu_ns;
        part += unit >= step->gpus ? (double)step->launches[i].gpu_ns : 0;
    }
    return part / all;
}

/* 512 KB between host memory and a card, sec. 3.4; other sizes in proportion. */
static struct schedule_link published_link(double ms)
{
    return (struct schedule_link){.bytes_per_ms = (uint64_t)(512 * 1024 / ms)};
}

int published_step_init(struct published_step *step, const struct published_network *network,
                        const struct published_options *options, unsigned gpus, unsigned fpgas,
                        uint64_t alone_ns)
{
    size_t launches = (size_t)network->layers * PARTS * gpus;
    size_t candidates = gpus * (fpgas ? 2 : 1);

    *step = (struct published_step){.network = network,
                                    .options = options,
                                    .gpus = gpus,
                                    .fpgas = fpgas,
                                    .samples = network->batch * gpus,
                                    .alone_ns = alone_ns,
                                    .launches = calloc(launches, sizeof(*step->launches)),
                                    .costs = calloc(launches * candidates, sizeof(*step->costs)),
                                    .edges = calloc(launches * EDGES_EACH, sizeof(*step->edges)),
                                    .first = calloc(launches + 1, sizeof(*step->first))};
    if (!step->launches || !step->costs || !step->edges || !step->first)
        return -ENOMEM;
    step->graph = (struct schedule_graph){
        .launches = (uint32_t)launches,
        .candidates = (uint32_t)candidates,
        .costs = step->costs,
        .edges = step->edges,
        .first = step->first,
        .idle_mw = (uint64_t)(1000 * (options->value[PUBLISHED_HOST] +
                                      gpus * options->value[PUBLISHED_GPU_IDLE] +
                                      fpgas * options->value[PUBLISHED_FPGA_IDLE]))};
    for (uint32_t c = 0; c < candidates; c++) {
        step->graph.unit[c] = c;
        step->graph.links[c] = published_link(c < gpus ? 1.198 : 0.547);
    }
    published_make_launches(step);
    published_step_cost(step, PUBLISHED_CLOCK_MHZ, 0);
    return 0;
}

void published_step_finish(struct published_step *step)
{
    free(step->launches);
    free(step->costs);
    free(step->edges);
    free(step->first);
}
