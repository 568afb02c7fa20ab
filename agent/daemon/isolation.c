#include "agent/daemon/operations/governor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/files/access.h"

#define BACKLOG  64
#define RETRY_MS 1000
#define LINGER_S "60"
/* The number of the listening socket's descriptor in the server. */
#define INHERITED 3

static void isolation_wait_for_clients(struct agent *agent);

static void isolation_server_closed(uv_handle_t *handle)
{
    struct agent *agent = handle->data;

    agent->isolation.runs = false;
}

static void isolation_server_exited(uv_process_t *process, int64_t status, int signal)
{
    struct agent *agent = process->data;

    if (status || signal)
        agent_log("the server of isolated programs ended (status %d, signal %d)", (int)status,
                  signal);
    agent->isolation.ended_ms = uv_now(&agent->loop);
    uv_close((uv_handle_t *)process, isolation_server_closed);
}

static int isolation_spawn_server(struct agent *agent)
{
    struct isolation *isolation = &agent->isolation;
    char path[PATH_MAX];
    char inherit[] = "--inherit", fd[] = "3", linger[] = "--linger", seconds[] = LINGER_S;
    char of[] = "--while", number[16];
    char *arguments[] = {path, inherit, fd, linger, seconds, of, number, NULL};
    uv_stdio_container_t stdio[INHERITED + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = isolation->fd},
    };
    uv_process_options_t options = {
        .exit_cb = isolation_server_exited,
        .file = path,
        .args = arguments,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = INHERITED + 1,
    };
    int error = paths_of(PATHS_SERVER, path);

    if (error)
        return error;
    snprintf(number, sizeof(number), "%d", (int)getpid());
    isolation->server.data = agent;
    isolation->runs = true;
    error = uv_spawn(&agent->loop, &isolation->server, &options);
    if (error)
        uv_close((uv_handle_t *)&isolation->server, isolation_server_closed);
    return error;
}

/** Start the server, which accepts the waiting connection and later ones; stop polling. */
static void isolation_somebody_connects(uv_poll_t *poll, int status, int events)
{
    struct agent *agent = poll->data;

    (void)status, (void)events;
    uv_poll_stop(poll);
    agent->isolation.ended_ms = uv_now(&agent->loop);
    int error = isolation_spawn_server(agent);
    if (error)
        agent_log("the server of isolated programs cannot be started: %s", strerror(-error));
}

static void isolation_wait_for_clients(struct agent *agent)
{
    uv_poll_start(&agent->isolation.poll, UV_READABLE, isolation_somebody_connects);
}

static int isolation_listen_there(struct agent *agent)
{
    struct isolation *isolation = &agent->isolation;
    char path[PATH_MAX];
    int fd = -1, error = paths_isolated(&agent->paths, path);

    if (!error)
        error = access_listen(path, SOCK_STREAM, BACKLOG, &fd);
    if (error)
        return error;
    error = uv_poll_init(&agent->loop, &isolation->poll, fd);
    if (error) {
        close(fd);
        return error;
    }
    isolation->poll.data = agent;
    isolation->fd = fd;
    isolation->listens = true;
    isolation_wait_for_clients(agent);
    return 0;
}

int isolation_init(struct agent *agent)
{
    /* Programs of the host's agent have servers of their own users (run_set_isolation()). */
    int error = agent->paths.shared ? 0 : isolation_listen_there(agent);

    return error == -EADDRINUSE ? 0 : error;
}

void isolation_sweep(struct agent *agent)
{
    struct isolation *isolation = &agent->isolation;

    if (agent->stopping || agent->paths.shared || isolation->runs ||
        uv_now(&agent->loop) - isolation->ended_ms < RETRY_MS)
        return;
    if (isolation->listens)
        isolation_wait_for_clients(agent);
    else if (isolation_listen_there(agent))
        isolation->ended_ms = uv_now(&agent->loop);
}

void isolation_stop(struct agent *agent)
{
    struct isolation *isolation = &agent->isolation;

    if (isolation->runs) {
        uv_unref((uv_handle_t *)&isolation->server);
        if (!uv_is_closing((uv_handle_t *)&isolation->server))
            uv_close((uv_handle_t *)&isolation->server, NULL);
    }
    if (!isolation->listens)
        return;
    uv_close((uv_handle_t *)&isolation->poll, NULL);
    close(isolation->fd);
    isolation->listens = false;
}
