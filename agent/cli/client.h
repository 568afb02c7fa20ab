#ifndef RESEAT_AGENT_CLI_CLIENT_H
#define RESEAT_AGENT_CLI_CLIENT_H

#include "agent/config/paths.h"
#include "agent/wire/protocol.h"

/** The command line's connection to the agent. */
struct client {
    int fd; /**< -1: none. */
    struct frame_reader reader;
    char problem[PROTOCOL_TEXT_MAX]; /**< What MSG_ERROR said when a hello was refused. */
};

/*
 * Nothing here waits without end for an agent that is stopped or hangs: what it does not take or
 * answer in time is -ETIMEDOUT.
 */

/**
 * Connect and say hello. Returns 0, -ENOENT or -ECONNREFUSED (no agent), -EPERM (it is another
 * user's), -EPROTO (refused, see `problem`), -ETIMEDOUT (within 5 s) or another errno.
 */
MUST_CHECK int client_connect(const struct paths *paths, struct client *ret_client);
void client_close(struct client *client);

/** Send a frame and finish it. Returns 0, -ETIMEDOUT (5 s) or -errno (-EPIPE: the agent is gone).
 */
MUST_CHECK int client_send(struct client *client, struct frame *frame);

/**
 * Wait for the next frame, or for @other (a descriptor, or -1) to be readable.
 *
 * Returns 1 (a frame), 0 (@other), -ETIMEDOUT, -EPIPE (the agent is gone), -EPROTO, -errno.
 */
MUST_CHECK int client_receive(struct client *client, int timeout_ms, int other,
                              struct message *ret_message);

/**
 * The same for as long as it takes, if only the agent answers: it is asked about itself now and
 * then.
 *
 * @patience_ms  How long nothing may come.
 */
MUST_CHECK int client_follow(struct client *client, int patience_ms, int other,
                             struct message *ret_message);

/**
 * Start the user's agent and wait until it listens, for 10 s at most.
 *
 * @ret_why  On failure one line: what keeps it from starting.
 * Returns 0 or -errno.
 */
MUST_CHECK int client_launch_agent(char *ret_why, size_t why_size);

#endif
