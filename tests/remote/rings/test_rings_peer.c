#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "tests/remote/rings/link_rig.h"

/* The other side is another process, which ends, or writes what it wants. */

#define CAPACITY ((size_t)4096)

struct half {
    struct rings_shape shape;
    int fd;
    struct bell_peer peers[2];
};

static void half_init(struct half *half)
{
    *half = (struct half){.shape = {2, CAPACITY}};
    connect_peers(&half->peers[0], &half->peers[1]);
    cr_assert_eq(area_create("test", rings_size(&half->shape), &half->fd), 0);
}

static void half_finish(struct half *half)
{
    close(half->fd);
    disconnect_peer(&half->peers[0]);
    disconnect_peer(&half->peers[1]);
}

static uint64_t seed_of(uint64_t number)
{
    return number * 31;
}

static size_t size_of(uint64_t number)
{
    return (size_t)(number * 37 % 1500);
}

_Noreturn static void child_posts(struct half *half)
{
    struct rings_writer *writer;
    disconnect_peer(&half->peers[1]);
    if (rings_writer_create(&half->shape, half->fd, &half->peers[0], &writer) != 0)
        _exit(1);
    for (uint64_t i = 0;; i++)
        if (post_filled(writer, size_of(i), seed_of(i), NULL) != 0)
            _exit(2);
}

_Noreturn static void child_takes(struct half *half)
{
    struct rings_reader *reader;
    char buffer[CAPACITY];
    size_t size;
    disconnect_peer(&half->peers[0]);
    if (rings_reader_create(&half->shape, half->fd, &half->peers[1], &reader) != 0)
        _exit(1);
    while (rings_take(reader, buffer, soon(), &size, NULL) == 0)
        ;
    _exit(2);
}

/* At a random moment from now on. */
static void kill_soon(pid_t child, struct dice *dice)
{
    pid_t killer = fork();
    if (killer == 0) {
        clock_sleep(dice_below(dice, 8 * NS_PER_MS));
        kill(child, SIGKILL);
        _exit(0);
    }
    cr_assert_gt(killer, 0);
    (void)dice_roll(dice);
}

