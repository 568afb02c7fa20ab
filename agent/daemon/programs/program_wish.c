#include "agent/daemon/programs/program_wish.h"

#include <errno.h>
#include <string.h>

#include "agent/daemon/peers.h"
#include "policy/wish.h"
#include "state/driver/offer.h"

static void take_limits(const msgpack_object *map, const char *key, struct reseat_limits *ret)
{
    const msgpack_object *limits = field_get(map, key);
    uint64_t groups = field_u64(limits, "compute_units", 0);

    *ret = (struct reseat_limits){
        .memory = field_u64(limits, "memory", 0),
        .allocation = field_u64(limits, "allocation", 0),
        .local_memory = field_u64(limits, "local_memory", 0),
        .work_group_size = field_u64(limits, "work_group_size", 0),
        .compute_units = groups < UINT32_MAX ? (uint32_t)groups : UINT32_MAX,
        .features = (uint32_t)field_u64(limits, "features", 0),
    };
}

void program_take_wish(struct program *program, const msgpack_object *map)
{
    const msgpack_object *aware = field_get(map, "aware");
    struct program_wish *wish = &program->wish;

    *wish = (struct program_wish){.aware = aware && aware->type == MSGPACK_OBJECT_MAP};
    if (wish->aware) {
        take_limits(aware, "minimum", &wish->minimum);
        take_limits(aware, "preferred", &wish->preferred);
    }
}

static void put_limits(struct frame *frame, const char *key, const struct reseat_limits *limits)
{
    const char *feature;
    uint32_t bit;

    frame_map(frame, key);
    frame_u64(frame, "memory", limits->memory);
    frame_u64(frame, "allocation", limits->allocation);
    frame_u64(frame, "local_memory", limits->local_memory);
    frame_u64(frame, "work_group_size", limits->work_group_size);
    frame_u64(frame, "compute_units", limits->compute_units);
    frame_array(frame, "features");
    for (size_t i = 0; (feature = wish_feature(i, &bit)); i++) {
        if (limits->features & bit) {
            frame_string(frame, NULL, feature);
        }
    }
    frame_end(frame);
    frame_end(frame);
}

void program_put_wish(const struct program *program, struct frame *frame)
{
    if (!program->wish.aware) {
        return;
    }
    frame_map(frame, "aware");
    put_limits(frame, "minimum", &program->wish.minimum);
    put_limits(frame, "preferred", &program->wish.preferred);
    frame_end(frame);
}

bool program_wish_fits(const struct program *program, const struct devinfo *device, uint64_t memory,
                       char *ret_reason, size_t size)
{
    struct plan_offer offer;
    struct plan_use use;

    if (!program->wish.aware) {
        return true;
    }
    wish_plan(&program->wish.minimum, &use);
    offer_from_devinfo(device, &offer);
    offer.memory_available = memory < offer.memory_available ? memory : offer.memory_available;
    return plan_fits(&use, &offer, ret_reason, size);
}

void program_notify(const struct program *program, size_t seat, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text)
{
    struct frame frame;

    if (!program->peer || !program->wish.aware) {
        return;
    }
    frame_init(&frame, MSG_NOTICE);
    frame_string(&frame, "what", what);
    if (seat < program->seat_count || (seat == PROGRAM_ALL_SEATS && program->seat_count == 1)) {
        frame_u64(&frame, "seat", seat < program->seat_count ? seat : 0);
    }
    frame_u64(&frame, "in_ns", in_ns);
    frame_u64(&frame, "value", value);
    frame_string(&frame, "text", text);
    peer_send(program->peer, &frame);
}

void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text)
{
    for (const struct program *program = agent->programs; program; program = program->next) {
        program_notify(program, PROGRAM_NO_SEAT, NOTICE_ADDED, 0, bytes, text);
    }
}

/** The program that a client names, if it can be notified; else the client was told why not. */
static struct program *find(struct peer *client, const msgpack_object *map, size_t *ret_seat)
{
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    struct program *program;

    if (!field_text(map, "app", name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no program");
        return NULL;
    }
    int result =
        programs_find(client->agent, client, name, &program, ret_seat, error, sizeof(error));
    if (result) {
        peer_error(client,
                   result == -ESRCH    ? ERR_NO_APP
                   : result == -ENODEV ? ERR_NO_DEVICE
                                       : ERR_AMBIGUOUS,
                   "%s", error);
        return NULL;
    }
    if (!program->peer || !program->wish.aware) {
        peer_error(client, ERR_REFUSED,
                   "program %s (pid %d) %s, so it takes no notice; reseat ps --json shows those "
                   "that do as \"aware\"",
                   program->name, (int)program->pid,
                   program->peer ? "has not registered with reseat.h" : "does not answer");
        return NULL;
    }
    return program;
}

void notice_handle(struct peer *client, const msgpack_object *map)
{
    char what[PROTOCOL_WORD_MAX], text[PROTOCOL_TEXT_MAX];
    size_t seat;
    struct program *program = find(client, map, &seat);
    struct frame frame;

    if (!program) {
        return;
    }
    (void)field_string(map, "what", what, sizeof(what));
    if (!field_text(map, "text", text, sizeof(text)) && field_get(map, "text")) {
        peer_error(client, ERR_USAGE, "the text of a notice is one line");
        return;
    }
    if ((strcmp(what, NOTICE_POWER) == 0 || strcmp(what, NOTICE_QUOTA) == 0) &&
        !field_get(map, "value")) {
        peer_error(client, ERR_USAGE, "a notice of %s has a value", what);
        return;
    }
    if (strcmp(what, NOTICE_ADDED) && strcmp(what, NOTICE_TAKEN) && strcmp(what, NOTICE_POWER) &&
        strcmp(what, NOTICE_QUOTA)) {
        peer_error(client, ERR_USAGE, "there is no notice \"%s\"; there are %s, %s, %s and %s",
                   what, NOTICE_ADDED, NOTICE_TAKEN, NOTICE_POWER, NOTICE_QUOTA);
        return;
    }
    program_notify(program, seat, what, field_u64(map, "in_ns", 0), field_u64(map, "value", 0),
                   text);
    frame_init(&frame, MSG_NOTICE);
    frame_map(&frame, "app");
    frame_string(&frame, "id", program->id);
    frame_string(&frame, "name", program->name);
    frame_u64(&frame, "pid", (uint64_t)program->pid);
    frame_end(&frame);
    frame_string(&frame, "what", what);
    peer_send(client, &frame);
}
