#include "tests/support/cases.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "state/driver/device_key.h"
#include "tests/agent/harness.h"

/*
 * The program's end of the control connection, with the real control thread of tests/agent's
 * program and the test as its agent.
 */

#define JOBS    16
#define SOON_MS 20000

static int server = -1;
static pid_t program;

static void key_text(const char *device, char text[DEVICE_KEY_TEXT_MAX])
{
    struct device_key key = {.icd = "libfake.so", .platform = "P"};

    snprintf(key.device, sizeof(key.device), "%s", device);
    device_key_format(&key, text);
}

static void begin(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[DEVICE_KEY_TEXT_MAX];

    harness_init();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent", harness_folder());
    server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(server, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(server, 4), 0);
    setenv("RESEAT_SOCKET", address.sun_path, 1);
    key_text("here", text);
    setenv("RESEAT_DEVICE", text, 1);
    setenv("FAKE_MOVE", "slow", 1); /* until it is canceled */
}

static void finish(void)
{
    kill(program, SIGKILL);
    harness_wait(program);
    close(server);
    harness_finish();
}

TestSuite(control, .init = begin, .fini = finish, .timeout = 120);

struct talk {
    int fd;
    struct frame_reader reader;
};

/** The next message, to be given to message_finish(). */
static void hear(struct talk *talk, struct message *ret_message)
{
    cr_assert(harness_hear(talk->fd, &talk->reader, ret_message, SOON_MS), "it says nothing");
}

static bool places; /* the agent says that it finds them */

static void say(struct talk *talk, const char *type, uint64_t request)
{
    char text[DEVICE_KEY_TEXT_MAX];
    struct frame frame;

    key_text("there", text);
    frame_init(&frame, type);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_u64(&frame, "request", request);
    frame_string(&frame, "device", text);
    frame_bool(&frame, "places", places);
    cr_assert(harness_tell(talk->fd, &frame));
}

/** Take the program's connection; it has said hello and was welcomed. */
static void meet(struct talk *talk)
{
    struct message message;
    struct pollfd polled = {.fd = server, .events = POLLIN};

    cr_assert_eq(poll(&polled, 1, SOON_MS), 1, "it does not come");
    talk->fd = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    cr_assert_geq(talk->fd, 0);
    frame_reader_init(&talk->reader);
    hear(talk, &message);
    cr_assert(field_is(&message.root, "type", MSG_HELLO));
    message_finish(&message);
    say(talk, MSG_WELCOME, 0);
}

static void part(struct talk *talk)
{
    close(talk->fd);
    frame_reader_finish(&talk->reader);
}

/** Until it says @type; which request that is of, and with @ret_reason of what it says why. */
static uint64_t heard(struct talk *talk, const char *type, char *ret_reason, size_t size)
{
    for (;;) {
        struct message message;
        hear(talk, &message);
        bool is = field_is(&message.root, "type", type);
        uint64_t request = field_u64(&message.root, "request", 0);
        field_string(&message.root, "reason", ret_reason, size);
        message_finish(&message);
        if (is)
            return request;
    }
}

Test(control, more_requests_than_wait_are_refused_at_once)
{
    char reason[PROTOCOL_TEXT_MAX];
    struct talk talk;
    unsigned canceled = 0;

    program = harness_spawn(harness_program(), "100", NULL);
    meet(&talk);
    for (uint64_t request = 1; request <= JOBS + 2; request++)
        say(&talk, MSG_MOVE, request);
    for (uint64_t request = JOBS + 1; request <= JOBS + 2; request++) {
        cr_assert_eq(heard(&talk, MSG_REPORT, reason, sizeof(reason)), request);
        cr_assert(strstr(reason, "too many requests"), "%s", reason);
    }
    /* The others go on, each to its own end; and with that there is room again. */
    for (uint64_t request = 1; request <= JOBS; request++)
        say(&talk, MSG_CANCEL, request);
    for (unsigned i = 0; i < JOBS; i++) {
        uint64_t request = heard(&talk, MSG_REPORT, reason, sizeof(reason));
        cr_assert(request >= 1 && request <= JOBS && !(canceled & 1u << request), "%d",
                  (int)request);
        canceled |= 1u << request;
    }
    say(&talk, MSG_MOVE, JOBS + 3);
    cr_assert_eq(heard(&talk, MSG_PROGRESS, reason, sizeof(reason)), JOBS + 3);
    part(&talk);
}

Test(control, a_program_that_may_not_run_says_so_to_who_does_not_know_yet)
{
    char path[200], reason[PROTOCOL_TEXT_MAX] = "";
    struct talk talk;

    snprintf(path, sizeof(path), "%s/fenced", harness_folder());
    FILE *file = fopen(path, "w");
    cr_assert(file && fprintf(file, "the disk is gone") > 0 && fclose(file) == 0);
    setenv("FAKE_FENCED", path, 1);
    program = harness_spawn(harness_program(), "100", NULL);
    meet(&talk);
    say(&talk, MSG_MOVE, 1);
    cr_assert_eq(heard(&talk, MSG_REPORT, reason, sizeof(reason)), 1);
    cr_assert_str_eq(reason, "it is fenced: the disk is gone");
    cr_assert_eq(unlink(path), 0);
    say(&talk, MSG_MOVE, 2);
    cr_assert_eq(heard(&talk, MSG_PROGRESS, reason, sizeof(reason)), 2);
    part(&talk);
}

