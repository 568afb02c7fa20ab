#include "state/object/stay.h"

#include <time.h>

#include "state/base/fork.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* seats' stays and stay_until */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void stay_again(struct stay *stay)
{
    if (++stay->attempts < STAY_AFTER)
        return;
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < stay->count; i++) {
        if (stay->attempts == STAY_AFTER)
            stay->seats[i]->stays++;
        stay->seats[i]->stay_until = now_ns() + STAY_NS;
    }
    pthread_mutex_unlock(&lock);
}

void stay_end(struct stay *stay)
{
    if (stay->attempts < STAY_AFTER)
        return;
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < stay->count; i++)
        stay->seats[i]->stays--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

bool stay_holds(const struct seat *seat)
{
    pthread_mutex_lock(&lock);
    bool holds = seat->stays != 0 && now_ns() < seat->stay_until;
    pthread_mutex_unlock(&lock);
    return holds;
}

void stay_wait(uint64_t wait_ns)
{
    uint64_t at = now_ns() + wait_ns;
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    pthread_mutex_lock(&lock);
    (void)pthread_cond_clockwait(&ended, &lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (uint32_t i = 0; i < the_seat_count; i++)
        the_seats[i]->stays = 0;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock, .changed = {&ended}, .in_child = in_child};
