#include "state/base/clock.h"

#include <errno.h>

uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

int clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    const struct timespec until = clock_timespec(deadline_ns);
    return deadline_ns == 0 ? pthread_cond_wait(cond, lock)
                            : pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
}

int clock_lock(pthread_mutex_t *lock, uint64_t deadline_ns)
{
    int error;
    while ((error = pthread_mutex_trylock(lock)) == EBUSY && clock_now_ns() < deadline_ns)
        clock_sleep(NS_PER_MS);
    return error;
}

void clock_sleep(uint64_t ns)
{
    const struct timespec pause = clock_timespec(ns);
    nanosleep(&pause, NULL);
}
