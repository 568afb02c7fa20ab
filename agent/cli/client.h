#ifndef RESEAT_AGENT_CLI_CLIENT_H
#define RESEAT_AGENT_CLI_CLIENT_H

#include <signal.h>

#include "agent/cli/show/output.h"
#include "agent/config/paths.h"
#include "agent/protocol/protocol.h"
#include "agent/protocol/request.h"

/** The command line's connection to the agent. */
struct client {
    int fd; /**< -1: none. */
    struct frame_reader reader;
    char problem[PROTOCOL_TEXT_MAX]; /**< What MSG_ERROR said when a hello was refused. */
    bool canceled;                   /**< MSG_CANCEL was sent: ask_follow(). */
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

/* What verbs ask the agent. What goes wrong is said here; a verb only passes the status on. */

/** What comes while the agent carries out something long. */
struct news {
    /** True: it is not the answer yet, and was told. NULL: progress and notices are not told. */
    bool (*take)(void *context, const struct message *message);
    void *context;
    bool cancels; /**< Ctrl-C has the agent cancel it; a second one ends this process. */
    void (*canceling)(void *context); /**< It was told so; or NULL. */
};

struct question {
    const char *type;    /**< MSG_..., of the answer. */
    const char *what;    /**< What the agent is to do, in messages: "list devices". */
    bool launch;         /**< Start an agent where none runs. */
    int timeout_ms;      /**< For the answer, without news. */
    const char *members; /**< What of the answer --json prints, as output_add_members(). */
    /** Prints the answer for people; returns an exit status. */
    int (*print)(const struct output *output, const json_t *answer);
    const struct news
        *news; /**< It may take long: the answer is waited for as ask_follow() does. */
};

/**
 * Root asks the agent of @user from now on, a name or a number: what ask_connect() connects to. It
 * is not started where none runs. Returns 0, or an exit status after having said what is wrong.
 */
MUST_CHECK int ask_for_user(const struct output *output, const char *user);

/**
 * Connect to the agent; returns 0, or an exit status after having said why not.
 *
 * @ret_client  To be given to client_close() either way.
 */
MUST_CHECK int ask_connect(const struct output *output, bool launch, const char *what,
                           struct client *ret_client);

/**
 * Connect, send @frame and finish it, wait for the answer, disconnect.
 *
 * @ret_answer  On success the answer, to be given to json_decref().
 * Returns 0, or an exit status after having said what is wrong.
 */
MUST_CHECK int ask(const struct output *output, const struct question *question,
                   struct frame *frame, json_t **ret_answer);
/** The same, and print the answer as the question says. Returns an exit status. */
MUST_CHECK int ask_print(const struct output *output, const struct question *question,
                         struct frame *frame);

/**
 * Send @frame and finish it, and wait for the answer for as long as the agent is alive.
 *
 * @frame  NULL: it was sent, and has one more answer.
 * Returns 1 and the answer, or -errno for output_fail_agent().
 */
MUST_CHECK int ask_follow(struct client *client, struct frame *frame, const struct news *news,
                          struct message *ret_message);

/** SIGINT, SIGTERM and SIGHUP wait from now on. */
void ask_block_signals(sigset_t *ret_blocked);

/** Begin the frame of what is asked of the program @app; cut where that is longer than any name. */
void ask_request(struct frame *ret_frame, const char *type, const char *app, struct request *asked);
void ask_put_texts(struct frame *frame, const char *key, const char *const *texts, size_t count);
/** Put the environment of OpenCL's drivers into a question. */
void ask_put_environment(struct frame *frame);

#endif
