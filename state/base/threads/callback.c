#include "state/base/threads/callback.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/thread_own.h"
#include "state/base/threads/work.h"

/* How long one job may delay the others waiting. */
#define PATIENCE_MS 20
#define THREADS_MAX 32

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted, done;
    struct callback_job *first, *last; /* these and all below: guarded by lock */
    unsigned threads, busy;
    uint64_t taken; /* jobs taken so far */
    bool timed;     /* a thread watches whether busy threads make progress */
    sigset_t mask;  /* of the thread that started the first one; constant afterwards */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .posted = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* True when jobs wait behind busy threads and none was taken for PATIENCE. Lock held. */
static bool callback_stands_still(void)
{
    uint64_t seen = pool.taken;
    uint64_t until = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
    int error = 0;
    pool.timed = true;
    while (error == 0 && pool.first && pool.busy != 0 && pool.taken == seen)
        error = clock_wait(&pool.posted, &pool.lock, until);
    pool.timed = false;
    return error != 0 && pool.first && pool.taken == seen;
}

/* Lock held, but released meanwhile: the next job to run. */
static struct callback_job *callback_take(void)
{
    for (;;)
        if (!pool.first || (pool.busy != 0 && pool.timed))
            pthread_cond_wait(&pool.posted, &pool.lock);
        else if (pool.busy == 0 || callback_stands_still())
            break;
    struct callback_job *job = pool.first;
    pool.first = job->next;
    if (!pool.first)
        pool.last = NULL;
    pool.taken++;
    return job;
}

static void *callback_thread(void *unused);

/* Lock held. */
static int callback_thread_add(void)
{
    int error = thread_start("reseat-callback", 0, callback_thread, NULL, NULL);
    if (error == 0)
        pool.threads++;
    return error;
}

/* Start a thread that watches whether busy threads make progress. Without one, the jobs wait. Lock
 * held. */
static void callback_stand_by(void)
{
    if (pool.threads > pool.busy)
        pthread_cond_signal(&pool.posted);
    else if (pool.threads < THREADS_MAX)
        (void)!callback_thread_add();
}

/* A callback of the program ended this thread. */
static void callback_thread_gone(void *unused)
{
    (void)unused;
    the_thread.in_job = false;
    pthread_mutex_lock(&pool.lock);
    pool.busy--;
    pool.threads--;
    if (pool.threads == pool.busy)
        (void)!callback_thread_add();
    pthread_cond_broadcast(&pool.done);
    pthread_mutex_unlock(&pool.lock);
}

static void callback_run_job(struct callback_job *job)
{
    pthread_cleanup_push(callback_thread_gone, NULL);
    (void)work_begin();
    the_thread.in_job = true;
    job->run(job);
    the_thread.in_job = false;
    work_end();
    pthread_cleanup_pop(0);
}

static void *callback_thread(void *unused)
{
    (void)unused;
    (void)cancel_hold(); /* the program may know this thread, from a callback */
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        struct callback_job *job = callback_take();
        pool.busy++;
        if (pool.first)
            callback_stand_by();
        pthread_mutex_unlock(&pool.lock);
        callback_run_job(job);
        pthread_mutex_lock(&pool.lock);
        pool.busy--;
        pthread_cond_broadcast(&pool.done);
    }
    return NULL;
}

int callback_start(void)
{
    pthread_mutex_lock(&pool.lock);
    int error = 0;
    if (pool.threads == 0) {
        pthread_sigmask(SIG_SETMASK, NULL, &pool.mask);
        error = callback_thread_add();
    }
    pthread_mutex_unlock(&pool.lock);
    return error;
}

void callback_post(struct callback_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&pool.lock);
    if (pool.last)
        pool.last->next = job;
    else
        pool.first = job;
    pool.last = job;
    if (pool.busy == 0)
        pthread_cond_signal(&pool.posted);
    else if (!pool.timed)
        callback_stand_by();
    pthread_mutex_unlock(&pool.lock);
}

struct ending {
    void (*gone)(void *data);
    void *data;
};

static void callback_program_gone(void *data)
{
    const struct ending *ending = data;
    (void)work_begin();
    ending->gone(ending->data);
    work_end();
}

void callback_program(void (*call)(void *data), void (*gone)(void *data), void *data)
{
    struct ending ending = {gone, data};
    sigset_t ours;
    work_end();
    pthread_cleanup_push(callback_program_gone, &ending);
    cancel_allow(PTHREAD_CANCEL_ENABLE);
    /* Ours block signals; the program's own do not, nor does what it forks and runs. */
    if (the_thread.in_job)
        pthread_sigmask(SIG_SETMASK, &pool.mask, &ours);
    call(data);
    if (the_thread.in_job)
        pthread_sigmask(SIG_SETMASK, &ours, NULL);
    (void)cancel_hold();
    pthread_cleanup_pop(0);
    (void)work_begin();
}

void callback_settle(unsigned ms)
{
    uint64_t until = clock_now_ns() + ms * NS_PER_MS;
    int error = 0;
    if (the_thread.in_job)
        return;
    pthread_mutex_lock(&pool.lock);
    while (error == 0 && (pool.first || pool.busy != 0))
        error = clock_wait(&pool.done, &pool.lock, until);
    pthread_mutex_unlock(&pool.lock);
}

static void callback_in_child(void)
{
    pool.first = pool.last = NULL;
    pool.threads = pool.busy = 0;
    pool.timed = false;
    the_thread.in_job = false;
}

FORK_PART = {.rank = FORK_TABLE,
             .long_lock = &pool.lock,
             .changed = {&pool.posted, &pool.done},
             .in_child = callback_in_child};
