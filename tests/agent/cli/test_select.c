#include "tests/support/cases.h"
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/files/access.h"
#include "tests/agent/harness.h"
#include "tests/support/comes.h"

/* Which programs a command is for, and what a table shows of them. */

static pid_t programs[3];

static void begin(void)
{
    static const char *const names[] = {"render-a", "solver", "render-b"};

    harness_init();
    for (unsigned i = 0; i < 3; i++)
        programs[i] = harness_start(names[i], "done");
}

static void finish(void)
{
    for (unsigned i = 0; i < 3; i++)
        harness_end(programs[i]);
    harness_finish();
}

TestSuite(select, .init = begin, .fini = finish, .timeout = 120);

static unsigned lines(const char *text, const char *with)
{
    unsigned count = 0;

    for (const char *at = strstr(text, with); at; at = strstr(at + 1, with))
        count++;
    return count;
}

Test(select, a_command_is_for_each_program_that_all_selectors_select)
{
    struct result *result =
        harness_ends(RESEAT("suspend", "--name", "render-*", "--device", "gpu0"), 0);
    cr_assert_eq(lines(result->out, "suspended in"), 2, "%s", result->out);
    cr_assert(!strstr(result->out, "solver"), "%s", result->out);
    cr_assert(harness_state("render-a", "suspended", 2000));
    cr_assert(harness_state("render-b", "suspended", 2000));
    cr_assert(harness_state("solver", "running", 2000));

    /* Those that are suspended are on no device. */
    result = harness_ends(RESEAT("move", "--device", "gpu0", "cpu1"), 0);
    cr_assert_eq(lines(result->out, "moved from gpu0 to cpu1"), 1, "%s", result->out);
    result = harness_ends(RESEAT("resume", "--all", "cpu0", "--json"), 4);
    cr_assert_eq(lines(result->out, "\"schema\""), 3, "%s", result->out);
}

Test(select, a_failure_keeps_no_other_from_being_tried)
{
    struct result *result = harness_ends(RESEAT("cancel", "--all"), 4);
    cr_assert_eq(lines(result->err, "nothing to cancel"), 3, "%s", result->err);
}

Test(select, what_selects_nobody_is_an_error_and_takes_no_program_beside_it)
{
    cr_assert_eq(RESEAT("suspend", "--name", "nobody*")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--device", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--user", "nobody")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--user", "no such user")->status, 2);
    cr_assert_eq(RESEAT("suspend", "--all", "solver")->status, 2);
    cr_assert_eq(RESEAT("suspend")->status, 2);
    cr_assert_eq(RESEAT("move", "--all")->status, 2);
    cr_assert(harness_state("solver", "running", 2000));
}

Test(select, a_table_has_the_columns_and_the_order_that_were_asked_for)
{
    cr_assert_str_eq(RESEAT("ps", "-o", "name", "--no-header", "--sort", "name")->out,
                     "render-a\nrender-b\nsolver\n");
    cr_assert_str_eq(RESEAT("ps", "--columns=name", "--no-header", "--sort=-name")->out,
                     "solver\nrender-b\nrender-a\n");
    /* They say what memory they have after they run. */
    cr_assert(harness_prints("ps", "--columns=memory", "64.0MiB\n64.0MiB\n64.0MiB\n", 5000));
    cr_assert_str_eq(RESEAT("ps", "-o", "name,memory", "--name", "solver")->out,
                     "NAME    MEMORY\nsolver 64.0MiB\n");
    struct result *result = RESEAT("ps", "-q", "--name", "render-*");
    cr_assert_eq(strlen(result->out), strlen("a1\na3\n"), "%s", result->out);
    /* By what is measured, not by its text: 64 MiB is more than nothing. */
    cr_assert_eq(RESEAT("suspend", "solver")->status, 0);
    cr_assert(harness_state("solver", "suspended", 2000));
    result = RESEAT("ps", "-o", "name", "--no-header", "--sort", "memory");
    cr_assert_eq(strncmp(result->out, "solver\n", 7), 0, "%s", result->out);
    harness_says(RESEAT("ps", "-o", "name,nothing"), 2,
                 "there is no column \"nothing\"; say id, name");
    cr_assert_eq(RESEAT("ps", "-o", "")->status, 2);
    cr_assert_eq(RESEAT("ps", "--sort", "-")->status, 2);
    cr_assert_eq(RESEAT("ps", "-o")->status, 2);
    cr_assert_eq(RESEAT("devices", "-q")->status, 0);
    cr_assert(strstr(RESEAT("devices", "-o", "name,in-use")->out, "gpu0"));
}

