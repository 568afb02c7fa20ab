#include "tests/support/cases.h"
#include <errno.h>
#include <sys/socket.h>

#include "remote/link/link.h"
#include "remote/wire/stream.h"
#include "state/base/clock.h"

/*
 * Messages of two sides over links that are cut: each message comes once, whole, and in order,
 * wherever a link was cut.
 */

#define LIMIT_NS     (60 * NS_PER_S)
#define TIMESLICE_NS (NS_PER_MS / 5) /* Then the other side has its turn. */
#define MESSAGES     14
#define HEADER       24u /* As doc/remote.md says. */

/* A link that ends, in both directions, behind so many bytes that went one way. */
struct cut_link {
    struct link base;
    struct link *inner;
    size_t left;
};

static int cut_send(struct link *base, struct iovec *iov, size_t count, uint64_t deadline_ns)
{
    struct cut_link *link = container_of(base, struct cut_link, base);
    for (; count != 0; count--, iov++) {
        size_t size = iov->iov_len < link->left ? iov->iov_len : link->left;
        struct iovec part = {iov->iov_base, size};
        int error = size ? link->inner->ops->send(link->inner, &part, 1, deadline_ns) : 0;
        link->left -= size;
        if (error == 0 && link->left == 0) {
            link->inner->ops->shut_down(link->inner);
            error = -EPIPE;
        }
        if (error)
            return error;
    }
    return 0;
}

static int cut_receive(struct link *base, void *bytes, size_t size, uint64_t deadline_ns,
                       size_t *ret_received)
{
    struct link *inner = container_of(base, struct cut_link, base)->inner;
    return inner->ops->receive(inner, bytes, size, deadline_ns, ret_received);
}

static void cut_shut_down(struct link *base)
{
    struct link *inner = container_of(base, struct cut_link, base)->inner;
    inner->ops->shut_down(inner);
}

static void cut_destroy(struct link *base)
{
    struct cut_link *link = container_of(base, struct cut_link, base);
    link->inner->ops->destroy(link->inner);
    free(link);
}

static const struct link_ops cut_ops = {
    .send = cut_send, .receive = cut_receive, .shut_down = cut_shut_down, .destroy = cut_destroy};

static struct link *cut_create(int fd, size_t after)
{
    struct cut_link *link = calloc(1, sizeof(*link));
    cr_assert(link);
    cr_assert_eq(link_unix_of(fd, &link->inner), 0);
    link->base.ops = &cut_ops;
    link->left = after;
    return &link->base;
}

/* ---- two sides ---- */

struct side {
    struct stream stream;
    const size_t *sizes; /* Of what comes from the other one. */
    unsigned seed, came;
};

static unsigned char byte_at(unsigned seed, unsigned message, size_t at)
{
    return (unsigned char)(seed * 31 + message * 7 + at + (at >> 8) * 13);
}

/* The tails of some are sent from where they lie. */
static void post_all(struct side *side, const size_t *sizes, unsigned seed)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct pooled *memory = pool_take(&side->stream.pool, sizes[i] + 1);
        cr_assert(memory);
        unsigned char *bytes = memory->bytes;
        for (size_t at = 0; at < sizes[i]; at++)
            bytes[at] = byte_at(seed, i, at);
        size_t body = sizes[i] / 3;
        cr_assert_eq(stream_post_pooled(&side->stream, i + 1, bytes, body, bytes + body,
                                        sizes[i] - body, (i + seed) % 2 ? NULL : memory),
                     0);
        pooled_drop(memory); /* The next one has it, unless it is held. */
    }
}

static void check(struct side *side, const struct message *message)
{
    unsigned number = side->came++;
    cr_assert_eq(message->type, number + 1, "message %u came as %u", message->type, number + 1);
    cr_assert_eq(message->size, side->sizes[number]);
    for (size_t i = 0; i < message->size; i++)
        cr_assert_eq(message->body[i], byte_at(side->seed, number, i));
}

