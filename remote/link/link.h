#ifndef RESEAT_REMOTE_LINK_LINK_H
#define RESEAT_REMOTE_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/*
 * A ticket lets one server connect to a session of another, once, for one transfer, without a
 * certificate. The client draws it at random and sends it to both sessions over its own links.
 * Without it the handshake fails, on either side. The name is sent over the new connection; the key
 * never is.
 */

#define TICKET_KEY_SIZE 32

struct ticket_name {
    uint64_t session; /**< A session of the server that is connected to. */
    unsigned char bytes[16];
};

struct ticket {
    struct ticket_name name;
    unsigned char key[TICKET_KEY_SIZE];
};
_Static_assert(sizeof(struct ticket) == 56, "as it is sent");

/*
 * A link carries a session between the driver and a device server: a reliable, ordered stream of
 * bytes in each direction. Frames, their numbers, and recovery from a broken link are in
 * remote/wire/. A link that has failed once stays failed.
 *
 * At most one thread sends and one receives at a time; the two are independent. All deadlines are
 * of clock_now_ns(); UINT64_MAX: none. A link raises no signal and prints nothing. As it runs in a
 * program that may close any descriptor, it checks that a descriptor is still its own before each
 * use (state/base/files/owned.h).
 */

struct link;

struct link_ops {
    /**
     * Send all bytes of @iov, whose @count entries are modified.
     *
     * Returns 0, -ETIMEDOUT (part of it may have been sent), -EPIPE (the other end is gone),
     * -ECANCELED (shut down), or -errno. After a failure nothing more can be sent.
     */
    int (*send)(struct link *link, struct iovec *iov, size_t count, uint64_t deadline_ns);

    /**
     * Wait for bytes, and receive those that have arrived, at most @size (not 0).
     *
     * Returns 0 with their number, -ETIMEDOUT (nothing came; it can be called again), -EPIPE (the
     * stream ended), -ECANCELED (shut down), or -errno.
     */
    int (*receive)(struct link *link, void *bytes, size_t size, uint64_t deadline_ns,
                   size_t *ret_received);

    /** Make both directions fail from now on, also for threads that are waiting. From any thread,
     * any number of times; never blocks. */
    void (*shut_down)(struct link *link);

    /** Free the link; no thread may be using it. In the child of a fork, the parent's connection is
     * not disturbed. */
    void (*destroy)(struct link *link);

    /**
     * Send a copy of a descriptor to a process on the same machine; it arrives no later than the
     * bytes of the next `send`. Called by the sending thread. NULL: not possible with this kind of
     * link. 0 or -errno.
     */
    int (*send_descriptor)(struct link *link, int fd);

    /** Take the oldest descriptor that has arrived, close-on-exec. Called by the receiving thread;
     * never blocks. NULL as above. 0, -ENOENT, or -errno. */
    int (*take_descriptor)(struct link *link, int *ret_fd);

    /** A socket that hangs up when the peer on the same machine ends; NULL as above. Owned by the
     * link; the child of a fork may close it. */
    struct owned *(*socket)(struct link *link);
};

#define LINK_PEER_MAX 128

/** The first member of every link. */
struct link {
    const struct link_ops *ops;
    /** The authenticated peer: "uid 1000", or the name in a certificate. Safe to print. */
    char peer[LINK_PEER_MAX];
};

/**
 * A kind of link, by the scheme of an address ("unix" of "unix:/path").
 *
 * A server has one process that listens, and one for each connection. What a stranger sends is read
 * by `admit`, in the process of that connection.
 */
struct link_kind {
    const char *scheme;
    /** Strangers can connect: `admit` checks a certificate, and tls.h tells what that grants. */
    bool anyone;

    /**
     * Connect, and authenticate both ends as the kind of link does.
     *
     * @where   What follows the colon.
     * @ticket  Authenticate by it instead, if the kind of link can; NULL: none.
     * Returns 0, -ETIMEDOUT, -ECONNREFUSED or -ENOENT (nobody listens), -EPERM (the listening
     * process is not trusted), -EINVAL (no valid address, or no tickets), or -errno.
     */
    int (*connect)(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                   struct link **ret_link);

    /** Listen. @ret_fd: the caller's, non-blocking, for poll() and accept4(). Returns 0,
     * -EADDRINUSE (another server listens there), -EPERM (other users could replace the socket),
     * -EINVAL, or -errno. */
    int (*listen)(const char *where, int *ret_fd);

    /** Remove what listen() created, after the descriptor was closed. NULL: nothing to remove. */
    void (*unlisten)(const char *where);

    /** The server's end of `connect`. Takes @fd, from accept4(). Returns 0, -EPERM (not admitted),
     * -ETIMEDOUT, -EPROTO, or -errno. */
    int (*admit)(int fd, uint64_t deadline_ns, struct link **ret_link);
};

/** Each is defined in its link_NAME.c. */
extern const struct link_kind link_unix;

/**
 * The kind of an address.
 *
 * @ret_where  Points into @address, behind the colon.
 * Returns NULL if no kind has its scheme.
 */
const struct link_kind *link_kind_of(const char *address, const char **ret_where);

/**
 * Make a link of a connected Unix stream socket.
 *
 * @fd  Taken, also on failure.
 * Returns 0 or -errno.
 */
MUST_CHECK int link_unix_of(int fd, struct link **ret_link);

/*
 * TLS 1.3 over TCP (tls.h): "tcp:HOST:PORT". There is no TCP without TLS. A client uses the
 * credentials that credentials_find() finds; a server calls tls_server_open() before it listens.
 *
 * When the peer's host has vanished, the kernel notices within half a minute, whether a thread
 * waits to send or to receive; the link then fails with -EPIPE. A peer that is alive but silent is
 * only noticed by deadlines.
 */
extern const struct link_kind link_tcp;

/*
 * TLS 1.3 (tls.h) between a virtual machine and its host: "vsock:CID:PORT". The hypervisor proves
 * which machine is at the other end, but not which of its users: any user may connect, and listen
 * on any port. So both sides show certificates here, too, and a guest's certificate says what it
 * may use. Nothing of this is secret from the host, which can read its guests' memory.
 *
 * The kernel reports when the other machine ends. One that stands still is only noticed by
 * deadlines.
 */
extern const struct link_kind link_vsock;

#endif
