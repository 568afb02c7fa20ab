#include "agent/daemon/devices/device_list.h"

#include <string.h>

/* What the configuration says, as the governor needs it. */

static enum place_kind kind_of(const struct inventory_entry *entry)
{
    static const struct {
        const char *name;
        enum place_kind kind;
    } kinds[] = {{"gpu", PLACE_GPU}, {"accel", PLACE_ACCELERATOR}, {"cpu", PLACE_CPU}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i].name, device_kind(&entry->info)) == 0)
            return kinds[i].kind;
    return PLACE_OTHER;
}

static struct config_device said_of(const struct agent *agent, const struct inventory_entry *entry)
{
    struct config_device said;

    config_device(&agent->config, entry->name, kind_of(entry), entry->key.device, &said);
    return said;
}

uint64_t device_settings_memory(const struct agent *agent, const struct inventory_entry *entry)
{
    return said_of(agent, entry).memory;
}

/**
 * A guess where nobody says: units and clock, and that a unit of a GPU does many times what one of
 * a CPU does. 1000 is 60 units of a GPU at 1 GHz.
 */
static uint32_t guess_speed(const struct inventory_entry *entry, enum place_kind kind)
{
    uint64_t units = devinfo_scalar(&entry->info, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
    uint64_t clock = devinfo_scalar(&entry->info, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000);
    const uint64_t share = kind == PLACE_CPU ? 8 : 1;

    units = units < 1u << 20 ? units : 1u << 20;
    clock = clock && clock < 1u << 20 ? clock : 1000;
    uint64_t speed = units * clock / 60 / share;
    return (uint32_t)(speed < 1 ? 1 : speed < 1000000 ? speed : 1000000);
}

void device_settings(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device)
{
    struct config_device said = said_of(agent, entry);

    device->kind = kind_of(entry);
    device->speed = said.speed ? said.speed : guess_speed(entry, device->kind);
    device->price = said.price ? said.price : 1000;
    device->closed = said.closed;
}
