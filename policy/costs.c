#include "policy/costs.h"

#include <math.h>
#include <stddef.h>

#define DAY_NS 86400000000000u
/* A sample further from the mean than this, in binary logarithms, is not believed by itself: at
 * least a factor of 2, three standard deviations where these are more, at most a factor of 4. */
#define LIMIT_LEAST 1.0
#define LIMIT_MOST  2.0
/* What one sample may be off for reasons that a few samples do not show. */
#define DOUBT 0.25
/* As far from a size that was measured something is known, and between two of them. */
#define REACH 2.0
#define GAP   8.0
/* Per binary logarithm of the distance to what was measured. */
#define REACH_DOUBT 0.5
#define SLOPE_MOST  1.5
/* Of a record from a file or a message. */
#define RECORD_SAMPLES_MOST 1e9
#define RECORD_POWER_MOST   1000000000u /* 1 MW, in mW */
/* Power is kept as the logarithm of milliwatts above this. */
#define POWER_FLOOR 1000

static double costs_log(uint64_t value)
{
    return log2((double)(value ? value : 1));
}

static uint64_t costs_number(double value)
{
    return value < 0 ? 0 : value < 1e18 ? (uint64_t)(value + 0.5) : (uint64_t)1e18;
}

static struct cost_point *costs_point_of(struct costs *costs, double size)
{
    unsigned index = (unsigned)size;
    return &costs->points[index < COSTS_SIZES ? index : COSTS_SIZES - 1];
}

static double costs_limit(const struct cost_mean *mean)
{
    double limit = 3 * sqrt((double)(mean->spread / mean->count));
    return limit < LIMIT_LEAST ? LIMIT_LEAST : limit < LIMIT_MOST ? limit : LIMIT_MOST;
}

static void costs_fade(struct cost_mean *mean, float most)
{
    if (mean->count <= most)
        return;
    mean->spread *= most / mean->count;
    mean->count = most;
}

/* Means and squares of two sets as those of their union. */
static void costs_join(struct cost_mean *mean, const struct cost_mean *other)
{
    double count = (double)mean->count + (double)other->count;
    if (other->count <= 0)
        return;
    double part = (double)other->count / count;
    double apart = (double)other->mean - (double)mean->mean;
    mean->spread += other->spread + (float)(apart * apart * part * (double)mean->count);
    mean->mean += (float)(apart * part);
    mean->count = (float)count;
    mean->outliers = 0;
}

static void costs_join_points(struct cost_point *point, const struct cost_point *other)
{
    double count = (double)point->time.count + (double)other->time.count;
    if (other->time.count <= 0)
        return;
    point->size +=
        (float)(((double)other->size - (double)point->size) * ((double)other->time.count / count));
    costs_join(&point->time, &other->time);
    costs_join(&point->power, &other->power);
}

/* True: the mean begins anew with this sample. */
static bool costs_sample(struct cost_mean *mean, double value)
{
    struct cost_mean sample = {.count = 1, .mean = (float)value};
    double apart = value - (double)mean->mean;
    /* The first launches may be slow once: caches are cold, and a driver compiles. */
    bool anew = mean->count <= 0 || (mean->count < COSTS_FOLLOW && apart < -LIMIT_LEAST);
    if (!anew && mean->count >= COSTS_FOLLOW && fabs(apart) > costs_limit(mean)) {
        double limit = costs_limit(mean);
        int side = apart > 0 ? 1 : -1;
        mean->outliers = mean->outliers * side > 0 ? mean->outliers + side : side;
        anew = mean->outliers * side >= COSTS_FOLLOW;
        if (!anew) {
            /* Not believed, but the others are less certain for it. */
            double spread = (double)mean->spread + limit * limit;
            double most = (double)mean->count * LIMIT_MOST * LIMIT_MOST;
            mean->spread = (float)(spread < most ? spread : most);
            return false;
        }
    }
    if (anew) {
        *mean = sample;
        return true;
    }
    costs_fade(mean, COSTS_MEMORY - 1);
    costs_join(mean, &sample);
    return false;
}

