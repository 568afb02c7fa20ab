#ifndef RESEAT_AGENT_DAEMON_PEERS_H
#define RESEAT_AGENT_DAEMON_PEERS_H

#include "agent/daemon/agent.h"

/** Who is at the other end, as its hello says. */
enum peer_role { PEER_UNKNOWN, PEER_PROGRAM, PEER_CLIENT };

/** One connection: a program or a client. Destroyed when its socket is closed. */
struct peer {
    struct peer *next;
    struct agent *agent;
    uv_pipe_t pipe;
    pid_t pid; /**< From SO_PEERCRED, as is the user. */
    uid_t uid;
    struct frame_reader reader;
    enum peer_role role;
    bool closing;
    bool broken;             /**< It cannot be sent to: closed as soon as the loop runs. */
    struct program *program; /**< Of a program. */
    struct message pending;  /**< A request that waits for the list of devices. */
    bool is_pending;
    bool retried; /**< The pending request has had the list made anew once. */
    uint64_t since_ms;
    uint64_t number; /**< Of all that connected, from 1, in their order. */
};

/** Take connections on the agent's socket. Returns 0 or -errno. */
MUST_CHECK int peers_listen(struct agent *agent);

/**
 * Queue a frame and finish it. A peer that does not read, or a bad frame, ends the connection, but
 * not before the loop runs again: nothing is closed or freed here.
 */
void peer_send(struct peer *peer, struct frame *frame);
void peer_error(struct peer *peer, const char *code, const char *format, ...) PRINTF(3, 4);
void peer_close(struct peer *peer);

/** Keep @message until the list of devices is there; then handle it again. Takes it. */
void peer_wait_for_devices(struct peer *peer, struct message *message);
/** The list is there, or has failed. */
void peers_devices_ready(struct agent *agent);
/** Close what connected and said nothing for too long. */
void peers_sweep(struct agent *agent);

#endif
