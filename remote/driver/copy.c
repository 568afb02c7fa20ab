#include "remote/driver/copy.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "state/base/fork.h"
#include "state/base/thread.h"

#define THREADS_ENV "RESEAT_COPY_THREADS"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct copy *first, **last; /* These and all below: guarded by lock. */
    unsigned waiting;           /* Of them. */
    unsigned threads, idle;
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .last = &pool.first};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned threads_most;

static void in_child(void)
{
    pool.first = NULL;
    pool.last = &pool.first;
    pool.waiting = pool.threads = pool.idle = 0;
}

FORK_PART = {
    .rank = FORK_OBJECT, .lock = &pool.lock, .changed = {&pool.posted}, .in_child = in_child};

/* Half of the processors are the server's and the program's, and one copy is the caller's. */
static void choose(void)
{
    cpu_set_t processors;
    const char *asked = getenv(THREADS_ENV);
    unsigned count = 0;
    if (asked)
        count = (unsigned)strtoul(asked, NULL, 10);
    else if (sched_getaffinity(0, sizeof(processors), &processors) == 0 &&
             CPU_COUNT(&processors) > 3)
        count = (unsigned)CPU_COUNT(&processors) / 2 - 1;
    threads_most = count < COPY_THREADS_MAX ? count : COPY_THREADS_MAX;
}

unsigned copy_threads(void)
{
    pthread_once(&once, choose);
    return threads_most;
}

/* Memory of the program may be protected: its handler mends that in whichever thread comes there.
 */
static void let_faults_through(void)
{
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

static void *copy_thread(void *unused)
{
    (void)unused;
    let_faults_through();
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.first) {
            pool.idle++;
            pthread_cond_wait(&pool.posted, &pool.lock);
            pool.idle--;
        }
        struct copy *copy = pool.first;
        pool.first = copy->next;
        if (!pool.first)
            pool.last = &pool.first;
        pool.waiting--;
        pthread_mutex_unlock(&pool.lock);
        copy->run(copy);
        pthread_mutex_lock(&pool.lock);
    }
    return NULL;
}

bool copy_post(struct copy *copy)
{
    if (copy_threads() == 0)
        return false;
    pthread_mutex_lock(&pool.lock);
    if (pool.idle <= pool.waiting && pool.threads < threads_most &&
        thread_start("reseat-copy", 0, copy_thread, NULL, NULL) == 0)
        pool.threads++;
    bool there = pool.threads > 0;
    if (there) {
        copy->next = NULL;
        *pool.last = copy;
        pool.last = &copy->next;
        pool.waiting++;
        pthread_cond_signal(&pool.posted);
    }
    pthread_mutex_unlock(&pool.lock);
    return there;
}

bool copy_take_back(const struct copy *copy)
{
    pthread_mutex_lock(&pool.lock);
    struct copy **at = &pool.first;
    while (*at && *at != copy)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found) {
        *at = copy->next;
        if (!*at)
            pool.last = at;
        pool.waiting--;
    }
    pthread_mutex_unlock(&pool.lock);
    return found;
}
