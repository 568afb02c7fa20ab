#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/wire/inventory.h"
#include "tests/agent/harness.h"

TestSuite(agent, .init = harness_init, .fini = harness_finish, .timeout = 120);

static const char *error_code(json_t *object)
{
    return json_string_value(json_object_get(json_object_get(object, "error"), "code"));
}

Test(agent, moves_suspends_and_resumes)
{
    pid_t pid = harness_start("app", "done");
    struct result *result = RESEAT("move", "app", "cpu1");

    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "from gpu0 to cpu1"), "%s", result->out);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    result = RESEAT("resume", "app");
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "to cpu1"), "%s", result->out);
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(strstr(RESEAT("resume", "app", "cpu0")->out, "to cpu0"));
    harness_end(pid);
}

/* ---- traces ---- */

static const char *trace_path(void)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/trace.json", harness_folder());
    return path;
}

static json_int_t count_named(const json_t *events, const char *name)
{
    const json_t *event;
    json_int_t count = 0;
    size_t i;

    json_array_foreach(events, i, event)
    {
        count += strcmp(json_string_value(json_object_get(event, "name")), name) == 0;
    }
    return count;
}

/** A trace as Perfetto wants it: whole events with their times, those of a row inside each other
 *  or apart, and a name for each row. Returns the file, to be given back. */
static json_t *trace_checked(void)
{
    json_error_t error;
    json_t *object = json_load_file(trace_path(), JSON_REJECT_DUPLICATES, &error), *event;
    size_t i, j;

    cr_assert(object, "%s", error.text);
    json_t *events = json_object_get(object, "traceEvents"), *other;
    cr_assert(json_is_array(events));
    json_array_foreach(events, i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        cr_assert(kind && json_is_string(json_object_get(event, "name")));
        cr_assert(json_is_integer(json_object_get(event, "pid")));
        cr_assert(json_is_integer(json_object_get(event, "tid")));
        cr_assert(json_is_object(json_object_get(event, "args")));
        if (strcmp(kind, "M") == 0)
            continue;
        cr_assert_str_eq(kind, "X");
        cr_assert(json_string_length(json_object_get(event, "name")) > 0);
        cr_assert(json_string_length(json_object_get(event, "cat")) > 0);
        double begin = json_real_value(json_object_get(event, "ts"));
        double end = begin + json_real_value(json_object_get(event, "dur"));
        cr_assert(begin > 0 && end >= begin);
        bool named = false;
        json_array_foreach(events, j, other)
        {
            if (!json_equal(json_object_get(event, "tid"), json_object_get(other, "tid")))
                continue;
            named = named ||
                    strcmp(json_string_value(json_object_get(other, "name")), "thread_name") == 0;
            double b = json_real_value(json_object_get(other, "ts"));
            double e = b + json_real_value(json_object_get(other, "dur"));
            cr_assert(strcmp(json_string_value(json_object_get(other, "ph")), "X") || j == i ||
                          e <= begin + 0.001 || b >= end - 0.001 ||
                          (b >= begin - 0.001 && e <= end + 0.001) ||
                          (begin >= b - 0.001 && end <= e + 0.001),
                      "two overlap");
        }
        cr_assert(named, "a row has no name");
    }
    return object;
}

Test(agent, writes_down_what_goes_on_in_a_program)
{
    pid_t pid = harness_start("app", "done");
    pid_t tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "2.5", "--output",
                                 trace_path(), NULL);

    usleep(500000);
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    struct result *result = RESEAT("trace", "app", "--seconds", "1", "--output", "/dev/null");
    cr_assert_eq(result->status, 4, "%s", result->out);
    cr_assert(strstr(result->err, "traced by another"), "%s", result->err);
    cr_assert_eq(RESEAT("move", "app", "gpu0")->status, 0);
    cr_assert_eq(harness_wait(tracer), 0);
    json_t *object = trace_checked();
    json_t *events = json_object_get(object, "traceEvents");
    cr_assert_eq(count_named(events, "move"), 2);
    cr_assert_eq(count_named(events, "plan"), 2);
    cr_assert_eq(count_named(events, "process_name"), 1);
    json_decref(object);
    /* Nothing is kept any more. */
    cr_assert_eq(RESEAT("trace", "app", "--seconds", "0.2", "--output", trace_path())->status, 0);
    object = trace_checked();
    cr_assert_eq(count_named(json_object_get(object, "traceEvents"), "move"), 0);
    json_decref(object);
    harness_end(pid);
}

