#include "agent/daemon/govern/govern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"

int placing_choose(struct agent *agent, const struct device_wish *wish,
                   const struct inventory_entry **ret_entries, char *ret_error, size_t error_size)
{
    const struct inventory *inventory = &agent->devices.inventory;
    CLEANUP(cleanup_free) struct device_fill *fills = calloc(inventory->count + 1, sizeof(*fills));
    size_t open = 0;

    for (size_t i = 0; fills && i < inventory->count; i++) {
        struct policy_device said = {0};
        device_settings(agent, &inventory->entries[i], &said);
        for (uint32_t j = 0; j < agent->ledger.count; j++) {
            const struct ledger_device *device = &agent->ledger.devices[j];
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
    for (size_t i = 0; !result && i < wish->named; i++)
        if (drain_refuses(agent, ret_entries[i]->name, ret_error, error_size))
            return -EBUSY;
    return result;
}
