#include "remote/server/listener/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/log.h"

/* What it is told: a process's number, or, of one that has ended, that below 0. */

/* ---- the process ---- */

struct groups {
    pid_t *pids;
    size_t count, room;
};

static void keeper_add_group(struct groups *groups, pid_t pid)
{
    if (groups->count == groups->room) {
        size_t room = groups->room ? 2 * groups->room : 64;
        pid_t *pids = realloc(groups->pids, room * sizeof(*pids));
        if (!pids)
            _exit(1); /* There will be another. */
        groups->pids = pids;
        groups->room = room;
    }
    groups->pids[groups->count++] = pid;
}

static void keeper_remove_group(struct groups *groups, pid_t pid)
{
    for (size_t i = groups->count; i-- > 0;)
        if (groups->pids[i] == pid)
            groups->pids[i] = groups->pids[--groups->count];
}

static void keeper_add_one(void *data, pid_t pid)
{
    keeper_add_group(data, pid);
}

/* The listening process has ended where nobody is left to say anything: who starts another ends
   this one first. */
static void keeper_main(struct groups *groups, int told)
{
    for (;;) {
        pid_t said = 0;
        ssize_t got = recv(told, &said, sizeof(said), 0);
        if (got == sizeof(said) && said > 0)
            keeper_add_group(groups, said);
        else if (got == sizeof(said))
            keeper_remove_group(groups, -said);
        else if (got == 0)
            return;
        else
            _exit(1);
    }
}

static _Noreturn void keeper_become_keeper(int told, const struct clients *clients)
{
    struct groups groups = {0};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0); /* What a terminal sends is not for it. */
    prctl(PR_SET_NAME, "reseat-keeper");
    clients_each_process(clients, keeper_add_one, &groups);
    if (dup2(told, STDIN_FILENO) < 0 || close_range(STDIN_FILENO + 1, ~0U, 0))
        _exit(1);
    keeper_main(&groups, STDIN_FILENO);
    for (size_t i = 0; i < groups.count; i++)
        kill(-groups.pids[i], SIGKILL);
    _exit(0);
}

/* ---- the listening process ---- */

/* One that stands still, or has ended, is replaced once that is seen. */
static void keeper_tell(const struct keeper *keeper, pid_t said)
{
    if (keeper->tells >= 0 &&
        send(keeper->tells, &said, sizeof(said), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        kill(keeper->pid, SIGKILL);
}

static void keeper_close(const struct keeper *keeper)
{
    if (keeper->tells >= 0)
        close(keeper->tells);
}

void keeper_start(struct keeper *keeper, const struct clients *clients)
{
    int ends[2], error = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
    keeper_close(keeper);
    *keeper = KEEPER_NONE;
    if (error == 0) {
        *keeper = (struct keeper){fork(), ends[1]};
        if (keeper->pid == 0)
            keeper_become_keeper(ends[0], clients);
        error = keeper->pid < 0 ? -errno : 0;
        close(ends[0]);
    }
    if (error == 0)
        return;
    log_warn("what sessions start would outlive this server, were it killed: %s", strerror(-error));
    keeper_close(keeper);
    *keeper = KEEPER_NONE;
}

void keeper_began(const struct keeper *keeper, pid_t pid)
{
    keeper_tell(keeper, pid);
}

void keeper_ended(const struct keeper *keeper, pid_t pid)
{
    keeper_tell(keeper, -pid);
}

void keeper_finish(struct keeper *keeper)
{
    if (keeper->pid > 0 && kill(keeper->pid, SIGKILL) == 0)
        waitpid(keeper->pid, NULL, 0);
    keeper_close(keeper);
    *keeper = KEEPER_NONE;
}
