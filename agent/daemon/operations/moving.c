#include <errno.h>

#include "agent/daemon/operations/verbs.h"

/** Set the start device of a program that has not called OpenCL: there is nothing to move. */
static void moving_move_starting(struct peer *client, struct program *program, size_t vdev,
                                 bool dry_run, const struct inventory_entry *target)
{
    struct agent *agent = client->agent;
    char from[PROTOCOL_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];

    if (!target) {
        client_refuse(client, ERR_REFUSED, program,
                      "has not used OpenCL yet, so it holds no device; try again "
                      "when reseat ps shows it running");
        return;
    }
    if (drain_refuses(agent, target->name, reason, sizeof(reason))) {
        peer_error(client, ERR_REFUSED, "%s", reason);
        return;
    }
    program_device_names(agent, program, vdev, false, from, sizeof(from));
    for (size_t i = 0; !dry_run && i < program->vdev_count; i++) {
        if (vdev == PROGRAM_ALL_VDEVS || vdev == i) {
            program->vdevs[i].device = target->key;
            program->vdevs[i].has_device = true;
        }
    }
    if (!dry_run)
        programs_save(agent, program);
    report_plain(client, program, from, target->name, RESULT_DONE, false);
}

/** The one device to which all suspended @vdevs return; NULL: they return to several. */
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

/** Check that all of @wish fit on their different previous devices, as admit_request(). */
static int moving_admit_back(struct agent *agent, const struct operation *wish, char *ret_error,
                             size_t size)
{
    unsigned left = wish->vdevs;
    int full = 0;

    for (size_t i = 0; i < wish->program->vdev_count && !full; i++) {
        const struct program_device *vdev = &wish->program->vdevs[i];
        struct operation part = *wish;
        part.asked.dry_run = true;
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

static void moving_forward(struct operation *op, const struct inventory_entry *target)
{
    struct peer *client = op->client;
    struct agent *agent = client->agent;
    char error[PROTOCOL_TEXT_MAX], from[160];
    bool resumes = op->verb == REQUEST_RESUME;
    uint32_t only = resumes && target ? devices_index(agent, target) : LEDGER_NONE;
    const struct inventory_entry *there =
        target || !resumes ? target : moving_last_device(agent, op->program, op->vdevs);

    op->chosen = target != NULL;
    if (resumes && op->asked.queue) {
        resume_hand_back(client, op->program, op->vdev, op->vdevs, only);
        return;
    }
    int full = there     ? admit_request(agent, op, there, error, sizeof(error))
               : resumes ? moving_admit_back(agent, op, error, sizeof(error))
                         : 0;
    if (full && resumes && (full == -ENOSPC || !target)) {
        resume_queue(op, only, error);
        return;
    }
    if (full) {
        peer_error(client, ERR_REFUSED, "%s", error);
        return;
    }
    op->client = op->asked.detach ? NULL : client;
    if (operation_begin(agent, op, target)) {
        if (op->asked.detach)
            client_no_memory(client);
        operation_release(agent, op,
                          &(struct operation_end){.result = RESULT_ROLLED_BACK, .reason = ""});
    } else if (op->asked.detach) {
        program_device_names(agent, op->program, op->vdev, true, from, sizeof(from));
        report_plain(client, op->program, from, target ? target->name : "", RESULT_BEGUN, false);
    }
}

static bool moving_any_suspended(const struct program *program, size_t vdev)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if ((vdev == PROGRAM_ALL_VDEVS || vdev == i) && program->vdevs[i].suspended)
            return true;
    return false;
}

/** True when all that @vdev stands for have the requested state already. */
static bool moving_is_there(const struct agent *agent, const struct program *program, size_t vdev,
                            enum request_verb verb, const struct inventory_entry *target)
{
    bool there =
        program->status.known && !program_moving(program) && !operation_moves(agent, program);

    for (size_t i = 0; there && i < program->vdev_count; i++) {
        const struct program_device *one = &program->vdevs[i];
        if (vdev == PROGRAM_ALL_VDEVS || vdev == i) {
            there = verb == REQUEST_SUSPEND
                        ? one->suspended
                        : !one->suspended && !one->lost &&
                              (!target ||
                               (one->has_device && device_key_equal(&one->device, &target->key)));
        }
    }
    return there;
}

void moving_handle(struct peer *client, struct message *message)
{
    enum request_verb verb = request_verb(&message->root);
    struct agent *agent = client->agent;
    const struct inventory_entry *target = NULL;
    uint32_t index;
    size_t vdev;
    struct program *program = client_program(client, &message->root, &vdev);

    if (!program)
        return;
    struct operation op = operation_of(program, verb, vdev, client);
    operation_take(&message->root, &op);
    if (op.asked.device[0]) {
        target = client_device(client, field_get(&message->root, "device"), &index);
        if (!target)
            return;
    }
    if (!target && verb == REQUEST_MOVE) {
        peer_error(client, ERR_USAGE, "the request names no device");
        return;
    }
    if (!program->connected) {
        moving_move_starting(client, program, vdev, op.asked.dry_run, target);
        return;
    }
    if (!client_finds_program(client, program))
        return;
    /* With a folder, a suspended program has to write its image: do not answer at once. */
    if (!op.asked.folder[0] && moving_is_there(agent, program, vdev, verb, target)) {
        /* The operator wants the program to stay there, even if the policy moved it there. */
        for (size_t i = 0; !op.asked.dry_run && i < program->vdev_count; i++) {
            struct program_device *one = &program->vdevs[i];
            if (vdev != PROGRAM_ALL_VDEVS && vdev != i)
                continue;
            one->displaced = one->displaced && verb != REQUEST_SUSPEND;
            one->chosen = one->chosen || verb == REQUEST_MOVE;
        }
        if (!op.asked.dry_run)
            programs_save(agent, program);
        report_devices(client, program, vdev, RESULT_DONE, true);
        return;
    }
    if (verb == REQUEST_RESUME && program->status.known && !moving_any_suspended(program, vdev) &&
        !program_moving(program)) {
        client_refuse(client, ERR_REFUSED, program,
                      "is not suspended; use reseat move to change its device");
        return;
    }
    moving_forward(&op, target);
}