/** Until a status says that the program waits for another device, or not. Where it is then. */
static void expect_status(struct talk *talk, bool seeks, const char *device)
{
    char text[DEVICE_KEY_TEXT_MAX], said[DEVICE_KEY_TEXT_MAX];

    key_text(device, text);
    for (bool is = false; !is;) {
        const msgpack_object *vdevs;
        struct message message;
        hear(talk, &message);
        if (field_array(&message.root, "vdevs", &vdevs) == 1 &&
            field_is(&message.root, "type", MSG_STATUS)) {
            is = field_bool(field_get(&message.root, "protect"), "seeks", !seeks) == seeks &&
                 field_string(&vdevs[0], "device", said, sizeof(said)) && strcmp(said, text) == 0;
            cr_assert(!is || field_bool(&vdevs[0], "lost", !seeks) == seeks);
            cr_assert(!is || field_is(field_get(&message.root, "protect"), "recovery",
                                      seeks ? "another device is being chosen" : ""));
        }
        message_finish(&message);
    }
}

/* Where it goes is the agent's to say; also to the device that was lost, which may answer again. */
Test(control, an_agent_finds_a_place_for_a_program_whose_device_is_lost)
{
    char text[DEVICE_KEY_TEXT_MAX];
    struct message message;
    struct frame frame;
    struct talk talk;

    setenv("FAKE_SEEKS", "1", 1);
    setenv("FAKE_MOVE", "done", 1);
    places = true;
    program = harness_spawn(harness_program(), "100", NULL);
    meet(&talk);
    expect_status(&talk, true, "here");
    usleep(1000000); /* it does not go anywhere by itself */
    key_text("here", text);
    frame_init(&frame, MSG_MOVE);
    frame_u64(&frame, "request", 5);
    frame_string(&frame, "device", text);
    cr_assert(harness_tell(talk.fd, &frame));
    for (bool ended = false; !ended;) {
        hear(&talk, &message);
        ended = field_is(&message.root, "type", MSG_REPORT);
        if (ended) {
            cr_assert(field_is(&message.root, "result", RESULT_DONE));
            cr_assert_not(field_bool(&message.root, "already", true));
        }
        message_finish(&message);
    }
    say(&talk, MSG_QUERY, 0);
    expect_status(&talk, false, "here");
    part(&talk);
}

Test(control, a_program_finds_one_itself_where_no_agent_would)
{
    struct talk talk;

    setenv("FAKE_SEEKS", "1", 1);
    program = harness_spawn(harness_program(), "100", NULL);
    meet(&talk); /* with one of another release */
    expect_status(&talk, false, "its own choice");
    part(&talk);
}

Test(control, an_agent_hears_nothing_of_what_another_asked)
{
    char reason[PROTOCOL_TEXT_MAX];
    struct talk first, second;

    program = harness_spawn(harness_program(), "100", NULL);
    meet(&first);
    say(&first, MSG_MOVE, 7);
    cr_assert_eq(heard(&first, MSG_PROGRESS, reason, sizeof(reason)), 7);
    /* With its connection what it asked is canceled, and ends while the next listens. */
    part(&first);
    meet(&second);
    say(&second, MSG_MOVE, 8);
    for (bool ended = false; !ended;) {
        struct message message;
        hear(&second, &message);
        bool progress = field_is(&message.root, "type", MSG_PROGRESS);
        bool report = field_is(&message.root, "type", MSG_REPORT);
        if (progress || report)
            cr_assert_eq(field_u64(&message.root, "request", 0), 8);
        message_finish(&message);
        if (progress)
            say(&second, MSG_CANCEL, 8);
        ended = report;
    }
    part(&second);
}

/** Grant power, for so long; 0: without an end. Returns whether the program may launch then. */
static bool granted(struct talk *talk, uint64_t turn, uint64_t for_ms)
{
    struct frame frame;

    frame_init(&frame, MSG_POWER);
    frame_u64(&frame, "turn", turn);
    frame_bool(&frame, "capped", true);
    frame_bool(&frame, "granted", true);
    if (for_ms)
        frame_u64(&frame, "for_ms", for_ms);
    cr_assert(harness_tell(talk->fd, &frame));
    for (;;) {
        struct message message;
        hear(talk, &message);
        bool is = field_is(&message.root, "type", MSG_POWER) &&
                  field_u64(&message.root, "turn", 0) == turn;
        bool runs = field_bool(&message.root, "runs", false);
        message_finish(&message);
        if (is)
            return runs;
    }
}

Test(control, a_grant_of_an_older_agent_has_no_end)
{
    struct talk talk;

    program = harness_spawn(harness_program(), "100", NULL);
    meet(&talk);
    cr_assert(granted(&talk, 1, 3000));
    cr_assert(granted(&talk, 2, 0));
    part(&talk);
}
