#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "remote/server/session/binary.h"
#include "remote/server/session/peer_copy.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

/* A session's process, which is given anything as the binary that it asks for. This test is the
   listening process. */

TestSuite(binary, .timeout = 60);

#define SIZE  ((size_t)1 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static struct server server = {.keeps = true};
static int channel;
static unsigned char name[CONTENT_HASH_SIZE];

static cl_int replies[4]; /* By call. */

void server_reply(struct server *of, uint64_t call, cl_int error, const void *content, size_t size)
{
    (void)of, (void)content, (void)size;
    replies[call] = error;
}

void server_wrong(struct server *of, const char *why)
{
    of->wrong = why;
}

/* The peer copies that were begun, which the test plays. */
static struct played {
    const struct peer_copy_bytes *bytes;
    void *data;
    uint64_t size;
    bool gives;
} played[4];
static unsigned played_count;

cl_int peer_copy_begin_bytes(const struct peer_copy_wish *wish, const struct peer_copy_bytes *bytes,
                             void *data)
{
    played[played_count++] = (struct played){bytes, data, wish->size, wish->gives};
    return CL_SUCCESS;
}

static void start(void)
{
    int ends[2];
    cr_assert_eq(channel_make(ends), 0);
    server.channel = ends[0];
    channel = ends[1];
}

static void hear(struct channel_message *ret_word, int *ret_fd)
{
    cr_assert_eq(channel_wait(channel, clock_now_ns() + 30 * NS_PER_S), 0);
    cr_assert_eq(channel_receive(channel, ret_word, sizeof(*ret_word), ret_fd), 0);
}

/* Keep one; what the listening process is told of it. */
static int keep(void)
{
    struct channel_message message;
    int fd = -1;
    unsigned char *bytes = calloc(1, SIZE);
    cr_assert(bytes);
    bytes[SIZE - 1] = 7;
    binary_keep_bytes(&server, bytes, SIZE);
    free(bytes);
    hear(&message, &fd);
    cr_assert_eq(message.kind, CHANNEL_KEEP);
    cr_assert(fd >= 0);
    memcpy(name, message.name, sizeof(name));
    return fd;
}

/* What is answered: a descriptor, and a name of another one if so. */
struct answer {
    int fd;
    bool other_first;
};

static void *answer(void *data)
{
    const struct answer *with = data;
    struct channel_message message;
    int none = -1;
    hear(&message, &none);
    cr_assert_eq(message.kind, CHANNEL_SEEK);
    cr_assert_eq(memcmp(message.name, name, sizeof(name)), 0);
    message.kind = CHANNEL_KEPT;
    if (with->other_first) {
        struct channel_message other = message;
        other.name[0] ^= 1;
        binary_told(&other, -1);
    }
    binary_told(&message, with->fd);
    return NULL;
}

static int find(int fd, bool other_first, struct binary *ret_binary)
{
    struct answer with = {fd, other_first};
    pthread_t thread;
    cr_assert_eq(thread_start("listener", 0, answer, &with, &thread), 0);
    int error = binary_find(&server, name, ret_binary);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    return error;
}

static int copy(unsigned char last, size_t size, int seals)
{
    int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    unsigned char *bytes = calloc(1, size);
    cr_assert(other >= 0 && bytes);
    bytes[size - 1] = last;
    cr_assert_eq(write(other, bytes, size), (ssize_t)size);
    free(bytes);
    cr_assert_eq(fcntl(other, F_ADD_SEALS, seals), 0);
    return other;
}

static void must_find(int fd, bool other_first)
{
    struct binary binary;
    cr_assert_eq(find(fd, other_first, &binary), 0);
    cr_expect_eq(binary.size, SIZE);
    cr_expect(binary.bytes[0] == 0 && binary.bytes[SIZE - 1] == 7);
    binary_close(&binary);
}

Test(binary, is_found_as_it_was_kept, .init = start)
{
    int fd = keep();
    cr_expect_neq(write(fd, "x", 1), 1, "it can be changed");
    must_find(fd, false);
}

