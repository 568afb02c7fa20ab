#include "remote/server/listener/clients.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "state/base/clock.h"

enum verdict { YES, FULL, TOO_MANY, NO_SUCH, BUSY };

static const char *const refusals[] = {
    [YES] = NULL,
    [FULL] = "the server has reached its limit of clients",
    [TOO_MANY] = "its certificate has reached its limit of sessions",
    [NO_SUCH] = "no such session",
};

int clients_init(struct clients *clients, unsigned max, struct devices *devices)
{
    clients->places = calloc(max, sizeof(struct client *));
    clients->max = max;
    clients->devices = devices;
    sessions_init(clients);
    return clients->places ? 0 : -ENOMEM;
}

/* ---- clients ---- */

/* The whole process group, which the session's children cannot leave (sandbox.h): a compiler that
 * client code controls would otherwise run on. */
void client_kill(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* A process that was just started may not have made its group yet. */
}

void clients_kill(const struct clients *clients)
{
    for (unsigned i = 0; i < clients->count; i++)
        client_kill(clients->places[i]->pid);
}

void clients_each_process(const struct clients *clients, void (*each)(void *data, pid_t pid),
                          void *data)
{
    for (size_t i = 0; i < clients->stranger_count; i++)
        each(data, clients->strangers[i].pid);
    for (unsigned i = 0; i < clients->count; i++)
        each(data, clients->places[i]->pid);
}

static pid_t *clients_find_carrier(struct client *client, pid_t pid)
{
    for (unsigned i = 0; i < CARRIERS_MAX; i++)
        if (client->carriers[i] == pid)
            return &client->carriers[i];
    return NULL;
}

bool clients_may_carry(struct client *client)
{
    return client->clients->carrier_count < CARRIERS_ALL_MAX && clients_find_carrier(client, 0);
}

void clients_add_carrier(struct client *client, pid_t pid)
{
    *clients_find_carrier(client, 0) = pid;
    client->clients->carrier_count++;
}

static bool clients_are_full(const struct clients *clients)
{
    return clients->count >= clients->max;
}

static bool clients_add(struct clients *clients, const struct stranger *stranger,
                        const struct client_question *question)
{
    struct client *client = calloc(1, sizeof(*client));
    if (!client)
        return false;
    client->number = ++clients->last_number;
    client->pid = stranger->pid;
    strcpy(client->name, question->name);
    client->key = question->key;
    client->channel = stranger->channel;
    client->share = question->share;
    client->since = time(NULL);
    client->until = question->until;
    client->processes = PROCESSES_NONE;
    client->clients = clients;
    for (size_t i = 0; i < clients->devices->count; i++) {
        client->timeslices[i].owner = client;
        client->timeslices[i].share = client->share;
    }
    clients->places[clients->count++] = client;
    return true;
}

static void clients_remove_place(struct clients *clients, unsigned at)
{
    struct client *client = clients->places[at];
    session_leave(client, clock_now_ns());
    if (client->channel >= 0)
        close(client->channel);
    processes_close(&client->processes);
    /* The session's link carries nothing any more, but its relay may be waiting for a peer that
     * never reads. */
    if (client->relay)
        client_kill(client->relay);
    for (unsigned i = 0; i < CARRIERS_MAX; i++)
        if (client->carriers[i]) {
            client_kill(client->carriers[i]);
            clients->carrier_count--;
        }
    clients->places[at] = clients->places[--clients->count];
    free(client);
}

