#include "remote/link/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/link/socket.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/** A query, shared by the caller and the thread that resolves it. If the caller gives up, the
 * thread frees it. */
struct question {
    char host[ADDRESS_HOST_MAX], port[8];
    struct addrinfo hints;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done, given_up;    /**< Guarded by the lock, as are the next fields. */
    int result;             /**< The result of getaddrinfo(). */
    struct addrinfo *found; /**< Freed with the question, unless it was taken. */
};

static void link_tcp_question_free(struct question *question)
{
    if (question->found)
        freeaddrinfo(question->found);
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

static void link_tcp_ask(struct question *question)
{
    question->result =
        getaddrinfo(question->host, question->port, &question->hints, &question->found);
}

static void *link_tcp_run(void *data)
{
    struct question *question = data;
    struct addrinfo *found = NULL;
    int result = getaddrinfo(question->host, question->port, &question->hints, &found);

    pthread_mutex_lock(&question->lock);
    bool given_up = question->given_up;
    question->result = result;
    question->found = result ? NULL : found;
    question->done = true;
    pthread_cond_signal(&question->answered);
    pthread_mutex_unlock(&question->lock);
    if (given_up)
        link_tcp_question_free(question);
    return NULL;
}

/** Returns true if it was answered in time; else the question belongs to the thread. */
static bool link_tcp_await(struct question *question, uint64_t deadline_ns)
{
    pthread_mutex_lock(&question->lock);
    while (!question->done && clock_now_ns() < deadline_ns)
        (void)clock_wait(&question->answered, &question->lock,
                         deadline_ns == UINT64_MAX ? 0 : deadline_ns);
    question->given_up = !question->done;
    bool done = question->done;
    pthread_mutex_unlock(&question->lock);
    return done;
}

static int link_tcp_result_error(int result)
{
    return result == 0            ? 0
           : result == EAI_AGAIN  ? -EAGAIN
           : result == EAI_MEMORY ? -ENOMEM
                                  : -ENOENT;
}

static struct question *link_tcp_question_create(const struct address *address, bool listens)
{
    struct question *question = calloc(1, sizeof(*question));

    if (!question)
        return NULL;
    strcpy(question->host, address->host);
    snprintf(question->port, sizeof(question->port), "%u", address->port & 0xffff);
    question->hints = (struct addrinfo){.ai_family = AF_UNSPEC,
                                        .ai_socktype = SOCK_STREAM,
                                        .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
    pthread_mutex_init(&question->lock, NULL);
    pthread_cond_init(&question->answered, NULL);
    return question;
}

/**
 * Resolve the host of a tcp address. Numbers are parsed here. For names, the C library is asked in
 * a thread, which is abandoned if it takes longer than @deadline_ns.
 *
 * @listens  For an address to listen on.
 * @ret_found  For freeaddrinfo().
 * Returns 0, -ETIMEDOUT, -ENOENT (no such host), -EAGAIN (the name service cannot be reached now)
 * or -ENOMEM. Thread-safe.
 */
static int link_tcp_resolve(const struct address *address, bool listens, uint64_t deadline_ns,
                            struct addrinfo **ret_found)
{
    struct question *question = link_tcp_question_create(address, listens);

    if (!question)
        return -ENOMEM;
    if (address_is_name(address->host)) {
        int error = thread_start("reseat-resolve", 0, link_tcp_run, question, NULL);
        if (!error && !link_tcp_await(question, deadline_ns))
            return -ETIMEDOUT;
        if (error) {
            link_tcp_question_free(question);
            return error;
        }
    } else {
        question->hints.ai_flags |= AI_NUMERICHOST;
        link_tcp_ask(question);
    }
    int error = link_tcp_result_error(question->result);
    if (!error) {
        *ret_found = question->found;
        question->found = NULL;
    }
    link_tcp_question_free(question);
    return error;
}

/* Idle time before the first keepalive probe, interval and number of probes, and TCP_USER_TIMEOUT.
 */
#define IDLE_S     15
#define INTERVAL_S 5
#define PROBES     3
#define GIVE_UP_MS 30000
/* For so many seconds a connection on which no byte has arrived is not passed to accept(). */
#define DEFER_S 5

static bool link_tcp_set(int fd, int option, int value)
{
    return setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)) == 0;
}

static bool link_tcp_set_up(int fd)
{
    static const int on = 1;

    return link_tcp_set(fd, TCP_NODELAY, 1) &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0 &&
           link_tcp_set(fd, TCP_KEEPIDLE, IDLE_S) && link_tcp_set(fd, TCP_KEEPINTVL, INTERVAL_S) &&
           link_tcp_set(fd, TCP_KEEPCNT, PROBES) && link_tcp_set(fd, TCP_USER_TIMEOUT, GIVE_UP_MS);
}

/** Try the addresses of a name in order; each gets an equal part of the time that is left. */
static int link_tcp_connect_to_one(const struct addrinfo *found, uint64_t deadline_ns,
                                   struct owned *ret_socket)
{
    unsigned count = 0;
    int error = -ENOENT;

    for (const struct addrinfo *at = found; at; at = at->ai_next)
        count++;
    for (; found; found = found->ai_next, count--) {
        uint64_t now = clock_now_ns(), until = deadline_ns;
        if (deadline_ns != UINT64_MAX && deadline_ns > now)
            until = now + (deadline_ns - now) / count;
        error = socket_connect(found->ai_addr, found->ai_addrlen, until, ret_socket);
        if (!error && link_tcp_set_up(owned_fd(ret_socket)))
            return 0;
        if (!error) {
            error = socket_error(errno);
            owned_close(ret_socket);
        }
    }
    return error;
}

static int link_tcp_dial(const struct address *address, uint64_t deadline_ns,
                         struct owned *ret_socket)
{
    struct addrinfo *found;
    int error = address->port ? link_tcp_resolve(address, false, deadline_ns, &found) : -EINVAL;

    if (error)
        return error;
    error = link_tcp_connect_to_one(found, deadline_ns, ret_socket);
    freeaddrinfo(found);
    return error;
}

static int link_tcp_connect(const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                            struct link **ret_link)
{
    return tls_connect_to("tcp", where, link_tcp_dial, ticket, deadline_ns, ret_link);
}

static int link_tcp_listen(const char *where, int *ret_fd)
{
    struct addrinfo *found;
    struct address address;
    int fd, error = tls_listen_address("tcp", where, &address);

    error = error ? error : link_tcp_resolve(&address, true, UINT64_MAX, &found);
    if (error)
        return error;
    error = socket_listen(found->ai_addr, found->ai_addrlen, &fd);
    freeaddrinfo(found);
    if (error)
        return error;
    (void)link_tcp_set(fd, TCP_DEFER_ACCEPT, DEFER_S);
    *ret_fd = fd;
    return 0;
}

static int link_tcp_admit(int fd, uint64_t deadline_ns, struct link **ret_link)
{
    struct owned socket;
    int error = owned_take(fd, &socket);

    if (error)
        return error;
    if (!link_tcp_set_up(owned_fd(&socket))) {
        error = socket_error(errno);
        owned_close(&socket);
        return error;
    }
    return tls_admit(&socket, deadline_ns, ret_link);
}

const struct link_kind link_tcp = {
    .scheme = "tcp",
    .anyone = true,
    .connect = link_tcp_connect,
    .listen = link_tcp_listen,
    .admit = link_tcp_admit,
};
