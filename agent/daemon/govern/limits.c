#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/bytes.h"
#include "agent/config/cleanup.h"
#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/program_wish.h"
#include "agent/wire/access.h"
#include "state/base/clock.h"

/*
 * What operators set: the memory of a device that programs may have, devices that are drained, and
 * how much one program may have. That of devices is kept in a file, that of programs with them.
 */

#define LIMITS_FILE_MAX (1u << 20)

static void take_line(const struct agent *agent, char *line)
{
    struct governor *governor = agent->governor;
    const char *name = strsep(&line, " "), *what = line ? strsep(&line, " ") : NULL;
    char *end = NULL;
    uint32_t index;

    if (!what || name[0] == '#' || strlen(name) >= sizeof(governor->ledger.devices->name) ||
        ledger_device(&governor->ledger, name, &index)) {
        return;
    }
    struct ledger_device *device = &governor->ledger.devices[index];
    if (strcmp(what, "drain") == 0) {
        device->drains = true;
    } else if (strcmp(what, "drain-at") == 0 && line) {
        uint64_t at = strtoull(line, &end, 10), now = clock_wall_ms();
        if (end != line && !*end) {
            device->drains_ms = uv_now(&agent->loop) + 1 + (at > now ? at - now : 0);
        }
    } else if (strcmp(what, "memory") == 0 && line) {
        uint64_t bytes = strtoull(line, &end, 10);
        device->limit = end != line && !*end ? bytes : device->limit;
    }
}

int limits_load(struct agent *agent)
{
    struct governor *governor = agent->governor;
    CLEANUP(cleanup_free) char *text = NULL;
    char folder[PATH_MAX];
    size_t size;
    int error = paths_state(folder);

    if (!error) {
        error = paths_join(folder, "limits", governor->state_path);
    }
    if (!error) {
        error = paths_read(governor->state_path, LIMITS_FILE_MAX, &text, &size);
    }
    if (error) {
        return error == -ENOENT ? 0 : error;
    }
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        take_line(agent, line);
    }
    return 0;
}

int limits_save(const struct agent *agent)
{
    const struct governor *governor = agent->governor;
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    if (!file) {
        return -errno;
    }
    fputs("# What reseat limit and reseat drain set. The agent writes this file.\n", file);
    for (uint32_t i = 0; i < governor->ledger.count; i++) {
        const struct ledger_device *device = &governor->ledger.devices[i];
        if (device->limit != LEDGER_NO_LIMIT) {
            fprintf(file, "%s memory %" PRIu64 "\n", device->name, device->limit);
        }
        if (device->drains) {
            fprintf(file, "%s drain\n", device->name);
        }
        if (device->drains_ms) {
            fprintf(file, "%s drain-at %" PRIu64 "\n", device->name,
                    clock_wall_ms() + drain_in_ns(agent, device) / 1000000);
        }
    }
    if (fclose(file)) {
        return -ENOMEM;
    }
    return paths_write(governor->state_path, text, size);
}

static void put_amount(struct frame *frame, const char *key, uint64_t bytes)
{
    frame_bool(frame, "limited", bytes != LEDGER_NO_LIMIT);
    frame_u64(frame, key, bytes == LEDGER_NO_LIMIT ? 0 : bytes);
}

static void limit_device(struct peer *client, const struct inventory_entry *entry, uint64_t bytes)
{
    struct agent *agent = client->agent;
    struct ledger *ledger = &agent->governor->ledger;
    struct frame frame;
    uint32_t index;

    if (!access_may_operate(geteuid(), client->uid)) {
        peer_error(client, ERR_DENIED, "only the agent's own user and root may limit a device");
        return;
    }
    if (ledger_device(ledger, entry->name, &index)) {
        peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
        return;
    }
    uint64_t before = ledger->devices[index].limit, had = ledger_lasting(&ledger->devices[index]);
    ledger->devices[index].limit = bytes;
    int error = limits_save(agent);
    if (error) {
        ledger->devices[index].limit = before;
        peer_error(client, ERR_FAILED,
                   "the limit of %s cannot be kept in %s: %s; it stays as it was", entry->name,
                   agent->governor->state_path, strerror(-error));
        return;
    }
    agent->governor->dirty = true;
    const struct ledger_device *device = &ledger->devices[index];
    govern_more(agent, device, had);
    frame_init(&frame, MSG_LIMIT);
    frame_string(&frame, "device", device->name);
    put_amount(&frame, "memory_bytes", bytes);
    frame_u64(&frame, "capacity_bytes", ledger_capacity(device));
    frame_u64(&frame, "granted_bytes", device->reserved);
    frame_u64(&frame, "held_bytes", device->held);
    peer_send(client, &frame);
}