/* Compare in constant time, so that the time does not tell how many bytes were right. */
static bool clients_keys_are_same(const struct session_key *a, const struct session_key *b)
{
    uint64_t numbers = a->number ^ b->number;
    unsigned char bytes[sizeof(numbers)], different = 0;
    memcpy(bytes, &numbers, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        different |= bytes[i];
    for (size_t i = 0; i < sizeof(a->secret); i++)
        different |= a->secret[i] ^ b->secret[i];
    /* Stops the compiler from returning early at the first difference. */
    volatile unsigned char result = different;
    return result == 0;
}

/* Compares with all sessions, so that the time does not tell which one matched. */
static struct client *clients_find_session(struct clients *clients,
                                           const struct client_question *question)
{
    struct client *found = NULL;
    for (unsigned i = 0; i < clients->count; i++) {
        struct client *place = clients->places[i];
        bool same = clients_keys_are_same(&place->key, &question->key);
        if (same && place->key.number && strcmp(place->name, question->name) == 0)
            found = place;
    }
    return found;
}

/* ---- strangers ---- */

static void clients_close_channel(struct stranger *stranger)
{
    if (stranger->channel >= 0)
        close(stranger->channel);
    stranger->channel = -1;
}

static void clients_remove_stranger(struct clients *clients, struct stranger *stranger)
{
    if (stranger->id)
        preauth_leave(&clients->preauth, stranger->id);
    else
        clients->local_count--;
    *stranger = clients->strangers[--clients->stranger_count];
}

int clients_enter(struct clients *clients, const struct sockaddr *from, uint64_t now_ns,
                  uint64_t *ret_id)
{
    uint64_t leaves = 0;
    int error = preauth_enter(&clients->preauth, from, now_ns, ret_id, &leaves);
    for (size_t i = 0; leaves && i < clients->stranger_count; i++)
        if (clients->strangers[i].id == leaves) {
            client_kill(clients->strangers[i].pid);
            clients_close_channel(&clients->strangers[i]);
            clients_remove_stranger(clients, &clients->strangers[i]);
            break;
        }
    return error;
}

void clients_forked(struct clients *clients, uint64_t id, pid_t pid, int channel)
{
    if (pid < 0) {
        if (id)
            preauth_leave(&clients->preauth, id);
        if (channel >= 0)
            close(channel);
        return;
    }
    /* There is room in the array: PREAUTH_MAX bounds the strangers that have an id, and
     * CLIENTS_LOCAL_MAX the others. */
    clients->local_count += id == 0;
    clients->strangers[clients->stranger_count++] = (struct stranger){pid, id, channel};
}

bool clients_have_room_for_local(const struct clients *clients)
{
    return clients->local_count < CLIENTS_LOCAL_MAX;
}

size_t clients_poll(const struct clients *clients, uint64_t now_ns, struct pollfd *ret_polls)
{
    size_t count = 0;
    for (size_t i = 0; i < clients->stranger_count; i++) /* poll() ignores a descriptor of -1. */
        ret_polls[count++] = (struct pollfd){.fd = clients->strangers[i].channel, .events = POLLIN};
    for (unsigned i = 0; i < clients->count; i++)
        ret_polls[count++] =
            (struct pollfd){.fd = session_to_hear(clients->places[i], now_ns), .events = POLLIN};
    for (unsigned i = 0; i < clients->count; i++)
        ret_polls[count++] = (struct pollfd){
            .fd = processes_poll(&clients->places[i]->processes, now_ns), .events = POLLIN};
    return count;
}

static enum verdict clients_find_place(const struct clients *clients,
                                       const struct client_question *question)
{
    uint32_t sessions = 0;
    if (clients_are_full(clients))
        return FULL;
    for (unsigned i = 0; i < clients->count; i++)
        sessions += strcmp(clients->places[i]->name, question->name) == 0;
    return sessions >= question->sessions ? TOO_MANY : YES;
}

/* A session's number is no secret: its client tells it to others. */
static struct client *clients_find_number(struct clients *clients, uint64_t number)
{
    for (unsigned i = 0; number && i < clients->count; i++)
        if (clients->places[i]->key.number == number)
            return clients->places[i];
    return NULL;
}

/* Lead a stranger with a ticket to the session of that number, which checks the ticket. Its process
 * counts for that session from now on, also if the ticket is not valid. */
static enum verdict clients_introduce(struct clients *clients,
                                      const struct client_question *question, pid_t pid, int link)
{
    const struct channel_message message = {.kind = CHANNEL_TICKET};
    struct client *place = clients_find_number(clients, question->key.number);
    if (!place || link < 0 || place->kill_ns)
        return NO_SUCH;
    if (!clients_may_carry(place) || channel_send(place->channel, &message, sizeof(message), link))
        return BUSY;
    clients_add_carrier(place, pid);
    return YES;
}

/* Pass a new link to its session. The newest link replaces the one before. */
static enum verdict clients_hand_over(struct clients *clients,
                                      const struct client_question *question, pid_t relay, int link)
{
    const struct channel_message message = {.kind = CHANNEL_LINK, .received = question->received};
    struct client *place = clients_find_session(clients, question);
    if (!place || link < 0 || place->kill_ns)
        return NO_SUCH;
    /* A session that has stopped reading takes a few packets, and then no more. */
    if (channel_send(place->channel, &message, sizeof(message), link))
        return BUSY;
    if (place->relay)
        client_kill(place->relay);
    place->relay = relay;
    return YES;
}

static bool clients_question_is_valid(const struct client_question *question)
{
    return question->name[0] && memchr(question->name, '\0', sizeof(question->name)) &&
           (question->brings || (question->share >= 1 && question->share <= TIMESLICE_SHARE_MAX));
}

static void clients_answer_one(struct clients *clients, struct stranger *stranger)
{
    struct client_question question = {0};
    int link = -1;
    bool asks = channel_receive(stranger->channel, &question, sizeof(question), &link) == 0 &&
                clients_question_is_valid(&question);
    enum verdict verdict =
        !asks             ? NO_SUCH
        : question.brings ? clients_introduce(clients, &question, stranger->pid, link)
        : question.again  ? clients_hand_over(clients, &question, stranger->pid, link)
                          : clients_find_place(clients, &question);
    if (link >= 0)
        close(link);
    const unsigned char byte = (unsigned char)verdict;
    clients->refused += asks && verdict != YES;
    bool told = asks && channel_send(stranger->channel, &byte, sizeof(byte), -1) == 0;
    if (asks && verdict == YES && (question.again || question.brings)) {
        /* This process now carries the session's link, if that kind of link needs a process. */
        clients_close_channel(stranger);
        clients_remove_stranger(clients, stranger);
    } else if (told && verdict == YES && clients_add(clients, stranger, &question)) {
        clients_remove_stranger(clients, stranger);
    } else {
        /* Refused, or disconnected: it counts as a stranger until its process has ended. */
        clients_close_channel(stranger);
    }
}

void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count,
                    uint64_t now_ns)
{
    size_t strangers = clients->stranger_count, places = clients->count;
    /* What is accepted here is appended, so earlier indexes stay valid. */
    for (size_t i = 0; i < places && strangers + places + i < count; i++) {
        const struct pollfd *said = &polls[strangers + i], *asked = &said[places];
        struct client *client = clients->places[i];
        if (asked->revents && asked->fd == client->processes.notices)
            session_answer_processes(client, asked->revents, now_ns);
        if (said->revents && said->fd == client->channel)
            session_hear(client, now_ns);
    }
    /* Backwards, because the last one takes the place of one that is removed. */
    for (size_t i = strangers < count ? strangers : count; i-- > 0;)
        if (polls[i].revents && clients->strangers[i].channel == polls[i].fd)
            clients_answer_one(clients, &clients->strangers[i]);
}

