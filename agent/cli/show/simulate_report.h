#ifndef RESEAT_AGENT_CLI_SHOW_SIMULATE_REPORT_H
#define RESEAT_AGENT_CLI_SHOW_SIMULATE_REPORT_H

#include "agent/cli/show/output.h"
#include "simulate/sim.h"

/* Results of a simulation, as text and as JSON. */

struct sim_report {
    const struct sim_trace *trace;
    const struct sim_options *options;
    const struct sim_load *load;
    const struct sim_result *results; /**< Ordered by level, then by regime. */
    size_t count;
};

/** Print a table and the assumptions. Returns an exit status. */
MUST_CHECK int sim_report_print(const struct sim_report *report);
/** Add the report's members to the command's object. Returns 0 or -ENOMEM. */
MUST_CHECK int sim_report_json(const struct sim_report *report, json_t *object);

/** The table of models: printed, returning an exit status, or as a JSON array. */
MUST_CHECK int sim_models_print(const struct sim_models *models);
json_t *sim_models_json(const struct sim_models *models);

#endif
