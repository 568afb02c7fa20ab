#include "state/base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "state/base/threads/thread.h"

/* Added to the host's clock in a process that was restored from an image. */
static _Atomic uint64_t ahead;
/* Longest single wait in the kernel: a wait under way does not notice that clock_resume() has
 * shifted the clock. */
#define WAIT_NS (5 * NS_PER_S)

static uint64_t clock_host_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return clock_host_now_ns() + atomic_load_explicit(&ahead, memory_order_relaxed);
}

uint64_t clock_boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void clock_resume(uint64_t last_ns)
{
    uint64_t now = clock_now_ns();
    if (now < last_ns)
        atomic_fetch_add_explicit(&ahead, last_ns - now, memory_order_relaxed);
}

uint64_t clock_of_host(uint64_t host_ns)
{
    return host_ns + atomic_load_explicit(&ahead, memory_order_relaxed);
}

uint64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

int clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    bool far = deadline_ns > now && deadline_ns - now > WAIT_NS;
    uint64_t at = far ? now + WAIT_NS : deadline_ns, shift = atomic_load(&ahead);
    const struct timespec until = clock_timespec(at > shift ? at - shift : 0);
    int before = cancel_hold();
    int error = deadline_ns == 0 ? pthread_cond_wait(cond, lock)
                                 : pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
    cancel_allow(before);
    return far && error == ETIMEDOUT ? 0 : error;
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
