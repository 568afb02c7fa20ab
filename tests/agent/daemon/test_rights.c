#include "tests/support/cases.h"
#include <grp.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/visitor.h"

/* What the configuration's "users" let somebody do, and have, on an agent for several users. */

#define THIRD 64003
#define GROUP 64009

static void begin(void)
{
    harness_init();
    unsetenv("POCL_FAKE_DEVICES");
}

TestSuite(rights, .init = begin, .fini = harness_finish, .timeout = 60);

static void configure(const char *users)
{
    char text[1024];

    snprintf(text, sizeof(text), "users = (%s);\n", users);
    harness_configure(text);
}

/** An agent for all users, which knows its devices: one of 2 GiB, "cpu0". */
static void start(const char *users)
{
    configure(users);
    setenv("POCL_FAKE_DEVICES", "cpu:Fake two", 1);
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
}

/** A command of @uid, who is in @group as well. */
static struct visitor client_in(uid_t uid, gid_t group)
{
    cr_assert_eq(setgroups(1, &group), 0);
    visitor_keeps_groups(true);
    struct visitor visitor = visitor_client(uid);
    visitor_keeps_groups(false);
    return visitor;
}

/* ---- what one may do ---- */

/** What @client may ask, in the order of `asked`: "-" denied, "0" not found, "+" otherwise. */
static void asked_by(struct visitor *client, char ret[16])
{
    static const struct {
        const char *type, *key, *value;
    } asked[] = {
        {MSG_APPS, "", ""},
        {MSG_EXPLAIN, "app", "theirs"},
        {MSG_NOTICE, "app", "theirs"},
        {MSG_LIMIT, "what", "theirs"},
        {MSG_LIMIT, "what", "cpu0"},
        {MSG_DRAIN, "device", "none"},
        {MSG_BALANCE, "", ""},
        {MSG_SERVER, "deed", "list"},
        {MSG_SERVER, "deed", "remove"},
        {MSG_RELOAD, "", ""},
    };
    char text[PROTOCOL_TEXT_MAX];
    size_t i = 0;

    for (; i < sizeof(asked) / sizeof(*asked); i++) {
        const char *code =
            visitor_answer(client, asked[i].type, asked[i].key, asked[i].value, text);
        bool hidden = strcmp(asked[i].value, "theirs") == 0 &&
                      (!strcmp(code, ERR_NO_APP) || !strcmp(code, ERR_NO_DEVICE));
        ret[i] = strcmp(code, ERR_DENIED) == 0 ? '-' : hidden ? '0' : '+';
    }
    ret[i] = '\0';
}

static void expect_asked(struct visitor client, const char *expected)
{
    char may[16];

    asked_by(&client, may);
    cr_expect_str_eq(may, expected);
    visitor_leave(&client);
}

static const char plain[] = "+000--"
                            "-+--",
                  operates[] = "++++++"
                               "+++-",
                  everything[] = "++++++"
                                 "++++";

Test(rights, users_groups_and_root_may_do_what_the_configuration_says)
{
    NEEDS_ROOT();
    start("{ match = \"64002\"; operator = true; }, { group = \"64009\"; operator = true; }");
    visitor_program(THIRD, "theirs");
    expect_asked(visitor_client(ONE), plain);
    expect_asked(visitor_client(OTHER), operates);
    expect_asked(client_in(ONE, GROUP), operates);
    expect_asked(client_in(ONE, GROUP + 1), plain);
    expect_asked(visitor_client(GROUP), operates); /* Their first group has that number. */
    expect_asked(visitor_client(0), everything);
}

Test(rights, both_selectors_of_an_entry_have_to_match_and_the_first_counts)
{
    NEEDS_ROOT();
    start("{ match = \"64001\"; group = \"64009\"; operator = true; },"
          "{ match = \"64001\"; operator = false; }, { match = \"*\"; operator = true; }");
    visitor_program(THIRD, "theirs");
    expect_asked(visitor_client(ONE), plain);
    expect_asked(client_in(ONE, GROUP), operates);
    expect_asked(visitor_client(OTHER), operates);
}

Test(rights, a_new_configuration_counts_for_those_who_are_connected)
{
    NEEDS_ROOT();
    char may[16];
    start("");
    visitor_program(THIRD, "theirs");
    struct visitor one = visitor_client(ONE);
    asked_by(&one, may);
    cr_expect_str_eq(may, plain);
    configure("{ match = \"64001\"; operator = true; }");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    asked_by(&one, may);
    cr_expect_str_eq(may, operates);
    configure("{ match = \"no such user\"; operator = true; }");
    cr_expect_neq(RESEAT("config", "reload")->status, 0, "an entry for nobody");
    configure("");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    asked_by(&one, may);
    cr_expect_str_eq(may, plain);
}

