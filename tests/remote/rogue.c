#include "tests/remote/rogue.h"

#include <errno.h>

#include "tests/support/calls.h"
#include "tests/support/comes.h"

struct link *rogue_dial(const struct served *served)
{
    const char *where = NULL;
    struct link *link = NULL;
    const struct link_kind *kind = link_kind_of(served->address, &where);
    return kind->connect(where, NULL, clock_now_ns() + SILENCE_NS, &link) ? NULL : link;
}

struct link *rogue_connect(const struct served *served)
{
    struct link *link = rogue_dial(served);
    cr_assert(link);
    return link;
}

void rogue_say(struct link *link, struct msg_hello hello)
{
    struct pack pack;
    pack_init(&pack);
    pack_hello(&pack, &hello);
    cr_assert_eq(greeting_send(link, MSG_HELLO, pack.bytes, pack.used, clock_now_ns() + SILENCE_NS),
                 0);
    pack_finish(&pack);
}

unsigned rogue_hello(struct link *link, struct msg_hello hello, struct rogue_greeted *ret)
{
    struct message message;
    struct msg_refused refused;
    rogue_say(link, hello);
    if (greeting_receive(link, ret->buffer, clock_now_ns() + SILENCE_NS, &message))
        return 0;
    struct unpack body = {message.body, message.body + message.size, false};
    if (message.type == MSG_REFUSED && unpack_refused(&body, &refused))
        snprintf(ret->refusal, sizeof(ret->refusal), "%s", refused.reason);
    else
        cr_assert(message.type == MSG_WELCOME && unpack_welcome(&body, &ret->welcome));
    return message.type;
}

void rogue_attach(struct stream *stream, struct link *link)
{
    struct message message;
    cr_assert_eq(stream_init(stream, 1 << 20), 0);
    cr_assert(stream_attach(stream, link, 0));
    cr_assert_eq(stream_receive(stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_DEVICES);
}

void rogue_begin(struct rogue *rogue, const struct served *served)
{
    struct rogue_greeted greeted;
    struct link *link = rogue_connect(served);
    cr_assert_eq(rogue_hello(link, (struct msg_hello){.version = WIRE_VERSION}, &greeted),
                 MSG_WELCOME, "%s", greeted.refusal);
    rogue_attach(&rogue->stream, link);
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
    /* -ECANCELED: the stream's own thread found that out, and shut the link down. */
    cr_assert(error == -EPIPE || error == -ECANCELED, "it goes on: %d", error);
    stream_finish(&rogue->stream);
}

void rogue_make_queue(struct rogue *rogue)
{
    const uint64_t device = DEVICE;
    POST(&rogue->stream, create_context, .context = CONTEXT, .devices = &device,
         .devices_count = 1);
    POST(&rogue->stream, create_queue, .queue = QUEUE, .context = CONTEXT, .device = DEVICE);
    rogue->has_queue = true;
}

struct msg_done rogue_done(struct stream *stream)
{
    struct message message;
    struct msg_done done;
    cr_assert_eq(stream_receive(stream, SILENCE_NS, &message), 0);
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert_eq(message.type, MSG_DONE, "it is %s", message_name(message.type));
    cr_assert(unpack_done(&body, &done));
    return done;
}

void rogue_must_work(struct rogue *rogue, uint32_t generation)
{
    const uint64_t event = id_make(ID_EVENT, generation, 0);
    POST(&rogue->stream, marker,
         .command = {.queue = QUEUE, .event = event, .purpose = COMMAND_TELL});
    stream_flush(&rogue->stream);
    struct msg_done done = rogue_done(&rogue->stream);
    cr_assert(done.event == event && done.status == CL_COMPLETE);
}

void rogue_make_buffer(struct rogue *rogue, uint64_t size)
{
    POST(&rogue->stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .size = size);
}

cl_int rogue_answer(struct rogue *rogue, unsigned type)
{
    struct message message;
    struct msg_reply reply;
    stream_flush(&rogue->stream);
    if (type == MSG_DONE)
        return rogue_done(&rogue->stream).status;
    cr_assert_eq(stream_receive(&rogue->stream, SILENCE_NS, &message), 0);
    cr_assert_eq(message.type, MSG_REPLY, "it is %s", message_name(message.type));
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert(unpack_reply(&body, &reply));
    return reply.error;
}

void rogue_make_kernel(struct rogue *rogue, const char *source)
{
    const uint64_t device = DEVICE;
    POST(&rogue->stream, create_source, .program = PROGRAM, .context = CONTEXT, .source = source,
         .source_size = strlen(source));
    POST(&rogue->stream, build, .program = PROGRAM, .call = CALL, .devices = &device,
         .devices_count = 1, .options = "");
    OK(rogue_answer(rogue, MSG_REPLY));
    POST(&rogue->stream, create_kernel, .kernel = KERNEL, .program = PROGRAM, .call = CALL,
         .name = "one");
    OK(rogue_answer(rogue, MSG_REPLY));
}

void rogue_ends(struct rogue *good, struct served *served)
{
    rogue_must_work(good, 2);
    stream_finish(&good->stream);
    /* It says how sessions ended once it has seen that they did. */
    cr_assert(COMES(!served_session(served), SILENCE_NS), "a session goes on");
    served_stop(served);
    /* Sessions ended by its rules, not by chance. */
    cr_assert(!served_wrote(served, " crashed: "));
}
