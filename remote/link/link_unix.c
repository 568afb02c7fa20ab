#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/link/socket.h"
#include "state/base/clock.h"
#include "state/base/files/access.h"
#include "state/base/files/folder.h"
#include "state/base/files/owned.h"

/*
 * unix:PATH: a socket that only its user can reach. The kernel tells who is at the other end.
 */

#define BACKLOG 64

struct unix_link {
    struct link base;
    struct owned socket;
    atomic_bool shut;
    int passing;    /* Sent with the next bytes; -1: none. Used by the sending thread. */
    int arrived[8]; /* Used by the receiving thread. */
    size_t arrived_count;
};

static struct unix_link *link_unix_self(struct link *link)
{
    return container_of(link, struct unix_link, base);
}

/* Wait until the socket may be ready. Returns 0, or an error as `send` and `receive` do. */
static int link_unix_wait_ready(struct unix_link *link, short events, uint64_t deadline_ns)
{
    return atomic_load(&link->shut) ? -ECANCELED : socket_wait(&link->socket, events, deadline_ns);
}

static int link_unix_failed(const struct unix_link *link, int error)
{
    if (atomic_load(&link->shut))
        return -ECANCELED;
    return error == ECONNRESET ? -EPIPE : -error;
}

static int link_unix_send(struct link *base, struct iovec *iov, size_t count, uint64_t deadline_ns)
{
    struct unix_link *link = link_unix_self(base);
    while (count != 0) {
        struct socket_passed passed;
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
        int fd = owned_fd(&link->socket);
        socket_pass(&message, &passed, link->passing);
        if (fd < 0)
            return link_unix_failed(link, EBADF);
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            int error = link_unix_wait_ready(link, POLLOUT, deadline_ns);
            if (error)
                return error;
            continue;
        }
        if (sent < 0)
            return link_unix_failed(link, errno);
        if (link->passing >= 0)
            close(link->passing);
        link->passing = -1;
        for (; count != 0 && (size_t)sent >= iov->iov_len; count--, iov++)
            sent -= (ssize_t)iov->iov_len;
        if (count != 0) {
            iov->iov_base = (char *)iov->iov_base + sent;
            iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

/* Descriptors that nobody takes are closed with the link, or at once when there is no room. */
static void link_unix_keep_descriptors(struct unix_link *link, struct msghdr *message)
{
    size_t room = ARRAY_SIZE(link->arrived) - link->arrived_count;
    size_t came = socket_take_passed(message, link->arrived + link->arrived_count, room);
    link->arrived_count += came < room ? came : room;
}

static int link_unix_receive(struct link *base, void *bytes, size_t size, uint64_t deadline_ns,
                             size_t *ret_received)
{
    struct unix_link *link = link_unix_self(base);
    for (;;) {
        struct socket_passed passed;
        struct iovec iov = {bytes, size};
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = passed.bytes,
                                 .msg_controllen = sizeof(passed.bytes)};
        int fd = owned_fd(&link->socket);
        if (fd < 0)
            return link_unix_failed(link, EBADF);
        ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            link_unix_keep_descriptors(link, &message);
            *ret_received = (size_t)got;
            return 0;
        }
        if (got == 0)
            return link_unix_failed(link, EPIPE);
        if (errno != EAGAIN && errno != EINTR)
            return link_unix_failed(link, errno);
        int error = link_unix_wait_ready(link, POLLIN, deadline_ns);
        if (error)
            return error;
    }
}

static void link_unix_shut_down(struct link *base)
{
    struct unix_link *link = link_unix_self(base);
    if (!atomic_exchange(&link->shut, true)) {
        int fd = owned_fd(&link->socket);
        if (fd >= 0)
            shutdown(fd, SHUT_RDWR);
    }
}

static void link_unix_destroy(struct link *base)
{
    struct unix_link *link = link_unix_self(base);
    for (size_t i = 0; i < link->arrived_count; i++)
        close(link->arrived[i]);
    if (link->passing >= 0)
        close(link->passing);
    owned_close(&link->socket);
    free(link);
}

static int link_unix_send_descriptor(struct link *base, int fd)
{
    struct unix_link *link = link_unix_self(base);
    int copy = link->passing >= 0 ? -1 : dup(fd);
    if (copy < 0)
        return link->passing >= 0 ? -EBUSY : -errno;
    link->passing = copy;
    return 0;
}

static int link_unix_take_descriptor(struct link *base, int *ret_fd)
{
    struct unix_link *link = link_unix_self(base);
    if (link->arrived_count == 0)
        return -ENOENT;
    *ret_fd = link->arrived[0];
    link->arrived_count--;
    memmove(link->arrived, link->arrived + 1, link->arrived_count * sizeof(link->arrived[0]));
    return 0;
}

static struct owned *link_unix_socket(struct link *base)
{
    return &link_unix_self(base)->socket;
}

static const struct link_ops unix_ops = {
    .send = link_unix_send,
    .receive = link_unix_receive,
    .shut_down = link_unix_shut_down,
    .destroy = link_unix_destroy,
    .send_descriptor = link_unix_send_descriptor,
    .take_descriptor = link_unix_take_descriptor,
    .socket = link_unix_socket,
};

int link_unix_of(int fd, struct link **ret_link)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    struct unix_link *link = calloc(1, sizeof(*link));
    if (!link || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
        int error = link ? -errno : -ENOMEM;
        free(link);
        close(fd);
        return error;
    }
    int error = owned_take(fd, &link->socket);
    if (error) {
        free(link);
        return error;
    }
    link->base.ops = &unix_ops;
    link->passing = -1;
    snprintf(link->base.peer, sizeof(link->base.peer), "uid %u, process %d", peer.uid, peer.pid);
    *ret_link = &link->base;
    return 0;
}

static int link_unix_connect(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                             struct link **ret_link)
{
    if (ticket)
        return -EINVAL;
    for (;;) {
        int fd = agent_connect(where, geteuid());
        if (fd >= 0)
            return link_unix_of(fd, ret_link);
        if (fd != -EAGAIN)
            return fd;
        if (clock_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
        clock_sleep(10 * NS_PER_MS);
    }
}

/* Check that no other user can replace the socket, or the folder that it is in. */
static int link_unix_check_folder(const char *where)
{
    char problem[FOLDER_PROBLEM_MAX];
    char folder[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(where, '/');
    if (where[0] != '/' || slash == where ||
        strlen(where) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -EINVAL;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - where), where);
    if (!realpath(folder, real))
        return -errno;
    return folder_is_ours(real, true) ? folder_check_above(real, problem) : -EPERM;
}

static int link_unix_listen(const char *where, int *ret_fd)
{
    int error = link_unix_check_folder(where);
    return error ? error : access_listen(where, SOCK_STREAM, BACKLOG, ret_fd);
}

static void link_unix_unlisten(const char *where)
{
    unlink(where);
}

static int link_unix_admit(int fd, uint64_t deadline_ns, struct link **ret_link)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    (void)deadline_ns;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ||
        !access_may_manage(geteuid(), peer.uid)) {
        close(fd);
        return -EPERM;
    }
    return link_unix_of(fd, ret_link);
}

const struct link_kind link_unix = {
    .scheme = "unix",
    .connect = link_unix_connect,
    .listen = link_unix_listen,
    .unlisten = link_unix_unlisten,
    .admit = link_unix_admit,
};
