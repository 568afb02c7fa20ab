#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/protocol/common_messages.h"
#include "state/base/array.h"
#include "state/base/files/file.h"

/*
 * reseat trace: record a program's activity as a file for Perfetto (ui.perfetto.dev) and Chrome.
 * The file is written at the end of the trace; if the program ends before, it has what was
 * recorded.
 */

#define SPANS_MAX   4000000
#define OUTPUT_FILE "reseat-trace.json"
/* First number of rows that are not threads; no thread id is as large. */
#define ROW_FIRST 100000000u

struct event {
    char *name, *category, *key;
    uint64_t begin_ns, end_ns, value;
    enum track { THREAD, GATE, QUEUE, CHUNK } track;
    bool whole;  /**< For a queue: a launch in pieces, which has a row of its own. */
    uint32_t of; /**< A thread id or a number. Each track and number is a row. */
};

struct trace {
    uint64_t duration_ms;
    const char *file;
    const struct output *output;
    struct event *events; /**< The array and its texts are owned. */
    size_t count;
    uint64_t missed; /**< Events dropped for lack of memory or beyond SPANS_MAX. */
};

static const struct option_row options[] = {
    {"seconds", "TIME", "Duration. Default: 10. Ctrl-C ends it early, and writes the file.",
     OPTION_SECONDS(struct trace, duration_ms, 3, 100, 3600000), .initial = 10000},
    {"output", "FILE", "Where to. Default: " OUTPUT_FILE ".", OPTION_VALUE(struct trace, file)},
    {NULL}};

/* ---- receiving ---- */

static enum track trace_track_of(const char *name)
{
    static const char *const names[] = {
        [THREAD] = TRACK_THREAD, [GATE] = TRACK_GATE, [QUEUE] = TRACK_QUEUE, [CHUNK] = TRACK_CHUNK};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum track)i;
    return strcmp(name, TRACK_LAUNCH) == 0 ? QUEUE : THREAD;
}

static void trace_add(struct trace *trace, const json_t *span)
{
    const char *track = member_text(span, "track");
    struct event event = {.begin_ns = member_number(span, "begin_ns"),
                          .end_ns = member_number(span, "end_ns"),
                          .value = member_number(span, "value"),
                          .track = trace_track_of(track),
                          .whole = strcmp(track, TRACK_LAUNCH) == 0,
                          .of = (uint32_t)member_number(span, "of")};

    if (trace->count == SPANS_MAX || event.end_ns < event.begin_ns ||
        !array_make_room(&trace->events, trace->count, sizeof(event))) {
        trace->missed++;
        return;
    }
    event.name = strdup(member_text(span, "name"));
    event.category = strdup(member_text(span, "category"));
    event.key = strdup(member_text(span, "key"));
    trace->events[trace->count++] = event;
}

static bool trace_add_spans(void *context, json_t *news)
{
    const json_t *span;
    size_t i;

    json_array_foreach(json_object_get(news, "spans"), i, span)
    {
        trace_add(context, span);
    }
    return true;
}

/* ---- writing the file ---- */

static int trace_order(uint64_t one, uint64_t other)
{
    return one < other ? -1 : one > other;
}

static int trace_compare_rows(const struct event *one, const struct event *other)
{
    int result = trace_order(one->track, other->track);

    result = result ? result : trace_order(one->of, other->of);
    return result ? result : trace_order(other->whole, one->whole);
}

/** Compare events of a row: queues' by end, others' by start, enclosing ones first. */
static int trace_by_row(const void *a, const void *b)
{
    const struct event *one = a, *other = b;
    int result = trace_compare_rows(one, other);

    if (!result && one->track == QUEUE)
        result = trace_order(one->end_ns, other->end_ns);
    result = result ? result : trace_order(one->begin_ns, other->begin_ns);
    return result ? result : trace_order(other->end_ns, one->end_ns);
}

/** A command of a queue starts when the one before it ends, if it was enqueued before that. */
static void trace_put_in_order(struct trace *trace)
{
    qsort(trace->events, trace->count, sizeof(*trace->events), trace_by_row);
    for (size_t i = 1; i < trace->count; i++) {
        struct event *event = &trace->events[i];
        const struct event *before = event - 1;
        if (event->track == QUEUE && trace_compare_rows(event, before) == 0 &&
            event->begin_ns < before->end_ns)
            event->begin_ns = before->end_ns;
    }
}

static json_t *trace_name_of(const char *what, json_int_t pid, uint64_t row, const char *name)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:{s:s}}", "name", what, "ph", "M", "pid", pid, "tid",
                     (json_int_t)row, "args", "name", name);
}

static json_t *trace_event_json(const struct event *event, json_int_t pid, uint64_t row)
{
    json_t *args = json_object();

    if (event->key && event->key[0])
        json_object_set_new(args, event->key, json_integer((json_int_t)event->value));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:o}", "name",
                     event->name ? event->name : "", "cat", event->category ? event->category : "",
                     "ph", "X", "ts", (double)event->begin_ns / 1000, "dur",
                     (double)(event->end_ns - event->begin_ns) / 1000, "pid", pid, "tid",
                     (json_int_t)row, "args", args);
}

