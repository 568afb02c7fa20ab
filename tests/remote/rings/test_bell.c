#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/remote/rings/link_rig.h"

struct scene {
    struct bell bell;
    struct bell_peer peers[2];
    struct bell_waiter waiter;
    _Atomic uint64_t happened, wanted;
    _Atomic int at_work;
};
static struct scene scene;

static void begin(void)
{
    connect_peers(&scene.peers[0], &scene.peers[1]);
    bell_waiter_init(&scene.waiter, &scene.bell, &scene.peers[0]);
}

static bool has_happened(void *data)
{
    (void)data;
    return atomic_load(&scene.happened) >= atomic_load(&scene.wanted);
}

static int await(uint64_t number, uint64_t deadline_ns)
{
    atomic_store(&scene.wanted, number);
    return bell_wait(&scene.waiter, has_happened, NULL, deadline_ns);
}

static void happens(void)
{
    atomic_fetch_add(&scene.happened, 1);
    bell_ring(&scene.bell);
}

/* Until the waiter has said that it sleeps. */
static void until_asleep(void)
{
    while (atomic_load(&scene.bell.sleeps) == 0)
        sched_yield();
}

static void on_one_processor(void)
{
    cpu_set_t all, one;
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

Test(bell, what_is_there_is_not_waited_for, .init = begin)
{
    happens();
    cr_assert_eq(await(1, 1), 0);
    cr_assert_eq(scene.waiter.slept + scene.waiter.spin.spun + scene.waiter.spin.spun_in_vain, 0);
}

Test(bell, a_wait_ends_at_its_deadline, .init = begin)
{
    uint64_t deadline = clock_now_ns() + 60 * NS_PER_MS;
    cr_assert_eq(await(1, deadline), -ETIMEDOUT);
    cr_assert_geq(clock_now_ns(), deadline);
    cr_assert_eq(atomic_load(&scene.bell.sleeps), 0);
}

static void *rings_once(void *data)
{
    (void)data;
    until_asleep();
    happens();
    return NULL;
}

Test(bell, who_sleeps_is_woken, .init = begin)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, rings_once, NULL), 0);
    cr_assert_eq(await(1, soon()), 0);
    pthread_join(thread, NULL);
}

static void *hangs_up(void *data)
{
    (void)data;
    until_asleep();
    disconnect_peer(&scene.peers[1]);
    return NULL;
}

Test(bell, a_wait_ends_when_the_peer_hangs_up, .init = begin)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, hangs_up, NULL), 0);
    cr_assert_eq(await(1, soon()), -EPIPE);
    cr_assert_eq(await(1, soon()), -EPIPE);
    happens(); /* before it went */
    cr_assert_eq(await(1, soon()), 0);
    pthread_join(thread, NULL);
}

Test(bell, a_wait_ends_when_the_program_closes_the_socket, .init = begin)
{
    close(scene.peers[0].socket.fd);
    cr_assert_eq(await(1, soon()), -EPIPE);
}

static void *wakes_for_nothing(void *data)
{
    (void)data;
    disconnect_peer(&scene.peers[1]);
    while (atomic_load(&scene.at_work)) {
        bell_ring_slow(&scene.bell);
        atomic_store(&scene.bell.sleeps, 7); /* a value that nobody waits with */
    }
    return NULL;
}

Test(bell, a_peer_that_wakes_for_nothing_holds_nobody_up, .init = begin)
{
    pthread_t thread;
    atomic_store(&scene.at_work, 1);
    cr_assert_eq(pthread_create(&thread, NULL, wakes_for_nothing, NULL), 0);
    cr_assert_eq(await(1, soon()), -EPIPE);
    atomic_store(&scene.at_work, 0);
    pthread_join(thread, NULL);
}

#define ROUNDS 50000u

static void dawdle(struct dice *dice)
{
    uint64_t what = dice_below(dice, 64);
    if (what == 0)
        clock_sleep(dice_below(dice, 200000));
    else if (what < 16)
        for (uint64_t left = dice_below(dice, 4000); left > 0; left--)
            __asm__ volatile("");
}

