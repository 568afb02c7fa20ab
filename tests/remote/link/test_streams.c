#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/link/tls_priv.h"
#include "tests/remote/link/tls_rig.h"
#include "tests/remote/proxy.h"
#include "tests/support/leaks.h"

/* What a link carries once both ends know each other, over a network that does its worst. */

TestSuite(streams, .fini = leaks_check, .timeout = 280);

#define MIB (1u << 20)

/** Both ends over TCP, by way of a proxy. */
struct route {
    struct rig rig;
    struct proxy *proxy;
    struct link *client, *server;
};

static int route_open(struct route *route, int *ret_admitted)
{
    char where[64];
    struct admission admission = {
        .fd = -1, .listener = route->rig.listener, .deadline_ns = rig_soon()};

    admission_begin(&admission);
    snprintf(where, sizeof(where), "127.0.0.1:%u", proxy_port(route->proxy));
    int error = link_tcp.connect(where, NULL, rig_soon(), &route->client);
    *ret_admitted = admission_end(&admission);
    route->server = admission.link;
    return error;
}

static void route_init(struct route *route)
{
    *route = (struct route){.client = NULL};
    rig_init(&route->rig);
    rig_listen(&route->rig);
    route->proxy = proxy_create(route->rig.port);
    cr_assert_not_null(route->proxy);
}

static void route_made(struct route *route)
{
    int admitted;

    route_init(route);
    cr_assert_eq(route_open(route, &admitted), 0, "%s", tls_reason());
    cr_assert_eq(admitted, 0);
}

static void route_close(struct route *route)
{
    struct ends ends = {.client = route->client, .server = route->server};

    ends_finish(&ends);
    route->client = route->server = NULL;
}

static void route_finish(struct route *route)
{
    route_close(route);
    proxy_destroy(route->proxy);
    rig_finish(&route->rig);
}

/** One direction of a transfer, by a thread at each end. */
struct flow {
    struct link *from, *to;
    size_t size;
    unsigned seed;
    int sent, received;
    size_t right; /* bytes that arrived as they were sent, from the first on */
    pthread_t sender, receiver;
};

/* Pieces of any sizes, some of them nothing. */
static void *flow_send(void *data)
{
    struct flow *flow = data;
    enum { PIECE = 300000 };
    unsigned char *bytes = malloc(PIECE);

    for (size_t at = 0, turn = 0; at < flow->size && !flow->sent; turn++) {
        size_t size = rig_byte(turn, flow->seed) * (turn % 3 ? 1023 : 3);
        size = size < PIECE ? size : PIECE;
        size = size < flow->size - at ? size : flow->size - at;
        for (size_t i = 0; i < size; i++)
            bytes[i] = rig_byte(at + i, flow->seed);
        size_t first = size / 3, second = size / 2 - first;
        struct iovec iov[] = {{bytes, first},
                              {NULL, 0},
                              {bytes + first, second},
                              {bytes + first + second, size - first - second}};
        flow->sent = flow->from->ops->send(flow->from, iov, ARRAY_SIZE(iov), rig_soon());
        at += size;
    }
    free(bytes);
    return NULL;
}

static void *flow_receive(void *data)
{
    struct flow *flow = data;
    unsigned char *bytes = malloc(MIB);

    while (flow->right < flow->size && !flow->received) {
        size_t count = 0, wanted = 1 + (flow->right * 7919) % MIB;
        flow->received = flow->to->ops->receive(flow->to, bytes, wanted, rig_soon(), &count);
        if (count > wanted)
            flow->received = -EOVERFLOW;
        for (size_t i = 0; i < count && !flow->received; i++, flow->right++)
            if (bytes[i] != rig_byte(flow->right, flow->seed))
                flow->received = -EBADMSG;
    }
    free(bytes);
    return NULL;
}

static void flow_begin(struct flow *flow)
{
    cr_assert_eq(pthread_create(&flow->receiver, NULL, flow_receive, flow), 0);
    cr_assert_eq(pthread_create(&flow->sender, NULL, flow_send, flow), 0);
}

static void flow_end(struct flow *flow)
{
    pthread_join(flow->sender, NULL);
    pthread_join(flow->receiver, NULL);
}

static void expect_whole(struct flow *flow)
{
    flow_end(flow);
    cr_expect_eq(flow->sent, 0, "%d", flow->sent);
    cr_expect_eq(flow->received, 0, "%d", flow->received);
    cr_expect_eq(flow->right, flow->size);
}

static void carry_both_ways(struct link *client, struct link *server, size_t size)
{
    struct flow up = {.from = client, .to = server, .size = size, .seed = 1};
    struct flow down = {.from = server, .to = client, .size = size, .seed = 2};

    flow_begin(&up);
    flow_begin(&down);
    expect_whole(&up);
    expect_whole(&down);
}

