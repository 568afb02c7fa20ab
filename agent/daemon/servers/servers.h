#ifndef RESEAT_AGENT_DAEMON_SERVERS_SERVERS_H
#define RESEAT_AGENT_DAEMON_SERVERS_SERVERS_H

#include "agent/config/servers.h"
#include "agent/daemon/agent.h"
#include "agent/daemon/servers/watcher.h"

/*
 * The device servers that an operator named: where they are, how they are, and which devices they
 * have. Those are in the list of devices as any other, as long as the server is known; while it
 * cannot be reached they are lost, and programs cannot go there.
 */

enum server_state {
    SERVER_CONNECTING, /**< Nobody knows yet. */
    SERVER_UP,
    SERVER_LOST,  /**< It was up, and cannot be reached. */
    SERVER_DOWN,  /**< It was never up, since it was added or the agent began. */
    SERVER_FOUND, /**< It was announced, and there are no credentials for it: it is left alone. */
};

struct server {
    struct server *next;
    struct agent *agent;
    char name[SERVER_NAME_MAX], address[SERVER_ADDRESS_MAX];
    char file[PATH_MAX]; /**< Its devices, as its watcher last listed them. */
    bool configured;     /**< The configuration names it. */
    bool found;          /**< It was announced, and nobody named it. */
    bool leaves;         /**< It is removed when no program is on its devices any more. */
    bool tried;          /**< It was looked at since it was added, or the agent began. */
    enum server_state state;
    char code[16], problem[512]; /**< As MSG_SERVER has them; "" while it is up. */
    uint64_t round_trip_ns, read, write;
    uint64_t since_ms; /**< uv_now() when its state became that. */
    uint64_t losses;   /**< How often it was lost. */
    char ended[256];   /**< Programs that ended on its devices of late: they may have lost them. */
    uint64_t ended_ms; /**< When the last of them did. */
    char lost_with[512]; /**< Who was on its devices when it was last lost; "": it never was. */
    size_t devices;      /**< In the list. */
    struct watcher *watcher;
    uint64_t heard_ms;          /**< When its watcher last said something. */
    uint64_t start_ms, wait_ms; /**< When to start another, and how long that is put off. */
};

/** Reads the servers of the file and of the configuration. Returns 0 or -errno. */
MUST_CHECK int servers_init(struct agent *agent);
/** End all that looks after them, so that the loop can end. */
void servers_stop(struct agent *agent);
void servers_finish(struct agent *agent);
/** What follows from time. Called a few times a second. */
void servers_tick(struct agent *agent);
/** The configuration is another: begin with what is new there. events.server_leaves follows of what
 *  is not there any more. */
void servers_configure(struct agent *agent);
/** Have all list their devices again soon, if that was some time ago. */
void servers_ask(struct agent *agent);
/** Look at it now: something happened there. */
void servers_look(const struct server *server);

/** By its name, or NULL. */
struct server *servers_find(const struct agent *agent, const char *name);
/** Whose device that is; NULL: nobody's that is known. */
struct server *servers_of(const struct agent *agent, const struct inventory_entry *entry);
/** "connecting", "up", "lost", "down" or "leaving". */
const char *server_state_name(const struct server *server);
/** How a device is: "up", "draining", "drained", "lost", "leaving" or "connecting". */
const char *server_device_state(const struct server *server, const struct inventory_entry *entry);

/** True, with one line for the operator, for a device whose server cannot be reached. */
bool servers_refuse(const struct agent *agent, const char *name, char *ret_reason, size_t size);

/**
 * Begin with a server that has a valid name and address, which no other has. Kept for later agents
 * unless it is configured.
 *
 * Returns 0, -E2BIG (there are SERVERS_MAX), -ENOMEM, or why it cannot be kept.
 */
MUST_CHECK int servers_add(struct agent *agent, const char *name, const char *address,
                           bool configured, struct server **ret_server);
/** It leaves, or does not any more. Returns 0, or -errno: a later agent will not know. */
int server_set_leaves(struct server *server, bool leaves);
/** One that was found is one that an operator added, from now on. Returns 0 or -errno. */
MUST_CHECK int servers_keep(struct server *server);
/** Forget it, and its devices. Programs that are there go on, and cannot be told apart any more. */
void servers_remove(struct server *server);

/**
 * Add the devices of all servers to @inventory, which has none.
 *
 * @ret_grew  True when there are new names. Returns 0 or -ENOMEM; blocks on their files.
 */
MUST_CHECK int servers_append(struct agent *agent, struct inventory *inventory, bool *ret_grew);

#endif
