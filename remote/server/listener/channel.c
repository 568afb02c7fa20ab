#include "remote/server/listener/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/link/socket.h"
#include "state/base/clock.h"

const char *const endings[ENDINGS] = {
    "ended by the operator",
    "its certificate was revoked",
    "its certificate has expired",
};

int channel_make(int ret_ends[2])
{
    static const int least = 1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends))
        return -errno;
    /* The kernel rounds this up to room for a few packets. Descriptors in transit count against the
     * limit of the whole user, so a session that does not read must not collect them. */
    (void)setsockopt(ret_ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
    return 0;
}

int channel_send(int channel, const void *packet, size_t size, int passed)
{
    struct socket_passed room;
    struct iovec iov = {(void *)packet, size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    socket_pass(&message, &room, passed);
    /* A SOCK_SEQPACKET socket sends a packet whole or not at all. */
    while (sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

int channel_receive(int channel, void *ret_packet, size_t size, int *ret_passed)
{
    struct socket_passed room;
    struct iovec iov = {ret_packet, size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof(room.bytes)};
    int passed = -1;
    ssize_t got;

    while ((got = recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0)
        if (errno != EINTR)
            return errno == ECONNRESET ? -EPIPE : -errno;
    if (got == 0)
        return -EPIPE;
    /* No process of ours sends more than one descriptor. */
    bool fits = socket_take_passed(&message, &passed, 1) <= 1 && (size_t)got == size &&
                !(message.msg_flags & MSG_TRUNC);
    if (fits && ret_passed) {
        *ret_passed = passed;
        return 0;
    }
    if (passed >= 0)
        close(passed);
    return fits && passed < 0 ? 0 : -EPROTO;
}

int channel_wait(int channel, uint64_t deadline_ns)
{
    struct pollfd ready = {.fd = channel, .events = POLLIN};

    for (;;) {
        uint64_t now = clock_now_ns();
        struct timespec left = clock_timespec(deadline_ns > now ? deadline_ns - now : 0);
        int count = ppoll(&ready, 1, &left, NULL);
        if (count != 0 && !(count < 0 && errno == EINTR))
            return count > 0 ? 0 : -errno;
        if (count == 0)
            return -ETIMEDOUT;
    }
}

void channel_tell_with(int channel, const struct channel_message *message, int passed)
{
    while (channel_send(channel, message, sizeof(*message), passed) == -EAGAIN) {
        struct pollfd room = {.fd = channel, .events = POLLOUT};
        (void)poll(&room, 1, -1);
    }
}

void channel_tell(int channel, const struct channel_message *message)
{
    channel_tell_with(channel, message, -1);
}
