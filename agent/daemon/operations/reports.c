#include <string.h>

#include "agent/daemon/operations/operation.h"

/* Reports to clients on their operations: MSG_REPORT. */

void report_put_program(struct frame *frame, const struct program *program)
{
    frame_map(frame, "app");
    program_put_identity(program, frame);
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
    frame_string(&frame, "reason", "");
    frame_u64(&frame, "total_ns", 0);
    frame_u64(&frame, "arrived_ns", 0);
    frame_u64(&frame, "downtime_ns", 0);
    frame_u64(&frame, "bytes", 0);
    frame_u64(&frame, "build_ns", 0);
    frame_u64(&frame, "built", 0);
    frame_u64(&frame, "drain_ns", 0);
    frame_string(&frame, "waited_for", "");
    frame_u64(&frame, "aim_ns", 0);
    frame_u64(&frame, "left", 0);
    frame_u64(&frame, "rounds", 0);
    frame_u64(&frame, "predicted_ns", 0);
    frame_array(&frame, "vdevs");
    frame_end(&frame);
    peer_send(client, &frame);
}

void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already)
{
    char from[160], to[160];

    program_device_names(client->agent, program, vdev, true, from, sizeof(from));
    program_device_names(client->agent, program, vdev, false, to, sizeof(to));
    report_plain(client, program, already ? from : "", already ? from : to, result, already);
}

/** The result for one virtual device, or for all together. */
static const char *const outcome[] = {
    "vdev",         "result",     "reached",     "reason",        "already",    "lasting",
    "total_ns",     "arrived_ns", "downtime_ns", "bytes",         "left",       "rounds",
    "predicted_ns", "build_ns",   "built",       "drain_ns",      "waited_for", "aim_ns",
    "image",        "not_stored", "image_bytes", "image_written", "freed",      "not_protected",
    "not_removed",  "box"};

/* Forward the program's report on @op. */
void report_forward(struct peer *client, const struct operation *op, const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, op->program);
    frame_string(&frame, "from", op->from);
    frame_string(&frame, "to", op->to);
    frame_bool(&frame, "starting", false);
    frame_forward(&frame, message, outcome, ARRAY_SIZE(outcome));
    frame_array(&frame, "vdevs");
    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        frame_map(&frame, NULL);
        frame_forward(&frame, &vdevs[i], outcome, ARRAY_SIZE(outcome));
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}
