#include "tests/support/cases.h"
#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* Device servers that come and go, as operators and programs see it. What looks after a server is
   fake_watch, which does as a file says. */

static void begin(void)
{
    harness_init();
    setenv("RESEAT_WATCH", getenv("TEST_WATCH"), 1);
    setenv("RESEAT_MDNS", getenv("TEST_WATCH"), 1);
    setenv("FAKE_ANNOUNCED", harness_path("announced"), 1);
    setenv("POCL_FAKE_DEVICES", "gpu:near", 1);
}

TestSuite(servers, .init = begin, .fini = harness_finish, .timeout = 240);

/** How the server of that name is from now on; its address. */
static const char *set(const char *name, const char *how)
{
    static char addresses[4][256];
    static unsigned next;
    char *address = addresses[next++ % 4], path[128], fresh[160];

    snprintf(path, sizeof(path), "%s/%s.server", harness_folder(), name);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    harness_write(fresh, how);
    cr_assert_eq(rename(fresh, path), 0);
    snprintf(address, sizeof(addresses[0]), "unix:%s", path);
    return address;
}

static void add(const char *name, const char *how)
{
    harness_ends(RESEAT("server", "add", set(name, how), name), 0);
}

/** What `reseat server list` says of it; NULL: there is none. */
static json_t *server(const char *name)
{
    json_t *object = harness_json(RESEAT("server", "list", "--json"), "server");

    return harness_find(object, "servers", "name", name);
}

static void expect(const char *name, const char *key, const char *text)
{
    json_t *one = server(name);

    cr_assert(one, "no server %s", name);
    cr_assert_str_eq(harness_text(one, key), text);
}

/** Wait until the server is so. */
static void await(const char *name, const char *state)
{
    for (unsigned i = 0; i < 2000; i++) {
        if (strcmp(harness_text(server(name), "state"), state) == 0)
            return;
        usleep(10000);
    }
    cr_assert(false, "%s was never %s", name, state);
}

static void await_gone(const char *name)
{
    json_t *one = NULL;

    for (unsigned i = 0; i < 2000 && (one = server(name)); i++)
        usleep(10000);
    cr_assert(!one, "%s stays", name);
}

/** A text of the device of that name; "": there is no such device. */
static void expect_device(const char *name, const char *key, const char *text)
{
    json_t *object = harness_json(RESEAT("devices", "--json"), "devices");
    json_t *one = harness_find(object, "devices", "name", name);
    const char *is = one ? harness_text(one, key) : "";

    cr_assert_str_eq(is, text, "%s of %s is \"%s\"", key, name, is);
}

static void expect_place(const char *program, const char *place)
{
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");

    cr_assert_str_eq(harness_text(harness_find(object, "apps", "name", program), "device"), place);
}

Test(servers, one_is_added_and_its_devices_with_it_then_both_are_removed)
{
    harness_says(RESEAT("server", "add", set("far", "up gpu:alpha,cpu:beta"), "far"), 0,
                 "far is up: far/gpu0, far/cpu0");
    expect_device("far/gpu0", "device", "alpha");
    expect_device("far/gpu0", "host", "far");
    expect_device("far/gpu0", "state", "up");
    expect_device("gpu0", "host", "");
    json_t *one = server("far");
    cr_expect_eq(harness_number(one, "round_trip_ns"), 250000);
    cr_expect_eq(harness_number(one, "write_bytes_s"), 1000000000);
    cr_assert(strstr(RESEAT("devices")->out, "0.25 ms, 1.0 GB/s"));

    cr_assert_eq(RESEAT("server", "remove", "far")->status, 0);
    expect_device("far/gpu0", "device", "");
    expect_device("gpu0", "device", "near");
    cr_assert(!server("far"));
}

Test(servers, a_link_is_shown_with_the_rate_that_was_measured_or_none)
{
    cr_assert_eq(RESEAT("server", "add", set("far", "rate 0 gpu:alpha"), "far")->status, 0);
    cr_assert_eq(RESEAT("server", "add", set("slow", "rate 300000 gpu:beta"), "slow")->status, 0);
    const char *out = RESEAT("devices")->out;
    cr_expect(strstr(out, "0.25 ms, rate unknown"), "%s", out);
    cr_expect(strstr(out, "0.25 ms, 0.3 MB/s"), "%s", out);
    cr_expect_null(strstr(out, " 0 MB/s"), "%s", out);
    cr_assert_eq(RESEAT("server", "remove", "far")->status, 0);
    cr_assert_eq(RESEAT("server", "remove", "slow")->status, 0);
}

