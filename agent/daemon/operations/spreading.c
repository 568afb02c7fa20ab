#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"

/*
 * Programs whose long launches also run on other devices: those that an operator named, or those
 * that nobody uses. The objects that a launch uses are copied there, and no ledger counts the
 * copies. So a program may use a device only while its memory is not needed otherwise: not while
 * the device drains, has recently refused an allocation, or is not listed.
 */

/* In place of names of devices: those that nobody uses. */
#define SPREADING_FREE "free"

/** Bits: the devices that it may use now. */
static unsigned spreading_usable(const struct agent *agent, const struct program *program)
{
    unsigned bits = 0;

    for (size_t i = 0; i < program->spread.count; i++) {
        uint32_t index = program->spread.devices[i];
        if (devices_entry(agent, index) && !ledger_closed(&agent->ledger.devices[index]) &&
            agent->ledger.devices[index].tight == LEDGER_NO_LIMIT)
            bits |= 1u << i;
    }
    return bits;
}

void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame)
{
    unsigned bits = spreading_usable(agent, program);

    frame_bool(frame, "spread_free", program->spread.free);
    frame_array(frame, "spread");
    for (size_t i = 0; i < program->spread.count; i++)
        if (bits & 1u << i)
            devices_put_place(agent, frame, NULL, program->spread.devices[i]);
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
        const struct inventory_entry *entry = devices_entry(agent, program->spread.devices[i]);
        if (program->spread_told & 1u << i) {
            device_key_format(&entry->key, key);
            frame_string(&frame, NULL, key);
        }
    }
    frame_end(&frame);
    peer_send(program->peer, &frame);
}

void spreading_look(struct agent *agent, struct program *program)
{
    if (program->peer && spreading_usable(agent, program) != program->spread_told)
        spreading_tell(agent, program);
}

/** Devices of one number are of one model. */
static void spreading_put_models(const struct agent *agent, struct policy_device *devices)
{
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct inventory_entry *entry = devices_entry(agent, i);
        devices[i].model = i + 1;
        for (uint32_t j = 0; entry && j < i; j++) {
            const struct inventory_entry *other = devices_entry(agent, j);
            if (other && devinfo_same_model(&other->info, &entry->info)) {
                devices[i].model = devices[j].model;
                break;
            }
        }
    }
}

/** The devices that were given to the groups of @program. */
static void spreading_take_given(struct agent *agent, struct program *program,
                                 const uint32_t *given)
{
    const struct world *world = &agent->governor->world;
    struct program_spread spread = program->spread;

    spread.count = 0;
    for (uint32_t i = 0; i < agent->ledger.count && spread.count < PROTOCOL_SPREAD_MAX; i++)
        if (devices_entry(agent, i) && given[i] != POLICY_NONE &&
            world->groups[given[i]].program == program)
            spread.devices[spread.count++] = i;
    bool same = spread.count == program->spread.count;
    if (!same || memcmp(spread.devices, program->spread.devices,
                        spread.count * sizeof(*spread.devices)) != 0) {
        program->spread = spread;
        spreading_tell(agent, program);
    }
}

void spreading_share(struct agent *agent)
{
    struct world *world = &agent->governor->world;
    uint32_t *given = NULL;
    bool any = false;

    for (const struct program *program = agent->programs; program; program = program->next)
        any = any || program->spread.free;
    if (any && world->policy.device_count == agent->ledger.count)
        given = malloc((agent->ledger.count + 1) * sizeof(*given));
    if (!given)
        return;
    spreading_put_models(agent, world->devices);
    elastic_share(&world->policy, given);
    for (struct program *program = agent->programs; program; program = program->next)
        if (program->spread.free)
            spreading_take_given(agent, program, given);
    free(given);
}

int spreading_read(struct agent *agent, const msgpack_object *map, const char *key,
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
    spread.any_float = field_bool(map, "any_float", false);
    for (size_t i = 0; i < count; i++) {
        const struct inventory_entry *entry;
        char name[PROTOCOL_WORD_MAX] = "";
        (void)object_string(&names[i], name, sizeof(name));
        if (count == 1 && strcmp(name, SPREADING_FREE) == 0) {
            spread.free = true;
            break;
        }
        int error = device_resolve(&agent->devices.inventory, name, &entry, ret_error, error_size);
        if (!error && drain_refuses(agent, entry->name, ret_error, error_size))
            error = -EBUSY;
        if (error)
            return error;
        uint32_t device = devices_index(agent, entry);
        if (device == LEDGER_NONE) {
            snprintf(ret_error, error_size, "the agent is out of memory");
            return -ENOMEM;
        }
        /* It may be there already, under another name. */
        size_t at = 0;
        while (at < spread.count && spread.devices[at] != device)
            at++;
        if (at == spread.count)
            spread.devices[spread.count++] = device;
    }
    *ret_spread = spread;
    return 0;
}

/** True when the whole program runs on the only device of @spread: then nothing would be spread. */
static bool spreading_is_home(const struct agent *agent, const struct program *program,
                              const struct program_spread *spread)
{
    bool home = spread->count == 1;

    for (size_t i = 0; home && i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        home = vdev->has_device && !vdev->suspended &&
               strcmp(vdev_device_name(agent, vdev),
                      agent->ledger.devices[spread->devices[0]].name) == 0;
    }
    return home;
}

void spreading_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    struct program_spread spread;
    char error[PROTOCOL_TEXT_MAX];
    struct frame frame;
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
    } else if (spreading_is_home(agent, program, &spread)) {
        client_refuse(client, ERR_REFUSED, program,
                      "runs there already; name other devices to spread its launches to");
    } else if ((spread.count || spread.free) && program->status.known &&
               !program->status.slice_ns) {
        client_refuse(client, ERR_REFUSED, program,
                      "gives its launches whole, so that no other device can do a "
                      "part of them; run it with reseat run --slice MS, or --spread");
    } else {
        spread.any_float = program->spread.any_float;
        program->spread = spread;
        programs_save(agent, program);
        spreading_tell(agent, program);
        frame_init(&frame, MSG_SPREAD);
        report_put_program(&frame, program);
        frame_bool(&frame, "starting", !program->connected);
        spreading_put_names(agent, program, &frame);
        peer_send(client, &frame);
    }
}
