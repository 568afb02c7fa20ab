#include "remote/server/listener/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "remote/server/listener/clients.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/* A longer line is split. */
#define LINE_MAX_BYTES 800
/* Bytes read of one process each time it is ready. */
#define ROUND_MAX 4096
/* Bytes read of a process that has ended; more than a pipe holds. */
#define LAST_MAX (1u << 20)
/* How long a process that exceeds the limit is not read; meanwhile its writes block. */
#define HOLD_NS (100 * NS_PER_MS)

static const struct rate_limit lines = {
    .burst = SESSION_LOG_BURST, .refill = 1, .every_ns = NS_PER_S};

struct session_log {
    struct session_log *next;
    int fd;
    pid_t pid;
    char line[LINE_MAX_BYTES];
    size_t used;
    struct rate rate; /* Limits the lines that are logged. */
    uint64_t held_ns; /* When to read it again; 0: it is being read. */
};

int session_log_make(struct session_logs *logs, struct session_log **ret_log, int *ret_end)
{
    int ends[2];
    struct session_log *log = calloc(1, sizeof(*log));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = log};
    if (logs->poll < 0)
        logs->poll = epoll_create1(EPOLL_CLOEXEC);
    if (!log || logs->poll < 0 || pipe2(ends, O_CLOEXEC)) {
        int error = log ? -errno : -ENOMEM;
        free(log);
        return error;
    }
    /* For the read end alone: a session's writes block when the pipe is full. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) ||
        epoll_ctl(logs->poll, EPOLL_CTL_ADD, ends[0], &event)) {
        int error = -errno;
        close(ends[0]);
        close(ends[1]);
        free(log);
        return error;
    }
    log->fd = ends[0];
    log->next = logs->first;
    logs->first = log;
    *ret_log = log;
    *ret_end = ends[1];
    return 0;
}

static void session_log_forget(struct session_logs *logs, struct session_log *log)
{
    struct session_log **at = &logs->first;
    while (*at != log)
        at = &(*at)->next;
    *at = log->next;
    close(log->fd);
    free(log);
}

void session_log_began(struct session_logs *logs, struct session_log *log, pid_t pid)
{
    if (pid < 0)
        session_log_forget(logs, log);
    else
        log->pid = pid;
}

static void session_log_tell_refused(struct session_log *log)
{
    if (log->rate.refused)
        log_warn("process %d: %lu more lines were not logged", log->pid, log->rate.refused);
    log->rate.refused = 0;
}

/* The level of a line that our own logging wrote, and the text behind its prefix. LOG_LEVEL_OFF:
 * the line has another source. */
static enum log_level session_log_find_level(const char *line, const char **ret_text)
{
    static const struct {
        const char *name;
        enum log_level level;
    } levels[] = {{"] error: ", LOG_LEVEL_ERROR},
                  {"] warn: ", LOG_LEVEL_WARN},
                  {"] info: ", LOG_LEVEL_INFO},
                  {"] debug: ", LOG_LEVEL_DEBUG}};
    const char *from = strstr(line, "Z reseat[");
    const char *end = from ? strchr(from, ']') : NULL;
    *ret_text = line;
    for (size_t i = 0; end && i < ARRAY_SIZE(levels); i++)
        if (!strncmp(end, levels[i].name, strlen(levels[i].name))) {
            *ret_text = end + strlen(levels[i].name);
            return levels[i].level;
        }
    return LOG_LEVEL_OFF;
}

static void session_log_write_line(struct session_log *log)
{
    const char *text = NULL;
    char line[LINE_MAX_BYTES + 1];
    if (!log->used)
        return;
    text_make_safe(line, sizeof(line), log->line, log->used);
    log->used = 0;
    if (!rate_take(&log->rate, &lines, clock_now_ns()))
        return;
    session_log_tell_refused(log);
    enum log_level level = session_log_find_level(line, &text);
    if (level == LOG_LEVEL_OFF) /* From a driver or a sanitizer: written whatever our level is. */
        fprintf(stderr, "reseat-serve: process %d: %s\n", log->pid, text);
    else
        log_at(level, "process %d: %s", log->pid, text);
}

/* Returns how many bytes were read. */
static size_t session_log_read_some(struct session_log *log, size_t most)
{
    char bytes[ROUND_MAX];
    size_t total = 0;
    while (total < most) {
        ssize_t got = read(log->fd, bytes, sizeof(bytes));
        if (got <= 0)
            break;
        total += (size_t)got;
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] != '\n')
                log->line[log->used++] = bytes[i];
            if (bytes[i] == '\n' || log->used == sizeof(log->line))
                session_log_write_line(log);
        }
    }
    return total;
}

static void session_log_finish(struct session_logs *logs, struct session_log *log)
{
    (void)session_log_read_some(log, LAST_MAX);
    session_log_write_line(log);
    session_log_tell_refused(log);
    session_log_forget(logs, log);
}

void session_log_ended(struct session_logs *logs, pid_t pid)
{
    for (struct session_log *log = logs->first, *next; log; log = next) {
        next = log->next;
        if (log->pid == pid)
            session_log_finish(logs, log);
    }
}

void session_logs_finish(struct session_logs *logs)
{
    while (logs->first)
        session_log_finish(logs, logs->first);
}

static void session_log_watch(struct session_logs *logs, struct session_log *log, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = log};
    (void)epoll_ctl(logs->poll, EPOLL_CTL_MOD, log->fd, &event);
}

void session_logs_read(struct session_logs *logs, uint64_t now_ns)
{
    struct epoll_event events[64];
    int count = epoll_wait(logs->poll, events, ARRAY_SIZE(events), 0);
    for (int i = 0; i < count; i++) {
        struct session_log *log = events[i].data.ptr;
        if (!(events[i].events & EPOLLIN)) {
            /* The write end is closed: session_log_ended() follows when the process is reaped. */
            (void)epoll_ctl(logs->poll, EPOLL_CTL_DEL, log->fd, NULL);
            continue;
        }
        (void)session_log_read_some(log, ROUND_MAX);
        if (log->rate.refused) {
            log->held_ns = now_ns + HOLD_NS;
            session_log_watch(logs, log, 0);
        }
    }
}

uint64_t session_logs_tick(struct session_logs *logs, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    for (struct session_log *log = logs->first; log; log = log->next) {
        if (log->held_ns && now_ns >= log->held_ns) {
            log->held_ns = 0;
            session_log_watch(logs, log, EPOLLIN);
        }
        if (log->held_ns && log->held_ns < next)
            next = log->held_ns;
    }
    return next;
}
