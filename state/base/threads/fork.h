#ifndef RESEAT_STATE_BASE_THREADS_FORK_H
#define RESEAT_STATE_BASE_THREADS_FORK_H

#include <pthread.h>

/*
 * The program forks. The child has the thread that forked, and of the others what they were in the
 * middle of. Each module with a lock, a thread or anything else that is one process's says so
 * beside it, with FORK_PART, and nowhere else.
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
