#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "remote/server/listener/clients.h"
#include "state/base/clock.h"

/* The listening process, told anything by processes that are sessions'. */

TestSuite(sessions, .timeout = 60);

#define MIB   (UINT64_C(1) << 20)
#define TOTAL (1024 * MIB)

static struct devices devices = {.count = 2};
static struct clients clients;

/* A process of a session: it does nothing, and this one speaks for it. */
struct session {
    pid_t pid;
    int channel;
};

static void start(void)
{
    for (size_t i = 0; i < devices.count; i++)
        devices.ledger[i].total = devices.rows[i].memory = TOTAL;
    cr_assert_eq(clients_init(&clients, 8, &devices), 0);
}

static void answer_all(void)
{
    struct pollfd polls[CLIENTS_POLLS(8)];
    for (int rounds = 0; rounds < 100; rounds++) {
        uint64_t now = clock_now_ns();
        size_t count = clients_poll(&clients, now, polls);
        if (poll(polls, count, 0) <= 0)
            return;
        clients_answer(&clients, polls, count, now);
    }
}

/* In its group it starts one that goes on without it. */
static _Noreturn void start_another(int alive)
{
    setpgid(0, 0);
    if (fork() != 0)
        _exit(0);
    alarm(30);
    (void)!write(alive, "x", 1);
    for (;;)
        pause();
}

static bool enter(struct session *session, const char *name, int64_t until)
{
    int ends[2];
    unsigned char verdict = 99;
    struct client_question question = {.sessions = 4, .share = TIMESLICE_SHARE, .until = until};
    strcpy(question.name, name);
    cr_assert_eq(channel_make(ends), 0);
    pid_t parent = getpid();
    session->pid = fork();
    cr_assert(session->pid >= 0);
    if (session->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0); /* It ended before that. */
        for (;;)
            pause();
    }
    session->channel = ends[1];
    clients_forked(&clients, 0, session->pid, ends[0]);
    cr_assert_eq(channel_send(session->channel, &question, sizeof(question), -1), 0);
    answer_all();
    cr_assert_eq(channel_receive(session->channel, &verdict, sizeof(verdict), NULL), 0);
    return verdict == 0;
}

static void say(const struct session *session, const struct channel_message *told)
{
    cr_assert_eq(channel_send(session->channel, told, sizeof(*told), -1), 0);
    answer_all();
}

/* What it is told; of kind 0: nothing. */
static struct channel_message heard(const struct session *session)
{
    struct channel_message told = {0};
    int error = channel_receive(session->channel, &told, sizeof(told), NULL);
    cr_assert(error == 0 || error == -EAGAIN || error == -EPIPE, "%d", error);
    return told;
}

static uint64_t ask(const struct session *session, uint32_t device, uint64_t bytes)
{
    say(session, &(struct channel_message){
                     .kind = CHANNEL_ASK, .device = device, .bytes = bytes, .least = bytes});
    struct channel_message told = heard(session);
    cr_assert_eq(told.kind, CHANNEL_PROMISE);
    return told.bytes;
}

static void reap(const struct session *session, int expected_signal)
{
    int status = 0;
    cr_assert_eq(waitpid(session->pid, &status, 0), session->pid);
    cr_assert(WIFSIGNALED(status));
    cr_expect_eq(WTERMSIG(status), expected_signal);
    cr_assert(clients_ended(&clients, session->pid));
    close(session->channel);
}

static void must_be_killed(const struct session *session)
{
    clients_tick(&clients, clock_now_ns(), 0);
    reap(session, SIGKILL);
}

static int lowest_free(void)
{
    int fd = dup(0);
    cr_assert(fd >= 0);
    close(fd);
    return fd;
}

Test(sessions, what_a_process_has_started_ends_with_it, .init = start)
{
    int alive[2];
    char byte;
    cr_assert_eq(pipe2(alive, O_CLOEXEC), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0)
        start_another(alive[1]);
    close(alive[1]);
    cr_assert_eq(read(alive[0], &byte, 1), 1);
    clients_forked(&clients, 0, pid, -1);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_expect(clients_ended(&clients, pid));
    struct pollfd gone = {.fd = alive[0], .events = POLLIN};
    cr_expect_eq(poll(&gone, 1, 5000), 1, "it goes on");
    close(alive[0]);
}