/** The bytes of a file, as text; in static storage. */
static const char *file_text(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");

    cr_assert_not_null(file, "%s", path);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static json_t *span_json(const char *category, const char *name, double begin_s, double length_s)
{
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:{s:i}}", "ph", "X", "cat", category,
                     "name", name, "ts", begin_s * 1e6, "dur", length_s * 1e6, "pid", 1, "tid", 1,
                     "args", "bytes", 2048);
}

/* Ten kernels a second, then a move of a second, then twenty. */
Test(agent, makes_a_page_of_a_trace_that_needs_nothing_beside_it)
{
    static const char name[] = "<script>\"a&b\"";
    char page[600];
    json_t *events = json_array();

    snprintf(page, sizeof(page), "%s.html", trace_path());
    json_array_append_new(events,
                          json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name",
                                    "process_name", "pid", 1, "tid", 0, "args", "name", name));
    for (int i = 0; i < 10; i++)
        json_array_append_new(events, span_json("kernel", "k", 1 + 0.1 * i, 0.05));
    json_array_append_new(events, span_json("move", "move to <gpu1>: done", 2, 1));
    json_array_append_new(events, span_json("move", "plan", 2, 0.5));
    json_array_append_new(events, span_json("gate", "gate closed", 2.75, 0.125));
    for (int i = 0; i < 20; i++)
        json_array_append_new(events, span_json("kernel", "k", 3 + 0.05 * i, 0.04));
    json_t *object = json_pack("{s:o, s:{s:s, s:i}}", "traceEvents", events, "otherData",
                               "ended_by", "program", "lost", 7);
    cr_assert_eq(json_dump_file(object, trace_path(), 0), 0);
    json_decref(object);
    struct result *result = RESEAT("report", "--html", page, "--trace", trace_path());
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "1 moves, 30 kernels"), "%s", result->out);
    const char *text = file_text(page);
    cr_assert_eq(count_of(text, "<tbody>\n<tr>"), 1);
    cr_assert(strstr(text, "<td>1.000 s</td><td class=\"what\">move to &lt;gpu1&gt;: done</td>"
                           "<td>1.00 s</td><td>125.0 ms</td><td>2.0 KiB</td>"
                           "<td>10</td><td>0</td><td>20</td>"),
              "%s", strstr(text, "<tbody>"));
    cr_assert(strstr(text, "<h1>&lt;script&gt;&quot;a&amp;b&quot;</h1>"));
    cr_assert(strstr(text, "7 spans came faster") && strstr(text, "The program ended."));
    cr_assert_eq(count_of(text, "<rect class=\"move\""), 1);
    cr_assert_eq(count_of(text, "<rect class=\"closed\""), 1);
    static const char *const foreign[] = {"http:", "https:", "src=", "href=", "<script", "url("};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        cr_assert_null(strstr(text, foreign[i]), "%s", foreign[i]);
    /* What is none. */
    result = RESEAT("report", "--html", page, "--trace", page);
    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->err, "no file that reseat trace wrote"), "%s", result->err);
    cr_assert_eq(RESEAT("report", "--html", page)->status, 2);
    result = RESEAT("report", "--html", "/no/such/folder/page", "--trace", trace_path());
    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->err, "cannot be written"), "%s", result->err);
}

Test(agent, a_program_that_is_killed_is_written_down_to_its_end)
{
    pid_t pid = harness_start("app", "done");
    pid_t tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "60", "--output",
                                 trace_path(), NULL);

    usleep(500000);
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    usleep(300000);
    harness_end(pid);
    cr_assert_eq(harness_wait(tracer), 0);
    json_t *object = trace_checked();
    cr_assert_eq(count_named(json_object_get(object, "traceEvents"), "move"), 1);
    cr_assert_str_eq(
        json_string_value(json_object_get(json_object_get(object, "otherData"), "ended_by")),
        "program");
    json_decref(object);
}

Test(agent, a_trace_ends_when_its_command_is_interrupted_or_killed)
{
    pid_t pid = harness_start("app", "done");
    pid_t tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "60", "--output",
                                 trace_path(), NULL);

    usleep(500000);
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    kill(tracer, SIGINT);
    cr_assert_eq(harness_wait(tracer), 0);
    json_t *object = trace_checked();
    cr_assert_eq(count_named(json_object_get(object, "traceEvents"), "move"), 1);
    json_decref(object);
    tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "60", "--output",
                           trace_path(), NULL);
    usleep(500000);
    kill(tracer, SIGKILL);
    (void)harness_wait(tracer);
    struct result *result =
        RESEAT("trace", "app", "--seconds", "0.2", "--output", "/no/such/folder/trace");
    cr_assert_eq(result->status, 1, "%s%s", result->out, result->err);
    cr_assert(strstr(result->err, "cannot be written"), "%s", result->err);
    cr_assert_eq(RESEAT("trace", "nobody")->status, 3);
    harness_end(pid);
}

