#ifndef RESEAT_AGENT_DAEMON_GOVERN_NEEDS_H
#define RESEAT_AGENT_DAEMON_GOVERN_NEEDS_H

#include "agent/daemon/programs/registry.h"

/** A thread of a program that is blocked until there is room. */
struct need {
    struct need *next; /**< In the order in which they came. */
    struct program *program;
    uint32_t seat;
    uint64_t id;
    uint64_t total;         /**< Bytes that it must be granted in all. */
    uint64_t least, wanted; /**< As MSG_NEED says. */
    bool owns;              /**< It needs them for what it has already. */
    bool failed;            /**< The driver had no more, whatever was granted. */
    uint64_t ticket;
    uint64_t since_ms;
};

/** MSG_NEED. */
void need_take(struct peer *peer, struct message *message);
/** The oldest of those of @program on those seats (as bits), or NULL. */
struct need *need_of(const struct agent *agent, const struct program *program, unsigned seats);
/** Its turn begins when that of @need did, or now where there is none (NULL). */
void need_queue(struct agent *agent, const struct need *need, struct program_device *seat);
/** Tell the program how its call goes on (WAY_...), and forget it. */
void need_answer(struct agent *agent, struct need *need, const char *way, const char *reason);
/** Answer what @program waits for on those seats. */
void needs_answer(struct agent *agent, const struct program *program, unsigned seats,
                  const char *way, const char *reason);
/** All of @program, or of everyone with NULL, unanswered. */
void needs_drop(struct agent *agent, const struct program *program);

#endif
