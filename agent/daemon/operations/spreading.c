#include <errno.h>
#include <string.h>

#include "agent/daemon/operations/drains.h"
#include "agent/daemon/operations/verbs.h"
#include "state/driver/device_key.h"

/*
 * Programs whose long launches also run on other devices. The objects that a launch uses are copied
 * there, and no ledger counts the copies. So a program may use an allowed device only while its
 * memory is not needed otherwise: not while the device drains, has recently refused an allocation,
 * or is not listed.
 */

/** Bits: the devices that it may use now. */
static unsigned spreading_usable(const struct agent *agent, const struct program *program)
{
    unsigned bits = 0;

    for (size_t i = 0; i < program->spread.count; i++) {
        const struct inventory_entry *entry =
            device_by_key(&agent->devices.inventory, &program->spread.devices[i]);
        const struct ledger_device *device =
            entry ? ledger_find(&agent->ledger, entry->name) : NULL;
        if (entry && (!device ||
                      (!device->drains && !device->drains_ms && device->tight == LEDGER_NO_LIMIT)))
            bits |= 1u << i;
    }
    return bits;
}

void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame)
{
    unsigned bits = spreading_usable(agent, program);

    frame_array(frame, "spread");
    for (size_t i = 0; i < program->spread.count; i++) {
        const struct inventory_entry *entry =
            device_by_key(&agent->devices.inventory, &program->spread.devices[i]);
        if (bits & 1u << i)
            frame_string(frame, NULL, entry->name);
    }
    frame_end(frame);
}

void spreading_tell(const struct agent *agent, struct program *program)
{
    char key[DEVICE_KEY_TEXT_MAX];
    struct frame frame;

    if (!program->peer)
        return;
    program->spread_told = spreading_usable(agent, program);
    frame_init(&frame, MSG_SPREAD);
    frame_array(&frame, "devices");
    for (size_t i = 0; i < program->spread.count; i++) {
        device_key_format(&program->spread.devices[i], key);
        if (program->spread_told & 1u << i)
            frame_string(&frame, NULL, key);
    }
    frame_end(&frame);
    peer_send(program->peer, &frame);
}

void spreading_tick(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next)
        if (program->peer && spreading_usable(agent, program) != program->spread_told)
            spreading_tell(agent, program);
}

/** Add a device, unless it is there already under another name. */
static void spreading_add(struct program_spread *spread, const struct device_key *key)
{
    size_t i = 0;

    while (i < spread->count && !device_key_equal(&spread->devices[i], key))
        i++;
    if (i == spread->count)
        spread->devices[spread->count++] = *key;
}

int spreading_read(const struct agent *agent, const msgpack_object *map, const char *key,
                   struct program_spread *ret_spread, char *ret_error, size_t error_size)
{
    struct program_spread spread = {.count = 0};
    const msgpack_object *names;
    size_t count = field_array(map, key, &names);

    if (count > PROTOCOL_SPREAD_MAX) {
        snprintf(ret_error, error_size, "launches are spread over at most %d devices",
                 PROTOCOL_SPREAD_MAX);
        return -E2BIG;
    }
    for (size_t i = 0; i < count; i++) {
        const struct inventory_entry *entry;
        char name[PROTOCOL_WORD_MAX] = "";
        (void)object_string(&names[i], name, sizeof(name));
        int error = device_resolve(&agent->devices.inventory, name, &entry, ret_error, error_size);
        if (!error && drain_refuses(agent, entry->name, ret_error, error_size))
            error = -EBUSY;
        if (error)
            return error;
        spreading_add(&spread, &entry->key);
    }
    *ret_spread = spread;
    return 0;
}

static void spreading_answer(struct peer *client, const struct program *program)
{
    struct frame frame;

    frame_init(&frame, MSG_SPREAD);
    report_put_program(&frame, program);
    frame_bool(&frame, "starting", !program->connected);
    spreading_put_names(client->agent, program, &frame);
    peer_send(client, &frame);
}

/** True when the whole program runs on the only device of @spread: then nothing would be spread. */
static bool spreading_is_home(const struct program *program, const struct program_spread *spread)
{
    bool home = spread->count == 1;

    for (size_t i = 0; home && i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        home = vdev->has_device && !vdev->suspended &&
               device_key_equal(&vdev->device, &spread->devices[0]);
    }
    return home;
}

void spreading_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    struct program_spread spread;
    char error[PROTOCOL_TEXT_MAX];
    size_t vdev;
    struct program *program = client_program(client, &message->root, &vdev);

    if (!program)
        return;
    int result = spreading_read(agent, &message->root, "devices", &spread, error, sizeof(error));
    if (result == -ENODEV && !client->retried) {
        client_renew_devices(client, message);
        return;
    }
    client->retried = false;
    if (result) {
        client_unresolved(client, result, error);
    } else if (vdev != PROGRAM_ALL_VDEVS) {
        peer_error(client, ERR_USAGE,
                   "launches are spread for a whole program, not for one virtual device; name it "
                   "as %s",
                   program->id);
    } else if (spreading_is_home(program, &spread)) {
        client_refuse(client, ERR_REFUSED, program,
                      "runs there already; name other devices to spread its "
                      "launches to");
    } else if (spread.count && program->status.known && !program->status.slice_ns) {
        client_refuse(client, ERR_REFUSED, program,
                      "gives its launches whole, so that no other device can do a "
                      "part of them; run it with reseat run --slice MS, or --spread");
    } else {
        program->spread = spread;
        programs_save(agent, program);
        spreading_tell(agent, program);
        spreading_answer(client, program);
    }
}