/** What `reseat ps --json` says that "app" is ready for: the first, or "". */
static const char *ready_for(void)
{
    static char name[64];
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    json_t *ready = json_object_get(app, "ready");

    cr_assert(json_is_array(ready));
    const char *first = json_string_value(json_array_get(ready, 0));
    snprintf(name, sizeof(name), "%s", first ? first : "");
    json_decref(object);
    return name;
}

Test(agent, makes_a_program_ready_for_a_device_and_lets_go_of_that)
{
    pid_t pid = harness_start("app", "done");
    struct result *result = RESEAT("prewarm", "app", "cpu1");

    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "is ready for cpu1"), "%s", result->out);
    cr_assert_str_eq(ready_for(), "cpu1");
    cr_assert(strstr(RESEAT("ps")->out, "cpu1"));
    result = RESEAT("prewarm", "app", "cpu1", "--drop");
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "not ready any more for cpu1"), "%s", result->out);
    cr_assert_str_eq(ready_for(), "");
    cr_assert(strstr(RESEAT("prewarm", "app", "--drop")->out, "was not ready"));
    json_t *object = harness_json(RESEAT("prewarm", "app", "cpu0", "--json"), "prewarm");
    cr_assert_str_eq(json_string_value(json_object_get(object, "to")), "cpu0");
    json_decref(object);
    cr_assert_eq(RESEAT("prewarm", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("prewarm", "app", "--drop")->status, 0);
    cr_assert_str_eq(ready_for(), "");
    /* Where it is, and what names nothing. */
    cr_assert(strstr(RESEAT("prewarm", "app", "gpu0")->out, "already there"));
    cr_assert_eq(RESEAT("prewarm", "app")->status, 2);
    cr_assert_eq(RESEAT("prewarm", "app", "no-such")->status, 3);
    /* A device that is drained is not to be used, and not for this either. */
    cr_assert_eq(RESEAT("prewarm", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("drain", "cpu1")->status, 0);
    cr_assert_str_eq(ready_for(), "", "it is ready for a device that is drained");
    result = RESEAT("prewarm", "app", "cpu1");
    cr_assert_eq(result->status, 4);
    cr_assert(strstr(result->err, "drained"), "%s", result->err);
    harness_end(pid);
}

Test(agent, a_program_that_cannot_be_made_ready_says_why_and_stays)
{
    pid_t pid = harness_start("app", "fail");
    struct result *result = RESEAT("prewarm", "app", "cpu1");

    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->err, "was not made ready for cpu1"), "%s", result->err);
    cr_assert(strstr(result->err, "a program failed"), "%s", result->err);
    cr_assert_str_eq(ready_for(), "");
    harness_end(pid);
}

Test(agent, a_resume_that_fails_says_that_the_program_stays_suspended)
{
    pid_t pid = harness_start("app", "strand");
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    struct result *result = RESEAT("resume", "app", "gpu0");
    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->err, "building a program failed: -11; it stays suspended, with its "
                                  "data in host memory; choose another device"),
              "%s", result->err);
    harness_end(pid);
}

Test(agent, exit_statuses)
{
    struct result *result;

    cr_assert_eq(RESEAT("ps")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "cpu0")->status, 3);
    cr_assert_eq(RESEAT("move", "app")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "more")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "--timeout", "soon")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "--wrong")->status, 2);
    cr_assert_eq(RESEAT("nonsense")->status, 2);
    cr_assert_eq(RESEAT("run")->status, 2);
    cr_assert_eq(RESEAT("run", "--present", "toaster", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "gpu9", "true")->status, 3);
    cr_assert_eq(RESEAT("run", "/nonexistent")->status, 127);
    cr_assert_eq(RESEAT("run", "/tmp")->status, 126);

    pid_t pid = harness_start("app", "fail");
    result = RESEAT("move", "app", "cpu0");
    cr_assert_eq(result->status, 1);
    cr_assert(strstr(result->err, "building a program failed: -11"), "%s", result->err);
    cr_assert_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1);
    cr_assert_eq(RESEAT("move", "nobody", "cpu0")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "gpu7")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "Fake")->status, 2);
    harness_end(pid);

    pid = harness_start("refuser", "refuse");
    result = RESEAT("move", "refuser", "cpu0");
    cr_assert_eq(result->status, 4);
    cr_assert(strstr(result->err, "1024 used, 256 offered"));
    harness_end(pid);

    pid = harness_start("slow", "slow");
    result = RESEAT("move", "slow", "cpu0", "--timeout", "0.3");
    cr_assert_eq(result->status, 5);
    cr_assert(harness_state("slow", "running", 2000));
    kill(pid, SIGSTOP);
    cr_assert_eq(RESEAT("move", "slow", "cpu0", "--timeout", "0.2")->status, 5);
    kill(pid, SIGCONT);
    harness_end(pid);
}