void costs_add(struct costs *costs, uint64_t items, uint64_t ns)
{
    double size = costs_log(items);
    struct cost_point *point = costs_point_of(costs, size);
    if (costs_sample(&point->time, costs_log(ns < DAY_NS ? ns : DAY_NS)))
        *point = (struct cost_point){.size = (float)size, .time = point->time};
    else if (point->time.outliers == 0)
        point->size += (float)((size - (double)point->size) / (double)point->time.count);
}

void costs_add_power(struct costs *costs, uint64_t items, uint64_t power_mw)
{
    struct cost_point *point = costs_point_of(costs, costs_log(items));
    power_mw = power_mw < RECORD_POWER_MOST ? power_mw : RECORD_POWER_MOST;
    if (point->time.count > 0)
        (void)costs_sample(&point->power, costs_log(power_mw + POWER_FLOOR));
}

void costs_merge(struct costs *costs, const struct costs *other)
{
    for (unsigned i = 0; i < COSTS_SIZES; i++)
        costs_join_points(&costs->points[i], &other->points[i]);
}

/* How far the mean may be off, as a binary logarithm. */
static double costs_error(const struct cost_mean *mean)
{
    double count = (double)mean->count;
    return sqrt((double)mean->spread / (count * count) + DOUBT * DOUBT / count);
}

static uint32_t costs_permil(double error)
{
    double permil = 1000 * (exp2(error) - 1);
    return permil < 1e6 ? (uint32_t)permil : 1000000;
}

static uint64_t costs_power_of_mean(double logarithm)
{
    uint64_t power = costs_number(exp2(logarithm));
    return power > POWER_FLOOR ? power - POWER_FLOOR : 0;
}

void cost_record_of(const struct cost_point *point, struct cost_record *ret_record)
{
    const struct cost_mean *time = &point->time, *power = &point->power;
    *ret_record = (struct cost_record){
        .items = costs_number(exp2((double)point->size)),
        .ns = costs_number(exp2((double)time->mean)),
        .samples_k = costs_number(1000 * (double)time->count),
        .spread_k = costs_number(1000 * (double)time->spread),
        .error_permil = time->count > 0 ? costs_permil(costs_error(time)) : 0,
    };
    if (power->count <= 0)
        return;
    ret_record->power_mw = costs_power_of_mean((double)power->mean);
    ret_record->power_samples_k = costs_number(1000 * (double)power->count);
    ret_record->power_spread_k = costs_number(1000 * (double)power->spread);
    ret_record->power_error_permil = costs_permil(costs_error(power));
}

/* False where the numbers cannot be. */
static bool costs_read_mean(uint64_t value, uint64_t samples_k, uint64_t spread_k,
                            struct cost_mean *ret_mean)
{
    double count = (double)samples_k / 1000, spread = (double)spread_k / 1000;
    if (!samples_k || count > RECORD_SAMPLES_MOST ||
        spread > count * LIMIT_MOST * LIMIT_MOST * COSTS_MEMORY)
        return false;
    *ret_mean = (struct cost_mean){
        .count = (float)count, .mean = (float)costs_log(value), .spread = (float)spread};
    costs_fade(ret_mean, COSTS_MEMORY);
    return true;
}

bool costs_read_record(const struct cost_record *record, struct costs *ret_costs)
{
    double size = costs_log(record->items);
    struct cost_point point = {.size = (float)size};
    if (!record->items || !record->ns || record->ns > DAY_NS ||
        record->power_mw > RECORD_POWER_MOST ||
        !costs_read_mean(record->ns, record->samples_k, record->spread_k, &point.time) ||
        (record->power_samples_k &&
         !costs_read_mean(record->power_mw + POWER_FLOOR, record->power_samples_k,
                          record->power_spread_k, &point.power)))
        return false;
    *ret_costs = (struct costs){0};
    *costs_point_of(ret_costs, size) = point;
    return true;
}

static const struct cost_point *costs_nearest(const struct costs *costs, double size, int step)
{
    const struct cost_point *found = NULL;
    for (unsigned i = 0; i < COSTS_SIZES; i++) {
        const struct cost_point *point = &costs->points[step < 0 ? i : COSTS_SIZES - 1 - i];
        bool on_side = step < 0 ? (double)point->size <= size : (double)point->size > size;
        if (point->time.count > 0 && on_side)
            found = point;
    }
    return found;
}

