#include "remote/server/session/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/server/listener/channel.h"
#include "remote/server/session/sandbox.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/*
 * An encrypted link's state cannot be passed to another process. The process that admitted the link
 * therefore stays, and forwards bytes without parsing them. Flow control is left to the two ends:
 * when one does not read, the other blocks. When one closes, the relay process ends, even if its
 * other thread is blocked.
 */

#define ROOM (256u << 10)

struct direction {
    struct link *from, *to;
    unsigned char *bytes;
};

static void *relay_carry(void *data)
{
    const struct direction *direction = data;
    for (;;) {
        size_t size = 0;
        if (direction->from->ops->receive(direction->from, direction->bytes, ROOM, UINT64_MAX,
                                          &size))
            _exit(0);
        struct iovec iov = {direction->bytes, size};
        if (direction->to->ops->send(direction->to, &iov, 1, UINT64_MAX))
            _exit(0);
    }
}

/* The relay opens no files, starts no processes, does not run as root and cannot be traced. */
static bool relay_give_up_rights(void)
{
    struct rlimit none = {0, 0};
    return !sandbox_leave_root() && !prctl(PR_SET_DUMPABLE, 0) && !setrlimit(RLIMIT_NPROC, &none);
}

void relay_run(struct link *link, int fd)
{
    static unsigned char room[2][ROOM];
    struct link *session = NULL;
    if (link_unix_of(fd, &session))
        _exit(1);
    struct direction up = {link, session, room[0]}, down = {session, link, room[1]};
    if (thread_start("reseat-relay", 0, relay_carry, &down, NULL) || !relay_give_up_rights() ||
        sandbox_relay()) {
        log_warn("the link of %s could not be relayed: %m", link->peer);
        _exit(1);
    }
    relay_carry(&up);
    _exit(0);
}

#define WHERE_MAX 1024

struct request {
    struct ticket ticket;
    char where[WHERE_MAX];
};

/* ---- in the session ---- */

static int connector_await_answer(int socket, uint64_t deadline_ns)
{
    int32_t answer = 0;
    int error = channel_wait(socket, deadline_ns);
    if (error)
        return error;
    return recv(socket, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) ? answer : -EPIPE;
}

int connector_ask(int channel, const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                  struct link **ret_link)
{
    const struct channel_message message = {.kind = CHANNEL_CONNECT};
    struct request request = {.ticket = *ticket};
    int ends[2];
    if (strlen(where) >= sizeof(request.where))
        return -ENAMETOOLONG;
    strcpy(request.where, where);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    ssize_t sent = send(ends[0], &request, sizeof(request), MSG_NOSIGNAL);
    OPENSSL_cleanse(&request, sizeof(request));
    channel_tell_with(channel, &message, ends[1]);
    close(ends[1]);
    int error = sent == sizeof(request) ? connector_await_answer(ends[0], deadline_ns) : -EPIPE;
    if (error == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK))
        error = -errno;
    if (error == 0)
        return link_unix_of(ends[0], ret_link);
    close(ends[0]);
    return error;
}

/* ---- in the process that connects ---- */

static int connector_connect_to_any(struct request *request, struct link **ret_link)
{
    uint64_t until = clock_now_ns() + CONNECT_NS;
    char *rest = request->where;
    int error = -EINVAL;
    for (char *word = strsep(&rest, ","); word && error && clock_now_ns() < until;
         word = strsep(&rest, ",")) {
        const char *where = NULL;
        const struct link_kind *kind = link_kind_of(word, &where);
        error = kind ? kind->connect(where, &request->ticket, until, ret_link) : -EINVAL;
    }
    return error;
}

void connector_run(int socket)
{
    static struct request request;
    struct link *link = NULL;
    if (recv(socket, &request, sizeof(request), MSG_WAITALL) != sizeof(request) ||
        !memchr(request.where, '\0', sizeof(request.where)))
        _exit(1);
    /* The peer is not trusted: do not talk to it as root. */
    int32_t answer = sandbox_leave_root();
    if (answer == 0)
        answer = connector_connect_to_any(&request, &link);
    if (answer)
        log_info("cannot connect to another server: %s", strerror(-answer));
    OPENSSL_cleanse(&request, sizeof(request));
    if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer) || answer ||
        fcntl(socket, F_SETFL, O_NONBLOCK))
        _exit(1);
    relay_run(link, socket);
}