Test(agent, json_is_valid_on_success_and_on_errors)
{
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");

    cr_assert_str_eq(error_code(object), "no-agent");
    json_decref(object);
    json_decref(harness_json(RESEAT("devices", "--json"), "devices"));
    json_decref(harness_json(RESEAT("ps", "--json"), "ps"));
    json_decref(harness_json(RESEAT("version", "--json"), "version"));
    json_decref(harness_json(RESEAT("agent", "status", "--json"), "agent"));
    json_decref(harness_json(RESEAT("move", "--json"), "move"));
    json_decref(harness_json(RESEAT("suspend", "--json", "--bad"), "suspend"));

    pid_t pid = harness_start("app \"\xc3\xa9", "done");
    json_decref(harness_json(RESEAT("ps", "--json"), "ps"));
    object = harness_json(RESEAT("move", "app \"\xc3\xa9", "cpu0", "--json"), "move");
    cr_assert_str_eq(json_string_value(json_object_get(object, "to")), "cpu0");
    cr_assert_gt(json_integer_value(json_object_get(object, "bytes")), 0);
    json_decref(object);
    object = harness_json(RESEAT("move", "b\xff", "cpu0", "--json"), "move");
    cr_assert_str_eq(error_code(object), "no-app");
    json_decref(object);
    harness_end(pid);
}

Test(agent, devices_say_who_uses_them)
{
    pid_t pid = harness_start("user", "done");
    cr_assert(harness_prints("devices", "--json", "\"used_bytes\": 67108864", 5000));
    json_t *object = harness_json(RESEAT("devices", "--json"), "devices"), *device;
    size_t i, users = 0;

    cr_assert_eq(json_array_size(json_object_get(object, "devices")), 3);
    json_array_foreach(json_object_get(object, "devices"), i, device)
    {
        json_t *apps = json_object_get(device, "apps");
        users += json_array_size(apps);
        if (json_array_size(apps)) {
            cr_assert_str_eq(json_string_value(json_object_get(device, "name")), "gpu0");
            cr_assert_eq(json_integer_value(json_object_get(device, "used_bytes")), 64 << 20);
        }
    }
    cr_assert_eq(users, 1);
    json_decref(object);
    harness_end(pid);
}

/** The entry of that name in a list of "presented". */
static json_t *entry(json_t *presented, const char *list, const char *name)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(presented, list), i, one)
    {
        const char *found = json_string_value(json_object_get(one, "name"));
        if (found && strcmp(found, name) == 0)
            return one;
    }
    cr_assert(false, "no %s in %s", name, list);
    return NULL;
}

static void expect_text(json_t *object, const char *key, const char *text)
{
    cr_expect_str_eq(json_string_value(json_object_get(object, key)), text);
}

static void expect_by(json_t *object, const char *first, size_t count)
{
    json_t *by = json_object_get(object, "by");

    cr_assert_eq(json_array_size(by), count);
    cr_expect(!count || strcmp(json_string_value(json_array_get(by, 0)), first) == 0);
}

