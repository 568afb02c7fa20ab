#include "remote/link/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>

#include "remote/link/resolve.h"
#include "remote/link/socket.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/* Idle time before the first keepalive probe, interval and number of probes, and TCP_USER_TIMEOUT.
 */
#define IDLE_S     15
#define INTERVAL_S 5
#define PROBES     3
#define GIVE_UP_MS 30000
/* For so many seconds a connection on which no byte has arrived is not passed to accept(). */
#define DEFER_S 5

static bool link_tcp_set(int fd, int option, int value)
{
    return setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)) == 0;
}

static bool link_tcp_set_up(int fd)
{
    static const int on = 1;

    return link_tcp_set(fd, TCP_NODELAY, 1) &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0 &&
           link_tcp_set(fd, TCP_KEEPIDLE, IDLE_S) && link_tcp_set(fd, TCP_KEEPINTVL, INTERVAL_S) &&
           link_tcp_set(fd, TCP_KEEPCNT, PROBES) && link_tcp_set(fd, TCP_USER_TIMEOUT, GIVE_UP_MS);
}

/** Try the addresses of a name in order; each gets an equal part of the time that is left. */
static int link_tcp_connect_to_one(const struct addrinfo *found, uint64_t deadline_ns,
                                   struct owned *ret_socket)
{
    unsigned count = 0;
    int error = -ENOENT;

    for (const struct addrinfo *at = found; at; at = at->ai_next)
        count++;
    for (; found; found = found->ai_next, count--) {
        uint64_t now = clock_now_ns(), until = deadline_ns;
        if (deadline_ns != UINT64_MAX && deadline_ns > now)
            until = now + (deadline_ns - now) / count;
        error = socket_connect(found->ai_addr, found->ai_addrlen, until, ret_socket);
        if (!error && link_tcp_set_up(owned_fd(ret_socket)))
            return 0;
        if (!error) {
            error = socket_error(errno);
            owned_close(ret_socket);
        }
    }
    return error;
}

static int link_tcp_dial(const struct address *address, uint64_t deadline_ns,
                         struct owned *ret_socket)
{
    struct addrinfo *found;
    int error = address->port ? resolve(address, false, deadline_ns, &found) : -EINVAL;

    if (error)
        return error;
    error = link_tcp_connect_to_one(found, deadline_ns, ret_socket);
    freeaddrinfo(found);
    return error;
}

static int link_tcp_connect(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                            struct link **ret_link)
{
    return tls_connect_to("tcp", where, link_tcp_dial, ticket, deadline_ns, ret_link);
}

static int link_tcp_listen(const char *where, int *ret_fd)
{
    struct addrinfo *found;
    struct address address;
    int fd, error = tls_listen_address("tcp", where, &address);

    error = error ? error : resolve(&address, true, UINT64_MAX, &found);
    if (error)
        return error;
    error = socket_listen(found->ai_addr, found->ai_addrlen, &fd);
    freeaddrinfo(found);
    if (error)
        return error;
    (void)link_tcp_set(fd, TCP_DEFER_ACCEPT, DEFER_S);
    *ret_fd = fd;
    return 0;
}

static int link_tcp_admit(int fd, uint64_t deadline_ns, struct link **ret_link)
{
    struct owned socket;
    int error = owned_take(fd, &socket);

    if (error)
        return error;
    if (!link_tcp_set_up(owned_fd(&socket))) {
        error = socket_error(errno);
        owned_close(&socket);
        return error;
    }
    return tls_admit(&socket, deadline_ns, ret_link);
}

const struct link_kind link_tcp = {
    .scheme = "tcp",
    .anyone = true,
    .connect = link_tcp_connect,
    .listen = link_tcp_listen,
    .admit = link_tcp_admit,
};
