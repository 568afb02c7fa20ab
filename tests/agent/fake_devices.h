#ifndef RESEAT_TESTS_AGENT_FAKE_DEVICES_H
#define RESEAT_TESTS_AGENT_FAKE_DEVICES_H

#include "state/driver/inventory.h"

#define FAKE_DEVICES_MAX 64

/**
 * Make devices from "kind:name,kind:name...". What names mean: "roomy" has more memory than the
 * others, "wide" more compute units, "narrow" smaller groups.
 *
 * @icd   Of all of them.
 * @text  Changed.
 * @ret_entries  FAKE_DEVICES_MAX; what is in them is static. Returns how many.
 */
size_t fake_devices(char *text, const char *icd, struct inventory_entry *ret_entries);

#endif
