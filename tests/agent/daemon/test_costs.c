#include "tests/support/cases.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* What programs report of their launches, and what the agent keeps and makes of it. */

#define SOON 8000
#define MS   1000000ull

static void begin(void)
{
    puppets_begin("gpu:one,gpu:larger");
    RESEAT("devices");
}

TestSuite(costs, .init = begin, .fini = puppets_finish, .timeout = 120);

static struct puppet *start(const char *name)
{
    struct puppet_kind kind = {.device = "gpu:one"};
    struct puppet *puppet = puppet_start(name, &kind);

    cr_assert(puppet_allocate(puppet, MIB, SOON));
    return puppet;
}

/** @times launches of so many work-items. */
static void measured(struct puppet *puppet, const char *kernel, const char *device, unsigned times,
                     uint64_t items, uint64_t ns)
{
    for (unsigned i = 0; i < times; i++)
        puppet_measured(puppet, kernel, device, items, ns);
}

/** A number of what `reseat profile @what` says of a kernel on a device; UINT64_MAX: nothing. */
static uint64_t profile_says(const char *what, const char *kernel, const char *device,
                             const char *field)
{
    struct result *result = what ? RESEAT("profile", what, "--json") : RESEAT("profile", "--json");
    json_t *answer = harness_json(result, "profile"), *cost;
    uint64_t ret = UINT64_MAX;
    size_t i;

    json_array_foreach(json_object_get(answer, "costs"), i, cost)
    {
        if (strcmp(harness_text(cost, "kernel"), kernel) == 0 &&
            strcmp(harness_text(cost, "device"), device) == 0)
            ret = (uint64_t)harness_number(cost, field);
    }
    return ret;
}

static bool comes_to(const char *kernel, const char *device, const char *field, uint64_t least)
{
    for (unsigned i = 0; i < SOON / 20; i++) {
        uint64_t value = profile_says(NULL, kernel, device, field);
        if (value != UINT64_MAX && value >= least)
            return true;
        puppets_for(20);
    }
    return false;
}

static void end_agent(int number)
{
    pid_t agent = harness_agent();

    cr_assert_gt(agent, 0);
    cr_assert_eq(kill(agent, number), 0);
    for (unsigned i = 0; i < SOON / 10 && kill(agent, 0) == 0; i++)
        usleep(10000);
}

Test(costs, what_programs_measure_is_shown_by_kernel_device_and_size)
{
    struct puppet *a = start("a");

    measured(a, "blur", "gpu:one", 5, 1000, 4 * MS);
    measured(a, "blur", "gpu:larger", 5, 1000, MS);
    measured(a, "other", "gpu:one", 2, 7, MS);
    cr_assert(comes_to("other", "gpu0", "samples_permil", 2000));
    uint64_t ns = profile_says(NULL, "blur", "gpu0", "ns");
    cr_expect(ns > 3900000 && ns < 4100000, "%lu", ns);
    cr_expect_eq(profile_says("blur", "other", "gpu0", "ns"), UINT64_MAX);
    cr_expect_neq(profile_says("blur", "blur", "gpu1", "ns"), UINT64_MAX);
    cr_expect_neq(profile_says("a", "other", "gpu0", "ns"), UINT64_MAX);
    struct result *table = harness_ends(RESEAT("profile"), 0);
    cr_expect(strstr(table->out, "blur") && strstr(table->out, "4.0ms"), "%s", table->out);
}

Test(costs, the_policy_is_told_how_fast_a_program_would_be_elsewhere)
{
    struct puppet *a = start("a");

    measured(a, "blur", "gpu:one", 5, 1000, 4 * MS);
    measured(a, "blur", "gpu:larger", 5, 1000, MS);
    cr_assert(comes_to("blur", "gpu1", "samples_permil", 5000));
    puppets_for(1100); /* for so long an answer holds */
    struct result *result = PUPPETS_RESEAT("explain", "a");
    char *text = strstr(result->out, "measured at ");
    cr_assert(text, "%s", result->out);
    double times = strtod(text + strlen("measured at "), NULL);
    cr_expect(times > 3.8 && times < 4.2, "%s", text);
}

