#ifndef RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H
#define RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

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

/* Messages that no other part of the agent takes. May take @message, to be handled again. */

void hello_handle(struct peer *peer, struct message *message);
void wish_handle(struct peer *peer, struct message *message);
void alive_handle(struct peer *peer, struct message *message);
void register_handle(struct peer *peer, struct message *message);
void devices_handle(struct peer *peer, struct message *message);
void programs_handle(struct peer *peer, struct message *message);
void agent_handle(struct peer *peer, struct message *message);
void stop_handle(struct peer *peer, struct message *message);
void reload_handle(struct peer *peer, struct message *message);
void cancel_handle(struct peer *peer, struct message *message);
void notice_handle(struct peer *peer, struct message *message);
void explain_handle(struct peer *peer, struct message *message);
void use_handle(struct peer *peer, struct message *message);

/* What clients are shown of programs and devices. */

/** Fields of one program, into an open map. */
void describe_program(const struct agent *agent, const struct program *program,
                      struct frame *frame);
/** What the ledger knows of a device, into an open map. */
void describe_entry(const struct agent *agent, const struct ledger_device *device,
                    struct frame *frame);
/** The answer to MSG_DEVICES: all devices, and which programs of those @peer may see use them. */
void describe_devices(struct agent *agent, const struct peer *peer, struct frame *frame);

#endif
