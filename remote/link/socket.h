#ifndef RESEAT_REMOTE_LINK_SOCKET_H
#define RESEAT_REMOTE_LINK_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/* Sockets of streams, none of which ever blocks longer than a deadline (clock_now_ns(); UINT64_MAX:
 * none). Thread-safe. */

/** So often somebody who waits looks whether the descriptor is still ours. */
#define SOCKET_LOOK_NS 1000000000ull

/**
 * Wait for one of @events (POLLIN, POLLOUT), or an error, which whoever uses the socket next sees.
 * May come back early, with nothing. 0, -ETIMEDOUT, -EBADF (it is not ours any more) or -errno.
 */
MUST_CHECK int socket_wait(const struct owned *socket, short events, uint64_t deadline_ns);

/**
 * Connect a new socket that does not block.
 *
 * Returns 0, -ETIMEDOUT, or what socket() or connect() said.
 */
MUST_CHECK int socket_connect(const struct sockaddr *address, socklen_t size, uint64_t deadline_ns,
                              struct owned *ret_socket);

/** A socket that listens there and does not block. 0 or -errno. */
MUST_CHECK int socket_listen(const struct sockaddr *address, socklen_t size, int *ret_fd);

/** Room for one descriptor beside a message of a Unix socket. */
struct socket_passed {
    _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
};
/** Send a copy of @fd along with @message; -1: none. @passed lives until that is sent. */
void socket_pass(struct msghdr *message, struct socket_passed *passed, int fd);
/**
 * Take the descriptors that came along with @message. Where there is room for one the kernel may
 * put two.
 *
 * @ret_fds  @room of them at most; the caller's. The others are closed.
 * Returns how many came.
 */
size_t socket_take_passed(struct msghdr *message, int *ret_fds, size_t room);

/** What a failed send or receive means for a stream: -EPIPE where the other end is gone. */
int socket_error(int error);

#endif