Test(costs, what_was_learnt_outlives_the_agent)
{
    struct puppet *a = start("a");

    measured(a, "blur", "gpu:one", 4, 1000, 4 * MS);
    cr_assert(comes_to("blur", "gpu0", "samples_permil", 4000));
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(profile_says(NULL, "blur", "gpu0", "samples_permil"), 4000);
    /* Also of an agent that could not write at its end: it had written when it was asked. */
    end_agent(SIGKILL);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(profile_says(NULL, "blur", "gpu0", "samples_permil"), 4000);
}

static const char *store(void)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/reseat/costs.sqlite", getenv("XDG_STATE_HOME"));
    return path;
}

Test(costs, a_damaged_file_is_set_aside_and_learning_begins_anew)
{
    char aside[4200];
    struct stat status;
    struct puppet *a = start("a");

    measured(a, "blur", "gpu:one", 4, 1000, MS);
    cr_assert(comes_to("blur", "gpu0", "samples_permil", 4000));
    end_agent(SIGTERM);
    int fd = open(store(), O_WRONLY);
    cr_assert_geq(fd, 0);
    for (unsigned i = 0; i < 4096; i++)
        cr_assert_eq(pwrite(fd, "rubbish.", 8, 8 * i), 8);
    close(fd);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(profile_says(NULL, "blur", "gpu0", "ns"), UINT64_MAX);
    snprintf(aside, sizeof(aside), "%s.damaged", store());
    cr_expect_eq(stat(aside, &status), 0);
    struct puppet *b = start("b");
    measured(b, "blur", "gpu:one", 4, 1000, MS);
    cr_expect(comes_to("blur", "gpu0", "samples_permil", 4000));
}

Test(costs, where_nothing_can_be_written_the_agent_learns_until_it_ends)
{
    end_agent(SIGTERM);
    unlink(store());
    cr_assert_eq(mkdir(store(), 0700), 0);
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct puppet *a = start("a");
    measured(a, "blur", "gpu:one", 4, 1000, MS);
    cr_expect(comes_to("blur", "gpu0", "samples_permil", 4000));
}

Test(costs, rubbish_is_learnt_nothing_of)
{
    struct puppet *a = start("a");
    struct frame frame;

    measured(a, "blur", "gpu:one", 4, 1000, MS);
    measured(a, "zero", "gpu:one", 4, 0, MS);
    measured(a, "none", "gpu:nowhere", 4, 1000, MS);
    measured(a, "quick", "gpu:one", 4, 1000, 0);
    measured(a, "blur", "gpu:one", 3, 1000, UINT64_MAX);
    frame_init(&frame, MSG_COSTS);
    frame_array(&frame, "samples");
    frame_u64(&frame, NULL, 7);
    frame_end(&frame);
    puppet_send(a, &frame);
    measured(a, "last", "gpu:one", 3, 1000, MS);
    cr_assert(comes_to("last", "gpu0", "samples_permil", 3000));
    cr_expect_eq(profile_says(NULL, "zero", "gpu0", "ns"), UINT64_MAX);
    cr_expect_eq(profile_says(NULL, "quick", "gpu0", "ns"), UINT64_MAX);
    uint64_t ns = profile_says(NULL, "blur", "gpu0", "ns");
    cr_expect(ns > 900000 && ns < 1100000, "%lu", ns);
}

/** One launch of each of @count kernels. */
static void flood(struct puppet *puppet, unsigned count)
{
    char name[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        puppet_measured(puppet, name, "gpu:one", 1000, MS);
    }
}

