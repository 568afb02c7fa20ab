#include "agent/daemon/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/cleanup.h"

/* The first descriptor that systemd passes. */
#define PASSED 3

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

void service_notify(const char *state)
{
    const char *named = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = named ? strlen(named) : 0;

    if (!length || length >= sizeof(address.sun_path) || (named[0] != '/' && named[0] != '@'))
        return;
    memcpy(address.sun_path, named, length);
    if (named[0] == '@')
        address.sun_path[0] = '\0'; /* An abstract name. */
    CLEANUP(cleanup_close) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                      (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

uint64_t service_watchdog_ms(void)
{
    const char *whose = getenv("WATCHDOG_PID");

    return !whose || service_is_for_us("WATCHDOG_PID") ? service_number("WATCHDOG_USEC") / 1000 : 0;
}
