#ifndef RESEAT_AGENT_CLI_LAUNCH_H
#define RESEAT_AGENT_CLI_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/config/paths.h"

/* Processes that the command line starts. */

/**
 * Execute words[0], without standard input.
 *
 * @output, @errors  Descriptors for the child's output and errors; -1: none.
 * @flags            As of posix_spawnattr_setflags(); no signals are blocked with SETSIGMASK.
 * Returns 0 or -errno.
 */
MUST_CHECK int launch(const char *const *words, int output, int errors, short flags,
                      pid_t *ret_child);
/** Await the child's end. False: after @limit_ms it, or with @group its group, was killed. */
bool launch_await(pid_t child, bool group, uint64_t limit_ms, int *ret_status);

/**
 * Start the user's agent and wait until it listens, for 10 s at most.
 *
 * @ret_why  On failure, one line with the reason.
 * Returns 0 or -errno.
 */
MUST_CHECK int launch_agent(char *ret_why, size_t why_size);

/**
 * Start the user's service of streams and wait until it listens, for 10 s at most. It ends a minute
 * after its last client.
 *
 * @ret_log  The file of its messages.
 * Returns 0 or -errno; -EIO: it ended at once.
 */
MUST_CHECK int launch_streams(char ret_log[PATH_MAX]);

/**
 * Find the server that opens drivers for this process and the program that it executes: the
 * agent's, or with @alone a new one, which ends with this process.
 *
 * @ret_driver   The driver that connects to servers.
 * @ret_address  Of the server. Blocks until a new server listens, seconds at most. Returns 0,
 * -ENOENT (something is not installed), -ENAMETOOLONG (the runtime folder's name), -ETIMEDOUT, or
 * -errno.
 */
MUST_CHECK int launch_isolated(const struct paths *paths, bool alone, char ret_driver[PATH_MAX],
                               char ret_address[PATH_MAX]);

#endif
