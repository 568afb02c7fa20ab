#include "state/base/threads/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread_own.h"

/* Signals that an instruction raises in its own thread. If they were blocked, the kernel would end
 * the process instead of running the program's handler, which may repair the fault. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

/* ThreadSanitizer forgets a thread in the last round of destructors (thread_ended). */
#if defined(__SANITIZE_THREAD__)
#define ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#else
#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static unsigned ending; /* detached threads whose storage is being freed; guarded by lock, as is: */
static bool all_stay;   /* no detached thread ends any more */
static pthread_key_t last; /* its value counts the rounds in which its destructor was called */
static bool has_last;

/* Destructors of all keys are called in rounds, as long as some key has a value. In each, those of
 * older keys come first, as this one's does: only the last round comes after all other destructors.
 */
static void thread_ended(void *round)
{
    uintptr_t next = (uintptr_t)round + 1;
    if (next <= ROUNDS && pthread_setspecific(last, (void *)next) == 0)
        return;
    pthread_mutex_lock(&lock);
    ending--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void thread_loaded(void)
{
    has_last = pthread_key_create(&last, thread_ended) == 0;
}

static void thread_ends(void *unused)
{
    (void)unused;
    if (!the_thread.worked)
        return;
    pthread_mutex_lock(&lock);
    while (all_stay)
        pthread_cond_wait(&ended, &lock);
    ending += has_last && pthread_setspecific(last, (void *)1) == 0;
    pthread_mutex_unlock(&lock);
}

int thread_stay_all(uint64_t deadline_ns)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    all_stay = true;
    while (ending != 0 && error == 0)
        error = clock_wait(&ended, &lock, deadline_ns);
    pthread_mutex_unlock(&lock);
    return -error;
}

struct detached {
    void *(*run)(void *);
    void *data;
};

/* Also where a callback of the program ends the thread. */
static void *thread_run_detached(void *data)
{
    const struct detached detached = *(struct detached *)data;
    free(data);
    pthread_cleanup_push(thread_ends, NULL);
    (void)detached.run(detached.data);
    pthread_cleanup_pop(1);
    return NULL;
}

static int thread_create(const char *name, size_t stack, void *(*run)(void *), void *data,
                         pthread_t *ret_thread)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t blocked, before;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    if (stack != 0)
        (void)pthread_attr_setstacksize(&attributes, stack);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    error = pthread_create(&thread, &attributes, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        return -error;
    (void)pthread_setname_np(thread, name);
    *ret_thread = thread;
    return 0;
}

int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                 pthread_t *ret_thread)
{
    pthread_t thread;
    if (ret_thread)
        return thread_create(name, stack, run, data, ret_thread);
    struct detached *detached = malloc(sizeof(*detached));
    if (!detached)
        return -ENOMEM;
    *detached = (struct detached){run, data};
    int error = thread_create(name, stack, thread_run_detached, detached, &thread);
    if (error == 0)
        pthread_detach(thread);
    else
        free(detached);
    return error;
}

static void thread_in_child(void)
{
    ending = 0;
}

FORK_PART = {.rank = FORK_OBJECT, .lock = &lock, .changed = {&ended}, .in_child = thread_in_child};
