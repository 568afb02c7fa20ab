#include "tests/remote/rogue.h"
#include "remote/wire/stream.h"

#include "tests/support/cases.h"
#include <errno.h>
#include <string.h>

struct link *rogue_connect(const struct served *served)
{
    const char *where = NULL;
    struct link *link = NULL;
    const struct link_kind *kind = link_kind_of(served->address, &where);
    cr_assert_eq(kind->connect(where, NULL, clock_now_ns() + SILENCE_NS, &link), 0);
    return link;
}

unsigned rogue_greet_with(struct link *link, uint32_t version, uint64_t features,
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

unsigned rogue_greet(struct link *link, uint32_t version, char *ret_refusal)
{
    uint64_t features = 0;
    return rogue_greet_with(link, version, 0, &features, ret_refusal);
}

void rogue_begin(struct rogue *rogue, const struct served *served)
{
    struct message message;
    struct link *link = rogue_connect(served);
    cr_assert_eq(rogue_greet(link, WIRE_VERSION, rogue->refusal), MSG_WELCOME, "%s",
                 rogue->refusal);
    cr_assert_eq(stream_init(&rogue->stream, 1 << 20), 0);
    cr_assert(stream_attach(&rogue->stream, link, 0));
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_DEVICES);
}

void rogue_must_end(struct rogue *rogue)
{
    const uint64_t event = id_make(ID_EVENT, 77, 0);
    struct message message;
    struct msg_done done;
    int error = 0;
    /* It would be told of that one, if it went on. */
    if (rogue->has_queue)
        (void)!post_marker(
            &rogue->stream,
            &(struct msg_marker){
                .command = {.queue = QUEUE, .event = event, .purpose = COMMAND_TELL}});
    stream_flush(&rogue->stream);
    while ((error = stream_receive(&rogue->stream, SILENCE_NS, &message)) == 0) {
        struct unpack body = {message.body, message.body + message.size, false};
        if (message.type == MSG_DONE && unpack_done(&body, &done))
            cr_assert_neq(done.event, event, "it goes on");
    }
    cr_assert_eq(error, -EPIPE, "it goes on: %d", error);
    stream_finish(&rogue->stream);
}

void rogue_make_queue(struct rogue *rogue)
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
    rogue->has_queue = true;
}

void rogue_must_work(struct rogue *rogue, uint32_t generation)
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

void rogue_make_buffer(struct rogue *rogue, uint64_t size)
{
    cr_assert_eq(post_create_buffer(&rogue->stream, &(struct msg_create_buffer){.memory = BUFFER,
                                                                                .context = CONTEXT,
                                                                                .size = size}),
                 0);
}

cl_int rogue_answer(struct rogue *rogue, unsigned type)
{
    struct message message;
    struct msg_reply reply;
    struct msg_done done;
    stream_flush(&rogue->stream);
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, type, "it is %s", message_name(message.type));
    struct unpack body = {message.body, message.body + message.size, false};
    if (type == MSG_REPLY) {
        cr_assert(unpack_reply(&body, &reply));
        return reply.error;
    }
    cr_assert(unpack_done(&body, &done));
    return done.status;
}

void rogue_make_kernel(struct rogue *rogue, const char *source)
{
    const uint64_t device = DEVICE;
    cr_assert_eq(post_create_source(&rogue->stream,
                                    &(struct msg_create_source){.program = PROGRAM,
                                                                .context = CONTEXT,
                                                                .source = source,
                                                                .source_size = strlen(source)}),
                 0);
    cr_assert_eq(post_build(&rogue->stream, &(struct msg_build){.program = PROGRAM,
                                                                .call = CALL,
                                                                .devices = &device,
                                                                .devices_count = 1,
                                                                .options = ""}),
                 0);
    cr_assert_eq(rogue_answer(rogue, MSG_REPLY), CL_SUCCESS);
    cr_assert_eq(post_create_kernel(&rogue->stream, &(struct msg_create_kernel){.kernel = KERNEL,
                                                                                .program = PROGRAM,
                                                                                .call = CALL,
                                                                                .name = "one"}),
                 0);
    cr_assert_eq(rogue_answer(rogue, MSG_REPLY), CL_SUCCESS);
}

void rogue_ends(struct rogue *good, struct served *served)
{
    rogue_must_work(good, 2);
    stream_finish(&good->stream);
    /* It says how sessions ended once it has seen that they did. */
    for (uint64_t until = clock_now_ns() + SILENCE_NS; served_session(served);) {
        cr_assert(clock_now_ns() < until, "a session goes on");
        clock_sleep(NS_PER_MS);
    }
    served_stop(served);
    /* Sessions ended by its rules, not by chance. */
    cr_assert(!served_wrote(served, " crashed: "));
}
