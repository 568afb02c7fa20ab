#include "remote/link/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include <linux/vm_sockets.h>

#define V4 1
#define V6 2
#define VM 3

/** Where somebody comes from, as far as it is one place. The rest is zero: this machine. */
static void door_read_source(const struct sockaddr *from, unsigned char ret_source[10])
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

    memset(ret_source, 0, 10);
    if (from->sa_family == AF_INET) {
        ret_source[0] = V4;
        memcpy(ret_source + 1, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        ret_source[0] = V4;
        memcpy(ret_source + 1, v6->sin6_addr.s6_addr + 12, 4);
    } else if (from->sa_family == AF_INET6) {
        ret_source[0] = V6;
        memcpy(ret_source + 1, v6->sin6_addr.s6_addr, 8);
    } else if (from->sa_family == AF_VSOCK) {
        ret_source[0] = VM;
        memcpy(ret_source + 1, &((const struct sockaddr_vm *)from)->svm_cid, 4);
    }
}

static size_t door_count_of(const struct door *door, const unsigned char source[10])
{
    size_t count = 0;

    for (size_t i = 0; i < door->count; i++)
        count += memcmp(door->strangers[i].source, source, 10) == 0;
    return count;
}

/** The first to have come of a source. They are in the order in which they came. */
static const struct door_stranger *door_oldest_of(const struct door *door,
                                                  const unsigned char source[10])
{
    for (size_t i = 0; i < door->count; i++)
        if (memcmp(door->strangers[i].source, source, 10) == 0)
            return &door->strangers[i];
    return NULL;
}

/** The oldest of those who are most. */
static const struct door_stranger *door_oldest_of_most(const struct door *door)
{
    const struct door_stranger *found = &door->strangers[0];

    for (size_t i = 1; i < door->count; i++)
        if (door_count_of(door, door->strangers[i].source) > door_count_of(door, found->source))
            found = &door->strangers[i];
    return found;
}

int door_enter(struct door *door, const struct sockaddr *from, uint64_t now_ns, uint64_t *ret_id,
               uint64_t *ret_leaves)
{
    const struct door_stranger *leaves = NULL;
    struct door_stranger stranger = {.id = door->last_id + 1, .since_ns = now_ns};
    bool may_stay = true;

    door_read_source(from, stranger.source);
    size_t count = door_count_of(door, stranger.source);
    if (count >= DOOR_SOURCE_MAX) {
        leaves = door_oldest_of(door, stranger.source);
    } else if (door->count == DOOR_MAX) {
        leaves = door_oldest_of_most(door);
        may_stay = door_count_of(door, leaves->source) <= count + 1;
    }
    if (leaves && may_stay && now_ns - leaves->since_ns < DOOR_TURN_NS)
        return -EBUSY;
    *ret_leaves = leaves ? leaves->id : 0;
    door_leave(door, *ret_leaves);
    door->strangers[door->count++] = stranger;
    door->last_id = stranger.id;
    *ret_id = stranger.id;
    return 0;
}

void door_leave(struct door *door, uint64_t id)
{
    for (size_t i = 0; i < door->count; i++) {
        if (door->strangers[i].id != id)
            continue;
        door->count--;
        memmove(&door->strangers[i], &door->strangers[i + 1],
                (door->count - i) * sizeof(door->strangers[0]));
        return;
    }
}
