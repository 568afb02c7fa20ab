#ifndef RESEAT_AGENT_DAEMON_AGENT_H
#define RESEAT_AGENT_DAEMON_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config/config.h"
#include "agent/config/device_names.h"
#include "agent/config/paths.h"
#include "agent/daemon/devices/ledger.h"
#include "agent/protocol/protocol.h"
#include "state/base/compiler.h"
#include "state/driver/inventory.h"

/*
 * The agent: one loop, one thread. Peers (connections) own their sockets, programs are the
 * programs, operations are what is asked of programs (operations.h), devices is the list.
 */

struct peer;
struct program;
struct operation;
struct governor;
struct cost_book;
struct server;
struct agent;

/** What happens below, for what is above: set once, before anything does. */
struct agent_events {
    /** @peer said something. May take @message. */
    void (*message)(struct peer *peer, struct message *message);
    /** The connection is closed: who refers to @peer forgets it. */
    void (*peer_closed)(struct peer *peer);
    /** The list of devices was made anew, or that failed (devices.problem). */
    void (*devices_listed)(struct agent *agent);
    /** What servers show of theirs is another. */
    void (*devices_changed)(struct agent *agent);
    /** Its state is another; `since_ms` is still when the one before began. */
    void (*server_changed)(struct agent *agent, struct server *server);
    /** The configuration does not name it any more, or does again. */
    void (*server_leaves)(struct agent *agent, struct server *server, bool leaves);
    /** The program's connection ended. It may come back. */
    void (*program_lost)(struct agent *agent, struct program *program);
    /** It can answer no more: it ended, or did not come back. */
    void (*program_unreachable)(struct agent *agent, struct program *program, bool ended);
    /** It is removed: who refers to it forgets it. */
    void (*program_removed)(struct agent *agent, struct program *program);
};
/** Those of the agent, in events.c. */
extern const struct agent_events agent_events;

struct devices {
    struct device_names names;
    struct inventory inventory;
    char names_path[PATH_MAX];
    char inventory_path[PATH_MAX];
    char fresh_path[PATH_MAX]; /**< Where the lister writes. */
    char own_path[PATH_MAX];   /**< What the last listing showed, and nothing of other environments;
                                    "" before. Its name tells the content, which never changes. */
    char *environment;         /**< Of the last listing, as environment_for_lister() takes it. */
    char *wanted;              /**< Of the listing in progress. */
    uint64_t listed_ms;        /**< When, by uv_now(); 0: never. */
    char problem[256];         /**< Why the last listing failed, or "". */
    bool listing;
    bool hung;
    uv_process_t lister;
    uv_timer_t timeout;
    uint64_t timeout_ms;
};

/** The server of isolated programs: isolation.h. */
struct isolation {
    bool listens, runs;
    int fd;            /**< Where it listens. */
    uint64_t ended_ms; /**< When the last one did, or it was tried, by uv_now(). */
    uv_poll_t poll;
    uv_process_t server;
};

struct agent {
    const struct agent_events *events;
    uv_loop_t loop;
    uv_pipe_t listener;
    uv_timer_t sweep;
    uv_signal_t terminate[2];
    uv_signal_t hangup;
    struct paths paths;
    char programs_folder[PATH_MAX];
    struct peer *peers;
    unsigned peer_count;
    uint64_t connected; /**< Peers that ever did. */
    struct program *programs;
    unsigned next_program;
    struct operation *operations;
    uint64_t next_operation;
    struct devices devices;
    struct isolation isolation;
    struct server *servers; /**< In the order in which they came. */
    unsigned server_count;
    uint64_t servers_asked_ms; /**< When they were last asked for their devices. */
    char servers_path[PATH_MAX];
    struct ledger ledger;
    bool changed;     /**< Something that the policy may answer. */
    uint64_t tickets; /**< The last that was given to who waits. */
    struct config config;
    const struct config_option *options; /**< Of the command line. */
    size_t option_count;
    char config_problem[PROTOCOL_TEXT_MAX]; /**< Why the last reading was refused, or "". */
    struct governor *governor;
    struct cost_book *costs; /**< costs/costs.h. */
    bool stopping;
};

/** One line to the agent's log: what happened, to what, what it means. */
void agent_log(const char *format, ...) PRINTF(1, 2);

/** Stop the loop; programs go on without an agent. */
void agent_stop(struct agent *agent);

/* The agent's configuration, and another one while it runs: nothing else of its state changes. */

/**
 * Read the configuration again, as the file now says. One that is wrong is refused, the one before
 * stays, and agent->config_problem says why. Both go to the log. Blocks on the file.
 *
 * @ret_error  Written on failure only.
 * Returns as config_load().
 */
int agent_reload(struct agent *agent, struct config_error *ret_error);

/** The same for a client, who is told what came of it. */
void reload_answer(struct peer *client);

#endif
