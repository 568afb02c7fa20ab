#ifndef RESEAT_STATE_BASE_CLOCK_H
#define RESEAT_STATE_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/*
 * The host's monotonic clock, in nanoseconds, which all deadlines of the product use. Thread-safe.
 */

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

uint64_t clock_now_ns(void);
static inline int64_t clock_now_ms(void)
{
    return (int64_t)(clock_now_ns() / NS_PER_MS);
}
/** As clock_now_ns(), but it also counts time while the machine sleeps, and ignores clock_resume():
 * for measuring how long something lasted for other hosts, not for deadlines. */
uint64_t clock_boot_ns(void);
/** The wall clock, in milliseconds since 1970: for display, not for deadlines. */
uint64_t clock_wall_ms(void);

static inline struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

/**
 * Call in a process that was restored from an image on a host whose clock may be behind: if so, the
 * process's clock continues from @last_ns, its last value.
 */
void clock_resume(uint64_t last_ns);
/** Convert @host_ns, a time of another process of the host that was not restored. */
uint64_t clock_of_host(uint64_t host_ns);

/** Wait for @cond, whose lock the caller holds, until @deadline_ns; 0: forever. Not a cancellation
 * point. Returns 0 (also spuriously, as pthread_cond_wait does) or ETIMEDOUT. */
int clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
/** Take @lock, which is held only briefly unless its holder was stopped: 0, or EBUSY at
 * @deadline_ns. It polls, because pthread_mutex_clocklock is unknown to ThreadSanitizer. */
int clock_lock(pthread_mutex_t *lock, uint64_t deadline_ns);
/** Sleep for as long, or until a signal comes. */
void clock_sleep(uint64_t ns);

#endif
