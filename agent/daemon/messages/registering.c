#include "agent/daemon/messages/registering.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/govern/govern.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "agent/wire/access.h"

/* What is asked of the list of devices: the list itself, and where a new program starts. */

#define LIST_AGE_MS 1000
#define ANY_AGE_MS  (1ull << 40) /* Any age will do. */

/** The variables that a client sends and may send, one a line. To be freed; NULL: no memory. */
static char *environment_of(const struct peer *peer, const msgpack_object *map)
{
    const msgpack_object *items;
    size_t count = field_array(map, "environment", &items), size = 1, used = 0;

    if (!access_may_load(geteuid(), peer->uid)) {
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        size += items[i].type == MSGPACK_OBJECT_STR ? items[i].via.str.size + 1 : 0;
    }
    char *text = malloc(size);
    for (size_t i = 0; text && i < count; i++) {
        const msgpack_object_str *item = &items[i].via.str;
        if (items[i].type != MSGPACK_OBJECT_STR || memchr(item->ptr, '\n', item->size) ||
            memchr(item->ptr, '\0', item->size) || !memchr(item->ptr, '=', item->size)) {
            continue;
        }
        memcpy(text + used, item->ptr, item->size);
        used += item->size;
        text[used++] = '\n';
    }
    if (text) {
        text[used] = '\0';
    }
    return text;
}

static void reply_registered(struct peer *peer, struct program *program)
{
    struct frame frame;

    frame_init(&frame, MSG_REGISTER);
    frame_string(&frame, "id", program->id);
    frame_string(&frame, "name", program->name);
    program_put_devices(program, &frame);
    frame_string(&frame, "inventory",
                 peer->agent->devices.own_path[0] ? peer->agent->devices.own_path
                                                  : peer->agent->devices.inventory_path);
    frame_string(&frame, "problem", peer->agent->devices.problem);
    peer_send(peer, &frame);
}

/** The devices that a client names, and how many virtual ones it wants. Names are in @ret_texts. */
static bool read_wish(const msgpack_object *map, char (*ret_texts)[PROTOCOL_WORD_MAX],
                      struct device_wish *ret_wish)
{
    const msgpack_object *names;
    size_t named = field_array(map, "devices", &names);
    uint64_t count = field_u64(map, "count", named ? named : 1);

    if (count < 1 || count > PROTOCOL_SEATS_MAX || named > count) {
        return false;
    }
    *ret_wish = (struct device_wish){.named = named, .count = (size_t)count};
    for (size_t i = 0; i < named; i++) {
        if (!object_string(&names[i], ret_texts[i], PROTOCOL_WORD_MAX)) {
            return false;
        }
        ret_wish->names[i] = ret_texts[i];
    }
    return true;
}

static void handle_register(struct peer *peer, struct message *message, const char *environment)
{
    struct agent *agent = peer->agent;
    const struct inventory_entry *entries[PROTOCOL_SEATS_MAX];
    char devices[PROTOCOL_SEATS_MAX][PROTOCOL_WORD_MAX], name[64], error[PROTOCOL_TEXT_MAX];
    struct device_wish wish;
    struct program *program;

    field_text(&message->root, "name", name, sizeof(name));
    if (!read_wish(&message->root, devices, &wish)) {
        peer_error(peer, ERR_USAGE, "a program has 1 to %d virtual devices", PROTOCOL_SEATS_MAX);
        return;
    }
    int result = govern_place(agent, &wish, entries, error, sizeof(error));
    if (result == -ENODEV && !peer->retried && !devices_fresh(agent, environment, LIST_AGE_MS)) {
        peer->retried = true;
        peer_wait_for_devices(peer, message);
        devices_refresh(agent, environment);
        return;
    }
    peer->retried = false;
    if (result) {
        peer_error(peer,
                   result == -ENODEV     ? ERR_NO_DEVICE
                   : result == -ENOTUNIQ ? ERR_AMBIGUOUS
                   : result == -EBUSY    ? ERR_REFUSED
                                         : ERR_FAILED,
                   "%s", error);
        return;
    }
    result = programs_register(agent, peer, name, field_bool(&message->root, "named", false),
                               entries, wish.count, environment, &program);
    if (result) {
        peer_error(peer, ERR_FAILED, "the agent cannot register pid %d: %s", (int)peer->pid,
                   strerror(-result));
        return;
    }
    program_take_overrides(program, &message->root);
    for (size_t i = 0; i < wish.count; i++) {
        program->seats[i].chosen = i < wish.named;
    }
    programs_save(agent, program);
    reply_registered(peer, program);
}

/** A listing in progress may be of another environment: then it is this one's turn next. */
static void wait_for_list(struct peer *peer, struct message *message, const char *environment)
{
    peer->retried = !peer->agent->devices.listing;
    peer_wait_for_devices(peer, message);
    devices_refresh(peer->agent, environment);
}

void registering_handle(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    bool registers = field_is(&message->root, "type", MSG_REGISTER);
    char *environment = environment_of(peer, &message->root);
    struct frame frame;

    if (!environment) {
        peer_error(peer, ERR_FAILED, "the agent has no memory for the request; try again");
        return;
    }
    if (!peer->retried &&
        !devices_fresh(agent, environment, registers ? ANY_AGE_MS : LIST_AGE_MS)) {
        wait_for_list(peer, message, environment);
    } else if (registers) {
        handle_register(peer, message, environment);
    } else {
        peer->retried = false;
        frame_init(&frame, MSG_DEVICES);
        devices_describe(agent, peer, &frame);
        peer_send(peer, &frame);
    }
    free(environment);
}

bool registering_await(struct peer *peer, struct message *message)
{
    char *environment = peer->retried ? NULL : environment_of(peer, &message->root);

    if (!environment) {
        peer->retried = false;
        return false;
    }
    wait_for_list(peer, message, environment);
    free(environment);
    return true;
}