Test(costs, a_program_that_tells_too_much_is_not_listened_to)
{
    struct puppet *a = start("a"), *b = start("b");

    flood(a, 4000);
    measured(b, "blur", "gpu:one", 3, 1000, MS);
    cr_assert(comes_to("blur", "gpu0", "samples_permil", 3000), "nor are others");
    json_t *answer = harness_json(RESEAT("profile", "--json"), "profile");
    cr_expect(json_is_false(json_object_get(answer, "more")), "more than 1000 of 4000 are known");
}

/** Where a program called @name would start, which then ends. */
static bool starts_on(const char *name, const char *device)
{
    struct puppet_kind kind = {.device = NULL};
    struct puppet *puppet = puppet_start(name, &kind);
    bool there = strstr(puppet->start, device);

    puppet_kill(puppet);
    return there;
}

Test(costs, a_program_starts_where_the_memory_of_its_former_runs_fits)
{
    struct puppet_kind kind = {.device = "gpu:larger"};
    struct puppet *a = puppet_start("a", &kind);

    cr_assert(puppet_allocate(a, 300 * MIB, SOON));
    puppets_limit("gpu0", "100MiB");
    cr_expect(starts_on("a", "one"), "it did not end yet");
    puppet_kill(a);
    puppets_for(1500); /* until it is known to have ended */
    cr_expect(starts_on("a", "larger"));
    cr_expect(starts_on("b", "one"));
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect(starts_on("a", "larger"), "the next agent does not know");
    struct puppet_kind small = {.device = "gpu:one"};
    a = puppet_start("a", &small);
    cr_assert(puppet_allocate(a, MIB, SOON));
    const char *text = PUPPETS_RESEAT("explain", "a")->out;
    cr_expect(strstr(text, "In former runs it needed up to "), "%s", text);
    puppet_kill(a);
    puppets_for(1500);
    /* A small run does not make the others forgotten. */
    cr_expect(starts_on("a", "larger"));
    /* Nowhere is there room: it starts nevertheless, where it would have. */
    puppets_limit("gpu1", "100MiB");
    cr_expect(starts_on("a", "one"));
}

Test(costs, what_was_exported_is_imported_by_another_agent)
{
    char path[4096];
    struct puppet *a = start("a");

    snprintf(path, sizeof(path), "%s/exported.json", getenv("XDG_STATE_HOME"));
    measured(a, "blur", "gpu:one", 5, 1000, 4 * MS);
    measured(a, "other", "gpu:larger", 5, 1000, MS);
    cr_assert(comes_to("other", "gpu1", "samples_permil", 5000));
    json_t *answer = harness_json(RESEAT("profile", "--export", path, "--json"), "profile");
    cr_expect_eq(harness_number(answer, "exported"), 2);
    cr_expect_str_eq(harness_text(answer, "file"), path);
    end_agent(SIGTERM);
    unlink(store());
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(profile_says(NULL, "blur", "gpu0", "ns"), UINT64_MAX, "it is known already");
    harness_says(RESEAT("profile", "--import", path), 0, "2 entries");
    cr_expect_eq(profile_says(NULL, "blur", "gpu0", "samples_permil"), 5000);
    cr_expect_eq(profile_says("gpu1", "blur", "gpu0", "ns"), UINT64_MAX, "it is of another device");
    cr_expect_neq(profile_says("gpu1", "other", "gpu1", "ns"), UINT64_MAX);
    /* Twice the same: the samples add up. */
    cr_assert_eq(RESEAT("profile", "--import", path)->status, 0);
    cr_expect_eq(profile_says(NULL, "blur", "gpu0", "samples_permil"), 10000);
}

Test(costs, only_regular_files_are_read_and_replaced)
{
    char fifo[4096];

    snprintf(fifo, sizeof(fifo), "%s/fifo", getenv("XDG_STATE_HOME"));
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    for (int i = 0; i < 2; i++) {
        struct result *result = RESEAT("profile", i ? "--export" : "--import", fifo);
        cr_expect_neq(result->status, 0);
        cr_expect(strstr(result->err, "not a regular file"), "%s", result->err);
    }
    struct stat there;
    cr_assert_eq(stat(fifo, &there), 0);
    cr_expect(S_ISFIFO(there.st_mode), "it was replaced");
}

