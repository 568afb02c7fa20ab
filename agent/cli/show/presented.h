#ifndef RESEAT_AGENT_CLI_SHOW_PRESENTED_H
#define RESEAT_AGENT_CLI_SHOW_PRESENTED_H

#include "agent/cli/show/output.h"
#include "state/driver/inventory.h"
#include "state/present/present.h"

/* Device information as programs see it, and the reasons. */

/** The devices, the information presented for them together, and the reasons. */
struct presented {
    const struct inventory_entry **devices; /**< The array is owned, its elements are borrowed. */
    size_t count;
    struct present present;
    struct reasons reasons;
};

/**
 * Compute what a program sees that starts on the default device: the first GPU, or else the first
 * device.
 *
 * @memory     Bytes, as in struct present_terms.
 * @inventory  Borrowed for as long as @ret_presented; not empty.
 * Returns 0 or -ENOMEM. @ret_presented is owned by the caller (presented_finish).
 */
MUST_CHECK int presented_build(const struct inventory *inventory, uint64_t memory,
                               struct presented *ret_presented);
void presented_finish(struct presented *presented);

/**
 * Print the device information that programs see, and the reasons.
 *
 * @inventory  The path of an inventory.
 * Returns an exit status.
 */
int presented_print(const struct output *output, const char *inventory);

#endif
