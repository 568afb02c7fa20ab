#include "remote/rings/bell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/thread.h"

#define LOOK_MS 1000

struct lookout {
    struct bell_peer *peer;
    void (*wake)(void *data);
    void *data;
    pthread_t thread;
    sem_t begun;
    int error; /* Why the thread could not start; read before `begun` is posted to. */
    atomic_bool over;
};

/* Keep no other descriptor of the program open in the thread: a copy of the write end of a pipe
 * would keep its reader waiting. */
static int lookout_have_alone(const struct owned *socket, int *ret_fd)
{
    if (unshare(CLONE_FILES) != 0)
        return -ENOSYS;
    int fd = owned_fd(socket);
    if (fd < 0)
        return -EBADF;
    if ((fd > 0 && close_range(0, (unsigned)fd - 1, 0) != 0) ||
        close_range((unsigned)fd + 1, ~0u, 0) != 0)
        return -ENOSYS;
    *ret_fd = fd;
    return 0;
}

static void *lookout_look(void *data)
{
    struct lookout *lookout = data;
    const short over = POLLHUP | POLLRDHUP | POLLERR | POLLNVAL;
    struct pollfd socket = {.events = POLLRDHUP};
    int error = lookout_have_alone(&lookout->peer->socket, &socket.fd);
    lookout->error = error;
    sem_post(&lookout->begun);
    while (error == 0 && !atomic_load(&lookout->over)) {
        if (poll(&socket, 1, LOOK_MS) > 0 && (socket.revents & over)) {
            bell_peer_end(lookout->peer, -EPIPE);
            lookout->wake(lookout->data);
            break;
        }
    }
    return NULL;
}

int lookout_create(struct bell_peer *peer, void (*wake)(void *data), void *data,
                   struct lookout **ret_lookout)
{
    struct lookout *lookout = calloc(1, sizeof(*lookout));
    if (!lookout)
        return -ENOMEM;
    lookout->peer = peer;
    lookout->wake = wake;
    lookout->data = data;
    sem_init(&lookout->begun, 0, 0);
    int error = thread_start("reseat-lookout", 0, lookout_look, lookout, &lookout->thread);
    if (error == 0) {
        while (sem_wait(&lookout->begun) != 0)
            ;
        error = lookout->error;
        if (error != 0)
            pthread_join(lookout->thread, NULL);
    }
    if (error != 0) {
        sem_destroy(&lookout->begun);
        free(lookout);
        return error;
    }
    peer->watched = true;
    *ret_lookout = lookout;
    return 0;
}

void lookout_destroy(struct lookout *lookout)
{
    if (!lookout)
        return;
    atomic_store(&lookout->over, true);
    pthread_join(lookout->thread, NULL);
    sem_destroy(&lookout->begun);
    free(lookout);
}

/* To sleep and be woken takes 10 to 50 us. Who spins for about as long before it sleeps never takes
 * more than twice the best possible time (tests/bench/bench_ring.c). */
#define SPIN_MOST_NS  50000u
#define SPIN_LEAST_NS 1000u
/* For a device's command, both sides would have to be woken, which takes 60 to 140 us on hosts with
 * GPUs, where drivers spin for the end of a command, too. */
#define SPIN_DEVICE_NS (10 * NS_PER_MS)
/* With so many processors, two threads may spin for SPIN_DEVICE_NS. */
#define PROCESSORS_ENOUGH 4
#define PAUSE_MOST        1024u
/* Checks between two readings of the clock; they take about as long as reading it does. */
#define LOOKS 32

uint64_t bell_look_first_ns = 10 * NS_PER_MS, bell_look_most_ns = 500 * NS_PER_MS;

static uint32_t bell_spin_most(enum bell_spin_for what)
{
    cpu_set_t set;
    /* Fails if the host has more processors than the set can hold. */
    int processors =
        sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : PROCESSORS_ENOUGH;
    if (processors < 2)
        return 0;
    return what == BELL_SPIN_DEVICE && processors >= PROCESSORS_ENOUGH ? SPIN_DEVICE_NS
                                                                       : SPIN_MOST_NS;
}

void bell_spin_init(struct bell_spin *spin, enum bell_spin_for what)
{
    uint32_t most_ns = bell_spin_most(what);
    *spin = (struct bell_spin){.what = what, .budget_ns = most_ns, .most_ns = most_ns, .pause = 1};
}

/* How often the kernel preempted this thread. */
static long bell_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

void bell_waiter_init(struct bell_waiter *waiter, struct bell *bell, struct bell_peer *peer)
{
    *waiter = (struct bell_waiter){.bell = bell, .peer = peer};
    bell_spin_init(&waiter->spin, BELL_SPIN_PROCESS);
}

uint64_t bell_spin_begin(struct bell_spin *spin)
{
    if (spin->budget_ns == 0 && spin->skip > 0) {
        spin->skip--;
        return 0;
    }
    if (spin->budget_ns == 0)
        spin->most_ns = bell_spin_most(spin->what); /* The program's affinity may have changed. */
    if (spin->most_ns == 0) {
        spin->budget_ns = 0;
        spin->skip = PAUSE_MOST;
        return 0;
    }
    uint64_t budget = spin->budget_ns ? spin->budget_ns : spin->most_ns;
    if (budget > SPIN_MOST_NS)
        spin->preempted = bell_preemptions();
    return budget;
}