Test(streams, all_bytes_arrive_in_order_both_ways_at_once)
{
    struct route route;

    route_made(&route);
    carry_both_ways(route.client, route.server, 64 * MIB);
    route_finish(&route);
}

Test(streams, all_bytes_arrive_late_and_slowly)
{
    struct route route;

    route_made(&route);
    proxy_set_delay(route.proxy, 3 * NS_PER_MS);
    carry_both_ways(route.client, route.server, 64 * MIB);
    proxy_set_rate(route.proxy, 4 * MIB);
    carry_both_ways(route.client, route.server, 4 * MIB);
    route_finish(&route);
}

/* Each record of its own key, at the least. */
Test(streams, new_keys_change_nothing)
{
    struct rig rig;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    ((struct tls_link *)ends.client)->records_max = 3;
    ((struct tls_link *)ends.server)->records_max = 5;
    carry_both_ways(ends.client, ends.server, 8 * MIB);
    ends_finish(&ends);
    rig_finish(&rig);
}

Test(streams, a_peer_that_asks_for_keys_for_ever_is_given_up)
{
    size_t count;
    struct rig rig;
    int received = -EAGAIN;
    char byte;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    struct tls_link *client = (struct tls_link *)ends.client;
    for (int i = 0; i < 20000 && received != -EPROTO; i++) {
        cr_assert_eq(SSL_key_update(client->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(client->ssl), 1);
        if (tls_flush(client, rig_soon()))
            break;
        received = ends.server->ops->receive(ends.server, &byte, 1, 1, &count);
    }
    cr_expect_eq(received, -EPROTO, "%d", received);
    ends_finish(&ends);
    rig_finish(&rig);
}

Test(streams, who_waits_for_bytes_can_wait_again)
{
    char bytes[4] = "";
    struct rig rig;
    size_t count = 77;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    for (int i = 0; i < 3; i++) {
        uint64_t deadline = rig_in_ms(30);
        cr_expect_eq(ends.client->ops->receive(ends.client, bytes, 4, deadline, &count),
                     -ETIMEDOUT);
        cr_expect_geq(clock_now_ns(), deadline);
        cr_expect_eq(count, 77);
    }
    /* One that has passed gives what there is. */
    cr_assert_eq(rig_send(ends.server, "abc", 4, rig_soon()), 0);
    cr_assert_eq(rig_receive(ends.client, bytes, 4, 1), 0);
    cr_expect_str_eq(bytes, "abc");
    ends_finish(&ends);
    rig_finish(&rig);
}

/** Whoever did not time out would be here for a minute. */
Test(streams, a_peer_that_never_reads_is_given_up)
{
    static char bytes[4 * MIB];
    struct route route;

    route_made(&route);
    proxy_set_stalled(route.proxy, true);
    uint64_t before = clock_now_ns(), deadline = rig_in_ms(300);
    int error = 0;
    for (int i = 0; i < 64 && !error; i++)
        error = rig_send(route.client, bytes, sizeof(bytes), deadline);
    cr_expect_eq(error, -ETIMEDOUT);
    cr_expect_geq(clock_now_ns(), deadline);
    cr_expect_lt(clock_now_ns() - before, 30 * NS_PER_S);
    /* Some of it may have gone: nothing can follow. */
    proxy_set_stalled(route.proxy, false);
    cr_expect_eq(rig_send(route.client, "x", 1, rig_soon()), -ETIMEDOUT);
    route_finish(&route);
}

Test(streams, a_network_that_lost_the_other_end_is_noticed_by_the_deadline)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);
    struct route route;
    char byte;
    int value;

    route_made(&route);
    proxy_set_stalled(route.proxy, true);
    cr_assert_eq(rig_send(route.client, "x", 1, rig_soon()), 0);
    cr_expect_eq(rig_receive(route.server, &byte, 1, rig_in_ms(100)), -ETIMEDOUT);
    proxy_set_stalled(route.proxy, false);
    cr_expect_eq(rig_receive(route.server, &byte, 1, rig_soon()), 0);
    /* And a host that is gone by the kernel, at both ends: this machine cannot lose itself. */
    struct link *const links[] = {route.client, route.server};
    static const int options[][2] = {{TCP_KEEPIDLE, 15},
                                     {TCP_KEEPINTVL, 5},
                                     {TCP_KEEPCNT, 3},
                                     {TCP_USER_TIMEOUT, 30000},
                                     {TCP_NODELAY, 1}};
    for (int i = 0; i < 2; i++) {
        int fd = ((struct tls_link *)links[i])->socket.fd;
        size = sizeof(value);
        cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
        cr_expect_eq(value, 1);
        for (size_t j = 0; j < ARRAY_SIZE(options); j++) {
            cr_assert_eq(getsockopt(fd, IPPROTO_TCP, options[j][0], &value, &size), 0);
            cr_expect_eq(value, options[j][1], "%zu: %d", j, value);
        }
    }
    route_finish(&route);
}