/** Pass on what comes next, one whole frame; of a request for programs no fields. */
static void pass_on(int from, struct frame_reader *reader, int to)
{
    struct message message;
    struct frame frame;
    char bytes[65536];
    const msgpack_object *names;

    while (frame_reader_next(reader, &message) != 1) {
        ssize_t count = recv(from, bytes, sizeof(bytes), 0);
        if (count <= 0 || frame_reader_feed(reader, bytes, (size_t)count))
            _exit(0);
    }
    const msgpack_object_map *map = &message.root.via.map;
    char key[PROTOCOL_WORD_MAX];
    bool asks = field_is(&message.root, "type", MSG_APPS) && !field_get(&message.root, "apps");
    if (asks && field_array(&message.root, "fields", &names) == 0)
        _exit(0); /* Nothing was asked for, so that nothing is tried here. */
    field_string(&message.root, "type", key, sizeof(key));
    frame_init(&frame, key);
    for (uint32_t i = 0; i < map->size; i++)
        if (object_string(&map->ptr[i].key, key, sizeof(key)) && strcmp(key, "type") != 0 &&
            strcmp(key, "fields") != 0)
            frame_object(&frame, key, &map->ptr[i].val);
    if (frame_seal(&frame) ||
        send(to, frame.buffer.data, frame.buffer.size, MSG_NOSIGNAL) != (ssize_t)frame.buffer.size)
        _exit(0);
    frame_finish(&frame);
    message_finish(&message);
}

/** An agent of a release that knew of no fields: it answers with all. */
static pid_t start_older_agent(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct paths paths;

    cr_assert_eq(paths_find(&paths), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    cr_assert_eq(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(listener, 4), 0);
    fflush(NULL);
    pid_t older = fork();
    if (older == 0) {
        struct frame_reader readers[2];
        int client = accept(listener, NULL, NULL);
        int agent = agent_connect(paths.socket, paths.user);
        (void)fcntl(agent, F_SETFL, 0); /* It waits here. */
        frame_reader_init(&readers[0]);
        frame_reader_init(&readers[1]);
        for (;;) {
            pass_on(client, &readers[0], agent);
            pass_on(agent, &readers[1], client);
        }
    }
    close(listener);
    return older;
}

Test(select, a_table_is_the_same_from_an_agent_that_answers_more_than_was_asked)
{
    static const char *const options[] = {
        "-oname",
        "--columns=id,name,pid,device,ready,memory,granted,wanted,from,to,limit,state,moves,"
        "downtime,snapshot,losses,pinned-by",
        "--sort=-state",

        "--device=gpu0", "--quiet"};
    char newer[sizeof(RESEAT("ps")->out)];

    /* They have said what they hold, so that it does not change between two tables. */
    cr_assert(COMES(lines(RESEAT("ps", "-omemory")->out, "64.0MiB") == 3, 20 * NS_PER_S));
    cr_assert_eq(RESEAT("suspend", "solver")->status, 0);
    cr_assert(harness_state("solver", "suspended", 2000));
    cr_assert_eq(RESEAT("move", "render-a", "cpu1")->status, 0);
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        struct result *result = harness_ends(RESEAT("ps", options[i]), 0);
        cr_assert(strlen(result->out) > 6, "%s", options[i]);
        strcpy(newer, result->out);
        pid_t older = start_older_agent(harness_path("older.sock"));
        setenv("RESEAT_SOCKET", harness_path("older.sock"), 1);
        result = RESEAT("ps", options[i]);
        setenv("RESEAT_SOCKET", "", 1);
        cr_expect_eq(result->status, 0, "%s: %s", options[i], result->err);
        cr_expect_str_eq(result->out, newer, "%s", options[i]);
        kill(older, SIGKILL);
        harness_wait(older);
        unlink(harness_path("older.sock"));
    }
}

Test(select, a_watched_table_is_printed_again_until_it_is_stopped)
{
    char command[512], line[4096];
    int seen = 0;

    snprintf(command, sizeof(command), "exec %s ps -o name --watch 0.1", harness_reseat());
    FILE *watch = popen(command, "r");
    cr_assert(watch);
    while (seen < 3 && fgets(line, sizeof(line), watch))
        seen += strcmp(line, "solver\n") == 0;
    cr_assert_eq(seen, 3);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_neq(pclose(watch), 0, "it goes on without an agent");
}
