#include "state/object/lost.h"

#include "state/base/clock.h"
#include "state/base/threads/fork.h"

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards retries and retry_until of virtual devices */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

void retry_again(struct retry *retry)
{
    if (++retry->attempts < RETRY_AFTER)
        return;
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < retry->count; i++) {
        if (retry->attempts == RETRY_AFTER)
            retry->vdevs[i]->retries++;
        retry->vdevs[i]->retry_until = clock_now_ns() + LOST_RETRY_NS;
    }
    pthread_mutex_unlock(&lock);
}

void retry_end(struct retry *retry)
{
    if (retry->attempts < RETRY_AFTER)
        return;
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < retry->count; i++)
        retry->vdevs[i]->retries--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

bool retry_delays_moves(const struct vdev *vdev)
{
    pthread_mutex_lock(&lock);
    bool holds = vdev->retries != 0 && clock_now_ns() < vdev->retry_until;
    pthread_mutex_unlock(&lock);
    return holds;
}

void retry_wait(uint64_t wait_ns)
{
    uint64_t until = clock_now_ns() + wait_ns;
    pthread_mutex_lock(&lock);
    (void)clock_wait(&ended, &lock, until);
    pthread_mutex_unlock(&lock);
}

static void retry_in_child(void)
{
    for (uint32_t i = 0; i < vdevs_count(); i++)
        the_vdevs[i]->retries = 0;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock, .changed = {&ended}, .in_child = retry_in_child};
