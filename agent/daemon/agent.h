#ifndef RESEAT_AGENT_DAEMON_AGENT_H
#define RESEAT_AGENT_DAEMON_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "agent/config/config.h"
#include "agent/config/device_names.h"
#include "agent/config/paths.h"
#include "agent/daemon/devices/ledger.h"
#include "agent/protocol/protocol.h"
#include "state/base/compiler.h"
#include "state/driver/inventory.h"

/*
 * The agent: one event loop in one thread. Peers (connections) own their sockets. An operation is a
 * request to a program (operations.h).
 */

struct peer;
struct program;
struct operation;
struct governor;
struct cost_table;
struct power;
struct event_log;
struct metrics;
struct server;
struct agent;

/** Callbacks from lower layers to higher ones. Set once, before the loop starts. */
struct agent_events {
    /** @peer sent a message. The callback may take ownership of @message. */
    void (*message)(struct peer *peer, struct message *message);
    /** The connection is closed: every part that refers to @peer drops its reference. */
    void (*peer_closed)(struct peer *peer);
    /** A listing of the devices has ended. Where it failed, devices.problem says why. */
    void (*devices_listed)(struct agent *agent);
    /** A server shows different devices than before. */
    void (*devices_changed)(struct agent *agent);
    /**
     * The server's state has changed; `since_ms` still holds the time at which the previous state
     * began.
     */
    void (*server_changed)(struct agent *agent, struct server *server);
    /** The configuration no longer names the server, or names it again. */
    void (*server_leaves)(struct agent *agent, struct server *server, bool leaves);
    /** The program's connection ended. The program may connect again. */
    void (*program_lost)(struct agent *agent, struct program *program);
    /** The program can no longer answer: it ended, or it did not connect again in time. */
    void (*program_unreachable)(struct agent *agent, struct program *program, bool ended);
    /** The program is about to be removed: every part that refers to it drops its reference. */
    void (*program_removed)(struct agent *agent, struct program *program);
};
/** The agent's callbacks, defined in events.c. */
extern const struct agent_events agent_events;

struct devices {
    struct device_names names;
    struct inventory inventory;
    char names_path[PATH_MAX];
    char inventory_path[PATH_MAX];
    char lists[PATH_MAX];      /**< Folder of own_path (paths_lists()). */
    char fresh_path[PATH_MAX]; /**< The file to which the lister writes. */
    char own_path[PATH_MAX];   /**< What the last listing showed, and nothing of other environments;
                                    "" before. Its name tells the content, which never changes. */
    char *environment;  /**< The environment of the last listing, as environment_for_lister() takes
                           it. */
    char *wanted;       /**< The environment of the listing in progress. */
    uint64_t listed_ms; /**< Time of the last listing, by uv_now(); 0: there was none. */
    char problem[256];  /**< Why the last listing failed, or "". */
    bool listing;
    bool hung;
    uv_process_t lister;
    uv_timer_t timeout;
    uint64_t timeout_ms;
};

/** The agent's part of the server of isolated programs. */
struct isolation {
    bool listens, runs;
    int fd;            /**< The listening socket. */
    uint64_t ended_ms; /**< When the last server ended, or the last start was tried, by uv_now(). */
    uv_poll_t poll;
    uv_process_t server;
};

struct agent {
    const struct agent_events *events;
    uv_loop_t loop;
    uv_pipe_t listener;
    int passed;        /**< The listening socket that systemd made and keeps; 0: none. */
    struct stat bound; /**< The file of the listening socket, if systemd did not make it. */
    uint64_t watchdog_ms, watchdog_due_ms; /**< service_watchdog_ms(), and by uv_now(). */
    uv_timer_t sweep;
    uv_signal_t terminate[2];
    uv_signal_t hangup;
    struct paths paths;
    char programs_folder[PATH_MAX];
    struct peer *peers;
    unsigned peer_count;
    unsigned peers_max; /**< Connections of all but root. */
    uv_timer_t turns;   /**< Active while a peer yields. */
    uint64_t turn;
    uint64_t connected; /**< Number of peers that have ever connected. */
    struct program *programs;
    unsigned next_program;
    struct operation *operations;
    uint64_t next_operation;
    struct devices devices;
    struct isolation isolation;
    struct server *servers; /**< In the order in which they were added. */
    unsigned server_count;
    uint64_t servers_asked_ms; /**< When the servers were last asked for their devices. */
    char servers_path[PATH_MAX];
    struct ledger ledger;
    bool changed;     /**< Something happened to which the policy may react. */
    uint64_t tickets; /**< The last ticket given to a waiting program. */
    struct config config;
    const struct config_option *options; /**< Options of the command line. */
    size_t option_count;
    char config_problem[PROTOCOL_TEXT_MAX]; /**< Why the last reading of the configuration was
                                               refused, or "". */
    struct governor *governor;
    struct cost_table *costs;    /**< costs/costs.h. */
    struct power *power;         /**< power/power.h. */
    struct event_log *event_log; /**< event_log.h. */
    struct metrics *metrics;     /**< metrics/metrics.h. */
    bool stopping;
    bool capped; /**< A program has a power cap, or had one: until then, caps cost nothing. */
};

/** True for an agent to which every user may connect. */
static inline bool agent_is_shared(const struct agent *agent)
{
    return agent->paths.shared || geteuid() == 0;
}

/** Write one line to the agent's log: what happened, to which object, and what it means. */
void agent_log(const char *format, ...) PRINTF(1, 2);

/** Stop the loop. Programs continue without an agent. */
void agent_stop(struct agent *agent);

/* Reading the agent's configuration again while it runs. */

/**
 * Read the configuration file again. A faulty configuration is refused: the previous one stays in
 * effect, and agent->config_problem says why. Both outcomes are logged. Blocks on the file.
 *
 * @ret_error  Written on failure only.
 * Returns as config_load() does.
 */
int agent_reload(struct agent *agent, struct config_error *ret_error);

/** Read the configuration again for @client, and send it the outcome. */
void reload_answer(struct peer *client);

/*
 * A device server for this user's isolated programs. The agent listens on the server's socket and
 * starts the server when a program connects, also after an earlier server was killed. The server
 * then accepts the waiting connections. It ends some time after its last session, and continues
 * when the agent ends.
 */

/**
 * Listen on the server's socket. Where a server that an earlier agent started still listens, that
 * server is kept, and the agent tries to listen again later. Returns 0 or -errno.
 */
MUST_CHECK int isolation_init(struct agent *agent);
void isolation_sweep(struct agent *agent);
/** Stop listening when the agent stops. The server continues. */
void isolation_stop(struct agent *agent);

#endif
