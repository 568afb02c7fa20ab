#include "tests/remote/greeter.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "messages.h"
#include "remote/link/link.h"
#include "remote/wire/stream.h"
#include "state/base/clock.h"

void greeter_serve(int fd, bool welcomes)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct pollfd coming = {.fd = fd, .events = POLLIN};
    uint64_t deadline = clock_now_ns() + 20 * NS_PER_S;
    struct link *link = NULL;
    struct message message;
    struct pack pack;

    (void)poll(&coming, 1, -1);
    if (link_unix.admit(accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), deadline, &link) ||
        greeting_receive(link, buffer, deadline, &message))
        _exit(1);
    pack_init(&pack);
    if (welcomes)
        pack_welcome(&pack, &(struct msg_welcome){.version = WIRE_VERSION + 1});
    else
        pack_refused(&pack, &(struct msg_refused){
                                .reason = "the server has protocol version 7, the client has 1"});
    _exit(greeting_send(link, welcomes ? MSG_WELCOME : MSG_REFUSED, pack.bytes, pack.used, deadline)
              ? 1
              : 0);
}
