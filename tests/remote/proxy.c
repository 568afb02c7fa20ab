#include "tests/remote/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/clock.h"

#define PAIRS_MAX 256
#define CHUNK     16384
#define SLOW      1024             /* bytes at a time where there is a rate */
#define HELD_MAX  (8u << 20)       /* of one way: then the sender waits */
#define LOOK_NS   (20 * NS_PER_MS) /* so often settings are looked at */

struct chunk {
    struct chunk *next;
    uint64_t due_ns;
    size_t size, at;
    unsigned char bytes[CHUNK];
};

/** Where one direction is in its records of TLS: a type, two bytes, and how many follow. */
struct records {
    unsigned char header[5];
    size_t has;    /* of the header */
    uint32_t left; /* of what follows it */
};

/** One direction of a connection. */
struct way {
    int from, to;
    struct records records;
    struct chunk *first, *last;
    size_t held;
    uint64_t passed, free_ns; /* with a rate, when the next bytes may go */
    bool ended, told;         /* nothing more comes; and the other end knows */
};

struct pair {
    int client, server;
    struct way ways[PROXY_WAYS];
};

struct proxy {
    int listener, wake[2];
    uint16_t port;
    pthread_t thread;
    atomic_ushort server_port;
    _Atomic uint64_t delay_ns, rate, cut_after[PROXY_WAYS], bytes[PROXY_WAYS];
    _Atomic uint64_t cut_at[PROXY_WAYS]; /* of `bytes`, once */
    _Atomic uint64_t records[PROXY_WAYS], cut_at_record[PROXY_WAYS];
    atomic_bool stalled, refusing, cut, stop;
    atomic_uint connections;
    struct pair *pairs[PAIRS_MAX]; /* the thread's */
};

