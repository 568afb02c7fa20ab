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
    char problem[PROTOCOL_TEXT_MAX]; /**< Text of MSG_ERROR if the hello was refused. */
    bool canceled;                   /**< MSG_CANCEL was sent; see ask_follow(). */
};

/*
 * Nothing here waits forever for an agent that is stopped or hangs. If it does not read or answer
 * in time, functions return -ETIMEDOUT.
 */

/**
 * Connect and say hello. Returns 0, -ENOENT or -ECONNREFUSED (no agent), -EPERM (the agent is of
 * another user), -EPROTO (refused, see `problem`), -ETIMEDOUT (after 5 s) or another errno.
 */
MUST_CHECK int client_connect(const struct paths *paths, struct client *ret_client);
/** As client_connect(), but MSG_WELCOME or MSG_ERROR is still to come. -EAGAIN: busy. */
MUST_CHECK int client_say_hello(const struct paths *paths, struct client *ret_client);
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
 * As client_receive(), for a request that may take any time: as long as the agent answers
 * MSG_AGENT, which is sent to it regularly, the wait goes on.
 *
 * @patience_ms  Longest time without any frame.
 */
MUST_CHECK int client_follow(struct client *client, int patience_ms, int other,
                             struct message *ret_message);

/**
 * Connect, send @frame and finish it, and wait for the answer. Returns as client_receive().
 *
 * @ret_client  To be closed in any case.
 */
MUST_CHECK int client_ask(const struct paths *paths, struct frame *frame, int timeout_ms,
                          struct client *ret_client, struct message *ret_message);

/* Requests of verbs to the agent. These functions print errors; a verb only returns the status. */

/** Handling of frames that arrive while the agent works on a long request. */
struct news {
    /** By type, up to a row of zeros. NULL: progress and notices are ignored. */
    const struct news_row {
        const char *type;
        /** Show a frame of that type. Returns false if it is the answer. */
        bool (*show)(void *context, json_t *news);
    } * rows;
    void *context;
    bool cancels; /**< Ctrl-C makes the agent cancel the request; a second one ends this process. */
    void (*canceling)(void *context); /**< Called after the first Ctrl-C; or NULL. */
};

struct question {
    const char *type; /**< The MSG_... of the answer. */
    const char *what; /**< What the agent is asked to do, for messages: "list devices". */
    bool launch;      /**< Start an agent if none runs. */
    bool lists;       /**< The agent may have to list the devices first, which takes long. */
    const char *say;  /**< The line that ask_print() prints, as output_say() takes it. */
    /** Print the answer as text instead; returns an exit status. */
    int (*print)(const struct output *output, const json_t *answer);
    /** For a long request, whose answer is awaited as by ask_follow(); or NULL. */
    const struct news *news;
};

/** The id of a user: a name or a number. Returns 0, or an exit status after printing the reason. */
MUST_CHECK int ask_user_id(const struct output *output, const char *user, uint64_t *ret_id);
/**
 * Make ask_connect() connect to the agent of @user, a name or a number, and never start it. For
 * root.
 * Returns 0, or an exit status after printing the reason.
 */
MUST_CHECK int ask_for_user(const struct output *output, const char *user);

/**
 * Connect to the agent. Returns 0, or an exit status after printing the reason.
 *
 * @ret_client  Close it with client_close() in both cases.
 */
MUST_CHECK int ask_connect(const struct output *output, bool launch, const char *what,
                           struct client *ret_client);

/** As ask_connect() without @launch, and as client_say_hello(): the welcome is still to come. */
MUST_CHECK int ask_begin(const struct output *output, const char *what, struct client *ret_client);
/** The user of --user, if that is another one; else false. */
bool ask_is_for_user(uid_t *ret_user);

/**
 * Connect, send @frame and finish it, wait for the answer, disconnect.
 *
 * @ret_answer  On success, the answer; free it with json_decref().
 * Returns 0, or an exit status after printing the reason.
 */
MUST_CHECK int ask(const struct output *output, const struct question *question,
                   struct frame *frame, json_t **ret_answer);
/** As ask(), on a connection. @frame: as ask_follow() takes it. */
MUST_CHECK int ask_on(const struct output *output, struct client *client,
                      const struct question *question, struct frame *frame, json_t **ret_answer);
/** As ask(), and print the answer. Returns an exit status. */
MUST_CHECK int ask_print(const struct output *output, const struct question *question,
                         struct frame *frame);

/**
 * Send @frame and finish it, and wait for the answer for as long as the agent is alive.
 *
 * @frame  NULL: it was sent before, and another answer to it is awaited.
 * Returns 1 and the answer, or -errno for output_fail_agent().
 */
MUST_CHECK int ask_follow(struct client *client, struct frame *frame, const struct news *news,
                          struct message *ret_message);

/** Block SIGINT, SIGTERM and SIGHUP. */
void ask_block_signals(sigset_t *ret_blocked);

/** Start a frame of a request about program @app, whose name is cut to the field's size. */
void ask_request(struct frame *ret_frame, const char *type, const char *app, struct request *asked);
void ask_put_texts(struct frame *frame, const char *key, const char *const *texts, size_t count);
/** Ask for those members alone that are keys of @members. An older agent answers with all. */
void ask_put_fields(struct frame *frame, json_t *members);
/** Add the environment variables that OpenCL drivers read. */
void ask_put_environment(struct frame *frame);

#endif
