#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "remote/rings/bulk.h"
#include "remote/rings/rings.h"
#include "state/base/array.h"
#include "state/base/clock.h"

/*
 * What a frame costs who posts it, what a round trip costs beside those of a socket pair and of
 * pipes, and how fast data goes into memory that a server has mapped beside memory that it has not:
 * bench_ring [ROUNDS]. Each ratio is of one run; round trips of all three kinds take turns.
 */

#define FRAME   64u /* bytes: a launch with a few arguments */
#define BATCH   500u
#define THREADS 4u
#define BULK    ((size_t)64 << 20)

static const struct rings_shape shape = {.count = 8, .capacity = 256 << 10};
static unsigned rounds = 200;
static uint64_t deadline_ns; /* of all: what hangs is to end */

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "bench_ring: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void ok(int err, const char *what)
{
    errno = -err;
    if (err != 0)
        fail(what);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

static double *numbers(size_t n)
{
    double *values = calloc(n, sizeof(*values));
    if (!values)
        fail("memory");
    return values;
}

static void post(struct rings_writer *writer)
{
    static const char frame[FRAME];
    const struct iovec part = {(void *)(uintptr_t)frame, sizeof(frame)};
    ok(rings_post(writer, &part, 1, deadline_ns, NULL), "rings_post");
}

static void take(struct rings_reader *reader)
{
    static char buffer[1 << 20];
    size_t size;
    ok(rings_take(reader, buffer, deadline_ns, &size, NULL), "rings_take");
}

/* A connection and a set of rings in each direction. */
struct pair {
    struct bell_peer peers[2];
    int fds[2], ends[2];
};

static void pair_init(struct pair *pair)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair->ends) != 0)
        fail("socketpair");
    for (int i = 0; i < 2; i++) {
        ok(area_create("bench", rings_size(&shape), &pair->fds[i]), "area_create");
        pair->peers[i] = (struct bell_peer){.socket = owned_of(pair->ends[i])};
    }
}

static void pair_finish(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        close(pair->fds[i]);
        close(pair->ends[i]);
    }
}

/* ---- posts ---- */

static struct rings_reader *posts_reader;
static struct rings_writer *posts_writer;
static _Atomic uint64_t taken;
static uint64_t expected;

static void *takes_all(void *unused)
{
    (void)unused;
    for (uint64_t i = 0; i < expected; i++) {
        take(posts_reader);
        atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Batches that fit the ring, each once the last one was read. @ret: of each, nanoseconds a frame.
 */
static void post_batches(double *ret)
{
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t begin = clock_now_ns();
        for (unsigned k = 0; k < BATCH; k++)
            post(posts_writer);
        ret[i] = (double)(clock_now_ns() - begin) / BATCH;
        struct pollfd none = {.fd = -1};
        while (atomic_load_explicit(&taken, memory_order_relaxed) % BATCH != 0 &&
               poll(&none, 1, 0) == 0)
            ;
    }
}

static void *posts_batches(void *ret)
{
    post_batches(ret);
    return NULL;
}

/* The median time that a post takes, by so many threads at once. */
static double time_posts(unsigned threads)
{
    struct pair pair;
    pthread_t reader, writers[THREADS];
    double *times = numbers((size_t)threads * rounds);
    pair_init(&pair);
    ok(rings_writer_create(&shape, pair.fds[0], &pair.peers[0], &posts_writer), "writer");
    ok(rings_reader_create(&shape, pair.fds[0], &pair.peers[1], &posts_reader), "reader");
    expected = (uint64_t)threads * rounds * BATCH;
    atomic_store(&taken, 0);
    ok(-pthread_create(&reader, NULL, takes_all, NULL), "thread");
    for (unsigned i = 0; i < threads; i++)
        ok(-pthread_create(&writers[i], NULL, posts_batches, &times[(size_t)i * rounds]), "thread");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(writers[i], NULL);
    pthread_join(reader, NULL);
    rings_writer_destroy(posts_writer);
    rings_reader_destroy(posts_reader);
    pair_finish(&pair);
    double time = median(times, (size_t)threads * rounds);
    free(times);
    return time;
}

/* ---- round trips ---- */

struct echo {
    struct pair pair;
    int sockets[2], there[2], back[2];
    struct rings_writer *writer;
    struct rings_reader *reader;
};

static void move_frame(int from, int to, bool sends)
{
    char frame[FRAME] = {0};
    if (sends ? write(to, frame, FRAME) != FRAME : read(from, frame, FRAME) != FRAME)
        fail("a frame");
}

enum { RINGS, SOCKETS, PIPES, KINDS };
static const char *const kinds[] = {"rings", "socket pair", "pipes"};

/* As many of each kind as the other side asks for, in turns. */
_Noreturn static void echo(struct echo *e, unsigned count)
{
    ok(rings_reader_create(&shape, e->pair.fds[0], &e->pair.peers[1], &e->reader), "reader");
    ok(rings_writer_create(&shape, e->pair.fds[1], &e->pair.peers[1], &e->writer), "writer");
    for (unsigned i = 0; i < count; i++) {
        take(e->reader);
        post(e->writer);
        move_frame(e->sockets[1], -1, false);
        move_frame(-1, e->sockets[1], true);
        move_frame(e->there[0], -1, false);
        move_frame(-1, e->back[1], true);
    }
    _exit(0);
}

static void go(struct echo *e, int kind)
{
    if (kind == RINGS) {
        post(e->writer);
        take(e->reader);
    } else {
        move_frame(-1, kind == SOCKETS ? e->sockets[0] : e->there[1], true);
        move_frame(kind == SOCKETS ? e->sockets[0] : e->back[0], -1, false);
    }
}

/* Round trips, one after the other, or each after a pause in which the other side falls asleep. */
static void time_round_trips(const char *what, uint64_t pause_ns)
{
    struct echo e = {0};
    double *times[KINDS];
    unsigned count = pause_ns ? rounds : rounds * 50;
    pair_init(&e.pair);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, e.sockets) != 0 || pipe(e.there) != 0 ||
        pipe(e.back) != 0)
        fail("pipes");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        echo(&e, count);
    ok(rings_writer_create(&shape, e.pair.fds[0], &e.pair.peers[0], &e.writer), "writer");
    ok(rings_reader_create(&shape, e.pair.fds[1], &e.pair.peers[0], &e.reader), "reader");
    for (int kind = 0; kind < KINDS; kind++)
        times[kind] = numbers(count);
    for (unsigned i = 0; i < count; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            if (pause_ns)
                clock_sleep(pause_ns);
            uint64_t begin = clock_now_ns();
            go(&e, kind);
            times[kind][i] = (double)(clock_now_ns() - begin) / 1000;
        }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("the other side");
    double rings = median(times[RINGS], count);
    printf("round trip, %s:\n", what);
    for (int kind = 0; kind < KINDS; kind++) {
        double time = median(times[kind], count);
        printf("  %-12s %8.2f us  %5.2f of the rings'\n", kinds[kind], time, time / rings);
        free(times[kind]);
    }
    const struct bell_waiter *waits = rings_reader_waits(e.reader);
    printf("  waits that ended by spinning %llu, spun in vain %llu, slept %llu\n",
           (unsigned long long)waits->spin.spun, (unsigned long long)waits->spin.spun_in_vain,
           (unsigned long long)waits->slept);
    rings_writer_destroy(e.writer);
    rings_reader_destroy(e.reader);
    pair_finish(&e.pair);
    const int all[] = {e.sockets[0], e.sockets[1], e.there[0], e.there[1], e.back[0], e.back[1]};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        close(all[i]);
}

