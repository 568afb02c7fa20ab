#include "remote/server/session/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/link/tls.h"
#include "remote/server/listener/channel.h"
#include "remote/server/session/sandbox.h"
#include "remote/wire/stream.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/*
 * An encrypted link's state cannot be passed to another process. The process that admitted the link
 * therefore stays, and forwards bytes without parsing them. Flow control is left to the two ends:
 * when one does not read, the other blocks. When one closes, the relay process ends, even if its
 * other thread is blocked.
 */

#define ROOM (256u << 10)

struct direction {
    struct link *from, *to;
    unsigned char *bytes;
};

static void *greeting_carry(void *data)
{
    const struct direction *direction = data;
    for (;;) {
        size_t size = 0;
        if (direction->from->ops->receive(direction->from, direction->bytes, ROOM, UINT64_MAX,
                                          &size))
            _exit(0);
        struct iovec iov = {direction->bytes, size};
        if (direction->to->ops->send(direction->to, &iov, 1, UINT64_MAX))
            _exit(0);
    }
}

/* The relay opens no files, starts no processes, does not run as root and cannot be traced. */
static bool greeting_give_up_rights(void)
{
    struct rlimit none = {0, 0};
    return !sandbox_leave_root() && !prctl(PR_SET_DUMPABLE, 0) && !setrlimit(RLIMIT_NPROC, &none);
}

void relay_run(struct link *link, int fd)
{
    static unsigned char room[2][ROOM];
    struct link *session = NULL;
    if (link_unix_of(fd, &session))
        _exit(1);
    struct direction up = {link, session, room[0]}, down = {session, link, room[1]};
    if (thread_start("reseat-relay", 0, greeting_carry, &down, NULL) ||
        !greeting_give_up_rights() || sandbox_relay()) {
        log_warn("the link of %s could not be relayed: %m", link->peer);
        _exit(1);
    }
    greeting_carry(&up);
    _exit(0);
}

#define WHERE_MAX 1024

struct request {
    struct ticket ticket;
    char where[WHERE_MAX];
};

/* ---- in the session ---- */

static int connector_await_answer(int socket, uint64_t deadline_ns)
{
    int32_t answer = 0;
    int error = channel_wait(socket, deadline_ns);
    if (error)
        return error;
    return recv(socket, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) ? answer : -EPIPE;
}

int connector_ask(int channel, const char *where, const struct ticket *ticket, uint64_t deadline_ns,
                  struct link **ret_link)
{
    const struct channel_message message = {.kind = CHANNEL_CONNECT};
    struct request request = {.ticket = *ticket};
    int ends[2];
    if (strlen(where) >= sizeof(request.where))
        return -ENAMETOOLONG;
    strcpy(request.where, where);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    ssize_t sent = send(ends[0], &request, sizeof(request), MSG_NOSIGNAL);
    OPENSSL_cleanse(&request, sizeof(request));
    channel_tell_with(channel, &message, ends[1]);
    close(ends[1]);
    int error = sent == sizeof(request) ? connector_await_answer(ends[0], deadline_ns) : -EPIPE;
    if (error == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK))
        error = -errno;
    if (error == 0)
        return link_unix_of(ends[0], ret_link);
    close(ends[0]);
    return error;
}

/* ---- in the process that connects ---- */

static int connector_connect_to_any(struct request *request, struct link **ret_link)
{
    uint64_t until = clock_now_ns() + CONNECT_NS;
    char *rest = request->where;
    int error = -EINVAL;
    for (char *word = strsep(&rest, ","); word && error && clock_now_ns() < until;
         word = strsep(&rest, ",")) {
        const char *where = NULL;
        const struct link_kind *kind = link_kind_of(word, &where);
        error = kind ? kind->connect(where, &request->ticket, until, ret_link) : -EINVAL;
    }
    return error;
}

void connector_run(int socket)
{
    static struct request request;
    struct link *link = NULL;
    if (recv(socket, &request, sizeof(request), MSG_WAITALL) != sizeof(request) ||
        !memchr(request.where, '\0', sizeof(request.where)))
        _exit(1);
    /* The peer is not trusted: do not talk to it as root. */
    int32_t answer = sandbox_leave_root();
    if (answer == 0)
        answer = connector_connect_to_any(&request, &link);
    if (answer)
        log_info("cannot connect to another server: %s", strerror(-answer));
    OPENSSL_cleanse(&request, sizeof(request));
    if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer) || answer ||
        fcntl(socket, F_SETFL, O_NONBLOCK))
        _exit(1);
    relay_run(link, socket);
}

