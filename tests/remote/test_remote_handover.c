#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/remote/rogue.h"
#include "tests/support/comes.h"

/* Who may go on with a session, and what others who try can do to it: nothing. */

#define PATIENCE_S   30
#define CHILDREN_MAX 64

struct client {
    struct stream stream;
    uint64_t number, received; /* What the server has. */
    unsigned char secret[WIRE_SECRET_SIZE];
    struct rogue_greeted greeted;
};

static struct served served;
static char laptop[PATH_MAX], desktop[PATH_MAX];

static void start(void)
{
    served_start_tcp(&served, NULL);
    served_issue(&served, "laptop", "--sessions", "2", laptop);
    served_issue(&served, "desktop", NULL, NULL, desktop);
    setenv("RESEAT_CREDENTIALS", laptop, 1);
}

/* What @client shows to go on. */
static struct msg_hello shown_by(struct client *client)
{
    return (struct msg_hello){.version = WIRE_VERSION,
                              .session = client->number,
                              .secret = client->secret,
                              .secret_size = client->number ? WIRE_SECRET_SIZE : 0,
                              .received = client->stream.received,
                              .patience_s = PATIENCE_S};
}

/* The type of the answer; 0: there was none. */
static unsigned hello(struct client *client, struct link *link)
{
    const struct msg_welcome *welcome = &client->greeted.welcome;
    unsigned type = rogue_hello(link, shown_by(client), &client->greeted);
    if (type == MSG_WELCOME) {
        cr_assert(welcome->session && welcome->secret_size == WIRE_SECRET_SIZE);
        cr_assert_eq(welcome->patience_s, PATIENCE_S);
        client->number = welcome->session;
        client->received = welcome->received;
        memcpy(client->secret, welcome->secret, WIRE_SECRET_SIZE);
    }
    return type;
}

/* Up to its devices. */
static void begin(struct client *client)
{
    struct link *link = rogue_connect(&served);
    memset(client, 0, sizeof(*client));
    cr_assert_eq(hello(client, link), MSG_WELCOME, "%s", client->greeted.refusal);
    rogue_attach(&client->stream, link);
}

/* A command, whose end is not heard of yet. */
static void give_work(struct client *client, uint32_t generation)
{
    const uint64_t device = DEVICE;
    if (generation == 1) {
        POST(&client->stream, create_context, .context = CONTEXT, .devices = &device,
             .devices_count = 1);
        POST(&client->stream, create_queue, .queue = QUEUE, .context = CONTEXT, .device = DEVICE);
    }
    POST(&client->stream, marker,
         .command = {
             .queue = QUEUE, .event = id_make(ID_EVENT, generation, 0), .purpose = COMMAND_TELL});
    stream_flush(&client->stream);
}

static void must_be_done(struct client *client, uint32_t generation)
{
    struct msg_done done = rogue_done(&client->stream);
    cr_assert(done.event == id_make(ID_EVENT, generation, 0) && done.status == CL_COMPLETE);
}

/* Over another link, while the old one may be good still. */
static void go_on(struct client *client)
{
    struct link *link = rogue_connect(&served);
    cr_assert_eq(hello(client, link), MSG_WELCOME, "%s", client->greeted.refusal);
    stream_detach(&client->stream);
    cr_assert(stream_attach(&client->stream, link, client->received));
}

static void must_be_refused(const struct client *shown)
{
    struct client stranger = {.number = shown->number, .stream = {.received = 1}};
    struct link *link = rogue_connect(&served);
    memcpy(stranger.secret, shown->secret, sizeof(stranger.secret));
    cr_assert_eq(hello(&stranger, link), MSG_REFUSED);
    cr_assert_str_eq(stranger.greeted.refusal, "no such session");
    link->ops->destroy(link);
}

static void finish(struct client *client)
{
    POST(&client->stream, bye, 0);
    stream_flush(&client->stream);
    stream_finish(&client->stream);
}

/* Until the server has so many processes beside its own. */
static void await_children(unsigned count)
{
    pid_t pids[CHILDREN_MAX];
    unsigned now = 0;
    cr_assert(COMES((now = served_children(&served, pids, CHILDREN_MAX)) == count, SILENCE_NS),
              "there are %u processes, not %u", now, count);
}

static void ends(void)
{
    await_children(0);
    served_stop(&served);
    cr_assert(!served_wrote(&served, " crashed: ") && !served_wrote(&served, "Sanitizer"));
}

TestSuite(remote_handover, .init = start, .fini = ends, .timeout = 180);

Test(remote_handover, a_session_goes_on_over_a_newer_link)
{
    struct client client;
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    for (uint32_t i = 2; i < 12; i++) {
        give_work(&client, i);
        go_on(&client);
        must_be_done(&client, i);
    }
    finish(&client);
}

