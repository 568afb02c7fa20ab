#include "remote/link/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"

/* Connections that wait for accept(); the kernel refuses more. */
#define BACKLOG 64

int socket_wait(const struct owned *socket, short events, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();

    if (now >= deadline_ns)
        return -ETIMEDOUT;
    uint64_t wait = deadline_ns - now;
    struct timespec timeout = clock_timespec(wait < SOCKET_LOOK_NS ? wait : SOCKET_LOOK_NS);
    struct pollfd poll = {.fd = owned_fd(socket), .events = events};
    if (poll.fd < 0)
        return -EBADF;
    return ppoll(&poll, 1, &timeout, NULL) < 0 && errno != EINTR ? -errno : 0;
}

static int socket_await_connection(const struct owned *owned, uint64_t deadline_ns)
{
    int error = 0;

    for (;;) {
        struct pollfd poll_now = {.fd = owned_fd(owned), .events = POLLOUT};
        socklen_t size = sizeof(error);
        if (poll_now.fd < 0)
            return -EBADF;
        if (poll(&poll_now, 1, 0) > 0)
            return getsockopt(poll_now.fd, SOL_SOCKET, SO_ERROR, &error, &size) ? -errno : -error;
        error = socket_wait(owned, POLLOUT, deadline_ns);
        if (error)
            return error;
    }
}

int socket_connect(const struct sockaddr *address, socklen_t size, uint64_t deadline_ns,
                   struct owned *ret_socket)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct owned owned;
    int error = owned_take(fd, &owned);

    if (error)
        return error;
    if (connect(owned_fd(&owned), address, size))
        error = errno == EINPROGRESS || errno == EINTR
                    ? socket_await_connection(&owned, deadline_ns)
                    : -errno;
    if (error)
        owned_close(&owned);
    else
        *ret_socket = owned;
    return error;
}

int socket_listen(const struct sockaddr *address, socklen_t size, int *ret_fd)
{
    static const int on = 1, off = 0;
    CLEANUP(cleanup_close)
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    /* Connections of a server that ran before may still be closing. */
    if (address->sa_family != AF_VSOCK && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
        return -errno;
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, address, size) || listen(fd, BACKLOG))
        return -errno;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

void socket_pass(struct msghdr *message, struct socket_passed *passed, int fd)
{
    if (fd < 0)
        return;
    *passed = (struct socket_passed){0};
    message->msg_control = passed->bytes;
    message->msg_controllen = sizeof(passed->bytes);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
}

size_t socket_take_passed(struct msghdr *message, int *ret_fds, size_t room)
{
    size_t count = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++, count++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(fd));
            if (count < room)
                ret_fds[count] = fd;
            else
                close(fd);
        }
    }
    return count;
}

int socket_error(int error)
{
    /* ETIMEDOUT comes from the kernel, which gave up on the other end; it is no deadline of ours.
     */
    return error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH ||
                   error == ENETUNREACH || error == ENOTCONN
               ? -EPIPE
               : -error;
}