Test(agent, presented_says_what_programs_are_told_and_because_of_which_device)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one,gpu:small,cpu:two,old:first", 1);
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *presented = json_object_get(object, "presented"), *one;

    one = json_object_get(presented, "devices");
    cr_assert_eq(json_array_size(one), 4);
    cr_expect_str_eq(json_string_value(json_array_get(one, 0)), "gpu0");
    one = json_object_get(presented, "left_out");
    cr_assert_eq(json_array_size(one), 1);
    expect_text(json_array_get(one, 0), "device", "accel0");

    one = entry(presented, "answers", "CL_DEVICE_MAX_WORK_GROUP_SIZE");
    cr_expect_eq(json_integer_value(json_object_get(one, "value")), 256);
    expect_text(one, "rule", "least");
    expect_by(one, "gpu0", 1);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(one, "devices"), "cpu1")),
                 4096);
    one = entry(presented, "answers", "CL_DEVICE_MAX_COMPUTE_UNITS");
    expect_text(one, "rule", "equal");
    expect_by(one, NULL, 0);
    one = entry(presented, "answers", "CL_DEVICE_ADDRESS_BITS");
    cr_expect(json_is_null(json_object_get(one, "value")));
    expect_text(one, "rule", "missing");

    one = entry(presented, "extensions", "cl_khr_byte_addressable_store");
    cr_expect(json_is_true(json_object_get(one, "offered")));
    one = entry(presented, "extensions", "cl_khr_gl_sharing");
    cr_expect(json_is_false(json_object_get(one, "offered")));
    expect_text(one, "rule", "not-carried");
    one = entry(presented, "extensions", "cl_khr_fp16");
    expect_text(one, "rule", "missing");
    expect_by(one, "gpu0", 1);
    json_decref(object);

    struct result *result = RESEAT("devices", "--presented");
    cr_assert_eq(result->status, 0);
    cr_expect(strstr(result->out, "least of gpu0 256, cpu0 4096, cpu1 4096"), "%s", result->out);
    cr_expect(strstr(result->out, "accel0 takes no part"), "%s", result->out);
    cr_expect(strstr(result->out, "not on gpu0"), "%s", result->out);
    cr_assert_eq(RESEAT("ps", "--presented")->status, 2);
    setenv("POCL_FAKE_DEVICES", "", 1);
    object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    cr_expect_str_eq(error_code(object), "no-device");
    json_decref(object);
}

Test(agent, presented_memory_is_the_most_of_any_device_or_what_is_said)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small,cpu:roomy", 1);
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *one =
        entry(json_object_get(object, "presented"), "answers", "CL_DEVICE_GLOBAL_MEM_SIZE");

    cr_expect_eq(json_integer_value(json_object_get(one, "value")), 8ll << 30);
    expect_text(one, "rule", "most-memory");
    expect_by(one, "cpu0", 1);
    json_decref(object);
    struct result *result = RESEAT("devices", "--presented");
    cr_expect(strstr(result->out, "of cpu0, which has the most memory, of gpu0 2147483648, "
                                  "cpu0 8589934592"),
              "%s", result->out);

    setenv("RESEAT_MEMORY", "3GiB", 1);
    object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    one = entry(json_object_get(object, "presented"), "answers", "CL_DEVICE_GLOBAL_MEM_SIZE");
    cr_expect_eq(json_integer_value(json_object_get(one, "value")), 3ll << 30);
    expect_text(one, "rule", "ours");
    expect_text(one, "because", "as --memory says");
    json_decref(object);
    setenv("RESEAT_MEMORY", "3 GiB", 1);
    cr_expect_eq(RESEAT("devices", "--presented")->status, 2);
    unsetenv("RESEAT_MEMORY");
}

/* Where the virtual devices of the first program are: "gpu0,cpu1", "-" for a suspended one. */
static const char *places(void)
{
    static char text[128];
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps"), *seat;
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    size_t i;

    text[0] = '\0';
    json_array_foreach(json_object_get(app, "seats"), i, seat)
    {
        cr_assert_eq((size_t)json_integer_value(json_object_get(seat, "seat")), i);
        bool away = json_is_true(json_object_get(seat, "suspended"));
        strcat(text, i ? "," : "");
        strcat(text, away ? "-" : json_string_value(json_object_get(seat, "device")));
    }
    json_decref(object);
    return text;
}

static pid_t start_several(const char *name, const char *devices, const char *count,
                           const char *how)
{
    setenv("FAKE_MOVE", how, 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", name, "--device", devices,
                              "--devices", count, "--", harness_program(), "60", NULL);
    cr_assert(harness_state(name, "running", 10000));
    for (int tried = 0; tried < 200 && strlen(places()) < 5 * strtoul(count, NULL, 10) - 1; tried++)
        usleep(25000); /* until a status with all of them, of names of four letters, has come */
    return pid;
}

