#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "state/base/array.h"
#include "state/base/cleanup.h"

/*
 * reseat trace: what went on in a program, as a file that Perfetto (ui.perfetto.dev) and Chrome
 * open. Written when the trace has ended, whole: also of a program that ended in the middle.
 */

#define SECONDS_MS  10000
#define SPANS_MAX   4000000
#define OUTPUT_FILE "reseat-trace.json"
/* Rows of a picture that are no thread's: numbers that no thread has. */
#define ROW_GATE  100000000u
#define ROW_QUEUE (ROW_GATE + 1)

struct event {
    char *name, *category, *key;
    uint64_t begin_ns, end_ns, value;
    uint64_t row; /**< A thread's id, or one of the above; of a queue ROW_QUEUE and its number. */
};

struct trace {
    uint64_t duration_ms;
    const char *file;
    const struct output *output;
    struct event *events; /**< Owned, with their texts. */
    size_t count;
    uint64_t missed; /**< For want of memory, or because there were too many. */
    int signals;
    sigset_t caught;
};

static void prepare(void *value)
{
    struct trace *trace = value;

    trace->duration_ms = SECONDS_MS;
    trace->file = OUTPUT_FILE;
}

static const struct verb_option options[] = {
    {"seconds", "SECONDS", "How long. Default: 10. Ctrl-C ends it before, and writes the file.",
     OPTION_VALUE(struct trace, duration_ms), .number = "a number of seconds, 0.1 to 3600",
     .places = 3, .least = 100, .most = 3600000},
    {"output", "FILE", "Where to. Default: " OUTPUT_FILE ".", OPTION_VALUE(struct trace, file)},
    {NULL}};

/* ---- what comes ---- */

static void add(struct trace *trace, const json_t *span)
{
    const char *track = member_text(span, "track");
    uint64_t of = member_number(span, "of");
    struct event event = {.begin_ns = member_number(span, "begin_ns"),
                          .end_ns = member_number(span, "end_ns"),
                          .value = member_number(span, "value"),
                          .row = of};

    if (strcmp(track, TRACK_GATE) == 0)
        event.row = ROW_GATE;
    else if (strcmp(track, TRACK_QUEUE) == 0)
        event.row = ROW_QUEUE + of;
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

static bool take_spans(void *context, const struct message *message)
{
    const json_t *span;
    size_t i;

    if (!field_is(&message->root, "type", MSG_SPANS))
        return false;
    json_t *news = output_answer(message);
    json_array_foreach(json_object_get(news, "spans"), i, span)
    {
        add(context, span);
    }
    json_decref(news);
    return true;
}

static int cancel(void *context, struct client *client)
{
    struct trace *trace = context;
    struct signalfd_siginfo info;
    struct frame frame;

    if (read(trace->signals, &info, sizeof(info)) != sizeof(info))
        return 0;
    sigprocmask(SIG_UNBLOCK, &trace->caught, NULL);
    frame_init(&frame, MSG_CANCEL);
    return client_send(client, &frame);
}

/* ---- the file ---- */

static int by_row(const void *a, const void *b)
{
    const struct event *one = a, *other = b;

    if (one->row != other->row)
        return one->row < other->row ? -1 : 1;
    if (one->row >= ROW_QUEUE && one->end_ns != other->end_ns)
        return one->end_ns < other->end_ns ? -1 : 1;
    if (one->begin_ns != other->begin_ns)
        return one->begin_ns < other->begin_ns ? -1 : 1;
    return one->end_ns > other->end_ns ? -1 : one->end_ns < other->end_ns;
}

/** What a queue was given before the one before it had ended began when that did. */
static void put_in_order(struct trace *trace)
{
    qsort(trace->events, trace->count, sizeof(*trace->events), by_row);
    for (size_t i = 1; i < trace->count; i++) {
        struct event *event = &trace->events[i];
        const struct event *before = event - 1;
        if (event->row >= ROW_QUEUE && event->row == before->row &&
            event->begin_ns < before->end_ns)
            event->begin_ns = before->end_ns;
    }
}

static json_t *name_of(const char *what, json_int_t pid, uint64_t row, const char *name)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:{s:s}}", "name", what, "ph", "M", "pid", pid, "tid",
                     (json_int_t)row, "args", "name", name);
}

static json_t *event_json(const struct event *event, json_int_t pid)
{
    json_t *args = json_object();

    if (event->key && event->key[0])
        json_object_set_new(args, event->key, json_integer((json_int_t)event->value));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:o}", "name",
                     event->name ? event->name : "", "cat", event->category ? event->category : "",
                     "ph", "X", "ts", (double)event->begin_ns / 1000, "dur",
                     (double)(event->end_ns - event->begin_ns) / 1000, "pid", pid, "tid",
                     (json_int_t)event->row, "args", args);
}

