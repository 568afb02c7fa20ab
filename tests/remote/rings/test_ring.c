#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "tests/remote/rings/link_rig.h"

#define CAPACITY ((size_t)4096)
#define MOST     (CAPACITY / 2 - 16)

/* Write a frame, as the rings do. */
static int write_frame(struct ring_writer *writer, size_t size, uint64_t number)
{
    char *bytes;
    int err = ring_begin(writer, size, &bytes);
    if (err == 0) {
        frame_fill(bytes, size, number);
        ring_publish(writer, number);
    }
    return err;
}

/* Take one that has to be this one. */
static void read_frame(struct ring_reader *reader, size_t size, uint64_t number)
{
    char *buffer = malloc(size + 1); /* of exactly that size: a sanitizer sees what is behind it */
    uint64_t got_number;
    size_t got_size;
    cr_assert_eq(ring_front(reader, &got_number, &got_size), 0);
    cr_assert_eq(got_number, number);
    cr_assert_eq(got_size, size);
    ring_take(reader, buffer);
    cr_assert(frame_is(buffer, size, number));
    free(buffer);
}

static void is_empty(struct ring_reader *reader)
{
    uint64_t number;
    size_t size;
    cr_assert_eq(ring_front(reader, &number, &size), -EAGAIN);
}

/* What a frame takes, by the header's words and not the code's. */
static size_t taken(size_t size)
{
    return 16 + (size + 15) / 16 * 16;
}

/* A queue of sizes says what the ring has to do at every step. */
Test(ring, is_a_queue_of_frames_as_large_as_it_says)
{
    struct ring_pair pair;
    struct dice dice = {1};
    size_t sizes[CAPACITY / 16], used = 0;
    uint64_t first = 0, next = 0;
    ring_pair_init(&pair, CAPACITY);
    for (int step = 0; step < 200000; step++) {
        /* Now fuller, now emptier. */
        bool writes = dice_below(&dice, 8) < (step / 1000 % 2 ? 5u : 3u);
        size_t size = dice_below(&dice, 4) ? dice_below(&dice, 64) : dice_below(&dice, MOST + 1);
        if (writes && used + taken(size) <= CAPACITY) {
            cr_assert_eq(write_frame(&pair.writer, size, next), 0);
            sizes[next++ % (CAPACITY / 16)] = size;
            used += taken(size);
        } else if (writes) {
            cr_assert_eq(write_frame(&pair.writer, size, next), -EAGAIN);
        } else if (first < next) {
            size_t expected = sizes[first % (CAPACITY / 16)];
            read_frame(&pair.reader, expected, first++);
            used -= taken(expected);
        } else {
            is_empty(&pair.reader);
        }
    }
    cr_assert_gt(first, 10000);
    ring_pair_finish(&pair);
}

Test(ring, a_frame_is_whole_wherever_it_begins)
{
    struct ring_pair pair;
    const size_t sizes[] = {0, 1, 15, 16, 17, 1000, MOST - 1, MOST};
    uint64_t number = 0;
    ring_pair_init(&pair, CAPACITY);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t begin = 0; begin < CAPACITY; begin += 16) {
            while (pair.writer.head % CAPACITY != begin) {
                cr_assert_eq(write_frame(&pair.writer, 0, number), 0);
                read_frame(&pair.reader, 0, number++);
            }
            cr_assert_eq(write_frame(&pair.writer, sizes[i], number), 0);
            read_frame(&pair.reader, sizes[i], number++);
            is_empty(&pair.reader);
        }
    ring_pair_finish(&pair);
}

Test(ring, larger_frames_than_half_of_it_are_refused)
{
    struct ring_pair pair;
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(ring_frame_most(CAPACITY), MOST);
    cr_assert_eq(write_frame(&pair.writer, MOST + 1, 0), -EMSGSIZE);
    cr_assert_eq(write_frame(&pair.writer, SIZE_MAX, 0), -EMSGSIZE);
    cr_assert_eq(write_frame(&pair.writer, MOST, 0), 0);
    cr_assert_eq(write_frame(&pair.writer, MOST, 1), 0);
    cr_assert_eq(write_frame(&pair.writer, 0, 2), -EAGAIN);
    read_frame(&pair.reader, MOST, 0);
    ring_pair_finish(&pair);
}

