#include "remote/link/preauth.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include <linux/vm_sockets.h>

#define V4 1
#define V6 2
#define VM 3

/** The source of a connection, as preauth.h counts them. All zero: this machine. */
static void preauth_read_source(const struct sockaddr *from, unsigned char ret_source[10])
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

static size_t preauth_count_of(const struct preauth *preauth, const unsigned char source[10])
{
    size_t count = 0;

    for (size_t i = 0; i < preauth->count; i++)
        count += memcmp(preauth->strangers[i].source, source, 10) == 0;
    return count;
}

/** The oldest stranger of a source; strangers are stored in the order in which they came. */
static const struct preauth_stranger *preauth_oldest_of(const struct preauth *preauth,
                                                        const unsigned char source[10])
{
    for (size_t i = 0; i < preauth->count; i++)
        if (memcmp(preauth->strangers[i].source, source, 10) == 0)
            return &preauth->strangers[i];
    return NULL;
}

/** The oldest stranger of the source that has the most. */
static const struct preauth_stranger *preauth_oldest_of_most(const struct preauth *preauth)
{
    const struct preauth_stranger *found = &preauth->strangers[0];

    for (size_t i = 1; i < preauth->count; i++)
        if (preauth_count_of(preauth, preauth->strangers[i].source) >
            preauth_count_of(preauth, found->source))
            found = &preauth->strangers[i];
    return found;
}

int preauth_enter(struct preauth *preauth, const struct sockaddr *from, uint64_t now_ns,
                  uint64_t *ret_id, uint64_t *ret_leaves)
{
    const struct preauth_stranger *leaves = NULL;
    struct preauth_stranger stranger = {.id = preauth->last_id + 1, .since_ns = now_ns};
    bool may_stay = true;

    preauth_read_source(from, stranger.source);
    size_t count = preauth_count_of(preauth, stranger.source);
    if (count >= PREAUTH_SOURCE_MAX) {
        leaves = preauth_oldest_of(preauth, stranger.source);
    } else if (preauth->count == PREAUTH_MAX) {
        leaves = preauth_oldest_of_most(preauth);
        may_stay = preauth_count_of(preauth, leaves->source) <= count + 1;
    }
    if (leaves && may_stay && now_ns - leaves->since_ns < PREAUTH_TURN_NS)
        return -EBUSY;
    *ret_leaves = leaves ? leaves->id : 0;
    preauth_leave(preauth, *ret_leaves);
    preauth->strangers[preauth->count++] = stranger;
    preauth->last_id = stranger.id;
    *ret_id = stranger.id;
    return 0;
}

void preauth_leave(struct preauth *preauth, uint64_t id)
{
    for (size_t i = 0; i < preauth->count; i++) {
        if (preauth->strangers[i].id != id)
            continue;
        preauth->count--;
        memmove(&preauth->strangers[i], &preauth->strangers[i + 1],
                (preauth->count - i) * sizeof(preauth->strangers[0]));
        return;
    }
}