Test(agent, virtual_devices_start_where_they_are_named_and_then_spread)
{
    pid_t pid = start_several("app", "cpu1,gpu0", "4", "done");
    cr_assert_str_eq(places(), "cpu1,gpu0,gpu0,gpu0");
    cr_assert(strstr(RESEAT("ps")->out, "cpu1,gpu0,gpu0,gpu0"));
    harness_end(pid);
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:two", 1);
    RESEAT("devices");
    pid = harness_spawn(harness_reseat(), "run", "--device", "two", "--device", "one",
                        harness_program(), "60", NULL);
    cr_assert(harness_state("fake_program", "running", 10000));
    /* cpu0 and cpu1 are names of those before. */
    cr_assert(harness_prints("ps", NULL, "cpu3,cpu2", 5000), "%s", RESEAT("ps")->out);
    harness_end(pid);
    cr_assert_eq(RESEAT("run", "--devices", "0", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "5", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "two", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "1", "--device", "cpu0,cpu1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "cpu0,,cpu1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "a,b,c,d,e", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "cpu0,gpu9", "true")->status, 3);
}

Test(agent, one_virtual_device_moves_by_itself)
{
    pid_t pid = start_several("app", "gpu0,cpu0", "2", "done");
    struct result *result = RESEAT("move", "app:1", "cpu1");

    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "from cpu0 to cpu1"), "%s", result->out);
    cr_assert_str_eq(places(), "gpu0,cpu1");
    cr_assert_eq(RESEAT("suspend", "app:0")->status, 0);
    cr_assert_str_eq(places(), "-,cpu1");
    cr_assert(strstr(RESEAT("ps")->out, "-,cpu1"));
    cr_assert(harness_state("app", "running", 1000));
    cr_assert_eq(RESEAT("resume", "app:1")->status, 0);
    cr_assert_eq(RESEAT("resume", "app:0")->status, 0);
    cr_assert_str_eq(places(), "gpu0,cpu1");
    cr_assert_eq(RESEAT("move", "app:2", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("move", "nobody:1", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("move", "app:x", "cpu1")->status, 3);
    harness_end(pid);
    /* A program may be called so. */
    pid = harness_start("app:1", "done");
    result = RESEAT("move", "app:1", "cpu1");
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "from gpu0 to cpu1"), "%s", result->out);
    harness_end(pid);
}

Test(agent, without_a_number_all_virtual_devices_are_meant)
{
    pid_t pid = start_several("app", "gpu0,cpu0,cpu1", "3", "done");
    json_t *object = harness_json(RESEAT("move", "app", "cpu0", "--json"), "move");

    cr_assert_str_eq(json_string_value(json_object_get(object, "from")), "gpu0,cpu0,cpu1");
    /* The second was there. */
    json_t *seats = json_object_get(object, "seats");
    cr_assert_eq(json_array_size(seats), 2);
    cr_assert_eq(json_integer_value(json_object_get(json_array_get(seats, 1), "seat")), 2);
    cr_assert_eq(json_integer_value(json_object_get(object, "bytes")), 2 * (64 << 20));
    json_decref(object);
    cr_assert_str_eq(places(), "cpu0,cpu0,cpu0");
    cr_assert_eq(RESEAT("suspend", "app:2")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    cr_assert_str_eq(places(), "-,-,-");
    cr_assert_eq(RESEAT("resume", "app:1", "gpu0")->status, 0);
    cr_assert_eq(RESEAT("resume", "app", "cpu1")->status, 0);
    cr_assert_str_eq(places(), "cpu1,gpu0,cpu1");
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_str_eq(places(), "cpu1,gpu0,cpu1");
    harness_end(pid);
}

Test(agent, where_one_virtual_device_does_not_move_the_others_are_told_of)
{
    pid_t pid = start_several("app", "gpu0,gpu0,gpu0", "3", "fail1");
    json_t *object = harness_json(RESEAT("move", "app", "cpu0", "--json"), "move");
    json_t *seats = json_object_get(object, "seats");

    cr_assert_eq(json_integer_value(json_object_get(object, "status")), 1);
    cr_assert_eq(json_array_size(seats), 2);
    cr_assert_str_eq(json_string_value(json_object_get(json_array_get(seats, 0), "result")),
                     "done");
    cr_assert_str_eq(json_string_value(json_object_get(json_array_get(seats, 1), "result")),
                     "rolled-back");
    cr_assert(strstr(json_string_value(json_object_get(object, "reason")), "virtual device 1"));
    json_decref(object);
    cr_assert_str_eq(places(), "cpu0,gpu0,gpu0");
    harness_end(pid);
}

Test(agent, names_do_not_shift_between_listings)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:two", 1);
    cr_assert(strstr(RESEAT("devices")->out, "cpu1 cpu  two"));
    setenv("POCL_FAKE_DEVICES", "cpu:zero,cpu:two,gpu:new", 1);
    struct result *result = RESEAT("devices");
    cr_assert(strstr(result->out, "cpu1 cpu  two"), "%s", result->out);
    cr_assert(strstr(result->out, "cpu2 cpu  zero"), "%s", result->out);
    cr_assert(!strstr(result->out, "one"), "%s", result->out);
    RESEAT("agent", "stop");
    setenv("POCL_FAKE_DEVICES", "cpu:two", 1);
    cr_assert(strstr(RESEAT("devices")->out, "cpu1 cpu  two"));
}