Test(ring, nothing_is_seen_of_a_frame_that_is_not_published)
{
    struct ring_pair pair;
    char *bytes, *again;
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(ring_begin(&pair.writer, 100, &bytes), 0);
    memset(bytes, 0x55, 100);
    is_empty(&pair.reader);
    cr_assert_eq(ring_begin(&pair.writer, 200, &again), 0);
    cr_assert_eq(again, bytes);
    frame_fill(again, 200, 7);
    ring_publish(&pair.writer, 7);
    read_frame(&pair.reader, 200, 7);
    is_empty(&pair.reader);
    ring_pair_finish(&pair);
}

Test(ring, who_waits_for_room_gives_up_at_its_deadline)
{
    struct ring_pair pair;
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(write_frame(&pair.writer, MOST, 0), 0);
    cr_assert_eq(write_frame(&pair.writer, MOST, 1), 0);
    uint64_t deadline = clock_now_ns() + 30 * NS_PER_MS;
    cr_assert_eq(ring_await_room(&pair.writer, 0, deadline), -ETIMEDOUT);
    cr_assert_geq(clock_now_ns(), deadline);
    read_frame(&pair.reader, MOST, 0);
    cr_assert_eq(ring_await_room(&pair.writer, MOST, soon()), 0);
    cr_assert_eq(write_frame(&pair.writer, MOST, 2), 0);
    ring_pair_finish(&pair);
}

static void *takes_all(void *data)
{
    struct ring_pair *pair = data;
    for (uint64_t number = 0; number < 20000; number++) {
        uint64_t got_number;
        size_t got_size;
        while (ring_front(&pair->reader, &got_number, &got_size) == -EAGAIN)
            sched_yield();
        read_frame(&pair->reader, number % (MOST + 1), number);
    }
    return NULL;
}

Test(ring, who_waits_for_room_is_woken_when_there_is_some)
{
    struct ring_pair pair;
    pthread_t thread;
    look_late();
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(pthread_create(&thread, NULL, takes_all, &pair), 0);
    for (uint64_t number = 0; number < 20000; number++)
        while (write_frame(&pair.writer, number % (MOST + 1), number) == -EAGAIN)
            cr_assert_eq(ring_await_room(&pair.writer, number % (MOST + 1), soon()), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(pair.writer.room.overslept, 0);
    ring_pair_finish(&pair);
}

/* ---- one that falls asleep just when the other one has something for it ---- */

#define ROUNDS 50000u

static struct bell frames_bell;
static _Atomic unsigned turn;

/* Memory that is far away: a store that follows one to it reaches memory late, unless it waits. */
static void send_away(char *bytes, size_t size)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < size; i += 64)
        __builtin_ia32_clflush(bytes + i);
    __builtin_ia32_mfence();
#else
    (void)bytes;
    (void)size;
#endif
}

/* Until it is this one, and then up to some microseconds. */
static void await_turn(struct dice *dice, unsigned number)
{
    for (unsigned looks = 1; atomic_load(&turn) != number; looks++)
        if (looks % 1024 == 0)
            sched_yield();
    for (uint64_t left = dice_below(dice, 1000); left > 0; left--)
        __asm__ volatile("");
}

static void *writes_in_turn(void *data)
{
    static _Alignas(64) char far[8 * 64];
    struct ring_pair *pair = data;
    struct dice dice = {6};
    char *bytes;
    for (unsigned i = 1; i <= ROUNDS; i++) {
        cr_assert_eq(ring_begin(&pair->writer, 8, &bytes), 0);
        frame_fill(bytes, 8, i);
        send_away(far, sizeof(far));
        await_turn(&dice, i);
        for (size_t k = 0; k < sizeof(far); k += 64)
            ((volatile char *)far)[k] = 1;
        ring_publish(&pair->writer, i);
        bell_ring(&frames_bell);
    }
    return NULL;
}

static bool has_front(void *data)
{
    struct ring_pair *pair = data;
    uint64_t number;
    size_t size;
    return ring_front(&pair->reader, &number, &size) == 0;
}

/* Whoever is waited for comes when the other one is about to sleep, which spinning would hide. */
static void sleep_at_once(struct bell_waiter *waiter)
{
    waiter->spin = (struct bell_spin){.skip = UINT32_MAX};
}

Test(ring, no_frame_is_slept_over, .timeout = 200)
{
    struct ring_pair pair;
    struct bell_waiter waiter;
    pthread_t thread;
    ring_pair_init(&pair, CAPACITY);
    look_late();
    bell_waiter_init(&waiter, &frames_bell, &pair.peers[1]);
    sleep_at_once(&waiter);
    cr_assert_eq(pthread_create(&thread, NULL, writes_in_turn, &pair), 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        atomic_store(&turn, i);
        cr_assert_eq(bell_wait(&waiter, has_front, &pair, soon()), 0);
        read_frame(&pair.reader, 8, i);
    }
    pthread_join(thread, NULL);
    cr_assert_eq(waiter.overslept, 0);
    ring_pair_finish(&pair);
}

