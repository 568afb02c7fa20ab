#include "agent/daemon/govern/request_report.h"

#include <string.h>

#include "agent/daemon/govern/requests.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

void report_put_program(struct frame *frame, const struct program *program)
{
    frame_map(frame, "app");
    frame_string(frame, "id", program->id);
    frame_string(frame, "name", program->name);
    frame_u64(frame, "pid", (uint64_t)program->pid);
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

/** What became of each seat that was tried, as the program says. */
static void put_seats(struct frame *frame, const msgpack_object *message)
{
    const msgpack_object *seats;
    size_t count = field_array(message, "seats", &seats);
    char result[PROTOCOL_WORD_MAX], reached[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];

    frame_array(frame, "seats");
    for (size_t i = 0; i < count && i < PROTOCOL_SEATS_MAX; i++) {
        field_string(&seats[i], "result", result, sizeof(result));
        field_string(&seats[i], "reached", reached, sizeof(reached));
        field_text(&seats[i], "reason", reason, sizeof(reason));
        frame_map(frame, NULL);
        frame_u64(frame, "seat", field_u64(&seats[i], "seat", 0));
        frame_string(frame, "result", result);
        frame_string(frame, "reached", reached);
        frame_string(frame, "reason", reason);
        frame_u64(frame, "total_ns", field_u64(&seats[i], "total_ns", 0));
        frame_u64(frame, "downtime_ns", field_u64(&seats[i], "downtime_ns", 0));
        frame_u64(frame, "bytes", field_u64(&seats[i], "bytes", 0));
        frame_end(frame);
    }
    frame_end(frame);
}

void report_forward(struct peer *client, const struct request *request,
                    const msgpack_object *message)
{
    char result[PROTOCOL_WORD_MAX], reached[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];
    struct frame frame;

    field_string(message, "result", result, sizeof(result));
    field_string(message, "reached", reached, sizeof(reached));
    field_text(message, "reason", reason, sizeof(reason));
    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, request->program);
    frame_string(&frame, "from", request->from);
    frame_string(&frame, "to", request->to);
    frame_bool(&frame, "starting", false);
    frame_bool(&frame, "already", field_bool(message, "already", false));
    frame_string(&frame, "result", result);
    frame_string(&frame, "reached", reached);
    frame_string(&frame, "reason", reason);
    frame_bool(&frame, "lasting", field_bool(message, "lasting", false));
    frame_u64(&frame, "total_ns", field_u64(message, "total_ns", 0));
    frame_u64(&frame, "downtime_ns", field_u64(message, "downtime_ns", 0));
    frame_u64(&frame, "bytes", field_u64(message, "bytes", 0));
    put_seats(&frame, message);
    peer_send(client, &frame);
}
