#include "tests/support/cases.h"
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/operation.h"
#include "tests/agent/daemon/own_agent.h"

/* Which messages the agent takes from whom: each has one row, and all else is refused. */

static struct agent *const agent = &own_agent;

static void begin(void)
{
    own_agent_begin();
    cr_assert_eq(peers_listen(agent), 0);
}

TestSuite(messages, .init = begin, .fini = own_agent_finish, .timeout = 30);

/* ---- rows ---- */

static unsigned rows_of(const char *type, enum peer_role from)
{
    unsigned rows = 0;

    for (size_t i = 0; i < message_handler_count; i++)
        rows += message_handlers[i].from == from && strcmp(message_handlers[i].type, type) == 0;
    return rows;
}

/** What the agent only says. */
static bool is_said(const char *type)
{
    static const char *const said[] = {MSG_WELCOME, MSG_QUERY, MSG_STEP,   MSG_ERROR,
                                       MSG_ANSWER,  MSG_GRANT, MSG_SHRINK, MSG_WARM};

    for (size_t i = 0; i < ARRAY_SIZE(said); i++)
        if (strcmp(said[i], type) == 0)
            return true;
    return false;
}

Test(messages, every_type_of_the_protocol_has_one_row)
{
    FILE *header = fopen(PROTOCOL_HEADER, "re");
    char line[256], name[64], type[64];
    unsigned types = 0, taken = 0;

    cr_assert_not_null(header);
    while (fgets(line, sizeof(line), header)) {
        if (sscanf(line, "#define MSG_%63s \"%63[^\"]\"", name, type) != 2)
            continue;
        unsigned rows = 0;
        for (int from = PEER_UNKNOWN; from <= PEER_CLIENT; from++)
            rows += rows_of(type, (enum peer_role)from);
        cr_expect_eq(rows, is_said(type) ? 0 : 1, "%s has %u rows", type, rows);
        types++;
        taken += rows;
    }
    fclose(header);
    cr_expect_gt(types, 25);
    cr_expect_eq(taken, message_handler_count, "a row is of no type of the protocol");
}

/* ---- what is refused ---- */