Test(servers, what_is_no_address_or_no_name_is_refused_and_shown_harmlessly)
{
    static const char *const addresses[] = {
        "",
        "gpuhost",
        "http://gpuhost:80",
        "tcp:gpuhost",
        "tcp:gpuhost:0",
        "tcp:gpuhost:99999",
        "tcp:-rf:7460",
        "tcp:../../etc:7460",
        "unix:relative",
        "unix:/tmp/\x1b[31mred",
        "tcp:a\x1b]0;title\x07:7460",
        "vsock:nobody:7460",
        "tcp:gpuhost:7460 tcp:other:7460",
        "/etc/passwd",
        "libevil.so",
    };
    static const char *const names[] = {
        "..", "../x", "a/b",        "A",         "-x",
        ".x", "a b",  "gpu\x1b[2J", "x\nleaves", "aaaaaaaaaaaaaaaaaaaaa",
    };

    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
        const struct result *result = harness_ends(RESEAT("server", "add", addresses[i], "x"), 2);
        cr_expect(!strpbrk(result->err, "\x1b\x07"), "%s", addresses[i]);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const struct result *result =
            harness_ends(RESEAT("server", "add", "tcp:gpuhost:7460", names[i]), 2);
        cr_expect(!strchr(result->err, '\x1b'), "%s", names[i]);
    }
    json_t *object = harness_json(RESEAT("server", "list", "--json"), "server");
    cr_assert_eq(json_array_size(json_object_get(object, "servers")), 0);
    cr_assert_eq(RESEAT("server", "remove", "../../x")->status, 3);
}

Test(servers, an_address_gives_a_server_its_name_where_it_can)
{
    cr_assert_eq(RESEAT("server", "add", set("far", "up gpu:alpha"))->status, 0);
    cr_assert(server("far"), "its socket is called so");
    cr_assert_eq(RESEAT("server", "add", "tcp:[2001:db8::1]:7460")->status, 2);
}

Test(servers, two_have_neither_one_name_nor_one_address)
{
    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("server", "add", set("other", "up gpu:beta"), "far")->status, 4);
    harness_says(RESEAT("server", "add", set("far", "up gpu:alpha"), "other"), 4,
                 "server far is there already");
    expect_device("far/gpu0", "device", "alpha");
}

Test(servers, a_program_moves_to_a_device_that_it_never_heard_of)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    expect_place("train", "far/gpu0");
    cr_assert_eq(RESEAT("move", "train", "gpu0")->status, 0);
    expect_place("train", "gpu0");
}

Test(servers, a_program_that_waits_goes_to_a_device_that_comes)
{
    harness_start("train", "done");

    cr_assert_eq(RESEAT("drain", "gpu0")->status, 0);
    cr_assert(harness_state("train", "suspended", 10000));
    add("far", "up gpu:alpha");
    cr_assert(harness_state("train", "running", 20000), "the policy does not see it");
    expect_place("train", "far/gpu0");
}

Test(servers, a_program_that_waits_goes_to_none_that_is_lost_and_to_one_that_is_back)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    set("far", "down unreachable gone");
    await("far", "lost");
    cr_assert_eq(RESEAT("drain", "gpu0")->status, 0);
    cr_assert(harness_state("train", "suspended", 10000));
    usleep(2500000); /* The policy looks every second. */
    cr_assert(harness_state("train", "suspended", 0));
    set("far", "up gpu:alpha");
    cr_assert(harness_state("train", "running", 20000));
    expect_place("train", "far/gpu0");
}

