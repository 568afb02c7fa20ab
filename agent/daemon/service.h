#ifndef RESEAT_AGENT_DAEMON_SERVICE_H
#define RESEAT_AGENT_DAEMON_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What systemd and its services tell each other, as sd_listen_fds(3), sd_notify(3),
 * sd_watchdog_enabled(3) and sd_journal_send(3) describe it. Without systemd there is nothing to
 * tell. One thread.
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

struct service_field {
    const char *name;
    const char *value; /**< NULL or "": the entry has no such field. */
};
/**
 * Send an entry with these fields to the journal, if stderr goes there ($JOURNAL_STREAM); line
 * breaks and other control characters of values are replaced. Does not block.
 *
 * Returns false where the journal did not take it: log it in another way.
 */
bool service_journal(const struct service_field *fields, size_t count);

/** The time after which systemd restarts an agent that does not send "WATCHDOG=1"; 0: never. */
uint64_t service_watchdog_ms(void);

#endif
