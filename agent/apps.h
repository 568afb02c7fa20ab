#ifndef RESEAT_AGENT_APPS_H
#define RESEAT_AGENT_APPS_H

#include "agent/agent.h"

/** What a program last said of its (first) seat. */
struct app_status {
    bool known;
    bool suspended;
    bool moving;
    uint64_t device_bytes;
    uint64_t moves;
    uint64_t last_downtime_ns;
    uint64_t contexts, queues, memories, programs, kernels, events;
    char pinned[256];
};

/**
 * A program. Known from `reseat run` (starting) or from its own hello; kept while its process
 * lives. Each has a file in the apps folder, so that a new agent knows those that have not called
 * OpenCL yet.
 */
struct app {
    struct app *next;
    char id[32];
    char name[64];
    pid_t pid;
    uint64_t start; /**< process_start_time(). */
    uid_t uid;
    bool named;     /**< The operator chose the name: children share it. */
    bool connected; /**< Has ever been. */
    bool has_device;
    struct device_key device; /**< Where it is, was last, or will start. */
    char *environment;        /**< What decides which devices it sees; may be NULL. */
    struct app_status status;
    struct peer *peer; /**< NULL while it has no connection. */
    uint64_t lost_ms;  /**< When the connection ended. */
};

/** Programs that another agent knew and that still live. */
void apps_load(struct agent *agent);
void apps_finish(struct agent *agent);

/** Remove the programs that ended. */
void apps_sweep(struct agent *agent);

/**
 * A program that `reseat run` is about to become; takes what the operator said. @environment is
 * copied. Returns 0, -ESRCH or -ENOMEM.
 */
MUST_CHECK int apps_register(struct agent *agent, struct peer *peer, const char *name, bool named,
                             const struct device_key *device, const char *environment,
                             struct app **ret_app);

/** A program said hello on @peer. Returns 0, -ESRCH, -ENOMEM. */
MUST_CHECK int apps_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello);
void apps_disconnect(struct agent *agent, struct peer *peer);
void apps_status(struct app *app, const msgpack_object *message);

/** Keep where a program that has not started OpenCL will start. */
void apps_set_device(struct agent *agent, struct app *app, const struct device_key *device);

/**
 * Find a program of those that @peer may act on, by pid, id or name; of several of one name, one
 * that is connected.
 *
 * Returns 0, or -ESRCH or -ENOTUNIQ with a line for the operator in @ret_error.
 */
MUST_CHECK int apps_find(struct agent *agent, const struct peer *peer, const char *text,
                         struct app **ret_app, char *ret_error, size_t error_size);

/** "starting", "running", "moving", "suspended" or "away". */
const char *app_state(const struct app *app);
/** Fields of one program, into an open map. */
void app_describe(const struct agent *agent, const struct app *app, struct frame *frame);
/** The short name of the device of a program, "" when it has none or it is not listed. */
const char *app_device_name(const struct agent *agent, const struct app *app);

#endif
