#ifndef RESEAT_AGENT_CLI_IMAGE_CHECKPOINT_PROCESS_H
#define RESEAT_AGENT_CLI_IMAGE_CHECKPOINT_PROCESS_H

#include "agent/cli/client.h"

/* An image of a program's whole process: reseat checkpoint --process. */

struct process_wish {
    const char *app;
    const char *folder; /**< Absolute. */
    const char *criu;   /**< Or NULL: as criu_find(). */
    bool ends;          /**< The program ends once the image is there. */
    uint64_t timeout_ms;
};

/**
 * Make one, and have the program go on, whatever becomes of it. What is wrong is said.
 *
 * @ret_report  What the agent said of it, and of the image "image", "image_bytes", "image_written"
 *              and "total_ns", with "downtime_ns" during which the program stood still.
 * Returns 0, or an exit status.
 */
MUST_CHECK int checkpoint_process(const struct output *output, const struct process_wish *wish,
                                  struct client *client, json_t **ret_report);

/**
 * Have a suspended program resumed, by an agent that it may not have found yet.
 *
 * @device  NULL: where it was.
 * @queue   Wherever the policy finds room, when it does.
 * Returns 0 and the report, or an exit status, which was said.
 */
MUST_CHECK int checkpoint_resume(const struct output *output, struct client *client, pid_t pid,
                                 const char *device, bool queue, json_t **ret_report);

#endif
