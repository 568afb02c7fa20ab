#include "policy/decide.h"

#include <errno.h>
#include <stdio.h>

static const char *place_kind_name(enum place_kind kind)
{
    static const char *const names[] = {"GPU", "accelerator", "CPU", "device of another kind"};

    return kind <= PLACE_OTHER ? names[kind] : names[PLACE_OTHER];
}

/* The share of memory in use, in millionths. */
static uint64_t place_share(const struct place_device *device)
{
    const uint64_t whole = 1000000;

    if (device->memory_used >= device->memory_total)
        return whole;
    return (uint64_t)((double)device->memory_used / (double)device->memory_total * (double)whole);
}

/* Below 0: @a comes before @b, whatever is in use. */
static int place_compare(const struct place_device *a, const struct place_device *b)
{
    return a->small != b->small ? a->small - b->small : (int)a->kind - (int)b->kind;
}

static bool place_better(const struct place_device *a, const struct place_device *b)
{
    int order = place_compare(a, b);

    return order ? order < 0 : place_share(a) < place_share(b);
}

int place_spread(const struct place_device *devices, const unsigned *taken, size_t count,
                 size_t *ret_device)
{
    size_t best = count;

    for (size_t i = 0; i < count; i++) {
        if (devices[i].closed)
            continue;
        int order = best == count ? -1 : place_compare(&devices[i], &devices[best]);
        if (order < 0 ||
            (order == 0 && (taken[i] < taken[best] || (taken[i] == taken[best] &&
                                                       place_better(&devices[i], &devices[best])))))
            best = i;
    }
    if (best == count)
        return -ENODEV;
    *ret_device = best;
    return 0;
}

int place_choose(const struct place_device *devices, size_t count, size_t *ret_device,
                 char *ret_reason, size_t reason_size)
{
    const struct place_device *best = NULL;
    size_t same = 0;

    for (size_t i = 0; i < count; i++)
        if (!devices[i].closed && (!best || place_better(&devices[i], best)))
            best = &devices[i];
    if (!best) {
        snprintf(ret_reason, reason_size,
                 count ? "none of the %zu devices takes new programs" : "there is no device",
                 count);
        return -ENODEV;
    }
    for (size_t i = 0; i < count; i++)
        same += !devices[i].closed && devices[i].kind == best->kind;
    if (same == 1)
        snprintf(ret_reason, reason_size, "%s: the only %s that takes new programs", best->name,
                 place_kind_name(best->kind));
    else
        snprintf(ret_reason, reason_size, "%s: %s with %u%% of its memory in use, the least of %zu",
                 best->name, place_kind_name(best->kind), (unsigned)(place_share(best) / 10000),
                 same);
    *ret_device = (size_t)(best - devices);
    return 0;
}
