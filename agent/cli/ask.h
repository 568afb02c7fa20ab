#ifndef RESEAT_AGENT_CLI_ASK_H
#define RESEAT_AGENT_CLI_ASK_H

#include "agent/cli/client.h"
#include "agent/cli/output.h"

/* What verbs ask the agent. What goes wrong is said here; a verb only passes the status on. */

struct question {
    const char *type; /**< MSG_..., of the question and of its answer. */
    const char *what; /**< What the agent is to do, in messages: "list devices". */
    bool launch;      /**< Start an agent where none runs. */
    int timeout_ms;
    const char *members; /**< What of the answer --json prints, as output_add_members(). */
    /** Prints the answer for people; returns an exit status. */
    int (*print)(const struct output *output, const json_t *answer);
};

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

/** What comes while the agent carries out something long. */
struct news {
    void *context;
    /** True: it is not the answer yet, and was told. */
    bool (*take)(void *context, const struct message *message);
    int other; /**< A descriptor to wait for, too; -1: none. */
    /** It is readable. Returns 0 or -errno. */
    int (*on_other)(void *context, struct client *client);
};
/**
 * Send @frame and finish it, and wait for the answer for as long as the agent is alive.
 *
 * Returns 1 and the answer, or -errno for output_fail_agent().
 */
MUST_CHECK int ask_follow(struct client *client, struct frame *frame, const struct news *news,
                          struct message *ret_message);

/** Put the environment of OpenCL's drivers into a question. */
void ask_put_environment(struct frame *frame);

#endif
