#ifndef RESEAT_AGENT_CLI_RECOVER_WATCH_H
#define RESEAT_AGENT_CLI_RECOVER_WATCH_H

#include "agent/cli/recover/lost.h"

/**
 * Send heartbeats of this host to a folder of images, and recover programs of hosts whose
 * heartbeats stop, and print what happens. Does not return.
 */
void watch_run(const struct output *output, const struct recover *wanted, const char *folder);

#endif
