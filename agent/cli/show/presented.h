#ifndef RESEAT_AGENT_CLI_SHOW_PRESENTED_H
#define RESEAT_AGENT_CLI_SHOW_PRESENTED_H

#include "agent/cli/show/output.h"
#include "state/driver/inventory.h"
#include "state/present/present.h"

/* Device information as programs see it, and the reasons, as text and as JSON. Pure. */

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

/** Append a value as text: "4096", "true", "0x3f", "1024 1024 64", "OpenCL C 1.2, OpenCL C 3.0". */
void presented_value(const struct devinfo_param *param, const struct devinfo_value *value,
                     struct words *words);
/** A value as JSON; null if there is none. Returns NULL without memory. */
json_t *presented_json(const struct devinfo_param *param, const struct devinfo_value *value);

/**
 * Add a reason to an object: "rule", "by" (names of devices), "because", and "why" as text, such as
 * "least of cpu0 4096, gpu0 256". @param: the query that the reason is about; NULL if it is about
 * something else.
 */
void presented_why_json(const struct presented *presented, const struct reason *reason,
                        const struct devinfo_param *param, json_t *object);

/** Append a version: "1.2.0". */
void presented_version(cl_version version, struct words *words);
/** Names for clGetSupportedImageFormats: "read-only", "2D array", "CL_RGBA", "CL_FLOAT". */
const char *presented_access(cl_mem_flags access);
const char *presented_image_type(cl_mem_object_type type);
const char *presented_order(cl_channel_order order);
const char *presented_data_type(cl_channel_type type);

/**
 * Print the device information that programs see, and the reasons.
 *
 * @inventory  The path of an inventory.
 * Returns an exit status.
 */
int presented_print(const struct output *output, const char *inventory);

#endif