void limits_set_quota(struct agent *agent, struct program *program, uint64_t bytes,
                      const char *text)
{
    program->policy.quota = bytes;
    programs_save(agent, program);
    program_notify(program, PROGRAM_ALL_SEATS, NOTICE_QUOTA, 0, bytes, text);
    agent->governor->dirty = true;
}

/** What @program has to have on a device at once, wherever it is. */
static uint64_t needs_at_once(const struct program *program)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < program->seat_count; i++) {
        const struct program_device *seat = &program->seats[i];
        bool spills = program->policy.ways & POLICY_SPILL && seat->limited && !seat->pinned[0];
        uint64_t own = spills ? seat->least : govern_wanted(seat);
        bytes = own > bytes ? own : bytes;
    }
    return bytes;
}

static void limit_program(struct peer *client, struct program *program, uint64_t bytes)
{
    struct agent *agent = client->agent;
    uint64_t granted = 0, held = 0, needs = needs_at_once(program);
    struct frame frame;

    if (bytes < needs) {
        char least[32];
        bytes_text(needs, least, sizeof(least));
        peer_error(client, ERR_REFUSED,
                   "program %s (pid %d) needs %s at once and could not go on with less; set a "
                   "limit of that at least, or take it off its device (reseat suspend %s)",
                   program->name, (int)program->pid, least, program->id);
        return;
    }
    program->policy.said |= OVERRIDE_QUOTA;
    limits_set_quota(agent, program, bytes, "an operator set its limit");
    for (size_t i = 0; i < program->seat_count; i++) {
        granted += ledger_reserved(&program->seats[i].account);
        held += program->seats[i].account.held;
    }
    frame_init(&frame, MSG_LIMIT);
    frame_map(&frame, "app");
    frame_string(&frame, "id", program->id);
    frame_string(&frame, "name", program->name);
    frame_u64(&frame, "pid", (uint64_t)program->pid);
    frame_end(&frame);
    put_amount(&frame, "memory_bytes", bytes);
    frame_u64(&frame, "capacity_bytes", 0);
    frame_u64(&frame, "granted_bytes", granted);
    frame_u64(&frame, "held_bytes", held);
    peer_send(client, &frame);
}

void limits_handle(struct peer *client, const msgpack_object *message)
{
    struct agent *agent = client->agent;
    char name[PROTOCOL_WORD_MAX], wrong[PROTOCOL_TEXT_MAX], none[PROTOCOL_TEXT_MAX];
    bool limited = field_bool(message, "limited", false);
    uint64_t bytes = field_u64(message, "memory_bytes", 0);
    const struct inventory_entry *entry = NULL;
    struct program *program;
    size_t seat;

    if (!field_string(message, "what", name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no device and no program");
        return;
    }
    bytes = !limited ? LEDGER_NO_LIMIT : bytes < LEDGER_BYTES_MAX ? bytes : LEDGER_BYTES_MAX;
    int found = device_resolve(&agent->devices.inventory, name, &entry, wrong, sizeof(wrong));
    /* A device by its own name, else a program, else a device by a part of its driver's name. */
    if (found == 0 && strcmp(entry->name, name) == 0) {
        limit_device(client, entry, bytes);
        return;
    }
    int result = programs_find(agent, client, name, &program, &seat, none, sizeof(none));
    if (!result && seat == PROGRAM_ALL_SEATS) {
        limit_program(client, program, bytes);
    } else if (!result) {
        peer_error(client, ERR_USAGE,
                   "a limit is for a whole program, not for one virtual device; name it as %s",
                   program->id);
    } else if (found == 0) {
        limit_device(client, entry, bytes);
    } else if (result == -ENOTUNIQ || found == -ENOTUNIQ) {
        peer_error(client, ERR_AMBIGUOUS, "%s", result == -ENOTUNIQ ? none : wrong);
    } else {
        peer_error(client, ERR_NO_DEVICE,
                   "\"%s\" is neither a device (reseat devices) nor a "
                   "program (reseat ps)",
                   name);
    }
}
