#include "agent/daemon/govern/govern.h"

/* Images of programs, which they write themselves: the agent passes on what is asked. */

void checkpointing_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    size_t seat;
    struct program *program = client_program(client, map, &seat);

    if (!program)
        return;
    if (!program->connected) {
        peer_error(client, ERR_REFUSED,
                   "program %s (pid %d) has not used OpenCL yet, so there is nothing to keep; try "
                   "again when reseat ps shows it running",
                   program->name, (int)program->pid);
        return;
    }
    if (!program->peer) {
        peer_error(client, ERR_GONE,
                   "program %s (pid %d) has not found this agent yet; try again in a second",
                   program->name, (int)program->pid);
        return;
    }
    struct request wish = {
        .client = client,
        .program = program,
        .seats = (1u << program->seat_count) - 1,
        .seat = PROGRAM_ALL_SEATS,
        .target = LEDGER_NONE,
        .images = true,
        .keeps = field_bool(map, "keeps", false),
        .ends = field_bool(map, "end", false),
        .parks = field_bool(map, "process", false),
        .max_downtime_ms = field_u64(map, "max_downtime_ms", 0),
        .bandwidth = field_u64(map, "bandwidth", 0),
        .verb = MSG_CHECKPOINT,
    };
    for (size_t i = 0; i < program->seat_count; i++)
        wish.ran |= program->seats[i].suspended ? 0 : 1u << i;
    if (wish.max_downtime_ms > GOVERN_DOWNTIME_MS_MAX)
        wish.max_downtime_ms = GOVERN_DOWNTIME_MS_MAX;
    (void)field_path(map, "folder", wish.folder, sizeof(wish.folder));
    if (requests_begin(client->agent, &wish, NULL, field_u64(map, "timeout_ms", 0)))
        client_no_memory(client);
}
