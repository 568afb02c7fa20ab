#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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
        count += strcmp(json_string_value(json_object_get(event, "name")), name) == 0;
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
        const char *of = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        count += strcmp(json_string_value(json_object_get(event, "name")), "thread_name") == 0 &&
                 strcmp(of, name) == 0;
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

Test(trace, writes_down_what_goes_on_in_a_program)
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
    cr_assert_eq(count_named(events, "chunk"), 4);
    cr_assert_eq(count_named(events, "piece"), 4);
    static const char *const rows[] = {"chunk 0", "chunk 1", "queue 0", "queue 1",
                                       "launches in pieces, queue 1"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(count_rows(events, rows[i]), 1, "%s", rows[i]);
    cr_assert_eq(count_rows(events, "launches in pieces, queue 0"), 0);
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
    bool piece = strcmp(category, "piece") == 0;

    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:{s:i}}", "ph", "X", "cat", category,
                     "name", name, "ts", begin_s * 1e6, "dur", length_s * 1e6, "pid", 1, "tid", 1,
                     "args", piece ? "share_ppm" : "bytes", piece ? 500000 : 2048);
}

/* Ten kernels a second, then a move of a second with one in two pieces, then twenty;
 * then half a second in host memory. */
Test(trace, makes_a_page_of_a_trace_that_needs_nothing_beside_it)
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
    for (int i = 0; i < 2; i++)
        json_array_append_new(events, span_json("piece", "k, groups", 2 + 0.3 * i, 0.2));
    json_array_append_new(events, span_json("launch", "k", 2, 0.5));
    for (int i = 0; i < 20; i++)
        json_array_append_new(events, span_json("kernel", "k", 3 + 0.05 * i, 0.04));
    json_array_append_new(events, span_json("move", "move to host memory: done", 4, 0.5));
    json_array_append_new(events, span_json("move", "move to gpu1: done", 5, 0.5));
    json_t *object = json_pack("{s:o, s:{s:s, s:i}}", "traceEvents", events, "otherData",
                               "ended_by", "program", "lost", 7);
    cr_assert_eq(json_dump_file(object, trace_path(), 0), 0);
    json_decref(object);
    struct result *result = RESEAT("report", "--html", page, "--trace", trace_path());
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert(strstr(result->out, "3 moves, 31 kernels"), "%s", result->out);
    const char *text = file_text(page);
    cr_assert_eq(count_of(text, "<tbody>\n<tr>"), 1);
    cr_assert(strstr(text, "<td>1.000 s</td><td class=\"what\">move to &lt;gpu1&gt;: done</td>"
                           "<td>1.00 s</td><td>125.0 ms</td><td>2.0 KiB</td>"
                           "<td>10</td><td>1</td><td>20</td>"),
              "%s", strstr(text, "<tbody>"));
    cr_assert(strstr(text, "<h1>&lt;script&gt;&quot;a&amp;b&quot;</h1>"));
    cr_assert(strstr(text, "7 spans came faster") && strstr(text, "The program ended."));
    cr_assert_eq(count_of(text, "<rect class=\"move\""), 3);
    /* Suspended for half a second of four and a half. */
    cr_assert_eq(count_of(text, "<rect class=\"away\" x=\"777.78\" y=\"0\" width=\"111.11\""), 1);
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

/* What a trace says is anybody's: the page shows it, and does nothing with it. */
Test(trace, a_page_of_a_hostile_trace_is_a_page)
{
    static const char *const names[] = {"</title><script>alert(1)</script>", "\" onload=\"alert(1)",
                                        "' onload='alert(1)", "\x1b]0;owned\x07\x1b[31m", "&lt;"};
    static const double times[] = {-1, -1e302, 0, 1, 1e9, 1e300, 1e302};
    char page[600], cut[512];
    json_t *events = json_array(), *whole;

    memset(cut, 'x', sizeof(cut));
    for (size_t i = 101; i + 2 < sizeof(cut); i += 2)
        memcpy(cut + i, "\xc3\xa9", 3);
    snprintf(page, sizeof(page), "%s.html", trace_path());
    for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
        const char *name = i < sizeof(names) / sizeof(names[0]) ? names[i] : cut;
        char move[600];
        snprintf(move, sizeof(move), "move %s", name);
        json_array_append_new(events, json_pack("{s:s, s:s, s:{s:s}}", "ph", "M", "name",
                                                "process_name", "args", "name", name));
        for (size_t t = 0; t < 49; t++) {
            json_array_append_new(events, span_json("move", move, times[t / 7], times[t % 7]));
            json_array_append_new(events, span_json("kernel", name, times[t / 7], times[t % 7]));
        }
    }
    json_array_append_new(events, json_pack("{s:s, s:s, s:s, s:[]}", "ph", "X", "cat", "kernel",
                                            "ts", "soon", "dur"));
    json_array_append_new(events, json_null());
    json_t *object = json_pack("{s:o, s:{s:s, s:i}}", "traceEvents", events, "otherData",
                               "ended_by", names[0], "lost", -1);
    cr_assert_eq(json_dump_file(object, trace_path(), 0), 0);
    json_decref(object);
    struct result *result = RESEAT("report", "--html", page, "--trace", trace_path());
    cr_assert_eq(result->status, 0, "%s", result->err);
    const char *text = file_text(page);
    cr_assert(!strstr(text, "<script") && !strstr(text, "\" onload"), "%s", text);
    cr_assert(!strstr(text, "nan") && !strstr(text, "inf"), "%s", text);
    for (const char *at = text; *at; at++)
        cr_assert((unsigned char)*at >= ' ' || *at == '\n');
    cr_assert((whole = json_string(text)), "it is no UTF-8");
    json_decref(whole);
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
    cr_assert_str_eq(
        json_string_value(json_object_get(json_object_get(object, "otherData"), "ended_by")),
        "program");
    json_decref(object);
}

Test(trace, a_trace_ends_when_its_command_is_interrupted_or_killed)
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