/** @number: counts the rows of this track. */
static void trace_row_name(const struct event *event, unsigned number, char *ret_name, size_t size)
{
    const char *what = event->track == GATE    ? "gate"
                       : event->track == CHUNK ? "chunk"
                       : event->whole          ? "launches in pieces, queue"
                       : event->track == QUEUE ? "queue"
                                               : "thread of reseat";

    if (event->track == QUEUE || event->track == CHUNK)
        (void)!snprintf(ret_name, size, "%s %u", what, number);
    else
        (void)!snprintf(ret_name, size, "%s", what);
}

/** Write one element of a JSON array and free it. Returns false on a write error. */
static bool trace_put(FILE *file, bool *first, json_t *object)
{
    bool written = object && (*first || fputs(",\n", file) != EOF) &&
                   json_dumpf(object, file, JSON_COMPACT) == 0;

    *first = false;
    json_decref(object);
    return written;
}

/** Write the events one by one: all of them as JSON may need too much memory. */
static bool trace_put_events(FILE *file, struct trace *trace, const json_t *app)
{
    json_int_t pid = (json_int_t)member_number(app, "pid");
    uint64_t row = 0, others = 0;
    unsigned number = 0;
    bool first = true;
    char name[64];

    trace_put_in_order(trace);
    bool written =
        trace_put(file, &first, trace_name_of("process_name", pid, 0, member_text(app, "name")));
    for (size_t i = 0; i < trace->count && written; i++) {
        const struct event *event = &trace->events[i], *before = i ? event - 1 : NULL;
        if (!before || trace_compare_rows(event, before) != 0) {
            row = event->track == THREAD ? event->of : ROW_FIRST + others++;
            if (!before || event->track != before->track)
                number = 0;
            else if (event->of != before->of)
                number++;
            trace_row_name(event, number, name, sizeof(name));
            written = trace_put(file, &first, trace_name_of("thread_name", pid, row, name));
        }
        written = written && trace_put(file, &first, trace_event_json(event, pid, row));
    }
    return written;
}

/** Returns 0 or -errno. */
static int trace_write_trace(struct trace *trace, const json_t *answer, json_int_t lost)
{
    int fd = file_open_named(trace->file, O_WRONLY | O_TRUNC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    bool first = true, written;

    if (!file)
        return fd < 0 ? fd : -ENOMEM;
    errno = 0;
    written = fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":", file) != EOF &&
              trace_put(file, &first,
                        json_pack("{s:s, s:I}", "ended_by", member_text(answer, "ended_by"), "lost",
                                  lost)) &&
              fputs(",\"traceEvents\":[\n", file) != EOF &&
              trace_put_events(file, trace, json_object_get(answer, "app")) &&
              fputs("\n]}\n", file) != EOF && fflush(file) == 0;
    int error = written ? 0 : errno ? -errno : -ENOMEM;
    return fclose(file) && !error ? -errno : error;
}

static int trace_write_file(struct trace *trace, json_t *answer)
{
    json_int_t lost = (json_int_t)(member_number(answer, "lost") + trace->missed);
    int error = trace_write_trace(trace, answer, lost);

    if (error)
        return output_fail(trace->output, ERR_FAILED, "%s cannot be written: %s", trace->file,
                           strerror(-error));
    json_object_update_new(answer,
                           json_pack("{s:I, s:I, s:o}", "lost", lost, "spans",
                                     (json_int_t)trace->count, "file", output_text(trace->file)));
    bool ended = strcmp(member_text(answer, "ended_by"), "program") == 0;
    int status = output_say(trace->output, answer,
                            ended ? "{app}: {spans} spans in {file}, to its end"
                                  : "{app}: {spans} spans in {file}");
    if (lost && !trace->output->json)
        output_note(trace->output,
                    "%lld more were dropped: they came faster than they could be recorded",
                    (long long)lost);
    return status;
}

static int trace_run(struct call *call)
{
    struct trace *trace = call->options;
    static const struct news_row rows[] = {{MSG_SPANS, trace_add_spans}, {NULL}};
    const struct news news = {rows, trace, true, NULL};
    const struct question question = {.type = MSG_TRACE, .what = MSG_TRACE, .news = &news};
    struct trace_request asked = {.duration_ms = trace->duration_ms};
    struct frame frame;
    json_auto_t *answer = NULL;

    trace->output = &call->output;
    trace->file = trace->file ? trace->file : OUTPUT_FILE;
    frame_init(&frame, MSG_TRACE);
    snprintf(asked.app, sizeof(asked.app), "%s", call->words[0]);
    put_trace(&frame, &asked);
    int status = ask(&call->output, &question, &frame, &answer);
    if (!status)
        status = trace_write_file(trace, answer);
    for (size_t i = 0; i < trace->count; i++) {
        free(trace->events[i].name);
        free(trace->events[i].category);
        free(trace->events[i].key);
    }
    free(trace->events);
    return status;
}

const struct verb verb_trace = {
    .name = "trace",
    .arguments = "APP",
    .summary = "Record a timeline of what a program does.",
    .text =
        "The file is for ui.perfetto.dev or Chrome's about:tracing. It has the phases of moves, "
        "the pauses, copies, builds and spills, and the kernels of each queue, by their profile if "
        "the queue has one. If the program ends early, it has everything until then.",
    .members = "app ended_by lost spans file",
    .options = options,
    .size = sizeof(struct trace),
    .users = true,
    .run = trace_run,
};
