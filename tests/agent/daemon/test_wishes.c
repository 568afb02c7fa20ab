#include "tests/support/cases.h"

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* What programs that registered with reseat.h ask for, and what the agent makes of it. */

#define SOON 8000
#define GIB  (1ull << 30)

static void begin(void)
{
    puppets_begin("gpu:one,gpu:roomy,cpu:plain");
    RESEAT("devices");
}

TestSuite(wishes, .init = begin, .fini = puppets_finish, .timeout = 120);

static struct puppet *start(const char *device, const struct reseat_limits *minimum,
                            const struct reseat_limits *preferred)
{
    struct puppet_kind kind = {.device = device, .minimum = minimum, .preferred = preferred};
    struct puppet *puppet = puppet_start("app", &kind);

    cr_assert(puppet_allocate(puppet, 100 * MIB, SOON));
    return puppet;
}

/** The line of `reseat explain` that begins with @what; "" where there is none. */
static const char *explained(const char *what)
{
    static char line[1024];
    struct result *result = PUPPETS_RESEAT("explain", "app", "--json");
    char begin[256];

    snprintf(begin, sizeof(begin), "\"%s", what);
    const char *found = strstr(result->out, begin);
    snprintf(line, sizeof(line), "%.*s", found ? (int)strcspn(found + 1, "\"") : 0,
             found ? found + 1 : "");
    return line;
}

struct where {
    const struct puppet *app;
    const char *device;
};

static bool is_there(void *data)
{
    const struct where *where = data;

    return strcmp(where->app->vdevs[0].device, where->device) == 0;
}

static bool comes_to(const struct puppet *app, const char *device)
{
    struct where where = {app, device};

    return puppets_run(is_there, &where, SOON);
}

Test(wishes, each_part_of_a_minimum_keeps_a_program_off_what_has_less)
{
    /* The fake GPUs have 256 work-items and no fp16, the CPU both, all 4 units and 64 KiB. */
    static const struct {
        struct reseat_limits minimum;
        bool roomy, cpu;
    } cases[] = {
        {{.memory = 2 * GIB}, true, true},
        {{.memory = 2 * GIB + 1}, true, false},
        {{.work_group_size = 257}, false, true},
        {{.compute_units = 4, .local_memory = 65536}, true, true},
        {{.compute_units = 5}, false, false},
        {{.local_memory = 65537}, false, false},
        {{.allocation = 1}, false, false}, /* They do not say. */
        {{.features = RESEAT_FP64 | RESEAT_IMAGES}, true, true},
        {{.features = RESEAT_FP16}, false, true},
        {{.features = RESEAT_FP64 | RESEAT_FP16}, false, true},
        {{.features = RESEAT_INT64_ATOMICS}, false, false},
        {{.features = RESEAT_SUBGROUPS}, false, false},
        {{.features = RESEAT_IL}, false, false},
    };

    /* It stays where it is, whatever that lacks. */
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    setenv("RESEAT_BUDGET_PROGRAM", "0", 1);
    RESEAT("devices");
    struct puppet *app = start("gpu:one", &cases[0].minimum, NULL);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        app->minimum = cases[i].minimum;
        puppet_wish(app);
        cr_expect_eq(!*explained("gpu1: app would not run there"), cases[i].roomy, "%zu", i);
        cr_expect_eq(!*explained("cpu0: app would not run there"), cases[i].cpu, "%zu", i);
    }
    /* What it asks for is said, and so is what there is. */
    app->minimum = (struct reseat_limits){.features = RESEAT_FP16};
    puppet_wish(app);
    struct result *result = PUPPETS_RESEAT("explain", "app");
    cr_assert(strstr(result->out, "gpu1 would not run it: roomy: the program asks for half "
                                  "precision (fp16), the\n    device offers none"),
              "%s", result->out);
    /* One that says no more asks for no more. */
    app->aware = false;
    puppet_wish(app);
    cr_expect_str_eq(explained("gpu1: app would not run there"), "");
}