/* A conversation as short as there is, cut behind each of its bytes: both ends are told, and what
 * arrived is what was sent. */
static void cut_everywhere(struct route *route, enum proxy_way way, uint64_t whole)
{
    static const char message[] = "sixteen bytes...";
    char bytes[sizeof(message)];

    /* Behind none of them there is no connection yet. */
    for (uint64_t cut = 1; cut < whole; cut++) {
        int admitted, connected;
        size_t count;
        proxy_cut_after(route->proxy, way, cut);
        connected = route_open(route, &admitted);
        if (!connected) {
            int sent = rig_send(route->client, message, sizeof(message), rig_soon());
            int got =
                admitted ? admitted : rig_receive(route->server, bytes, sizeof(bytes), rig_soon());
            cr_expect(got == 0 ? memcmp(bytes, message, sizeof(bytes)) == 0
                               : got == -EPIPE || got == -ECONNRESET,
                      "cut at %u: %d", (unsigned)cut, got);
            cr_expect(sent == 0 || sent == -EPIPE, "cut at %u: %d", (unsigned)cut, sent);
            if (!admitted)
                (void)rig_send(route->server, message, sizeof(message), rig_soon());
            got = route->client->ops->receive(route->client, bytes, sizeof(bytes), rig_soon(),
                                              &count);
            cr_expect_eq(got, -EPIPE, "cut at %u: %d", (unsigned)cut, got);
        } else {
            cr_expect_eq(connected, -EPIPE, "cut at %u: %d", (unsigned)cut, connected);
            cr_expect(admitted == 0 || admitted == -EPIPE, "cut at %u: %d", (unsigned)cut,
                      admitted);
        }
        route_close(route);
    }
    proxy_cut_after(route->proxy, way, UINT64_MAX);
}

Test(streams, a_conversation_cut_at_any_byte_ends_at_both_ends)
{
    static const char message[] = "sixteen bytes...";
    char bytes[sizeof(message)];
    struct route route;
    uint64_t whole[PROXY_WAYS];

    route_made(&route);
    cr_assert_eq(rig_send(route.client, message, sizeof(message), rig_soon()), 0);
    cr_assert_eq(rig_receive(route.server, bytes, sizeof(bytes), rig_soon()), 0);
    cr_assert_eq(rig_send(route.server, message, sizeof(message), rig_soon()), 0);
    cr_assert_eq(rig_receive(route.client, bytes, sizeof(bytes), rig_soon()), 0);
    for (enum proxy_way way = PROXY_UP; way < PROXY_WAYS; way++) {
        whole[way] = proxy_bytes(route.proxy, way);
        cr_assert_gt(whole[way], 500);
    }
    route_close(&route);
    cut_everywhere(&route, PROXY_UP, whole[PROXY_UP]);
    cut_everywhere(&route, PROXY_DOWN, whole[PROXY_DOWN]);
    route_finish(&route);
}

Test(streams, a_cut_connection_can_be_made_again)
{
    struct route route;
    int admitted;
    char byte;

    route_made(&route);
    proxy_cut(route.proxy);
    cr_expect_eq(rig_receive(route.client, &byte, 1, rig_soon()), -EPIPE);
    cr_expect_eq(rig_receive(route.server, &byte, 1, rig_soon()), -EPIPE);
    cr_expect_eq(rig_receive(route.server, &byte, 1, rig_soon()), -EPIPE);
    cr_expect_eq(rig_send(route.client, "x", 1, rig_soon()), -EPIPE);
    route_close(&route);
    cr_assert_eq(route_open(&route, &admitted), 0);
    cr_assert_eq(admitted, 0);
    carry_both_ways(route.client, route.server, MIB);
    cr_expect_eq(proxy_connections(route.proxy), 2);
    route_finish(&route);
}

/** Passes bytes on, one of them with a bit of its own. */
struct meddler {
    int from, to;
    size_t at;
};

static void *meddle(void *data)
{
    const struct meddler *meddler = data;
    unsigned char bytes[4096];
    size_t passed = 0;
    ssize_t count;

    while ((count = recv(meddler->from, bytes, sizeof(bytes), 0)) > 0) {
        if (meddler->at >= passed && meddler->at < passed + (size_t)count)
            bytes[meddler->at - passed] ^= 4;
        if (send(meddler->to, bytes, (size_t)count, MSG_NOSIGNAL) != count)
            break;
        passed += (size_t)count;
    }
    shutdown(meddler->to, SHUT_WR);
    return NULL;
}