Test(binary, that_is_not_what_its_name_says_is_not_used, .init = start)
{
    struct binary binary;
    int fd = keep();
    cr_expect_eq(find(copy(8, SIZE, SEALS), false, &binary), -ENOENT, "another content");
    cr_expect_eq(find(copy(7, SIZE + 1, SEALS), false, &binary), -ENOENT, "another size");
    cr_expect_eq(find(copy(7, SIZE, SEALS & ~F_SEAL_WRITE), false, &binary), -ENOENT,
                 "it can be changed after it was looked at");
    cr_expect_eq(find(copy(7, SIZE, SEALS & ~F_SEAL_SHRINK), false, &binary), -ENOENT,
                 "reading it may fail");
    cr_expect_eq(find(-1, false, &binary), -ENOENT, "there is none");
    must_find(copy(7, SIZE, SEALS), false);
    close(fd);
}

/* An answer that comes late is to another question. */
TestCall(binary, of_another_name_is_no_answer, must_find(keep(), true), .init = start);

Test(binary, of_a_client_that_did_not_ask_for_it_is_not_kept, .init = start)
{
    static const unsigned char bytes[SIZE];
    struct channel_message message;
    server.keeps = false;
    binary_keep_bytes(&server, bytes, SIZE);
    server.keeps = true;
    binary_keep_bytes(&server, bytes, WIRE_BINARY_MIN - 1);
    cr_expect_eq(channel_receive(channel, &message, sizeof(message), NULL), -EAGAIN);
}

/* ---- in parts ---- */

static unsigned char whole[SIZE];

static void make_whole(void)
{
    start();
    for (size_t i = 0; i < SIZE; i++)
        whole[i] = (unsigned char)(i * 31 >> 3);
    content_hash_of(whole, SIZE, name);
    for (size_t i = 0; i < 4; i++)
        replies[i] = 1;
}

/* The client sends a part. */
static void send_part(size_t at, size_t size)
{
    server_send_binary(&server, &(struct msg_send_binary){.call = 3,
                                                          .name = name,
                                                          .name_size = sizeof(name),
                                                          .size = SIZE,
                                                          .offset = at,
                                                          .part = whole + at,
                                                          .part_size = size});
}

static struct played *give(uint64_t call)
{
    server_give_binary(&server, &(struct msg_give_binary){.call = call,
                                                          .name = name,
                                                          .name_size = sizeof(name),
                                                          .peer = {.way = TRANSFER_AWAIT}});
    cr_assert_gt(played_count, 0);
    cr_assert(played[played_count - 1].gives);
    return &played[played_count - 1];
}

static struct played *take(uint64_t call)
{
    server_take_binary(&server, &(struct msg_take_binary){.call = call,
                                                          .name = name,
                                                          .name_size = sizeof(name),
                                                          .size = SIZE,
                                                          .peer = {.way = TRANSFER_CONNECT}});
    cr_assert(played_count > 0 && !played[played_count - 1].gives);
    return &played[played_count - 1];
}

static void must_read(const struct played *giving, size_t at, size_t wanted)
{
    static unsigned char got[SIZE];
    size_t size = 99;
    cr_assert_eq(giving->bytes->read(giving->data, at, got, SIZE, &size), CL_SUCCESS);
    cr_assert_eq(size, wanted);
    cr_assert_eq(memcmp(got, whole + at, size), 0);
}

static bool is_kept(void)
{
    struct channel_message message;
    int fd = -1;
    if (channel_receive(channel, &message, sizeof(message), &fd))
        return false;
    cr_assert(message.kind == CHANNEL_KEEP && memcmp(message.name, name, sizeof(name)) == 0);
    close(fd);
    return true;
}

