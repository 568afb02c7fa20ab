#ifndef RESEAT_AGENT_CLI_SHOW_REPORTS_H
#define RESEAT_AGENT_CLI_SHOW_REPORTS_H

#include <stdbool.h>
#include <stdio.h>

#include "agent/cli/show/output.h"
#include "simulate/published.h"
#include "simulate/sim.h"
#include "state/driver/inventory.h"
#include "state/present/present.h"

/* Longer reports of verbs, a file each. */

/** The columns of reseat ps and reseat devices. */
extern const struct table_column ps_columns[], devices_columns[];

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

/**
 * Print the stored measurements of the links of an inventory's devices, and how transfers of some
 * sizes would be done.
 *
 * @file      The inventory's path.
 * @limit_ms  Above 0: first measure in a helper process, for at most this time for each device.
 * Blocks meanwhile. Returns an exit status.
 */
int links_print(const struct output *output, const char *file, uint64_t limit_ms);

/**
 * Check all servers that the configuration or an operator named, in parallel and without an agent,
 * and print for each whether it can be used and what it lacks, as lines of `reseat doctor`.
 *
 * Blocks for ten seconds at most. Returns false if a server needs a person's action.
 */
bool server_looks(FILE *to);

/* Results of a simulation, as text and as JSON. */

struct sim_report {
    const struct sim_trace *trace;
    const struct sim_options *options;
    const struct sim_load *load;
    const struct sim_result *results; /**< Ordered by level, then by regime. */
    size_t count;
};

/** The trace, the assumptions, the models and the runs. Returns NULL without memory. */
json_t *sim_report_json(const struct sim_report *report);
/** Print @answer, as sim_report_json() made it. Returns an exit status. */
MUST_CHECK int sim_report_print(const struct sim_report *report, const json_t *answer);

/** The table of models as a JSON array, and printed from that. */
json_t *sim_models_json(const struct sim_models *models);
MUST_CHECK int sim_models_print(const struct sim_models *models, const json_t *list);

/* The results of a published evaluation beside those computed again. */

/** Print tables and the assumptions. Returns an exit status. */
MUST_CHECK int published_report_print(const struct published_options *options,
                                      const struct published_all *all);
/** The assumptions and the runs. Returns NULL without memory. */
json_t *published_report_json(const struct published_options *options,
                              const struct published_all *all);

#endif
