#include "remote/server/session/relay.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "remote/link/link_unix.h"
#include "remote/server/session/sandbox.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/*
 * A link that was sealed for one process cannot be given to another. So who admitted it stays, and
 * passes on what it does not look at. Whoever waits for whom is left to the two ends: one that does
 * not read lets the other wait, and one that is gone ends the process, whatever waits in it.
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

/* It needs no file, no process, no root, and nobody who looks into it. */
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
        log_warn("nothing carries the link of %s: %m", link->peer);
        _exit(1);
    }
    relay_carry(&up);
    _exit(0);
}
