#ifndef RESEAT_AGENT_DAEMON_SERVERS_SERVERS_H
#define RESEAT_AGENT_DAEMON_SERVERS_SERVERS_H

#include "agent/config/servers.h"
#include "agent/daemon/agent.h"
#include "state/server/news.h"

struct watcher;

/*
 * The device servers that an operator named: their addresses, states and devices. The list of
 * devices contains a server's devices as long as the server is known. While the server cannot be
 * reached its devices are lost, and no program can move there.
 */

enum server_state {
    SERVER_CONNECTING, /**< Not yet known whether it can be reached. */
    SERVER_UP,
    SERVER_LOST,  /**< It was up, and cannot be reached now. */
    SERVER_DOWN,  /**< It could not be reached since it was added or the agent started. */
    SERVER_FOUND, /**< It was announced, and there are no credentials for it: it is not contacted.
                   */
};

struct server {
    struct server *next;
    struct agent *agent;
    char name[SERVER_NAME_MAX], address[SERVER_ADDRESS_MAX];
    char file[PATH_MAX]; /**< Its devices, as its watcher last listed them. */
    bool configured;     /**< The configuration names it. */
    bool found;          /**< It is known from an announcement only. */
    bool leaves;         /**< It is removed when no program is on its devices any more. */
    bool tried;          /**< It was probed since it was added or the agent started. */
    enum server_state state;
    char code[16], problem[512]; /**< As in struct server_news; "" while the server is up. */
    uint64_t round_trip_ns, read, write;
    uint64_t since_ms; /**< uv_now() when its present state began. */
    uint64_t losses;   /**< How often it was lost. */
    char ended[256];   /**< Programs that ended recently on its devices: they may have ended because
                          they lost a device. */
    uint64_t ended_ms; /**< When the last of these programs ended. */
    char lost_with[512]; /**< The programs on its devices when it was last lost; "": it was never
                            lost. */
    size_t devices;      /**< Number of its devices in the list. */
    struct watcher *watcher;
    uint64_t heard_ms; /**< When its watcher last sent a message. */
    uint64_t start_ms,
        wait_ms; /**< When to start another watcher, and how long its start is delayed. */
};

/** Read the servers from the servers file and the configuration. Returns 0 or -errno. */
MUST_CHECK int servers_init(struct agent *agent);
/** Stop all watchers, so that the event loop can end. */
void servers_stop(struct agent *agent);
void servers_finish(struct agent *agent);
/** Do the timed work. Called a few times a second. */
void servers_tick(struct agent *agent);
/**
 * Apply a new configuration: add the servers that are new in it. events.server_leaves follows for
 * each server that it no longer names.
 */
void servers_configure(struct agent *agent);
/** Ask all servers to list their devices soon, unless they were asked a short time ago. */
void servers_ask(struct agent *agent);
/** Have the server probed now, because something happened there. */
void servers_look(const struct server *server);

/** Find a server by its name; NULL: there is none. */
struct server *servers_find(const struct agent *agent, const char *name);
/** The server to which the device belongs; NULL: no known server. */
struct server *servers_of(const struct agent *agent, const struct inventory_entry *entry);
/** "connecting", "up", "lost", "down" or "leaving". */
const char *server_state_name(const struct server *server);
/** The state of a device: "up", "draining", "drained", "lost", "leaving" or "connecting". */
const char *server_device_state(const struct server *server, const struct inventory_entry *entry);

/** True, with one line for the operator, for a device whose server cannot be reached. */
bool servers_refuse(const struct agent *agent, const char *name, char *ret_reason, size_t size);

/**
 * Add a server with a valid name and address, which no other server has. It is stored for later
 * agents unless the configuration names it.
 *
 * Returns 0, -E2BIG (there are SERVERS_MAX), -ENOMEM, or the error of storing it.
 */
MUST_CHECK int servers_add(struct agent *agent, const char *name, const char *address,
                           bool configured, struct server **ret_server);
/** Whether it is to be removed. Returns 0, or -errno: later agents will not know. */
int server_set_leaves(struct server *server, bool leaves);
/** Treat an announced server as one that an operator added, from now on. Returns 0 or -errno. */
MUST_CHECK int servers_keep(struct server *server);
/** Remove the server and its devices; programs on them continue, unmanaged. */
void servers_remove(struct server *server);

/**
 * Add the devices of all servers to @inventory, which must contain none of them.
 *
 * @ret_grew  True when there are new names.
 * Returns 0 or -ENOMEM. Blocks on files.
 */
MUST_CHECK int servers_append(struct agent *agent, struct inventory *inventory, bool *ret_grew);

#endif
