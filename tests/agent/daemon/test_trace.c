#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* reseat trace, and the page of one. */

TestSuite(trace, .init = harness_init, .fini = harness_finish, .timeout = 120);

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
        count += strcmp(harness_text(event, "name"), name) == 0;
    }
    return count;
}

/** How many rows are called so. */
static json_int_t count_rows(const json_t *events, const char *name)
{
    const json_t *event;
    json_int_t count = 0;
    size_t i;

    json_array_foreach(events, i, event)
    {
        const char *of = harness_text(json_object_get(event, "args"), "name");
        count += strcmp(harness_text(event, "name"), "thread_name") == 0 && strcmp(of, name) == 0;
    }
    return count;
}

/** A trace as Perfetto wants it: whole events with their times, those of a row inside each other
 *  or apart, and a name for each row. Returns the file. */
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
        const char *kind = harness_text(event, "ph");
        cr_assert(json_is_string(json_object_get(event, "ph")));
        cr_assert(json_is_string(json_object_get(event, "name")));
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
            named = named || strcmp(harness_text(other, "name"), "thread_name") == 0;
            double b = json_real_value(json_object_get(other, "ts"));
            double e = b + json_real_value(json_object_get(other, "dur"));
            cr_assert(strcmp(harness_text(other, "ph"), "X") || j == i || e <= begin + 0.001 ||
                          b >= end - 0.001 || (b >= begin - 0.001 && e <= end + 0.001) ||
                          (begin >= b - 0.001 && end <= e + 0.001),
                      "two overlap");
        }
        cr_assert(named, "a row has no name");
    }
    return harness_kept(object);
}

Test(trace, writes_down_what_goes_on_in_a_program)
{
    harness_start("app", "done");
    pid_t tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "2.5", "--output",
                                 trace_path(), NULL);

    usleep(500000);
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    harness_says(RESEAT("trace", "app", "--seconds", "1", "--output", "/dev/null"), 4,
                 "traced by another");
    cr_assert_eq(RESEAT("move", "app", "gpu0")->status, 0);
    cr_assert_eq(harness_wait(tracer), 0);
    json_t *object = trace_checked();
    json_t *events = json_object_get(object, "traceEvents");
    cr_assert_eq(count_named(events, "move"), 2);
    cr_assert_eq(count_named(events, "plan"), 2);
    cr_assert_eq(count_named(events, "process_name"), 1);
    cr_assert_eq(count_named(events, "chunk"), 4);
    cr_assert_eq(count_named(events, "piece"), 4);
    static const char *const rows[] = {"chunk 0", "chunk 1", "queue 0", "queue 1",
                                       "launches in pieces, queue 1"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(count_rows(events, rows[i]), 1, "%s", rows[i]);
    cr_assert_eq(count_rows(events, "launches in pieces, queue 0"), 0);
    /* Nothing is kept any more. */
    cr_assert_eq(RESEAT("trace", "app", "--seconds", "0.2", "--output", trace_path())->status, 0);
    object = trace_checked();
    cr_assert_eq(count_named(json_object_get(object, "traceEvents"), "move"), 0);
}

Test(trace, a_program_that_is_killed_is_written_down_to_its_end)
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
    cr_assert_str_eq(harness_text(json_object_get(object, "otherData"), "ended_by"), "program");
}

Test(trace, a_trace_ends_when_its_command_is_interrupted_or_killed)
{
    harness_start("app", "done");
    pid_t tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "60", "--output",
                                 trace_path(), NULL);

    usleep(500000);
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    kill(tracer, SIGINT);
    cr_assert_eq(harness_wait(tracer), 0);
    json_t *object = trace_checked();
    cr_assert_eq(count_named(json_object_get(object, "traceEvents"), "move"), 1);
    tracer = harness_spawn(harness_reseat(), "trace", "app", "--seconds", "60", "--output",
                           trace_path(), NULL);
    usleep(500000);
    kill(tracer, SIGKILL);
    (void)harness_wait(tracer);
    harness_says(RESEAT("trace", "app", "--seconds", "0.2", "--output", "/no/such/folder/trace"), 1,
                 "cannot be written");
    cr_assert_eq(RESEAT("trace", "nobody")->status, 3);
}
