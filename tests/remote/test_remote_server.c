#include <CL/cl.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages.h"
#include "state/base/clock.h"
#include "tests/remote/served.h"

/* What clients send that break the rules: their own session ends, and no other. */

#define SILENCE_NS (20 * NS_PER_S)

/* A client that says what it likes. */
struct rogue {
    struct stream stream;
    char refusal[256];
};

static struct link *connect_to(const struct served *served)
{
    const char *where = NULL;
    struct link *link = NULL;
    const struct link_kind *kind = link_kind_of(served->address, &where);
    cr_assert_eq(kind->connect(where, clock_now_ns() + SILENCE_NS, &link), 0);
    return link;
}

/* The type of what answers a hello of @version. */
static unsigned greet_with(struct link *link, uint32_t version, uint64_t features,
                           uint64_t *ret_features, char *ret_refusal)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    struct pack pack;
    uint64_t deadline = clock_now_ns() + SILENCE_NS;
    pack_init(&pack);
    pack_hello(&pack, &(struct msg_hello){.version = version, .features = features});
    cr_assert_eq(greeting_send(link, MSG_HELLO, pack.bytes, pack.used, deadline), 0);
    pack_finish(&pack);
    cr_assert_eq(greeting_receive(link, buffer, deadline, &message), 0);
    struct unpack body = {message.body, message.body + message.size, false};
    struct msg_refused refused;
    if (message.type == MSG_REFUSED && unpack_refused(&body, &refused))
        strcpy(ret_refusal, refused.reason);
    struct msg_welcome welcome;
    if (message.type == MSG_WELCOME && unpack_welcome(&body, &welcome))
        *ret_features = welcome.features;
    return message.type;
}

static unsigned greet(struct link *link, uint32_t version, char *ret_refusal)
{
    uint64_t features = 0;
    return greet_with(link, version, 0, &features, ret_refusal);
}

/* Up to the devices. */
static void rogue_begin(struct rogue *rogue, const struct served *served)
{
    struct message message;
    struct link *link = connect_to(served);
    cr_assert_eq(greet(link, WIRE_VERSION, rogue->refusal), MSG_WELCOME, "%s", rogue->refusal);
    cr_assert_eq(stream_init(&rogue->stream, 1 << 20), 0);
    cr_assert(stream_attach(&rogue->stream, link, 0));
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_DEVICES);
}

static void must_end(struct rogue *rogue)
{
    struct message message;
    int error = 0;
    stream_flush(&rogue->stream);
    while (error == 0)
        error = stream_receive(&rogue->stream, SILENCE_NS, &message);
    cr_assert_eq(error, -EPIPE, "it goes on: %d", error);
    stream_finish(&rogue->stream);
}

#define DEVICE  id_make(ID_DEVICE, 0, 0)
#define CONTEXT id_make(ID_CONTEXT, 0, 0)
#define QUEUE   id_make(ID_QUEUE, 0, 0)
#define BUFFER  id_make(ID_MEMORY, 0, 0)
#define EVENT   id_make(ID_EVENT, 0, 0)

static void make_queue(struct rogue *rogue)
{
    const uint64_t device = DEVICE;
    cr_assert_eq(
        post_create_context(&rogue->stream, &(struct msg_create_context){.context = CONTEXT,
                                                                         .devices = &device,
                                                                         .devices_count = 1}),
        0);
    cr_assert_eq(post_create_queue(&rogue->stream, &(struct msg_create_queue){.queue = QUEUE,
                                                                              .context = CONTEXT,
                                                                              .device = DEVICE}),
                 0);
}

/* It still has its device: a marker comes back. */
static void must_work(struct rogue *rogue, uint32_t generation)
{
    struct message message;
    struct msg_done done;
    const uint64_t event = id_make(ID_EVENT, generation, 0);
    cr_assert_eq(
        post_marker(&rogue->stream,
                    &(struct msg_marker){
                        .command = {.queue = QUEUE, .event = event, .purpose = COMMAND_TELL}}),
        0);
    stream_flush(&rogue->stream);
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert_eq(message.type, MSG_DONE);
    cr_assert(unpack_done(&body, &done));
    cr_assert(done.event == event && done.status == CL_COMPLETE);
}

static struct served served;
static struct rogue good;

static void start(void)
{
    served_start(&served, NULL);
    rogue_begin(&good, &served);
    make_queue(&good);
    must_work(&good, 1);
}

/* At the end of each test: what a fixture finds counts for nothing. */
static void ends(void)
{
    must_work(&good, 2);
    stream_finish(&good.stream);
    /* It says how sessions ended once it has seen that they did. */
    for (uint64_t until = clock_now_ns() + SILENCE_NS; served_session(&served);) {
        cr_assert(clock_now_ns() < until, "a session goes on");
        clock_sleep(NS_PER_MS);
    }
    served_stop(&served);
    /* Sessions ended by its rules, not by chance. */
    cr_assert(!served_wrote(&served, " crashed: ") && !served_wrote(&served, "Sanitizer"));
}