static void greeting_refuse(struct link *link, const char *reason)
{
    struct pack pack;
    pack_init(&pack);
    pack_refused(&pack, &(struct msg_refused){.reason = reason});
    (void)!greeting_send(link, MSG_REFUSED, pack.bytes, pack.used, clock_now_ns() + NS_PER_S);
    pack_finish(&pack);
    log_warn("%s refused: %s", link->peer, reason);
}

/* Receive the client's first message and check its version. *ret_hello points into @buffer. */
static int greeting_hear(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                         struct msg_hello *ret_hello)
{
    struct message message;
    int error = greeting_receive(link, buffer, clock_now_ns() + GREETING_NS, &message);
    if (error)
        return error;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type != MSG_HELLO || !unpack_hello(&body, ret_hello)) {
        greeting_refuse(link,
                        "this is a reseat device server, and the first message was no greeting");
        return -EPROTO;
    }
    if (ret_hello->version != WIRE_VERSION) {
        char reason[128];
        snprintf(reason, sizeof(reason), "the server has protocol version %d, the client has %u",
                 WIRE_VERSION, ret_hello->version);
        greeting_refuse(link, reason);
        return -EPROTONOSUPPORT;
    }
    return 0;
}

int greeting_welcome(struct link *link, const struct session_key *key, uint32_t patience_s,
                     uint64_t features, uint64_t received, uint64_t deadline_ns)
{
    struct pack pack;
    pack_init(&pack);
    pack_welcome(&pack, &(struct msg_welcome){.version = WIRE_VERSION,
                                              .features = features,
                                              .session = key->number,
                                              .secret = key->secret,
                                              .secret_size = key->number ? sizeof(key->secret) : 0,
                                              .received = received,
                                              .now_ns = clock_now_ns(),
                                              .patience_s = patience_s});
    int error = greeting_send(link, MSG_WELCOME, pack.bytes, pack.used, deadline_ns);
    pack_finish(&pack);
    return error;
}

/* A session that cannot be resumed has no key. */
static int greeting_make_key(uint32_t patience_s, struct session_key *ret_key)
{
    struct session_key key = {0};
    while (patience_s && key.number == 0)
        if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
            return -EIO;
    *ret_key = key;
    return 0;
}

/* What to ask the listening process for a client that says @hello. */
static int greeting_make_question(const struct msg_hello *hello, const struct guest *guest,
                                  struct client_question *question)
{
    question->sessions = guest->grant.sessions;
    question->share = guest->grant.share;
    question->again = hello->session != 0;
    question->received = hello->received;
    if (!question->again)
        return greeting_make_key(guest->patience_s, &question->key);
    /* A secret of a wrong length is treated as a wrong secret. */
    if (hello->secret_size == sizeof(question->key.secret)) {
        question->key.number = hello->session;
        memcpy(question->key.secret, hello->secret, hello->secret_size);
    }
    return 0;
}

/* Find out which user and process of this machine the client is. */
static int greeting_find_process(int fd, struct guest *guest, struct client_question *question)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        return -errno;
    snprintf(question->name, sizeof(question->name), "unix:%u", peer.uid);
    /* Fails for a process of another PID namespace: then only the link tells whether the client
     * lives. */
    guest->process = pidfd_open(peer.pid, 0);
    return 0;
}

/* A client with a ticket, on its way to the session of that ticket. */
struct bringer {
    int channel, session; /* -1: no session yet. */
};

/* OpenSSL asks for a ticket's key: ask the session, which gives each key out once. */
static int greeting_find_key(void *data, const struct ticket_name *name,
                             unsigned char ret_key[TICKET_KEY_SIZE])
{
    struct bringer *bringer = data;
    struct client_question question = {.name = "a ticket", .brings = true};
    const char *refusal = NULL;
    uint64_t deadline = clock_now_ns() + GREETING_NS;
    int ends[2];
    question.key.number = name->session;
    int error = channel_make(ends);
    if (error)
        return error;
    error = clients_ask(bringer->channel, &question, ends[1], deadline, &refusal);
    close(ends[1]);
    if (error == 0 && refusal)
        error = -ENOENT;
    if (error == 0)
        error = channel_send(ends[0], name, sizeof(*name), -1);
    if (error == 0)
        error = channel_wait(ends[0], deadline);
    if (error == 0)
        error = channel_receive(ends[0], ret_key, TICKET_KEY_SIZE, NULL);
    if (error)
        close(ends[0]);
    else
        bringer->session = ends[0];
    return error;
}