Test(servers, a_server_that_vanishes_is_told_with_who_was_there_and_comes_back)
{
    harness_start("train", "done");
    harness_start("other", "done");
    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    set("far", "down unreachable nobody can be reached there");
    await("far", "lost");
    expect("far", "code", "unreachable");
    json_t *one = server("far");
    const char *with = harness_text(one, "lost_with");
    cr_assert(strstr(with, "train (pid ") && !strstr(with, "other"), "%s", with);
    expect_device("far/gpu0", "state", "lost");
    cr_assert(strstr(RESEAT("server", "list")->out, "lost with: train (pid "));
    expect_place("train", "far/gpu0");

    harness_says(RESEAT("move", "other", "far/gpu0"), 4, "cannot be reached");
    const struct result *result =
        RESEAT("run", "--device", "far/gpu0", "--", harness_program(), "0");
    cr_assert_neq(result->status, 0);
    cr_assert(strstr(result->err, "cannot be reached"), "%s", result->err);
    cr_assert_eq(RESEAT("move", "other", "gpu0", "--dry-run")->status, 0);

    set("far", "up gpu:alpha");
    await("far", "up");
    expect_device("far/gpu0", "state", "up");
    cr_assert_eq(RESEAT("move", "other", "far/gpu0")->status, 0);
    one = server("far");
    cr_assert_eq(harness_number(one, "losses"), 1);
}

Test(servers, a_program_that_ends_of_the_loss_is_named_all_the_same)
{
    pid_t pid = harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    harness_end(pid);
    for (unsigned i = 0; i < 1000 && strstr(RESEAT("ps")->out, "train"); i++)
        usleep(10000);
    set("far", "down unreachable gone");
    await("far", "lost");
    json_t *one = server("far");
    const char *with = harness_text(one, "lost_with");
    cr_assert(strstr(with, "train (pid ") && strstr(with, ", ended)"), "%s", with);
}

Test(servers, new_programs_start_on_no_device_that_is_lost)
{
    setenv("POCL_FAKE_DEVICES", "cpu:near", 1);
    add("far", "up gpu:alpha");
    set("far", "down unreachable gone");
    await("far", "lost");
    harness_start("train", "done");
    expect_place("train", "cpu0");
}

Test(servers, one_that_is_removed_is_empty_first)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    harness_ends(RESEAT("server", "remove", "far"), 0);
    expect_place("train", "gpu0");
    cr_assert(!server("far"));
    /* And it can be used again as if nothing had been. */
    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
}

Test(servers, who_cannot_leave_is_named_and_it_goes_when_they_have)
{
    pid_t pid = harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    harness_end(pid);
    setenv("FAKE_MOVE", "refuse", 1);
    pid = harness_spawn(harness_reseat(), "run", "--name", "stays", "--device", "far/gpu0", "--",
                        harness_program(), "60", (char *)NULL);
    cr_assert(harness_state("stays", "running", 10000));
    const struct result *result =
        harness_ends(RESEAT("server", "remove", "far", "--timeout", "2"), 4);
    cr_assert(strstr(result->err, "stays (pid ") && strstr(result->err, "--now"), "%s",
              result->err);
    expect("far", "state", "leaving");
    expect_device("far/gpu0", "state", "leaving");
    cr_assert_eq(RESEAT("move", "stays", "far/gpu0", "--dry-run")->status, 0, "it is there");
    setenv("FAKE_MOVE", "done", 1);
    harness_start("other", "done");
    cr_assert_eq(RESEAT("move", "other", "far/gpu0")->status, 4, "it takes no one");

    /* An operator thinks better of it, then of that. */
    add("far", "up gpu:alpha");
    expect("far", "state", "up");
    cr_assert_eq(RESEAT("move", "other", "far/gpu0")->status, 0);
    cr_assert_eq(RESEAT("server", "remove", "far", "--timeout", "0")->status, 4);
    harness_end(pid);
    await_gone("far");
    expect_place("other", "gpu0");
}

Test(servers, now_leaves_programs_where_they_are)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    cr_assert_eq(RESEAT("server", "remove", "far", "--now")->status, 0);
    cr_assert(harness_state("train", "running", 1000));
    expect_device("far/gpu0", "device", "");
}

Test(servers, one_that_is_removed_in_the_middle_of_a_move_to_it_is_empty_in_the_end)
{
    harness_start("train", "done:1500");

    add("far", "up gpu:alpha");
    pid_t mover = harness_spawn(harness_reseat(), "move", "train", "far/gpu0", (char *)NULL);
    cr_assert(harness_state("train", "moving", 10000));
    harness_ends(RESEAT("server", "remove", "far"), 0);
    harness_wait(mover);
    cr_assert(harness_state("train", "running", 10000));
    expect_place("train", "gpu0");
}