Test(rights, an_operator_has_no_programs_of_others_write_files)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;
    char code[32] = "";
    start("{ match = \"64002\"; operator = true; }");
    visitor_program(ONE, "theirs");
    struct visitor overseer = visitor_client(OTHER);
    static const char *const types[] = {MSG_CHECKPOINT, MSG_SUSPEND};

    for (size_t i = 0; i < 2; i++) {
        frame_init(&frame, types[i]);
        frame_string(&frame, "app", "theirs");
        frame_string(&frame, "folder", "/tmp");
        cr_assert(visitor_ask(&overseer, &frame, &message));
        field_string(&message.root, "code", code, sizeof(code));
        cr_expect_str_eq(code, ERR_DENIED, "%s", types[i]);
        message_finish(&message);
    }
}

/* ---- what one may have ---- */

static const char *registered(uid_t uid, struct visitor *ret_visitor)
{
    static char text[PROTOCOL_TEXT_MAX];

    *ret_visitor = visitor_client(uid);
    return visitor_answer(ret_visitor, MSG_REGISTER, "name", "program", text);
}

Test(rights, a_user_and_a_group_have_so_many_programs)
{
    NEEDS_ROOT();
    struct visitor first, second, third, other, root;
    char text[PROTOCOL_TEXT_MAX];
    start("{ match = \"64001\"; programs = 2; }, { match = \"*\"; all-programs = 1; }");

    cr_expect_str_eq(registered(ONE, &first), "");
    cr_expect_str_eq(registered(ONE, &second), "");
    cr_expect_str_eq(registered(ONE, &third), ERR_REFUSED);
    visitor_answer(&third, MSG_REGISTER, "name", "program", text);
    cr_expect(strstr(text, "this user has 2 programs"), "%s", text);
    struct visitor program = visitor_connect(ONE);
    cr_expect_not(visitor_greet(&program, "program", "unasked", ""), "unregistered, any number");
    visitor_leave(&first);
    visitor_leave(&program);
    struct visitor again;
    cr_expect_str_eq(registered(ONE, &again), "", "one that ended still counts");
    visitor_leave(&again);
    cr_expect_str_eq(registered(OTHER, &other), "");
    cr_expect_str_eq(registered(THIRD, &third), ERR_REFUSED, "of all users together");
    cr_expect_str_eq(registered(0, &root), "", "root, too");
}

/** What the agent answers to a program that needs @bytes in all and neither spills nor waits. */
static void needs(struct visitor *program, uint64_t id, uint64_t bytes, char ret_way[32])
{
    struct message message;
    bool answered = false;

    visitor_need(program, id, bytes);
    strcpy(ret_way, "none");
    while (!answered && visitor_hear(program, &message, 1000)) {
        answered = field_is(&message.root, "type", MSG_ANSWER);
        cr_assert(!answered || field_string(&message.root, "way", ret_way, 32));
        if (field_is(&message.root, "type", MSG_SUSPEND)) {
            strcpy(ret_way, MSG_SUSPEND);
            answered = true;
        }
        message_finish(&message);
    }
}

#define MIB ((uint64_t)1 << 20)

Test(rights, the_programs_of_a_user_have_so_much_memory_together)
{
    NEEDS_ROOT();
    char way[32];
    start("{ match = \"64001\"; memory = \"1GiB\"; }");
    struct visitor first = visitor_program(ONE, "first"), second = visitor_program(ONE, "second"),
                   other = visitor_program(OTHER, "other");

    needs(&first, 1, 700 * MIB, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    needs(&second, 1, 500 * MIB, way);
    cr_expect_str_neq(way, WAY_AGAIN, "1.2 of 1 GiB");
    needs(&other, 1, 1000 * MIB, way);
    cr_expect_str_eq(way, WAY_AGAIN, "one user's limit is another's");
}

Test(rights, a_move_beyond_what_a_user_may_have_is_refused_with_that_reason)
{
    NEEDS_ROOT();
    configure("{ match = \"64001\"; memory = \"100MiB\"; }");
    setenv("POCL_FAKE_DEVICES", "cpu:Fake two,gpu:larger", 1);
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor first = visitor_program(ONE, "first");

    /* It may spill, but not below what it needs at one time. */
    visitor_say_held(&first, 200 * MIB, true, false);
    const struct result *moved = RESEAT("move", "first", "gpu0");
    cr_expect_neq(moved->status, 0);
    cr_expect(strstr(moved->err, "needs 200 MiB, and the configuration lets its user have"), "%s",
              moved->err);
    visitor_leave(&first);
}

Test(rights, the_users_of_an_entry_have_so_much_memory_together)
{
    NEEDS_ROOT();
    char way[32];
    start("{ match = \"64003\"; }, { match = \"*\"; all-memory = \"1GiB\"; }");
    struct visitor one = visitor_program(ONE, "one"), other = visitor_program(OTHER, "other"),
                   third = visitor_program(THIRD, "third");

    needs(&one, 1, 700 * MIB, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    needs(&third, 1, 600 * MIB, way);
    cr_expect_str_eq(way, WAY_AGAIN, "who has an entry of their own");
    needs(&other, 1, 500 * MIB, way);
    cr_expect_str_neq(way, WAY_AGAIN, "1.2 of 1 GiB");
}

Test(rights, two_users_of_a_device_are_never_promised_the_same_memory)
{
    NEEDS_ROOT();
    char way[32];
    uint64_t granted = 0;
    start("");
    struct visitor programs[] = {visitor_program(ONE, "one"), visitor_program(OTHER, "other"),
                                 visitor_program(THIRD, "third")};

    for (size_t i = 0; i < 3; i++) {
        needs(&programs[i], 1, 900 * MIB, way);
        granted += strcmp(way, WAY_AGAIN) == 0 ? 900 * MIB : 0;
    }
    cr_expect_eq(granted, 1800 * MIB, "of 2 GiB");
    const char *json = RESEAT("devices", "--json")->out;
    const char *at = strstr(json, "\"granted_bytes\": ");
    cr_assert_not_null(at);
    uint64_t said = strtoull(at + strlen("\"granted_bytes\": "), NULL, 10);
    cr_expect_geq(said, granted);
    cr_expect_leq(said, 2048 * MIB);
    for (size_t i = 0; i < 3; i++)
        visitor_leave(&programs[i]);
}

static void say_suspended(struct visitor *program, uint64_t bytes)
{
    struct frame frame;

    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_bool(&frame, "suspended", true);
    frame_u64(&frame, "wanted", bytes);
    frame_end(&frame);
    frame_end(&frame);
    visitor_tell(program, &frame);
}

/** A request for room that there is not: the answer names what is in the way. */
static void refused_room(struct visitor *client, char ret_text[PROTOCOL_TEXT_MAX])
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_RESUME);
    frame_string(&frame, "app", "mine");
    frame_string(&frame, "device", "cpu0");
    cr_assert(visitor_ask(client, &frame, &message));
    ret_text[0] = '\0';
    field_text(&message.root, "message", ret_text, PROTOCOL_TEXT_MAX);
    if (!ret_text[0])
        field_text(&message.root, "reason", ret_text, PROTOCOL_TEXT_MAX);
    message_finish(&message);
}

