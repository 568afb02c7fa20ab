#ifndef RESEAT_AGENT_DAEMON_GOVERN_FOLLOWERS_H
#define RESEAT_AGENT_DAEMON_GOVERN_FOLLOWERS_H

#include "agent/daemon/programs/registry.h"

/* Clients that follow a drain or a rebalance: told of each step, and of the end. */

struct request;

/** Steps of one rebalance, at most. */
#define BALANCE_MAX 256

/** A client that follows a drain or a rebalance. */
struct follower {
    struct follower *next;
    struct peer *client;
    bool drains;     /**< Else it balances. */
    uint32_t device; /**< That drains. */
    unsigned done, failed;
};

/** @client follows a drain of @device, or (@drains false) a rebalance; told of the end of it. */
void followers_add(struct peer *client, bool drains, uint32_t device);
/** A request of ours ended so. */
void followers_step(struct agent *agent, const struct request *request, const char *result,
                    const char *reason);
/** Who follows the drain of @device is told that there is none any more. */
void followers_undone(struct agent *agent, uint32_t device);
/** End what is done. @balance: begin a step of a rebalance; false: there is none. */
void followers_tick(struct agent *agent, bool (*balance)(struct agent *agent));
/** All of @client, or of everyone with NULL, untold. */
void followers_drop(struct agent *agent, const struct peer *client);

#endif
