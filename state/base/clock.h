#ifndef RESEAT_STATE_BASE_CLOCK_H
#define RESEAT_STATE_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/*
 * The host's clock, in nanoseconds: the monotonic one, which all deadlines of the product are in.
 * Thread-safe.
 */

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

uint64_t clock_now_ns(void);
static inline int64_t clock_now_ms(void)
{
    return (int64_t)(clock_now_ns() / NS_PER_MS);
}
/** As clock_now_ns(), but it goes on while the machine sleeps, and knows nothing of clock_resume():
 * how long something was for others, not to be waited for. */
uint64_t clock_boot_ns(void);
/** What the machine calls now, in milliseconds since 1970: to be shown, not to be waited for. */
uint64_t clock_wall_ms(void);

static inline struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

/**
 * A process that was restored from an image on a host, or after a start of it, whose clock is
 * behind: its own goes on from @last_ns, when it was last seen. Nothing where it is not behind.
 */
void clock_resume(uint64_t last_ns);
/** What another process of the host, which was not restored, calls @host_ns. */
uint64_t clock_of_host(uint64_t host_ns);

/** Wait for @cond, whose lock the caller holds, until @deadline_ns; 0: for ever. A thread that is
 * canceled meanwhile goes on waiting: this is no cancellation point. 0 (also for nothing, as
 * pthread_cond_wait) or ETIMEDOUT. */
int clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
/** Take @lock, which is held for a moment only, unless a thread that is stopped holds it: 0, or
 * EBUSY at @deadline_ns. By looking again and again: pthread_mutex_clocklock is unknown to
 *  ThreadSanitizer. */
int clock_lock(pthread_mutex_t *lock, uint64_t deadline_ns);
/** Sleep for as long, or until a signal comes. */
void clock_sleep(uint64_t ns);

#endif
