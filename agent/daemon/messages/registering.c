#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "agent/protocol/common_messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/driver/served.h"

/* Requests for the list of devices: for the list itself, and for the devices of a new program. */

#define LIST_AGE_MS 1000
#define ANY_AGE_MS  (1ull << 40) /* Larger than the age of any list. */

static void registering_reply_registered(struct peer *peer, struct program *program)
{
    const struct devices *devices = &peer->agent->devices;
    const struct registered answer = {.program = program,
                                      .inventory = devices->own_path[0] ? devices->own_path
                                                                        : devices->inventory_path,
                                      .problem = devices->problem};
    struct frame frame;

    frame_init(&frame, MSG_REGISTER);
    put_registered(&frame, &answer);
    peer_send(peer, &frame);
}

/** Read the named devices and the number of virtual ones. @ret_texts owns the names. */
static bool registering_read_wish(const msgpack_object *map, size_t count,
                                  char (*ret_texts)[PROTOCOL_WORD_MAX],
                                  struct device_wish *ret_wish)
{
    const msgpack_object *names;
    size_t named = field_array(map, "devices", &names);

    if (!count)
        count = named ? named : 1;

    if (count < 1 || count > PROTOCOL_VDEVS_MAX || named > count)
        return false;
    *ret_wish = (struct device_wish){.named = named, .count = count};
    for (size_t i = 0; i < named; i++) {
        if (!object_string(&names[i], ret_texts[i], PROTOCOL_WORD_MAX))
            return false;
        ret_wish->names[i] = ret_texts[i];
    }
    return true;
}

/** A program starts on a server only on request, if this machine has such a device or a GPU. */
static void registering_keep_near(const struct inventory *inventory, struct device_fill *fills)
{
    bool near = false, near_gpu = false;

    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        bool own = !fills[i].closed && !served_is_address(entry->key.icd);
        near = near || own;
        near_gpu = near_gpu || (own && strcmp(device_kind(&entry->info), "gpu") == 0);
    }
    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        bool gpu = strcmp(device_kind(&entry->info), "gpu") == 0;
        if (served_is_address(entry->key.icd) && (near_gpu || (near && !gpu)))
            fills[i].closed = true;
    }
}

/**
 * As device_place(), by the memory in use, and with -EBUSY where a named device drains. Where
 * all devices drain, the drains are ignored.
 *
 * @pinned_to  The only devices that may be chosen, as device_listed() takes them.
 */
static int registering_choose_devices(struct agent *agent, const struct device_wish *wish,
                                      const char *pinned_to, uint64_t peak,
                                      const struct inventory_entry **ret_entries, char *ret_error,
                                      size_t error_size)
{
    const struct inventory *inventory = &agent->devices.inventory;
    CLEANUP(cleanup_free) struct device_fill *fills = calloc(inventory->count + 1, sizeof(*fills));
    size_t open = 0;

    for (size_t i = 0; fills && i < inventory->count; i++) {
        struct policy_device said = {0};
        device_settings(agent, &inventory->entries[i], &said);
        const struct ledger_device *device =
            ledger_find(&agent->ledger, inventory->entries[i].name);
        if (device) {
            fills[i].memory = ledger_capacity(device);
            fills[i].used = device->reserved;
            fills[i].small = peak / wish->count > ledger_free(device);
            fills[i].closed =
                said.closed || ledger_closed(device) || device->lost || inventory->entries[i].lost;
        }
        fills[i].closed = fills[i].closed ||
                          !devices_shown(devices_digest(agent, NULL), &inventory->entries[i]) ||
                          !device_listed(inventory, pinned_to, &inventory->entries[i]);
    }
    if (fills)
        registering_keep_near(inventory, fills);
    for (size_t i = 0; fills && i < inventory->count; i++)
        open += !fills[i].closed;
    for (size_t i = 0; fills && !open && i < inventory->count; i++)
        fills[i] = (struct device_fill){
            .memory = 1, .closed = !device_listed(inventory, pinned_to, &inventory->entries[i])};
    int result = device_place(inventory, wish, fills, ret_entries, ret_error, error_size);
    if (!result && inventory->count)
        result = device_check_only(inventory, pinned_to, wish, ret_entries, ret_error, error_size);
    for (size_t i = 0; !result && i < wish->named; i++)
        if (drain_refuses(agent, ret_entries[i]->name, ret_error, error_size))
            return -EBUSY;
    return result;
}

