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

/** The trace, the assumptions, the models and the runs. Returns NULL without memory. */
json_t *sim_report_json(const struct sim_report *report);
/** Print @answer, as sim_report_json() made it. Returns an exit status. */
MUST_CHECK int sim_report_print(const struct sim_report *report, const json_t *answer);

/** The table of models as a JSON array, and printed from that. */
json_t *sim_models_json(const struct sim_models *models);
MUST_CHECK int sim_models_print(const struct sim_models *models, const json_t *list);

#endif