Test(binary, that_the_client_sends_is_given_on_while_it_comes, .init = make_whole)
{
    send_part(0, SIZE / 4);
    struct played *giving = give(0);
    cr_assert_eq(giving->size, SIZE);
    must_read(giving, 0, SIZE / 4);
    must_read(giving, SIZE / 4, 0);
    cr_assert(!is_kept());
    send_part(SIZE / 4, SIZE / 4);
    must_read(giving, SIZE / 4, SIZE / 4);
    send_part(SIZE / 2, SIZE / 2);
    cr_assert(is_kept());
    must_read(giving, SIZE / 2, SIZE / 2); /* Also when it is sealed. */
    giving->bytes->done(giving->data, CL_SUCCESS);
    cr_assert_eq(replies[0], CL_SUCCESS);
}

Test(binary, that_another_server_gives_is_given_on_while_it_comes, .init = make_whole)
{
    struct played *taking = take(0), *giving = give(1);
    taking->bytes->write(taking->data, 0, whole, 4096);
    must_read(giving, 0, 4096);
    taking->bytes->write(taking->data, 4096, whole + 4096, SIZE - 4096);
    taking->bytes->done(taking->data, CL_SUCCESS);
    cr_assert_eq(replies[0], CL_SUCCESS);
    cr_assert(is_kept());
    must_read(giving, 4096, SIZE - 4096);
    giving->bytes->done(giving->data, CL_SUCCESS);
    cr_assert_eq(replies[1], CL_SUCCESS);
}

/* Those behind are told that it is lacking here, so that they get it another way. */
Test(binary, of_which_the_rest_never_comes_is_lacking, .init = make_whole)
{
    unsigned char got[4096];
    size_t size;
    struct played *taking = take(0), *giving = give(1);
    taking->bytes->write(taking->data, 0, whole, 4096);
    taking->bytes->done(taking->data, CL_OUT_OF_RESOURCES);
    cr_assert_eq(replies[0], CL_OUT_OF_RESOURCES);
    cr_assert(!is_kept());
    cr_assert_eq(giving->bytes->read(giving->data, 4096, got, sizeof(got), &size), BINARY_LACKING);
    giving->bytes->done(giving->data, BINARY_LACKING);
    cr_assert_eq(replies[1], BINARY_LACKING);
    /* It can be had again. */
    taking = take(2);
    taking->bytes->write(taking->data, 0, whole, SIZE);
    taking->bytes->done(taking->data, CL_SUCCESS);
    cr_assert_eq(replies[2], CL_SUCCESS);
    cr_assert(is_kept());
}

Test(binary, that_the_client_begins_anew_is_lacking_to_who_was_given_the_first, .init = make_whole)
{
    unsigned char got[4096];
    size_t size;
    send_part(0, SIZE / 4);
    struct played *giving = give(0);
    send_part(0, SIZE / 2);
    cr_assert_eq(replies[3], CL_SUCCESS);
    cr_assert_eq(giving->bytes->read(giving->data, SIZE / 4, got, sizeof(got), &size),
                 BINARY_LACKING);
    giving->bytes->done(giving->data, BINARY_LACKING);
    send_part(SIZE / 2, SIZE / 2);
    cr_assert(is_kept());
}

Test(binary, with_a_wrong_digest_is_not_kept, .init = make_whole)
{
    name[0] ^= 1;
    struct played *taking = take(0);
    taking->bytes->write(taking->data, 0, whole, SIZE);
    taking->bytes->done(taking->data, CL_SUCCESS);
    cr_assert_eq(replies[0], CL_INVALID_BINARY);
    send_part(0, SIZE / 2);
    send_part(SIZE / 2, SIZE / 2);
    cr_assert_eq(replies[3], CL_INVALID_BINARY);
    cr_assert(!is_kept());
}

Test(binary, of_which_a_part_is_left_out_is_not_kept, .init = make_whole)
{
    send_part(0, SIZE / 4);
    send_part(SIZE / 2, SIZE / 2);
    cr_assert_eq(replies[3], CL_OUT_OF_RESOURCES);
    cr_assert(!is_kept());
    cr_assert_null(server.wrong);
    send_part(SIZE / 2, SIZE / 2 + 1);
    cr_assert_not_null(server.wrong, "a part beyond the end");
}
