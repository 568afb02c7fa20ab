#include "remote/server/clients.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/log.h"

struct question {
    char name[LINK_PEER_MAX];
    uint32_t sessions;
};

static const char *const refusals[] = {
    NULL,
    "the server has as many clients as it may have",
    "its certificate has as many sessions as it may have at once",
};

int clients_init(struct clients *clients, unsigned max)
{
    clients->places = calloc(max, sizeof(*clients->places));
    clients->max = max;
    return clients->places ? 0 : -ENOMEM;
}

bool clients_are_full(const struct clients *clients)
{
    return clients->count >= clients->max;
}

int clients_add(struct clients *clients, pid_t pid, const char *name)
{
    if (clients_are_full(clients))
        return -EBUSY;
    struct client_place *place = &clients->places[clients->count++];
    place->pid = pid;
    strcpy(place->name, name);
    return 0;
}

/* ---- at the door ---- */

static void remove_stranger(struct clients *clients, struct stranger *stranger)
{
    door_leave(&clients->door, stranger->id);
    if (stranger->channel >= 0)
        close(stranger->channel);
    *stranger = clients->strangers[--clients->stranger_count];
}

int clients_enter(struct clients *clients, const struct sockaddr *from, uint64_t now_ns,
                  uint64_t *ret_id)
{
    uint64_t leaves = 0;
    int error = door_enter(&clients->door, from, now_ns, ret_id, &leaves);
    for (size_t i = 0; leaves && i < clients->stranger_count; i++)
        if (clients->strangers[i].id == leaves) {
            kill(clients->strangers[i].pid, SIGKILL);
            remove_stranger(clients, &clients->strangers[i]);
            break;
        }
    return error;
}

void clients_forked(struct clients *clients, uint64_t id, pid_t pid, int channel)
{
    if (pid < 0) {
        door_leave(&clients->door, id);
        if (channel >= 0)
            close(channel);
        return;
    }
    /* The door has as many places as there are here. */
    clients->strangers[clients->stranger_count++] = (struct stranger){pid, id, channel};
}

void clients_close(const struct clients *clients)
{
    for (size_t i = 0; i < clients->stranger_count; i++)
        if (clients->strangers[i].channel >= 0)
            close(clients->strangers[i].channel);
}

size_t clients_poll(const struct clients *clients, struct pollfd *ret_polls)
{
    for (size_t i = 0; i < clients->stranger_count; i++) /* -1 is passed over. */
        ret_polls[i] = (struct pollfd){.fd = clients->strangers[i].channel, .events = POLLIN};
    return clients->stranger_count;
}

static unsigned decide(const struct clients *clients, const struct question *question)
{
    uint32_t sessions = 0;
    if (clients_are_full(clients))
        return 1;
    for (unsigned i = 0; i < clients->count; i++)
        sessions += strcmp(clients->places[i].name, question->name) == 0;
    return sessions >= question->sessions ? 2 : 0;
}

static void answer(struct clients *clients, struct stranger *stranger)
{
    struct question question;
    ssize_t size = recv(stranger->channel, &question, sizeof(question), MSG_DONTWAIT);
    bool asks = size == (ssize_t)sizeof(question) && question.name[0] &&
                memchr(question.name, '\0', sizeof(question.name));
    unsigned char verdict = 0;
    if (asks) {
        verdict = (unsigned char)decide(clients, &question);
        (void)!send(stranger->channel, &verdict, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (asks && !verdict && !clients_add(clients, stranger->pid, question.name)) {
        remove_stranger(clients, stranger);
        return;
    }
    /* Refused, or gone: it has its place at the door until its process ended. */
    close(stranger->channel);
    stranger->channel = -1;
}

void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count)
{
    /* From the end: who leaves is replaced by the last. */
    for (size_t i = count; i-- > 0;)
        if (i < clients->stranger_count && polls[i].revents &&
            clients->strangers[i].channel == polls[i].fd)
            answer(clients, &clients->strangers[i]);
}

bool clients_ended(struct clients *clients, pid_t pid)
{
    for (size_t i = 0; i < clients->stranger_count; i++)
        if (clients->strangers[i].pid == pid) {
            remove_stranger(clients, &clients->strangers[i]);
            return true;
        }
    for (unsigned i = 0; i < clients->count; i++)
        if (clients->places[i].pid == pid) {
            clients->places[i] = clients->places[--clients->count];
            return true;
        }
    return false;
}

/* ---- in the session's process ---- */

int clients_ask(int channel, const char *name, uint32_t sessions, const char **ret_refusal)
{
    struct question question = {.sessions = sessions};
    unsigned char verdict = 0;
    ssize_t got;
    strncpy(question.name, name, sizeof(question.name) - 1);
    if (send(channel, &question, sizeof(question), MSG_NOSIGNAL) != (ssize_t)sizeof(question))
        return -errno;
    while ((got = recv(channel, &verdict, 1, 0)) < 0 && errno == EINTR)
        ;
    close(channel);
    if (got != 1 || verdict >= ARRAY_SIZE(refusals))
        return -EPIPE;
    *ret_refusal = refusals[verdict];
    return 0;
}