static void attach(struct side sides[2], const size_t after[2])
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (int i = 0; i < 2; i++)
        cr_assert(stream_attach(&sides[i].stream, cut_create(ends[i], after[i]),
                                sides[!i].stream.received));
}

/* What comes at one side; false: its link is cut. */
static bool receive_some(struct side *side)
{
    struct message message;
    int error;
    while ((error = stream_receive(&side->stream, TIMESLICE_NS, &message)) == 0)
        check(side, &message);
    cr_assert(error == -ETIMEDOUT || error == -EPIPE || error == -ECANCELED, "%d", error);
    return error == -ETIMEDOUT;
}

/* Both sides say all that they have to say, over links each of which is cut behind so many bytes.
   Returns how many were. */
static unsigned converse(const size_t sizes[2][MESSAGES], size_t after_up, size_t after_down,
                         bool once)
{
    static const size_t uncut[2] = {SIZE_MAX, SIZE_MAX};
    const size_t after[2] = {after_up, after_down};
    struct side sides[2] = {{.sizes = sizes[1], .seed = 1}, {.sizes = sizes[0], .seed = 2}};
    uint64_t until = clock_now_ns() + LIMIT_NS;
    unsigned cuts = 0;
    /* Without windows, so that their threads send: nobody here waits for room. */
    cr_assert_eq(stream_init(&sides[0].stream, 0), 0);
    cr_assert_eq(stream_init(&sides[1].stream, 0), 0);
    attach(sides, after);
    post_all(&sides[0], sizes[0], 2);
    post_all(&sides[1], sizes[1], 1);
    while (sides[0].came < MESSAGES || sides[1].came < MESSAGES) {
        cr_assert(clock_now_ns() < until, "cut behind %zu and %zu: %u and %u came", after_up,
                  after_down, sides[0].came, sides[1].came);
        bool one = receive_some(&sides[0]), other = receive_some(&sides[1]); /* both, in any case */
        if (one && other)
            continue;
        cuts++;
        stream_detach(&sides[0].stream);
        stream_detach(&sides[1].stream);
        attach(sides, once ? uncut : after);
    }
    stream_finish(&sides[0].stream);
    stream_finish(&sides[1].stream);
    return cuts;
}

static size_t bytes_of(const size_t sizes[MESSAGES])
{
    size_t bytes = 0;
    for (int i = 0; i < MESSAGES; i++)
        bytes += sizes[i] + HEADER;
    return bytes;
}

static const size_t small[2][MESSAGES] = {
    {0, 1, 5, 24, 100, 0, 0, 33, 2, 1, 90, 7, 3, 12},
    {3, 0, 64, 1, 1, 200, 9, 0, 17, 25, 5, 1, 1, 0},
};

Test(frames, a_link_is_cut_behind_each_byte_up, .timeout = 300)
{
    for (size_t after = 1; after < bytes_of(small[0]); after++)
        cr_assert_eq(converse(small, after, SIZE_MAX, true), 1, "behind byte %zu", after);
}

Test(frames, a_link_is_cut_behind_each_byte_down, .timeout = 300)
{
    for (size_t after = 1; after < bytes_of(small[1]); after++)
        cr_assert_eq(converse(small, SIZE_MAX, after, true), 1, "behind byte %zu", after);
}

/* Each of them carries less than the next whole message would be. */
TestCall(frames, one_link_after_another_is_cut,
         cr_assert_gt(converse(small, HEADER + 120, HEADER + 210, false), 3), .timeout = 300);

