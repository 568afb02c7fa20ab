#include "tests/support/cases.h"
#include <jansson.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/visitor.h"

/* What an operator sees of what happened. */

TestSuite(events, .init = harness_init, .fini = harness_finish, .timeout = 120);

static json_t *events_list(void)
{
    json_t *object = harness_json(RESEAT("events", "--json"), "events");
    json_t *list = json_object_get(object, "events");

    cr_assert(json_is_array(list));
    return list;
}

/** The place of the first such event after @from; -1: none. */
static int find(const json_t *list, int from, const char *what, const char *state)
{
    for (size_t i = (size_t)(from + 1); i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        if (strcmp(harness_text(event, "what"), what) == 0 &&
            strcmp(harness_text(event, "state"), state) == 0)
            return (int)i;
    }
    return -1;
}

static int expect(const json_t *list, int from, const char *what, const char *state)
{
    int at = find(list, from, what, state);

    cr_assert_geq(at, 0, "%s %s is missing after %d: %s", what, state, from,
                  json_dumps(list, JSON_INDENT(1)));
    return at;
}

Test(events, tells_a_move_with_its_phases_and_who_asked_for_it)
{
    pid_t pid = harness_start("app", "done");

    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    json_t *list = events_list();
    int at = expect(list, -1, "program", "connected");
    at = expect(list, at, "move", "begun");
    const json_t *begun = json_array_get(list, (size_t)at);
    cr_assert_str_eq(harness_text(begun, "from"), "gpu0");
    cr_assert_str_eq(harness_text(begun, "to"), "cpu1");
    cr_assert_str_eq(harness_text(begun, "by"), "command");
    cr_assert_eq(harness_number(begun, "by_uid"), geteuid());
    cr_assert_gt(harness_number(begun, "by_pid"), 0);
    cr_assert_eq(harness_number(json_object_get(begun, "app"), "pid"), pid);
    at = expect(list, at, "move", "copy");
    at = expect(list, at, "move", "done");

    harness_says(RESEAT("events"), 0, "gpu0 -> cpu1: done by command");
    harness_end(pid);
    cr_assert(harness_prints("events", NULL, ": ended by agent", 5000));
}

Test(events, tells_refusals_limits_and_suspends_but_no_dry_run)
{
    harness_start("app", "done");

    cr_assert_eq(RESEAT("cancel", "app")->status, 4);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--dry-run")->status, 0);
    cr_assert_eq(RESEAT("limit", "gpu0", "--memory", "1GiB")->status, 0);
    cr_assert_eq(RESEAT("limit", "gpu0", "--off")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    json_t *list = events_list();
    int at = expect(list, -1, "cancel", "refused");
    cr_assert(
        strstr(harness_text(json_array_get(list, (size_t)at), "reason"), "is not being moved"));
    at = expect(list, at, "limit", "set");
    cr_assert_str_eq(harness_text(json_array_get(list, (size_t)at), "device"), "gpu0");
    cr_assert_str_eq(harness_text(json_array_get(list, (size_t)at), "reason"), "1.0 GiB");
    at = expect(list, at, "limit", "off");
    at = expect(list, at, "suspend", "done");
    cr_assert_str_eq(harness_text(json_array_get(list, (size_t)at), "to"), "");
    cr_assert_eq(find(list, -1, "move", "begun"), -1);
}

Test(events, outlive_the_agent_and_are_cut_by_their_age)
{
    harness_start("app", "done");

    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    json_t *list = events_list();
    expect(list, expect(list, -1, "move", "begun"), "move", "done");
    sleep(2);
    cr_assert_null(strstr(RESEAT("events", "--since", "1s")->out, "move"));
    cr_assert(strstr(RESEAT("events", "--since", "1h")->out, "move"));
    struct result *none = RESEAT("events", "--since", "0");
    cr_assert_eq(none->status, 0);
    cr_assert(strstr(none->err, "nothing has happened in that time"), "%s", none->err);
    cr_assert_eq(RESEAT("events", "--since", "yesterday")->status, 2);
}

Test(events, a_follower_sees_what_happens_from_now_on)
{
    harness_start("app", "done");
    char command[512], line[4096];
    bool done = false;

    snprintf(command, sizeof(command), "exec %s events --follow --json", harness_reseat());
    FILE *follower = popen(command, "r");
    cr_assert(follower);
    cr_assert(fgets(line, sizeof(line), follower), "it does not show what there is");
    pid_t mover = harness_spawn(harness_reseat(), "move", "app", "cpu1", NULL);
    while (!done && fgets(line, sizeof(line), follower)) {
        json_t *event = json_loads(line, 0, NULL);
        cr_assert(event, "%s", line);
        done = strcmp(harness_text(event, "what"), "move") == 0 &&
               strcmp(harness_text(event, "state"), "done") == 0;
        json_decref(event);
    }
    cr_assert(done);
    cr_assert_eq(harness_wait(mover), 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_neq(pclose(follower), 0, "it goes on without an agent");
}

Test(events, of_other_users_programs_nobody_else_is_told)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;

    visitor_start_host_agent();
    visitor_program(ONE, "mine");
    struct visitor clients[] = {visitor_client(OTHER), visitor_client(ONE)};
    for (int own = 0; own < 2; own++) {
        const msgpack_object *events;
        frame_init(&frame, MSG_EVENTS);
        cr_assert(visitor_ask(&clients[own], &frame, &message));
        size_t count = field_array(&message.root, "events", &events), seen = 0;
        for (size_t i = 0; i < count; i++) {
            const msgpack_object *app = field_get(&events[i], "app");
            seen += app && field_is(app, "name", "mine");
        }
        cr_expect_eq(seen > 0, own, "user %d sees %zu of them", own ? ONE : OTHER, seen);
        message_finish(&message);
        visitor_leave(&clients[own]);
    }
}
