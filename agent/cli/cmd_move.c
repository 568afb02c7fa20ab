#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cli/cmd.h"
#include "agent/config/cleanup.h"

#define TIMEOUT_MAX 1e7
#define BAR_WIDTH   30

/** move, suspend or resume. */
struct change {
    struct output output;
    const char *verb; /**< MSG_MOVE, MSG_SUSPEND or MSG_RESUME. */
    const char *app, *device;
    uint64_t timeout_ms;
    bool dry_run;
    bool queue; /**< Leave it to the policy. */
    bool taken; /**< Whatever a program that registered says to it. */
    bool bar;   /**< A progress bar is on the terminal. */
};

static bool parse_seconds(const char *text, uint64_t *ret_ms)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !isfinite(seconds) || seconds <= 0 || seconds > TIMEOUT_MAX) {
        return false;
    }
    *ret_ms = (uint64_t)ceil(seconds * 1000);
    return true;
}

static int parse(struct change *change, int argc, char **argv, int least, int most)
{
    static const struct option options[] = {{"timeout", required_argument, NULL, 't'},
                                            {"dry-run", no_argument, NULL, 'n'},
                                            {"taken", no_argument, NULL, 'k'},
                                            {"queue", no_argument, NULL, 'q'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
        switch (option) {
        case 't':
            if (!parse_seconds(optarg, &change->timeout_ms)) {
                return output_usage(&change->output,
                                    "--timeout is a number of seconds over 0, not \"%s\"", optarg);
            }
            break;
        case 'n':
            if (strcmp(change->verb, MSG_MOVE)) {
                return output_usage(&change->output, "--dry-run is for move only");
            }
            change->dry_run = true;
            break;
        case 'k':
            change->taken = true;
            break;
        case 'q':
            if (strcmp(change->verb, MSG_RESUME)) {
                return output_usage(&change->output, "--queue is for resume only");
            }
            change->queue = true;
            break;
        case 'j':
            break;
        case 'h':
            fputs(cmd_help(change->output.command), stdout);
            return -1;
        default:
            return output_usage(&change->output, "option %s is unknown or lacks its value",
                                argv[optind - 1]);
        }
    }
    int count = argc - optind;
    if (count < least || count > most) {
        return output_usage(&change->output, "%s",
                            count < least
                                ? (count == 0 ? "no program is named" : "no device is named")
                                : "too many arguments");
    }
    change->app = argv[optind];
    change->device = count > 1 ? argv[optind + 1] : "";
    if (!*change->app || (least > 1 && !*change->device)) {
        return output_usage(&change->output, "an empty name names nothing");
    }
    return 0;
}

static void show_progress(struct change *change, const struct message *message)
{
    uint64_t done = field_u64(&message->root, "done", 0);
    uint64_t total = field_u64(&message->root, "total", 0);
    uint64_t builds = field_u64(&message->root, "builds", 0);
    uint64_t built = field_u64(&message->root, "built", 0);
    char phase[PROTOCOL_WORD_MAX], building[PROTOCOL_WORD_MAX], bar[BAR_WIDTH + 1], have[32],
        all[32];

    /* In the background the terminal is somebody else's. */
    if (change->output.json || tcgetpgrp(STDERR_FILENO) != getpgrp()) {
        return;
    }
    field_string(&message->root, "phase", phase, sizeof(phase));
    if (builds) {
        field_string(&message->root, "building", building, sizeof(building));
        fprintf(stderr, "\r\033[K%-8s builds program %llu of %llu%s%.40s%s", phase,
                (unsigned long long)(built < builds ? built + 1 : builds),
                (unsigned long long)builds, building[0] ? " (kernel " : "", building,
                building[0] ? ")" : "");
        change->bar = true;
        return;
    }
    done = done > total ? total : done;
    int full = total ? (int)((double)done / (double)total * BAR_WIDTH) : 0;
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    bar[BAR_WIDTH] = '\0';
    output_bytes(done, have, sizeof(have));
    output_bytes(total, all, sizeof(all));
    fprintf(stderr, "\r\033[K%-8s [%s] %s of %s", phase, bar, have, all);
    change->bar = true;
}

/** It waits for room. */
static void show_waiting(const struct change *change, const struct message *message)
{
    const msgpack_object *app = field_get(&message->root, "app");
    char name[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];

    if (change->output.json) {
        return;
    }
    field_string(app, "name", name, sizeof(name));
    field_string(&message->root, "reason", reason, sizeof(reason));
    fprintf(stderr, "reseat %s: %s (pid %llu) waits for room (Ctrl-C: stay suspended): %s\n",
            change->output.command, name, (unsigned long long)field_u64(app, "pid", 0), reason);
}

static void end_bar(struct change *change)
{
    if (change->bar) {
        fputs("\r\033[K", stderr);
        change->bar = false;
    }
}

static const char *code_of(const char *result)
{
    if (strcmp(result, RESULT_REFUSED) == 0) {
        return ERR_REFUSED;
    }
    return strcmp(result, RESULT_EXPIRED) == 0 ? ERR_EXPIRED
           : strcmp(result, RESULT_ENDED) == 0 ? ERR_GONE
                                               : ERR_FAILED;
}

/** Where it is now, and what to do next, for one that did not move. */
static void explain(const struct message *message, const char *result, char *ret, size_t size)
{
    char name[PROTOCOL_WORD_MAX], from[PROTOCOL_WORD_MAX], to[PROTOCOL_WORD_MAX], reason[512],
        reached[PROTOCOL_WORD_MAX];
    const msgpack_object *app = field_get(&message->root, "app");
    const char *hint = "";

    field_text(app, "name", name, sizeof(name));
    field_string(&message->root, "from", from, sizeof(from));
    field_string(&message->root, "to", to, sizeof(to));
    field_text(&message->root, "reason", reason, sizeof(reason));
    field_string(&message->root, "reached", reached, sizeof(reached));
    if (strcmp(result, RESULT_EXPIRED) == 0) {
        hint = "; try again with a longer --timeout";
    } else if (strcmp(result, RESULT_REFUSED) == 0 ||
               (!from[0] && to[0] && strcmp(result, RESULT_CANCELED))) {
        hint = "; choose another device (reseat devices)";
    } else if (strcmp(result, RESULT_CANCELED) == 0 && !reason[0]) {
        snprintf(reason, sizeof(reason), "canceled");
    }
    if (strcmp(result, RESULT_ENDED) == 0) {
        snprintf(ret, size,
                 "%s (pid %llu) ended before that was done; nothing is left to do for it", name,
                 (unsigned long long)field_u64(app, "pid", 0));
        return;
    }
    if (!reason[0]) {
        snprintf(reason, sizeof(reason), "%s in phase %s", result, reached);
    }
    snprintf(ret, size, "%s (pid %llu) %s from %s to %s: %s; %s%s", name,
             (unsigned long long)field_u64(app, "pid", 0),
             strcmp(result, RESULT_REFUSED) ? "was rolled back on its way" : "cannot go",
             from[0] ? from : "host memory", to[0] ? to : "host memory", reason,
             from[0] ? "it runs on where it was"
                     : "it stays suspended, with its data in host memory",
             hint);
}

static int print_json(const struct change *change, const struct message *message,
                      const char *result, int status, const char *explanation)
{
    static const char *const fields[] = {"app",     "from",     "to",       "result",
                                         "reached", "reason",   "total_ns", "downtime_ns",
                                         "bytes",   "starting", "already",  "seats"};
    json_t *object = output_object(&change->output, status);

    for (size_t i = 0; object && i < ARRAY_SIZE(fields); i++) {
        const msgpack_object *value = field_get(&message->root, fields[i]);
        json_object_set_new(object, fields[i], value ? cmd_json(value) : json_null());
    }
    json_object_set_new(object, "dry_run", json_boolean(change->dry_run));
    if (status) {
        json_object_set_new(
            object, "error",
            json_pack("{s:s, s:s}", "code", code_of(result), "message", explanation));
    }
    return output_print(object, status);
}

static void print_done(const struct change *change, const struct message *message)
{
    char name[PROTOCOL_WORD_MAX], from[PROTOCOL_WORD_MAX], to[PROTOCOL_WORD_MAX], total[32],
        downtime[32], bytes[32];
    const msgpack_object *app = field_get(&message->root, "app");
    unsigned long long pid = field_u64(app, "pid", 0);

    field_text(app, "name", name, sizeof(name));
    field_string(&message->root, "from", from, sizeof(from));
    field_string(&message->root, "to", to, sizeof(to));
    output_seconds(field_u64(&message->root, "total_ns", 0), total, sizeof(total));
    output_seconds(field_u64(&message->root, "downtime_ns", 0), downtime, sizeof(downtime));
    output_bytes(field_u64(&message->root, "bytes", 0), bytes, sizeof(bytes));
    if (field_bool(&message->root, "already", false)) {
        printf("%s (pid %llu) is already there: %s\n", name, pid,
               from[0] ? from : "suspended, in host memory");
    } else if (field_is(&message->root, "result", RESULT_QUEUED)) {
        printf("%s (pid %llu) queues for a device; the policy resumes it when there is room "
               "(reseat explain %llu)\n",
               name, pid, pid);
    } else if (change->dry_run) {
        printf("%s (pid %llu) can move from %s to %s\n", name, pid, from[0] ? from : "host memory",
               to);
    } else if (field_bool(&message->root, "starting", false)) {
        printf("%s (pid %llu) has not used OpenCL yet; it will start on %s\n", name, pid, to);
    } else {
        printf("%s (pid %llu) moved from %s to %s in %s: stopped for %s, %s copied\n", name, pid,
               from[0] ? from : "host memory", to[0] ? to : "host memory", total, downtime, bytes);
    }
}

static int finish(struct change *change, const struct message *message)
{
    char result[PROTOCOL_WORD_MAX], explanation[2 * PROTOCOL_TEXT_MAX] = "";

    end_bar(change);
    if (!field_is(&message->root, "type", MSG_REPORT) ||
        !field_string(&message->root, "result", result, sizeof(result))) {
        return output_fail_message(&change->output, message);
    }
    bool done = strcmp(result, RESULT_DONE) == 0 || strcmp(result, RESULT_QUEUED) == 0;
    int status = done ? STATUS_DONE : output_status_of(code_of(result));
    if (status) {
        explain(message, result, explanation, sizeof(explanation));
    }
    if (change->output.json) {
        return print_json(change, message, result, status, explanation);
    }
    if (status) {
        return output_fail(&change->output, code_of(result), "%s", explanation);
    }
    print_done(change, message);
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int send_request(const struct change *change, struct client *client)
{
    struct frame frame;

    frame_init(&frame, change->verb);
    frame_string(&frame, "app", change->app);
    frame_string(&frame, "device", change->device);
    frame_u64(&frame, "timeout_ms", change->timeout_ms);
    frame_bool(&frame, "dry_run", change->dry_run);
    frame_bool(&frame, "queue", change->queue);
    if (change->taken) {
        frame_string(&frame, "manner", MANNER_TAKEN);
    }
    return client_send(client, &frame);
}

/** Ctrl-C and the like, as something to wait for. A second one ends us as it would have. */
static int open_signals(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGINT);
    sigaddset(ret_set, SIGTERM);
    sigaddset(ret_set, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_set, NULL);
    return signalfd(-1, ret_set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int cancel(struct change *change, struct client *client, int signals, const sigset_t *set)
{
    struct signalfd_siginfo info;
    struct frame frame;

    if (read(signals, &info, sizeof(info)) != sizeof(info)) {
        return 0;
    }
    sigprocmask(SIG_UNBLOCK, set, NULL);
    end_bar(change);
    if (!change->output.json) {
        fprintf(stderr, "reseat %s: canceling; once more to leave at once\n",
                change->output.command);
    }
    frame_init(&frame, MSG_CANCEL);
    return client_send(client, &frame);
}

static int carry_out(struct change *change)
{
    struct client client = {.fd = -1};
    struct message message;
    sigset_t set;
    int status = cmd_connect(&change->output, false, "reach the program", &client);

    if (status) {
        return status;
    }
    CLEANUP(cleanup_close) int signals = open_signals(&set);
    int result = send_request(change, &client);
    while (!result) {
        result = client_follow(&client, CMD_PATIENCE_MS, signals, &message);
        if (result == 0) {
            result = cancel(change, &client, signals, &set);
        } else if (result == 1 && field_is(&message.root, "type", MSG_PROGRESS)) {
            show_progress(change, &message);
            message_finish(&message);
            result = 0;
        } else if (result == 1 && field_is(&message.root, "type", MSG_NOTICE)) {
            show_waiting(change, &message);
            message_finish(&message);
            result = 0;
        }
    }
    if (result == 1) {
        status = finish(change, &message);
        message_finish(&message);
    } else {
        end_bar(change);
        status = output_fail_agent(&change->output, result, change->verb);
    }
    client_close(&client);
    return status;
}

static int change_command(const char *verb, int argc, char **argv, int least, int most)
{
    struct change change = {.verb = verb};

    output_init(&change.output, verb, argc, argv);
    int status = parse(&change, argc, argv, least, most);
    if (status) {
        return status < 0 ? 0 : status;
    }
    return carry_out(&change);
}

int cmd_move(int argc, char **argv)
{
    return change_command(MSG_MOVE, argc, argv, 2, 2);
}

int cmd_suspend(int argc, char **argv)
{
    return change_command(MSG_SUSPEND, argc, argv, 1, 1);
}

int cmd_resume(int argc, char **argv)
{
    return change_command(MSG_RESUME, argc, argv, 1, 2);
}