static json_t *whole(struct trace *trace, const json_t *answer)
{
    const json_t *app = json_object_get(answer, "app");
    json_int_t pid = (json_int_t)member_number(app, "pid");
    json_t *events = json_array();
    uint64_t row = UINT64_MAX;
    unsigned queues = 0;
    char name[32];

    put_in_order(trace);
    json_array_append_new(events, name_of("process_name", pid, 0, member_text(app, "name")));
    for (size_t i = 0; i < trace->count; i++) {
        const struct event *event = &trace->events[i];
        if (event->row != row) {
            row = event->row;
            if (row > ROW_GATE)
                (void)!snprintf(name, sizeof(name), "queue %u", queues++);
            else
                (void)!snprintf(name, sizeof(name), "%s",
                                row == ROW_GATE ? "gate" : "thread of reseat");
            json_array_append_new(events, name_of("thread_name", pid, row, name));
        }
        json_array_append_new(events, event_json(event, pid));
    }
    return json_pack("{s:o, s:s, s:{s:s, s:I}}", "traceEvents", events, "displayTimeUnit", "ms",
                     "otherData", "ended_by", member_text(answer, "ended_by"), "lost",
                     (json_int_t)(member_number(answer, "lost") + trace->missed));
}

static int write_file(struct trace *trace, const json_t *answer)
{
    char name[OUTPUT_PROGRAM_MAX];
    json_t *object = whole(trace, answer);
    int failed = object ? json_dump_file(object, trace->file, JSON_COMPACT) : -1;
    unsigned long long lost = member_number(answer, "lost") + trace->missed;

    json_decref(object);
    if (failed)
        return output_fail(trace->output, ERR_FAILED, "%s cannot be written: %s", trace->file,
                           strerror(errno));
    output_program(json_object_get(answer, "app"), name);
    if (trace->output->json) {
        object = output_object(trace->output, STATUS_DONE);
        output_add_members(object, answer, "app ended_by");
        json_object_set_new(object, "lost", json_integer((json_int_t)lost));
        json_object_set_new(object, "spans", json_integer((json_int_t)trace->count));
        json_object_set_new(object, "file", output_text(trace->file));
        return output_print(object, STATUS_DONE);
    }
    printf("%s: %zu spans in %s%s\n", name, trace->count, trace->file,
           strcmp(member_text(answer, "ended_by"), "program") == 0 ? ", to its end" : "");
    if (lost)
        output_note(trace->output, "%llu more came faster than they could be kept", lost);
    return output_done();
}

static int open_signals(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGINT);
    sigaddset(ret_set, SIGTERM);
    sigprocmask(SIG_BLOCK, ret_set, NULL);
    return signalfd(-1, ret_set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int follow(struct call *call, struct client *client)
{
    struct trace *trace = call->options;
    struct message message;
    struct frame frame;
    CLEANUP(cleanup_close) int signals = open_signals(&trace->caught);
    const struct news news = {trace, take_spans, signals, cancel};

    trace->signals = signals;
    frame_init(&frame, MSG_TRACE);
    frame_string(&frame, "app", call->words[0]);
    frame_u64(&frame, "duration_ms", trace->duration_ms);
    int result = ask_follow(client, &frame, &news, &message);
    if (result != 1)
        return output_fail_agent(&call->output, result, "trace");
    int status;
    if (field_is(&message.root, "type", MSG_TRACE)) {
        json_t *answer = output_answer(&message);
        status = write_file(trace, answer);
        json_decref(answer);
    } else {
        status = output_fail_message(&call->output, &message);
    }
    message_finish(&message);
    return status;
}

static int run(struct call *call)
{
    struct trace *trace = call->options;
    struct client client;
    int status = ask_connect(&call->output, false, "reach the program", &client);

    trace->output = &call->output;
    if (!status)
        status = follow(call, &client);
    client_close(&client);
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
    .summary = "Write down what goes on in a program, as a picture of its time.",
    .text =
        "The file is for ui.perfetto.dev, or Chrome's about:tracing: the phases of moves and how "
        "long the program was kept out, copies, builds, spills and what is brought back, and "
        "the kernels of each queue around them, by their profile where the queue has one. A "
        "program that ends before its time is written down to its end.",
    .options = options,
    .size = sizeof(struct trace),
    .prepare = prepare,
    .run = run,
};