/* The old one is of no use to anybody, and is closed. */
Test(remote_handover, a_stale_link_is_dropped)
{
    struct client client, other = {0};
    struct message message;
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    for (int i = 0; i < 3; i++) {
        other = (struct client){.number = client.number, .stream.received = client.stream.received};
        memcpy(other.secret, client.secret, sizeof(other.secret));
        struct link *link = rogue_connect(&served);
        cr_assert_eq(hello(&other, link), MSG_WELCOME);
        int error = 0;
        while (error == 0)
            error = stream_receive(&client.stream, SILENCE_NS, &message);
        cr_assert_eq(error, -EPIPE, "%d", error);
        stream_detach(&client.stream);
        cr_assert(stream_attach(&client.stream, link, other.received));
    }
    give_work(&client, 2);
    must_be_done(&client, 2);
    finish(&client);
}

Test(remote_handover, who_does_not_know_the_secret_learns_nothing)
{
    struct client client, shown;
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    /* Another secret, by one bit of each of its bytes; another number. */
    for (size_t i = 0; i < WIRE_SECRET_SIZE; i++) {
        shown = client;
        shown.secret[i] ^= (unsigned char)(1 << i % 8);
        must_be_refused(&shown);
    }
    shown = client;
    shown.number++;
    must_be_refused(&shown);
    /* All of it is right, but the name. */
    setenv("RESEAT_CREDENTIALS", desktop, 1);
    must_be_refused(&client);
    setenv("RESEAT_CREDENTIALS", laptop, 1);
    /* Nobody has ended or slowed it, or has its link. */
    give_work(&client, 2);
    must_be_done(&client, 2);
    go_on(&client);
    give_work(&client, 3);
    must_be_done(&client, 3);
    finish(&client);
}

Test(remote_handover, sessions_have_numbers_that_nobody_guesses)
{
    struct client clients[2];
    begin(&clients[0]);
    begin(&clients[1]);
    cr_assert(clients[0].number != clients[1].number);
    cr_assert(memcmp(clients[0].secret, clients[1].secret, WIRE_SECRET_SIZE) != 0);
    /* A secret of one is none of another. */
    struct client shown = clients[0];
    memcpy(shown.secret, clients[1].secret, WIRE_SECRET_SIZE);
    must_be_refused(&shown);
    finish(&clients[0]);
    finish(&clients[1]);
}

/* A session that has ended is one that never was. */
Test(remote_handover, nobody_goes_on_with_a_session_that_ended)
{
    struct client client;
    begin(&client);
    struct client shown = client;
    finish(&client);
    await_children(0);
    must_be_refused(&shown);
}

/* It says that it has what was never sent: its link is dropped, and the right one goes on. */
Test(remote_handover, a_client_that_counts_wrongly_gets_nothing)
{
    struct client client, wrong;
    struct message message;
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    wrong = client;
    cr_assert_eq(stream_init(&wrong.stream, 0), 0);
    wrong.stream.received = client.stream.received + 100;
    struct link *link = rogue_connect(&served);
    cr_assert_eq(hello(&wrong, link), MSG_WELCOME);
    cr_assert(stream_attach(&wrong.stream, link, 0));
    cr_assert_eq(stream_receive(&wrong.stream, SILENCE_NS, &message), -EPIPE);
    stream_finish(&wrong.stream);
    go_on(&client);
    give_work(&client, 2);
    must_be_done(&client, 2);
    finish(&client);
}

/* However often it comes back, it has one session, and one process that carries its link. */
Test(remote_handover, coming_back_hundreds_of_times_takes_nothing)
{
    enum { TIMES = 300, PROCESSES = 16 };
    struct client client;
    pid_t pids[CHILDREN_MAX];
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    struct link *last = NULL;
    for (int i = 0; i < TIMES; i++) {
        struct link *link = rogue_dial(&served);
        cr_assert(link, "the server turned it away");
        (void)hello(&client, link);
        /* Some are left open until the next one is there. */
        if (last)
            last->ops->destroy(last);
        last = link;
        if (i % 100 == 0)
            cr_assert_lt(served_children(&served, pids, CHILDREN_MAX), PROCESSES);
    }
    last->ops->destroy(last);
    go_on(&client);
    give_work(&client, 2);
    must_be_done(&client, 2);
    await_children(2);
    finish(&client);
}

/* It stands still, and does not take what is handed to it: others are served meanwhile. */
Test(remote_handover, a_session_that_stands_still_keeps_nobody_waiting)
{
    struct client client, other;
    begin(&client);
    give_work(&client, 1);
    must_be_done(&client, 1);
    pid_t session = served_session(&served);
    kill(session, SIGSTOP);
    struct link *links[40];
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        links[i] = rogue_dial(&served);
        if (links[i]) /* Else too many are at the door, for which nobody else can do anything. */
            rogue_say(links[i], shown_by(&client));
    }
    begin(&other);
    give_work(&other, 1);
    must_be_done(&other, 1);
    /* Both sessions, and one that carries the newest link; what came to nothing has ended. */
    await_children(3);
    kill(session, SIGCONT);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (links[i])
            links[i]->ops->destroy(links[i]);
    go_on(&client);
    give_work(&client, 2);
    must_be_done(&client, 2);
    finish(&client);
    finish(&other);
}
