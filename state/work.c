#include "state/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "state/callback.h"
#include "state/gate.h"
#include "state/log.h"
#include "state/thread.h"

/* A move gives up within one call of a driver; a build may take its time. */
#define WORK_PATIENCE_S 30
/* Callbacks of what has ended are called still, if the program lets them. */
#define CALLBACK_PATIENCE_MS 1000
/* How long a handler that a driver registered may be before ours. */
#define ARMING_NS    1000000
#define ARMING_STACK ((size_t)256 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static unsigned working; /* threads at work; guarded by lock */
static atomic_bool over; /* written under lock */
static _Thread_local unsigned depth;

static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;
static char handlers_of[2];          /* their addresses name our handler, in turn */
static unsigned armed;               /* which of them it has; guarded by arm_lock */
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
    if (!atomic_load(&over) && __cxa_atexit(process_ends, NULL, &handlers_of[armed ^ 1]) == 0) {
        disarming = true;
        __cxa_finalize(&handlers_of[armed]);
        disarming = false;
        armed ^= 1;
    }
    pthread_mutex_unlock(&arm_lock);
}

static void *arm_on(void *data)
{
    struct work_arming *arming = data;
    pthread_mutex_lock(&arming->lock);
    while (!arming->ended) {
        pthread_mutex_unlock(&arming->lock);
        work_arm();
        pthread_mutex_lock(&arming->lock);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += ARMING_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!arming->ended)
            pthread_cond_clockwait(&arming->changed, &arming->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&arming->lock);
    return NULL;
}

void work_arming_begin(struct work_arming *arming)
{
    pthread_mutex_init(&arming->lock, NULL);
    pthread_cond_init(&arming->changed, NULL);
    arming->ended = false;
    arming->started =
        thread_start("reseat-arm", ARMING_STACK, arm_on, arming, &arming->thread) == 0;
}

void work_arming_end(struct work_arming *arming)
{
    pthread_mutex_lock(&arming->lock);
    arming->ended = true;
    pthread_cond_signal(&arming->changed);
    pthread_mutex_unlock(&arming->lock);
    if (arming->started)
        pthread_join(arming->thread, NULL);
    pthread_cond_destroy(&arming->changed);
    pthread_mutex_destroy(&arming->lock);
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
