#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/cleanup.h"
#include "agent/config/config.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/govern/govern_priv.h"

/* What the configuration says, as the governor needs it. */

static enum place_kind kind_of(const struct inventory_entry *entry)
{
    static const struct {
        const char *name;
        enum place_kind kind;
    } kinds[] = {{"gpu", PLACE_GPU}, {"accel", PLACE_ACCELERATOR}, {"cpu", PLACE_CPU}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(kinds[i].name, device_kind(&entry->info)) == 0) {
            return kinds[i].kind;
        }
    }
    return PLACE_OTHER;
}

static struct config_device said_of(const struct agent *agent, const struct inventory_entry *entry)
{
    struct config_device said;

    config_device(&agent->config, entry->name, kind_of(entry), entry->key.device, &said);
    return said;
}

uint64_t settings_memory(const struct agent *agent, const struct inventory_entry *entry)
{
    return said_of(agent, entry).memory;
}

/**
 * A guess where nobody says: units and clock, and that a unit of a GPU does many times what one of
 * a CPU does. 1000 is 60 units of a GPU at 1 GHz.
 */
static uint32_t guess_speed(const struct inventory_entry *entry, enum place_kind kind)
{
    uint64_t groups = devinfo_scalar(&entry->info, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
    uint64_t clock = devinfo_scalar(&entry->info, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000);
    const uint64_t share = kind == PLACE_CPU ? 8 : 1;

    groups = groups < 1u << 20 ? groups : 1u << 20;
    clock = clock && clock < 1u << 20 ? clock : 1000;
    uint64_t speed = groups * clock / 60 / share;
    return (uint32_t)(speed < 1 ? 1 : speed < 1000000 ? speed : 1000000);
}

void settings_device(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device)
{
    struct config_device said = said_of(agent, entry);

    device->kind = kind_of(entry);
    device->speed = said.speed ? said.speed : guess_speed(entry, device->kind);
    device->price = said.price ? said.price : 1000;
    device->closed = said.closed;
}

/** All that the configuration says of a program, but for what was said of it otherwise. */
static struct program_policy configured(const struct agent *agent, const struct program *program)
{
    struct program_policy policy = program->policy;
    struct config_program said;

    config_program(&agent->config, program->name, &said);
    if (!(policy.said & OVERRIDE_PRIORITY)) {
        policy.priority = said.priority;
    }
    if (!(policy.said & OVERRIDE_PREEMPTIBLE)) {
        policy.preemptible = said.preemptible;
    }
    if (!(policy.said & OVERRIDE_WAYS)) {
        policy.ways = said.ways;
    }
    if (!(policy.said & OVERRIDE_QUOTA)) {
        policy.quota = said.quota;
    }
    snprintf(policy.pinned_to, sizeof(policy.pinned_to), "%s", said.device);
    return policy;
}

void govern_named(struct agent *agent, struct program *program)
{
    program->policy.said = 0;
    program->policy = configured(agent, program);
}

void govern_configure(struct agent *agent, struct program *program)
{
    uint64_t quota = program->policy.quota;

    program->policy = configured(agent, program);
    if (program->policy.quota != quota) {
        limits_set_quota(agent, program, program->policy.quota, "the configuration set its limit");
    } else {
        programs_save(agent, program);
    }
}

void govern_reloaded(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        govern_configure(agent, program);
    }
    govern_devices(agent);
}

int govern_place(struct agent *agent, const struct device_wish *wish,
                 const struct inventory_entry **ret_entries, char *ret_error, size_t error_size)
{
    const struct inventory *inventory = &agent->devices.inventory;
    const struct governor *governor = agent->governor;
    CLEANUP(cleanup_free) struct device_fill *fills = calloc(inventory->count + 1, sizeof(*fills));
    size_t open = 0;

    for (size_t i = 0; fills && i < inventory->count; i++) {
        struct policy_device said = {0};
        settings_device(agent, &inventory->entries[i], &said);
        for (uint32_t j = 0; j < governor->ledger.count; j++) {
            const struct ledger_device *device = &governor->ledger.devices[j];
            if (strcmp(device->name, inventory->entries[i].name) == 0) {
                fills[i].memory = ledger_capacity(device);
                fills[i].used = device->reserved;
                fills[i].closed = said.closed || device->drains || device->drains_ms;
            }
        }
        fills[i].closed = fills[i].closed || !devices_shown(agent, NULL, &inventory->entries[i]);
        open += !fills[i].closed;
    }
    int result =
        device_place_by(inventory, wish, open ? fills : NULL, ret_entries, ret_error, error_size);
    for (size_t i = 0; !result && i < wish->named; i++) {
        if (govern_drains(agent, ret_entries[i]->name, ret_error, error_size)) {
            return -EBUSY;
        }
    }
    return result;
}
