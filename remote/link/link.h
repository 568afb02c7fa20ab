#ifndef RESEAT_REMOTE_LINK_LINK_H
#define RESEAT_REMOTE_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/*
 * What lets one connect to a session of a server for one transfer, once, without a certificate. A
 * client draws it, and gives it to both sessions over its links with them; who does not have it
 * gets past no handshake, on either side. The name goes over the connection, the key does not.
 */

#define TICKET_KEY_SIZE 32

struct ticket_name {
    uint64_t session; /**< Of the server that is connected to. */
    unsigned char bytes[16];
};

struct ticket {
    struct ticket_name name;
    unsigned char key[TICKET_KEY_SIZE];
};
_Static_assert(sizeof(struct ticket) == 56, "as it is sent");

/*
 * What carries a session between the driver and a device server: a stream of bytes in each
 * direction, whole and in order. Frames, their numbers, and what follows when a link breaks are the
 * session's (remote/wire/); a link that failed once stays failed.
 *
 * One thread at most sends and one at most receives at a time, each of them without the other. All
 * deadlines are of clock_now_ns(); UINT64_MAX: none. No signal is raised, nothing is printed, and a
 * descriptor is looked at before it is used (state/base/files/owned.h), as the program's process
 * needs it.
 */

struct link;
struct ticket;

struct link_ops {
    /**
     * Send all of @iov, which is @count long and may be changed meanwhile.
     *
     * Returns 0, -ETIMEDOUT (some of it may be sent), -EPIPE (the other end is gone), -ECANCELED
     * (shut down), or -errno. After any failure nothing more can be sent.
     */
    int (*send)(struct link *link, struct iovec *iov, size_t count, uint64_t deadline_ns);

    /**
     * Receive some bytes, as soon as there are any, @size (not 0) at most.
     *
     * Returns 0 with their number, -ETIMEDOUT (nothing came: it can be called again), -EPIPE (the
     * stream ended), -ECANCELED (shut down), or -errno.
     */
    int (*receive)(struct link *link, void *bytes, size_t size, uint64_t deadline_ns,
                   size_t *ret_received);

    /** Let both directions fail from now on, in whoever waits as well. From any thread, again and
     *  again; never blocks. */
    void (*shut_down)(struct link *link);

    /** Release it. Nobody is in it any more. In the child of a fork it leaves the parent's
     *  connection alone. */
    void (*destroy)(struct link *link);

    /**
     * Send a descriptor to a process on the same machine; NULL: the link cannot. Called as `send`
     * is. It stays the caller's. It arrives before the bytes of the next `send` do. 0 or -errno.
     */
    int (*send_descriptor)(struct link *link, int fd);

    /** The first descriptor that arrived and was not taken; NULL as above. Called as `receive` is;
     *  never blocks. 0, -ENOENT, or -errno. Close-on-exec, and the caller's. */
    int (*take_descriptor)(struct link *link, int *ret_fd);

    /** What hangs up when the other end is gone, on the same machine; NULL as above. It stays the
     *  link's; in the child of a fork it may be closed. */
    struct owned *(*socket)(struct link *link);
};

#define LINK_PEER_MAX 128

/** What every link begins with. */
struct link {
    const struct link_ops *ops;
    /** Who is at the other end, as proven: "uid 1000", or a certificate's name. Safe to print. */
    char peer[LINK_PEER_MAX];
};

/**
 * A way to make links, by the word before the colon of an address ("unix" of "unix:/path").
 *
 * A server is one process that listens, and one for each client: what a stranger can send is read
 * by `admit`, in a process of its own.
 */
struct link_kind {
    const char *scheme;
    /** Strangers can connect: `admit` looks at their certificates, and tls.h has what these say. */
    bool anyone;

    /**
     * Connect, and prove to each other who one is, as the scheme does.
     *
     * @where     What follows the colon.
     * Returns 0, -ETIMEDOUT, -ECONNREFUSED or -ENOENT (nobody listens), -EPERM (whoever does may
     * not be believed), -EINVAL (no such address), or -errno.
     */
    int (*connect)(const char *where, uint64_t deadline_ns, struct link **ret_link);

    /** The same, with a struct ticket in place of who one is. NULL: nobody is let in by one. */
    int (*connect_ticket)(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                          struct link **ret_link);

    /** Listen there. @ret_fd: non-blocking, to be polled and given to accept4(); the caller's.
     *  Returns 0, -EADDRINUSE (a server lives there), -EPERM (others could get at it), -EINVAL, or
     *  -errno. */
    int (*listen)(const char *where, int *ret_fd);

    /** Take what listen() made away again; @fd was closed. NULL: there is nothing. */
    void (*unlisten)(const char *where);

    /** The server's end of `connect`, with what accept4() gave: @fd is the link's, or closed on
     *  failure. Returns 0, -EPERM (not admitted), -ETIMEDOUT, -EPROTO, or -errno. */
    int (*admit)(int fd, uint64_t deadline_ns, struct link **ret_link);
};

/** Each in its own link_NAME.c. */
extern const struct link_kind link_unix;

/**
 * The kind of an address.
 *
 * @ret_where  Points into @address, behind the colon.
 * Returns NULL for one of no scheme that is known.
 */
const struct link_kind *link_kind_of(const char *address, const char **ret_where);

/**
 * A link over a stream socket of this machine that is connected already.
 *
 * @fd  Is the link's, or closed on failure.
 * Returns 0 or -errno.
 */
MUST_CHECK int link_unix_of(int fd, struct link **ret_link);

/*
 * TLS 1.3 over TCP (tls.h), "tcp:HOST:PORT"; TCP alone is not offered. A client's credentials are
 * those of credentials_find(); a server is opened with tls_server_open() before it listens.
 *
 * A host that vanished is noticed by the kernel within half a minute, whether somebody waits for
 * its bytes or has some for it; then the link fails with -EPIPE. A host that is there and says
 * nothing is what deadlines are for.
 */
extern const struct link_kind link_tcp;

/*
 * TLS 1.3 (tls.h) between a virtual machine and its host, "vsock:CID:PORT". The hypervisor vouches
 * for which machine is at the other end, but not for which of its users: any of them may connect,
 * and listen on any port. So both sides show certificates here as well, and a guest's says what it
 * may use; nothing is hidden from the host by that, which can read its guests' memory.
 *
 * The kernel tells of the other machine's end; of one that stands still only deadlines do.
 */
extern const struct link_kind link_vsock;

#endif
