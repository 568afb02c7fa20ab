#include "state/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "state/callback.h"
#include "state/gate.h"
#include "state/log.h"

/* A move gives up within one call of a driver; a build may take its time. */
#define WORK_PATIENCE_S 30
/* Callbacks of what has ended are called still, if the program lets them. */
#define CALLBACK_PATIENCE_MS 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static unsigned working; /* threads at work; guarded by lock */
static atomic_bool over; /* written under lock */
static _Thread_local unsigned depth;

static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;
static char handler_of;              /* its address names our handler among all */
static _Thread_local bool disarming; /* the handler is taken back: that calls it */

/* The C++ ABI's: like atexit, with a name by which the handler can be taken back. */
int __cxa_atexit(void (*handler)(void *), void *data, void *owner);
void __cxa_finalize(void *owner);

bool work_begin(void)
{
    pthread_mutex_lock(&lock);
    if (depth++ == 0)
        working++;
    bool goes_on = !atomic_load(&over);
    pthread_mutex_unlock(&lock);
    return goes_on;
}

void work_end(void)
{
    if (--depth != 0)
        return;
    pthread_mutex_lock(&lock);
    if (--working == 0)
        pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&lock);
}

bool work_is_over(void)
{
    return atomic_load_explicit(&over, memory_order_relaxed);
}

static void wait_for_others(void)
{
    struct timespec until;
    unsigned own = depth != 0 ? 1 : 0;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WORK_PATIENCE_S;
    pthread_mutex_lock(&lock);
    atomic_store(&over, true);
    while (working > own && error == 0)
        error = pthread_cond_clockwait(&idle, &lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&lock);
    if (error != 0)
        log_warn("the program ends while a driver is at work: not waited for any longer");
}

static void process_ends(void *unused)
{
    (void)unused;
    if (disarming || atomic_load(&over))
        return;
    /* From a driver's own call, or a signal handler in one: nobody could leave before this does. */
    if (gate_is_inside())
        return;
    callback_settle(CALLBACK_PATIENCE_MS);
    wait_for_others();
}

void work_arm(void)
{
    pthread_mutex_lock(&arm_lock);
    if (!atomic_load(&over)) {
        disarming = true;
        __cxa_finalize(&handler_of);
        disarming = false;
        (void)__cxa_atexit(process_ends, NULL, &handler_of);
    }
    pthread_mutex_unlock(&arm_lock);
}

void work_before_fork(void)
{
    pthread_mutex_lock(&arm_lock);
}

void work_after_fork(void)
{
    pthread_mutex_unlock(&arm_lock);
}

void work_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&idle, NULL);
    pthread_mutex_init(&arm_lock, NULL);
    disarming = false;
    working = depth != 0 ? 1 : 0;
}
