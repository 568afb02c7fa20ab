#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "remote/rings/rings_stream.h"
#include "tests/remote/rings/link_rig.h"

#define CAPACITY ((size_t)4096)
#define ALL      ((size_t)300000)
#define PARTS    40u

static struct rings_pair pair;
static struct rings_stream stream;
static char sent[ALL], received[ALL];

static void begin(void)
{
    rings_pair_init(&pair, 2, CAPACITY);
    cr_assert_eq(rings_stream_init(&stream, &pair.shape, pair.writer, pair.reader), 0);
    frame_fill(sent, ALL, 1);
}

static void end(void)
{
    rings_stream_finish(&stream);
    rings_pair_finish(&pair);
}

TestSuite(rings_stream, .init = begin, .fini = end, .timeout = 100);

/* In pieces of all sizes, each of up to PARTS parts, some empty, some larger than the ring. */
static void *sends_all(void *data)
{
    struct dice dice = {2};
    size_t at = 0;
    (void)data;
    while (at < ALL) {
        struct iovec parts[PARTS];
        unsigned count = (unsigned)dice_below(&dice, PARTS + 1);
        for (unsigned i = 0; i < count; i++) {
            size_t size = dice_below(&dice, dice_below(&dice, 40) ? 100 : 3 * CAPACITY);
            size = i % 5 == 4 ? 0 : size < ALL - at ? size : ALL - at;
            parts[i] = (struct iovec){size ? sent + at : NULL, size};
            at += size;
        }
        cr_assert_eq(rings_stream_send(&stream, parts, count, soon()), 0);
    }
    return NULL;
}

Test(rings_stream, what_is_received_is_what_was_sent)
{
    struct dice dice = {3};
    pthread_t thread;
    size_t got;
    cr_assert_eq(pthread_create(&thread, NULL, sends_all, NULL), 0);
    for (size_t at = 0; at < ALL; at += got) {
        size_t size = 1 + dice_below(&dice, ALL - at < 5000 ? ALL - at : 5000);
        cr_assert_eq(rings_stream_receive(&stream, received + at, size, soon(), &got), 0);
        cr_assert(got > 0 && got <= size);
    }
    pthread_join(thread, NULL);
    cr_assert(frame_is(received, ALL, 1));
    cr_assert_eq(rings_stream_receive(&stream, received, 1, clock_now_ns() + 1, &got), -ETIMEDOUT);
}

Test(rings_stream, an_end_comes_behind_what_was_sent)
{
    const struct iovec part = {sent, 100};
    size_t got;
    cr_assert_eq(rings_stream_send(&stream, &part, 1, soon()), 0);
    disconnect_peer(&pair.peers[0]);
    cr_assert_eq(rings_stream_receive(&stream, received, 60, soon(), &got), 0);
    cr_assert_eq(got, 60);
    cr_assert_eq(rings_stream_receive(&stream, received + 60, 60, soon(), &got), 0);
    cr_assert_eq(got, 40);
    cr_assert(frame_is(received, 100, 1));
    cr_assert_eq(rings_stream_receive(&stream, received, 1, soon(), &got), -EPIPE);
}

Test(rings_stream, a_peer_that_takes_nothing_is_waited_for_until_the_deadline)
{
    const struct iovec part = {sent, ALL};
    cr_assert_eq(rings_stream_send(&stream, &part, 1, clock_now_ns() + 20 * NS_PER_MS), -ETIMEDOUT);
}
