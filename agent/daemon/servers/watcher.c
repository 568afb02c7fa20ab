#include "agent/daemon/servers/watcher.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct watcher {
    uv_process_t process;
    uv_pipe_t in, out;
    struct server_news_reader reader;
    const struct watcher_events *events; /* NULL after watcher_drop(). */
    void *data;
    unsigned open; /* Number of open handles. */
    bool dropped;
};

static void watcher_closed(uv_handle_t *handle)
{
    struct watcher *watcher = handle->data;

    if (--watcher->open == 0)
        free(watcher);
}

static void watcher_ends(struct watcher *watcher, bool other_version)
{
    const struct watcher_events *events = watcher->events;
    void *data = watcher->data;

    if (watcher->dropped)
        return;
    watcher_drop(watcher);
    events->ended(data, other_version);
}

/*
 * The handle is closed only when the process has exited: libuv does not reap a child whose handle
 * is closed.
 */
static void watcher_exited(uv_process_t *process, int64_t status, int number)
{
    struct watcher *watcher = process->data;

    (void)status, (void)number;
    watcher_ends(watcher, false);
    uv_close((uv_handle_t *)process, watcher_closed);
}

static void watcher_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    struct watcher *watcher = handle->data;
    size_t size;
    char *room = server_news_room(&watcher->reader, &size);

    (void)wanted;
    *ret_buffer = uv_buf_init(room, (unsigned)size);
}

static void watcher_came(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct watcher *watcher = stream->data;
    int result = count < 0   ? -EPIPE
                 : count > 0 ? server_news_came(&watcher->reader, (size_t)count)
                             : 0;

    (void)buffer;
    if (result > 0 && !watcher->dropped)
        watcher->events->told(watcher->data, &watcher->reader.news);
    if (result < 0)
        watcher_ends(watcher, result == -EPROTO);
}

int watcher_start(uv_loop_t *loop, char *const *arguments, const struct watcher_events *events,
                  void *data, struct watcher **ret_watcher)
{
    struct watcher *watcher = calloc(1, sizeof(*watcher));
    int error;

    if (!watcher)
        return -ENOMEM;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&watcher->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&watcher->out},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
    };
    uv_process_options_t options = {
        .exit_cb = watcher_exited,
        .file = arguments[0],
        .args = (char **)arguments,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = 3,
    };
    watcher->events = events;
    watcher->data = data;
    watcher->process.data = watcher->in.data = watcher->out.data = watcher;
    uv_pipe_init(loop, &watcher->in, 0);
    uv_pipe_init(loop, &watcher->out, 0);
    error = uv_spawn(loop, &watcher->process, &options);
    watcher->open = 3;
    if (!error)
        error = uv_read_start((uv_stream_t *)&watcher->out, watcher_room, watcher_came);
    if (!error) {
        *ret_watcher = watcher;
        return 0;
    }
    watcher_drop(watcher);
    if (!uv_process_get_pid(&watcher->process))
        uv_close((uv_handle_t *)&watcher->process, watcher_closed);
    return error;
}

void watcher_ask(struct watcher *watcher, bool devices)
{
    uv_buf_t word = uv_buf_init(devices ? "D" : "L", 1);

    /* Where the pipe is full, an earlier request is still unread, so this one may be dropped. */
    (void)uv_try_write((uv_stream_t *)&watcher->in, &word, 1);
}

void watcher_drop(struct watcher *watcher)
{
    if (!watcher || watcher->dropped)
        return;
    watcher->dropped = true;
    watcher->events = NULL;
    /* What it started ends with it, as it does with us. */
    if (uv_process_get_pid(&watcher->process))
        uv_process_kill(&watcher->process, SIGKILL);
    uv_close((uv_handle_t *)&watcher->in, watcher_closed);
    uv_close((uv_handle_t *)&watcher->out, watcher_closed);
}
