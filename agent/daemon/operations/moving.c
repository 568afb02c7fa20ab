#include "agent/daemon/operations/operations.h"

#include <errno.h>
#include <string.h>

#include "state/driver/device_key.h"

/** A program that has not called OpenCL: nothing to move, only where it will start. */
static void moving_move_starting(struct peer *client, struct program *program, size_t vdev,
                                 const struct message *message,
                                 const struct inventory_entry *target)
{
    struct agent *agent = client->agent;
    bool dry_run = field_bool(&message->root, "dry_run", false);
    char from[160], reason[PROTOCOL_TEXT_MAX];

    if (!target) {
        peer_error(client, ERR_REFUSED,
                   "program %s (pid %d) has not used OpenCL yet, so it holds no device; try again "
                   "when reseat ps shows it running",
                   program->name, (int)program->pid);
        return;
    }
    if (drain_refuses(agent, target->name, reason, sizeof(reason))) {
        peer_error(client, ERR_REFUSED, "%s", reason);
        return;
    }
    program_device_names(agent, program, vdev, false, from, sizeof(from));
    if (!dry_run)
        programs_set_device(agent, program, vdev, &target->key);
    report_plain(client, program, from, target->name, RESULT_DONE, false);
}

/** Where each resumes that @vdev means, when nobody says: NULL where that is not one device. */
static const struct inventory_entry *
moving_last_device(const struct agent *agent, const struct program *program, unsigned vdevs)
{
    const struct inventory_entry *all = NULL;

    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *one = &program->vdevs[i];
        if (!(vdevs & (1u << i)) || !one->suspended)
            continue;
        const struct inventory_entry *entry =
            one->has_device ? device_by_key(&agent->devices.inventory, &one->device) : NULL;
        if (!entry || (all && all != entry))
            return NULL;
        all = entry;
    }
    return all;
}

/** Whether each that @wish means fits where it was, which is not one device. As admit_request(). */
static int moving_admit_back(struct agent *agent, const struct request *wish, char *ret_error,
                             size_t size)
{
    unsigned left = wish->vdevs;
    int full = 0;

    for (size_t i = 0; i < wish->program->vdev_count && !full; i++) {
        const struct program_device *vdev = &wish->program->vdevs[i];
        struct request part = *wish;
        part.dry_run = true;
        part.vdevs = 0;
        for (size_t j = i; left & (1u << i) && vdev->has_device && j < wish->program->vdev_count;
             j++) {
            const struct program_device *other = &wish->program->vdevs[j];
            if (other->has_device && device_key_equal(&other->device, &vdev->device))
                part.vdevs |= left & (1u << j);
        }
        left &= ~part.vdevs;
        const struct inventory_entry *entry =
            part.vdevs ? device_by_key(&agent->devices.inventory, &vdev->device) : NULL;
        full = entry ? admit_request(agent, &part, entry, ret_error, size) : 0;
    }
    return full;
}

static void moving_forward(struct peer *client, struct program *program, size_t vdev,
                           const struct message *message, const struct inventory_entry *target,
                           const char *verb)
{
    struct agent *agent = client->agent;
    char error[PROTOCOL_TEXT_MAX];
    struct request wish = {
        .client = client,
        .program = program,
        .vdevs = vdev == PROGRAM_ALL_VDEVS ? (1u << program->vdev_count) - 1 : 1u << vdev,
        .vdev = vdev,
        .target = LEDGER_NONE,
        .dry_run = field_bool(&message->root, "dry_run", false),
        .taken = field_is(&message->root, "manner", MANNER_TAKEN),
        .chosen = target != NULL,
    };
    bool resumes = strcmp(verb, MSG_RESUME) == 0;
    uint64_t timeout_ms = field_u64(&message->root, "timeout_ms", 0);
    uint32_t only = LEDGER_NONE;
    const struct inventory_entry *there =
        target || !resumes ? target : moving_last_device(agent, program, wish.vdevs);

    snprintf(wish.verb, sizeof(wish.verb), "%s", verb);
    wish.max_downtime_ms = field_u64(&message->root, "max_downtime_ms", 0);
    if (wish.max_downtime_ms > GOVERN_DOWNTIME_MS_MAX)
        wish.max_downtime_ms = GOVERN_DOWNTIME_MS_MAX;
    wish.bandwidth = field_u64(&message->root, "bandwidth", 0);
    wish.non_blocking = field_bool(&message->root, "non_blocking", false);
    (void)field_string(&message->root, "fetch", wish.fetch, sizeof(wish.fetch));
    (void)field_path(&message->root, "folder", wish.folder, sizeof(wish.folder));
    if (resumes && target)
        only = devices_index(agent, target);
    if (resumes && field_bool(&message->root, "queue", false)) {
        resume_hand_back(client, program, vdev, wish.vdevs, only);
        return;
    }
    int full = there     ? admit_request(agent, &wish, there, error, sizeof(error))
               : resumes ? moving_admit_back(agent, &wish, error, sizeof(error))
                         : 0;
    if (full && resumes && (full == -ENOSPC || !target)) {
        resume_queue(client, program, vdev, wish.vdevs, only, timeout_ms, error);
        return;
    }
    if (full) {
        peer_error(client, ERR_REFUSED, "%s", error);
        return;
    }
    if (requests_begin(agent, &wish, target, timeout_ms)) {
        peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
        admit_settle(agent, &wish, 0, RESULT_ROLLED_BACK, "", false);
    }
}