static void registering_register_program(struct peer *peer, struct message *message,
                                         const char *environment)
{
    struct agent *agent = peer->agent;
    const struct inventory_entry *entries[PROTOCOL_VDEVS_MAX];
    char devices[PROTOCOL_VDEVS_MAX][PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    struct registration said;
    struct config_program configured;
    struct program_spread spread = {.count = 0};
    struct device_wish wish;
    struct program *program;

    take_registration(&message->root, &said);
    if (!programs_may_start(agent, peer, error, sizeof(error))) {
        peer_error(peer, ERR_REFUSED, "%s", error);
        return;
    }
    if (field_get(&message->root, "pinned_to") && !said.pinned_to[0]) {
        peer_error(peer, ERR_USAGE, "the devices of --only are too many");
        return;
    }
    if (!registering_read_wish(&message->root, said.count, devices, &wish)) {
        peer_error(peer, ERR_USAGE, "a program has 1 to %d virtual devices", PROTOCOL_VDEVS_MAX);
        return;
    }
    int result = registering_choose_devices(agent, &wish, said.pinned_to,
                                            costs_peak(agent, peer->uid, said.name), entries, error,
                                            sizeof(error));
    if (!result)
        result = spreading_read(agent, &message->root, "spread", &spread, error, sizeof(error));
    if (result == -ENODEV && !peer->retried && !devices_fresh(agent, environment, LIST_AGE_MS)) {
        peer->retried = true;
        peer_wait_for_devices(peer, message);
        devices_refresh(agent, environment);
        return;
    }
    peer->retried = false;
    if (result) {
        client_unresolved(peer, result, error);
        return;
    }
    if (said.cap_mw && !power_allows(agent, NULL, LEDGER_NONE, said.cap_mw, error, sizeof(error))) {
        peer_error(peer, ERR_REFUSED, "%s", error);
        return;
    }
    result = programs_register(agent, peer, said.name, said.named, entries, wish.count, environment,
                               &program);
    if (result) {
        peer_error(peer, ERR_FAILED, "the agent cannot register pid %d: %s", (int)peer->pid,
                   strerror(-result));
        return;
    }
    program_override(&program->policy, &said);
    program->spread = spread;
    config_program(&agent->config, program->name, &configured);
    uint32_t floats =
        configured.floats ? configured.floats - 1 : config_policy(&agent->config)->floats;
    if (!field_get(&message->root, "any_float"))
        program->spread.any_float = strcmp(settings_float_words[floats], "any") == 0;
    program_take_images(agent, program, &message->root);
    const char *list = strrchr(agent->devices.own_path, '/');
    snprintf(program->inventory, sizeof(program->inventory), "%s", list ? list + 1 : "");
    for (size_t i = 0; i < wish.count; i++)
        program->vdevs[i].chosen = i < wish.named;
    program_configure(agent, program);
    registering_reply_registered(peer, program);
}

/**
 * The environment of @peer, one variable a line; of who asks for devices without one, that of the
 * last listing. NULL: an answer was sent, or the request waits for a list of that environment which
 * is not older than @age_ms.
 */
static char *registering_fresh_environment(struct peer *peer, struct message *message,
                                           uint64_t age_ms)
{
    bool names =
        field_get(&message->root, "environment") || !field_is(&message->root, "type", MSG_DEVICES);
    char *environment = !names && peer->agent->devices.environment
                            ? strdup(peer->agent->devices.environment)
                            : client_environment(peer, &message->root);

    if (!environment) {
        client_no_memory(peer);
    } else if (!peer->retried && !devices_fresh(peer->agent, environment, age_ms)) {
        client_await_devices(peer, message, environment);
        free(environment);
        environment = NULL;
    }
    return environment;
}

void register_handle(struct peer *peer, struct message *message)
{
    CLEANUP(cleanup_free)
    char *environment = registering_fresh_environment(peer, message, ANY_AGE_MS);

    if (environment)
        registering_register_program(peer, message, environment);
}

void devices_handle(struct peer *peer, struct message *message)
{
    uint64_t age_ms = field_u64(&message->root, "age_ms", LIST_AGE_MS);
    /* Nobody has the drivers started more often than that. */
    age_ms = age_ms > LIST_AGE_MS ? age_ms : LIST_AGE_MS;
    CLEANUP(cleanup_free)
    char *environment = registering_fresh_environment(peer, message, age_ms);
    struct frame frame;

    if (environment) {
        peer->retried = false;
        frame_init(&frame, MSG_DEVICES);
        describe_devices(peer->agent, peer, &frame);
        peer_send(peer, &frame);
    }
}
