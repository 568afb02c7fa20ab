#ifndef RESEAT_AGENT_CLI_SHOW_PRESENTED_H
#define RESEAT_AGENT_CLI_SHOW_PRESENTED_H

#include "agent/cli/show/output.h"
#include "state/driver/inventory.h"
#include "state/present/present.h"

/* Answers of devices and the reasons for them, in words and as JSON. Pure. */

/** What explains: the devices in the order in which they met, what came of it, and why. */
struct presented {
    const struct inventory_entry **devices; /**< Borrowed, but for the array. */
    size_t count;
    struct present present;
    struct reasons reasons;
};

/**
 * What a program is told that starts where programs start by default: on the first GPU, else the
 * first device.
 *
 * @memory     Bytes, as in struct present_terms.
 * @inventory  Borrowed for as long as @ret_presented; not empty.
 * Returns 0 or -ENOMEM. @ret_presented is owned by the caller (presented_finish).
 */
MUST_CHECK int presented_build(const struct inventory *inventory, uint64_t memory,
                               struct presented *ret_presented);
void presented_finish(struct presented *presented);

/** One answer: "4096", "true", "0x3f", "1024 1024 64", "OpenCL C 1.2, OpenCL C 3.0". */
void presented_value(const struct devinfo_param *param, const struct devinfo_value *value,
                     struct words *words);
/** The same as JSON; null where there is no answer. NULL without memory. */
json_t *presented_json(const struct devinfo_param *param, const struct devinfo_value *value);

/**
 * "rule", "by" (names of devices), "because", and "why" for people, "least of cpu0 4096, gpu0 256",
 * into an object. @param: of an answer; NULL for anything else.
 */
void presented_why_json(const struct presented *presented, const struct reason *reason,
                        const struct devinfo_param *param, json_t *object);

/** "1.2.0". */
void presented_version(cl_version version, struct words *words);
/** The words of clGetSupportedImageFormats: "read-only", "2D array", "CL_RGBA", "CL_FLOAT". */
const char *presented_access(cl_mem_flags access);
const char *presented_image_type(cl_mem_object_type type);
const char *presented_order(cl_channel_order order);
const char *presented_data_type(cl_channel_type type);

/**
 * Print what programs are told of their device, and why.
 *
 * @inventory  The file of the devices that there are.
 * Returns an exit status.
 */
int presented_print(const struct output *output, const char *inventory);

#endif
