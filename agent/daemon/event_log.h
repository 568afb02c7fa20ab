#ifndef RESEAT_AGENT_DAEMON_EVENT_LOG_H
#define RESEAT_AGENT_DAEMON_EVENT_LOG_H

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/*
 * What happened to programs and devices, and who asked for it: the source of `reseat events` and of
 * the lines about this in the agent's log. The last EVENTS_MAX events, of a MiB at most, are in
 * memory; those and a few more are in two files of the state folder, so that the next agent has
 * them too. Where there is no room for another, the oldest goes of the user whose events take the
 * most: those of their programs, and of what they asked for. Without room on the disk, events are
 * lost there, and nothing else happens.
 */

#define EVENTS_MAX 4096

/** Texts are borrowed; NULL: none. */
struct event {
    const char *what;  /**< A verb ("move"), or "policy", "program", "device", "limit", ... */
    const char *state; /**< "begun", a phase, RESULT_..., the policy's action, ... */
    const struct program *program;
    const char *device;
    const char *from, *to; /**< Names of devices; "": host memory. */
    const char *reason;
    /**
     * Who asked: "command" with the process and its user, "policy", "program" (it lost its device
     * and needs another) or "agent".
     */
    const char *by;
    pid_t by_pid; /**< 0: no command. */
    uid_t by_uid;
    /* Set by event_log_add(). */
    uint64_t number; /**< From 1, over all agents that shared the files. */
    uint64_t at_ms;  /**< CLOCK_REALTIME, which may have been set back between two events. */
    bool owned;      /**< Only who may see programs of `uid` is told. */
    uid_t uid;
};

/** An event that @client asked for; NULL: that the policy did. */
struct event event_of(const struct peer *client, const char *what, const char *state);

/**
 * Read the events of earlier agents. Never fails: without memory, or a file that can be used, there
 * are fewer events.
 *
 * @folder  The state folder, or NULL: events are only kept in memory.
 */
void event_log_init(struct agent *agent, const char *folder);
void event_log_finish(struct agent *agent);
/** Have @noted called with each event from now on, before it has its number. */
void event_log_observe(struct agent *agent,
                       void (*noted)(struct agent *agent, const struct event *event));

/**
 * Number the event, keep it, send it to the clients that follow, and write a line to the agent's
 * log. Before event_log_init() nothing is done. Writes to a file, without waiting for the disk;
 * closes no peer.
 */
void event_log_add(struct agent *agent, const struct event *event);
/** An event of a program that the agent noticed. */
void event_log_program(struct agent *agent, const struct program *program, const char *state,
                       const char *reason);
/** An event of a device that the agent noticed. */
void event_log_device(struct agent *agent, const char *device, const char *state,
                      const char *reason);

/** Put "policy_moves" into an open map: @program's last 16 by the policy, newest first. */
void event_log_put_moves(const struct agent *agent, const struct program *program,
                         struct frame *frame);

/**
 * MSG_EVENTS of a client: send it the events that it may see of the last "age_ms", and with
 * "follow" all later ones. A client that follows and does not read is dropped, as peer_send() does.
 */
void events_handle(struct peer *peer, struct message *message);

#endif
