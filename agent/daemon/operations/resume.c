#include "agent/daemon/operations/operations.h"

#include <stdlib.h>
#include <string.h>

/** A client that waits until a program has a device again. */
struct resume {
    struct resume *next;
    struct peer *client;
    struct program *program;
    size_t vdev;
    unsigned vdevs; /**< As bits. */
    unsigned ours;  /**< Of these, those that would not queue if nobody waited. */
    uint64_t expires_ms;
};

static void resume_drop(struct agent *agent, struct resume *resume)
{
    for (struct resume **at = &agent->governor->resumes; *at; at = &(*at)->next) {
        if (*at == resume) {
            *at = resume->next;
            break;
        }
    }
    free(resume);
}

/** Nobody waits any more: what queues only for that stays suspended. */
static void resume_give_up(struct agent *agent, struct resume *resume)
{
    for (size_t i = 0; i < resume->program->vdev_count; i++) {
        struct program_device *vdev = &resume->program->vdevs[i];
        if (resume->ours & (1u << i) && vdev->suspended) {
            vdev->displaced = false;
            vdev->only = LEDGER_NONE;
        }
    }
    programs_save(agent, resume->program);
    resume_drop(agent, resume);
}

/** Have the virtual devices of @program queue; those, as bits, that did not before. */
static unsigned resume_enqueue(struct agent *agent, struct program *program, unsigned vdevs,
                               uint32_t only)
{
    unsigned added = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        if (!(vdevs & (1u << i)) || !vdev->suspended)
            continue;
        if (!vdev->displaced) {
            vdev->displaced = true;
            pending_queue(agent, pending_of(agent, program, 1u << i), vdev);
            added |= 1u << i;
        }
        vdev->only = only;
    }
    programs_save(agent, program);
    agent->changed = true;
    return added;
}

void resume_queue(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                  uint32_t only, uint64_t timeout_ms, const char *why)
{
    struct agent *agent = client->agent;
    struct resume *resume = malloc(sizeof(*resume));
    struct frame frame;

    if (!resume) {
        client_no_memory(client);
        return;
    }
    *resume = (struct resume){.next = agent->governor->resumes,
                              .client = client,
                              .program = program,
                              .vdev = vdev,
                              .vdevs = vdevs,
                              .ours = resume_enqueue(agent, program, vdevs, only),
                              .expires_ms = timeout_ms ? uv_now(&agent->loop) + timeout_ms : 0};
    agent->governor->resumes = resume;
    frame_init(&frame, MSG_NOTICE);
    report_put_program(&frame, program);
    frame_string(&frame, "reason", why);
    peer_send(client, &frame);
}

void resume_hand_back(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                      uint32_t only)
{
    (void)resume_enqueue(client->agent, program, vdevs, only);
    report_devices(client, program, vdev, RESULT_QUEUED, false);
}

void resume_later(struct agent *agent, struct program *program, unsigned vdevs)
{
    (void)resume_enqueue(agent, program, vdevs, LEDGER_NONE);
}

static bool resume_waits(const struct resume *resume)
{
    for (size_t i = 0; i < resume->program->vdev_count; i++)
        if (resume->vdevs & (1u << i) && resume->program->vdevs[i].suspended)
            return true;
    return false;
}

/** False for one that somebody else wants to stay where it is. */
static bool resume_queues(const struct resume *resume)
{
    for (size_t i = 0; i < resume->program->vdev_count; i++) {
        const struct program_device *vdev = &resume->program->vdevs[i];
        if (resume->vdevs & (1u << i) && vdev->suspended && !vdev->displaced)
            return false;
    }
    return true;
}

struct peer *resume_ends(struct agent *agent, const struct operation *op, const char *result)
{
    struct resume *next;

    for (struct resume *resume = agent->governor->resumes; resume; resume = next) {
        struct peer *client = resume->client;
        next = resume->next;
        if (resume->program != op->program || !(resume->vdevs & op->vdevs))
            continue;
        if (strcmp(result, RESULT_REFUSED) == 0 && op->chosen) {
            /* Where it was to go it never will. */
            resume_give_up(agent, resume);
            return client;
        }
        unsigned rest = resume->vdevs & ~op->vdevs;
        for (size_t i = 0; i < resume->program->vdev_count; i++)
            rest &= resume->program->vdevs[i].suspended ? ~0u : ~(1u << i);
        if (strcmp(result, RESULT_DONE) == 0 && !rest) {
            resume_drop(agent, resume);
            return client;
        }
    }
    return NULL;
}

bool resume_cancel_program(struct agent *agent, const struct program *program)
{
    struct resume *next;
    bool any = false;

    for (struct resume *resume = agent->governor->resumes; resume; resume = next) {
        next = resume->next;
        if (resume->program != program)
            continue;
        report_devices(resume->client, program, resume->vdev, RESULT_CANCELED, false);
        resume_give_up(agent, resume);
        any = true;
    }
    return any;
}

void resume_cancel(struct agent *agent, const struct peer *client, bool gone)
{
    struct resume *next;

    for (struct resume *resume = agent->governor->resumes; resume; resume = next) {
        next = resume->next;
        if (resume->client == client) {
            if (!gone) {
                report_devices(resume->client, resume->program, resume->vdev, RESULT_CANCELED,
                               false);
            }
            resume_give_up(agent, resume);
        }
    }
}

void resume_forget(struct agent *agent, const struct program *program)
{
    struct resume *next;

    for (struct resume *resume = agent->governor->resumes; resume; resume = next) {
        next = resume->next;
        if (resume->program == program) {
            peer_error(resume->client, ERR_GONE, "program %s (pid %d) ended before it had a device",
                       program->name, (int)program->pid);
            resume_drop(agent, resume);
        }
    }
}

void resume_tick(struct agent *agent)
{
    struct resume *next;

    for (struct resume *resume = agent->governor->resumes; resume; resume = next) {
        const struct program *program = resume->program;
        next = resume->next;
        if (!resume_waits(resume)) {
            report_devices(resume->client, resume->program, resume->vdev, RESULT_DONE, false);
            resume_drop(agent, resume);
        } else if (!resume_queues(resume)) {
            peer_error(resume->client, ERR_REFUSED,
                       "program %s (pid %d) was suspended by another command meanwhile",
                       program->name, (int)program->pid);
            resume_drop(agent, resume);
        } else if (program->unresponsive) {
            peer_error(resume->client, ERR_EXPIRED,
                       "program %s (pid %d) does not answer (is it stopped?); the resume is "
                       "canceled",
                       program->name, (int)program->pid);
            resume_give_up(agent, resume);
        } else if (resume->expires_ms && uv_now(&agent->loop) >= resume->expires_ms) {
            peer_error(resume->client, ERR_EXPIRED,
                       "program %s (pid %d) found no room in time and stays suspended: %s",
                       program->name, (int)program->pid, program->managed.why);
            resume_give_up(agent, resume);
        }
    }
}

void resume_finish(struct agent *agent)
{
    while (agent->governor->resumes)
        resume_drop(agent, agent->governor->resumes);
}
