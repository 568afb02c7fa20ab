#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/command/command.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t free;
    uint64_t last;            /* serial number */
    _Atomic uint64_t current; /* 0: free */
} residency_token = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = PTHREAD_COND_INITIALIZER};

uint64_t residency_token_current(void)
{
    return atomic_load(&residency_token.current);
}

bool residency_token_has(const struct command *command)
{
    return command->residency_token != 0 && command->residency_token == residency_token_current();
}

void residency_token_take(struct command *command)
{
    pthread_mutex_lock(&residency_token.lock);
    while (!residency_token_has(command) && residency_token.current != 0)
        (void)clock_wait(&residency_token.free, &residency_token.lock, 0);
    if (residency_token.current == 0)
        residency_token.current = command->residency_token = ++residency_token.last;
    pthread_mutex_unlock(&residency_token.lock);
}

void residency_token_release_of(uint64_t serial)
{
    pthread_mutex_lock(&residency_token.lock);
    if (residency_token.current == serial) {
        residency_token.current = 0;
        pthread_cond_broadcast(&residency_token.free);
    }
    pthread_mutex_unlock(&residency_token.lock);
}

void residency_token_release(struct command *command)
{
    if (command->residency_token != 0)
        residency_token_release_of(command->residency_token);
    command->residency_token = 0;
}

static void residency_token_in_child(void)
{
    residency_token.current = 0;
}

FORK_PART = {.rank = FORK_TABLE,
             .long_lock = &residency_token.lock,
             .changed = {&residency_token.free},
             .in_child = residency_token_in_child};