static void say(int fd, struct frame *frame)
{
    cr_assert_eq(frame_seal(frame), 0);
    cr_assert_eq(send(fd, frame->buffer.data, frame->buffer.size, 0), (ssize_t)frame->buffer.size);
    frame_finish(frame);
    for (int i = 0; i < 8; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
}

/** True when an error of that code is all that comes; and nothing, when @code is NULL. */
static bool hears(int fd, const char *code)
{
    struct frame_reader reader;
    struct message message;
    char bytes[4096];
    unsigned errors = 0, others = 0;
    ssize_t count;

    frame_reader_init(&reader);
    while ((count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        cr_assert_eq(frame_reader_feed(&reader, bytes, (size_t)count), 0);
    while (frame_reader_next(&reader, &message) == 1) {
        bool is = field_is(&message.root, "type", MSG_ERROR) && code &&
                  field_is(&message.root, "code", code);
        errors += is;
        others += !is;
        message_finish(&message);
    }
    frame_reader_finish(&reader);
    return errors == (code ? 1 : 0) && others == 0;
}

static int call_as(const char *role)
{
    int fd = own_agent_connect();
    struct frame frame;
    char bytes[4096];

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", role);
    say(fd, &frame);
    cr_assert_gt(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), 0, "no welcome");
    return fd;
}

static void expect_refused(int fd, const char *type)
{
    struct frame frame;

    frame_init(&frame, type);
    say(fd, &frame);
    cr_expect(hears(fd, ERR_PROTOCOL), "%s", type);
}

Test(messages, what_another_may_say_is_refused_and_changes_nothing)
{
    int program = call_as("program"), client = call_as("client");

    for (size_t i = 0; i < message_handler_count; i++) {
        const struct message_handler *row = &message_handlers[i];
        if (row->from != PEER_PROGRAM)
            expect_refused(program, row->type);
        if (row->from != PEER_CLIENT)
            expect_refused(client, row->type);
    }
    expect_refused(program, "nothing of the kind");
    expect_refused(client, "nothing of the kind");
    expect_refused(client, MSG_GRANT);
    cr_expect_eq(agent->peer_count, 2, "they are still listened to");
    cr_expect_not(agent->stopping);
    close(program);
    close(client);
}

Test(messages, the_first_is_a_hello_or_the_last)
{
    int fd = own_agent_connect();

    expect_refused(fd, MSG_APPS);
    cr_expect_eq(agent->peer_count, 0);
    close(fd);
}

Test(messages, what_concerns_all_is_denied_to_other_users)
{
    int fd = call_as("client");
    unsigned denied = 0;

    agent->peers->uid = geteuid() + 1;
    peers_configure(agent);
    for (size_t i = 0; i < message_handler_count; i++) {
        struct frame frame;
        if (message_handlers[i].rights && !message_handlers[i].needs) {
            frame_init(&frame, message_handlers[i].type);
            say(fd, &frame);
            cr_expect(hears(fd, ERR_DENIED), "%s", message_handlers[i].type);
            denied++;
        }
    }
    cr_expect_eq(denied, 4, "stop, reload, drain and balance");
    cr_expect_not(agent->stopping);
    close(fd);
}

/* ---- answers of programs ---- */

/** Counts what came of that type; and of that code, where there is one. */
static unsigned count_heard(int fd, const char *type, const char *code)
{
    struct frame_reader reader;
    struct message message;
    char bytes[4096];
    unsigned heard = 0;
    ssize_t count;

    for (int i = 0; i < 8; i++)
        uv_run(&agent->loop, UV_RUN_NOWAIT);
    frame_reader_init(&reader);
    while ((count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        cr_assert_eq(frame_reader_feed(&reader, bytes, (size_t)count), 0);
    while (frame_reader_next(&reader, &message) == 1) {
        heard += field_is(&message.root, "type", type) &&
                 (!code || field_is(&message.root, "code", code));
        message_finish(&message);
    }
    frame_reader_finish(&reader);
    return heard;
}

/** The program is asked to suspend, for the last that connected. Returns the operation's id. */
static uint64_t ask_to_suspend(int program, uint64_t timeout_ms)
{
    struct operation op =
        operation_of(agent->programs, REQUEST_SUSPEND, PROGRAM_ALL_VDEVS, agent->peers);

    op.asked.timeout_ms = timeout_ms;
    cr_assert_eq(operation_begin(agent, &op, NULL), 0);
    cr_assert_eq(count_heard(program, MSG_SUSPEND, NULL), 1);
    cr_assert_eq(agent->operations->state, OPERATION_SENT);
    return agent->operations->asked.id;
}

static void answer(int program, uint64_t id)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", id);
    frame_string(&frame, "result", RESULT_REFUSED);
    frame_string(&frame, "reason", "it refuses");
    say(program, &frame);
}

Test(messages, an_answer_counts_once)
{
    int program = call_as("program"), client = call_as("client");
    uint64_t id = ask_to_suspend(program, 0);

    answer(program, id + 1);
    cr_expect_eq(count_heard(client, MSG_REPORT, NULL), 0, "what nobody asked was answered");
    cr_assert_not_null(agent->operations);
    answer(program, id);
    cr_expect_eq(count_heard(client, MSG_REPORT, NULL), 1);
    cr_expect_null(agent->operations);
    answer(program, id);
    cr_expect_eq(count_heard(client, MSG_REPORT, NULL), 0, "it was answered twice");
    cr_expect_eq(agent->peer_count, 2);
    close(program);
    close(client);
}

/** An answer to a request that has ended reaches no client. */
static void end_unheard(int program, int client, uint64_t id)
{
    answer(program, id);
    cr_expect_eq(count_heard(client, MSG_REPORT, NULL), 0);
    close(program);
    close(client);
}

Test(messages, what_its_client_canceled_is_under_way_until_the_program_answers)
{
    int program = call_as("program"), client = call_as("client");
    uint64_t id = ask_to_suspend(program, 0);

    close(client);
    cr_expect_eq(count_heard(program, MSG_CANCEL, NULL), 1);
    cr_assert_not_null(agent->operations);
    cr_expect_null(agent->operations->client);
    cr_expect(operation_moves(agent, agent->programs), "it may still be suspended");
    answer(program, id);
    cr_expect_null(agent->operations);
    cr_expect_not(operation_moves(agent, agent->programs));
    close(program);
}

Test(messages, an_answer_after_the_deadline_is_nobodys)
{
    int program = call_as("program"), client = call_as("client");
    uint64_t id = ask_to_suspend(program, 1000);

    agent->loop.time += 2000;
    operations_expire(agent);
    cr_assert_not_null(agent->operations, "the program has some time to say that it rolled back");
    agent->loop.time += 60000;
    operations_expire(agent);
    cr_expect_null(agent->operations);
    cr_expect_eq(count_heard(client, MSG_ERROR, ERR_EXPIRED), 1);
    end_unheard(program, client, id);
}

Test(messages, a_program_answers_only_over_the_connection_that_it_was_asked_on)
{
    int program = call_as("program"), client = call_as("client");
    uint64_t id = ask_to_suspend(program, 0);

    close(program);
    uv_run(&agent->loop, UV_RUN_NOWAIT);
    cr_assert_not_null(agent->operations, "it may come back");
    program = call_as("program");
    cr_expect_null(agent->operations);
    cr_expect_eq(count_heard(client, MSG_ERROR, ERR_GONE), 1);
    end_unheard(program, client, id);
}

/* ---- records of programs ---- */

static const char *record_path(const char *name)
{
    static char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/%s", agent->programs_folder, name);
    return path;
}

static bool has_record(const char *name)
{
    struct stat stat;

    return lstat(record_path(name), &stat) == 0;
}

Test(messages, a_record_that_cannot_be_read_now_is_kept)
{
    FILE *rubbish = fopen(record_path("a2"), "w");

    cr_assert(rubbish);
    cr_expect_geq(fputs("no record", rubbish), 0);
    cr_expect_eq(fclose(rubbish), 0);
    cr_expect_eq(symlink("a1", record_path("a1")), 0); /* opening it gives ELOOP */
    programs_load(agent);
    cr_expect(has_record("a1"), "it may be readable the next time");
    cr_expect_not(has_record("a2"), "it will never be one");
    cr_expect_null(agent->programs);
}

/* ---- who asks without end ---- */

/** How many whole messages have come. */
static unsigned hear_all(int fd, struct frame_reader *reader)
{
    struct message message;
    char bytes[65536];
    unsigned heard = 0;
    ssize_t count;

    while ((count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        cr_assert_eq(frame_reader_feed(reader, bytes, (size_t)count), 0);
    for (; frame_reader_next(reader, &message) == 1; heard++)
        message_finish(&message);
    return heard;
}

Test(messages, one_who_asks_without_end_lets_others_go_first)
{
    enum { MANY = 5000 };
    static char bytes[MANY * 64];
    struct frame_reader reader;
    struct frame frame;
    size_t size = 0;
    int client = call_as("client");

    frame_init(&frame, MSG_APPS);
    cr_assert_eq(frame_seal(&frame), 0);
    for (int i = 0; i < MANY; i++, size += frame.buffer.size)
        memcpy(bytes + size, frame.buffer.data, frame.buffer.size);
    frame_finish(&frame);
    frame_reader_init(&reader);
    cr_assert_eq(send(client, bytes, size, MSG_DONTWAIT), (ssize_t)size);
    uv_run(&agent->loop, UV_RUN_NOWAIT);
    const struct frame_reader *left = &agent->peers->reader;
    cr_expect_gt(left->start, 0);
    cr_expect_lt(left->start, left->used, "nobody else had a turn");
    unsigned heard = hear_all(client, &reader);
    for (int i = 0; i < 100000 && heard < MANY; i++) {
        uv_run(&agent->loop, UV_RUN_ONCE);
        heard += hear_all(client, &reader);
    }
    cr_expect_eq(heard, MANY);
    frame_reader_finish(&reader);
    close(client);
}
