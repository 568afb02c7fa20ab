#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/metrics/metrics_priv.h"
#include "agent/daemon/operations/governor.h"
#include "state/base/clock.h"

/* How long it takes to write the page of metrics: of PROGRAMS programs of USERS users on DEVICES
 * devices. */

#define DEVICES  64
#define PROGRAMS 1000
#define USERS    20
#define TIMES    20

void agent_log(const char *format, ...)
{
    (void)format;
}

void agent_stop(struct agent *agent)
{
    (void)agent;
}

static void add_devices(struct agent *agent)
{
    char name[16];
    uint32_t index;

    for (unsigned i = 0; i < DEVICES; i++) {
        snprintf(name, sizeof(name), "gpu%u", i);
        if (ledger_device(&agent->ledger, name, &index))
            exit(1);
        agent->ledger.devices[index].own = UINT64_C(80) << 30;
        agent->ledger.devices[index].listed = true;
    }
}

static void add_program(struct agent *agent, unsigned number)
{
    struct program *program = calloc(1, sizeof(*program));

    if (!program || !program_set_vdev_count(agent, program, 1))
        exit(1);
    program->connected = true;
    program->uid = 1000 + number % USERS;
    program->vdevs[0].busy = 50;
    program->vdevs[0].wanted = UINT64_C(1) << 30;
    ledger_place(&agent->ledger, &program->vdevs[0].entry, number % DEVICES);
    ledger_set_granted(&agent->ledger, &program->vdevs[0].entry, UINT64_C(1) << 30);
    program->next = agent->programs;
    agent->programs = program;
}

int main(void)
{
    const struct config_source nothing = {.path = NULL};
    struct agent *agent = calloc(1, sizeof(*agent));
    struct peer viewer = {.rights = RIGHTS_ALL};
    struct config_error wrong;
    uint64_t least = UINT64_MAX;
    size_t size = 0;

    if (!agent || uv_loop_init(&agent->loop) || config_load(&nothing, &agent->config, &wrong) ||
        govern_init(agent) || !(agent->metrics = calloc(1, sizeof(*agent->metrics))))
        return 1;
    add_devices(agent);
    for (unsigned i = 0; i < PROGRAMS; i++)
        add_program(agent, i);
    for (unsigned i = 0; i < TIMES; i++) {
        uint64_t began = clock_now_ns();
        char *page = metrics_page(agent, &viewer, true, &size);
        uint64_t took = clock_now_ns() - began;
        least = took < least ? took : least;
        if (!page)
            return 1;
        free(page);
    }
    printf("metrics of %d programs and %d devices: %zu bytes in %.2f ms\n", PROGRAMS, DEVICES, size,
           (double)least / NS_PER_MS);
    return 0;
}
