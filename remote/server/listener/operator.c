#include "remote/server/listener/listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/files/access.h"
#include "state/base/log.h"

_Static_assert(OPERATOR_NAME_MAX == LINK_PEER_MAX, "a client has the same name for operators");
_Static_assert(OPERATOR_ENDINGS == ENDINGS, "operators are told of each");

int operators_init(struct operators *operators, struct clients *clients,
                   char ret_problem[FOLDER_PROBLEM_MAX])
{
    char folder[PATH_MAX];
    operators->listener = -1;
    operators->clients = clients;
    int error = operator_folder(folder, ret_problem);
    if (error)
        return error;
    int length = snprintf(operators->path, sizeof(operators->path), "%s/%d", folder, (int)getpid());
    if (length >= (int)sizeof(operators->path)) {
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s: the path is too long for a socket",
                 folder);
        return -ENAMETOOLONG;
    }
    /* Left by an earlier server that had this process id and was killed. */
    (void)unlink(operators->path);
    error = access_listen(operators->path, SOCK_SEQPACKET, OPERATORS_MAX, &operators->listener);
    if (error)
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.200s: %s", operators->path, strerror(-error));
    return error;
}

void operators_finish(struct operators *operators)
{
    for (size_t i = 0; i < operators->count; i++)
        close(operators->fds[i]);
    operators->count = operators->lasting = 0;
    if (operators->listener < 0)
        return;
    close(operators->listener);
    (void)unlink(operators->path);
    operators->listener = -1;
}

int operators_add(struct operators *operators, int *ret_end)
{
    int ends[2];
    if (operators->lasting || operators->count == ARRAY_SIZE(operators->fds))
        return -EBUSY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -errno;
    memmove(&operators->fds[1], &operators->fds[0], operators->count * sizeof(operators->fds[0]));
    operators->fds[0] = ends[0];
    operators->count++;
    operators->lasting = 1;
    *ret_end = ends[1];
    return 0;
}

size_t operators_poll(const struct operators *operators, struct pollfd *ret_polls)
{
    size_t count = 0;
    ret_polls[count++] = (struct pollfd){.fd = operators->listener, .events = POLLIN};
    for (size_t i = 0; i < operators->count; i++)
        ret_polls[count++] = (struct pollfd){.fd = operators->fds[i], .events = POLLIN};
    return count;
}

static void operator_drop(struct operators *operators, size_t at)
{
    close(operators->fds[at]);
    operators->count--;
    operators->lasting -= at < operators->lasting;
    memmove(&operators->fds[at], &operators->fds[at + 1],
            (operators->count - at) * sizeof(operators->fds[0]));
}

static void operator_take(struct operators *operators)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t length = sizeof(peer);
    int fd = accept4(operators->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) ||
        !access_may_manage(geteuid(), peer.uid)) {
        log_warn("refused a control connection of another user (uid %u)", peer.uid);
        close(fd);
        return;
    }
    if (operators->count == OPERATORS_MAX)
        operator_drop(operators, operators->lasting); /* The oldest connection gives way. */
    operators->fds[operators->count++] = fd;
}

/* ---- requests ---- */

static void operator_list_devices(const struct devices *devices, uint64_t uses,
                                  char ret_text[OPERATOR_DEVICES_MAX])
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < devices->count; i++)
        if (uses >> i & 1 && used + GRANT_DEVICE_MAX + 1 < OPERATOR_DEVICES_MAX)
            used += (size_t)snprintf(ret_text + used, OPERATOR_DEVICES_MAX - used, "%s%s",
                                     used ? "," : "", devices->rows[i].name);
}

static int operator_describe(const struct clients *clients, uint32_t number,
                             struct operator_session *ret)
{
    const struct client *client = clients_from(clients, number);
    if (!client)
        return -ENOENT;
    *ret = (struct operator_session){
        .number = client->number,
        .pid = client->pid,
        .since = client->since,
        .busy_ns = client->busy_ns,
        .share = client->share,
    };
    for (size_t i = 0; i < clients->devices->count; i++)
        ret->memory += client->held[i];
    strcpy(ret->name, client->name);
    operator_list_devices(clients->devices, client->uses, ret->devices);
    return 0;
}

static struct operator_totals operator_sum(const struct clients *clients)
{
    struct operator_totals totals = {
        .sessions = clients->last_number,
        .connections = clients->stranger_count,
        .refused = clients->refused,
        .crashed = clients->crashed,
        .kept = clients->kept.count,
        .kept_bytes = clients->kept.bytes,
    };
    memcpy(totals.ended, clients->ended, sizeof(totals.ended));
    return totals;
}

static int operator_describe_device(const struct clients *clients, uint32_t number,
                                    struct operator_device *ret)
{
    const struct devices *devices = clients->devices;
    if (number >= devices->count)
        return -ENOENT;
    const struct ledger *ledger = &devices->ledger[number];
    *ret = (struct operator_device){.capacity = ledger->total, .granted = ledger->given};
    snprintf(ret->name, sizeof(ret->name), "%s", devices->rows[number].name);
    for (unsigned i = 0; i < clients->count; i++) {
        ret->sessions += clients->places[i]->uses >> number & 1;
        ret->waiting += clients->places[i]->timeslices[number].waits;
    }
    return 0;
}

static void operator_do_request(struct operators *operators, const struct operator_request *request,
                                struct operator_answer *answer, uint64_t now_ns)
{
    struct clients *clients = operators->clients;
    switch ((enum operator_what)request->what) {
    case OPERATOR_SERVER:
        answer->count = clients->count;
        return;
    case OPERATOR_SESSION:
        answer->error = operator_describe(clients, request->number, &answer->session);
        return;
    case OPERATOR_KICK:
        answer->count = (uint32_t)clients_end(clients, request->number, request->name,
                                              ENDED_BY_OPERATOR, now_ns);
        answer->error = answer->count ? 0 : -ENOENT;
        return;
    case OPERATOR_REVOKED:
        if (operators->ca[0] && strcmp(operators->ca, request->ca) == 0)
            answer->count = (uint32_t)clients_end(clients, 0, request->name, ENDED_REVOKED, now_ns);
        return;
    case OPERATOR_TOTALS:
        answer->count = clients->count;
        answer->totals = operator_sum(clients);
        return;
    case OPERATOR_DEVICE:
        answer->error = operator_describe_device(clients, request->number, &answer->device);
        return;
    default:
        answer->error = -EOPNOTSUPP;
    }
}

/* False: close the connection. */
static bool operator_answer_one(struct operators *operators, int fd, uint64_t now_ns)
{
    struct operator_request request;
    struct operator_answer answer = {.version = OPERATOR_VERSION, .pid = getpid()};
    ssize_t size = recv(fd, &request, sizeof(request), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (size < (ssize_t)sizeof(request.version))
        return false;
    strcpy(answer.addresses, operators->addresses);
    if (size != (ssize_t)sizeof(request) || request.version != OPERATOR_VERSION ||
        !memchr(request.name, '\0', sizeof(request.name)) ||
        !memchr(request.ca, '\0', sizeof(request.ca)))
        answer.error = -EPROTONOSUPPORT;
    else
        operator_do_request(operators, &request, &answer, now_ns);
    return send(fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof(answer);
}

void operators_answer(struct operators *operators, const struct pollfd *polls, size_t count,
                      uint64_t now_ns)
{
    for (size_t i = count; i-- > 1;)
        if (polls[i].revents && !operator_answer_one(operators, operators->fds[i - 1], now_ns))
            operator_drop(operators, i - 1);
    if (polls[0].revents)
        operator_take(operators);
}
