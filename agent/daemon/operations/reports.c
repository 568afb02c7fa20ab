#include "agent/daemon/agent_messages.h"
#include "agent/daemon/operations/operation.h"

/* Reports to clients on their operations: MSG_REPORT. */

void report_put_program(struct frame *frame, const struct program *program)
{
    frame_map(frame, "app");
    put_identity(frame, program);
    frame_end(frame);
}

void report_plain(struct peer *client, const struct program *program, const char *from,
                  const char *to, const char *result, bool already)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, program);
    frame_string(&frame, "from", from);
    frame_string(&frame, "to", to);
    frame_bool(&frame, "starting", !program->connected);
    frame_bool(&frame, "already", already);
    frame_string(&frame, "result", result);
    frame_string(&frame, "reached", "plan");
    blank_outcome(&frame);
    frame_array(&frame, "vdevs");
    frame_end(&frame);
    peer_send(client, &frame);
}

void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already)
{
    char from[PROTOCOL_TEXT_MAX], to[PROTOCOL_TEXT_MAX];

    program_device_names(client->agent, program, vdev, true, from, sizeof(from));
    program_device_names(client->agent, program, vdev, false, to, sizeof(to));
    report_plain(client, program, already ? from : "", already ? from : to, result, already);
}

void report_forward(struct peer *client, const struct operation *op, const msgpack_object *message)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, op->program);
    frame_string(&frame, "from", op->from);
    frame_string(&frame, "to", op->to);
    frame_bool(&frame, "starting", false);
    relay_report(&frame, message);
    peer_send(client, &frame);
}