Test(wishes, what_an_operator_keeps_back_of_a_device_is_none_of_it)
{
    struct reseat_limits minimum = {.memory = GIB};

    start("gpu:one", &minimum, NULL);
    cr_assert_str_eq(explained("gpu1: app would not run there"), "");
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "1023MiB")->status, 0);
    cr_assert_str_eq(explained("gpu1: app would not run there"), "gpu1: app would not run there.");
    /* So a drain has it go elsewhere. */
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu0")->status, 0);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0);
    cr_assert_geq(devices_say("cpu0", "granted_bytes"), 100 * MIB);
}

Test(wishes, a_program_is_moved_to_a_free_device_that_has_more_of_what_it_prefers)
{
    struct reseat_limits minimum = {.memory = GIB}, preferred = {.memory = 8 * GIB};
    struct puppet *app = start("gpu:one", &minimum, &preferred);

    cr_assert_str_eq(explained("It prefers"), "It prefers 8 GiB; gpu1 has them.");
    struct result *result = PUPPETS_RESEAT("rebalance", "--dry-run", "--json");
    cr_assert(strstr(result->out, "\"app prefers 8 GiB; gpu1 has them\""), "%s", result->out);
    cr_assert_eq(app->moves, 0);
    cr_assert_eq(PUPPETS_RESEAT("rebalance")->status, 0);
    cr_assert_str_eq(app->vdevs[0].device, "gpu:roomy");
    cr_assert_eq(app->moves, 1);
    /* It has them, and stays. */
    cr_assert_eq(PUPPETS_RESEAT("rebalance")->status, 0);
    cr_assert_eq(app->moves, 1);
    cr_assert_str_eq(explained("It prefers"), "It prefers 8 GiB; gpu1 has them.");
    /* A part of the device is somebody else's: then it is not free. */
    cr_assert_eq(PUPPETS_RESEAT("move", "app", "gpu0")->status, 0);
    app->busy = 500; /* So that it is not to save a device either. */
    puppet_say(app);
    struct puppet_kind kind = {.device = "gpu:roomy", .ways = "w"}; /* It stays. */
    cr_assert(puppet_allocate(puppet_start("other", &kind), 100 * MIB, SOON));
    cr_assert_eq(PUPPETS_RESEAT("rebalance")->status, 0);
    cr_assert_eq(app->moves, 2);
    cr_assert(strstr(explained("It prefers"), "once 8 GiB are free there"));
}

/** A new agent with these devices, which moves programs by itself after they stayed for @stay_s. */
static void restart_automatic(const char *stay_s, const char *devices)
{
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    setenv("RESEAT_AUTOMATIC", "yes", 1);
    setenv("RESEAT_MINIMUM_STAY", stay_s, 1);
    setenv("POCL_FAKE_DEVICES", devices, 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
}

/** A program that is so busy. */
static struct puppet *start_busy(const char *name, const struct puppet_kind *kind, uint64_t busy)
{
    struct puppet *puppet = puppet_start(name, kind);

    puppet->busy = busy;
    cr_assert(puppet_allocate(puppet, 100 * MIB, SOON));
    return puppet;
}

/** A new agent, that acts by itself for a program that prefers so many compute units. */
static struct puppet *start_preferring(uint32_t units, const char *stay_s)
{
    struct reseat_limits preferred = {.compute_units = units};

    restart_automatic(stay_s, "gpu:one,gpu:wide");
    return start_busy("app", &(struct puppet_kind){.preferred = &preferred}, 500);
}

Test(wishes, it_is_moved_by_itself_too_and_again_when_it_wants_more)
{
    struct puppet *app = start_preferring(4, "0");

    puppets_for(1500);
    cr_assert_eq(app->moves, 0);
    app->preferred.compute_units = 64;
    puppet_wish(app);
    cr_assert(comes_to(app, "gpu:wide"));
    puppets_for(1500);
    cr_assert_eq(app->moves, 1);
}

/** It has little to do on gpu:one and much on gpu:wide, where somebody else is too: to each a
 * reason to be on the other. */
static bool is_sent_to_and_fro(void *data)
{
    struct puppet *app = data;
    uint64_t busy = strcmp(app->vdevs[0].device, "gpu:one") == 0 ? 50 : 950;

    if (app->busy != busy) {
        app->busy = busy;
        puppet_say(app);
    }
    return app->moves > 1;
}

static void expect_move_explained(void)
{
    static const char *const lines[] = {"the policy moved it 1 time:\n",
                                        " ago from gpu0 to gpu2: app keeps gpu0 busy 5%",
                                        "gpu0: fits, but the policy moved app away from it"};
    const char *text = PUPPETS_RESEAT("explain", "app")->out;

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        cr_expect(strstr(text, lines[i]), "not \"%s\": %s", lines[i], text);
}

Test(wishes, a_program_is_not_moved_back_at_once_and_its_moves_are_explained)
{
    restart_automatic("1", "gpu:one,gpu:wide");
    struct puppet *other = start_busy("other", &(struct puppet_kind){.device = "gpu:wide"}, 300);
    struct puppet *app = start_busy("app", &(struct puppet_kind){0}, 50);

    cr_expect(!puppets_run(is_sent_to_and_fro, app, 5000), "it is moved back");
    cr_assert_eq(app->moves, 1);
    cr_assert_str_eq(app->vdevs[0].device, "gpu:wide");
    expect_move_explained();

    /* A new agent knows it as well. */
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("devices")->status, 0);
    puppet_connect(other);
    puppet_connect(app);
    cr_expect(!puppets_run(is_sent_to_and_fro, app, 3000), "it is moved back by a new agent");
    expect_move_explained();
}

