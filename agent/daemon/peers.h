#ifndef RESEAT_AGENT_DAEMON_PEERS_H
#define RESEAT_AGENT_DAEMON_PEERS_H

#include "agent/daemon/agent.h"

/** What is at the other end of a connection, as its hello says. */
enum peer_role { PEER_UNKNOWN, PEER_PROGRAM, PEER_CLIENT };

/**
 * What a user may do beyond acting on programs of their own. Only the kernel's word about the peer
 * and the configuration decide.
 */
enum right {
    RIGHT_PROGRAMS = 1 << 0, /**< See and act on programs of other users. */
    RIGHT_DEVICES = 1 << 1,  /**< Change what devices and servers offer to all programs. */
    RIGHT_AGENT = 1 << 2,    /**< What is the agent's own user's and root's alone. */
};
#define RIGHTS_OPERATOR (RIGHT_PROGRAMS | RIGHT_DEVICES)
#define RIGHTS_ALL      (RIGHTS_OPERATOR | RIGHT_AGENT)

/** One connection: a program or a client. Destroyed when its socket is closed. */
struct peer {
    struct peer *next;
    enum peer_role role;
    uint64_t since_ms; /**< When it connected. */
    struct agent *agent;
    uv_pipe_t pipe;
    pid_t pid; /**< From SO_PEERCRED, as the user is. */
    uid_t uid;
    gid_t *groups; /**< The user's groups when it connected, from the kernel. */
    size_t group_count;
    unsigned rights; /**< Bits of enum right. */
    struct frame_reader reader;
    bool closing;
    bool broken; /**< Sending to it failed: the connection is closed as soon as the loop runs. */
    /** Type of its last request, for the event of a refusal; NULL: none, or a dry run. */
    const char *request;
    bool follows;            /**< It is sent each event (event_log.h). */
    struct program *program; /**< The program at the other end; NULL for a client. */
    struct message pending;  /**< A request that waits for a listing of the devices. */
    bool is_pending;
    bool yields;     /**< It is not read until the others have had their turn. */
    uint64_t turn;   /**< The agent's when it began to yield. */
    bool retried;    /**< The list of devices was already made anew once for the pending request. */
    uint64_t number; /**< Sequence number of the connection, from 1. */
};

/** True when @peer's user has all of @rights. */
static inline bool peer_may(const struct peer *peer, unsigned rights)
{
    return (peer->rights & rights) == rights;
}
/** True when @peer's user may see a program of @owner. */
bool peer_sees(const struct peer *peer, uid_t owner);
/**
 * Fill in who is at the other end of the socket @fd, and which rights they have. The groups belong
 * to @peer, whose agent is set. Returns false where they are no user of this agent, or on failure.
 */
bool peer_identify(struct peer *peer, int fd);
/** Set the rights of all peers by the configuration, which has changed. */
void peers_configure(struct agent *agent);

/** Start to accept connections on the agent's socket. Returns 0 or -errno. */
MUST_CHECK int peers_listen(struct agent *agent);
/** False when the agent's socket was removed, or replaced by another one: nobody can connect. */
bool peers_can_connect(const struct agent *agent);

/**
 * Connect to this agent itself, for @uid as a member of @groups: what is sent has that user's
 * rights, and counts against that user's limits. The process of that peer is the agent's.
 *
 * @ret_fd  Does not block; the caller closes it.
 * Returns 0, -EAGAIN (that user has too many connections, or there is no memory) or -errno.
 */
MUST_CHECK int peers_connect(struct agent *agent, uid_t uid, const gid_t *groups, size_t count,
                             int *ret_fd);

/**
 * Finish @frame and queue it for sending. Where the peer does not read, or the frame is faulty, the
 * connection ends when the loop runs again: this function closes and frees no peer.
 */
void peer_send(struct peer *peer, struct frame *frame);
void peer_error(struct peer *peer, const char *code, const char *format, ...) PRINTF(3, 4);
void peer_close(struct peer *peer);

/** Keep @message, which is taken, until the listing of the devices has ended. */
void peer_wait_for_devices(struct peer *peer, struct message *message);
/** A listing of the devices has ended or failed: handle the messages that wait for it. */
void peers_devices_ready(struct agent *agent);
/** Close connections on which no hello came in time. */
void peers_sweep(struct agent *agent);

#endif
