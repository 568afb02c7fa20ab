#ifndef RESEAT_TESTS_REMOTE_RINGS_LINK_RIG_H
#define RESEAT_TESTS_REMOTE_RINGS_LINK_RIG_H

#include "tests/support/cases.h"
#include <stdint.h>

#include "remote/rings/rings.h"
#include "state/base/clock.h"

/* Two ends of a link in one process, or in a process and a child of it. */

/** What is waited for in a test comes much sooner; what hangs fails by it. */
static inline uint64_t soon(void)
{
    return clock_now_ns() + 30 * NS_PER_S;
}

/** Let nobody look by itself while a test may last: then a wake-up that is lost is seen
 * (bell_waiter.overslept), and one that is late, because its thread was, is not taken for such. */
static inline void look_late(void)
{
    bell_look_first_ns = bell_look_most_ns = 20 * NS_PER_S;
}

/** Random numbers, the same in each run. */
struct dice {
    uint64_t state;
};
uint64_t dice_roll(struct dice *dice);
static inline uint64_t dice_below(struct dice *dice, uint64_t limit)
{
    return dice_roll(dice) % limit;
}

/** One end of a connection: @peer owns its socket. */
void connect_peers(struct bell_peer *ret_one, struct bell_peer *ret_other);
void disconnect_peer(struct bell_peer *peer);

/** A ring in memory with nothing before and behind it, with both ends. */
struct ring_pair {
    size_t capacity;
    int fd;
    char *memory; /**< Of the shared part, a page; then the bytes, twice. */
    struct ring_shared *shared;
    char *bytes;
    struct bell_peer peers[2];
    struct ring_writer writer;
    struct ring_reader reader;
};
void ring_pair_init(struct ring_pair *pair, size_t capacity);
void ring_pair_finish(struct ring_pair *pair);

/** A set of rings with both ends, each of which maps it. */
struct rings_pair {
    struct rings_shape shape;
    int fd;
    struct bell_peer peers[2];
    struct rings_writer *writer;
    struct rings_reader *reader;
    void *buffer;
};
/** @count and @capacity as in struct rings_shape. */
void rings_pair_init(struct rings_pair *pair, unsigned count, size_t capacity);
void rings_pair_finish(struct rings_pair *pair);

/** What the bytes of a frame are to be, by who sent it and which one it is. */
void frame_fill(char *bytes, size_t size, uint64_t seed);
bool frame_is(const char *bytes, size_t size, uint64_t seed);

/** Post a frame that is filled so, of at most 64 KiB. */
int post_filled(struct rings_writer *writer, size_t size, uint64_t seed, uint64_t *ret_number);

#endif
