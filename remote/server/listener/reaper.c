#include "remote/server/listener/listener.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/log.h"

/* A message is a process id: positive when the process has started, negative when it has ended. */

/* ---- the process ---- */

struct groups {
    pid_t *pids;
    size_t count, room;
};

static void reaper_add_group(struct groups *groups, pid_t pid)
{
    if (groups->count == groups->room) {
        size_t room = groups->room ? 2 * groups->room : 64;
        pid_t *pids = realloc(groups->pids, room * sizeof(*pids));
        if (!pids)
            _exit(1); /* The listening process starts another. */
        groups->pids = pids;
        groups->room = room;
    }
    groups->pids[groups->count++] = pid;
}

static void reaper_remove_group(struct groups *groups, pid_t pid)
{
    for (size_t i = groups->count; i-- > 0;)
        if (groups->pids[i] == pid)
            groups->pids[i] = groups->pids[--groups->count];
}

static void reaper_add_one(void *data, pid_t pid)
{
    reaper_add_group(data, pid);
}

/* Returns when the listening process is gone: the socket has no other end. Before it starts another
 * reaper, the listening process kills this one. */
static void reaper_main(struct groups *groups, int told)
{
    for (;;) {
        pid_t said = 0;
        ssize_t got = recv(told, &said, sizeof(said), 0);
        if (got == sizeof(said) && said > 0)
            reaper_add_group(groups, said);
        else if (got == sizeof(said))
            reaper_remove_group(groups, -said);
        else if (got == 0)
            return;
        else
            _exit(1);
    }
}

static _Noreturn void reaper_become(int told, const struct clients *clients)
{
    struct groups groups = {0};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0); /* Signals from a terminal must not reach it. */
    prctl(PR_SET_NAME, "reseat-reaper");
    clients_each_process(clients, reaper_add_one, &groups);
    if (dup2(told, STDIN_FILENO) < 0 || close_range(STDIN_FILENO + 1, ~0U, 0))
        _exit(1);
    reaper_main(&groups, STDIN_FILENO);
    for (size_t i = 0; i < groups.count; i++)
        kill(-groups.pids[i], SIGKILL);
    _exit(0);
}

/* ---- the listening process ---- */

/* A reaper that has stopped reading is killed, and replaced when the listening process reaps it. */
static void reaper_tell(const struct reaper *reaper, pid_t said)
{
    if (reaper->tells >= 0 &&
        send(reaper->tells, &said, sizeof(said), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        kill(reaper->pid, SIGKILL);
}

static void reaper_close(const struct reaper *reaper)
{
    if (reaper->tells >= 0)
        close(reaper->tells);
}

void reaper_start(struct reaper *reaper, const struct clients *clients)
{
    int ends[2], error = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
    reaper_close(reaper);
    *reaper = REAPER_NONE;
    if (error == 0) {
        *reaper = (struct reaper){fork(), ends[1]};
        if (reaper->pid == 0)
            reaper_become(ends[0], clients);
        error = reaper->pid < 0 ? -errno : 0;
        close(ends[0]);
    }
    if (error == 0)
        return;
    log_warn("no reaper process: if the server is killed, processes of its sessions live on: %s",
             strerror(-error));
    reaper_close(reaper);
    *reaper = REAPER_NONE;
}

void reaper_began(const struct reaper *reaper, pid_t pid)
{
    reaper_tell(reaper, pid);
}

void reaper_ended(const struct reaper *reaper, pid_t pid)
{
    reaper_tell(reaper, -pid);
}

void reaper_finish(struct reaper *reaper)
{
    if (reaper->pid > 0 && kill(reaper->pid, SIGKILL) == 0)
        waitpid(reaper->pid, NULL, 0);
    reaper_close(reaper);
    *reaper = REAPER_NONE;
}
