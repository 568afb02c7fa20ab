#include "tests/remote/rings/link_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/rings/area.h"

uint64_t dice_roll(struct dice *dice)
{
    uint64_t x = dice->state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void connect_peers(struct bell_peer *ret_one, struct bell_peer *ret_other)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *ret_one = (struct bell_peer){.socket = OWNED_NONE};
    *ret_other = (struct bell_peer){.socket = OWNED_NONE};
    cr_assert_eq(owned_take(ends[0], &ret_one->socket), 0);
    cr_assert_eq(owned_take(ends[1], &ret_other->socket), 0);
}

void disconnect_peer(struct bell_peer *peer)
{
    owned_close(&peer->socket);
}

void ring_pair_init(struct ring_pair *pair, size_t capacity)
{
    const size_t page = area_page();
    *pair = (struct ring_pair){.capacity = capacity};
    connect_peers(&pair->peers[0], &pair->peers[1]);
    cr_assert_eq(area_create("test", page + capacity, &pair->fd), 0);
    cr_assert_eq(area_check(pair->fd, page + capacity), 0);
    /* A page on either side that nobody may touch. */
    cr_assert_eq(area_reserve(3 * page + 2 * capacity, &pair->memory), 0);
    pair->shared = (struct ring_shared *)(pair->memory + page);
    pair->bytes = pair->memory + 2 * page;
    cr_assert_eq(area_map_at(pair->fd, 0, page + capacity, pair->memory + page), 0);
    cr_assert_eq(area_map_at(pair->fd, page, capacity, pair->bytes + capacity), 0);
    ring_writer_init(&pair->writer, pair->shared, pair->bytes, capacity, &pair->peers[0]);
    ring_reader_init(&pair->reader, pair->shared, pair->bytes, capacity);
}

void ring_pair_finish(struct ring_pair *pair)
{
    area_unmap(pair->memory, 3 * area_page() + 2 * pair->capacity);
    close(pair->fd);
    disconnect_peer(&pair->peers[0]);
    disconnect_peer(&pair->peers[1]);
}

void rings_pair_init(struct rings_pair *pair, unsigned count, size_t capacity)
{
    *pair = (struct rings_pair){.shape = {.count = count, .capacity = capacity}};
    connect_peers(&pair->peers[0], &pair->peers[1]);
    cr_assert_eq(area_create("test", rings_size(&pair->shape), &pair->fd), 0);
    cr_assert_eq(rings_writer_create(&pair->shape, pair->fd, &pair->peers[0], &pair->writer), 0);
    cr_assert_eq(rings_reader_create(&pair->shape, pair->fd, &pair->peers[1], &pair->reader), 0);
    pair->buffer = malloc(rings_frame_most(&pair->shape));
    cr_assert_not_null(pair->buffer);
}

void rings_pair_finish(struct rings_pair *pair)
{
    rings_writer_destroy(pair->writer);
    rings_reader_destroy(pair->reader);
    free(pair->buffer);
    close(pair->fd);
    disconnect_peer(&pair->peers[0]);
    disconnect_peer(&pair->peers[1]);
}

void frame_fill(char *bytes, size_t size, uint64_t seed)
{
    struct dice dice = {seed};
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0)
            word = dice_roll(&dice);
        bytes[i] = (char)(word >> (i % 8 * 8));
    }
}

bool frame_is(const char *bytes, size_t size, uint64_t seed)
{
    char *expected = malloc(size + 1);
    cr_assert_not_null(expected);
    frame_fill(expected, size, seed);
    bool is = memcmp(bytes, expected, size) == 0;
    free(expected);
    return is;
}

int post_filled(struct rings_writer *writer, size_t size, uint64_t seed, uint64_t *ret_number)
{
    char bytes[64 << 10];
    cr_assert_leq(size, sizeof(bytes));
    frame_fill(bytes, size, seed);
    /* In parts, of which one is empty. */
    size_t first = size / 3;
    const struct iovec parts[] = {{bytes, first}, {NULL, 0}, {bytes + first, size - first}};
    return rings_post(writer, parts, 3, soon(), ret_number);
}
