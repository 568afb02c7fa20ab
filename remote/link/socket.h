#ifndef RESEAT_REMOTE_LINK_SOCKET_H
#define RESEAT_REMOTE_LINK_SOCKET_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"
#include "state/server/address.h"

/* Stream sockets. No call blocks beyond its deadline (clock_now_ns(); UINT64_MAX: none).
 * Thread-safe. */

/** How often a waiting thread checks that the descriptor is still ours. */
#define SOCKET_LOOK_NS 1000000000ull

/**
 * Wait for one of @events (POLLIN, POLLOUT) or an error, which the next use of the socket then
 * reports. May return early without either. 0, -ETIMEDOUT, -EBADF (the program has closed the
 * descriptor) or -errno.
 */
MUST_CHECK int socket_wait(const struct owned *socket, short events, uint64_t deadline_ns);

/**
 * Connect a new, non-blocking socket.
 *
 * Returns 0, -ETIMEDOUT, or the error of socket() or connect().
 */
MUST_CHECK int socket_connect(const struct sockaddr *address, socklen_t size, uint64_t deadline_ns,
                              struct owned *ret_socket);

/** Make a non-blocking listening socket. 0 or -errno. */
MUST_CHECK int socket_listen(const struct sockaddr *address, socklen_t size, int *ret_fd);

/** Buffer for one descriptor in a message of a Unix socket. */
struct socket_passed {
    _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
};
/** Attach a copy of @fd to @message; -1: nothing. @passed must live until the message is sent. */
void socket_pass(struct msghdr *message, struct socket_passed *passed, int fd);
/**
 * Take the descriptors that came with @message. Because of alignment, a buffer for one descriptor
 * may hold two.
 *
 * @ret_fds  At most @room of them, the caller's. All others are closed.
 * Returns how many came.
 */
size_t socket_take_passed(struct msghdr *message, int *ret_fds, size_t room);

/** Translate the errno of a failed send or receive: -EPIPE when the other end is gone. */
int socket_error(int error);

#endif