static void *reads_in_turn(void *data)
{
    static char buffer[MOST];
    struct ring_pair *pair = data;
    struct dice dice = {7};
    for (unsigned i = 1; i <= ROUNDS; i++) {
        uint64_t number;
        size_t size;
        send_away(buffer, sizeof(buffer));
        await_turn(&dice, i);
        cr_assert_eq(ring_front(&pair->reader, &number, &size), 0);
        cr_assert_eq(number, i);
        ring_take(&pair->reader, buffer);
    }
    return NULL;
}

Test(ring, no_room_is_slept_over, .timeout = 200)
{
    struct ring_pair pair;
    pthread_t thread;
    ring_pair_init(&pair, CAPACITY);
    look_late();
    sleep_at_once(&pair.writer.room);
    cr_assert_eq(pthread_create(&thread, NULL, reads_in_turn, &pair), 0);
    cr_assert_eq(write_frame(&pair.writer, MOST, 1), 0);
    cr_assert_eq(write_frame(&pair.writer, MOST, 2), 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        atomic_store(&turn, i);
        cr_assert_eq(ring_await_room(&pair.writer, MOST, soon()), 0);
        cr_assert_eq(write_frame(&pair.writer, MOST, i + 2), 0);
    }
    pthread_join(thread, NULL);
    cr_assert_eq(pair.writer.room.overslept, 0);
    ring_pair_finish(&pair);
}

/* ---- a peer that writes what it wants ---- */

static const uint64_t lies[] = {0,
                                1,
                                15,
                                16,
                                17,
                                32,
                                48,
                                64,
                                1024,
                                MOST - 1,
                                MOST,
                                MOST + 1,
                                CAPACITY - 16,
                                CAPACITY,
                                CAPACITY + 1,
                                CAPACITY + 16,
                                2 * CAPACITY,
                                UINT32_MAX,
                                UINT64_C(1) << 32,
                                UINT64_C(1) << 63,
                                UINT64_MAX - CAPACITY,
                                UINT64_MAX - 31,
                                UINT64_MAX - 16,
                                UINT64_MAX - 15,
                                UINT64_MAX - 14,
                                UINT64_MAX};

/* Read until it is empty or broken; what is read is no larger than a frame may be. */
static void read_what_there_is(struct ring_reader *reader)
{
    char *buffer = malloc(MOST);
    uint64_t number;
    size_t size;
    int err;
    /* No more frames fit. */
    for (size_t frames = 0; (err = ring_front(reader, &number, &size)) == 0; frames++) {
        cr_assert_leq(size, MOST);
        cr_assert_lt(frames, CAPACITY / 16 + 1);
        ring_take(reader, buffer);
    }
    cr_assert(err == -EAGAIN || err == -EPROTO);
    if (err == -EPROTO) {
        memset(reader->shared, 0, sizeof(*reader->shared));
        cr_assert_eq(ring_front(reader, &number, &size), -EPROTO); /* for good */
    }
    free(buffer);
}

Test(ring, a_reader_survives_any_word_at_any_place)
{
    for (size_t lie = 0; lie < sizeof(lies) / sizeof(lies[0]); lie++)
        for (size_t word = 0; word < 60; word++)
            for (size_t begin = 0; begin < CAPACITY; begin += CAPACITY - 32) {
                struct ring_pair pair;
                ring_pair_init(&pair, CAPACITY);
                while (pair.writer.head % CAPACITY != begin) {
                    cr_assert_eq(write_frame(&pair.writer, 0, 0), 0);
                    read_frame(&pair.reader, 0, 0);
                }
                for (uint64_t i = 0; i < 4; i++)
                    cr_assert_eq(write_frame(&pair.writer, 40 * i, i), 0);
                if (word < 48)
                    ((uint64_t *)pair.shared)[word] = lies[lie];
                else
                    ((uint64_t *)(pair.bytes + begin))[word - 48] = lies[lie];
                read_what_there_is(&pair.reader);
                ring_pair_finish(&pair);
            }
}