/* The client has proven the ticket. This process becomes the relay between it and the session. */
static _Noreturn void greeting_bring(struct link *link, const struct bringer *bringer)
{
    const char done = 1;
    int ends[2];
    close(bringer->channel);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ||
        channel_send(bringer->session, &done, sizeof(done), ends[1]))
        _exit(1);
    close(ends[1]);
    close(bringer->session);
    relay_run(link, ends[0]);
    _exit(0);
}

static int greeting_admit(const struct link_kind *kind, int fd, int channel, struct guest *guest,
                          struct client_question *question)
{
    struct bringer bringer = {channel, -1};
    int error = kind->anyone ? 0 : greeting_find_process(fd, guest, question);
    if (error) {
        close(fd);
        return error;
    }
    tls_server_tickets(greeting_find_key, &bringer);
    error = kind->admit(fd, clock_now_ns() + GREETING_NS, &guest->link);
    tls_server_close();
    if (error || !kind->anyone)
        return error;
    if (tls_has_ticket(guest->link))
        greeting_bring(guest->link, &bringer);
    strcpy(question->name, guest->link->peer);
    error = tls_until(guest->link, &question->until);
    return error ? error : tls_grant(guest->link, &guest->grant);
}

/* Pass the link to the session that the client wants to resume: @plain itself, or, for an encrypted
 * link, a socket to this process, which becomes the relay. */
static int greeting_hand_over(struct guest *guest, const struct client_question *question,
                              int channel, int plain, const char **ret_refusal)
{
    int ends[2] = {-1, plain};
    if (plain < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    int error = clients_ask(channel, question, ends[1], clock_now_ns() + GREETING_NS, ret_refusal);
    if (plain < 0)
        close(ends[1]);
    if (error || *ret_refusal) {
        if (ends[0] >= 0)
            close(ends[0]);
        return error;
    }
    close(channel);
    if (plain < 0)
        relay_run(guest->link, ends[0]);
    _exit(0);
}

static int greeting_receive_guest_hello(const struct link_kind *kind, int fd, int plain,
                                        int channel, const struct session_limits *limits,
                                        struct guest *guest)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct client_question question = {0};
    struct msg_hello hello;
    const char *refusal = NULL;
    int error = greeting_admit(kind, fd, channel, guest, &question);
    if (error)
        return error;
    snprintf(guest->peer, sizeof(guest->peer), "%s", guest->link->peer);
    error = greeting_hear(guest->link, buffer, &hello);
    if (error)
        return error;
    guest->patience_s =
        hello.patience_s < limits->patience_s ? hello.patience_s : limits->patience_s;
    if (!hello.session)
        guest->features = hello.features & (FEATURE_BINARIES | FEATURE_ASK_MEMORY);
    if (!hello.session && guest->link->ops->socket)
        guest->features |=
            hello.features & (FEATURE_RINGS | (limits->isolates ? FEATURE_ENVIRONMENT : 0));
    /* Rings cannot be resumed over another link. */
    if (guest->features & FEATURE_RINGS)
        guest->patience_s = 0;
    error = greeting_make_question(&hello, guest, &question);
    if (error)
        return error;
    guest->key = question.key;
    if (question.again)
        error = greeting_hand_over(guest, &question, channel, plain, &refusal);
    else
        error = clients_ask(channel, &question, -1, clock_now_ns() + GREETING_NS, &refusal);
    if (error)
        return error;
    if (refusal) {
        greeting_refuse(guest->link, refusal);
        return -EACCES;
    }
    error = greeting_welcome(guest->link, &guest->key, guest->patience_s, guest->features, 0,
                             clock_now_ns() + GREETING_NS);
    if (error == 0 && hello.features & FEATURE_LOOK)
        _exit(0);
    return error;
}

int greeting_receive_guest(const struct link_kind *kind, int fd, int channel,
                           const struct session_limits *limits, struct guest *ret_guest)
{
    struct guest guest = {.grant = limits->local, .process = -1};
    /* The link is not encrypted, so the session can use the socket itself. */
    int plain = kind->anyone ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int error = !kind->anyone && plain < 0 ? -errno : 0;
    if (error)
        close(fd);
    else
        error = greeting_receive_guest_hello(kind, fd, plain, channel, limits, &guest);
    if (plain >= 0)
        close(plain);
    if (error == 0)
        *ret_guest = guest;
    return error;
}
