#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/operations/governor.h"
#include "state/base/array.h"

#define REST_MS     1000
#define REST_MS_MAX 60000

/*
 * Shortest time that a program is kept off a device on which a build failed, however many objects
 * it creates meanwhile. It doubles with each further failure, at most BUILD_DOUBLED times.
 */
#define BUILD_MS      60000
#define BUILD_DOUBLED 6

static void exclusions_rest_longer(struct managed *managed)
{
    managed->rest_ms = managed->rest_ms ? managed->rest_ms * 2 : REST_MS;
    managed->rest_ms = managed->rest_ms < REST_MS_MAX ? managed->rest_ms : REST_MS_MAX;
}

void exclusions_rest(struct agent *agent, struct program *program)
{
    struct managed *managed = &program->managed;

    exclusions_rest_longer(managed);
    managed->rest_until_ms = uv_now(&agent->loop) + managed->rest_ms;
}

/** Hash of the driver's versions: a build that failed may succeed with another driver. */
static uint64_t exclusions_driver_of(const struct agent *agent, uint32_t device)
{
    const struct inventory_entry *entry = devices_entry(agent, device);
    const cl_device_info names[] = {CL_DRIVER_VERSION, CL_DEVICE_VERSION};
    uint64_t hash = 1469598103934665603u;

    for (size_t i = 0; entry && i < ARRAY_SIZE(names); i++)
        for (const char *at = devinfo_string(&entry->info, names[i]); at && *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return hash;
}

bool exclusions_hold(const struct agent *agent, const struct program *program,
                     const struct program_exclusion *exclusion)
{
    bool time = uv_now(&agent->loop) < exclusion->until_ms;

    switch (exclusion->cause) {
    case EXCLUSION_REFUSED:
        return exclusion->uses == program_uses(program);
    case EXCLUSION_BUILD:
        return exclusion->driver == exclusions_driver_of(agent, exclusion->device) &&
               (time || exclusion->uses == program_uses(program));
    case EXCLUSION_FAILED:
        break;
    }
    return time;
}

void exclusions_add(struct agent *agent, struct program *program, uint32_t device,
                    enum program_exclusion_cause cause, const char *reason)
{
    struct managed *managed = &program->managed;
    unsigned at = 0, tries = 0;

    if (cause == EXCLUSION_FAILED)
        exclusions_rest_longer(managed);
    if (!array_allot(&managed->exclusions, PROGRAM_EXCLUSIONS_MAX, sizeof(*managed->exclusions)))
        return; /* The policy may try the device again, when the program has rested. */
    while (at < managed->exclusion_count && managed->exclusions[at].device != device)
        at++;
    if (at == PROGRAM_EXCLUSIONS_MAX)
        at = 0;
    else if (at == managed->exclusion_count)
        managed->exclusion_count++;
    else if (managed->exclusions[at].cause == cause)
        tries = managed->exclusions[at].tries + 1;
    uint64_t build_ms = (uint64_t)BUILD_MS << (tries < BUILD_DOUBLED ? tries : BUILD_DOUBLED);
    managed->exclusions[at] = (struct program_exclusion){
        .device = device,
        .cause = cause,
        .tries = tries,
        .uses = program_uses(program),
        .driver = exclusions_driver_of(agent, device),
        .until_ms = uv_now(&agent->loop) + (cause == EXCLUSION_BUILD ? build_ms : managed->rest_ms),
    };
    snprintf(managed->exclusions[at].reason, sizeof(managed->exclusions[at].reason), "%s", reason);
}
