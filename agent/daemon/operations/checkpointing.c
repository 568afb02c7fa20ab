#include <string.h>

#include "agent/daemon/operations/verbs.h"
#include "state/base/array.h"

/*
 * Images of programs, which the programs write themselves. The agent forwards requests, and makes
 * periodic images on an operator's request until the operator ends that or the program ends.
 */

static bool checkpointing_repeats(const struct program *program)
{
    return program->images && program->images->every_ms;
}

static void checkpointing_settle(struct agent *agent, struct program *program,
                                 const struct operation *op, const char *image)
{
    if (!array_allot(&program->images, 1, sizeof(*program->images))) {
        agent_log("%s: no memory to note its image %s", program->id, image);
        return;
    }
    struct program_images *images = program->images;

    if (op->asked.every_ms && !op->ours) {
        *images = (struct program_images){.every_ms = op->asked.every_ms,
                                          .keep = op->asked.keep,
                                          .timeout_ms = op->asked.timeout_ms,
                                          .max_downtime_ms = op->asked.max_downtime_ms,
                                          .bandwidth = op->asked.bandwidth,
                                          .due_ms = uv_now(&agent->loop) + op->asked.every_ms};
        memcpy(images->folder, op->asked.folder, sizeof(images->folder));
        programs_save(agent, program);
    }
    images->made_ms = uv_now(&agent->loop);
    images->problem[0] = '\0';
    snprintf(images->image, sizeof(images->image), "%s", image);
}

void checkpointing_answered(struct agent *agent, const struct operation *op,
                            const msgpack_object *message)
{
    struct program *program = op->program;
    char image[sizeof(program->images->image)];

    if (op->asked.ends)
        return; /* No image was requested. */
    if (field_is(message, "result", RESULT_DONE) &&
        field_string(message, "image", image, sizeof(image)) && image[0])
        checkpointing_settle(agent, program, op, image);
    else if (op->ours)
        field_text(message, "reason", program->images->problem, sizeof(program->images->problem));
    if (op->asked.keeps && !checkpointing_repeats(program)) {
        /* Ask the program to release what it keeps for the last image. */
        struct operation wish = operation_of(program, REQUEST_CHECKPOINT, PROGRAM_ALL_VDEVS, NULL);
        wish.asked.ends = true;
        operation_begin(agent, &wish, NULL); /* Without memory, the program keeps it. */
    }
    if (op->asked.parks)
        (void)resume_later(agent, program, op->ran, LEDGER_NONE);
}

/** A program that is not connected or is suspended makes its next image when it is back. */
void checkpointing_look(struct agent *agent, struct program *program)
{
    uint64_t now = uv_now(&agent->loop);
    struct program_images *images = program->images;

    if (!checkpointing_repeats(program) || now < images->due_ms || !program_acts(program) ||
        !program->status.known || program_suspended(program) ||
        operation_sent(agent, program, OPERATION_BIT(REQUEST_CHECKPOINT)))
        return;
    struct operation wish = operation_of(program, REQUEST_CHECKPOINT, PROGRAM_ALL_VDEVS, NULL);
    wish.asked.keeps = true;
    wish.asked.keep = images->keep;
    wish.asked.every_ms = images->every_ms;
    wish.asked.max_downtime_ms = images->max_downtime_ms;
    wish.asked.bandwidth = images->bandwidth;
    memcpy(wish.asked.folder, images->folder, sizeof(wish.asked.folder));
    images->due_ms = now + images->every_ms;
    wish.asked.timeout_ms = images->timeout_ms;
    operation_begin(agent, &wish, NULL); /* Without memory, the next look tries again. */
}

/** End the periodic images of a program. */
static void checkpointing_end(struct peer *client, struct program *program)
{
    struct operation wish = operation_of(program, REQUEST_CHECKPOINT, PROGRAM_ALL_VDEVS, client);

    wish.asked.ends = true;
    if (program->images)
        *program->images = (struct program_images){.every_ms = 0};
    /* Also cancel the first of the periodic images if it is in progress. */
    for (struct operation *op = client->agent->operations; op; op = op->next)
        if (op->program == program && op->verb == REQUEST_CHECKPOINT)
            op->asked.every_ms = 0;
    programs_save(client->agent, program);
    operation_begin(client->agent, &wish, NULL);
}

void checkpointing_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    size_t vdev;
    struct program *program = client_running_program(client, map, "nothing to keep", &vdev);

    if (!program)
        return;
    if (field_bool(map, "end", false)) {
        checkpointing_end(client, program);
        return;
    }
    struct operation wish = operation_of(program, REQUEST_CHECKPOINT, PROGRAM_ALL_VDEVS, client);
    operation_take(map, &wish);
    if (wish.asked.every_ms > PROGRAM_IMAGES_MS_MAX)
        wish.asked.every_ms = PROGRAM_IMAGES_MS_MAX;
    wish.asked.keeps = wish.asked.every_ms || checkpointing_repeats(program);
    for (size_t i = 0; i < program->vdev_count; i++)
        wish.ran |= program->vdevs[i].suspended ? 0 : 1u << i;
    operation_begin(client->agent, &wish, NULL);
}
