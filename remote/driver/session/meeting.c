#include "remote/driver/session/session.h"

#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "state/base/clock.h"

/* For so long no server is told again to connect to one that could not be reached. */
#define UNREACHED_NS (60 * NS_PER_S)

static bool meeting_is_near(const struct client *client)
{
    return strncmp(client->address, "unix:", strlen("unix:")) == 0;
}

/* Of two servers that are not both on this machine: the index of the one that the other connects
 * to. */
static int meeting_who_awaits(const struct client *to)
{
    return meeting_is_near(to) ? 0 : 1;
}

bool meeting_is_possible(const struct client *from, const struct client *to)
{
    if (meeting_is_near(from) && meeting_is_near(to))
        return true;
    const struct client *awaits = meeting_who_awaits(to) ? to : from;
    return awaits->session && clock_now_ns() >= atomic_load(&awaits->unreached_until_ns);
}

static cl_int meeting_draw_ticket(struct meeting *meeting)
{
    int awaits = meeting_who_awaits(meeting->ends[1]);
    struct ticket *ticket = &meeting->ticket;
    if (getrandom(ticket, sizeof(*ticket), 0) != (ssize_t)sizeof(*ticket))
        return CL_OUT_OF_RESOURCES;
    meeting->awaits = meeting->ends[awaits];
    ticket->name.session = meeting->awaits->session;
    meeting->ways[awaits] = TRANSFER_AWAIT;
    meeting->ways[!awaits] = TRANSFER_CONNECT;
    return CL_SUCCESS;
}

cl_int meeting_init(struct meeting *meeting, struct client *from, struct client *to)
{
    static _Atomic uint64_t serial;
    meeting->transfer = atomic_fetch_add(&serial, 1) + 1;
    meeting->ends[0] = from;
    meeting->ends[1] = to;
    if (from == to)
        return CL_SUCCESS; /* TRANSFER_HERE, both. */
    if (!meeting_is_possible(from, to))
        return CL_INVALID_OPERATION;
    if (!meeting_is_near(from) || !meeting_is_near(to))
        return meeting_draw_ticket(meeting);
    meeting->ways[0] = meeting->ways[1] = TRANSFER_DESCRIPTOR;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return CL_OUT_OF_RESOURCES;
    int first = owned_take(ends[0], &meeting->sockets[0]);
    int second = owned_take(ends[1], &meeting->sockets[1]);
    return first || second ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

void meeting_finish(struct meeting *meeting)
{
    for (int i = 0; i < 2; i++)
        owned_close(&meeting->sockets[i]);
}

struct msg_peer meeting_peer(const struct meeting *meeting, int end)
{
    return (struct msg_peer){.transfer = meeting->transfer,
                             .way = meeting->ways[end],
                             .where = meeting->awaits ? meeting->awaits->address : "",
                             .ticket = &meeting->ticket,
                             .ticket_size = meeting->awaits ? sizeof(meeting->ticket) : 0};
}

static int meeting_post_socket(struct client *client, unsigned type, const struct pack *pack,
                               struct owned *socket)
{
    if (!client->stream.rings)
        return stream_post_descriptor(&client->stream, type, pack->bytes, pack->used, socket);
    int fd = owned_fd(socket); /* Programs close descriptors that they do not know. */
    int error = fd < 0 ? -EBADF : blocks_post_descriptor(client, type, pack->bytes, pack->used, fd);
    if (error == 0)
        owned_close(socket);
    return error;
}

cl_int meeting_post(struct meeting *meeting, int end, unsigned type, struct pack *pack)
{
    struct client *client = meeting->ends[end];
    struct owned *socket = &meeting->sockets[end];
    int error = client_state(client) ? -ENODEV : pack->failed ? -ENOMEM : 0;
    if (error == 0 && socket->fd >= 0)
        error = meeting_post_socket(client, type, pack, socket);
    else if (error == 0)
        error = stream_post(&client->stream, type, pack->bytes, pack->used, NULL, 0);
    pack_finish(pack);
    return posted(error);
}

void meeting_forget(struct client *client, uint64_t transfer)
{
    (void)POST(client, forget, {.transfer = transfer});
    client_flush(client);
}

void meeting_unreached(struct client *awaits)
{
    atomic_store(&awaits->unreached_until_ns, clock_now_ns() + UNREACHED_NS);
}
