#include "agent/daemon/govern/govern.h"

#include <stdio.h>

#include "agent/config/bytes.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/programs/registry.h"

void capacity_notify_more(const struct agent *agent, const struct ledger_device *device,
                          uint64_t before)
{
    char text[PROTOCOL_TEXT_MAX], bytes[32];
    uint64_t now = ledger_lasting(device);

    if (now > before) {
        bytes_text(now, bytes, sizeof(bytes));
        snprintf(text, sizeof(text), "programs may have %s of %s", bytes, device->name);
        programs_notify_added(agent, now, text);
    }
}

/** A device that is listed: one that was not before, or of which there is more, is told of. */
static void list_device(struct agent *agent, const struct inventory_entry *entry,
                        struct ledger_device *device)
{
    uint64_t before = ledger_lasting(device);
    uint64_t own = devinfo_scalar(&entry->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    uint64_t said = device_settings_memory(agent, entry);
    char text[PROTOCOL_TEXT_MAX];

    own = own && own < LEDGER_BYTES_MAX ? own : LEDGER_BYTES_MAX;
    device->own = said < own ? said : own;
    if (device->listed) {
        capacity_notify_more(agent, device, before);
    } else {
        snprintf(text, sizeof(text), "%s (%s) is there", device->name, entry->key.device);
        programs_notify_added(agent, ledger_lasting(device), text);
    }
}

void capacity_update(struct agent *agent)
{
    struct ledger *ledger = &agent->ledger;
    const struct inventory *inventory = &agent->devices.inventory;

    for (size_t i = 0; i < inventory->count; i++) {
        uint32_t index;
        if (!ledger_device(ledger, inventory->entries[i].name, &index))
            list_device(agent, &inventory->entries[i], &ledger->devices[index]);
    }
    for (uint32_t i = 0; i < ledger->count; i++)
        ledger->devices[i].listed = devices_entry(agent, i) != NULL;
    agent->changed = true;
}
