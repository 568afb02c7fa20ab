#include "agent/daemon/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"

/* The first descriptor that systemd passes. */
#define PASSED 3
/* Where the journal takes entries: sd_journal_send(3) sends them there. */
#define JOURNAL "/run/systemd/journal/socket"
/* Of all fields of an entry; those that do not fit are left out. */
#define ENTRY_MAX 8192

static uint64_t service_number(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : 0;
}

/* The variables are inherited: @variable names the process for which they are. */
static bool service_is_for_us(const char *variable)
{
    return service_number(variable) == (uint64_t)getpid();
}

int service_take_socket(const char *path, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNSPEC};
    socklen_t size = sizeof(address), length = sizeof(int);
    int listens = 0;

    uint64_t count = service_is_for_us("LISTEN_PID") ? service_number("LISTEN_FDS") : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!count) {
        *ret_fd = 0;
        return 0;
    }
    if (count > 1 || fcntl(PASSED, F_SETFD, FD_CLOEXEC) ||
        getsockopt(PASSED, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) || !listens ||
        getsockname(PASSED, (struct sockaddr *)&address, &size) || address.sun_family != AF_UNIX ||
        strncmp(address.sun_path, path, sizeof(address.sun_path)) != 0)
        return -EINVAL;
    *ret_fd = PASSED;
    return 0;
}

/** Send one datagram. Returns whether it was taken. */
static bool service_send(const char *socket_name, const void *bytes, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = socket_name ? strlen(socket_name) : 0;

    if (!length || length >= sizeof(address.sun_path) ||
        (socket_name[0] != '/' && socket_name[0] != '@'))
        return false;
    memcpy(address.sun_path, socket_name, length);
    if (socket_name[0] == '@')
        address.sun_path[0] = '\0'; /* An abstract name. */
    CLEANUP(cleanup_close) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 &&
           sendto(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) >= 0;
}

void service_notify(const char *state)
{
    (void)service_send(getenv("NOTIFY_SOCKET"), state, strlen(state));
}

/** True if stderr is the journal's: the variable is inherited by processes whose stderr is not. */
static bool service_is_journaled(void)
{
    const char *named = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat stream;

    if (!named || fstat(STDERR_FILENO, &stream))
        return false;
    snprintf(ours, sizeof(ours), "%ju:%ju", (uintmax_t)stream.st_dev, (uintmax_t)stream.st_ino);
    return strcmp(named, ours) == 0;
}

bool service_journal(const struct service_field *fields, size_t count)
{
    char entry[ENTRY_MAX];
    size_t size = 0;

    if (!service_is_journaled())
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = fields[i].name, *value = fields[i].value;
        size_t length = value ? strlen(value) : 0;
        if (!length || strlen(name) + length + 2 >= sizeof(entry) - size)
            continue;
        size += (size_t)sprintf(entry + size, "%s=", name);
        text_make_safe(entry + size, length + 1, value, length);
        size += strlen(entry + size);
        entry[size++] = '\n';
    }
    return service_send(JOURNAL, entry, size);
}

uint64_t service_watchdog_ms(void)
{
    const char *whose = getenv("WATCHDOG_PID");

    return !whose || service_is_for_us("WATCHDOG_PID") ? service_number("WATCHDOG_USEC") / 1000 : 0;
}
