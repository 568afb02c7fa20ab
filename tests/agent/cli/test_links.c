#include "tests/support/cases.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* reseat devices --links, on devices made up for it and, where that says so, on POCL's. */

static void init(void)
{
    harness_init();
    setenv("RESEAT_MEASURE", getenv("TEST_MEASURE"), 1);
    setenv("POCL_FAKE_DEVICES", "gpu:Fake GPU,cpu:Fake one", 1);
}

TestSuite(links, .init = init, .fini = harness_finish, .timeout = 120);

static json_t *ask(struct result *result)
{
    cr_assert_eq(result->status, 0, "%s", result->err);
    return harness_json(result, "devices");
}

static const json_t *link_of(const json_t *answer, size_t index)
{
    return json_array_get(json_object_get(answer, "links"), index);
}

static double number(const json_t *object, const char *stage, const char *name)
{
    const json_t *value = stage ? json_object_get(object, stage) : object;
    value = json_object_get(value, name);
    cr_assert(json_is_integer(value), "%s %s", stage ? stage : "", name);
    return (double)json_integer_value(value);
}

/* The way between two ends of that many bytes; NULL: host memory. */
static const json_t *way_of(const json_t *answer, const char *from, const char *to, double bytes)
{
    const json_t *way;
    size_t i;
    json_array_foreach(json_object_get(answer, "ways"), i, way)
    {
        const char *a = json_string_value(json_object_get(way, "from"));
        const char *b = json_string_value(json_object_get(way, "to"));
        if (strcmp(a ? a : "", from ? from : "") == 0 && strcmp(b ? b : "", to ? to : "") == 0 &&
            number(way, NULL, "bytes") == bytes)
            return way;
    }
    cr_assert_fail("no way from %s to %s of %g bytes", from ? from : "", to ? to : "", bytes);
    return NULL;
}

Test(links, what_is_not_measured_is_said_and_has_no_figures)
{
    struct result *text = harness_ends(RESEAT("devices", "--links"), 0);
    cr_assert(strstr(text->err, "not measured yet: gpu0, cpu0"), "%s", text->err);
    cr_assert(strstr(text->out, "Fake GPU"));
    json_t *answer = ask(RESEAT("devices", "--links", "--json"));
    cr_assert_eq(json_array_size(json_object_get(answer, "links")), 2);
    cr_assert(json_is_false(json_object_get(link_of(answer, 0), "measured")));
    cr_assert(json_is_null(json_object_get(link_of(answer, 0), "read")));
    cr_assert(json_is_null(json_object_get(answer, "copy")));
    cr_assert_eq(json_array_size(json_object_get(answer, "ways")), 0);
}

Test(links, what_was_measured_is_shown_from_then_on)
{
    setenv("FAKE_MEASURE", "talk", 1);
    ask(RESEAT("devices", "--links", "--measure", "--json"));
    setenv("FAKE_MEASURE", "crash", 1); /* it is not called again */
    json_t *answer = ask(RESEAT("devices", "--links", "--json"));
    const json_t *gpu = link_of(answer, 0);
    cr_assert(json_is_true(json_object_get(gpu, "measured")));
    cr_assert_eq(number(gpu, "read", "bytes_per_s"), 50e9);
    cr_assert_eq(number(gpu, "write", "bytes_per_s"), 25e9);
    cr_assert_eq(number(gpu, "plain_read", "bytes_per_s"), 6.25e9);
    cr_assert_eq(number(gpu, "plain_write", "setup_ns"), 30000);
    cr_assert_eq(number(link_of(answer, 1), "read", "bytes_per_s"), 10e9);
    cr_assert_eq(number(answer, "copy", "bytes_per_s"), 8e9);
    cr_assert_eq(number(answer, "ring", "setup_ns"), 100000);
    cr_assert_eq(number(answer, NULL, "hand_ns"), 30000);
    /* Two devices and host memory: six ways, three sizes each. */
    cr_assert_eq(json_array_size(json_object_get(answer, "ways")), 18);
    const json_t *small = way_of(answer, "gpu0", NULL, 1 << 20);
    cr_assert(json_is_true(json_object_get(small, "straight")));
    cr_assert_float_eq(number(small, NULL, "predicted_ns"), 30e3 + (1 << 20) / 6.25, 2);
    const json_t *pair = way_of(answer, "gpu0", "cpu0", 1 << 30);
    cr_assert(json_is_false(json_object_get(pair, "straight")));
    cr_assert_geq(number(pair, NULL, "chunks"), 2);
    cr_assert_gt(number(pair, NULL, "predicted_ns"), (1 << 30) / 5.0); /* the slower end's write */
    cr_assert_lt(number(pair, NULL, "predicted_ns"), (1 << 30) / 4.0);
    struct result *text = harness_ends(RESEAT("devices", "--links"), 0);
    cr_assert_str_empty(text->err);
    cr_assert(strstr(text->out, "host memory") && strstr(text->out, "straight") &&
                  strstr(text->out, "50.0"),
              "%s", text->out);
}