/* ---- bulk data ---- */

static int offer(void *data, uint32_t area, int fd, size_t size)
{
    (void)data;
    (void)area;
    (void)fd;
    (void)size;
    return 0;
}

static void withdraw(void *data, uint32_t area)
{
    (void)data;
    (void)area;
}

static void time_bulk(void)
{
    const struct bulk_limits limits = {.areas = 4, .area_size = BULK, .all_bytes = 4 * BULK};
    const struct bulk_link link = {offer, withdraw, NULL};
    struct bulk *bulk;
    struct bulk_block block;
    double copies[2][9];
    char *from = malloc(BULK), *to = malloc(BULK);
    if (!from || !to)
        fail("memory");
    memset(from, 1, BULK);
    memset(to, 2, BULK);
    ok(bulk_create(&limits, &link, &bulk), "bulk_create");
    uint64_t begin = clock_now_ns();
    ok(bulk_take(bulk, BULK, &block), "bulk_take");
    double first = (double)(clock_now_ns() - begin) / 1e6;
    for (size_t i = 0; i < ARRAY_SIZE(copies[0]); i++)
        for (int shared = 0; shared < 2; shared++) {
            begin = clock_now_ns();
            memcpy(shared ? block.bytes : to, from, BULK);
            copies[shared][i] = (double)(clock_now_ns() - begin);
        }
    bulk_give(bulk, &block);
    begin = clock_now_ns();
    for (unsigned i = 0; i < rounds; i++) {
        ok(bulk_take(bulk, BULK / 2, &block), "bulk_take");
        bulk_give(bulk, &block);
    }
    double again = (double)(clock_now_ns() - begin) / rounds;
    double own = (double)BULK / median(copies[0], ARRAY_SIZE(copies[0]));
    double shared = (double)BULK / median(copies[1], ARRAY_SIZE(copies[1]));
    printf("bulk data, %zu MiB: memcpy %.2f GB/s, into a block %.2f GB/s, %.3f of it\n", BULK >> 20,
           own, shared, shared / own);
    printf("  a block: the first, with its area, %.2f ms; again %.0f ns\n", first, again);
    bulk_destroy(bulk);
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2 || rounds == 0) {
        fprintf(stderr, "usage: bench_ring [ROUNDS]\n");
        return 2;
    }
    deadline_ns = clock_now_ns() + 600 * NS_PER_S;
    double one = time_posts(1), several = time_posts(THREADS);
    printf("a post of %u bytes: %.0f ns; by %u threads at once: %.0f ns\n", FRAME, one, THREADS,
           several);
    time_round_trips("one after the other", 0);
    time_round_trips("after a pause of a millisecond", NS_PER_MS);
    time_bulk();
    return 0;
}