Test(streams, a_bit_that_somebody_changed_is_noticed_and_nothing_behind_it_arrives)
{
    static const size_t places[] = {5, 16000, 16500, 40000, 70000};
    struct rig rig;

    rig_init(&rig);
    struct credentials credentials = rig_load(rig.client);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        int clients[2], servers[2];
        pthread_t there, back;
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, clients), 0);
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, servers), 0);
        /* The handshake takes less than 3,000 bytes; what follows is records. */
        struct meddler up = {clients[1], servers[1], 3000 + places[i]};
        struct meddler down = {servers[1], clients[1], SIZE_MAX};
        cr_assert_eq(pthread_create(&there, NULL, meddle, &up), 0);
        cr_assert_eq(pthread_create(&back, NULL, meddle, &down), 0);
        struct ends ends = ends_over(&credentials, clients[0], servers[0]);
        cr_assert_eq(ends.connected + ends.admitted, 0);
        struct flow flow = {.from = ends.client, .to = ends.server, .size = 100000, .seed = 3};
        flow_begin(&flow);
        flow_end(&flow);
        cr_expect_eq(flow.received, -EPROTO, "%d", flow.received);
        cr_expect_lt(flow.right, 3000 + places[i]);
        ends_finish(&ends);
        pthread_join(there, NULL);
        pthread_join(back, NULL);
        close(clients[1]);
        close(servers[1]);
    }
    credentials_finish(&credentials);
    rig_finish(&rig);
}

/** A thread that waits in a link. */
struct waiter {
    struct link *link;
    bool sends;
    int result;
    pthread_t thread;
};

static void *wait_in(void *data)
{
    struct waiter *waiter = data;
    char *bytes = calloc(1, MIB);

    while (!waiter->result)
        waiter->result = waiter->sends ? rig_send(waiter->link, bytes, MIB, UINT64_MAX)
                                       : rig_receive(waiter->link, bytes, MIB, UINT64_MAX);
    free(bytes);
    return NULL;
}

Test(streams, shutting_down_ends_whoever_waits)
{
    struct rig rig;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    struct waiter waiters[] = {{.link = ends.client, .sends = true}, {.link = ends.client}};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&waiters[i].thread, NULL, wait_in, &waiters[i]), 0);
    clock_sleep(50 * NS_PER_MS);
    ends.client->ops->shut_down(ends.client);
    ends.client->ops->shut_down(ends.client);
    for (int i = 0; i < 2; i++) {
        pthread_join(waiters[i].thread, NULL);
        cr_expect_eq(waiters[i].result, -ECANCELED, "%d: %d", i, waiters[i].result);
    }
    cr_expect_eq(rig_send(ends.client, "x", 1, rig_soon()), -ECANCELED);
    ends_finish(&ends);
    rig_finish(&rig);
}

Test(streams, a_child_of_a_fork_leaves_the_connection_alone)
{
    struct rig rig;
    int status;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    pid_t child = fork();
    if (child == 0) {
        ends.client->ops->destroy(ends.client);
        ends.server->ops->destroy(ends.server);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    carry_both_ways(ends.client, ends.server, MIB);
    ends_finish(&ends);
    rig_finish(&rig);
}

/* Programs close numbers that they do not know, and use them for something else. */
Test(streams, a_number_that_is_the_programs_now_is_not_touched)
{
    struct rig rig;
    int pipes[2];
    char byte;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    int number = ((struct tls_link *)ends.client)->socket.fd;
    cr_assert_eq(pipe2(pipes, O_NONBLOCK | O_CLOEXEC), 0);
    cr_assert_eq(dup2(pipes[1], number), number);
    cr_expect_eq(rig_send(ends.client, "x", 1, rig_soon()), -EBADF);
    cr_expect_eq(rig_receive(ends.client, &byte, 1, rig_soon()), -EBADF);
    cr_expect_eq(read(pipes[0], &byte, 1), -1);
    ends.client->ops->destroy(ends.client);
    ends.client = NULL;
    cr_expect_eq(write(number, "y", 1), 1);
    close(number);
    close(pipes[0]);
    close(pipes[1]);
    ends_finish(&ends);
    rig_finish(&rig);
}

/* Its process would be ended by a signal that nobody expects of a library. */
Test(streams, a_peer_that_went_away_is_an_error_and_no_signal)
{
    static char bytes[MIB];
    struct rig rig;
    int error = 0;

    rig_init(&rig);
    struct ends ends = ends_made(&rig);
    ends.server->ops->destroy(ends.server);
    ends.server = NULL;
    for (int i = 0; i < 100 && !error; i++)
        error = rig_send(ends.client, bytes, sizeof(bytes), rig_soon());
    cr_expect_eq(error, -EPIPE);
    ends_finish(&ends);
    rig_finish(&rig);
}
