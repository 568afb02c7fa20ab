#include <CL/cl.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/rogue.h"

/* What clients send that break the rules: their own session ends, and no other. */

static struct served served;
static struct rogue good;

static void start(void)
{
    served_start(&served, NULL);
    rogue_begin(&good, &served);
    rogue_make_queue(&good);
    rogue_must_work(&good, 1);
}

static void ends(void)
{
    rogue_ends(&good, &served);
}

TestSuite(remote_server, .init = start, .timeout = 120);

Test(remote_server, another_version_is_refused_with_both_numbers)
{
    char refusal[256] = "";
    struct link *link = rogue_connect(&served);
    cr_assert_eq(rogue_greet(link, WIRE_VERSION + 1, refusal), MSG_REFUSED);
    cr_assert_str_eq(refusal, "the server speaks version 1 and the client 2");
    link->ops->destroy(link);
    ends();
}

Test(remote_server, the_socket_is_its_users_alone)
{
    struct stat stat_of;
    cr_assert_eq(stat(served.address + strlen("unix:"), &stat_of), 0);
    cr_assert_eq(stat_of.st_mode & 0777, 0600);
    ends();
}

Test(remote_server, objects_of_another_session_are_not_there)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    /* `good` has that queue. */
    cr_assert_eq(post_barrier(&rogue.stream, &(struct msg_barrier){.command = {.queue = QUEUE}}),
                 0);
    rogue_must_end(&rogue);
    ends();
}

Test(remote_server, an_id_of_another_type_ends_the_session)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    cr_assert_eq(post_read_buffer(&rogue.stream,
                                  &(struct msg_read_buffer){
                                      .command = {.queue = QUEUE}, .buffer = QUEUE, .size = 1}),
                 0);
    rogue_must_end(&rogue);
    ends();
}

Test(remote_server, a_place_is_not_used_twice)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    rogue_make_queue(&rogue);
    rogue_must_end(&rogue);
    ends();
}

Test(remote_server, there_are_not_more_objects_than_allowed)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    cr_assert_eq(post_create_buffer(
                     &rogue.stream,
                     &(struct msg_create_buffer){.memory = id_make(ID_MEMORY, 0, WIRE_OBJECTS_MAX),
                                                 .context = CONTEXT,
                                                 .size = 64}),
                 0);
    rogue_must_end(&rogue);
    ends();
}

Test(remote_server, sizes_that_overflow_end_the_session)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    cr_assert_eq(post_create_buffer(
                     &rogue.stream,
                     &(struct msg_create_buffer){.memory = BUFFER, .context = CONTEXT, .size = 64}),
                 0);
    cr_assert_eq(
        post_read_rect(&rogue.stream,
                       &(struct msg_read_rect){.command = {.queue = QUEUE},
                                               .buffer = BUFFER,
                                               .region = {1ull << 32, 1ull << 32, 1ull << 32}}),
        0);
    rogue_must_end(&rogue);
    ends();
}

Test(remote_server, content_of_another_size_is_not_read_beyond)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    cr_assert_eq(post_create_buffer(&rogue.stream, &(struct msg_create_buffer){.memory = BUFFER,
                                                                               .context = CONTEXT,
                                                                               .size = 1 << 20,
                                                                               .content = "few",
                                                                               .content_size = 3}),
                 0);
    rogue_must_end(&rogue);
    ends();
}

/* Frames of the right form with anything in them, and anything instead of frames. */
Test(remote_server, noise_ends_only_its_session)
{
    unsigned seed = 1;
    for (int round = 0; round < 24; round++) {
        struct rogue rogue;
        unsigned char noise[300];
        rogue_begin(&rogue, &served);
        rogue_make_queue(&rogue);
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (unsigned char)(rand_r(&seed) >> 7);
        if (round % 2) {
            struct iovec iov = {noise, sizeof(noise)};
            stream_flush(&rogue.stream);
            cr_assert_eq(rogue.stream.link->ops->send(rogue.stream.link, &iov, 1,
                                                      clock_now_ns() + SILENCE_NS),
                         0);
        } else {
            unsigned type = (unsigned)rand_r(&seed) % (MSG_TYPES + 2);
            cr_assert_eq(
                stream_post(&rogue.stream, type, noise, (size_t)rand_r(&seed) % 300, NULL, 0), 0);
            /* One that is taken for a message after all: */
            cr_assert_eq(stream_post(&rogue.stream, 0xffff, NULL, 0, NULL, 0), 0);
        }
        rogue_must_end(&rogue);
    }
    ends();
}
