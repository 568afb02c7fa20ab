#include "agent/daemon/govern/govern.h"

#define REST_MS     1000
#define REST_MS_MAX 60000

/* One that makes programs all the time is tried again after so long at first, then after twice...
 */
#define BUILD_MS      60000
#define BUILD_DOUBLED 6

static void bars_rest_longer(struct governed *governed)
{
    governed->rest_ms = governed->rest_ms ? governed->rest_ms * 2 : REST_MS;
    governed->rest_ms = governed->rest_ms < REST_MS_MAX ? governed->rest_ms : REST_MS_MAX;
}

void bars_rest(struct agent *agent, struct program *program)
{
    struct governed *governed = &program->governed;

    bars_rest_longer(governed);
    governed->rest_until_ms = uv_now(&agent->loop) + governed->rest_ms;
}

/** What a build there depends on and that another driver changes. */
static uint64_t bars_driver_of(const struct agent *agent, uint32_t device)
{
    const struct inventory_entry *entry = devices_entry(agent, device);
    const cl_device_info names[] = {CL_DRIVER_VERSION, CL_DEVICE_VERSION};
    uint64_t hash = 1469598103934665603u;

    for (size_t i = 0; entry && i < ARRAY_SIZE(names); i++)
        for (const char *at = devinfo_string(&entry->info, names[i]); at && *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return hash;
}

bool bars_hold(const struct agent *agent, const struct program *program,
               const struct program_bar *bar)
{
    bool time = uv_now(&agent->loop) < bar->until_ms;

    switch (bar->cause) {
    case BAR_REFUSED:
        return bar->uses == program_uses(program);
    case BAR_BUILD:
        return bar->driver == bars_driver_of(agent, bar->device) &&
               (time || bar->uses == program_uses(program));
    case BAR_FAILED:
        break;
    }
    return time;
}

void bars_add(struct agent *agent, struct program *program, uint32_t device,
              enum program_bar_cause cause, const char *reason)
{
    struct governed *governed = &program->governed;
    unsigned at = 0, tries = 0;

    while (at < governed->bar_count && governed->bars[at].device != device)
        at++;
    if (at == PROGRAM_BARS_MAX)
        at = 0;
    else if (at == governed->bar_count)
        governed->bar_count++;
    else if (governed->bars[at].cause == cause)
        tries = governed->bars[at].tries + 1;
    if (cause == BAR_FAILED)
        bars_rest_longer(governed);
    uint64_t build_ms = (uint64_t)BUILD_MS << (tries < BUILD_DOUBLED ? tries : BUILD_DOUBLED);
    governed->bars[at] = (struct program_bar){
        .device = device,
        .cause = cause,
        .tries = tries,
        .uses = program_uses(program),
        .driver = bars_driver_of(agent, device),
        .until_ms = uv_now(&agent->loop) + (cause == BAR_BUILD ? build_ms : governed->rest_ms),
    };
    snprintf(governed->bars[at].reason, sizeof(governed->bars[at].reason), "%s", reason);
}