Test(costs, a_file_with_a_fault_is_refused_and_changes_nothing)
{
    static const char good[] =
        "{\"kernel\":\"k\",\"id\":\"0123456789abcdef0123456789abcdef\",\"key\":"
        "\"icd=i;platform=p;device=d;ordinal=0\",\"items\":1,\"ns\":1,\"samples_permil\":1000}";
    static const char *const wrong[] = {
        "{\"kernel\":\"k\",\"id\":\"xyz\"}",
        "{\"kernel\":\"k\",\"id\":\"0123456789abcdef0123456789abcdef\",\"key\":\"?\"}",
        "{\"kernel\":\"k\",\"id\":\"0123456789abcdef0123456789abcdef\",\"key\":"
        "\"icd=i;platform=p;device=d;ordinal=0\",\"items\":1,\"ns\":-1,\"samples_permil\":1000}",
        "{\"kernel\":\"k\",\"id\":\"0123456789abcdef0123456789abcdef\",\"key\":"
        "\"icd=i;platform=p;device=d;ordinal=0\",\"items\":1,\"ns\":1}",
        "7",
        "",
    };
    char path[4096], text[2048];

    snprintf(path, sizeof(path), "%s/wrong.json", getenv("XDG_STATE_HOME"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(text, sizeof(text), "{\"costs\":[%s,%s]}", good, wrong[i]);
        harness_write(path, text);
        struct result *result = RESEAT("profile", "--import", path);
        cr_expect_neq(result->status, 0, "%s", text);
        cr_expect(strstr(result->err, i + 1 < sizeof(wrong) / sizeof(*wrong) ? "entry 2" : ":1:"),
                  "%s", result->err);
        cr_expect_eq(profile_says(NULL, "k", "d", "ns"), UINT64_MAX, "%s", text);
    }
    snprintf(text, sizeof(text), "{\"costs\":[%s]}", good);
    harness_write(path, text);
    cr_assert_eq(RESEAT("profile", "--import", path)->status, 0);
    cr_expect_eq(profile_says(NULL, "k", "d", "ns"), 1);
}

/** The meter of gpu0 says so many joules at so many seconds. */
static void meter_says(const char *path, unsigned joules, unsigned seconds)
{
    char text[64], fresh[4200];

    snprintf(fresh, sizeof(fresh), "%s.new", path);
    snprintf(text, sizeof(text), "%u000000 %u000000000\n", joules, seconds);
    harness_write(fresh, text);
    cr_assert_eq(rename(fresh, path), 0);
}

Test(costs, an_agent_starts_with_a_power_cap)
{
    harness_configure("policy = { power-cap = 5000; };\n");
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect(strstr(RESEAT("config", "print")->out, "power-cap = 5000;"));
}

/* Readings come four times a second, its total every two seconds. */
Test(costs, a_meter_that_steps_rarely_reads_as_the_mean_between_its_steps)
{
    char path[4096], text[4400], fresh[4200];
    double least = 1e9, most = 0;

    snprintf(path, sizeof(path), "%s/meter", getenv("XDG_STATE_HOME"));
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    snprintf(text, sizeof(text), "devices = ({ match = \"gpu0\"; meter = \"file:%s\"; });\n", path);
    harness_configure(text);
    harness_write(path, "0\n");
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    for (unsigned i = 1; i < 4; i++) { /* 50 W */
        puppets_for(2000);
        snprintf(text, sizeof(text), "%u000000\n", 100 * i);
        harness_write(fresh, text);
        cr_assert_eq(rename(fresh, path), 0);
        for (unsigned k = 0; i > 1 && k < 4; k++) {
            puppets_for(300);
            json_t *answer = harness_parse(RESEAT("devices", "--json")->out);
            const json_t *gpu = json_array_get(json_object_get(answer, "devices"), 0);
            double mw = (double)harness_number(gpu, "power_mw");
            least = mw < least ? mw : least;
            most = mw > most ? mw : most;
        }
    }
    harness_write(path, "1000000000000000\n"); /* no device draws that */
    puppets_for(600);
    json_t *answer = harness_parse(RESEAT("devices", "--json")->out);
    const json_t *gpu = json_array_get(json_object_get(answer, "devices"), 0);
    cr_expect_leq(harness_number(gpu, "power_mw"), 80000);
    cr_expect(least > 15000 && most < 80000, "%g to %g mW", least, most);
}

static bool is_told(void *data)
{
    return ((struct puppet *)data)->powers_told != 0;
}

/* Until a kernel's own power is learnt, that is what the configuration says of the device. */
Test(costs, a_program_with_an_energy_objective_is_told_the_power_of_its_kernels)
{
    harness_configure("devices = ({ match = \"gpu0\"; idle-watts = 20; busy-watts = 100; },\n"
                      "{ match = \"gpu1\"; idle-watts = 10; busy-watts = 40; });\n");
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct puppet *a = start("a"), *b = start("b");
    a->objective = "energy";
    puppet_say(a);
    b->objective = "time";
    puppet_say(b);
    puppets_for(100);
    harness_ends(RESEAT("spread", "a", "gpu1"), 0);
    measured(a, "blur", "gpu:one", 3, 1000, 1000 * MS);
    measured(b, "blur", "gpu:one", 3, 1000, 1000 * MS);
    cr_assert(puppets_run(is_told, a, SOON));
    cr_expect_eq(a->drawn[0], 80000, "%lu", a->drawn[0]);
    cr_expect_eq(a->drawn[1], 30000, "%lu", a->drawn[1]);
    cr_expect_eq(a->idle_mw, 30000, "%lu", a->idle_mw);
    cr_assert_eq(RESEAT("spread", "a", "--off")->status, 0);
    a->powers_told = 0;
    cr_assert(puppets_run(is_told, a, SOON));
    cr_expect_eq(a->drawn[1], 0, "gpu1 is not one of its devices any more: %lu", a->drawn[1]);
    cr_expect_eq(a->idle_mw, 20000, "%lu", a->idle_mw);
    cr_expect_eq(b->powers_told, 0, "it does not ask for energy");
}

Test(costs, the_power_of_a_kernel_that_ran_alone_is_learnt)
{
    char path[4096], text[4400];

    snprintf(path, sizeof(path), "%s/meter", getenv("XDG_STATE_HOME"));
    snprintf(text, sizeof(text),
             "devices = ({ match = \"gpu0\"; meter = \"file:%s\"; idle-watts = 20; });\n", path);
    harness_configure(text);
    meter_says(path, 0, 1);
    end_agent(SIGTERM);
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct puppet *a = start("a");
    for (unsigned i = 2; i < 8; i++) { /* 70 W, one launch takes all of the second */
        measured(a, "other", "gpu:one", 1, 1000, 1);
        measured(a, "blur", "gpu:one", 1, 1000, 1000 * MS);
        meter_says(path, 70 * i, i);
        puppets_for(1100);
    }
    cr_assert(comes_to("blur", "gpu0", "samples_permil", 3000));
    uint64_t mw = profile_says(NULL, "blur", "gpu0", "power_mw");
    cr_expect(mw == 0, "of two kernels in one interval nothing is known: %lu", mw);
    for (unsigned i = 8; i < 14; i++) {
        measured(a, "blur", "gpu:one", 1, 1000, 1000 * MS);
        meter_says(path, 70 * i, i);
        puppets_for(1100);
    }
    mw = profile_says(NULL, "blur", "gpu0", "power_mw");
    cr_expect(mw > 49000 && mw < 51000, "%lu", mw);
}