/** A program that keeps gpu:one busy a tenth of the time goes beside another one on gpu:larger, if
 * @speeds says how fast both are: a guess may be so wrong that gpu:larger would hold it up. */
static unsigned moves_with(const char *speeds)
{
    harness_configure(speeds);
    restart_automatic("1", "gpu:one,gpu:larger");
    (void)start_busy("other", &(struct puppet_kind){.device = "gpu:larger"}, 300);
    struct puppet *app = start_busy("app", &(struct puppet_kind){0}, 100);
    puppets_for(4000);
    return app->moves;
}

Test(wishes, a_device_of_guessed_speed_is_not_tried_where_it_might_hold_up)
{
    cr_expect_eq(moves_with(""), 0);
    const char *text = PUPPETS_RESEAT("explain", "app")->out;
    cr_expect(strstr(text, "(a guess)"), "%s", text);
}

Test(wishes, a_device_of_configured_speed_is)
{
    cr_expect_eq(moves_with("devices = ( { kind = \"gpu\"; speed = 1000; } );\n"), 1);
}

static bool is_ready(void *data)
{
    const struct puppet *puppet = data;

    return puppet->ready[0] != '\0';
}

Test(wishes, it_is_made_ready_for_where_it_would_go_as_long_as_that_takes_programs)
{
    setenv("RESEAT_PREWARM", "yes", 1);
    setenv("RESEAT_BUDGET_PROGRAM", "0", 1); /* It would go, and never does. */
    struct puppet *app = start_preferring(64, "2");

    cr_assert(puppets_run(is_ready, app, SOON), "it is not made ready");
    cr_assert(strstr(app->ready, "wide"), "%s", app->ready);
    puppets_for(3500);
    cr_assert_eq(app->prewarms, 1, "once is enough");
    cr_assert_eq(app->moves, 0);
    /* Nobody is there; but it is not to be opened either. */
    harness_ends(PUPPETS_RESEAT("drain", "gpu2"), 0);
    cr_assert_str_eq(app->ready, "");
    cr_assert_eq(app->drops, 1);
    puppets_for(2500);
    cr_assert_eq(app->prewarms, 1);
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu2", "--off")->status, 0);
    cr_assert(puppets_run(is_ready, app, SOON), "it is not made ready again");
    cr_assert_eq(app->prewarms, 2);
}

Test(wishes, a_program_that_asks_for_more_than_its_device_has_is_moved_off_it)
{
    struct reseat_limits minimum = {.memory = GIB};
    struct puppet *app = start("gpu:one", &minimum, NULL);

    puppets_for(500);
    cr_assert_eq(app->moves, 0);
    app->minimum = (struct reseat_limits){.features = RESEAT_FP16};
    puppet_wish(app);
    cr_assert(comes_to(app, "cpu:plain"));
    puppets_for(500);
    cr_assert_eq(app->moves, 1);
    cr_assert(strstr(explained("app has run on cpu0"), "100 MiB"));
}

