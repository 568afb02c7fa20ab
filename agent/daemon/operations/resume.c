#include <string.h>

#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"

/*
 * A resume that finds no free memory becomes an operation that waits. Its program queues like the
 * programs that the policy suspended, and the policy resumes it with an operation of its own.
 */

/** The first waiting resume among @op and the operations after it. */
static struct operation *resume_waiting(struct operation *op)
{
    while (op && (op->verb != REQUEST_RESUME || op->state != OPERATION_WAITING))
        op = op->next;
    return op;
}

/** No client waits any more: virtual devices that queue only for this resume stay suspended. */
static void resume_give_up(struct agent *agent, struct operation *op)
{
    for (size_t i = 0; i < op->program->vdev_count; i++) {
        struct program_device *vdev = &op->program->vdevs[i];
        if (op->queued & (1u << i) && vdev->suspended) {
            vdev->displaced = false;
            vdev->only = LEDGER_NONE;
        }
    }
    programs_save(agent, op->program);
    operation_settle(agent, op, NULL);
}

unsigned resume_later(struct agent *agent, struct program *program, unsigned vdevs, uint32_t only)
{
    unsigned added = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        if (!(vdevs & (1u << i)) || !vdev->suspended)
            continue;
        if (!vdev->displaced) {
            vdev->displaced = true;
            pending_queue(agent, pending_of(program, 1u << i), vdev);
            added |= 1u << i;
        }
        vdev->only = only;
    }
    programs_save(agent, program);
    agent->changed = true;
    return added;
}

void resume_queue(const struct operation *wish, uint32_t only, const char *why)
{
    struct peer *client = wish->client;
    struct agent *agent = client->agent;
    struct operation *op = operation_add(agent, wish);
    struct frame frame;

    if (!op)
        return;
    op->chosen = false;
    op->queued = resume_later(agent, op->program, op->vdevs, only);
    operation_note(agent, op, RESULT_QUEUED, why);
    frame_init(&frame, MSG_NOTICE);
    report_put_program(&frame, op->program);
    frame_string(&frame, "reason", why);
    peer_send(client, &frame);
}

void resume_hand_back(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                      uint32_t only)
{
    (void)resume_later(client->agent, program, vdevs, only);
    report_devices(client, program, vdev, RESULT_QUEUED, false);
}

struct peer *resume_ends(struct agent *agent, const struct operation *done, const char *result)
{
    for (struct operation *op = resume_waiting(agent->operations), *next; op; op = next) {
        struct peer *client = op->client;
        next = resume_waiting(op->next);
        if (op->program != done->program || !(op->vdevs & done->vdevs))
            continue;
        if (strcmp(result, RESULT_REFUSED) == 0 && done->chosen) {
            /* The target of the resume can no longer be reached. */
            resume_give_up(agent, op);
            return client;
        }
        unsigned rest = op->vdevs & ~done->vdevs;
        for (size_t i = 0; i < op->program->vdev_count; i++)
            rest &= op->program->vdevs[i].suspended ? ~0u : ~(1u << i);
        if (strcmp(result, RESULT_DONE) == 0 && !rest) {
            operation_settle(agent, op, NULL);
            return client;
        }
    }
    return NULL;
}

void resume_cancel(struct agent *agent, struct operation *op, bool gone)
{
    if (op->state != OPERATION_WAITING) {
        asking_cancel(agent, op, gone);
        return;
    }
    if (!gone)
        report_devices(op->client, op->program, op->vdev, RESULT_CANCELED, false);
    resume_give_up(agent, op);
}

bool resume_cancel_program(struct agent *agent, const struct program *program)
{
    bool any = false;

    for (struct operation *op = resume_waiting(agent->operations), *next; op; op = next) {
        next = resume_waiting(op->next);
        if (op->program == program) {
            resume_cancel(agent, op, false);
            any = true;
        }
    }
    return any;
}

void resume_forget(struct agent *agent, const struct program *program)
{
    for (struct operation *op = resume_waiting(agent->operations), *next; op; op = next) {
        next = resume_waiting(op->next);
        if (op->program == program) {
            client_refuse(op->client, ERR_GONE, program, "ended before it had a device");
            operation_settle(agent, op, NULL);
        }
    }
}

/** Settle @op where its program is resumed or never can be. False: it still waits. */
static bool resume_look(struct agent *agent, struct operation *op)
{
    const struct program *program = op->program;
    bool waits = false, queues = true; /* Other requests may end that it queues. */

    for (size_t i = 0; i < program->vdev_count; i++) {
        if (op->vdevs & (1u << i) && program->vdevs[i].suspended) {
            waits = true;
            queues = queues && program->vdevs[i].displaced;
        }
    }
    if (!waits) {
        report_devices(op->client, program, op->vdev, RESULT_DONE, false);
        operation_settle(agent, op, NULL);
    } else if (!queues) {
        client_refuse(op->client, ERR_REFUSED, program,
                      "was suspended by another command meanwhile");
        operation_settle(agent, op, NULL);
    } else if (program->unresponsive) {
        client_refuse(op->client, ERR_EXPIRED, program,
                      "does not answer (is it stopped?); the resume is canceled");
        resume_give_up(agent, op);
    } else {
        return false;
    }
    return true;
}

void resume_tick(struct agent *agent)
{
    for (struct operation *op = resume_waiting(agent->operations), *next; op; op = next) {
        next = resume_waiting(op->next);
        (void)resume_look(agent, op);
    }
}

void resume_expire(struct agent *agent, struct operation *op)
{
    if (op->state != OPERATION_WAITING) {
        asking_expire(agent, op);
    } else if (!resume_look(agent, op)) {
        client_refuse(op->client, ERR_EXPIRED, op->program,
                      "found no room in time and stays suspended: %s", op->program->managed.why);
        resume_give_up(agent, op);
    }
}
