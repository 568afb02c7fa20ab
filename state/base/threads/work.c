#include "state/base/threads/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/thread_own.h"

/* A move gives up within one call of a driver. */
#define WORK_PATIENCE_S 30
/* Callbacks of what has ended are called still, if the program lets them. */
#define CALLBACK_PATIENCE_MS 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned working;             /* threads at work; guarded by lock, as are: */
static unsigned building, compiling; /* builds announced, and those of them in a compiler */
static atomic_bool over;             /* written under lock */

bool work_begin(void)
{
    pthread_mutex_lock(&lock);
    if (the_thread.work_depth++ == 0)
        working++;
    bool goes_on = !atomic_load(&over);
    pthread_mutex_unlock(&lock);
    the_thread.worked = the_thread.worked || goes_on;
    return goes_on;
}

void work_end(void)
{
    if (--the_thread.work_depth != 0)
        return;
    pthread_mutex_lock(&lock);
    if (--working == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool work_is_over(void)
{
    return atomic_load_explicit(&over, memory_order_relaxed);
}

static void work_change(unsigned *count, int by)
{
    pthread_mutex_lock(&lock);
    *count += (unsigned)by;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void work_build_announce(void)
{
    work_change(&building, 1);
}

void work_build_withdraw(void)
{
    work_change(&building, -1);
}

void work_build_begin(bool elsewhere)
{
    static unsigned most;
    pthread_mutex_lock(&lock);
    if (most == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        most = processors > 1 ? (unsigned)processors : 1;
    }
    while (!elsewhere && compiling >= most)
        pthread_cond_wait(&changed, &lock);
    compiling += !elsewhere;
    pthread_mutex_unlock(&lock);
    the_thread.builds = the_thread.worked = true;
}

void work_build_end(bool elsewhere)
{
    the_thread.builds = false;
    if (!elsewhere)
        work_change(&compiling, -1);
    work_build_withdraw();
}

/* A build may take its time. */
static void work_wait_for_builds(void)
{
    unsigned own = the_thread.builds ? 1 : 0;
    pthread_mutex_lock(&lock);
    while (building > own)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void work_wait_for_others(void)
{
    unsigned own = the_thread.work_depth != 0 ? 1 : 0;
    int error = 0;
    uint64_t until = clock_now_ns() + WORK_PATIENCE_S * NS_PER_S;
    pthread_mutex_lock(&lock);
    while (working > own && error == 0)
        error = clock_wait(&changed, &lock, until);
    pthread_mutex_unlock(&lock);
    if (thread_stay_all(until) != 0 || error != 0)
        log_warn("the program ends while a driver is at work: not waited for any longer");
}

void work_process_ends(void)
{
    /* From a driver's own call, or a signal handler in one: nobody could leave before this does. */
    if (gate_is_inside() || atomic_load(&over))
        return;
    callback_settle(CALLBACK_PATIENCE_MS);
    pthread_mutex_lock(&lock);
    atomic_store(&over, true);
    pthread_mutex_unlock(&lock);
    work_wait_for_builds();
    work_wait_for_others();
}

void work_arm(void)
{
    if (!atomic_load(&over))
        (void)atexit(work_process_ends);
}

/* The main thread's storage ends: the process does, or only the thread, by pthread_exit. */
static void work_main_thread_ends(void *unused)
{
    (void)unused;
    work_wait_for_builds(); /* a compiler registers handlers while it works */
    work_arm();
}

/* What C++ compilers call for a thread_local with a destructor. */
int __cxa_thread_atexit_impl(void (*call)(void *), void *data, void *library);
extern char library __asm__("__dso_handle") __attribute__((visibility("hidden")));

/* In the main thread when the library is loaded with the program. */
__attribute__((constructor)) static void work_loaded(void)
{
    if (gettid() == getpid())
        (void)__cxa_thread_atexit_impl(work_main_thread_ends, NULL, &library);
}

static void work_in_child(void)
{
    building = compiling = 0;
    working = the_thread.work_depth != 0 ? 1 : 0;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock, .changed = {&changed}, .in_child = work_in_child};