TestSuite(remote_server, .init = start, .timeout = 120);

Test(remote_server, another_version_is_refused_with_both_numbers)
{
    char refusal[256] = "";
    struct link *link = connect_to(&served);
    cr_assert_eq(greet(link, WIRE_VERSION + 1, refusal), MSG_REFUSED);
    cr_assert_str_eq(refusal, "the server speaks version 1 and the client 2");
    link->ops->destroy(link);
    ends();
}

/* A later client is served as one of today: it says what more it could, and is told what there is.
 */
Test(remote_server, features_that_it_does_not_know_count_for_nothing)
{
    char refusal[256] = "";
    struct link *link = connect_to(&served);
    uint64_t features = UINT64_MAX;
    cr_assert_eq(
        greet_with(link, WIRE_VERSION, ~WIRE_FEATURES >> 1 & ~WIRE_FEATURES, &features, refusal),
        MSG_WELCOME);
    cr_assert_eq(features & ~WIRE_FEATURES, 0);
    link->ops->destroy(link);
    ends();
}

/* Its sessions are kept from what their user may do, and an environment could lead around that. */
Test(remote_server, only_one_of_isolated_programs_takes_an_environment)
{
    char refusal[256] = "", own[16];
    uint64_t features = 0;
    struct served isolates;
    struct link *link = connect_to(&served);
    cr_assert_eq(greet_with(link, WIRE_VERSION, FEATURE_ENVIRONMENT, &features, refusal),
                 MSG_WELCOME);
    cr_assert_eq(features, 0);
    link->ops->destroy(link);
    snprintf(own, sizeof(own), "%d", getpid());
    served_start(&isolates, (const char *const[]){"--while", own, NULL});
    link = connect_to(&isolates);
    cr_assert_eq(greet_with(link, WIRE_VERSION, FEATURE_ENVIRONMENT, &features, refusal),
                 MSG_WELCOME);
    cr_assert_eq(features, FEATURE_ENVIRONMENT);
    link->ops->destroy(link);
    served_stop(&isolates);
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
    must_end(&rogue);
    ends();
}

Test(remote_server, an_id_of_another_type_ends_the_session)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    make_queue(&rogue);
    cr_assert_eq(post_read_buffer(&rogue.stream,
                                  &(struct msg_read_buffer){
                                      .command = {.queue = QUEUE}, .buffer = QUEUE, .size = 1}),
                 0);
    must_end(&rogue);
    ends();
}

Test(remote_server, a_place_is_not_used_twice)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    make_queue(&rogue);
    make_queue(&rogue);
    must_end(&rogue);
    ends();
}

Test(remote_server, there_are_not_more_objects_than_allowed)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    make_queue(&rogue);
    cr_assert_eq(post_create_buffer(
                     &rogue.stream,
                     &(struct msg_create_buffer){.memory = id_make(ID_MEMORY, 0, WIRE_OBJECTS_MAX),
                                                 .context = CONTEXT,
                                                 .size = 64}),
                 0);
    must_end(&rogue);
    ends();
}

Test(remote_server, sizes_that_overflow_end_the_session)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    make_queue(&rogue);
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
    must_end(&rogue);
    ends();
}

Test(remote_server, content_of_another_size_is_not_read_beyond)
{
    struct rogue rogue;
    rogue_begin(&rogue, &served);
    make_queue(&rogue);
    cr_assert_eq(post_create_buffer(&rogue.stream, &(struct msg_create_buffer){.memory = BUFFER,
                                                                               .context = CONTEXT,
                                                                               .size = 1 << 20,
                                                                               .content = "few",
                                                                               .content_size = 3}),
                 0);
    must_end(&rogue);
    ends();
}

/* Who connects again and again, and says nothing sensible, fills no disk. */
Test(remote_server, what_is_refused_is_logged_up_to_a_bound)
{
    char refusal[256];
    uint64_t began = clock_now_ns();
    for (int i = 0; i < 300; i++) {
        struct link *link = connect_to(&served);
        cr_assert_eq(greet(link, WIRE_VERSION + 1, refusal), MSG_REFUSED);
        link->ops->destroy(link);
    }
    unsigned seconds = (unsigned)((clock_now_ns() - began) / NS_PER_S) + 1;
    cr_assert(served_wrote(&served, " refused: "));
    cr_assert_leq(served_lines(&served), 2 * (100 + seconds) + 20);
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
        make_queue(&rogue);
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
        must_end(&rogue);
    }
    ends();
}