/* The kernel puts two where there is room for one and what aligns it. */
Test(sessions, a_process_that_passes_two_descriptors_leaves_none_here, .init = start)
{
    struct session a;
    const struct channel_message told = {.kind = CHANNEL_KEEP};
    char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec iov = {(void *)&told, sizeof(told)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    cr_assert(enter(&a, "a", 0));
    int binary = memfd_create("binary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int passed[] = {binary, binary};
    cr_assert_eq(ftruncate(binary, 1 << 20), 0);
    cr_assert_eq(fcntl(binary, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(passed)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), passed, sizeof(passed));

    struct stat it, other;
    cr_assert_eq(fstat(binary, &it), 0);
    cr_assert_eq(sendmsg(a.channel, &message, 0), (ssize_t)sizeof(told));
    answer_all();
    for (int fd = 0; fd < 256; fd++)
        if (fd != binary && fstat(fd, &other) == 0)
            cr_expect(other.st_ino != it.st_ino || other.st_dev != it.st_dev, "%d is open", fd);
    must_be_killed(&a);
    close(binary);
}

/* A driver that was taken over has nobody else answer for it. */
Test(sessions, where_the_kernel_asks_is_said_once, .init = start)
{
    struct session a;
    const struct channel_message told = {.kind = CHANNEL_PROCESSES};
    int first[2], second[2];
    cr_assert(enter(&a, "a", 0));
    cr_assert_eq(pipe2(first, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(second, O_CLOEXEC), 0);
    cr_assert_eq(channel_send(a.channel, &told, sizeof(told), first[0]), 0);
    answer_all();
    int notices = clients.places[0]->processes.notices;
    cr_assert_geq(notices, 0);
    cr_assert_eq(channel_send(a.channel, &told, sizeof(told), second[0]), 0);
    answer_all();
    cr_expect_eq(clients.places[0]->processes.notices, notices);
    must_be_killed(&a);
    cr_expect_eq(fcntl(notices, F_GETFD), -1, "it is not closed");
    for (int i = 0; i < 2; i++) {
        close(first[i]);
        close(second[i]);
    }
}

/* Else who begins many at once has them all before one is seen. */
Test(sessions, processes_that_may_begin_count_before_they_are_there)
{
    struct processes processes = PROCESSES_NONE;
    uint64_t now = clock_now_ns();
    const pid_t nobodys = INT_MAX;
    for (int i = 0; i < PROCESSES_MAX; i++) {
        processes_answer(&processes, nobodys, "a", now);
        cr_assert_eq(processes.full_ns, 0, "%d", i);
    }
    processes_answer(&processes, nobodys, "a", now);
    cr_expect_neq(processes.full_ns, 0);
    cr_expect_gt(processes.look_ns, now);
    processes_answer(&processes, nobodys, "a", now + NS_PER_S);
    cr_expect_eq(processes.full_ns, 0);
}

Test(sessions, memory_is_promised_once, .init = start)
{
    struct session a, b;
    cr_assert(enter(&a, "a", 0) && enter(&b, "b", 0));
    cr_expect_eq(ask(&a, 0, 600 * MIB), 600 * MIB);
    cr_expect_eq(ask(&b, 0, 600 * MIB), 0);
    cr_expect_eq(ask(&b, 1, 600 * MIB), 600 * MIB, "another device");
    /* However a process ends, what it held is there again; not before. */
    kill(a.pid, SIGKILL);
    close(a.channel);
    answer_all();
    cr_expect_eq(ask(&b, 0, 600 * MIB), 0, "its process may still have it");
    a.channel = dup(b.channel);
    reap(&a, SIGKILL);
    cr_expect_eq(ask(&b, 0, 600 * MIB), 600 * MIB);
}

Test(sessions, what_breaks_the_rules_is_ended, .init = start)
{
    static const struct channel_message messages[] = {
        {.kind = 0},
        {.kind = CHANNEL_PROMISE},
        {.kind = CHANNEL_END},
        {.kind = 77},
        {.kind = CHANNEL_ASK, .device = 2},
        {.kind = CHANNEL_WANT, .device = UINT32_MAX},
    };
    struct session good;
    cr_assert(enter(&good, "good", 0));
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        struct session bad;
        cr_assert(enter(&bad, "bad", 0));
        cr_assert_eq(ask(&bad, 0, 900 * MIB), 900 * MIB);
        say(&bad, &messages[i]);
        must_be_killed(&bad);
    }
    struct session bad;
    cr_assert(enter(&bad, "bad", 0));
    cr_assert_eq(channel_send(bad.channel, "short", 5, -1), 0);
    answer_all();
    must_be_killed(&bad);
    cr_expect_eq(ask(&good, 0, TOTAL), TOTAL);
}

/* One that says no end of things has no more than its time of the listening process. */
Test(sessions, one_that_floods_is_not_heard_for_a_while, .init = start)
{
    struct session flood, good;
    struct pollfd polls[CLIENTS_POLLS(8)];
    const struct channel_message told = {.kind = CHANNEL_RETURN};
    cr_assert(enter(&flood, "flood", 0) && enter(&good, "good", 0));
    uint64_t now = clock_now_ns();
    size_t count = 0;
    for (int i = 0; i < 20000; i++) {
        count = clients_poll(&clients, now, polls);
        if (polls[0].fd < 0)
            break;
        cr_assert_eq(channel_send(flood.channel, &told, sizeof(told), -1), 0);
        polls[0].revents = POLLIN;
        polls[1].revents = 0;
        clients_answer(&clients, polls, count, now);
    }
    cr_expect_eq(count, 4); /* Its channel, and where the kernel asks of it, of each. */
    cr_expect_lt(polls[0].fd, 0);
    cr_expect_geq(polls[1].fd, 0);
    cr_expect_eq(ask(&good, 0, MIB), MIB);
    uint64_t later = clients_tick(&clients, now, 0);
    cr_assert_neq(later, UINT64_MAX);
    clients_poll(&clients, later, polls);
    cr_expect_geq(polls[0].fd, 0);
}

Test(sessions, one_that_does_not_listen_is_ended, .init = start)
{
    struct session deaf;
    cr_assert(enter(&deaf, "deaf", 0));
    for (int i = 0; i < 100000 && !clients.places[0]->kill_ns; i++)
        say(&deaf, &(struct channel_message){.kind = CHANNEL_ASK, .bytes = 1, .least = 1});
    must_be_killed(&deaf);
}

Test(sessions, an_expired_certificate_ends_its_session, .init = start)
{
    struct session brief, other;
    cr_assert(enter(&brief, "brief", 1000) && enter(&other, "other", 0));
    uint64_t now = clock_now_ns();
    clients_tick(&clients, now, 999);
    cr_expect_eq(heard(&brief).kind, 0);
    clients_tick(&clients, now, 1000);
    struct channel_message told = heard(&brief);
    cr_expect_eq(told.kind, CHANNEL_END);
    cr_expect_eq(told.why, ENDED_EXPIRED);
    cr_expect_eq(heard(&other).kind, 0);
    /* It does not end by itself. */
    cr_expect_eq(waitpid(brief.pid, NULL, WNOHANG), 0);
    clients_tick(&clients, now + 10 * NS_PER_S, 1000);
    reap(&brief, SIGKILL);
}

Test(sessions, those_of_a_name_end_and_no_others, .init = start)
{
    struct session first, second, other;
    cr_assert(enter(&first, "laptop", 5) && enter(&second, "laptop", 5));
    cr_assert(enter(&other, "desktop", 5));
    uint64_t now = clock_now_ns();
    cr_expect_eq(clients_end(&clients, 0, "nobody", ENDED_REVOKED, now), 0);
    cr_expect_eq(clients_end(&clients, 0, "laptop", ENDED_REVOKED, now), 2);
    cr_expect_eq(heard(&first).why, ENDED_REVOKED);
    cr_expect_eq(heard(&second).kind, CHANNEL_END);
    cr_expect_eq(heard(&other).kind, 0);
    uint32_t number = clients_from(&clients, 3)->number;
    cr_expect_eq(clients_end(&clients, number, "", ENDED_BY_OPERATOR, now), 1);
    cr_expect_eq(heard(&other).why, ENDED_BY_OPERATOR);
}

Test(sessions, those_who_use_a_device_hear_what_is_free, .init = start)
{
    struct session a, b;
    cr_assert(enter(&a, "a", 0) && enter(&b, "b", 0));
    say(&b, &(struct channel_message){.kind = CHANNEL_USES, .device = 0});
    clients_tick(&clients, clock_now_ns(), 0);
    cr_expect_eq(heard(&b).kind, 0, "nothing changed");
    cr_assert_eq(ask(&a, 0, TOTAL / 2), TOTAL / 2);
    clients_tick(&clients, clock_now_ns(), 0);
    struct channel_message told = heard(&b);
    cr_expect_eq(told.kind, CHANNEL_FREE);
    cr_expect_eq(told.device, 0);
    cr_expect_eq(told.bytes, TOTAL / 2);
    cr_expect_eq(heard(&a).kind, 0, "it does not use it");
}

static void say_with(const struct session *session, enum channel_kind kind, unsigned char name,
                     int fd)
{
    struct channel_message told = {.kind = kind, .name = {name}};
    cr_assert_eq(channel_send(session->channel, &told, sizeof(told), fd), 0);
    answer_all();
}

static bool finds(const struct session *session, unsigned char name)
{
    struct channel_message told = {0};
    int fd = -1;
    say_with(session, CHANNEL_SEEK, name, -1);
    cr_assert_eq(channel_receive(session->channel, &told, sizeof(told), &fd), 0);
    cr_assert_eq(told.kind, CHANNEL_KEPT);
    cr_assert_eq(told.name[0], name);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int sealed(void)
{
    int fd = memfd_create("binary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0);
    cr_assert_eq(ftruncate(fd, (off_t)MIB), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return fd;
}

Test(sessions, binaries_are_kept_for_their_client_and_nobody_else, .init = start)
{
    struct session a, again, b;
    cr_assert(enter(&a, "a", 0) && enter(&again, "a", 0) && enter(&b, "b", 0));
    cr_expect(!finds(&a, 1));
    say_with(&a, CHANNEL_KEEP, 1, sealed());
    cr_expect(finds(&a, 1) && finds(&again, 1) && !finds(&again, 2));
    cr_expect(!finds(&b, 1));
    /* Also when who gave it is gone. */
    kill(a.pid, SIGKILL);
    reap(&a, SIGKILL);
    cr_expect(finds(&again, 1) && !finds(&b, 1));
}

Test(sessions, nothing_else_comes_with_a_descriptor, .init = start)
{
    static const enum channel_kind kinds[] = {CHANNEL_SEEK, CHANNEL_BUSY, CHANNEL_USES,
                                              CHANNEL_KEPT};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct session bad;
        cr_assert(enter(&bad, "bad", 0));
        say_with(&bad, kinds[i], 1, sealed());
        must_be_killed(&bad);
    }
}

/* Else a session could have the listening process close, again and again, what takes its time. */
Test(sessions, what_is_kept_is_a_binary, .init = start)
{
    struct session bad;
    int ends[2];
    cr_assert(enter(&bad, "bad", 0));
    cr_assert_eq(pipe(ends), 0);
    say_with(&bad, CHANNEL_KEEP, 1, ends[0]);
    must_be_killed(&bad);
}

/* ---- processes that carry bytes to and from other servers ---- */

#define NO_PID 0x7f000000 /* Above all that there can be. */

static pid_t carriers_started;

static pid_t start_carrier(void *data, int socket)
{
    (void)data, (void)socket;
    return NO_PID + ++carriers_started;
}

static void connect_once(const struct session *session)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    say_with(session, CHANNEL_CONNECT, 0, ends[1]);
    close(ends[0]);
    close(ends[1]);
}

Test(sessions, one_that_connects_again_and_again_gets_so_many_processes, .init = start)
{
    struct session flood;
    cr_assert(enter(&flood, "flood", 0));
    clients.connect = start_carrier;
    int fd = lowest_free();
    for (int i = 0; i < 4 * CARRIERS_MAX; i++)
        connect_once(&flood);
    cr_expect_eq(carriers_started, CARRIERS_MAX);
    cr_expect_eq(lowest_free(), fd);
}

Test(sessions, one_whose_processes_end_at_once_gets_them_at_a_rate, .init = start)
{
    struct session flood;
    cr_assert(enter(&flood, "flood", 0));
    clients.connect = start_carrier;
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < 40 * CARRIERS_MAX; i++) {
        connect_once(&flood);
        clients_ended(&clients, NO_PID + carriers_started);
    }
    uint64_t periods = (clock_now_ns() - begin) / (100 * NS_PER_MS) + 1;
    cr_expect_geq(carriers_started, CARRIERS_MAX);
    cr_expect_leq((uint64_t)carriers_started, CARRIERS_MAX + 10 * periods);
    cr_expect_eq(clients.carrier_count, 0);
}

/* Somebody who knows the session's number; the verdict. */
static unsigned char come_with_ticket(const struct session *session, pid_t pid)
{
    struct client_question question = {.name = "a ticket", .brings = true, .key.number = 7};
    unsigned char verdict = 99;
    struct channel_message told;
    int ends[2], passed[2], fd = -1;
    cr_assert(channel_make(ends) == 0 && channel_make(passed) == 0);
    clients_forked(&clients, 0, pid, ends[0]);
    cr_assert_eq(channel_send(ends[1], &question, sizeof(question), passed[1]), 0);
    answer_all();
    cr_assert_eq(channel_receive(ends[1], &verdict, sizeof(verdict), NULL), 0);
    if (channel_receive(session->channel, &told, sizeof(told), &fd) == 0) {
        cr_expect_eq(told.kind, CHANNEL_TICKET);
        close(fd);
    }
    close(ends[1]);
    close(passed[0]);
    close(passed[1]);
    return verdict;
}

Test(sessions, those_who_know_its_number_get_so_many_processes, .init = start)
{
    struct session session;
    unsigned led = 0;
    cr_assert(enter(&session, "good", 0));
    clients.places[0]->key.number = 7;
    for (int i = 0; i < CARRIERS_MAX + 20; i++)
        led += come_with_ticket(&session, NO_PID + i) == 0;
    cr_expect_eq(led, CARRIERS_MAX);
    cr_expect_eq(clients.stranger_count, 20, "who was not led there stays a stranger");
    clients_ended(&clients, NO_PID);
    cr_expect_eq(come_with_ticket(&session, NO_PID + 1000), 0);
    kill(session.pid, SIGKILL);
    reap(&session, SIGKILL);
    cr_expect_eq(clients.carrier_count, 0);
}
