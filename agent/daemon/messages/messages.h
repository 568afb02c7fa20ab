#ifndef RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H
#define RESEAT_AGENT_DAEMON_MESSAGES_MESSAGES_H

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/** A message's type and who may send it; it concerns programs of peer_sees() alone. */
struct message_handler {
    const char *type; /**< MSG_... */
    enum peer_role from;
    void (*handle)(struct peer *peer, struct message *message);
    unsigned rights;  /**< Bits of enum right that the user needs; 0: none. */
    const char *deed; /**< What these rights allow: "stop it". */
    /** Whether this message needs them; NULL: each does. Sends nothing. */
    bool (*needs)(struct peer *peer, const msgpack_object *map);
    /** The message's field with the name of a device that may not be listed yet; or NULL. */
    const char *device;
    bool or_program; /**< That field may also name a program. */
};
extern const struct message_handler message_handlers[];
extern const size_t message_handler_count;

/** events.message: handle a message of @peer, which has to be its hello first. */
void messages_take(struct peer *peer, struct message *message);

/* Handlers of other messages. They may take @message, to handle it again later. */

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
void adjust_handle(struct peer *peer, struct message *message);
void notice_handle(struct peer *peer, struct message *message);
void explain_handle(struct peer *peer, struct message *message);
void use_handle(struct peer *peer, struct message *message);

/** MSG_WELCOME to a program. */
struct welcome {
    const struct program *program;
    size_t device_count, grant_count;
    bool granted; /**< It has `grants`, one for each virtual device. */
    uint64_t grants[PROTOCOL_VDEVS_MAX];
};

/** The answer to MSG_WAIT. */
struct waited {
    const struct program *program; /**< NULL: it is of `device`. */
    const char *device, *condition;
};

/** The answer to MSG_REGISTER. */
struct registered {
    const struct program *program;
    const char *inventory, *problem;
};

/* Descriptions of programs and devices for clients, as agent/protocol/messages.txt has them. */

/** A program as clients are told of it. */
struct described {
    const struct program *program;
    const struct operation *moving; /**< What moves it; or NULL. */
    const struct program_images *images;
    const char *state, *device, *pinned;
    /* Of all of its virtual devices: */
    uint64_t device_bytes, moves, granted_bytes, wanted_bytes, spilled_bytes, peak_bytes,
        wanted_peak_bytes, least_bytes, from_bytes_s, to_bytes_s;
    uint64_t busy_permil; /**< The sum of its shares of devices (power/power.h). */
    bool limited, displaced;
    uint64_t quota_bytes, ticket;
    uint64_t snapshot_age_ns, protected_ns, loss_age_ns, image_age_ms;
};

/** Put the fields of one program into an open map. */
void describe_program(const struct agent *agent, const struct program *program,
                      struct frame *frame);
/** Put the fields of a device of the ledger into an open map. */
void describe_entry(const struct agent *agent, uint32_t device, struct frame *frame);
/** The answer to MSG_DEVICES: all devices, with those programs on them that @peer may see. */
void describe_devices(struct agent *agent, const struct peer *peer, struct frame *frame);

#endif