/* Of several frames, which go on in the middle of one. */
Test(frames, long_messages_go_on_where_they_were, .timeout = 300)
{
    static const size_t large[2][MESSAGES] = {
        {300000, 1, 900000, 24, 262144, 0, 262145, 33, 2, 1, 90, 7, 3, 12},
        {3, 262143, 64, 1, 524288, 200, 9, 0, 17, 25, 700000, 1, 1, 0},
    };
    for (size_t after = 1; after < bytes_of(large[0]); after += 65537)
        cr_assert_eq(converse(large, after, SIZE_MAX, true), 1);
    for (size_t after = 1; after < bytes_of(large[1]); after += 65537)
        cr_assert_eq(converse(large, SIZE_MAX, after, true), 1);
    cr_assert_gt(converse(large, 300000, 300000, false), 5);
}

/* Long ones, of which each is kept, or not; as long as it is, the next ones come elsewhere. */
Test(frames, what_came_stays_where_it_is_held)
{
    static const size_t sizes[2][MESSAGES] = {{300000, 400000, 300000, 350000, 5, 300000}};
    static const size_t uncut[2] = {SIZE_MAX, SIZE_MAX};
    struct side sides[2] = {{.sizes = sizes[1], .seed = 1}, {.sizes = sizes[0], .seed = 2}};
    struct pooled *held[2] = {NULL, NULL};
    struct message message;
    const unsigned char *bodies[2];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(stream_init(&sides[i].stream, 0), 0);
    attach(sides, uncut);
    post_all(&sides[0], sizes[0], 2);
    for (unsigned i = 0; i < MESSAGES; i++) {
        cr_assert_eq(stream_receive(&sides[1].stream, LIMIT_NS, &message), 0);
        check(&sides[1], &message);
        struct pooled *memory = stream_lies_in(&sides[1].stream);
        cr_assert_eq(memory != NULL, sizes[0][i] > 262144, "message %u", i);
        if (i < 2) {
            pooled_hold(held[i] = memory);
            bodies[i] = message.body;
        }
        if (i == 5) /* It comes where one was that nobody held. */
            cr_assert(memory != held[0] && memory != held[1]);
    }
    for (unsigned i = 0; i < 2; i++) {
        for (size_t at = 0; at < sizes[0][i]; at++)
            cr_assert_eq(bodies[i][at], byte_at(2, i, at));
        pooled_drop(held[i]);
    }
    stream_finish(&sides[0].stream);
    stream_finish(&sides[1].stream);
}

Test(frames, what_the_other_side_cannot_have_is_refused)
{
    struct side sides[2] = {{.sizes = small[1], .seed = 1}, {.sizes = small[0], .seed = 2}};
    int ends[2];
    cr_assert_eq(stream_init(&sides[0].stream, 1u << 20), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    struct link *link = cut_create(ends[0], SIZE_MAX);
    post_all(&sides[0], small[0], 2);
    cr_assert_not(stream_attach(&sides[0].stream, link, MESSAGES + 1));
    cr_assert(stream_attach(&sides[0].stream, link, MESSAGES));
    /* All of it was acknowledged, and is not there any more. */
    stream_detach(&sides[0].stream);
    link = cut_create(ends[1], SIZE_MAX);
    cr_assert_not(stream_attach(&sides[0].stream, link, MESSAGES - 1));
    link->ops->destroy(link);
    stream_finish(&sides[0].stream);
}

/* It says so in a frame. */
Test(frames, what_was_never_sent_is_not_received)
{
    const uint64_t header[3] = {0, 0, 1};
    struct iovec iov = {(void *)header, sizeof(header)};
    struct stream stream;
    struct message message;
    struct link *other = NULL;
    int ends[2];
    cr_assert_eq(sizeof(header), HEADER);
    cr_assert_eq(stream_init(&stream, 0), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    cr_assert(stream_attach(&stream, cut_create(ends[0], SIZE_MAX), 0));
    cr_assert_eq(link_unix_of(ends[1], &other), 0);
    cr_assert_eq(other->ops->send(other, &iov, 1, clock_now_ns() + LIMIT_NS), 0);
    cr_assert_eq(stream_receive(&stream, NS_PER_S, &message), -EPROTO);
    other->ops->destroy(other);
    stream_finish(&stream);
}
