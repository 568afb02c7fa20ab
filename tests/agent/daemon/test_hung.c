#include "tests/support/cases.h"
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/config/process.h"
#include "tests/agent/harness.h"

/* An agent that is stopped, or hangs; and programs that are. */

TestSuite(hung, .init = harness_init, .fini = harness_finish, .timeout = 60);

struct hung {
    pid_t agent;
    int backlog[300];
    size_t count;
};

/** The agent takes nothing any more; @full: nor does its socket. */
static struct hung hang(bool full)
{
    struct hung hung = {.agent = harness_agent()};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct paths paths;

    cr_assert_gt(hung.agent, 0);
    cr_assert_eq(kill(hung.agent, SIGSTOP), 0);
    cr_assert_eq(paths_find(&paths), 0);
    memcpy(address.sun_path, paths.socket, sizeof(address.sun_path));
    while (full && hung.count < sizeof(hung.backlog) / sizeof(*hung.backlog)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        hung.backlog[hung.count++] = fd;
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
            cr_assert_eq(errno, EAGAIN);
            return hung;
        }
    }
    cr_assert(!full, "its backlog has no end");
    return hung;
}

static void expect_deadlines(const struct hung *hung)
{
    char ran[128];
    uint64_t start;
    pid_t verbs[4];

    snprintf(ran, sizeof(ran), "%s/ran", harness_folder());
    verbs[0] = harness_spawn(harness_reseat(), "run", "touch", ran, NULL);
    verbs[1] = harness_spawn(harness_reseat(), "ps", NULL);
    verbs[2] = harness_spawn(harness_reseat(), "move", "a1", "cpu0", NULL);
    verbs[3] = harness_spawn(harness_reseat(), "doctor", NULL);
    cr_expect_eq(harness_wait(verbs[0]), 0);
    cr_expect_eq(access(ran, F_OK), 0, "the program has not run");
    cr_expect_eq(harness_wait(verbs[1]), 3);
    cr_expect_eq(harness_wait(verbs[2]), 3);
    cr_expect_eq(harness_wait(verbs[3]), 1);
    harness_says(RESEAT("agent", "stop"), 0, "was ended");
    cr_expect_eq(process_start_time(hung->agent, &start), -ESRCH, "it lives");
    for (size_t i = 0; i < hung->count; i++)
        close(hung->backlog[i]);
    cr_expect_eq(RESEAT("devices")->status, 0, "another one does not start");
}

Test(hung, a_stopped_one_holds_up_no_command_and_can_be_ended)
{
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct hung hung = hang(false);
    expect_deadlines(&hung);
}

Test(hung, one_whose_backlog_is_full_holds_up_no_command_and_can_be_ended)
{
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct hung hung = hang(true);
    expect_deadlines(&hung);
}

Test(hung, what_is_not_taken_from_a_full_connection_is_given_up)
{
    static char large[1 << 20];
    struct client client = {0};
    struct frame frame;
    int ends[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client.fd = ends[0];
    frame_reader_init(&client.reader);
    memset(large, 'x', sizeof(large) - 1);
    frame_init(&frame, "test");
    frame_string(&frame, "large", large);
    cr_expect_eq(client_send(&client, &frame), -ETIMEDOUT);
    client_close(&client);
    close(ends[1]);
}

Test(hung, who_follows_something_long_waits_as_long_as_the_agent_answers)
{
    const struct itimerspec later = {.it_value = {.tv_nsec = 600000000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct paths paths;
    struct client client;
    struct message message;

    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(paths_find(&paths), 0);
    cr_assert_eq(client_connect(&paths, &client), 0);
    cr_assert_eq(timerfd_settime(timer, 0, &later, NULL), 0);
    cr_expect_eq(client_follow(&client, 300, timer, &message), 0, "it did not wait");
    struct hung hung = hang(false);
    cr_expect_eq(client_follow(&client, 300, -1, &message), -ETIMEDOUT);
    cr_expect_eq(kill(hung.agent, SIGCONT), 0);
    client_close(&client);
    close(timer);
}

/* ---- programs ---- */

Test(hung, a_program_that_is_stopped_does_not_hold_up_a_move)
{
    pid_t pid = harness_start("app", "done");

    cr_assert_eq(kill(pid, SIGSTOP), 0);
    harness_says(RESEAT("move", "app", "cpu1"), 5, "does not answer");
    cr_assert_eq(kill(pid, SIGCONT), 0);
    cr_assert(harness_state("app", "running", 5000));
    harness_ends(RESEAT("move", "app", "cpu1"), 0);
}

Test(hung, a_program_that_answers_may_take_as_long_as_it_likes)
{
    harness_start("app", "done:7000");
    harness_ends(RESEAT("move", "app", "cpu1"), 0);
}
