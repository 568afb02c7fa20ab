#include "agent/simulate/sim_world.h"

/* Host memory is a node's, and so are its links to storage and to other nodes: each carries one
 * transfer after the other. */

static uint64_t of(const struct sim_program *program, uint32_t node)
{
    for (size_t i = 0; i < ARRAY_SIZE(program->host); i++)
        if (program->host[i].node == node)
            return program->host[i].bytes;
    return 0;
}

bool sim_host_fits(const struct sim_world *world, uint32_t node, uint64_t bytes)
{
    uint64_t host = world->trace.nodes[node].host, used = world->hosts[node].used;

    return used <= host && bytes <= host - used;
}

static void set(struct sim_world *world, uint32_t task, size_t place, uint32_t node, uint64_t bytes)
{
    struct sim_program *program = &world->shared->programs[task];

    world->hosts[node].used +=
        bytes - (program->host[place].node == node ? program->host[place].bytes : 0);
    program->host[place].node = bytes ? node : SIM_NONE;
    program->host[place].bytes = bytes;
    sim_tell(world->shared, SIM_HOST, task, world->trace.nodes[node].id, bytes);
}

bool sim_host_take(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes)
{
    const struct sim_program *program = &world->shared->programs[task];
    uint64_t has = of(program, node);
    size_t place = 0;

    if (bytes <= has)
        return true;
    if (!sim_host_fits(world, node, bytes - has))
        return false;
    while (program->host[place].node != (has ? node : SIM_NONE))
        place++;
    set(world, task, place, node, bytes);
    return true;
}

void sim_host_keep(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes)
{
    struct sim_program *program = &world->shared->programs[task];
    uint64_t has = node == SIM_NONE ? 0 : of(program, node);

    /* What it waits for is wanted, and nowhere yet. */
    bytes = bytes < has ? bytes : has;
    for (size_t i = 0; i < ARRAY_SIZE(program->host); i++) {
        uint32_t there = program->host[i].node;
        if (there != SIM_NONE && there != node)
            set(world, task, i, there, 0);
    }
    for (size_t i = 0; has != bytes && i < ARRAY_SIZE(program->host); i++) {
        if (program->host[i].node == node) {
            set(world, task, i, node, bytes);
            return;
        }
    }
}

uint64_t sim_in_host(const struct sim_world *world, uint32_t task)
{
    const struct policy_program *slot = sim_slot(world, task);

    return sim_task(world, task)->host +
           (slot->wanted > slot->granted ? slot->wanted - slot->granted : 0);
}

uint64_t sim_size(const struct sim_world *world, uint32_t task)
{
    return sim_wanted(world, task) * (sim_task(world, task)->more + 1u);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t over(uint64_t bytes, uint64_t link)
{
    return (bytes + link - 1) / link;
}

uint64_t sim_store(struct sim_world *world, uint32_t node, uint64_t bytes)
{
    struct sim_host *host = &world->hosts[node];

    if (!world->options->storage)
        return 0;
    host->storage_ms =
        most(host->storage_ms, sim_now(world)) + over(bytes, world->options->storage);
    return host->storage_ms - sim_now(world);
}

uint64_t sim_send_over(struct sim_world *world, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct sim_host *a = &world->hosts[from], *b = &world->hosts[to];
    uint64_t link = world->options->network < world->options->link ? world->options->network
                                                                   : world->options->link;

    a->network_ms = b->network_ms =
        most(most(a->network_ms, b->network_ms), sim_now(world)) + over(bytes, link);
    return a->network_ms - sim_now(world) + world->options->latency_ms;
}