static bool moving_any_suspended(const struct program *program, size_t vdev)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if ((vdev == PROGRAM_ALL_VDEVS || vdev == i) && program->vdevs[i].suspended)
            return true;
    return false;
}

/** All of it that @vdev means is where the request would have it. */
static bool moving_is_there(const struct agent *agent, const struct program *program, size_t vdev,
                            const char *verb, const struct inventory_entry *target)
{
    bool there = program->status.known && !program_moving(program);

    for (const struct request *request = agent->requests; request; request = request->next)
        there = there && (request->program != program || request_stays(request));
    for (size_t i = 0; there && i < program->vdev_count; i++) {
        const struct program_device *one = &program->vdevs[i];
        if (vdev == PROGRAM_ALL_VDEVS || vdev == i) {
            there = strcmp(verb, MSG_SUSPEND) == 0
                        ? one->suspended
                        : !one->suspended && !one->lost &&
                              (!target ||
                               (one->has_device && device_key_equal(&one->device, &target->key)));
        }
    }
    return there;
}

/** It stays there because an operator wants that, whoever had it there before. */
static void moving_stay(struct agent *agent, struct program *program, size_t vdev, const char *verb,
                        bool really)
{
    for (size_t i = 0; really && i < program->vdev_count; i++) {
        if (vdev != PROGRAM_ALL_VDEVS && vdev != i)
            continue;
        program->vdevs[i].displaced = program->vdevs[i].displaced && strcmp(verb, MSG_SUSPEND) != 0;
        program->vdevs[i].chosen = program->vdevs[i].chosen || strcmp(verb, MSG_MOVE) == 0;
    }
    if (really)
        programs_save(agent, program);
}

void moving_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    const struct inventory_entry *target = NULL;
    char device[PROTOCOL_WORD_MAX], verb[16];
    uint32_t index;
    size_t vdev;
    struct program *program = client_program(client, &message->root, &vdev);

    if (!program)
        return;
    field_string(&message->root, "type", verb, sizeof(verb));
    if (field_string(&message->root, "device", device, sizeof(device)) && device[0]) {
        target = client_device(client, field_get(&message->root, "device"), &index);
        if (!target)
            return;
    }
    if (!target && strcmp(verb, MSG_MOVE) == 0) {
        peer_error(client, ERR_USAGE, "the request names no device");
        return;
    }
    if (!program->connected) {
        moving_move_starting(client, program, vdev, message, target);
        return;
    }
    if (!client_finds_program(client, program))
        return;
    /* To an image it goes also when it is suspended already. */
    if (!field_get(&message->root, "folder") &&
        moving_is_there(agent, program, vdev, verb, target)) {
        moving_stay(agent, program, vdev, verb, !field_bool(&message->root, "dry_run", false));
        report_devices(client, program, vdev, RESULT_DONE, true);
        return;
    }
    if (strcmp(verb, MSG_RESUME) == 0 && program->status.known &&
        !moving_any_suspended(program, vdev) && !program_moving(program)) {
        peer_error(client, ERR_REFUSED,
                   "program %s (pid %d) is not suspended; use reseat move to change its device",
                   program->name, (int)program->pid);
        return;
    }
    moving_forward(client, program, vdev, message, target, verb);
}