Test(servers, the_next_agent_knows_them_and_who_is_there)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha,gpu:beta");
    cr_assert_eq(RESEAT("move", "train", "far/gpu1")->status, 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    /* Numbers are a device's, whichever others there are. */
    set("far", "up gpu:beta");
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    await("far", "up");
    cr_assert(harness_state("train", "running", 20000));
    expect_place("train", "far/gpu1");
    cr_assert_eq(RESEAT("move", "train", "gpu0")->status, 0);
    cr_assert_eq(RESEAT("move", "train", "far/gpu1")->status, 0);
}

Test(servers, one_that_leaves_leaves_under_the_next_agent_too)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    setenv("FAKE_MOVE", "refuse", 1);
    pid_t stays = harness_spawn(harness_reseat(), "run", "--name", "stays", "--device", "far/gpu0",
                                "--", harness_program(), "60", (char *)NULL);
    cr_assert(harness_state("stays", "running", 10000));
    cr_assert_eq(RESEAT("server", "remove", "far", "--timeout", "0")->status, 4);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    await("far", "leaving");
    cr_assert(harness_state("stays", "running", 20000));
    harness_end(stays);
    await_gone("far");
}

Test(servers, one_that_hangs_or_lies_makes_nobody_wait)
{
    struct timespec begun, ended;

    add("good", "up gpu:alpha");
    cr_assert_eq(RESEAT("server", "add", set("mute", "hang"), "mute")->status, 0);
    expect("mute", "state", "connecting");
    cr_assert_eq(RESEAT("server", "add", set("liar", "lie gpu:gamma"), "liar")->status, 0);
    expect_device("liar/gpu0", "device", "");
    cr_assert_eq(RESEAT("server", "add", set("noise", "rubbish"), "noise")->status, 0);
    await("noise", "down");
    expect("noise", "code", "watcher");
    json_t *noise = server("noise");
    const char *problem = harness_text(noise, "problem");
    cr_assert(strstr(problem, "of another version"), "%s", problem);
    cr_assert_eq(RESEAT("server", "add", set("short", "end"), "short")->status, 0);
    await("short", "down");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(RESEAT("server", "list")->status, 0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    cr_assert(ended.tv_sec - begun.tv_sec < 30, "a server is waited for");
    expect_device("good/gpu0", "state", "up");
    /* A watcher that ended is followed by another. */
    set("short", "up gpu:delta");
    await("short", "up");
    expect_device("short/gpu0", "device", "delta");
}

Test(servers, why_one_cannot_be_used_is_told_as_its_watcher_tells_it_but_harmlessly)
{
    const struct result *result = harness_ends(
        RESEAT("server", "add", set("far", "down revoked it was \x1b[31mrevoked"), "far"), 0);
    cr_assert(strstr(result->err, "cannot be used now: it was ") && !strchr(result->err, '\x1b'));
    expect("far", "code", "revoked");
    expect("far", "state", "down");
    cr_assert(!strchr(RESEAT("server", "list")->out, '\x1b'));
}

Test(servers, as_many_as_an_agent_takes_work_and_one_more_is_refused)
{
    char name[32];

    for (unsigned i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "host%u", i);
        add(name, "up gpu:alpha");
    }
    harness_says(RESEAT("server", "add", set("more", "up gpu:alpha"), "more"), 4, "64 servers");
    json_t *object = harness_json(RESEAT("devices", "--json"), "devices");
    cr_assert_eq(json_array_size(json_object_get(object, "devices")), 65);
    expect_device("host63/gpu0", "state", "up");
    set("host7", "down unreachable gone");
    await("host7", "lost");
    expect_device("host8/gpu0", "state", "up");
}

Test(servers, one_that_comes_and_goes_again_and_again_ends_as_it_is)
{
    harness_start("train", "done");

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    for (unsigned i = 0; i < 40; i++) {
        set("far", i % 2 ? "up gpu:alpha" : "down unreachable gone");
        usleep(i < 30 ? 15000 : 60000);
    }
    await("far", "up");
    expect_device("far/gpu0", "device", "alpha");
    expect_place("train", "far/gpu0");
    cr_assert_eq(RESEAT("move", "train", "gpu0")->status, 0);
}