static int listen_any(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 128) ||
                    getsockname(fd, (struct sockaddr *)&address, &size))) {
        close(fd);
        fd = -1;
    }
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static int connect_to(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* On this machine it is answered at once. */
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void set_up(int fd)
{
    static const int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void way_finish(struct way *way)
{
    for (struct chunk *chunk = way->first, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

static void pair_destroy(struct proxy *proxy, size_t i)
{
    struct pair *pair = proxy->pairs[i];
    static const struct linger at_once = {.l_onoff = 1};

    /* A cut is no end in good order: who waits is told by a reset. */
    setsockopt(pair->client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    setsockopt(pair->server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(pair->client);
    close(pair->server);
    way_finish(&pair->ways[PROXY_UP]);
    way_finish(&pair->ways[PROXY_DOWN]);
    free(pair);
    proxy->pairs[i] = NULL;
}

static void pair_create(struct proxy *proxy, int client)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    int server =
        pair && !atomic_load(&proxy->refusing) ? connect_to(atomic_load(&proxy->server_port)) : -1;
    size_t i = 0;

    while (i < PAIRS_MAX && proxy->pairs[i])
        i++;
    if (server < 0 || i == PAIRS_MAX) {
        if (server >= 0)
            close(server);
        close(client);
        free(pair);
        return;
    }
    set_up(client);
    set_up(server);
    *pair = (struct pair){client, server, {{.from = client, .to = server}, {server, client}}};
    proxy->pairs[i] = pair;
    atomic_fetch_add(&proxy->connections, 1);
}

/** Take what came. False: the connection broke. */
static bool take(struct proxy *proxy, struct way *way)
{
    struct chunk *chunk = malloc(sizeof(*chunk));

    if (!chunk)
        return false;
    ssize_t count = recv(way->from, chunk->bytes, sizeof(chunk->bytes), 0);
    if (count <= 0) {
        free(chunk);
        way->ended = way->ended || count == 0;
        return count == 0 || errno == EAGAIN || errno == EINTR;
    }
    chunk->next = NULL;
    chunk->size = (size_t)count;
    chunk->at = 0;
    chunk->due_ns = clock_now_ns() + atomic_load(&proxy->delay_ns);
    if (way->last)
        way->last->next = chunk;
    else
        way->first = chunk;
    way->last = chunk;
    way->held += chunk->size;
    return true;
}

/** How many of @bytes go until @most records end; those are counted in @ended. */
static size_t records_pass(struct records *records, const unsigned char *bytes, size_t size,
                           uint64_t most, uint64_t *ended)
{
    size_t at = 0;

    *ended = 0;
    while (at < size && *ended < most) {
        if (records->has < sizeof(records->header)) {
            records->header[records->has++] = bytes[at++];
            records->left = (uint32_t)records->header[3] << 8 | records->header[4];
        } else {
            size_t part = size - at < records->left ? size - at : records->left;
            at += part;
            records->left -= (uint32_t)part;
        }
        if (records->has == sizeof(records->header) && !records->left) {
            records->has = 0;
            ++*ended;
        }
    }
    return at;
}

/** Pass on what is due. False: the connection is cut, or broke. */
static bool pass(struct proxy *proxy, struct way *way, enum proxy_way which, uint64_t now)
{
    struct chunk *chunk = way->first;
    uint64_t rate = atomic_load(&proxy->rate), limit = atomic_load(&proxy->cut_after[which]);

    uint64_t at = atomic_load(&proxy->cut_at[which]), bytes = atomic_load(&proxy->bytes[which]);

    if (bytes >= at) {
        atomic_store(&proxy->cut_at[which], UINT64_MAX);
        return false;
    }
    /* Both count what goes on, and the nearer one ends it. */
    if (at - bytes < limit - way->passed)
        limit = way->passed + (at - bytes);
    if (way->passed >= limit)
        return false;
    if (!chunk || chunk->due_ns > now || (rate && way->free_ns > now))
        return true;
    size_t size = chunk->size - chunk->at;
    size = rate && size > SLOW ? SLOW : size;
    size = size > limit - way->passed ? (size_t)(limit - way->passed) : size;
    uint64_t ended, records = atomic_load(&proxy->records[which]);
    uint64_t last = atomic_load(&proxy->cut_at_record[which]);
    struct records ahead = way->records;
    if (records >= last) {
        atomic_store(&proxy->cut_at_record[which], UINT64_MAX);
        return false;
    }
    size = records_pass(&ahead, chunk->bytes + chunk->at, size, last - records, &ended);
    ssize_t count = size ? send(way->to, chunk->bytes + chunk->at, size, MSG_NOSIGNAL) : 0;
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    (void)records_pass(&way->records, chunk->bytes + chunk->at, (size_t)count, UINT64_MAX, &ended);
    records = atomic_fetch_add(&proxy->records[which], ended) + ended;
    chunk->at += (size_t)count;
    way->held -= (size_t)count;
    way->passed += (uint64_t)count;
    atomic_fetch_add(&proxy->bytes[which], (uint64_t)count);
    if (rate)
        way->free_ns =
            (way->free_ns > now ? way->free_ns : now) + (uint64_t)count * NS_PER_S / rate;
    if (bytes + (uint64_t)count == at)
        atomic_store(&proxy->cut_at[which], UINT64_MAX);
    if (chunk->at == chunk->size) {
        way->first = chunk->next;
        way->last = way->first ? way->last : NULL;
        free(chunk);
    }
    if (records >= last) {
        atomic_store(&proxy->cut_at_record[which], UINT64_MAX);
        return false;
    }
    return way->passed < limit;
}

/** What poll() is asked of a way's two ends, and when it is looked at again at the latest. */
static void ask(const struct proxy *proxy, const struct way *way, struct pollfd *from,
                struct pollfd *to, uint64_t now, uint64_t *wait_ns)
{
    uint64_t due = way->first ? way->first->due_ns : 0;

    if (!way->ended && way->held < HELD_MAX)
        from->events |= POLLIN;
    if (!way->first)
        return;
    due = atomic_load(&proxy->rate) && way->free_ns > due ? way->free_ns : due;
    if (due <= now)
        to->events |= POLLOUT;
    else if (due - now < *wait_ns)
        *wait_ns = due - now;
}

/** False: it is over. */
static bool serve(struct proxy *proxy, struct pair *pair, const struct pollfd *polled, uint64_t now)
{
    for (enum proxy_way i = PROXY_UP; i < PROXY_WAYS; i++) {
        struct way *way = &pair->ways[i];
        short came = polled[i].revents;
        if (came & (POLLIN | POLLHUP | POLLERR) && !way->ended && way->held < HELD_MAX &&
            !take(proxy, way))
            return false;
        if (!pass(proxy, way, i, now))
            return false;
        if (way->ended && !way->first && !way->told) {
            shutdown(way->to, SHUT_WR);
            way->told = true;
        }
    }
    return !pair->ways[PROXY_UP].told || !pair->ways[PROXY_DOWN].told;
}

static void take_connections(struct proxy *proxy)
{
    int client;

    while ((client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        pair_create(proxy, client);
}

/** One round: ask, wait, pass on. */
static void turn(struct proxy *proxy)
{
    static _Thread_local struct pollfd polled[2 + 2 * PAIRS_MAX];
    size_t slots[PAIRS_MAX], count = 0;
    uint64_t now = clock_now_ns(), wait = LOOK_NS;
    bool stalled = atomic_load(&proxy->stalled);
    char ignored[64];

    polled[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
    polled[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (size_t i = 0; i < PAIRS_MAX && !stalled; i++) {
        struct pair *pair = proxy->pairs[i];
        struct pollfd *ends = &polled[2 + 2 * count];
        if (!pair)
            continue;
        ends[0] = (struct pollfd){.fd = pair->client};
        ends[1] = (struct pollfd){.fd = pair->server};
        ask(proxy, &pair->ways[PROXY_UP], &ends[0], &ends[1], now, &wait);
        ask(proxy, &pair->ways[PROXY_DOWN], &ends[1], &ends[0], now, &wait);
        /* One that hung up says so again and again. */
        for (int end = 0; end < 2; end++)
            ends[end].fd = ends[end].events ? ends[end].fd : -1;
        slots[count++] = i;
    }
    struct timespec timeout = clock_timespec(wait);
    if (ppoll(polled, 2 + 2 * count, &timeout, NULL) < 0)
        return;
    if (polled[0].revents)
        (void)!read(proxy->wake[0], ignored, sizeof(ignored));
    now = clock_now_ns();
    bool cut = atomic_exchange(&proxy->cut, false);
    for (size_t i = 0; i < count; i++)
        if (!cut && !serve(proxy, proxy->pairs[slots[i]], &polled[2 + 2 * i], now))
            pair_destroy(proxy, slots[i]);
    for (size_t i = 0; i < PAIRS_MAX && cut; i++)
        if (proxy->pairs[i])
            pair_destroy(proxy, i);
    if (polled[1].revents)
        take_connections(proxy);
}

static void *run(void *data)
{
    struct proxy *proxy = data;

    while (!atomic_load(&proxy->stop))
        turn(proxy);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        if (proxy->pairs[i])
            pair_destroy(proxy, i);
    return NULL;
}

static void wake(struct proxy *proxy)
{
    (void)!write(proxy->wake[1], "", 1);
}

struct proxy *proxy_create(uint16_t server_port)
{
    struct proxy *proxy = calloc(1, sizeof(*proxy));

    if (!proxy)
        return NULL;
    atomic_init(&proxy->server_port, server_port);
    atomic_init(&proxy->cut_after[PROXY_UP], UINT64_MAX);
    atomic_init(&proxy->cut_after[PROXY_DOWN], UINT64_MAX);
    atomic_init(&proxy->cut_at[PROXY_UP], UINT64_MAX);
    atomic_init(&proxy->cut_at[PROXY_DOWN], UINT64_MAX);
    atomic_init(&proxy->cut_at_record[PROXY_UP], UINT64_MAX);
    atomic_init(&proxy->cut_at_record[PROXY_DOWN], UINT64_MAX);
    proxy->listener = listen_any(&proxy->port);
    if (proxy->listener >= 0 && pipe2(proxy->wake, O_CLOEXEC | O_NONBLOCK) == 0) {
        if (pthread_create(&proxy->thread, NULL, run, proxy) == 0)
            return proxy;
        close(proxy->wake[0]);
        close(proxy->wake[1]);
    }
    if (proxy->listener >= 0)
        close(proxy->listener);
    free(proxy);
    return NULL;
}

void proxy_destroy(struct proxy *proxy)
{
    if (!proxy)
        return;
    atomic_store(&proxy->stop, true);
    wake(proxy);
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    free(proxy);
}

uint16_t proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

void proxy_set_server(struct proxy *proxy, uint16_t server_port)
{
    atomic_store(&proxy->server_port, server_port);
}

void proxy_set_delay(struct proxy *proxy, uint64_t ns)
{
    atomic_store(&proxy->delay_ns, ns);
}

void proxy_set_rate(struct proxy *proxy, uint64_t bytes)
{
    atomic_store(&proxy->rate, bytes);
    wake(proxy);
}

void proxy_cut_after(struct proxy *proxy, enum proxy_way way, uint64_t bytes)
{
    atomic_store(&proxy->cut_after[way], bytes);
}

void proxy_cut_in(struct proxy *proxy, enum proxy_way way, uint64_t bytes)
{
    atomic_store(&proxy->cut_at[way], atomic_load(&proxy->bytes[way]) + bytes);
}

void proxy_cut_in_records(struct proxy *proxy, enum proxy_way way, uint64_t records)
{
    uint64_t last = records == UINT64_MAX ? records : atomic_load(&proxy->records[way]) + records;
    atomic_store(&proxy->cut_at_record[way], last);
}

void proxy_cut(struct proxy *proxy)
{
    atomic_store(&proxy->cut, true);
    wake(proxy);
}

void proxy_set_stalled(struct proxy *proxy, bool stalled)
{
    atomic_store(&proxy->stalled, stalled);
    wake(proxy);
}

void proxy_set_refusing(struct proxy *proxy, bool refusing)
{
    atomic_store(&proxy->refusing, refusing);
}

unsigned proxy_connections(const struct proxy *proxy)
{
    return atomic_load(&proxy->connections);
}

uint64_t proxy_bytes(const struct proxy *proxy, enum proxy_way way)
{
    return atomic_load(&proxy->bytes[way]);
}

uint64_t proxy_records(const struct proxy *proxy, enum proxy_way way)
{
    return atomic_load(&proxy->records[way]);
}
