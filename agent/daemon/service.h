#ifndef RESEAT_AGENT_DAEMON_SERVICE_H
#define RESEAT_AGENT_DAEMON_SERVICE_H

#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What systemd and its services tell each other, as sd_listen_fds(3), sd_notify(3) and
 * sd_watchdog_enabled(3) describe it. Without systemd there is nothing to tell. One thread.
 */

/**
 * Take the listening socket that systemd made, at @path.
 *
 * @ret_fd  Owned by the caller, and closed when a program is executed; 0: systemd passed none.
 * Returns 0 or -EINVAL (what it passed is not that socket alone).
 */
MUST_CHECK int service_take_socket(const char *path, int *ret_fd);

/** Tell systemd @state ("READY=1"). What cannot be sent is lost. Does not block. */
void service_notify(const char *state);

/** The time after which systemd restarts an agent that does not send "WATCHDOG=1"; 0: never. */
uint64_t service_watchdog_ms(void);

#endif