static void reap(pid_t child)
{
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

Test(rings_peer, a_writer_that_is_killed_leaves_whole_frames_and_an_end, .timeout = 200)
{
    struct dice dice = {11};
    uint64_t most = 0;
    for (unsigned least = 0; least < 400; least += 10) {
        struct half half;
        struct rings_reader *reader;
        char buffer[CAPACITY];
        uint64_t number, next = 0;
        size_t size;
        int err;
        half_init(&half);
        pid_t child = fork();
        if (child == 0)
            child_posts(&half);
        disconnect_peer(&half.peers[0]);
        cr_assert_eq(rings_reader_create(&half.shape, half.fd, &half.peers[1], &reader), 0);
        for (;;) {
            if (next == least)
                kill_soon(child, &dice);
            err = rings_take(reader, buffer, soon(), &size, &number);
            if (err)
                break;
            cr_assert_eq(number, next);
            cr_assert_eq(size, size_of(next));
            cr_assert(frame_is(buffer, size, seed_of(next++)));
        }
        cr_assert_eq(err, -EPIPE);
        reap(child);
        most = next > most ? next : most;
        rings_reader_destroy(reader);
        half_finish(&half);
    }
    cr_assert_gt(most, 100);
}

Test(rings_peer, a_reader_that_is_killed_is_an_end_for_who_waits_for_room, .timeout = 200)
{
    struct dice dice = {12};
    for (unsigned least = 0; least < 400; least += 10) {
        struct half half;
        struct rings_writer *writer;
        int err = 0;
        half_init(&half);
        pid_t child = fork();
        if (child == 0)
            child_takes(&half);
        disconnect_peer(&half.peers[1]);
        cr_assert_eq(rings_writer_create(&half.shape, half.fd, &half.peers[0], &writer), 0);
        for (uint64_t i = 0; err == 0; i++) {
            if (i == least)
                kill_soon(child, &dice);
            err = post_filled(writer, size_of(i), seed_of(i), NULL);
        }
        cr_assert_eq(err, -EPIPE);
        reap(child);
        rings_writer_destroy(writer);
        half_finish(&half);
    }
}

/* ---- forks of the writer ---- */

static void *area_seen(int fd, size_t size)
{
    void *seen = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(seen, MAP_FAILED);
    return seen;
}

static void child_has_no_part(pid_t (*make_child)(void))
{
    struct rings_pair pair;
    size_t size, frame;
    rings_pair_init(&pair, 2, CAPACITY);
    size = rings_size(&pair.shape);
    cr_assert_eq(post_filled(pair.writer, 100, 1, NULL), 0);
    char *seen = area_seen(pair.fd, size), *before = malloc(size);
    memcpy(before, seen, size);
    pid_t child = make_child();
    if (child == 0) {
        if (post_filled(pair.writer, 100, 2, NULL) != -ECHILD ||
            rings_take(pair.reader, pair.buffer, 1, &frame, NULL) != -ECHILD)
            _exit(1);
        /* Where the rings were is something of the child's. */
        rings_writer_end(pair.writer);
        rings_reader_end(pair.reader);
        rings_writer_destroy(pair.writer);
        rings_reader_destroy(pair.reader);
        struct rings_pair own;
        rings_pair_init(&own, 2, CAPACITY);
        if (post_filled(own.writer, 100, 3, NULL) != 0 ||
            rings_take(own.reader, own.buffer, soon(), &frame, NULL) != 0 ||
            !frame_is(own.buffer, 100, 3))
            _exit(2);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_arr_eq(seen, before, size);
    cr_assert_eq(post_filled(pair.writer, 50, 4, NULL), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(rings_take(pair.reader, pair.buffer, soon(), &frame, NULL), 0);
    cr_assert(frame_is(pair.buffer, 50, 4));
    munmap(seen, size);
    free(before);
    rings_pair_finish(&pair);
}

static pid_t by_fork(void)
{
    return fork();
}

/* The C library does not know of it. */
static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

TestCall(rings_peer, a_child_of_a_fork_writes_nothing, child_has_no_part(by_fork));
TestCall(rings_peer, a_child_that_nobody_was_told_of_writes_nothing, child_has_no_part(by_clone));

static _Thread_local struct rings_pair *inherited;

Test(rings_peer, what_a_child_maps_where_the_rings_were_stays)
{
    struct rings_pair pair;
    rings_pair_init(&pair, 2, CAPACITY);
    inherited = &pair;
    cr_assert_eq(post_filled(pair.writer, 100, 1, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        /* The addresses are free in the child: the kernel gives them to who asks for as many. */
        size_t size = 64 << 10;
        char *all[64];
        for (int i = 0; i < 64; i++) {
            all[i] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(all[i], 1, size);
        }
        rings_writer_destroy(inherited->writer);
        rings_reader_destroy(inherited->reader);
        for (int i = 0; i < 64; i++)
            if (all[i][0] != 1 || all[i][size - 1] != 1)
                _exit(1);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    rings_pair_finish(&pair);
}

/* ---- a peer that writes what it wants ---- */

/* A writer's side of ring 1, by somebody who knows the rings. */
struct stranger {
    char *area;
    size_t size;
    struct bell_peer *peer;
    struct ring_writer ring;
};

static void stranger_init(struct stranger *stranger, struct half *half, unsigned i)
{
    const size_t page = area_page(), ring = page + CAPACITY;
    stranger->size = rings_size(&half->shape);
    stranger->area = area_seen(half->fd, stranger->size);
    char *at = stranger->area + page + i * ring;
    ring_writer_init(&stranger->ring, (struct ring_shared *)at, at + page, CAPACITY,
                     &half->peers[0]);
    atomic_fetch_or((_Atomic uint64_t *)(stranger->area + 128), UINT64_C(1) << i);
}

static void stranger_posts(struct stranger *stranger, uint64_t number)
{
    char *bytes;
    cr_assert_eq(ring_begin(&stranger->ring, 8, &bytes), 0);
    memset(bytes, 0, 8);
    ring_publish(&stranger->ring, number);
}

static int takes_number(struct half *half, uint64_t first, uint64_t second)
{
    struct rings_reader *reader;
    struct stranger stranger;
    char buffer[CAPACITY];
    size_t size;
    cr_assert_eq(rings_reader_create(&half->shape, half->fd, &half->peers[1], &reader), 0);
    stranger_init(&stranger, half, 1);
    stranger_posts(&stranger, first);
    int err = rings_take(reader, buffer, clock_now_ns() + 10 * NS_PER_MS, &size, NULL);
    if (err == 0) {
        stranger_posts(&stranger, second);
        err = rings_take(reader, buffer, clock_now_ns() + 10 * NS_PER_MS, &size, NULL);
    }
    munmap(stranger.area, stranger.size);
    rings_reader_destroy(reader);
    return err;
}

Test(rings_peer, a_number_that_cannot_be_breaks_the_session)
{
    const struct {
        uint64_t first, second;
        int err;
    } cases[] = {{0, 1, 0},
                 {0, 0, -EPROTO}, /* again */
                 {0, UINT64_MAX, -EPROTO},
                 {0, 2 * CAPACITY / 16 + 2, -EPROTO}, /* later than all that can be waiting */
                 {0, 2, -ETIMEDOUT},                  /* may come yet */
                 {UINT64_MAX, 0, -EPROTO},
                 {1, 0, -ETIMEDOUT}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct half half;
        half_init(&half);
        cr_assert_eq(takes_number(&half, cases[i].first, cases[i].second), cases[i].err, "%zu", i);
        half_finish(&half);
    }
}

Test(rings_peer, a_number_that_never_comes_ends_the_session)
{
    struct half half;
    struct rings_reader *reader;
    struct stranger stranger;
    char buffer[CAPACITY];
    size_t size;
    rings_gap_ns = 50 * NS_PER_MS;
    half_init(&half);
    cr_assert_eq(rings_reader_create(&half.shape, half.fd, &half.peers[1], &reader), 0);
    stranger_init(&stranger, &half, 0);
    stranger_posts(&stranger, 1);
    /* The rest of the session may be as idle as it likes. */
    cr_assert_eq(rings_take(reader, buffer, UINT64_MAX, &size, NULL), -EPROTO);
    stranger_posts(&stranger, 0);
    cr_assert_eq(rings_take(reader, buffer, soon(), &size, NULL), -EPROTO);
    munmap(stranger.area, stranger.size);
    rings_reader_destroy(reader);
    half_finish(&half);
}

Test(rings_peer, an_idle_session_has_no_gap)
{
    struct half half;
    struct rings_reader *reader;
    char buffer[CAPACITY];
    size_t size;
    rings_gap_ns = NS_PER_MS;
    half_init(&half);
    cr_assert_eq(rings_reader_create(&half.shape, half.fd, &half.peers[1], &reader), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(rings_take(reader, buffer, clock_now_ns() + 20 * NS_PER_MS, &size, NULL),
                     -ETIMEDOUT);
    rings_reader_destroy(reader);
    half_finish(&half);
}

/* Every word of what both write, with what may hurt: each call ends, with one of its errors. */
Test(rings_peer, both_sides_survive_any_word_at_any_place, .timeout = 200)
{
    const uint64_t lies[] = {
        1, 16, 4096, 4112, UINT32_MAX, UINT64_C(1) << 63, UINT64_MAX - 15, UINT64_MAX};
    const size_t words = rings_size(&(struct rings_shape){2, CAPACITY}) / 8;
    struct dice dice = {21};
    for (size_t word = 0; word < words; word += word % 512 < 64 ? 1 : 61)
        for (size_t lie = 0; lie < sizeof(lies) / sizeof(lies[0]); lie++) {
            struct rings_pair pair;
            rings_pair_init(&pair, 2, CAPACITY);
            uint64_t *seen = area_seen(pair.fd, rings_size(&pair.shape));
            bool broken = false;
            for (int i = 0; i < 12 && !broken; i++) {
                const struct iovec part = {"12345678", dice_below(&dice, 9)};
                size_t size;
                if (i == 5)
                    seen[word] = lies[lie];
                int posted = rings_post(pair.writer, &part, 1, clock_now_ns() + 1, NULL);
                int taken = i % 3 == 0 ? -ETIMEDOUT
                                       : rings_take(pair.reader, pair.buffer, clock_now_ns() + 1,
                                                    &size, NULL);
                cr_assert(posted == 0 || posted == -EPROTO || posted == -ETIMEDOUT);
                cr_assert(taken == 0 || taken == -EPROTO || taken == -ETIMEDOUT);
                broken = posted == -EPROTO || taken == -EPROTO;
            }
            munmap(seen, rings_size(&pair.shape));
            rings_pair_finish(&pair);
        }
}
