#include "policy/policy_priv.h"

#include <inttypes.h>
#include <stdio.h>

#include "policy/reseat_limits.h"

/*
 * Devices are compared property by property, and each property counts only up to what the program
 * asked for. A device with less of one property is not better, however much it has of another: so
 * no two devices are each better than the other.
 */

#define WHOLE 1000
#define SAID  3 /* Properties that a reason names. */

enum thing { MEMORY, ALLOCATION, LOCAL_MEMORY, WORK_GROUP, UNITS, NUMBERS };

/* Amounts that are asked for, or that a device has of them. */
struct amounts {
    uint64_t numbers[NUMBERS];
    uint32_t features;
};

static struct amounts preference_wanted_by(const struct policy_program *p)
{
    const struct reseat_limits *prefers = p->prefers;

    return (struct amounts){
        .numbers = {[MEMORY] = least_of(prefers->memory, p->quota),
                    [ALLOCATION] = prefers->allocation,
                    [LOCAL_MEMORY] = prefers->local_memory,
                    [WORK_GROUP] = prefers->work_group_size,
                    [UNITS] = prefers->compute_units},
        .features = prefers->features,
    };
}

/* The preferred amounts, each reduced to what @device offers. */
static struct amounts preference_had_on(const struct view *view, const struct policy_program *p,
                                        uint32_t device)
{
    static const struct reseat_limits nothing;
    const struct policy_device *d = device_at(view, device);
    const struct reseat_limits *has = d->has ? d->has : &nothing;
    struct amounts ret = preference_wanted_by(p);

    ret.numbers[MEMORY] = least_of(ret.numbers[MEMORY], d->memory);
    ret.numbers[ALLOCATION] = least_of(ret.numbers[ALLOCATION], has->allocation);
    ret.numbers[LOCAL_MEMORY] = least_of(ret.numbers[LOCAL_MEMORY], has->local_memory);
    ret.numbers[WORK_GROUP] = least_of(ret.numbers[WORK_GROUP], has->work_group_size);
    ret.numbers[UNITS] = least_of(ret.numbers[UNITS], has->compute_units);
    ret.features &= has->features;
    return ret;
}

static bool preference_is_less(const struct amounts *a, const struct amounts *b)
{
    for (unsigned i = 0; i < NUMBERS; i++)
        if (a->numbers[i] < b->numbers[i])
            return true;
    return b->features & ~a->features;
}

bool prefer_keeps(const struct view *view, const struct policy_program *program, uint32_t device)
{
    struct amounts here, there;

    if (!program->prefers)
        return true;
    here = preference_had_on(view, program, program->device);
    there = preference_had_on(view, program, device);
    return !preference_is_less(&there, &here);
}

bool prefer_better(const struct view *view, const struct policy_program *program, uint32_t device)
{
    const double gain = 1 + view->settings->gain / (double)WHOLE;
    struct amounts here = preference_had_on(view, program, program->device);
    struct amounts there = preference_had_on(view, program, device);

    if (preference_is_less(&there, &here))
        return false;
    for (unsigned i = 0; i < NUMBERS; i++)
        if (there.numbers[i] > here.numbers[i] &&
            (double)there.numbers[i] >= (double)here.numbers[i] * gain)
            return true;
    return there.features & ~here.features;
}

bool prefer_met(const struct view *view, const struct policy_program *program, uint32_t device)
{
    struct amounts wanted = preference_wanted_by(program),
                   has = preference_had_on(view, program, device);

    return !preference_is_less(&has, &wanted);
}

uint64_t prefer_room(const struct view *view, const struct policy_program *program, uint32_t device)
{
    struct amounts has = preference_had_on(view, program, device);

    return most_of(has.numbers[MEMORY], program_full(program));
}

uint32_t prefer_part(const struct view *view, const struct policy_program *program, uint32_t device)
{
    struct amounts wanted = preference_wanted_by(program),
                   has = preference_had_on(view, program, device);
    unsigned things = 0;
    uint32_t sum = 0;

    for (unsigned i = 0; i < NUMBERS; i++) {
        if (!wanted.numbers[i])
            continue;
        things++;
        sum += (uint32_t)((double)has.numbers[i] / (double)wanted.numbers[i] * WHOLE);
    }
    if (wanted.features) {
        things++;
        sum += (uint32_t)(WHOLE * __builtin_popcount(has.features) /
                          __builtin_popcount(wanted.features));
    }
    return things ? sum / things : WHOLE;
}

/* ---- text ---- */

static int preference_name_thing(char *ret, size_t size, enum thing thing, uint64_t amount)
{
    switch (thing) {
    case MEMORY:
        return snprintf(ret, size, "%s", size_text(amount).text);
    case ALLOCATION:
        return snprintf(ret, size, "objects of %s", size_text(amount).text);
    case LOCAL_MEMORY:
        return snprintf(ret, size, "%s of local memory", size_text(amount).text);
    case WORK_GROUP:
        return snprintf(ret, size, "work-groups of %" PRIu64, amount);
    case UNITS:
        return snprintf(ret, size, "%" PRIu64 " compute units", amount);
    case NUMBERS:
        break;
    }
    return 0;
}

struct prefer_text prefer_text(const struct view *view, const struct policy_program *program)
{
    struct amounts wanted = preference_wanted_by(program),
                   has = preference_had_on(view, program, program->device);
    bool all = !preference_is_less(&has, &wanted);
    char things[NUMBERS + 32][48];
    unsigned count = 0;
    struct prefer_text ret = {""};
    const char *feature;
    size_t used = 0;
    uint32_t bit;

    for (unsigned i = 0; i < NUMBERS; i++)
        if (all ? wanted.numbers[i] > 0 : has.numbers[i] < wanted.numbers[i])
            preference_name_thing(things[count++], sizeof(*things), (enum thing)i,
                                  wanted.numbers[i]);
    for (size_t i = 0; (feature = reseat_limits_feature(i, &bit)); i++)
        if (wanted.features & bit && (all || !(has.features & bit)))
            snprintf(things[count++], sizeof(*things), "%s", feature);
    for (unsigned i = 0; i < count && i < SAID; i++)
        used += (size_t)snprintf(ret.text + used, sizeof(ret.text) - used, "%s%s",
                                 !i                                ? ""
                                 : i + 1 == count && count <= SAID ? " and "
                                                                   : ", ",
                                 things[i]);
    if (count > SAID)
        snprintf(ret.text + used, sizeof(ret.text) - used, " and more");
    return ret;
}
