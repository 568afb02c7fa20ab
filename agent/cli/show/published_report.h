#ifndef RESEAT_AGENT_CLI_SHOW_PUBLISHED_REPORT_H
#define RESEAT_AGENT_CLI_SHOW_PUBLISHED_REPORT_H

#include "agent/cli/show/output.h"
#include "simulate/published.h"

/* The results of a published evaluation beside those computed again. */

/** Print tables and the assumptions. Returns an exit status. */
MUST_CHECK int published_report_print(const struct published_options *options,
                                      const struct published_all *all);
/** The assumptions and the runs. Returns NULL without memory. */
json_t *published_report_json(const struct published_options *options,
                              const struct published_all *all);

#endif
