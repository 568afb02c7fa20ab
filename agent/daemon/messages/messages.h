#ifndef RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H
#define RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H

#include "agent/daemon/peers.h"

/** A type of message that the agent takes, and who may send it. */
struct message_handler {
    const char *type; /**< MSG_... */
    enum peer_role from;
    void (*handle)(struct peer *peer, struct message *message);
    /** Who may, by access.h, and what that is called; NULL: whoever may connect. */
    bool (*allowed)(uid_t agent, uid_t peer);
    const char *deed;
    /** The field that names a device which nobody may have listed yet; or NULL. */
    const char *device;
    bool or_program; /**< That field may name a program as well. */
};
extern const struct message_handler message_handlers[];
extern const size_t message_handler_count;

/** Who @peer may be, and what it says: events.message. */
void messages_take(struct peer *peer, struct message *message);

#endif
