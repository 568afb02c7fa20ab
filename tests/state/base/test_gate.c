#include "tests/support/cases.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/thread.h"

#define THREADS 6

static atomic_bool stop;
static atomic_int owned;      /* set while a mover believes that it is alone */
static atomic_int trespasses; /* program threads that were inside meanwhile */
static _Atomic uint64_t passes;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *program_thread(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        gate_enter();
        if (atomic_load_explicit(&owned, memory_order_relaxed))
            atomic_fetch_add(&trespasses, 1);
        gate_leave();
        atomic_fetch_add_explicit(&passes, 1, memory_order_relaxed);
    }
    return NULL;
}

Test(gate, g1_a_mover_owns_everything_while_it_has_the_gate_closed)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, program_thread, NULL);
    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(gate_close(0), 0);
        atomic_store(&owned, 1);
        for (int spin = 0; spin < 50; spin++)
            sched_yield();
        atomic_store(&owned, 0);
        gate_open();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(atomic_load(&trespasses), 0);
    cr_assert_gt(atomic_load(&passes), 1000);
}

static atomic_bool inside, go_on;

static void *sits_inside(void *unused)
{
    (void)unused;
    gate_enter();
    atomic_store(&inside, true);
    while (!atomic_load(&go_on))
        sched_yield();
    gate_leave();
    return NULL;
}

Test(gate, closing_gives_up_at_its_deadline_and_leaves_the_gate_open)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sits_inside, NULL);
    while (!atomic_load(&inside))
        sched_yield();
    cr_assert_eq(gate_close(now_ns() + 30000000), -ETIMEDOUT);
    gate_enter(); /* would block for ever, were it still closed */
    gate_leave();
    atomic_store(&go_on, true);
    pthread_join(thread, NULL);
    cr_assert_eq(gate_close(now_ns() + 5000000000), 0);
    gate_open();
}

static void *ends_inside(void *unused)
{
    (void)unused;
    gate_enter();
    atomic_store(&inside, true);
    while (!atomic_load(&go_on))
        sched_yield();
    return NULL;
}

static _Atomic int closing;
static void *closes(void *unused)
{
    (void)unused;
    atomic_store(&closing, gettid());
    cr_assert_eq(gate_close(0), 0);
    gate_open();
    return NULL;
}

/* Until the thread sleeps in the kernel: it looks no more by itself. */
static void wait_until_asleep(int thread)
{
    char path[64], text[512], *state;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    do {
        FILE *file = fopen(path, "r");
        cr_assert_not_null(file);
        cr_assert_not_null(fgets(text, sizeof(text), file));
        fclose(file);
        state = strrchr(text, ')');
    } while (!state || strncmp(state, ") S", 3) != 0);
}

/* Nobody else comes by who would wake it, and it has no deadline. */
static void closer_is_woken_by(void *(*leaves)(void *))
{
    pthread_t closer, leaver;
    pthread_create(&leaver, NULL, leaves, NULL);
    while (!atomic_load(&inside))
        sched_yield();
    pthread_create(&closer, NULL, closes, NULL);
    while (!atomic_load(&closing) || !atomic_load(&gate_closed))
        sched_yield();
    wait_until_asleep(atomic_load(&closing));
    atomic_store(&go_on, true);
    pthread_join(leaver, NULL);
    pthread_join(closer, NULL);
}

TestCall(gate, a_closer_is_woken_by_the_last_who_leaves, closer_is_woken_by(sits_inside),
         .timeout = 20);
TestCall(gate, a_closer_is_woken_by_a_thread_that_ends_inside, closer_is_woken_by(ends_inside),
         .timeout = 20);

Test(gate, a_driver_that_calls_back_in_enters_twice)
{
    gate_enter();
    gate_enter();
    cr_assert(gate_is_inside());
    gate_leave();
    cr_assert(gate_is_inside());
    gate_leave();
    cr_assert_not(gate_is_inside());
}

static void *enters_and_marks(void *flag)
{
    gate_enter();
    atomic_store((atomic_bool *)flag, true);
    gate_leave();
    return NULL;
}

Test(gate, who_closed_it_may_pass_and_others_wait)
{
    atomic_bool entered = false;
    pthread_t thread;
    cr_assert_eq(gate_close(0), 0);
    gate_enter(); /* destroying an object under a closed gate comes through here */
    gate_leave();
    pthread_create(&thread, NULL, enters_and_marks, &entered);
    struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
    cr_assert_not(atomic_load(&entered));
    gate_open();
    pthread_join(thread, NULL);
    cr_assert(atomic_load(&entered));
}

static void *comes_and_goes(void *unused)
{
    (void)unused;
    gate_enter();
    gate_leave();
    return NULL;
}

Test(gate, threads_that_ended_are_not_waited_for)
{
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, comes_and_goes, NULL);
        if (i % 2)
            pthread_join(thread, NULL);
        else
            pthread_detach(thread);
        cr_assert_eq(gate_close(now_ns() + 5000000000), 0);
        gate_open();
    }
}

/* The child's other thread is inside, for ever: a closer must see it. */
static void *closes_beside_it(void *unused)
{
    (void)unused;
    pthread_t thread;
    pthread_create(&thread, NULL, sits_inside, NULL);
    while (!atomic_load(&inside))
        sched_yield();
    atomic_store(&owned, 1);
    while (atomic_load(&owned) != 2)
        sched_yield();
    usleep(50000); /* the forking thread's destructors */
    _exit(gate_close(now_ns() + 100000000) == -ETIMEDOUT ? 0 : 1);
}

Test(gate, the_thread_that_forked_ends_without_hiding_the_others)
{
    int status = -1;
    cr_assert_eq(fork_watch(), 0);
    gate_enter();
    gate_leave();
    pid_t child = fork();
    if (child == 0) {
        pthread_t closer;
        pthread_create(&closer, NULL, closes_beside_it, NULL);
        while (atomic_load(&owned) != 1)
            sched_yield();
        atomic_store(&owned, 2);
        pthread_exit(NULL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *cancels(void *unused)
{
    (void)unused;
    cancel_begin();
    cr_assert(atomic_load(&go_on), "a thread is inside that did not hold off its cancellation");
    atomic_store(&owned, 1);
    return NULL;
}

/* Twice: a second one is as early as the first. */
Test(gate, who_cancels_the_first_thread_waits_for_those_that_are_inside)
{
    pthread_t within, first, second;
    cr_assert(atomic_load(&cancel_is_used), "unless every pthread_cancel is announced");
    cancel_is_announced(true);
    cr_assert(!atomic_load(&cancel_is_used));
    pthread_create(&within, NULL, sits_inside, NULL);
    while (!atomic_load(&inside))
        sched_yield();
    pthread_create(&first, NULL, cancels, NULL);
    pthread_create(&second, NULL, cancels, NULL);
    while (!atomic_load(&cancel_is_used))
        sched_yield();
    usleep(100000);
    cr_assert_eq(atomic_load(&owned), 0);
    atomic_store(&go_on, true);
    pthread_join(within, NULL);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    cancel_is_announced(true);
    cr_assert(atomic_load(&cancel_is_used), "a thread was canceled");
}

/* A driver's call may last. */
Test(gate, who_cancels_a_thread_does_not_wait_for_long)
{
    pthread_t within;
    cancel_is_announced(true);
    pthread_create(&within, NULL, sits_inside, NULL);
    while (!atomic_load(&inside))
        sched_yield();
    cancel_begin();
    atomic_store(&go_on, true);
    pthread_join(within, NULL);
    cr_assert_eq(gate_close(now_ns() + 5000000000), 0, "it left the gate open");
    gate_open();
}
