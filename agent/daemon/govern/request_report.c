#include "agent/daemon/govern/govern.h"

#include <string.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

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
    frame_u64(&frame, "downtime_ns", 0);
    frame_u64(&frame, "bytes", 0);
    frame_array(&frame, "seats");
    frame_end(&frame);
    peer_send(client, &frame);
}

void report_devices(struct peer *client, const struct program *program, size_t seat,
                    const char *result, bool already)
{
    char from[160], to[160];

    program_device_names(client->agent, program, seat, true, from, sizeof(from));
    program_device_names(client->agent, program, seat, false, to, sizeof(to));
    report_plain(client, program, already ? from : "", already ? from : to, result, already);
}

/** What became of a seat that was tried, or of all together. */
static const char *const outcome[] = {"seat",    "result",   "reached",     "reason", "already",
                                      "lasting", "total_ns", "downtime_ns", "bytes"};

void report_forward(struct peer *client, const struct request *request,
                    const msgpack_object *message)
{
    const msgpack_object *seats;
    size_t count = field_array(message, "seats", &seats);
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, request->program);
    frame_string(&frame, "from", request->from);
    frame_string(&frame, "to", request->to);
    frame_bool(&frame, "starting", false);
    frame_forward(&frame, message, outcome, ARRAY_SIZE(outcome));
    frame_array(&frame, "seats");
    for (size_t i = 0; i < count && i < PROTOCOL_SEATS_MAX; i++) {
        frame_map(&frame, NULL);
        frame_forward(&frame, &seats[i], outcome, ARRAY_SIZE(outcome));
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}