/** The devices in the inventory that a program started now is given. */
static size_t told_devices(void)
{
    struct inventory inventory;
    struct result *result = RESEAT("run", "--", "printenv", "RESEAT_INVENTORY");

    cr_assert_eq(result->status, 0, "%s", result->err);
    result->out[strcspn(result->out, "\n")] = '\0';
    cr_assert_eq(inventory_read(result->out, &inventory), 0, "%s", result->out);
    size_t count = inventory.count;
    inventory_finish(&inventory);
    return count;
}

Test(agent, what_a_program_is_told_does_not_depend_on_who_else_runs)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small,cpu:two", 1);
    pid_t pid = harness_start("first", "done");
    cr_expect_eq(told_devices(), 2);
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:three", 1);
    cr_expect_eq(told_devices(), 2, "not those of the other environment");
    /* They are there all the same, for the program that sees them, however often they are listed.
     */
    for (int i = 0; i < 2; i++) {
        struct result *result = RESEAT("devices");
        cr_expect(strstr(result->out, "small") && strstr(result->out, "one"), "%s", result->out);
        usleep(1100000);
    }
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *devices = json_object_get(json_object_get(object, "presented"), "devices");
    cr_expect_eq(json_array_size(devices), 2);
    json_decref(object);
    cr_expect_eq(told_devices(), 2);
    cr_expect_str_eq(places(), "gpu0");
    harness_end(pid);
}

Test(agent, a_program_starts_where_its_own_environment_shows_a_device)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small", 1);
    pid_t pid = harness_start("first", "done"), second;
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    second = harness_start("second", "done");
    cr_expect(strstr(RESEAT("ps")->out, "cpu0"), "%s", RESEAT("ps")->out);
    harness_end(second);
    harness_end(pid);
}

Test(agent, doctor_says_what_a_wider_choice_of_devices_costs)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    RESEAT("devices");
    struct result *result = RESEAT("doctor");
    cr_expect(!strstr(result->out, "choice:"), "%s", result->out);
    setenv("POCL_FAKE_DEVICES", "cpu:narrow,gpu:small", 1);
    RESEAT("devices");
    result = RESEAT("doctor");
    cr_expect(strstr(result->out, "may go to cpu1 costs them, of what gpu0 has"), "%s",
              result->out);
}

Test(agent, a_lister_that_hangs_or_crashes_is_survived)
{
    const char *reseatd = getenv("TEST_RESEATD");

    cr_assert_eq(harness_run(reseatd, "--daemon", "--lister-timeout", "1", NULL)->status, 0);
    setenv("POCL_FAKE_DEVICES", "hang", 1);
    cr_assert_eq(RESEAT("devices")->status, 1);
    setenv("POCL_FAKE_DEVICES", "crash", 1);
    cr_assert_eq(RESEAT("devices")->status, 1);
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    setenv("POCL_FAKE_DEVICES", "hang", 1);
    struct result *result = RESEAT("devices");
    cr_assert_eq(result->status, 0);
    cr_assert(strstr(result->err, "may be old"), "%s", result->err);
}

Test(agent, killed_in_the_middle_of_a_move_and_started_again_it_knows_the_programs)
{
    pid_t pid = harness_start("survivor", "slow");
    pid_t waiting = harness_spawn("sleep", "30", NULL);
    pid_t agent = harness_agent();
    pid_t mover = harness_spawn(harness_reseat(), "move", "survivor", "cpu0", NULL);

    cr_assert(harness_state("survivor", "moving", 5000));
    kill(agent, SIGKILL);
    cr_assert_eq(harness_wait(mover), 3);
    cr_assert_eq(kill(pid, 0), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("survivor", "running", 2000));
    cr_assert_neq(harness_agent(), agent);
    harness_end(waiting);
    harness_end(pid);
}