static void expect_unmeasured(const char *how, const char *said)
{
    setenv("FAKE_MEASURE", how, 1);
    json_t *answer = ask(RESEAT("devices", "--links", "--measure", "--timeout", "1", "--json"));
    const json_t *gpu = link_of(answer, 0);
    const char *problem = harness_text(gpu, "problem");
    cr_assert(strstr(problem, said), "%s: %s", how, problem);
    cr_assert(json_is_false(json_object_get(gpu, "measured")));
}

/* What hung is gone, with its children. */
static void expect_nobody_is_left(void)
{
    int file = open(harness_path("lock"), O_RDWR), tries = 0;
    cr_assert_geq(file, 0);
    while (flock(file, LOCK_EX | LOCK_NB) != 0 && tries++ < 300)
        usleep(10000);
    cr_assert_lt(tries, 300, "the helper or its child runs on");
    close(file);
}

Test(links, a_driver_that_hangs_crashes_or_fails_is_said_and_costs_only_its_figures)
{
    setenv("FAKE_MEASURE_LOCK", harness_path("lock"), 1);
    expect_unmeasured("hang", "not measured in 1 s");
    expect_nobody_is_left();
    expect_unmeasured("crash", "reseat-measure crashed");
    expect_unmeasured("fail", "reseat-measure failed");
    struct result *text = harness_ends(RESEAT("devices", "--links", "--measure"), 0);
    cr_assert(strstr(text->err, "fake: it fails") &&
                  strstr(text->err, "cpu0: reseat-measure failed"),
              "%s", text->err);
    setenv("RESEAT_MEASURE", "/nowhere", 1);
    expect_unmeasured("", "reseat-measure cannot be started");
}

Test(links, figures_in_a_folder_that_others_may_enter_are_not_believed)
{
    ask(RESEAT("devices", "--links", "--measure", "--json"));
    cr_assert_eq(chmod(getenv("RESEAT_LINKS"), 0711), 0);
    json_t *answer = ask(RESEAT("devices", "--links", "--json"));
    cr_assert(json_is_false(json_object_get(link_of(answer, 0), "measured")));
    chmod(getenv("RESEAT_LINKS"), 0700);
    setenv("RESEAT_LINKS", "not/absolute", 1);
    answer = ask(RESEAT("devices", "--links", "--json"));
    cr_assert(json_is_false(json_object_get(link_of(answer, 0), "measured")));
}

Test(links, options_that_make_no_sense_are_usage_errors)
{
    cr_expect_eq(RESEAT("devices", "--measure")->status, 2);
    cr_expect_eq(RESEAT("devices", "--links", "--presented")->status, 2);
    cr_expect_eq(RESEAT("devices", "--links", "--measure", "--timeout", "0")->status, 2);
    cr_expect_eq(RESEAT("devices", "--links", "--measure", "--timeout", "soon")->status, 2);
    cr_expect_eq(RESEAT("devices", "--links=yes")->status, 2);
    cr_expect_eq(RESEAT("devices", "gpu0", "--links")->status, 2);
}

Test(links, a_real_driver_is_measured)
{
    setenv("RESEAT_LISTER", getenv("TEST_REAL_LISTER"), 1);
    setenv("RESEAT_MEASURE", getenv("TEST_REAL_MEASURE"), 1);
    setenv("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 1);
    setenv("POCL_DEVICES", "basic", 1);
    json_t *answer = ask(RESEAT("devices", "--links", "--measure", "--json"));
    const json_t *cpu = link_of(answer, 0);
    static const char *const stages[] = {"read", "write", "plain_read", "plain_write"};
    cr_assert_eq(json_array_size(json_object_get(answer, "links")), 1);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_gt(number(cpu, stages[i], "bytes_per_s"), 50e6);
        cr_assert_leq(number(cpu, stages[i], "setup_ns"), 1e6);
    }
    cr_assert_eq(json_array_size(json_object_get(answer, "ways")), 6);
    harness_ends(harness_run(getenv("TEST_REAL_MEASURE"), "icd=none.so;device=none", NULL), 1);
    cr_assert_eq(harness_run(getenv("TEST_REAL_MEASURE"), "nonsense", NULL)->status, 2);
    cr_assert_eq(harness_run(getenv("TEST_REAL_MEASURE"), NULL)->status, 2);
}