static void *happens_often(void *data)
{
    struct dice dice = {4};
    (void)data;
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* Not before the last one was seen: each has to be waited for. */
        while (atomic_load(&scene.wanted) != i + 1)
            sched_yield();
        dawdle(&dice);
        happens();
    }
    return NULL;
}

/* A wake-up that was lost would be made up for by the next look; that is counted. */
static void wait_often(void)
{
    pthread_t thread;
    struct dice dice = {5};
    look_late();
    cr_assert_eq(pthread_create(&thread, NULL, happens_often, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        dawdle(&dice);
        cr_assert_eq(await(i + 1, soon()), 0);
    }
    pthread_join(thread, NULL);
    cr_assert_eq(scene.waiter.overslept, 0);
    cr_assert_gt(scene.waiter.slept, 100);
}

TestCall(bell, no_wake_up_is_lost, wait_often(), .init = begin, .timeout = 200);

Test(bell, nobody_spins_on_the_only_processor, .init = begin, .timeout = 200)
{
    on_one_processor();
    bell_waiter_init(&scene.waiter, &scene.bell, &scene.peers[0]);
    wait_often();
    cr_assert_eq(scene.waiter.spin.spun + scene.waiter.spin.spun_in_vain, 0);
}

Test(bell, who_spins_in_vain_stops_trying, .init = begin)
{
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(await(1, clock_now_ns() + 1), -ETIMEDOUT);
    /* Halved six times, and then every 1, 2, 4, ... waits. */
    cr_assert_leq(scene.waiter.spin.spun_in_vain, 6 + 10);
    cr_assert_eq(scene.waiter.spin.spun, 0);
}

static _Atomic unsigned looks_left;

static bool comes_soon(void *data)
{
    (void)data;
    return atomic_fetch_sub(&looks_left, 1) == 1;
}

Test(bell, who_stopped_spins_again_when_that_pays, .init = begin)
{
    if (scene.waiter.spin.most_ns == 0)
        cases_skip("one processor");
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(await(1, clock_now_ns() + 1), -ETIMEDOUT);
    for (unsigned i = 0; i < 5000; i++) {
        atomic_store(&looks_left, 4);
        cr_assert_eq(bell_wait(&scene.waiter, comes_soon, NULL, soon()), 0);
    }
    cr_assert_gt(scene.waiter.spin.spun, 2000);
}

/* ---- spinning for a device ---- */

static int processors; /* 0: as many as there are */

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    CPU_ZERO_S(size, set);
    if (processors == 0) /* The call says how many bytes it filled. */
        return syscall(SYS_sched_getaffinity, pid, size, set) < 0 ? -1 : 0;
    for (int i = 0; i < processors; i++)
        CPU_SET_S(i, size, set);
    return 0;
}

static uint64_t spins(enum bell_spin_for what, int among)
{
    struct bell_spin spin;
    processors = among;
    bell_spin_init(&spin, what);
    return bell_spin_begin(&spin);
}

Test(bell, who_waits_for_a_device_spins_for_long_where_there_are_processors)
{
    cr_assert_eq(spins(BELL_SPIN_DEVICE, 1), 0);
    cr_assert_eq(spins(BELL_SPIN_DEVICE, 3), 50000);
    cr_assert_eq(spins(BELL_SPIN_DEVICE, 4), 10 * NS_PER_MS);
    cr_assert_eq(spins(BELL_SPIN_PROCESS, 4), 50000);
}

Test(bell, a_long_spin_is_shorter_after_others_wanted_the_processor)
{
    struct bell_spin spin;
    processors = 4;
    bell_spin_init(&spin, BELL_SPIN_DEVICE);
    uint64_t first = bell_spin_begin(&spin);
    bell_spin_paid(&spin, NS_PER_MS);
    cr_assert_geq(bell_spin_begin(&spin), first / 4 * 3);
    first = spin.budget_ns;
    spin.preempted--;
    bell_spin_paid(&spin, NS_PER_MS);
    cr_assert_eq(spin.budget_ns, first / 2);
    bell_spin_paid(&spin, 1000); /* Nobody asked for so short a time. */
    cr_assert_gt(spin.budget_ns, first / 4);
}
