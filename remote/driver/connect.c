#include "remote/driver/connect.h"

#include <errno.h>

#include "state/base/clock.h"
#include "state/base/log.h"

/* Who we are, and whether both speak the same. */
static int greet(struct client *client, struct link *link, uint64_t deadline)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    struct pack pack;
    uint64_t asked = clock_now_ns();
    pack_init(&pack);
    pack_hello(&pack, &(struct msg_hello){.version = WIRE_VERSION, .features = WIRE_FEATURES});
    int error = greeting_send(link, MSG_HELLO, pack.bytes, pack.used, deadline);
    pack_finish(&pack);
    if (error == 0)
        error = greeting_receive(link, buffer, deadline, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    struct msg_refused refused;
    struct msg_welcome welcome;
    if (message.type == MSG_REFUSED && unpack_refused(&body, &refused)) {
        log_warn("%s refuses: %s", client->address, refused.reason);
        return -ECONNREFUSED;
    }
    if (message.type != MSG_WELCOME || !unpack_welcome(&body, &welcome) ||
        welcome.version != WIRE_VERSION)
        return -EPROTO;
    uint64_t now = clock_now_ns();
    client->ahead = (int64_t)(welcome.now_ns - (asked + (now - asked) / 2));
    return 0;
}

int client_connect(struct client *client, uint64_t deadline_ns, struct link **ret_link)
{
    const char *where = NULL;
    const struct link_kind *kind = link_kind_of(client->address, &where);
    struct link *link = NULL;
    int error = kind ? kind->connect(where, deadline_ns, &link) : -EINVAL;
    if (error)
        return error;
    error = greet(client, link, deadline_ns);
    if (error) {
        link->ops->destroy(link);
        return error;
    }
    *ret_link = link;
    return 0;
}
