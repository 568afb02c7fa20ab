#include <sys/socket.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "remote/server/session/server.h"
#include "tests/support/cases.h"

/* What a session's process is promised of each device's memory. The test is the listening process.
 */

#define MIB      (UINT64_C(1) << 20)
#define FIRST    4 /* the listening process's numbers of the session's two devices */
#define SECOND   7
#define TAKES    (100 * MIB)
#define OF_FIRST UINT64_C(1)

static struct server server;
static struct devices known;
static int listener;

static void begin(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    known.rows[FIRST].memory = known.rows[SECOND].memory = 1024 * MIB;
    server = (struct server){.known = &known,
                             .channel = ends[0],
                             .device_count = 2,
                             .numbers = {FIRST, SECOND},
                             .memory = 1024 * MIB};
    listener = ends[1];
}

static void finish(void)
{
    close(server.channel);
    close(listener);
}

TestSuite(session_budget, .init = begin, .fini = finish, .timeout = 60);

static void *take(void *data)
{
    (void)data;
    return server_take_memory(&server, OF_FIRST, TAKES);
}

static struct channel_message heard(void)
{
    struct channel_message message;
    cr_assert_eq(recv(listener, &message, sizeof(message), 0), (ssize_t)sizeof(message));
    return message;
}

static void promise(uint32_t device, uint64_t bytes)
{
    const struct channel_message message = {
        .kind = CHANNEL_PROMISE, .device = device, .bytes = bytes};
    server_promised(&server, &message);
}

Test(session_budget, a_promise_counts_for_the_device_that_it_is_of)
{
    pthread_t thread;
    void *taken;
    cr_assert_eq(pthread_create(&thread, NULL, take, NULL), 0);
    struct channel_message asked = heard();
    cr_expect_eq(asked.kind, CHANNEL_ASK);
    cr_expect_eq(asked.device, FIRST);
    cr_expect_eq(asked.least, TAKES);
    /* The answer to a request that had timed out: it goes back, and is no answer to this one. */
    promise(SECOND, 300 * MIB);
    struct channel_message back = heard();
    cr_expect_eq(back.kind, CHANNEL_RETURN);
    cr_expect_eq(back.device, SECOND);
    cr_expect_eq(back.bytes, 300 * MIB);
    promise(FIRST, 0);
    pthread_join(thread, &taken);
    cr_expect_null(taken, "the first device has none");
    /* Nobody asks. */
    promise(FIRST, 50 * MIB);
    back = heard();
    cr_expect_eq(back.kind, CHANNEL_RETURN);
    cr_expect_eq(back.bytes, 50 * MIB);
}

Test(session_budget, what_is_promised_is_there_until_it_is_given_back)
{
    pthread_t thread;
    void *taken, *more;
    cr_assert_eq(pthread_create(&thread, NULL, take, NULL), 0);
    (void)heard();
    promise(FIRST, 2 * TAKES);
    pthread_join(thread, &taken);
    cr_assert_not_null(taken);
    more = take(NULL); /* without a question */
    cr_assert_not_null(more);
    server_give_back(more);
    server_give_back(taken);
    struct channel_message back = heard();
    cr_expect_eq(back.kind, CHANNEL_RETURN);
    cr_expect_eq(back.device, FIRST);
}
