#include "state/command/turn.h"

#include "state/base/threads/cancel.h"
#include "state/base/threads/fork.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t free;
    uint64_t last;            /* serial number */
    _Atomic uint64_t current; /* 0: free */
} turn = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = PTHREAD_COND_INITIALIZER};

uint64_t turn_current(void)
{
    return atomic_load(&turn.current);
}

bool turn_has(const struct command *command)
{
    return command->turn != 0 && command->turn == turn_current();
}

void turn_take(struct command *command)
{
    int before = cancel_hold();
    pthread_mutex_lock(&turn.lock);
    while (!turn_has(command) && turn.current != 0)
        pthread_cond_wait(&turn.free, &turn.lock);
    if (turn.current == 0)
        turn.current = command->turn = ++turn.last;
    pthread_mutex_unlock(&turn.lock);
    cancel_allow(before);
}

void turn_end_of(uint64_t serial)
{
    pthread_mutex_lock(&turn.lock);
    if (turn.current == serial) {
        turn.current = 0;
        pthread_cond_broadcast(&turn.free);
    }
    pthread_mutex_unlock(&turn.lock);
}

void turn_end(struct command *command)
{
    if (command->turn != 0)
        turn_end_of(command->turn);
    command->turn = 0;
}

static void turn_in_child(void)
{
    turn.current = 0;
}

FORK_PART = {.rank = FORK_TABLE,
             .long_lock = &turn.lock,
             .changed = {&turn.free},
             .in_child = turn_in_child};
