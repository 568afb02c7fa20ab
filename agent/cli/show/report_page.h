#ifndef RESEAT_AGENT_CLI_SHOW_REPORT_PAGE_H
#define RESEAT_AGENT_CLI_SHOW_REPORT_PAGE_H

#include "agent/cli/show/output.h"

/**
 * Make a page of what `reseat trace` wrote: how many commands ended in each moment, before, during
 * and after each move. One HTML file that needs nothing else.
 *
 * @trace  Read; what is no such file is refused.
 * @page   Written, over what is there.
 * Returns an exit status after having said what is wrong, or what was written.
 */
MUST_CHECK int report_page(const struct output *output, const char *trace, const char *page);

#endif
