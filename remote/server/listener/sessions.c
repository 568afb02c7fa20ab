#include "remote/server/listener/clients.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "remote/server/listener/channel.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/* How long a session that was told to end has before it is killed. */
#define POLITE_NS (2 * NS_PER_S)
/* Sessions are told of free memory at most this often, and only after it has changed by this part
 * of the total. */
#define TELL_NS     (250 * NS_PER_MS)
#define TELL_CHANGE 64
/* How often the wall clock is compared with the end of certificates: it can be set at any time. */
#define EXPIRY_NS (30 * NS_PER_S)

/* Limits the messages that are read of one session: many times what one needs. */
static const struct rate_limit heard = {
    .burst = 10000, .refill = 10000, .every_ns = 100 * NS_PER_MS};

/* Limits the processes that one session has started to connect: more than transfers need. */
static const struct rate_limit connects = {
    .burst = CARRIERS_MAX, .refill = 10, .every_ns = 100 * NS_PER_MS};

static void sessions_tell_timeslice(void *data, struct timeslice_user *user,
                                    enum timeslice_event event, uint64_t ns);

void sessions_init(struct clients *clients)
{
    for (size_t i = 0; i < clients->devices->count; i++) {
        clients->devices->timeslices[i].tell = sessions_tell_timeslice;
        clients->told_free[i] = clients->devices->ledger[i].total;
    }
}

/* Our session code always reads its channel. A session that does not is broken or hostile, and is
 * ended. */
static void sessions_tell_with(struct client *client, const struct channel_message *message,
                               int passed)
{
    int error = client->channel < 0
                    ? -EPIPE
                    : channel_send(client->channel, message, sizeof(*message), passed);
    if (error && error != -EPIPE && error != -ECONNRESET && !client->kill_ns) {
        log_warn("ending the session of %s in process %d: it does not read its messages",
                 client->name, client->pid);
        client->kill_ns = 1;
    }
}

static void sessions_tell(struct client *client, const struct channel_message *message)
{
    sessions_tell_with(client, message, -1);
}

static void sessions_tell_timeslice(void *data, struct timeslice_user *user,
                                    enum timeslice_event event, uint64_t ns)
{
    static const enum channel_kind kinds[] = {
        [TIMESLICE_BEGINS] = CHANNEL_TIMESLICE,
        [TIMESLICE_RECALLED] = CHANNEL_RECALL,
        [TIMESLICE_LOST] = CHANNEL_LOST,
    };
    struct client *client = user->owner;
    (void)data;
    sessions_tell(client, &(struct channel_message){.kind = kinds[event],
                                                    .device = (uint32_t)(user - client->timeslices),
                                                    .ns = ns});
}

static void sessions_give_memory(struct client *client, const struct channel_message *message)
{
    struct ledger *ledger = &client->clients->devices->ledger[message->device];
    struct channel_message answer = {.kind = CHANNEL_PROMISE, .device = message->device};
    answer.bytes =
        ledger_ask(ledger, &client->held[message->device], message->least, message->bytes);
    sessions_tell(client, &answer);
}

static void sessions_seek(struct client *client, const struct channel_message *message)
{
    struct channel_message answer = {.kind = CHANNEL_KEPT};
    memcpy(answer.name, message->name, sizeof(answer.name));
    sessions_tell_with(client, &answer,
                       kept_find(&client->clients->kept, client->name, message->name));
}

/* Above a limit the socket is closed, and the session goes another way. */
static void sessions_connect_for(struct client *client, int socket, uint64_t now_ns)
{
    const struct clients *clients = client->clients;
    if (clients->connect && clients_may_carry(client) &&
        rate_take(&client->connects, &connects, now_ns)) {
        pid_t pid = clients->connect(clients->connect_data, socket);
        if (pid > 0)
            clients_add_carrier(client, pid);
    }
    close(socket);
}

/* Messages that do not concern a device. Takes @passed; false: it is none of them. */
static bool sessions_take_any(struct client *client, const struct channel_message *message,
                              int passed, uint64_t now_ns)
{
    if (message->kind == CHANNEL_PROCESSES && passed >= 0 && client->processes.notices < 0) {
        client->processes.notices = passed;
        return true;
    }
    if (message->kind == CHANNEL_KEEP && passed >= 0)
        return kept_add(&client->clients->kept, client->name, message->name, passed);
    if (message->kind == CHANNEL_CONNECT && passed >= 0) {
        sessions_connect_for(client, passed, now_ns);
        return true;
    }
    if (passed >= 0) {
        close(passed);
        return false;
    }
    /* The kernel could not deliver the descriptor, because this process has too many. */
    if (message->kind == CHANNEL_KEEP || message->kind == CHANNEL_PROCESSES ||
        message->kind == CHANNEL_CONNECT)
        return true;
    if (message->kind == CHANNEL_BUSY)
        client->busy_ns += message->ns;
    else if (message->kind == CHANNEL_SEEK)
        sessions_seek(client, message);
    else
        return false;
    return true;
}

/* False: our session code never sends this. */
static bool sessions_take_message(struct client *client, const struct channel_message *message,
                                  uint64_t now_ns)
{
    struct devices *devices = client->clients->devices;
    uint32_t device = message->device;
    if (device >= devices->count)
        return false;
    switch ((enum channel_kind)message->kind) {
    case CHANNEL_USES:
        client->uses |= UINT64_C(1) << device;
        return true;
    case CHANNEL_ASK:
        sessions_give_memory(client, message);
        return true;
    case CHANNEL_RETURN:
        ledger_return(&devices->ledger[device], &client->held[device], message->bytes);
        return true;
    case CHANNEL_WANT:
        timeslices_want(&devices->timeslices[device], &client->timeslices[device], now_ns);
        return true;
    case CHANNEL_OVER:
        timeslices_over(&devices->timeslices[device], &client->timeslices[device],
                        message->again != 0, now_ns);
        return true;
    default:
        return false;
    }
}

