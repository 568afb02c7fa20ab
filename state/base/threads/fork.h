#ifndef RESEAT_STATE_BASE_THREADS_FORK_H
#define RESEAT_STATE_BASE_THREADS_FORK_H

#include <pthread.h>

/*
 * Handles forks of the program. A child that was forked before the program used OpenCL is like any
 * other program. One that was forked later may execute another program, exit, query, retain and
 * release inherited objects, and enqueue commands that are deferred; calls that reach a driver do
 * what the driver does in a child, which is little. It has no agent, so it is not moved, prewarmed,
 * protected, checkpointed or traced. What other threads were doing at the fork belongs to the
 * parent.
 *
 * So no call in a child may find a lock that a thread of the parent held, or wait for such a
 * thread. Each module with a lock, thread or descriptor that such calls use declares it with
 * FORK_PART; what only movers and the agent's requests use needs none.
 *
 * Before a fork, all locks that are only held briefly are taken, in the order gate, table, object,
 * so that what they guard is consistent in the child. Locks that are held while a driver is waited
 * for are not taken: they are new in the child, and in_child resets what they guard.
 */

enum fork_rank { FORK_GATE, FORK_TABLE, FORK_OBJECT, FORK_RANKS };

struct fork_part {
    enum fork_rank rank;
    pthread_mutex_t
        *lock; /**< Taken before the fork; or NULL. Innermost among those of its rank. */
    pthread_mutex_t *long_lock; /**< Held for long, so not taken; or NULL. */
    pthread_cond_t *changed[3]; /**< Reset in the child, where nobody waits; or NULL. */
    void (*before)(void); /**< Takes what is not a mutex; `after` is called in both processes. */
    void (*after)(void);
    void (*in_child)(void); /**< Called afterwards in the child, by rank, with all locks released:
                               the other threads do not exist. */
};

/** Defines a struct fork_part, whose initializer follows in braces: one for a file. The linker
 * collects all. */
#define FORK_PART                                                                                  \
    static const struct fork_part fork_part;                                                       \
    static const struct fork_part *const fork_part_here                                            \
        __attribute__((section("reseat_fork"), used)) = &fork_part;                                \
    static const struct fork_part fork_part

/** Install the handlers. Thread-safe; 0, or -ENOMEM each time. */
int fork_watch(void);

#endif