Test(ring, a_head_that_cannot_be_breaks_it)
{
    const uint64_t heads[] = {1, 8, CAPACITY + 16, UINT64_MAX - 15, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct ring_pair pair;
        uint64_t number;
        size_t size;
        ring_pair_init(&pair, CAPACITY);
        cr_assert_eq(write_frame(&pair.writer, 0, 0), 0);
        read_frame(&pair.reader, 0, 0);
        atomic_store(&pair.shared->head, 16 + heads[i]);
        cr_assert_eq(ring_front(&pair.reader, &number, &size), -EPROTO);
        ring_pair_finish(&pair);
    }
}

Test(ring, a_size_that_cannot_be_breaks_it)
{
    const uint64_t sizes[] = {65, MOST, MOST + 1, CAPACITY, UINT64_MAX - 15, UINT64_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct ring_pair pair;
        uint64_t number;
        size_t size;
        ring_pair_init(&pair, CAPACITY);
        cr_assert_eq(write_frame(&pair.writer, 64, 0), 0);
        ((uint64_t *)pair.bytes)[1] = sizes[i];
        cr_assert_eq(ring_front(&pair.reader, &number, &size), -EPROTO, "%zu", (size_t)sizes[i]);
        ring_pair_finish(&pair);
    }
}

Test(ring, a_size_counts_as_it_was_when_it_was_read)
{
    struct ring_pair pair;
    uint64_t number;
    size_t size;
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(write_frame(&pair.writer, 64, 3), 0);
    cr_assert_eq(ring_front(&pair.reader, &number, &size), 0);
    ((uint64_t *)pair.bytes)[1] = UINT64_MAX;
    ((uint64_t *)pair.bytes)[0] = 99;
    read_frame(&pair.reader, 64, 3);
    cr_assert_eq(atomic_load(&pair.shared->tail), 80);
    ring_pair_finish(&pair);
}

Test(ring, a_writer_believes_no_tail_that_cannot_be)
{
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct ring_pair pair;
        size_t before = 4 * 16, written = before;
        char *bytes;
        ring_pair_init(&pair, CAPACITY);
        for (uint64_t number = 0; number < 4; number++) {
            cr_assert_eq(write_frame(&pair.writer, 0, number), 0);
            read_frame(&pair.reader, 0, number);
        }
        for (; write_frame(&pair.writer, 0, 0) == 0; written += 16)
            ;
        cr_assert_eq(written, before + CAPACITY);
        atomic_store(&pair.shared->tail, lies[i]);
        int err = ring_begin(&pair.writer, 100, &bytes);
        bool possible = lies[i] >= before && lies[i] <= written;
        bool room = written + 128 - lies[i] <= CAPACITY;
        cr_assert_eq(err, !possible ? -EPROTO : room ? 0 : -EAGAIN, "%zu", (size_t)lies[i]);
        if (err == -EPROTO) {
            cr_assert_eq(ring_await_room(&pair.writer, 100, soon()), -EPROTO);
            atomic_store(&pair.shared->tail, written);
            cr_assert_eq(ring_begin(&pair.writer, 100, &bytes), -EPROTO); /* for good */
        }
        ring_pair_finish(&pair);
    }
}

static atomic_bool stop;

static void *lies_all_the_time(void *data)
{
    struct ring_pair *pair = data;
    struct dice dice = {9};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t lie = lies[dice_below(&dice, sizeof(lies) / sizeof(lies[0]))];
        atomic_store_explicit((_Atomic uint64_t *)(pair->bytes + 8 * dice_below(&dice, 16)), lie,
                              memory_order_relaxed);
    }
    return NULL;
}

/* Each look at a header may find another one. */
Test(ring, a_reader_survives_words_that_change_under_it)
{
#ifdef __SANITIZE_THREAD__
    cases_skip("a race, by intention");
#endif
    struct ring_pair pair;
    pthread_t thread;
    ring_pair_init(&pair, CAPACITY);
    cr_assert_eq(pthread_create(&thread, NULL, lies_all_the_time, &pair), 0);
    for (int i = 0; i < 100000; i++) {
        ring_reader_init(&pair.reader, pair.shared, pair.bytes, CAPACITY);
        atomic_store(&pair.shared->head, CAPACITY);
        char buffer[MOST];
        uint64_t number;
        size_t size;
        while (ring_front(&pair.reader, &number, &size) == 0) {
            cr_assert_leq(size, MOST);
            ring_take(&pair.reader, buffer);
            cr_assert_leq(pair.reader.tail, CAPACITY);
        }
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ring_pair_finish(&pair);
}
