#include "remote/rings/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/remote/rings/link_rig.h"

/* Who sees the peer hang up in a program that closes any descriptor; and what is left where the
   system does not let it. */

TestSuite(lookout, .timeout = 60);

static struct bell_peer near, far;
static int pipe_ends[2];

static void start(void)
{
    connect_peers(&near, &far);
    cr_assert_eq(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
}

/* Who waits for the peer, and is rung. */
static struct bell bell;

static void wake(void *nothing)
{
    (void)nothing;
    bell_ring(&bell);
}

static bool never(void *nothing)
{
    (void)nothing;
    return false;
}

static void *wait_for_it(void *ret_error)
{
    struct bell_waiter waiter;
    bell_waiter_init(&waiter, &bell, &near);
    *(int *)ret_error = bell_wait(&waiter, never, NULL, soon());
    return NULL;
}

/* As a sandbox around the program does. */
static void forbid(int error, const int *calls)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    cr_assert(filter);
    for (; *calls >= 0; calls++)
        cr_assert_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO((unsigned)error), *calls, 0), 0);
    cr_assert_eq(seccomp_load(filter), 0);
    seccomp_release(filter);
}

static void must_see_the_peer_go(void)
{
    uint64_t until = soon();
    cr_assert_eq(bell_peer_look(&near), 0);
    disconnect_peer(&far);
    while (bell_peer_look(&near) == 0 && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(bell_peer_look(&near), -EPIPE);
}

/* Nobody else has what the program had open: a reader sees that nobody writes any more. Of a thread
 * that was joined the system closes its table a moment later. */
static void must_be_alone(void)
{
    char byte;
    uint64_t until = soon();
    ssize_t count;
    close(pipe_ends[1]);
    while ((count = read(pipe_ends[0], &byte, 1)) < 0 && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(count, 0, "somebody could write there still");
}

/* With all as it was: the socket is asked, by who waits. */
static void must_fail(int error)
{
    struct lookout *lookout = NULL;
    cr_assert_eq(lookout_create(&near, wake, NULL, &lookout), error);
    cr_assert(!lookout && !near.watched);
    lookout_destroy(lookout);
    must_be_alone();
}

Test(lookout, sees_the_peer_go_when_the_program_has_closed_the_socket)
{
    struct lookout *lookout = NULL;
    start();
    cr_assert_eq(lookout_create(&near, wake, NULL, &lookout), 0);
    cr_assert(near.watched);
    must_be_alone();
    close(near.socket.fd);
    must_see_the_peer_go();
    lookout_destroy(lookout);
}

/* A wait looks by itself too late for this test. */
Test(lookout, wakes_who_waits_for_a_peer_that_goes)
{
    struct lookout *lookout = NULL;
    pthread_t thread;
    int error = 0;
    look_late();
    start();
    cr_assert_eq(lookout_create(&near, wake, NULL, &lookout), 0);
    cr_assert_eq(pthread_create(&thread, NULL, wait_for_it, &error), 0);
    while (atomic_load(&bell.sleeps) == 0)
        sched_yield();
    uint64_t gone = clock_now_ns();
    disconnect_peer(&far);
    pthread_join(thread, NULL);
    cr_assert_eq(error, -EPIPE);
    cr_assert_lt(clock_now_ns() - gone, bell_look_first_ns / 2, "it looked by itself");
    lookout_destroy(lookout);
}

Test(lookout, ends_while_the_peer_is_there)
{
    struct lookout *lookout = NULL;
    start();
    cr_assert_eq(lookout_create(&near, wake, NULL, &lookout), 0);
    lookout_destroy(lookout);
    cr_assert_eq(bell_peer_look(&near), 0);
    char byte;
    cr_assert_eq(recv(far.socket.fd, &byte, 1, MSG_DONTWAIT), -1);
    cr_assert_eq(errno, EAGAIN, "the peer hears it hang up");
}

Test(lookout, is_not_had_without_a_table_of_its_own)
{
    start();
    forbid(EPERM, (const int[]){SCMP_SYS(unshare), -1});
    must_fail(-ENOSYS);
    must_see_the_peer_go();
}

Test(lookout, is_not_had_where_it_cannot_empty_its_table)
{
    start();
    forbid(ENOSYS, (const int[]){SCMP_SYS(close_range), -1});
    must_fail(-ENOSYS);
    must_see_the_peer_go();
}

Test(lookout, is_not_had_without_a_thread)
{
    start();
    forbid(EAGAIN, (const int[]){SCMP_SYS(clone), SCMP_SYS(clone3), -1});
    must_fail(-EAGAIN);
    must_see_the_peer_go();
}

Test(lookout, is_not_had_for_a_socket_that_the_program_has_closed)
{
    start();
    close(near.socket.fd);
    must_fail(-EBADF);
    cr_assert_eq(bell_peer_look(&near), -EPIPE);
}

/* Nor for what has come to its number. */
Test(lookout, does_not_take_what_is_the_programs)
{
    start();
    cr_assert_eq(dup2(pipe_ends[0], near.socket.fd), near.socket.fd);
    must_fail(-EBADF);
    cr_assert_geq(fcntl(near.socket.fd, F_GETFD), 0);
}
