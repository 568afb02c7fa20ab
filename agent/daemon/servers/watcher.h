#ifndef RESEAT_AGENT_DAEMON_SERVERS_WATCHER_H
#define RESEAT_AGENT_DAEMON_SERVERS_WATCHER_H

#include <uv.h>

#include "state/server/news.h"

/*
 * A process that probes one device server (remote/watch/), so that the agent never blocks on a
 * server.
 */

struct watcher;

/** Callbacks of a watcher. Not called after watcher_drop(). */
struct watcher_events {
    /** The watcher has probed its server. */
    void (*told)(void *data, const struct server_news *news);
    /** The process ended, or is of another version than the agent; the watcher is already dropped.
     */
    void (*ended)(void *data, bool other_version);
};

/**
 * Start the process.
 *
 * @arguments  The program's path and its arguments, ending with NULL.
 * Returns 0 or -errno (the process cannot be started).
 */
MUST_CHECK int watcher_start(uv_loop_t *loop, char *const *arguments,
                             const struct watcher_events *events, void *data,
                             struct watcher **ret_watcher);
/** Ask for a probe now. @devices: the watcher also lists the devices again. */
void watcher_ask(struct watcher *watcher, bool devices);
/** End the process. The memory is freed when the process has exited. NULL is allowed. */
void watcher_drop(struct watcher *watcher);

#endif