Test(servers, those_of_the_configuration_come_with_it_and_leave_with_it)
{
    char text[512];

    snprintf(text, sizeof(text), "servers = ( { name = \"far\"; address = \"%s\"; } );\n",
             set("far", "up gpu:alpha"));
    harness_configure(text);
    harness_start("train", "done");
    await("far", "up");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
    harness_says(RESEAT("server", "remove", "far"), 4, "reseat.conf; take it out there");

    harness_configure("servers = ( { name = \"Far\"; address = \"tcp:x:1\"; } );\n");
    cr_assert_eq(RESEAT("config", "reload")->status, 2);
    harness_configure("servers = ( { name = \"far\"; address = \"nowhere\"; } );\n");
    cr_assert_eq(RESEAT("config", "reload")->status, 2);
    expect("far", "state", "up");

    harness_configure("");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    await_gone("far");
    expect_place("train", "gpu0");
    harness_configure(text);
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    await("far", "up");
    cr_assert_eq(RESEAT("move", "train", "far/gpu0")->status, 0);
}

/* ---- those that are announced in the local network ---- */

static void announce(const char *addresses)
{
    harness_write(harness_path("fresh"), addresses);
    cr_assert_eq(rename(harness_path("fresh"), harness_path("announced")), 0);
}

/** There are credentials for that host, as far as their file's name says. */
static void have_credentials(const char *host)
{
    char path[256];

    snprintf(path, sizeof(path),
             "mkdir -p %s/config/reseat/servers && touch %s/config/reseat/"
             "servers/%s.pem",
             harness_folder(), harness_folder(), host);
    cr_assert_eq(system(path), 0);
}

Test(servers, one_that_is_announced_is_left_alone_until_there_are_credentials)
{
    announce("tcp:oak.local:7460\n");
    cr_assert_eq(RESEAT("server", "add", "mdns:", "lan")->status, 0);
    await("oak", "found");
    expect("oak", "code", "no-credentials");
    have_credentials("elm.local");
    usleep(700000);
    expect("oak", "state", "found");
    have_credentials("oak.local");
    await("oak", "down"); /* Its watcher looked, and nobody is there. */
    expect("oak", "code", "unreachable");
    cr_assert_eq(RESEAT("server", "remove", "lan")->status, 0);
    await_gone("oak");
    await_gone("lan");
}

Test(servers, what_is_announced_replaces_nothing_and_is_no_flood)
{
    char many[4096] = "";

    add("far", "up gpu:alpha");
    cr_assert_eq(RESEAT("server", "add", set("still", "down unreachable no"), "still")->status, 0);
    for (unsigned i = 0; i < 60; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "tcp:flood%u.local:7460\n", i);
    snprintf(many + strlen(many), sizeof(many) - strlen(many),
             "tcp:far.local:666\ntcp:still.local:666\nunix:/tmp/"
             "evil\nmdns:\ntcp:\x1b[31m.local:1\ntcp:x:0\nrubbish\n");
    announce(many);
    cr_assert_eq(RESEAT("server", "add", "mdns:")->status, 0);
    await("flood31", "found");
    cr_assert(!server("flood32"));
    json_t *object = harness_json(RESEAT("server", "list", "--json"), "server");
    cr_assert_eq(json_array_size(json_object_get(object, "servers")), 35);
    json_t *one = server("still");
    cr_assert(!strncmp(harness_text(one, "address"), "unix:", 5));
    expect("far", "state", "up");
    expect_device("far/gpu0", "device", "alpha");
    /* An operator may add more of their own all the same. */
    add("more", "up gpu:beta");
}

Test(servers, a_device_of_this_machine_goes_first_where_it_will_do)
{
    add("far", "up gpu:alpha");
    pid_t first = harness_start("first", "done"), second = harness_start("second", "done");
    expect_place("first", "gpu0");
    expect_place("second", "gpu0");
    harness_end(first);
    harness_end(second);
    setenv("POCL_FAKE_DEVICES", "cpu:near", 1);
    first = harness_start("third", "done");
    expect_place("third", "far/gpu0");
}