void session_hear(struct client *client, uint64_t now_ns)
{
    struct channel_message message;
    int passed = -1;
    int error = channel_receive(client->channel, &message, sizeof(message), &passed);
    if (error == -EAGAIN)
        return;
    (void)rate_take(&client->heard, &heard, now_ns);
    bool alone = error == 0 && passed < 0;
    if (error == 0 && (sessions_take_any(client, &message, passed, now_ns) ||
                       (alone && sessions_take_message(client, &message, now_ns))))
        return;
    if (error != -EPIPE) {
        log_warn("ending the session of %s in process %d: it sent an invalid message", client->name,
                 client->pid);
        client->kill_ns = client->kill_ns ? client->kill_ns : 1;
    }
    close(client->channel);
    client->channel = -1;
}

int session_to_hear(const struct client *client, uint64_t now_ns)
{
    return rate_has_room(&client->heard, &heard, now_ns) ? client->channel : -1;
}

void session_answer_processes(struct client *client, short events, uint64_t now_ns)
{
    if (events & POLLIN)
        processes_answer(&client->processes, client->pid, client->name, now_ns);
    else
        processes_close(&client->processes); /* No process is left that could ask. */
}

void session_leave(struct client *client, uint64_t now_ns)
{
    struct devices *devices = client->clients->devices;
    for (size_t i = 0; i < devices->count; i++) {
        timeslices_leave(&devices->timeslices[i], &client->timeslices[i], now_ns);
        ledger_return(&devices->ledger[i], &client->held[i], UINT64_MAX);
    }
}

/* ---- timers, and the operator ---- */

static void sessions_end_client(struct client *client, enum ending why, uint64_t now_ns)
{
    if (client->kill_ns)
        return;
    log_warn("ending session %u of %s in process %d: %s", client->number, client->name, client->pid,
             endings[why]);
    client->kill_ns = now_ns + POLITE_NS;
    client->clients->ended[why]++;
    sessions_tell(client, &(struct channel_message){.kind = CHANNEL_END, .why = why});
}

static uint64_t sessions_difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static void sessions_tell_free(struct clients *clients, uint32_t device, uint64_t bytes)
{
    struct channel_message message = {.kind = CHANNEL_FREE, .device = device, .bytes = bytes};
    clients->told_free[device] = bytes;
    for (unsigned i = 0; i < clients->count; i++) {
        struct client *client = clients->places[i];
        int unread = 0;
        /* The news is not queued: a session that has not read the last one misses this one, and
         * gets a later one. */
        if (client->uses >> device & 1 && client->channel >= 0 &&
            !ioctl(client->channel, SIOCOUTQ, &unread) && unread == 0)
            sessions_tell(client, &message);
    }
}

/* Returns when to call it next. */
static uint64_t sessions_tell_all_free(struct clients *clients, uint64_t now_ns)
{
    bool changed = false;
    for (uint32_t i = 0; i < clients->devices->count; i++) {
        const struct ledger *ledger = &clients->devices->ledger[i];
        uint64_t left = ledger->total - ledger->given;
        if (sessions_difference(left, clients->told_free[i]) <= ledger->total / TELL_CHANGE)
            continue;
        if (now_ns < clients->tell_ns)
            return clients->tell_ns;
        sessions_tell_free(clients, i, left);
        changed = true;
    }
    if (changed)
        clients->tell_ns = now_ns + TELL_NS;
    return UINT64_MAX;
}

static uint64_t sessions_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t clients_tick(struct clients *clients, uint64_t now_ns, int64_t wall)
{
    uint64_t next = sessions_tell_all_free(clients, now_ns);
    for (size_t i = 0; i < clients->devices->count; i++)
        next = sessions_earlier(next, timeslices_tick(&clients->devices->timeslices[i], now_ns));
    for (unsigned i = 0; i < clients->count; i++) {
        struct client *client = clients->places[i];
        if (client->until && wall >= client->until)
            sessions_end_client(client, ENDED_EXPIRED, now_ns);
        else if (client->until)
            next = sessions_earlier(next, now_ns + EXPIRY_NS);
        if (session_to_hear(client, now_ns) != client->channel)
            next = sessions_earlier(next, client->heard.since_ns + heard.every_ns);
        if (processes_poll(&client->processes, now_ns) != client->processes.notices)
            next = sessions_earlier(next, client->processes.look_ns);
        if (!client->kill_ns)
            continue;
        if (now_ns >= client->kill_ns) {
            client_kill(client->pid);
            client->kill_ns = UINT64_MAX;
        }
        next = sessions_earlier(next, client->kill_ns);
    }
    return next;
}

const struct client *clients_from(const struct clients *clients, uint32_t number)
{
    const struct client *found = NULL;
    for (unsigned i = 0; i < clients->count; i++) {
        const struct client *client = clients->places[i];
        if (client->number >= number && (!found || client->number < found->number))
            found = client;
    }
    return found;
}

size_t clients_end(struct clients *clients, uint32_t number, const char *name, enum ending why,
                   uint64_t now_ns)
{
    size_t count = 0;
    for (unsigned i = 0; i < clients->count; i++) {
        struct client *client = clients->places[i];
        bool meant = number ? client->number == number : strcmp(client->name, name) == 0;
        if (why == ENDED_REVOKED && !client->until)
            continue;
        if (meant && client->kill_ns != UINT64_MAX) {
            sessions_end_client(client, why, now_ns);
            count++;
        }
    }
    return count;
}