bool clients_ended(struct clients *clients, pid_t pid)
{
    kill(-pid, SIGKILL);
    for (size_t i = 0; i < clients->stranger_count; i++)
        if (clients->strangers[i].pid == pid) {
            clients_close_channel(&clients->strangers[i]);
            clients_remove_stranger(clients, &clients->strangers[i]);
            return true;
        }
    for (unsigned i = 0; i < clients->count; i++) {
        struct client *place = clients->places[i];
        if (place->pid == pid) {
            clients_remove_place(clients, i);
            return true;
        }
        if (place->relay == pid)
            place->relay = 0;
        pid_t *carrier = clients_find_carrier(place, pid);
        if (carrier) {
            *carrier = 0;
            clients->carrier_count--;
        }
    }
    return false;
}

/* ---- in the stranger's process ---- */

int clients_ask(int channel, const struct client_question *question, int passed,
                uint64_t deadline_ns, const char **ret_refusal)
{
    unsigned char verdict = 0;
    int error = channel_send(channel, question, sizeof(*question), passed);
    if (error == 0)
        error = channel_wait(channel, deadline_ns);
    if (error == 0)
        error = channel_receive(channel, &verdict, sizeof(verdict), NULL);
    if (error)
        return error;
    if (verdict == BUSY)
        return -EAGAIN;
    if (verdict >= ARRAY_SIZE(refusals))
        return -EPROTO;
    *ret_refusal = refusals[verdict];
    return 0;
}
