#include "tests/support/cases.h"
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/visitor.h"

/* Agents that are another user's. */

TestSuite(impostor, .init = harness_init, .fini = harness_finish, .timeout = 60);

struct impostor {
    pid_t pid;
    int heard; /**< Where it writes what it is sent. */
};

/** Somebody of that user listens on the socket of ours, answers nothing, and passes on the rest. */
static struct impostor pretend(uid_t uid, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct impostor impostor;
    int ends[2], ready[2], fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    impostor.pid = fork();
    if (impostor.pid == 0) {
        harness_become(uid);
        if (listen(fd, 8) || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;) {
            char bytes[4096];
            int peer = accept(fd, NULL, NULL);
            ssize_t count = recv(peer, bytes, sizeof(bytes), 0);
            (void)!write(ends[1], count > 0 ? "h" : "e", 1);
        }
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    close(ends[1]);
    close(fd);
    impostor.heard = ends[0];
    return impostor;
}

/** "h": somebody spoke to it, "e": somebody hung up without a word. */
static char what_it_heard(const struct impostor *impostor)
{
    struct pollfd polled = {.fd = impostor->heard, .events = POLLIN};
    char byte = 0;

    if (poll(&polled, 1, SOON_MS) == 1)
        (void)!read(impostor->heard, &byte, 1);
    return byte;
}

static void expose(struct impostor *impostor)
{
    kill(impostor->pid, SIGKILL);
    harness_wait(impostor->pid);
    close(impostor->heard);
}

Test(impostor, a_program_does_not_speak_to_another_users_agent)
{
    NEEDS_ROOT();
    setenv("RESEAT_SOCKET", harness_path("agent.sock"), 1);

    struct impostor impostor = pretend(OTHER, getenv("RESEAT_SOCKET"));
    pid_t program = harness_spawn(harness_program(), "60", NULL);
    cr_expect_eq(what_it_heard(&impostor), 'e', "the program spoke to it");
    kill(program, SIGKILL);
    harness_wait(program);
    expose(&impostor);

    impostor = pretend(0, getenv("RESEAT_SOCKET"));
    program = harness_spawn(harness_program(), "60", NULL);
    cr_expect_eq(what_it_heard(&impostor), 'h', "the program does not speak to its user's agent");
    kill(program, SIGKILL);
    harness_wait(program);
    expose(&impostor);
}

Test(impostor, the_command_does_not_speak_to_another_users_agent)
{
    NEEDS_ROOT();
    setenv("RESEAT_SOCKET", harness_path("agent.sock"), 1);

    struct impostor impostor = pretend(OTHER, getenv("RESEAT_SOCKET"));
    harness_says(RESEAT("ps"), 1, "owned by another user");
    cr_expect_eq(what_it_heard(&impostor), 'e');
    struct result *result = harness_ends(RESEAT("run", "sh", "-c", "echo ran"), 0);
    cr_expect_str_eq(result->out, "ran\n");
    cr_expect(strstr(result->err, "owned by another user"), "%s", result->err);
    cr_expect_eq(what_it_heard(&impostor), 'e');
    expose(&impostor);
}
