#include "agent/cli/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define START_MS 10000

/* Start a server as the leader of its own session. It writes to @output once it listens. */
static int isolate_launch(const char *address, int output)
{
    char path[PATH_MAX], process[16];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child;
    int error = paths_of(PATHS_SERVER, path);

    if (error)
        return error;
    snprintf(process, sizeof(process), "%d", (int)getpid());
    const char *words[] = {path, "--listen", address, "--while", process, NULL};
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    error = -posix_spawn(&child, path, &actions, &attributes, (char *const *)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int isolate_start(const char *address)
{
    struct pollfd said = {.events = POLLIN};
    int ends[2];
    char byte;

    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    int error = isolate_launch(address, ends[1]);
    close(ends[1]);
    said.fd = ends[0];
    if (!error && poll(&said, 1, START_MS) != 1)
        error = -ETIMEDOUT;
    if (!error && read(ends[0], &byte, 1) != 1)
        error = -EIO;
    close(ends[0]);
    return error;
}

int isolate_find(const struct paths *paths, bool alone, char ret_driver[PATH_MAX],
                 char ret_address[PATH_MAX])
{
    char socket[PATH_MAX], name[32], address[PATH_MAX];
    int error = paths->folder[0] ? paths_of(PATHS_REMOTE, ret_driver) : -ENOENT;

    if (error)
        return error;
    snprintf(name, sizeof(name), "drivers-%d.sock", (int)getpid());
    error = alone ? paths_join(paths->folder, name, socket) : paths_isolated(paths, socket);
    if (!error && snprintf(address, sizeof(address), "unix:%s", socket) >= (int)sizeof(address))
        error = -ENAMETOOLONG;
    if (!error && alone)
        error = isolate_start(address);
    if (!error)
        strcpy(ret_address, address);
    return error;
}
