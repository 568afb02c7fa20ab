#include "remote/server/greeting.h"

#include <errno.h>
#include <stdio.h>

#include "state/base/clock.h"
#include "state/base/log.h"

static void refuse(struct link *link, const char *reason)
{
    struct pack pack;
    pack_init(&pack);
    pack_refused(&pack, &(struct msg_refused){.reason = reason});
    (void)!greeting_send(link, MSG_REFUSED, pack.bytes, pack.used, clock_now_ns() + NS_PER_S);
    pack_finish(&pack);
    log_warn("%s refused: %s", link->peer, reason);
}

int greeting_take(struct link *link, const char *refusal, struct msg_hello *ret_hello)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    uint64_t deadline = clock_now_ns() + GREETING_NS;
    int error = greeting_receive(link, buffer, deadline, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type != MSG_HELLO || !unpack_hello(&body, ret_hello)) {
        refuse(link, "this is a device server of reseat's, and that was no hello");
        return -EPROTO;
    }
    if (ret_hello->version != WIRE_VERSION) {
        char reason[128];
        snprintf(reason, sizeof(reason), "the server speaks version %d and the client %u",
                 WIRE_VERSION, ret_hello->version);
        refuse(link, reason);
        return -EPROTONOSUPPORT;
    }
    if (refusal) {
        refuse(link, refusal);
        return -EACCES;
    }
    if (ret_hello->session) {
        refuse(link, "there is no such session");
        return -ENOENT;
    }
    struct pack pack;
    pack_init(&pack);
    pack_welcome(&pack, &(struct msg_welcome){.version = WIRE_VERSION,
                                              .features = WIRE_FEATURES,
                                              .now_ns = clock_now_ns()});
    error = greeting_send(link, MSG_WELCOME, pack.bytes, pack.used, deadline);
    pack_finish(&pack);
    return error;
}