Test(agent, a_program_that_has_not_called_opencl_is_starting_also_for_the_next_agent)
{
    setenv("FAKE_MOVE", "done", 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", "late", harness_program(), "60",
                              "late", "2500", NULL);
    cr_assert(harness_state("late", "starting", 2000));
    cr_assert_eq(RESEAT("suspend", "late")->status, 4);
    kill(harness_agent(), SIGKILL);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("late", "starting", 500));
    struct result *result = RESEAT("move", "late", "cpu1");
    cr_assert_eq(result->status, 0);
    cr_assert(strstr(result->out, "will start on cpu1"));
    cr_assert(harness_state("late", "running", 5000));
    cr_assert(harness_prints("ps", NULL, "cpu1", 5000), "%s", RESEAT("ps")->out);
    harness_end(pid);
}

Test(agent, a_program_that_dies_in_a_move_is_a_clear_error)
{
    pid_t pid = harness_start("mortal", "die");
    struct result *result = RESEAT("move", "mortal", "cpu0");

    cr_assert_eq(result->status, 3);
    cr_assert(strstr(result->err, "ended during the move"), "%s", result->err);
    cr_assert_eq(harness_wait(pid), 9);
    cr_assert(!strstr(RESEAT("ps")->out, "mortal"));
}

Test(agent, interrupting_the_command_cancels_the_move)
{
    pid_t pid = harness_start("app", "slow");
    pid_t mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);

    cr_assert(harness_state("app", "moving", 5000));
    kill(mover, SIGINT);
    cr_assert_eq(harness_wait(mover), 1);
    cr_assert(harness_state("app", "running", 2000));
    mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);
    cr_assert(harness_state("app", "moving", 5000));
    kill(mover, SIGKILL);
    harness_wait(mover);
    cr_assert(harness_state("app", "running", 2000));
    harness_end(pid);
}

Test(agent, a_child_after_fork_is_a_program_of_its_own)
{
    setenv("FAKE_MOVE", "done", 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--device", "cpu1", harness_program(), "60",
                              "fork", NULL);
    json_t *apps = NULL;
    json_t *object = NULL;

    for (int i = 0; i < 100; i++) {
        json_decref(object);
        object = json_loads(RESEAT("ps", "--json")->out, 0, NULL);
        apps = json_object_get(object, "apps");
        if (json_array_size(apps) == 2)
            break;
        usleep(50000);
    }
    cr_assert_eq(json_array_size(apps), 2);
    json_decref(object);
    harness_end(pid);
}

/* What the stand-in was asked for it tells in these numbers. */
static void expect_asked(struct result *result, const char *command, uint64_t ms,
                         uint64_t bandwidth, unsigned rounds)
{
    json_t *object = harness_json(result, command);
    cr_assert_eq(result->status, 0, "%s", result->out);
    cr_assert_eq((uint64_t)json_integer_value(json_object_get(object, "predicted_ns")),
                 ms * 1000000);
    cr_assert_eq(json_integer_value(json_object_get(object, "rounds")), rounds);
    if (bandwidth)
        cr_assert_eq((uint64_t)json_integer_value(json_object_get(object, "bytes")), bandwidth);
    json_decref(object);
}

Test(agent, a_downtime_and_a_bandwidth_are_asked_for_or_configured)
{
    setenv("RESEAT_MAX_DOWNTIME", "70", 1);
    pid_t pid = harness_start("app", "done");
    /* Aimed at; and asked for. */
    expect_asked(RESEAT("move", "app", "cpu1", "--json"), "move", 70, 0, 20);
    expect_asked(
        RESEAT("move", "app", "gpu0", "--json", "--max-downtime", "20", "--bandwidth", "3MiB"),
        "move", 20, 3 << 20, 10);
    expect_asked(RESEAT("suspend", "app", "--json", "--max-downtime", "1"), "suspend", 1, 0, 10);
    expect_asked(RESEAT("resume", "app", "--json", "--on-demand"), "resume", 70, 0, 21);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    expect_asked(RESEAT("resume", "app", "--json", "--whole"), "resume", 70, 0, 22);
    cr_assert_eq(RESEAT("resume", "app", "--whole", "--on-demand")->status, 2);
    cr_assert(strstr(RESEAT("ps")->out, "running, 3.0 MiB of 8.0 MiB fetched"), "%s",
              RESEAT("ps")->out);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--max-downtime", "0")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--bandwidth", "0")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--bandwidth", "fast")->status, 2);
    harness_end(pid);
}
