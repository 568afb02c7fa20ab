#include "agent/cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/config/config.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"

#define AGENT_MS  10000
#define SERVER_MS 10000
#define LOOK_NS   (2 * NS_PER_MS)
#define REAP_MS   1000
/* A service of streams that was started for a client ends after so long without one. */
#define STREAMS_LINGER_S "60"

int launch(const char *const *words, int output, int errors, short flags, pid_t *ret_child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    const int ends[] = {output, errors};

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int i = 0; i < 2; i++)
        if (ends[i] < 0)
            posix_spawn_file_actions_addopen(&actions, i + 1, "/dev/null", O_WRONLY, 0);
        else
            posix_spawn_file_actions_adddup2(&actions, ends[i], i + 1);
    /* Agents and servers run on after this process: they must not keep a pipe or socket open that
     * the user's program was started with. */
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, flags);
    posix_spawnattr_setsigmask(&attributes, &none);
    int error =
        -posix_spawn(ret_child, words[0], &actions, &attributes, (char *const *)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

bool launch_await(pid_t child, bool group, uint64_t limit_ms, int *ret_status)
{
    uint64_t deadline = clock_now_ns() + limit_ms * NS_PER_MS;
    bool killed = false;

    while (waitpid(child, ret_status, WNOHANG) == 0) {
        if (clock_now_ns() >= deadline) {
            /* A child that is stuck in the kernel cannot be reaped: leave it to init. */
            if (killed)
                return false;
            kill(group ? -child : child, SIGKILL);
            killed = true;
            deadline += REAP_MS * NS_PER_MS;
        }
        clock_sleep(LOOK_NS);
    }
    return !killed;
}

/* ---- the agent ---- */

/**
 * Find out why the agent did not start. It writes the reason to its log, but the two common causes,
 * the state folder and the configuration, can be checked and named here.
 */
static void launch_say_why(int result, char *ret_why, size_t size)
{
    struct config_error error;
    struct config config;
    char state[PATH_MAX] = "";
    int refused = paths_state(state);

    if (!refused && access(state, R_OK | W_OK | X_OK))
        refused = -errno;
    if (refused) {
        snprintf(ret_why, size,
                 "the state folder %.300s cannot be used: %s; make it yours, or set XDG_STATE_HOME "
                 "to a folder of yours",
                 state, strerror(-refused));
        return;
    }
    if (config_load_effective(NULL, 0, &config, &error)) {
        config_error_format(&error, ret_why, size);
        return;
    }
    config_finish(&config);
    snprintf(ret_why, size, "%s", strerror(-result));
}

int launch_agent(char *ret_why, size_t why_size)
{
    char path[PATH_MAX];
    const char *const words[] = {path, "--daemon", NULL};
    struct paths paths;
    int status = 0;
    pid_t child;

    if (!paths_find(&paths) && paths.shared) {
        snprintf(ret_why, why_size,
                 "%s is of an agent for all users, which does not run: systemctl start "
                 "reseatd.socket; an empty RESEAT_SOCKET is for an agent of your own",
                 paths.socket);
        return -ECONNREFUSED;
    }
    int error = paths_of(PATHS_AGENT, path);

    if (!error)
        error = launch(words, -1, -1, 0, &child);
    if (!error && !launch_await(child, false, AGENT_MS, &status))
        error = -ETIMEDOUT;
    if (!error && status)
        error = -EIO;
    if (error)
        launch_say_why(error, ret_why, why_size);
    return error;
}

/* ---- servers ---- */

/* Start a server as the leader of its own session, and wait until it says that it listens. */
static int launch_listener(const char *const *words, int errors)
{
    char byte;
    struct pollfd said = {.events = POLLIN};
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    int error = launch(words, ends[1], errors, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK, &child);
    close(ends[1]);
    said.fd = ends[0];
    if (!error && poll(&said, 1, SERVER_MS) != 1)
        error = -ETIMEDOUT;
    if (!error && read(ends[0], &byte, 1) != 1)
        error = -EIO;
    close(ends[0]);
    return error;
}

int launch_streams(char ret_log[PATH_MAX])
{
    char own[PATH_MAX];
    const char *const words[] = {own, "stream", "serve", "--linger", STREAMS_LINGER_S, NULL};
    struct paths paths;
    int error = paths_own(own);

    error = error ? error : paths_find(&paths);
    error = error ? error : paths_join(paths.folder, "stream.log", ret_log);
    if (error)
        return error;
    CLEANUP(cleanup_close)
    int log = open(ret_log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return log < 0 ? -errno : launch_listener(words, log);
}

int launch_isolated(const struct paths *paths, bool alone, char ret_driver[PATH_MAX],
                    char ret_address[PATH_MAX])
{
    char socket[PATH_MAX], name[32], address[PATH_MAX], path[PATH_MAX], process[16];
    const char *const words[] = {path, "--listen", address, "--while", process, NULL};
    int error = paths->folder[0] ? paths_of(PATHS_REMOTE, ret_driver) : -ENOENT;

    if (error)
        return error;
    snprintf(name, sizeof(name), "drivers-%d.sock", (int)getpid());
    error = alone ? paths_join(paths->folder, name, socket) : paths_isolated(paths, socket);
    if (!error && snprintf(address, sizeof(address), "unix:%s", socket) >= (int)sizeof(address))
        error = -ENAMETOOLONG;
    snprintf(process, sizeof(process), "%d", (int)getpid());
    if (!error && alone)
        error = paths_of(PATHS_SERVER, path);
    if (!error && alone)
        error = launch_listener(words, STDERR_FILENO);
    if (!error)
        strcpy(ret_address, address);
    return error;
}
