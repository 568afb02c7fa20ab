#ifndef RESEAT_STATE_BASE_THREADS_FORK_H
#define RESEAT_STATE_BASE_THREADS_FORK_H

#include <pthread.h>

/*
 * The program forks. A child that was forked before the program used OpenCL is a program like any
 * other. One that was forked later may execute another program, exit, ask what is known of the
 * objects that it inherited, retain and release them, and defer commands; calls that reach a driver
 * do what the driver does in a child, which natively is little. It has no agent: nothing in it is
 * moved, made ready, protected, checkpointed or traced. What other threads were doing at the fork
 * is the parent's.
 *
 * So no call may find a lock that a thread of the parent's had, or wait for such a thread. A module
 * with a lock, a thread or a descriptor that calls in a child may meet says so beside it, with
 * FORK_PART; what only movers and the agent's requests use needs none.
 *
 * Before a fork all locks are taken that nobody keeps for long, in the order gate, table, object;
 * so what they guard is whole in the child. Locks that are kept while a driver is waited for are
 * not taken: in the child they are new, and what they guard is what the part's in_child makes of
 * it.
 */

enum fork_rank { FORK_GATE, FORK_TABLE, FORK_OBJECT, FORK_RANKS };

struct fork_part {
    enum fork_rank rank;
    pthread_mutex_t *lock;      /**< Taken; or NULL. A leaf among those of its rank. */
    pthread_mutex_t *long_lock; /**< Kept for long: not taken; or NULL. */
    pthread_cond_t *changed[3]; /**< Nobody waits for them in the child; or NULL. */
    void (*before)(void);       /**< Takes what is no mutex; then `after`, in both processes. */
    void (*after)(void);
    void (*in_child)(void); /**< Then, by rank, with all locks open: the other threads are gone. */
};

/** What follows in braces is a struct fork_part: one for a file. It is found by the linker. */
#define FORK_PART                                                                                  \
    static const struct fork_part fork_part;                                                       \
    static const struct fork_part *const fork_part_here                                            \
        __attribute__((section("reseat_fork"), used)) = &fork_part;                                \
    static const struct fork_part fork_part

/** Have that done from now on. Thread-safe; 0, or -ENOMEM each time. */
int fork_watch(void);

#endif
