#include "agent/daemon/clients.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/environment.h"
#include "agent/daemon/devices/device_list.h"
#include "state/base/cleanup.h"

void client_no_memory(struct peer *client)
{
    peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
}

void client_refuse(struct peer *client, const char *code, const struct program *program,
                   const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (client)
        peer_error(client, code, "program %s (pid %d) %s", program->name, (int)program->pid, text);
}

void client_unresolved(struct peer *client, int result, const char *why)
{
    peer_error(client,
               result == -ESRCH      ? ERR_NO_APP
               : result == -ENODEV   ? ERR_NO_DEVICE
               : result == -ENOTUNIQ ? ERR_AMBIGUOUS
               : result == -EBUSY    ? ERR_REFUSED
               : result == -E2BIG    ? ERR_USAGE
               : result == -EINVAL   ? ERR_USAGE
                                     : ERR_FAILED,
               "%s", why);
}

struct program *client_program(struct peer *client, const msgpack_object *map, size_t *ret_vdev)
{
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    struct program *program;

    if (!field_text(map, "app", name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no program");
        return NULL;
    }
    int result =
        programs_find(client->agent, client, name, &program, ret_vdev, error, sizeof(error));
    if (result) {
        client_unresolved(client, result, error);
        return NULL;
    }
    /* An operator decides about devices, not about a user's files. */
    if (program->uid != client->uid && !peer_may(client, RIGHT_AGENT) &&
        (field_get(map, "folder") || field_bool(map, "process", false))) {
        client_refuse(client, ERR_DENIED, program,
                      "is another user's; only that user and root may have it write files");
        return NULL;
    }
    return program;
}

bool client_finds_program(struct peer *client, const struct program *program)
{
    if (program->peer && !program->status.fenced)
        return true;
    if (program->peer) {
        client_refuse(client, ERR_REFUSED, program, "is fenced: %s", program->status.right_problem);
        return false;
    }
    client_refuse(client, ERR_GONE, program, "has not found this agent yet; try again in a second");
    return false;
}

struct program *client_running_program(struct peer *client, const msgpack_object *map,
                                       const char *lacks, size_t *ret_vdev)
{
    struct program *program = client_program(client, map, ret_vdev);

    if (!program)
        return NULL;
    if (!program->connected) {
        client_refuse(client, ERR_REFUSED, program,
                      "has not used OpenCL yet, so there is %s; try again when "
                      "reseat ps shows it running",
                      lacks);
        return NULL;
    }
    return client_finds_program(client, program) ? program : NULL;
}

const struct inventory_entry *client_device(struct peer *client, const msgpack_object *field,
                                            uint32_t *ret_device)
{
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry;

    if (!field || !object_string(field, name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no device");
        return NULL;
    }
    int result =
        device_resolve(&client->agent->devices.inventory, name, &entry, error, sizeof(error));
    if (result) {
        client_unresolved(client, result, error);
        return NULL;
    }
    *ret_device = devices_index(client->agent, entry);
    if (*ret_device == LEDGER_NONE) {
        client_no_memory(client);
        return NULL;
    }
    return entry;
}

/** Find @ret_program or @ret_entry. 0, -ENODEV, or -ENOTUNIQ with a line for the operator. */
static int clients_resolve(struct peer *client, const char *name, struct program **ret_program,
                           size_t *ret_vdev, const struct inventory_entry **ret_entry,
                           char *ret_error, size_t size)
{
    struct agent *agent = client->agent;
    const struct inventory_entry *entry = NULL;
    char wrong[PROTOCOL_TEXT_MAX];
    int found = device_resolve(&agent->devices.inventory, name, &entry, wrong, sizeof(wrong));
    int result = found == 0 && strcmp(entry->name, name) == 0
                     ? -ESRCH
                     : programs_find(agent, client, name, ret_program, ret_vdev, ret_error, size);

    if (!result || result == -ENOTUNIQ)
        return result;
    if (found == -ENOTUNIQ)
        snprintf(ret_error, size, "%s", wrong);
    else if (!found)
        *ret_entry = entry;
    return found == -ENOTUNIQ || !found ? found : -ENODEV;
}

bool client_names_device(struct peer *client, const msgpack_object *map)
{
    char name[PROTOCOL_WORD_MAX], ignored[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry = NULL;
    struct program *program;
    size_t vdev;

    return field_string(map, "what", name, sizeof(name)) && name[0] &&
           !clients_resolve(client, name, &program, &vdev, &entry, ignored, sizeof(ignored)) &&
           entry;
}

bool client_program_or_device(struct peer *client, const msgpack_object *map,
                              struct program **ret_program, size_t *ret_vdev, uint32_t *ret_device)
{
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry = NULL;

    *ret_program = NULL;
    *ret_device = LEDGER_NONE;
    if (!field_string(map, "what", name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no device and no program");
        return false;
    }
    int result = clients_resolve(client, name, ret_program, ret_vdev, &entry, error, sizeof(error));
    if (*ret_program)
        return true;
    if (result == -ENOTUNIQ) {
        peer_error(client, ERR_AMBIGUOUS, "%s", error);
    } else if (result) {
        peer_error(client, ERR_NO_DEVICE,
                   "\"%s\" is neither a device (reseat devices) nor a program (reseat ps)", name);
    } else {
        *ret_device = devices_index(client->agent, entry);
        if (*ret_device == LEDGER_NONE)
            client_no_memory(client);
    }
    return *ret_device != LEDGER_NONE;
}

/** What the agent was started with, one variable a line. */
static char *clients_default_environment(void)
{
    CLEANUP(cleanup_free) const char **variables = NULL;
    size_t count = 0, size = 0;
    char *text = NULL;
    FILE *to = environment_of_drivers(&variables, &count) ? NULL : open_memstream(&text, &size);

    for (size_t i = 0; to && i < count; i++)
        if (!strchr(variables[i], '\n'))
            (void)fprintf(to, "%s\n", variables[i]);
    if (to && fclose(to)) {
        free(text);
        text = NULL;
    }
    return text;
}

char *client_environment(const struct peer *client, const msgpack_object *map)
{
    const msgpack_object *items;
    size_t count = field_array(map, "environment", &items), size = 1, used = 0;

    if (!peer_may(client, RIGHT_AGENT))
        return clients_default_environment();
    for (size_t i = 0; i < count; i++)
        size += items[i].type == MSGPACK_OBJECT_STR ? items[i].via.str.size + 1 : 0;
    char *text = malloc(size);
    for (size_t i = 0; text && i < count; i++) {
        const msgpack_object_str *item = &items[i].via.str;
        if (items[i].type != MSGPACK_OBJECT_STR || memchr(item->ptr, '\n', item->size) ||
            memchr(item->ptr, '\0', item->size) || !memchr(item->ptr, '=', item->size))
            continue;
        memcpy(text + used, item->ptr, item->size);
        used += item->size;
        text[used++] = '\n';
    }
    if (text)
        text[used] = '\0';
    return text;
}

/** A listing in progress may be for another environment; this one's then follows it. */
void client_await_devices(struct peer *client, struct message *message, const char *environment)
{
    client->retried = !client->agent->devices.listing;
    peer_wait_for_devices(client, message);
    devices_refresh(client->agent, environment);
}

void client_renew_devices(struct peer *client, struct message *message)
{
    char *environment = NULL;

    /* A request without an environment uses the environment of the last listing. */
    if (field_get(&message->root, "environment") &&
        !(environment = client_environment(client, &message->root))) {
        client_no_memory(client);
        return;
    }
    client_await_devices(client, message, environment);
    free(environment);
}

/** @field is the name of a device that nobody has listed yet. */
static bool clients_is_unlisted(struct peer *client, const msgpack_object *field, bool or_program)
{
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry;
    struct program *program;
    size_t vdev;

    return object_string(field, name, sizeof(name)) && name[0] &&
           device_resolve(&client->agent->devices.inventory, name, &entry, error, sizeof(error)) ==
               -ENODEV &&
           (!or_program || programs_find(client->agent, client, name, &program, &vdev, error,
                                         sizeof(error)) == -ESRCH);
}

bool client_lists_devices(struct peer *client, struct message *message, const char *key,
                          bool or_program)
{
    const msgpack_object *names = field_get(&message->root, key);
    size_t count = names ? 1 : 0;
    bool unlisted = false;

    if (names && names->type == MSGPACK_OBJECT_ARRAY)
        count = field_array(&message->root, key, &names);
    for (size_t i = 0; i < count && i < PROTOCOL_PREWARM_MAX; i++)
        unlisted = unlisted || clients_is_unlisted(client, &names[i], or_program);
    if (client->retried || !unlisted) {
        client->retried = false;
        return false;
    }
    client_renew_devices(client, message);
    return true;
}
