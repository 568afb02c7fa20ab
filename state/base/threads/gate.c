#include "state/base/threads/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/long_lock.h"
#include "state/base/threads/thread.h"

READ_MOSTLY _Atomic uint32_t gate_closed;
READ_MOSTLY atomic_bool cancel_is_used = true;

/* Polling interval of a closer that may not be woken, or may be cancelled. */
#define LOOK_NS 100000000u

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate_thread *threads;   /* guarded by list_lock */
static _Atomic uint32_t someone_left; /* counts threads that left while it was closed; a futex */
static struct long_lock closer = LONG_LOCK_INITIALIZER; /* held while the gate is closed */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
/* Libraries of the program that begin before ours may close the gate while this is still false. */
static atomic_bool barrier_works;

static long gate_futex(_Atomic uint32_t *word, int operation, uint32_t value,
                       const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

static void gate_thread_exits(void *data)
{
    struct gate_thread *thread = data;
    if (!thread->known)
        return; /* a thread of the parent's list, which a forked child does not have */
    pthread_mutex_lock(&list_lock);
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        threads = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    thread->known = false;
    thread->next = thread->previous = NULL;
    pthread_mutex_unlock(&list_lock);
    if (atomic_load_explicit(&thread->inside, memory_order_relaxed) != 0)
        gate_leave_slow(); /* the thread was cancelled in a driver */
}

static bool gate_register_barrier(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Now, because a process that has several threads waits for all processors: 10 ms and more. */
__attribute__((constructor)) static void gate_loaded(void)
{
    barrier_works = gate_register_barrier();
}

static void gate_init(void)
{
    pthread_key_create(&thread_key, gate_thread_exits);
}

static void gate_thread_known(void)
{
    pthread_once(&once, gate_init);
    pthread_mutex_lock(&list_lock);
    the_thread.gate.previous = NULL;
    the_thread.gate.next = threads;
    if (threads)
        threads->previous = &the_thread.gate;
    threads = &the_thread.gate;
    the_thread.gate.known = true;
    pthread_mutex_unlock(&list_lock);
    pthread_setspecific(thread_key, &the_thread.gate);
}

static void gate_step_out(void)
{
    atomic_store_explicit(&the_thread.gate.inside, 0, memory_order_release);
    atomic_fetch_add_explicit(&someone_left, 1, memory_order_release);
    gate_futex(&someone_left, FUTEX_WAKE, INT32_MAX, NULL);
}

void gate_enter_slow(void)
{
    if (!the_thread.gate.known)
        gate_thread_known();
    if (the_thread.gate.owner) {
        atomic_fetch_add_explicit(&the_thread.gate.inside, 1, memory_order_relaxed);
        return;
    }
    for (;;) {
        atomic_store_explicit(&the_thread.gate.inside, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&gate_closed, memory_order_seq_cst) == 0)
            return;
        gate_step_out();
        while (atomic_load_explicit(&gate_closed, memory_order_acquire) != 0)
            gate_futex(&gate_closed, FUTEX_WAIT, 1, NULL);
    }
}

void gate_leave_slow(void)
{
    atomic_fetch_add_explicit(&someone_left, 1, memory_order_release);
    gate_futex(&someone_left, FUTEX_WAKE, INT32_MAX, NULL);
}

/* Where the kernel has no private expedited membarrier, a global one, slower, does the same. */
static void gate_barrier_everywhere(void)
{
    if (barrier_works && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    /* A process that was restored from an image has to register again. */
    if (barrier_works && errno == EPERM && gate_register_barrier() &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0)
        return;
    /* No membarrier at all (a sandbox): store buffers drain in well under a millisecond. */
    clock_sleep(NS_PER_MS);
}

static bool gate_anyone_inside(void)
{
    bool inside = false;
    pthread_mutex_lock(&list_lock);
    for (struct gate_thread *t = threads; t && !inside; t = t->next)
        inside =
            t != &the_thread.gate && atomic_load_explicit(&t->inside, memory_order_acquire) != 0;
    pthread_mutex_unlock(&list_lock);
    return inside;
}

static void gate_open_for_all(void)
{
    atomic_store_explicit(&gate_closed, 0, memory_order_release);
    gate_futex(&gate_closed, FUTEX_WAKE, INT32_MAX, NULL);
    long_lock_release(&closer);
}

static int gate_close_cancellable(uint64_t deadline_ns, const atomic_bool *cancel)
{
    pthread_once(&once, gate_init);
    if (!the_thread.gate.known)
        gate_thread_known();
    if (!long_lock_take(&closer, deadline_ns)) /* another closer may be waiting for its device */
        return -ETIMEDOUT;
    atomic_store_explicit(&gate_closed, 1, memory_order_seq_cst);
    gate_barrier_everywhere();
    for (;;) {
        /* Read before the threads are looked at: if one leaves meanwhile, the wait below returns.
         */
        uint32_t seen = atomic_load_explicit(&someone_left, memory_order_acquire);
        if (!gate_anyone_inside()) {
            /* The thread that closed the gate re-enters it when it destroys objects. */
            atomic_fetch_add_explicit(&the_thread.gate.inside, 1, memory_order_relaxed);
            the_thread.gate.owner = true;
            return 0;
        }
        uint64_t now = clock_now_ns();
        if (deadline_ns != 0 && now >= deadline_ns) {
            gate_open_for_all();
            return -ETIMEDOUT;
        }
        if (cancel && atomic_load(cancel)) {
            gate_open_for_all();
            return -ECANCELED;
        }
        /* A thread that leaves wakes the closer. Without a working membarrier that wake-up may be
         * missed, so poll. */
        uint64_t wait = deadline_ns != 0 ? deadline_ns - now : 0;
        if ((!barrier_works || cancel) && (wait == 0 || wait > LOOK_NS))
            wait = LOOK_NS;
        struct timespec timeout = clock_timespec(wait);
        gate_futex(&someone_left, FUTEX_WAIT, seen, wait != 0 ? &timeout : NULL);
    }
}

/* A cancelled thread would leave the gate closed, so cancellation is held off. */
int gate_close_unless(uint64_t deadline_ns, const atomic_bool *cancel)
{
    int before = cancel_hold();
    int error = gate_close_cancellable(deadline_ns, cancel);
    if (error == 0)
        the_thread.gate.cancel = before;
    else
        cancel_allow(before);
    return error;
}

int gate_close(uint64_t deadline_ns)
{
    return gate_close_unless(deadline_ns, NULL);
}

void gate_open(void)
{
    int before = the_thread.gate.cancel;
    the_thread.gate.owner = false;
    atomic_fetch_sub_explicit(&the_thread.gate.inside, 1, memory_order_relaxed);
    gate_open_for_all();
    cancel_allow(before);
}

/* cancel_begun: some thread was or will be cancelled. cancel_settled: no thread that entered before
 * that is inside any more. */
static atomic_bool cancel_begun, cancel_settled;

void cancel_is_announced(bool announced)
{
    atomic_store(&cancel_is_used, !announced);
    if (atomic_load(&cancel_begun)) /* it began before, or is just beginning */
        atomic_store(&cancel_is_used, true);
}

void cancel_begin(void)
{
    atomic_store(&cancel_begun, true);
    atomic_store(&cancel_is_used, true);
    if (atomic_load(&cancel_settled) || gate_is_inside())
        return;
    if (gate_close(clock_now_ns() + NS_PER_S) == 0)
        gate_open();
    atomic_store(&cancel_settled, true);
}

static void gate_in_child(void)
{
    pthread_mutex_init(&list_lock, NULL);
    long_lock_init(&closer);
    atomic_store(&gate_closed, 0);
    threads = NULL;
    the_thread.gate = (struct gate_thread){0}; /* the child's one thread registers again */
}

FORK_PART = {.rank = FORK_GATE, .in_child = gate_in_child};