void bell_spin_paid(struct bell_spin *spin, uint64_t took_ns)
{
    if (took_ns > SPIN_MOST_NS && bell_preemptions() != spin->preempted) {
        bell_spin_failed(spin);
        return;
    }
    uint64_t budget = spin->budget_ns - spin->budget_ns / 8;
    budget = budget > 2 * took_ns ? budget : 2 * took_ns;
    budget = budget > SPIN_LEAST_NS ? budget : SPIN_LEAST_NS;
    spin->budget_ns = budget < spin->most_ns ? (uint32_t)budget : spin->most_ns;
    spin->pause = 1;
}

void bell_spin_failed(struct bell_spin *spin)
{
    spin->budget_ns /= 2;
    if (spin->budget_ns >= SPIN_LEAST_NS)
        return;
    spin->budget_ns = 0;
    spin->skip = spin->pause;
    spin->pause = spin->pause < PAUSE_MOST ? 2 * spin->pause : PAUSE_MOST;
}

bool bell_spin_until(struct bell_spin *spin, bool (*there)(void *data), void *data)
{
    uint64_t budget = bell_spin_begin(spin);
    if (budget == 0)
        return false;
    uint64_t begin = clock_now_ns(), took = 0;
    while (took < budget) {
        for (int i = 0; i < LOOKS; i++) {
            bell_relax();
            if (there(data)) {
                bell_spin_paid(spin, clock_now_ns() - begin);
                spin->spun++;
                return true;
            }
        }
        took = clock_now_ns() - begin;
    }
    bell_spin_failed(spin);
    spin->spun_in_vain++;
    return false;
}

/* Returns 0 after a wake-up, maybe a spurious one, or ETIMEDOUT. */
static int bell_sleep_until(struct bell *bell, uint64_t until_ns)
{
    const struct timespec until = clock_timespec(until_ns);
    return syscall(SYS_futex, &bell->sleeps, FUTEX_WAIT_BITSET, 1, &until, NULL,
                   FUTEX_BITSET_MATCH_ANY) != 0 &&
                   errno == ETIMEDOUT
               ? ETIMEDOUT
               : 0;
}

/* Returns why to stop waiting, as -errno, or 0. @look_ns is when to check the peer next. */
static int bell_over(struct bell_peer *peer, uint64_t deadline_ns, uint64_t now, uint64_t *look_ns,
                     uint64_t *look_pause)
{
    int err = now >= *look_ns ? bell_peer_look(peer) : atomic_load(&peer->ended);
    if (err != 0)
        return err;
    if (now >= deadline_ns)
        return -ETIMEDOUT;
    if (now >= *look_ns) {
        *look_pause = *look_pause < bell_look_most_ns / 2 ? 2 * *look_pause : bell_look_most_ns;
        *look_ns = now + *look_pause;
    }
    return 0;
}

int bell_wait(struct bell_waiter *waiter, bool (*there)(void *data), void *data,
              uint64_t deadline_ns)
{
    struct bell *bell = waiter->bell;
    if (there(data) || bell_spin_until(&waiter->spin, there, data))
        return 0;
    uint64_t look_pause = bell_look_first_ns, look_ns = clock_now_ns() + look_pause;
    bool unwoken = false;
    for (;;) {
        atomic_store(&bell->sleeps, 1);
        int err = bell_over(waiter->peer, deadline_ns, clock_now_ns(), &look_ns, &look_pause);
        bool is_there = there(data);
        if (is_there || err != 0) {
            atomic_store_explicit(&bell->sleeps, 0, memory_order_relaxed);
            waiter->overslept += is_there && unwoken;
            return is_there ? 0 : err;
        }
        waiter->slept++;
        unwoken =
            bell_sleep_until(bell, deadline_ns < look_ns ? deadline_ns : look_ns) == ETIMEDOUT;
    }
}

void bell_ring_slow(struct bell *bell)
{
    /* Only the first of several threads makes the system call. */
    if (atomic_exchange(&bell->sleeps, 0) != 0)
        syscall(SYS_futex, &bell->sleeps, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void bell_peer_end(struct bell_peer *peer, int err)
{
    int none = 0;
    atomic_compare_exchange_strong(&peer->ended, &none, err);
}

int bell_peer_look(struct bell_peer *peer)
{
    if (peer->watched)
        return atomic_load(&peer->ended);
    struct pollfd socket = {.fd = owned_fd(&peer->socket), .events = POLLRDHUP};
    const short over = POLLHUP | POLLRDHUP | POLLERR | POLLNVAL;
    /* Without the socket, which the program has closed, the end of the peer would not be noticed.
     */
    if (socket.fd < 0 || (poll(&socket, 1, 0) > 0 && (socket.revents & over)))
        bell_peer_end(peer, -EPIPE);
    return atomic_load(&peer->ended);
}
