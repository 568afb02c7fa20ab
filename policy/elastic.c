#include "policy/decide.h"

#include "policy/view.h"

/* A program that is on no device could be placed on @device once it is its turn. */
static bool elastic_is_wanted(const struct policy_world *world, uint32_t device)
{
    for (uint32_t i = 0; i < world->queue_count; i++) {
        const struct policy_program *p = &world->programs[world->queue[i]];

        if (p->device != device && !program_barred(p, device) &&
            program_full(p) <= world->devices[device].memory)
            return true;
    }
    return false;
}

static bool elastic_is_free(const struct policy_world *world, uint32_t device)
{
    const struct policy_device *d = &world->devices[device];

    return device_is_open(d) && !d->residents && !d->reserved && d->free_s >= ELASTIC_FREE_S &&
           !elastic_is_wanted(world, device);
}

static bool elastic_may_have(const struct policy_world *world, const struct policy_program *p,
                             uint32_t device)
{
    const struct policy_device *d = &world->devices[device];

    return p->elastic && p->state == POLICY_RUNNING && p->device != POLICY_NONE &&
           !program_barred(p, device) && program_full(p) <= d->memory &&
           (p->any_float || (d->model && d->model == world->devices[p->device].model));
}

/* How many of the devices before @device the program was given. */
static uint32_t elastic_given(const uint32_t *programs, uint32_t device, uint32_t program)
{
    uint32_t given = 0;

    for (uint32_t i = 0; i < device; i++)
        given += programs[i] == program;
    return given;
}

void elastic_share(const struct policy_world *world, uint32_t *ret_programs)
{
    for (uint32_t device = 0; device < world->device_count; device++) {
        uint32_t best = POLICY_NONE, fewest = 0;

        if (elastic_is_free(world, device)) {
            for (uint32_t i = 0; i < world->program_count; i++) {
                const struct policy_program *p = &world->programs[i];
                uint32_t given;

                if (!elastic_may_have(world, p, device) ||
                    (best != POLICY_NONE && p->priority < world->programs[best].priority))
                    continue;
                given = elastic_given(ret_programs, device, i);
                if (best != POLICY_NONE && p->priority == world->programs[best].priority &&
                    given >= fewest)
                    continue;
                best = i;
                fewest = given;
            }
        }
        ret_programs[device] = best;
    }
}
