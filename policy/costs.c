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
/* Of a file or a message: no more than that is believed of a record. */
#define RECORD_SAMPLES_MOST 1000.0

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

static double costs_limit(const struct cost_point *point)
{
    double limit = 3 * sqrt((double)(point->spread / point->count));
    return limit < LIMIT_LEAST ? LIMIT_LEAST : limit < LIMIT_MOST ? limit : LIMIT_MOST;
}

static void costs_fade(struct cost_point *point)
{
    float most = COSTS_MEMORY - 1;
    if (point->count <= most)
        return;
    point->spread *= most / point->count;
    point->count = most;
}

/* Means and squares of two sets as those of their union. */
static void costs_join(struct cost_point *point, const struct cost_point *other)
{
    double count = (double)point->count + (double)other->count;
    if (other->count <= 0)
        return;
    double part = (double)other->count / count;
    double apart = (double)other->time - (double)point->time;
    point->spread += other->spread + (float)(apart * apart * part * (double)point->count);
    point->time += (float)(apart * part);
    point->size += (float)(((double)other->size - (double)point->size) * part);
    point->count = (float)count;
}

void costs_add(struct costs *costs, uint64_t items, uint64_t ns)
{
    double size = costs_log(items), time = costs_log(ns < DAY_NS ? ns : DAY_NS);
    struct cost_point *point = costs_point_of(costs, size);
    struct cost_point sample = {.count = 1, .size = (float)size, .time = (float)time};
    double apart = time - (double)point->time;
    /* The first launches may be slow once: caches are cold, and a driver compiles. */
    if (point->count < COSTS_FOLLOW && apart < -LIMIT_LEAST)
        point->count = 0;
    if (point->count <= 0) {
        *point = sample;
        return;
    }
    double limit = costs_limit(point);
    if (point->count < COSTS_FOLLOW || fabs(apart) <= limit) {
        point->astray = 0;
    } else {
        int side = apart > 0 ? 1 : -1;
        point->astray = point->astray * side > 0 ? point->astray + side : side;
        if (point->astray * side >= COSTS_FOLLOW) {
            *point = sample;
            return;
        }
        /* Not believed, but the others are less certain for it. */
        double spread = (double)point->spread + limit * limit;
        double most = (double)point->count * LIMIT_MOST * LIMIT_MOST;
        point->spread = (float)(spread < most ? spread : most);
        return;
    }
    costs_fade(point);
    costs_join(point, &sample);
}

void costs_merge(struct costs *costs, const struct costs *other)
{
    for (unsigned i = 0; i < COSTS_SIZES; i++) {
        costs->points[i].astray = 0;
        costs_join(&costs->points[i], &other->points[i]);
    }
}

/* How far the mean may be off, as a binary logarithm. */
static double costs_error(const struct cost_point *point)
{
    double count = (double)point->count;
    return sqrt((double)point->spread / (count * count) + DOUBT * DOUBT / count);
}

static uint32_t costs_permil(double error)
{
    double permil = 1000 * (exp2(error) - 1);
    return permil < 1e6 ? (uint32_t)permil : 1000000;
}

void cost_record_of(const struct cost_point *point, struct cost_record *ret_record)
{
    *ret_record = (struct cost_record){
        .items = costs_number(exp2((double)point->size)),
        .ns = costs_number(exp2((double)point->time)),
        .samples_k = costs_number(1000 * (double)point->count),
        .spread_k = costs_number(1000 * (double)point->spread),
        .error_permil = point->count > 0 ? costs_permil(costs_error(point)) : 0,
    };
}

bool costs_add_record(struct costs *costs, const struct cost_record *record)
{
    double size = costs_log(record->items), count = (double)record->samples_k / 1000;
    double spread = (double)record->spread_k / 1000;
    if (!record->items || !record->ns || record->ns > DAY_NS || !record->samples_k ||
        count > RECORD_SAMPLES_MOST || spread > count * LIMIT_MOST * LIMIT_MOST * COSTS_MEMORY)
        return false;
    const struct cost_point point = {.count = (float)count,
                                     .size = (float)size,
                                     .time = (float)costs_log(record->ns),
                                     .spread = (float)spread};
    costs_join(costs_point_of(costs, size), &point);
    return true;
}

static const struct cost_point *costs_nearest(const struct costs *costs, double size, int step)
{
    const struct cost_point *found = NULL;
    for (unsigned i = 0; i < COSTS_SIZES; i++) {
        const struct cost_point *point = &costs->points[step < 0 ? i : COSTS_SIZES - 1 - i];
        bool on_side = step < 0 ? (double)point->size <= size : (double)point->size > size;
        if (point->count > 0 && on_side)
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
        next = p->count > 0 ? p : NULL;
    if (!next)
        return 1;
    double slope =
        ((double)next->time - (double)point->time) / ((double)next->size - (double)point->size);
    return slope < 0 ? 0 : slope < SLOPE_MOST ? slope : SLOPE_MOST;
}

bool costs_guess(const struct costs *costs, uint64_t items, struct cost_guess *ret_guess)
{
    double size = costs_log(items), time, error;
    const struct cost_point *below = costs_nearest(costs, size, -1);
    const struct cost_point *above = costs_nearest(costs, size, 1);
    float samples;
    if (below && above && (double)(above->size - below->size) <= GAP) {
        double part = (size - (double)below->size) / (double)(above->size - below->size);
        double near = part < 0.5 ? part : 1 - part;
        time = (double)below->time + part * (double)(above->time - below->time);
        error = (1 - part) * costs_error(below) + part * costs_error(above) +
                REACH_DOUBT * near * (double)(above->size - below->size) / 2;
        samples = below->count < above->count ? below->count : above->count;
        /* At a size that was measured the other one says nothing. */
        if (near < 0.1)
            samples = part < 0.5 ? below->count : above->count;
    } else {
        double down = below ? size - (double)below->size : INFINITY;
        double up = above ? (double)above->size - size : INFINITY;
        const struct cost_point *point = down <= up ? below : above;
        double distance = down <= up ? down : up;
        if (!point || distance > REACH)
            return false;
        time = (double)point->time +
               (size - (double)point->size) * costs_slope(costs, point, point == below ? -1 : 1);
        error = costs_error(point) + REACH_DOUBT * distance;
        samples = point->count;
    }
    *ret_guess = (struct cost_guess){
        .ns = costs_number(exp2(time)), .error_permil = costs_permil(error), .samples = samples};
    return true;
}

struct policy_measured costs_relative(const struct costs_work *works, uint32_t count)
{
    double all = 0, here = 0, there = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct costs_work *work = &works[i];
        struct cost_guess one, other;
        all += (double)work->busy_ns;
        if (!work->here || !work->there || !costs_guess(work->here, work->items, &one) ||
            !costs_guess(work->there, work->items, &other) || one.samples < COSTS_SURE ||
            other.samples < COSTS_SURE || !one.ns)
            continue;
        here += (double)work->busy_ns;
        there += (double)work->busy_ns * (double)other.ns / (double)one.ns;
    }
    if (here <= 0)
        return (struct policy_measured){0, 0};
    double speed = there > 0 ? 1000 * here / there : 1e9;
    return (struct policy_measured){.speed = speed < 1     ? 1
                                             : speed < 1e9 ? (uint32_t)(speed + 0.5)
                                                           : 1000000000,
                                    .covered = (uint32_t)(1000 * here / all)};
}
