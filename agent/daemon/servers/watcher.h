#ifndef RESEAT_AGENT_DAEMON_SERVERS_WATCHER_H
#define RESEAT_AGENT_DAEMON_SERVERS_WATCHER_H

#include <uv.h>

#include "agent/protocol/protocol.h"
#include "state/base/compiler.h"

/*
 * A process that looks after one device server (agent/watch/), so that nothing a server does, or
 * does not do, makes the agent wait.
 */

struct watcher;

/** What comes of one. Not called once it is dropped. */
struct watcher_events {
    /** It looked: a MSG_SERVER. */
    void (*told)(void *data, const msgpack_object *map);
    /** It is gone, by itself; it is dropped already. */
    void (*ended)(void *data);
};

/**
 * @arguments  Its program's path and what that is called with, NULL at the end.
 * Returns 0 or -errno (it cannot be started).
 */
MUST_CHECK int watcher_start(uv_loop_t *loop, char *const *arguments,
                             const struct watcher_events *events, void *data,
                             struct watcher **ret_watcher);
/** Have it look now. @devices: and list the devices again. */
void watcher_ask(struct watcher *watcher, bool devices);
/** End it. Its memory goes when its process has. NULL is let be. */
void watcher_drop(struct watcher *watcher);

#endif
