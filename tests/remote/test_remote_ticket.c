#include <errno.h>
#include <limits.h>

#include "state/base/bytes/content_hash.h"
#include "tests/remote/rogue.h"
#include "tests/support/calls.h"

/* Who comes to a session with a ticket, and who with another: what is let in, and what becomes of
   the transfer that it is for. */

#define LATE_NS (90 * NS_PER_S) /* Tickets count for a minute. */
#define SIZE    4096u
#define SECOND  id_make(ID_DEVICE, 0, 1)
#define OTHER   id_make(ID_QUEUE, 0, 1)

static struct served served;
static char credentials[PATH_MAX];
static struct stream stream;
static uint64_t session;
static uint32_t events;

static void start(void)
{
    const uint64_t device = SECOND;
    const struct msg_hello hello = {
        .version = WIRE_VERSION, .features = FEATURE_BINARIES, .patience_s = 60};
    struct rogue_greeted greeted;
    served_start_tcp(&served, NULL);
    served_issue(&served, "laptop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    struct link *link = rogue_connect(&served);
    cr_assert_eq(rogue_hello(link, hello, &greeted), MSG_WELCOME);
    session = greeted.welcome.session;
    cr_assert_neq(session, 0);
    rogue_attach(&stream, link);
    POST(&stream, create_context, .context = CONTEXT, .devices = &device, .devices_count = 1);
    for (unsigned i = 0; i < 2; i++)
        POST(&stream, create_queue, .queue = i ? OTHER : QUEUE, .context = CONTEXT,
             .device = SECOND);
    const unsigned char zeroes[SIZE] = {0};
    POST(&stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .size = SIZE,
         .content = zeroes, .content_size = SIZE);
}

static void stop(void)
{
    stream_finish(&stream);
    cr_assert(!served_wrote(&served, " crashed: ") && !served_wrote(&served, "Sanitizer"));
    served_stop(&served);
}

TestSuite(ticket, .init = start, .timeout = 180);

static struct ticket draw(unsigned char seed)
{
    struct ticket ticket = {.name.session = session};
    memset(ticket.name.bytes, seed, sizeof(ticket.name.bytes));
    memset(ticket.key, seed + 1, sizeof(ticket.key));
    return ticket;
}

static struct msg_done receive_done(void)
{
    struct message message;
    struct msg_done done;
    do
        cr_assert_eq(stream_receive(&stream, LATE_NS, &message), 0);
    while (message.type != MSG_DONE);
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert(unpack_done(&body, &done));
    return done;
}

static struct msg_done wait_for(uint64_t event)
{
    struct msg_done done = receive_done();
    cr_assert_eq(done.event, event);
    return done;
}

static uint64_t read_buffer(uint64_t queue)
{
    uint64_t event = id_make(ID_EVENT, 0, events++);
    POST(&stream, read_buffer, .command = {.queue = queue, .event = event, .purpose = COMMAND_TELL},
         .buffer = BUFFER, .size = SIZE);
    stream_flush(&stream);
    return event;
}

/* The session awaits who has the ticket. Returns the event of the transfer. A transfer is refused
   at once while the session does not know yet whether its driver waits for events of the session's
   (remote/server/session/peer_copy.h); the answer to a read that comes behind says that it was not.
 */
static uint64_t await(const struct ticket *ticket)
{
    for (;;) {
        uint64_t event = id_make(ID_EVENT, 0, events++);
        POST(&stream, take, .command = {.queue = QUEUE, .event = event, .purpose = COMMAND_TELL},
             .buffer = BUFFER, .offset = 16, .size = 1024,
             .peer = {.transfer = event,
                      .way = TRANSFER_AWAIT,
                      .where = "",
                      .ticket = ticket,
                      .ticket_size = sizeof(*ticket)});
        uint64_t read = read_buffer(OTHER);
        struct msg_done done = receive_done();
        if (done.event == read)
            return event;
        cr_assert(done.event == event && done.status == CL_OUT_OF_RESOURCES);
        wait_for(read);
    }
}

static char hear(struct link *link)
{
    char word = '.';
    size_t got = 0;
    while (word == '.')
        cr_assert_eq(link->ops->receive(link, &word, 1, clock_now_ns() + LATE_NS, &got), 0);
    return word;
}

static int come(const struct ticket *ticket, struct link **ret_link)
{
    const char *where = NULL;
    const struct link_kind *kind = link_kind_of(served.address, &where);
    *ret_link = NULL;
    return kind->connect(where, ticket, clock_now_ns() + LATE_NS, ret_link);
}

static void send_number(struct link *link, uint64_t number)
{
    struct iovec iov = {&number, sizeof(number)};
    cr_assert_eq(link->ops->send(link, &iov, 1, clock_now_ns() + LATE_NS), 0);
}

/* Until it is ready for bytes. */
static void agree(struct link *link, uint64_t transfer)
{
    uint64_t number = 0;
    send_number(link, transfer);
    for (size_t at = 0, got; at < sizeof(number); at += got)
        cr_assert_eq(link->ops->receive(link, (char *)&number + at, sizeof(number) - at,
                                        clock_now_ns() + LATE_NS, &got),
                     0);
    cr_assert_eq(number, transfer);
    cr_assert_eq(hear(link), 'G');
}

static void give(struct link *link, uint32_t size, const void *bytes)
{
    struct iovec iov[] = {{&size, sizeof(size)}, {(void *)bytes, size}};
    cr_assert_eq(link->ops->send(link, iov, 2, clock_now_ns() + LATE_NS), 0);
}

static void must_hold(unsigned char inside)
{
    struct msg_done done = wait_for(read_buffer(QUEUE));
    const unsigned char *bytes = done.content;
    cr_assert_eq(done.content_size, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(bytes[i], i >= 16 && i < 16 + 1024 ? inside : 0, "byte %zu", i);
}

/* The right one, with the right bytes. */
static void must_arrive(const struct ticket *ticket, uint64_t event)
{
    unsigned char bytes[1024];
    struct link *link;
    memset(bytes, 7, sizeof(bytes));
    cr_assert_eq(come(ticket, &link), 0);
    agree(link, event);
    give(link, sizeof(bytes), bytes);
    cr_assert_eq(hear(link), 'D');
    link->ops->destroy(link);
    cr_assert_eq(wait_for(event).status, CL_COMPLETE);
    must_hold(7);
}

Test(ticket, lets_in_once)
{
    const struct ticket ticket = draw(1);
    struct link *link;
    must_arrive(&ticket, await(&ticket));
    cr_assert_neq(come(&ticket, &link), 0);
    stop();
}

Test(ticket, is_gone_with_the_first_who_comes)
{
    const struct ticket ticket = draw(1);
    struct link *link, *second;
    uint64_t event = await(&ticket);
    cr_assert_eq(come(&ticket, &link), 0);
    cr_assert_neq(come(&ticket, &second), 0);
    link->ops->destroy(link);
    cr_assert_lt(wait_for(event).status, 0);
    must_hold(0);
    stop();
}

/* It is for one attempt: nobody tries keys. */
Test(ticket, with_another_key_fails_and_takes_the_transfer_along)
{
    struct ticket ticket = draw(1);
    struct link *link;
    uint64_t event = await(&ticket);
    ticket.key[31] ^= 1;
    cr_assert_neq(come(&ticket, &link), 0);
    cr_assert_lt(wait_for(event).status, 0);
    ticket.key[31] ^= 1;
    cr_assert_neq(come(&ticket, &link), 0);
    must_hold(0);
    stop();
}

Test(ticket, of_another_name_or_session_does_nothing)
{
    const struct ticket ticket = draw(1);
    struct ticket other = ticket;
    struct link *link;
    uint64_t event = await(&ticket);
    other.name.bytes[0] ^= 1;
    cr_assert_neq(come(&other, &link), 0);
    other = ticket;
    other.name.session ^= 1;
    cr_assert_neq(come(&other, &link), 0);
    must_arrive(&ticket, event);
    stop();
}

Test(ticket, is_for_no_other_range)
{
    static const uint32_t sizes[] = {1025, 1023, UINT32_MAX};
    static unsigned char bytes[1025];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct ticket ticket = draw((unsigned char)(3 * i));
        struct link *link;
        uint64_t event = await(&ticket);
        cr_assert_eq(come(&ticket, &link), 0);
        agree(link, event);
        struct iovec iov[] = {{(void *)&sizes[i], 4}, {bytes, 1023}};
        cr_assert_eq(link->ops->send(link, iov, 2, clock_now_ns() + LATE_NS), 0);
        cr_assert_eq(hear(link), 'F');
        cr_assert_lt(wait_for(event).status, 0);
        link->ops->destroy(link);
    }
    must_hold(0);
    stop();
}

Test(ticket, of_one_transfer_is_for_no_other)
{
    const struct ticket ticket = draw(1);
    struct link *link;
    uint64_t event = await(&ticket);
    cr_assert_eq(come(&ticket, &link), 0);
    send_number(link, event + 1);
    for (size_t left = sizeof(event), got; left != 0; left -= got) {
        char number[sizeof(event)];
        cr_assert_eq(link->ops->receive(link, number, left, clock_now_ns() + LATE_NS, &got), 0);
    }
    cr_assert_eq(hear(link), 'F');
    cr_assert_lt(wait_for(event).status, 0);
    link->ops->destroy(link);
    must_hold(0);
    stop();
}

Test(ticket, is_no_session)
{
    const struct ticket ticket = draw(1);
    struct rogue_greeted greeted;
    struct link *link;
    uint64_t event = await(&ticket);
    cr_assert_eq(come(&ticket, &link), 0);
    cr_assert_eq(rogue_hello(link, (struct msg_hello){.version = WIRE_VERSION}, &greeted), 0);
    link->ops->destroy(link);
    cr_assert_lt(wait_for(event).status, 0);
    must_hold(0);
    stop();
}

Test(ticket, counts_for_a_minute)
{
    const struct ticket ticket = draw(1);
    struct link *link;
    uint64_t event = await(&ticket);
    cr_assert_lt(wait_for(event).status, 0);
    cr_assert_neq(come(&ticket, &link), 0);
    must_hold(0);
    stop();
}

/* ---- binaries ---- */

#define BINARY ((uint32_t)100000)

struct name {
    unsigned char bytes[CONTENT_HASH_SIZE];
};

static struct name name_of(const unsigned char *bytes)
{
    struct name name = {0};
    content_hash_of(bytes, BINARY, name.bytes);
    return name;
}

static uint64_t take(const struct name *name, uint64_t size, const struct ticket *ticket)
{
    uint64_t call = id_make(ID_CALL, 0, events++);
    POST(&stream, take_binary, .call = call, .name = name, .name_size = sizeof(*name), .size = size,
         .peer = {.transfer = call,
                  .way = TRANSFER_AWAIT,
                  .where = "",
                  .ticket = ticket,
                  .ticket_size = sizeof(*ticket)});
    stream_flush(&stream);
    return call;
}

static cl_int reply_to(uint64_t call)
{
    struct message message;
    struct msg_reply reply;
    do
        cr_assert_eq(stream_receive(&stream, LATE_NS, &message), 0);
    while (message.type != MSG_REPLY);
    struct unpack body = {message.body, message.body + message.size, false};
    cr_assert(unpack_reply(&body, &reply));
    cr_assert_eq(reply.call, call);
    return reply.error;
}

/* Not BINARY_LACKING: it has it, and POCL makes nothing of it. */
static bool has(const struct name *name)
{
    uint64_t call = id_make(ID_CALL, 0, events++);
    POST(&stream, create_kept, .program = id_make(ID_PROGRAM, 0, events++), .context = CONTEXT,
         .call = call, .device = SECOND, .name = name, .name_size = sizeof(*name));
    stream_flush(&stream);
    return reply_to(call) != BINARY_LACKING;
}

static void send_binary(const struct ticket *ticket, uint64_t call, const unsigned char *bytes)
{
    struct link *link;
    cr_assert_eq(come(ticket, &link), 0);
    agree(link, call);
    give(link, BINARY, bytes);
    cr_assert_eq(hear(link), 'D');
    link->ops->destroy(link);
}

/* Whoever gives it may lie. */
Test(ticket, a_binary_that_is_not_what_its_name_says_is_refused)
{
    unsigned char *good = calloc(1, BINARY), *bad = calloc(1, BINARY);
    cr_assert(good && bad);
    bad[BINARY - 1] = 1;
    const struct name name = name_of(good), other = name_of(bad);
    struct ticket ticket = draw(1);
    uint64_t call = take(&name, BINARY, &ticket);
    send_binary(&ticket, call, bad);
    cr_assert_lt(reply_to(call), 0);
    cr_expect(!has(&name) && !has(&other));
    ticket = draw(5);
    call = take(&name, BINARY, &ticket);
    send_binary(&ticket, call, good);
    OK(reply_to(call));
    cr_expect(has(&name) && !has(&other));
    free(good);
    free(bad);
    stop();
}

/* A client asks for room, and sends nothing. */
Test(ticket, for_binaries_there_is_so_much_room_and_no_more)
{
    const struct name name = {{1}};
    const struct ticket first = draw(1), second = draw(5);
    uint64_t call = take(&name, WIRE_BINARY_MAX, &first);
    cr_assert_eq(reply_to(take(&name, WIRE_BINARY_MIN, &second)), CL_OUT_OF_RESOURCES);
    POST(&stream, forget, .transfer = call);
    stream_flush(&stream);
    cr_assert_lt(reply_to(call), 0);
    /* What was given up is there again. */
    unsigned char *bytes = calloc(1, BINARY);
    cr_assert(bytes);
    const struct name good = name_of(bytes);
    call = take(&good, BINARY, &second);
    send_binary(&second, call, bytes);
    OK(reply_to(call));
    free(bytes);
    stop();
}

static void must_end_session(void)
{
    struct message message;
    int error;
    stream_flush(&stream);
    while ((error = stream_receive(&stream, LATE_NS, &message)) == 0)
        ;
    cr_expect_neq(error, -ETIMEDOUT);
    stop();
}

Test(ticket, a_binary_that_is_too_large_ends_the_session)
{
    const struct ticket ticket = draw(1);
    take(&(struct name){{1}}, WIRE_BINARY_MAX + 1, &ticket);
    must_end_session();
}

Test(ticket, a_binary_that_is_too_small_ends_the_session)
{
    const struct ticket ticket = draw(1);
    take(&(struct name){{1}}, WIRE_BINARY_MIN - 1, &ticket);
    must_end_session();
}

/* As names are not: too short, or ways that are for buffers. */
Test(ticket, a_binary_by_another_way_ends_the_session)
{
    POST(&stream, give_binary, .call = id_make(ID_CALL, 0, 0), .name = &(struct name){{0}},
         .name_size = CONTENT_HASH_SIZE, .peer = {.way = TRANSFER_DESCRIPTOR, .where = ""});
    must_end_session();
}

Test(ticket, a_name_that_is_too_short_ends_the_session)
{
    POST(&stream, create_kept, .program = id_make(ID_PROGRAM, 0, 0), .context = CONTEXT,
         .call = id_make(ID_CALL, 0, 0), .device = SECOND, .name = &(struct name){{0}},
         .name_size = CONTENT_HASH_SIZE - 1);
    must_end_session();
}