/* Of the line through @point and the next one on its other side. Alone, twice the work-items are
 * taken for twice the time. */
static double costs_slope(const struct costs *costs, const struct cost_point *point, int side)
{
    const struct cost_point *next = NULL;
    for (const struct cost_point *p = point + side;
         p >= costs->points && p < costs->points + COSTS_SIZES && !next; p += side)
        next = p->time.count > 0 ? p : NULL;
    if (!next)
        return 1;
    double slope = ((double)next->time.mean - (double)point->time.mean) /
                   ((double)next->size - (double)point->size);
    return slope < 0 ? 0 : slope < SLOPE_MOST ? slope : SLOPE_MOST;
}

/* Of the nearer of two measured sizes of which the power is known; either may be NULL. */
static void costs_guess_power(const struct cost_point *below, const struct cost_point *above,
                              double size, struct cost_guess *guess)
{
    const struct cost_point *point = NULL;
    if (below && below->power.count > 0)
        point = below;
    if (above && above->power.count > 0 &&
        (!point || (double)above->size - size < size - (double)below->size))
        point = above;
    if (!point)
        return;
    guess->power_mw = costs_power_of_mean((double)point->power.mean);
    guess->power_samples = point->power.count;
    guess->power_error_permil =
        costs_permil(costs_error(&point->power) + REACH_DOUBT * fabs((double)point->size - size));
}

bool costs_guess(const struct costs *costs, uint64_t items, struct cost_guess *ret_guess)
{
    double size = costs_log(items), time, error;
    const struct cost_point *below = costs_nearest(costs, size, -1);
    const struct cost_point *above = costs_nearest(costs, size, 1);
    float samples;
    if (below && above && (double)(above->size - below->size) <= GAP) {
        const struct cost_mean *low = &below->time, *high = &above->time;
        double part = (size - (double)below->size) / (double)(above->size - below->size);
        double near = part < 0.5 ? part : 1 - part;
        time = (double)low->mean + part * (double)(high->mean - low->mean);
        error = (1 - part) * costs_error(low) + part * costs_error(high) +
                REACH_DOUBT * near * (double)(above->size - below->size) / 2;
        samples = low->count < high->count ? low->count : high->count;
        /* At a size that was measured the other one says nothing. */
        if (near < 0.1)
            samples = part < 0.5 ? low->count : high->count;
    } else {
        double down = below ? size - (double)below->size : INFINITY;
        double up = above ? (double)above->size - size : INFINITY;
        const struct cost_point *point = down <= up ? below : above;
        double distance = down <= up ? down : up;
        if (!point || distance > REACH)
            return false;
        time = (double)point->time.mean +
               (size - (double)point->size) * costs_slope(costs, point, point == below ? -1 : 1);
        error = costs_error(&point->time) + REACH_DOUBT * distance;
        samples = point->time.count;
        below = point == below ? below : NULL;
        above = point == above ? above : NULL;
    }
    *ret_guess = (struct cost_guess){
        .ns = costs_number(exp2(time)), .error_permil = costs_permil(error), .samples = samples};
    costs_guess_power(below, above, size, ret_guess);
    return true;
}

struct policy_measured costs_relative(const struct costs_use *uses, uint32_t count)
{
    double all = 0, here = 0, there = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct costs_use *use = &uses[i];
        struct cost_guess one, other;
        all += (double)use->busy_ns;
        if (!use->here || !use->there || !costs_guess(use->here, use->items, &one) ||
            !costs_guess(use->there, use->items, &other) || one.samples < COSTS_SURE ||
            other.samples < COSTS_SURE || !one.ns)
            continue;
        here += (double)use->busy_ns;
        there += (double)use->busy_ns * (double)other.ns / (double)one.ns;
    }
    if (here <= 0)
        return (struct policy_measured){0, 0};
    double speed = there > 0 ? 1000 * here / there : 1e9;
    return (struct policy_measured){.speed = speed < 1     ? 1
                                             : speed < 1e9 ? (uint32_t)(speed + 0.5)
                                                           : 1000000000,
                                    .covered = (uint32_t)(1000 * here / all)};
}
