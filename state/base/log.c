#include "state/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state/base/bytes/text.h"
#include "state/base/files/file.h"
#include "state/base/files/owned.h"
#include "state/base/threads/thread.h"

#define LINE_MAX_BYTES 1024

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

atomic_int log_threshold = LOG_LEVEL_DEBUG;

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static char log_path[PATH_MAX];              /* "" for stderr. Written by log_start alone. */
static struct owned log_stderr = {.fd = -1}; /* Written before main(). */

/* Make the path absolute, since the program may change its working directory later. */
static bool log_keep_path(const char *path)
{
    char folder[PATH_MAX];
    int length;

    if (path[0] == '/') {
        length = snprintf(log_path, sizeof(log_path), "%s", path);
    } else {
        if (!getcwd(folder, sizeof(folder)))
            return false;
        length = snprintf(log_path, sizeof(log_path), "%s/%s", folder, path);
    }
    return length > 0 && (size_t)length < sizeof(log_path);
}

/* Remember stderr before main(), since the program may close it and open another file under its
 * number before the first line. */
__attribute__((constructor)) static void log_find_stderr(void)
{
    if (secure_getenv("RESEAT_LOG"))
        log_stderr = owned_of(STDERR_FILENO);
}

static void log_start(void)
{
    const char *value = secure_getenv("RESEAT_LOG");
    enum log_level level = LOG_LEVEL_OFF;

    if (value) {
        size_t length = strcspn(value, ":");

        for (size_t i = LOG_LEVEL_ERROR; i < ARRAY_SIZE(level_names); i++)
            if (strlen(level_names[i]) == length && !strncmp(value, level_names[i], length))
                level = (enum log_level)i;
        if (value[length] == ':' && value[length + 1] && !log_keep_path(value + length + 1))
            level = LOG_LEVEL_OFF;
    }
    atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

/*
 * The file is opened for each line, because programs close descriptors that they do not know and
 * reuse the numbers. If the program has redirected its stderr since, nothing is written there.
 */
static void log_write_line(const char *line, size_t length)
{
    struct owned file = log_stderr;

    if (log_path[0]) {
        int fd = file_open_named(log_path, O_WRONLY | O_APPEND | O_NONBLOCK);
        if (fd < 0 || owned_take(fd, &file) != 0)
            return;
    }
    (void)!owned_append(&file, line, length);
    if (log_path[0])
        owned_close(&file);
}

void log_write(enum log_level level, const char *format, ...)
{
    int saved = errno, before = cancel_hold();
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm parts;
    size_t used;
    va_list args;

    pthread_once(&log_once, log_start);
    if (!log_enabled(level) || level <= LOG_LEVEL_OFF || level > LOG_LEVEL_DEBUG)
        goto out;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof(line) - used,
                             ".%06ldZ reseat[%d] %s: ", now.tv_nsec / 1000, (int)getpid(),
                             level_names[level]);
    va_start(args, format);
    errno = saved;
    if (vsnprintf(line + used, sizeof(line) - used - 1, format, args) < 0)
        line[used] = '\0';
    va_end(args);
    used = strlen(line);
    text_make_safe(line, used + 1, line, used);
    used = strlen(line);
    line[used++] = '\n';
    log_write_line(line, used);
out:
    cancel_allow(before);
    errno = saved;
}