Test(rights, a_refusal_names_programs_to_those_who_may_see_them)
{
    NEEDS_ROOT();
    char text[PROTOCOL_TEXT_MAX];
    start("{ match = \"64003\"; operator = true; }");
    struct visitor mine = visitor_connect(ONE), theirs = visitor_program(OTHER, "secret");
    struct visitor one = visitor_client(ONE), overseer = visitor_client(THIRD);
    char way[32];

    needs(&theirs, 1, 1500 * MIB, way);
    cr_assert_str_eq(way, WAY_AGAIN);
    cr_assert(visitor_greet(&mine, "program", "mine", ""));
    say_suspended(&mine, 1000 * MIB);
    cr_assert(harness_state("mine", "suspended", SOON_MS), "%s", RESEAT("ps")->out);
    refused_room(&one, text);
    cr_expect(strstr(text, "other users' programs"), "%s", text);
    cr_expect(!strstr(text, "secret"), "%s", text);
    refused_room(&overseer, text);
    cr_expect(strstr(text, "secret"), "%s", text);
}

/* ---- the queue ---- */

/** The place in the queue that root is told of; 0: none. */
static unsigned place_of(struct visitor *root, const char *app)
{
    static const char words[] = "number ";
    char text[16384];

    for (int i = 0; i < 100; i++) {
        struct message message;
        struct frame frame;
        frame_init(&frame, MSG_EXPLAIN);
        frame_string(&frame, "app", app);
        cr_assert(visitor_ask(root, &frame, &message));
        msgpack_object_print_buffer(text, sizeof(text), message.root);
        message_finish(&message);
        const char *at = strstr(text, words);
        if (at)
            return (unsigned)strtoul(at + strlen(words), NULL, 10);
        usleep(50000);
    }
    cr_assert(false, "%s is in no queue: %s", app, text);
    return 0;
}

Test(rights, users_take_turns_in_the_queue)
{
    NEEDS_ROOT();
    static const char *const names[] = {"a1st", "a2nd", "a3rd"};
    struct visitor queued[3];
    char way[32];
    start("");
    struct visitor holder = visitor_program(THIRD, "holder"), root = visitor_client(0);

    needs(&holder, 1, 1800 * MIB, way);
    cr_assert_str_eq(way, WAY_AGAIN);
    for (size_t i = 0; i < 3; i++) {
        queued[i] = visitor_program(ONE, names[i]);
        visitor_need(&queued[i], 1, 1500 * MIB);
        place_of(&root, names[i]);
    }
    struct visitor late = visitor_program(OTHER, "late");
    visitor_need(&late, 1, 1500 * MIB);
    cr_expect_leq(place_of(&root, "late"), 2, "%u", place_of(&root, "late"));
    cr_expect_eq(place_of(&root, "a1st"), 1);
    cr_expect_eq(place_of(&root, "a2nd"), 3);
    cr_expect_eq(place_of(&root, "a3rd"), 4);
    for (size_t i = 0; i < 3; i++)
        visitor_leave(&queued[i]);
}
