#ifndef RESEAT_AGENT_DAEMON_PEERS_H
#define RESEAT_AGENT_DAEMON_PEERS_H

#include "agent/daemon/agent.h"

/** What is at the other end of a connection, as its hello says. */
enum peer_role { PEER_UNKNOWN, PEER_PROGRAM, PEER_CLIENT };

/** One connection: a program or a client. Destroyed when its socket is closed. */
struct peer {
    struct peer *next;
    struct agent *agent;
    uv_pipe_t pipe;
    pid_t pid; /**< From SO_PEERCRED, as the user is. */
    uid_t uid;
    struct frame_reader reader;
    enum peer_role role;
    bool closing;
    bool broken; /**< Sending to it failed: the connection is closed as soon as the loop runs. */
    /** Type of its last request, for the event of a refusal; NULL: none, or a dry run. */
    const char *request;
    bool follows;            /**< It is sent each event (event_log.h). */
    struct program *program; /**< The program at the other end; NULL for a client. */
    struct message pending;  /**< A request that waits for a listing of the devices. */
    bool is_pending;
    bool retried; /**< The list of devices was already made anew once for the pending request. */
    uint64_t since_ms;
    uint64_t number; /**< Sequence number of the connection, from 1. */
};

/** Start to accept connections on the agent's socket. Returns 0 or -errno. */
MUST_CHECK int peers_listen(struct agent *agent);

/**
 * Finish @frame and queue it for sending. Where the peer does not read, or the frame is faulty, the
 * connection ends when the loop runs again: this function closes and frees no peer.
 */
void peer_send(struct peer *peer, struct frame *frame);
void peer_error(struct peer *peer, const char *code, const char *format, ...) PRINTF(3, 4);
void peer_close(struct peer *peer);

/**
 * Keep @message until the listing of the devices has ended, then handle it again. Takes @message.
 */
void peer_wait_for_devices(struct peer *peer, struct message *message);
/**
 * A listing of the devices has ended, successfully or not: handle the messages that wait for it.
 */
void peers_devices_ready(struct agent *agent);
/** Close connections on which no hello came in time. */
void peers_sweep(struct agent *agent);

#endif