Test(wishes, it_stays_where_no_other_device_has_that)
{
    struct reseat_limits minimum = {.memory = GIB};
    struct puppet *app = start("gpu:one", &minimum, NULL);

    app->minimum = (struct reseat_limits){.compute_units = 5};
    puppet_wish(app);
    puppets_for(500);
    cr_assert_eq(app->moves, 0);
    cr_assert_str_eq(
        explained("gpu0 no longer meets"),
        "gpu0 no longer meets its requirements: it moves as soon as another device has room.");
}

static struct puppet *beside(const char *name, const char *device)
{
    struct puppet_kind kind = {.device = device};
    struct puppet *puppet = puppet_start(name, &kind);

    cr_assert(puppet_allocate(puppet, 50 * MIB, SOON));
    return puppet;
}

Test(wishes, a_drain_to_come_is_told_and_keeps_new_programs_away)
{
    struct reseat_limits minimum = {.memory = 1};
    struct puppet *app = start("gpu:one", &minimum, NULL), *plain = beside("plain", "gpu:one");
    pid_t drain = harness_spawn(harness_reseat(), "drain", "gpu0", "--in", "3600", NULL);

    cr_assert(puppet_told(app, 1, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_TAKEN);
    cr_assert_eq(app->notice.vdev, 0);
    cr_assert_gt(app->notice.in_ns, 3000ull * 1000000000);
    cr_assert_leq(app->notice.in_ns, 3600ull * 1000000000);
    cr_assert_eq(devices_say("gpu0", "draining"), 1);
    cr_assert_eq(devices_say("gpu0", "drained"), 0);
    uint64_t in_ns = devices_say("gpu0", "drains_in_ns");
    cr_assert(in_ns > 3000ull * 1000000000 && in_ns <= 3600ull * 1000000000);
    struct result *result = PUPPETS_RESEAT("devices");
    cr_assert(strstr(result->out, "draining in 3"), "%s", result->out);
    harness_says(PUPPETS_RESEAT("run", "--device", "gpu0", "true"), 4, "gpu0 will be drained in 3");
    cr_assert_eq(PUPPETS_RESEAT("move", "plain", "gpu1")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("move", "plain", "gpu0")->status, 4);
    cr_assert(strstr(explained("gpu0 will be drained in "), " s."));

    /* An agent that is started again knows, and tells again. */
    cr_assert_eq(PUPPETS_RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(harness_wait(drain), 3);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    puppet_connect(app);
    puppet_connect(plain);
    cr_assert(puppet_told(app, 2, SOON));
    cr_assert_gt(app->notice.in_ns, 3000ull * 1000000000);
    cr_assert_eq(devices_say("gpu0", "draining"), 1);

    /* And is told when it is not to be any more. */
    drain = harness_spawn(harness_reseat(), "drain", "gpu0", "--in", "3000", NULL);
    cr_assert(puppet_told(app, 3, SOON));
    harness_ends(PUPPETS_RESEAT("drain", "gpu0", "--off"), 0);
    cr_assert(puppet_told(app, 4, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_TAKEN);
    cr_assert_eq(app->notice.in_ns, UINT64_MAX);
    cr_assert_eq(harness_wait(drain), 1);
    cr_assert_eq(devices_say("gpu0", "draining"), 0);
    cr_assert_eq(PUPPETS_RESEAT("move", "plain", "gpu0")->status, 0);
    cr_assert_eq(app->moves, 0);
}

Test(wishes, programs_leave_when_the_time_has_come)
{
    struct reseat_limits minimum = {.memory = 1};
    struct puppet *app = start("gpu:one", &minimum, NULL), *plain = beside("plain", "gpu:one");
    struct result *result = harness_says(PUPPETS_RESEAT("drain", "gpu0", "--in", "1.2", "--json"),
                                         0, "\"programs\": 2");
    cr_assert(strstr(result->out, "\"told\": 1"), "%s", result->out);
    cr_assert(strstr(result->out, "\"moved\": 2"), "%s", result->out);
    cr_assert_str_neq(app->vdevs[0].device, "gpu:one");
    cr_assert_str_neq(plain->vdevs[0].device, "gpu:one");
    cr_assert_eq(app->notices, 2); /* That it will be, and that it is. */
    cr_assert_eq(app->notice.in_ns, 0);
    cr_assert_eq(devices_say("gpu0", "drained"), 1);
    cr_assert_eq(devices_say("gpu0", "draining"), 0);
}

static bool has_moved(void *data)
{
    return ((struct puppet *)data)->moves > 0;
}

Test(wishes, who_says_that_now_is_a_good_time_leaves_before)
{
    struct reseat_limits minimum = {.memory = 1};
    struct puppet *app = start("gpu:one", &minimum, NULL), *plain = beside("plain", "gpu:one");

    puppet_wish(app); /* Of no drain: nothing comes of it. */
    pid_t drain = harness_spawn(harness_reseat(), "drain", "gpu0", "--in", "3600", NULL);
    cr_assert(puppet_told(app, 1, SOON));
    puppets_for(500);
    cr_assert_eq(app->moves, 0);
    puppet_wish(app);
    cr_assert(puppets_run(has_moved, app, SOON));
    cr_assert_str_neq(app->vdevs[0].device, "gpu:one");
    puppets_for(500);
    cr_assert_eq(plain->moves, 0);
    cr_assert_eq(devices_say("gpu0", "drained"), 0);
    /* The last one leaves: nothing is left to wait for. */
    cr_assert_eq(PUPPETS_RESEAT("move", "plain", "gpu1")->status, 0);
    cr_assert_eq(harness_wait(drain), 0);
    cr_assert_eq(devices_say("gpu0", "drained"), 1);
}

Test(wishes, what_comes_to_the_machine_is_told)
{
    struct reseat_limits minimum = {.memory = 1};
    char more[300];

    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    snprintf(more, sizeof(more), "%s/more", harness_folder());
    setenv("FAKE_MORE_DEVICES", more, 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct puppet *app = start("gpu:one", &minimum, NULL);
    cr_assert_eq(app->notices, 0);
    harness_write(more, "gpu:wide");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    cr_assert(puppet_told(app, 1, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_ADDED);
    cr_assert_eq(app->notice.vdev, UINT64_MAX);
    cr_assert_eq(app->notice.value, 2 * GIB);
    cr_assert_str_eq(app->notice.text, "gpu2 (wide) is there");
    /* Each once, also where another comes. */
    harness_write(more, "gpu:wide,cpu:more");
    cr_assert_eq(PUPPETS_RESEAT("devices")->status, 0);
    puppets_for(1100); /* A list is as good as new for a second. */
    cr_assert_eq(PUPPETS_RESEAT("devices")->status, 0);
    cr_assert(puppet_told(app, 2, SOON));
    cr_assert_str_eq(app->notice.text, "cpu1 (more) is there");
    puppets_for(200);
    cr_assert_eq(app->notices, 2);
    unsetenv("FAKE_MORE_DEVICES");
}

Test(wishes, what_operators_give_is_told_and_what_they_take_is_not)
{
    struct reseat_limits minimum = {.memory = 1};
    struct puppet *app = start("gpu:one", &minimum, NULL);

    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "2GiB")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "1GiB")->status, 0);
    cr_assert_eq(app->notices, 0);
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "3GiB")->status, 0);
    cr_assert(puppet_told(app, 1, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_ADDED);
    cr_assert_eq(app->notice.value, 3 * GIB);
    cr_assert_str_eq(app->notice.text, "programs may have 3.0 GiB of gpu1");
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--off")->status, 0);
    cr_assert(puppet_told(app, 2, SOON));
    cr_assert_eq(app->notice.value, 8 * GIB);
    /* More than there is changes nothing. */
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "9GiB")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu1")->status, 0);
    cr_assert_eq(app->notices, 2);
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu1", "--off")->status, 0);
    cr_assert(puppet_told(app, 3, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_ADDED);
    cr_assert_eq(app->notice.vdev, UINT64_MAX);
    cr_assert_str_eq(app->notice.text, "gpu1 takes programs again");
    /* It takes them already. */
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu1", "--off")->status, 0);
    puppets_for(200);
    cr_assert_eq(app->notices, 3);
}
