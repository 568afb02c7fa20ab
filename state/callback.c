#include "state/callback.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER;
static struct callback_job *first, *last; /* guarded by lock */
static bool running;                      /* guarded by lock */

static void *callback_thread(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "reseat-callback");
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!first)
            pthread_cond_wait(&posted, &lock);
        struct callback_job *job = first;
        first = job->next;
        if (!first)
            last = NULL;
        pthread_mutex_unlock(&lock);
        job->run(job);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

int callback_start(void)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    if (!running) {
        /* Signals are the program's: none is delivered to a thread of ours. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        error = -pthread_create(&thread, NULL, callback_thread, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error == 0) {
            pthread_detach(thread);
            running = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

void callback_post(struct callback_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&lock);
    if (last)
        last->next = job;
    else
        first = job;
    last = job;
    pthread_cond_signal(&posted);
    pthread_mutex_unlock(&lock);
}

void callback_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&posted, NULL);
    first = last = NULL;
    running = false;
}
