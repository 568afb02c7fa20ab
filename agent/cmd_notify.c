#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cmd.h"

#define ANSWER_MS   5000
#define SECONDS_MAX 1e7

/** What a program that registered is told. */
struct notice {
    struct output output;
    const char *app, *what, *text;
    uint64_t in_ns, value;
};

bool cmd_seconds(const char *text, uint64_t *ret_ns)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > SECONDS_MAX) {
        return false;
    }
    *ret_ns = (uint64_t)(seconds * 1e9);
    return true;
}

static bool parse_number(const char *text, uint64_t *ret_value)
{
    char *end;

    *ret_value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static int parse(struct notice *notice, int argc, char **argv)
{
    static const struct option options[] = {{"in", required_argument, NULL, 'i'},
                                            {"value", required_argument, NULL, 'v'},
                                            {"text", required_argument, NULL, 't'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
        if (option == 'i' && !cmd_seconds(optarg, &notice->in_ns)) {
            return output_usage(&notice->output, "--in is a number of seconds, not \"%s\"", optarg);
        }
        if (option == 'v' && !parse_number(optarg, &notice->value)) {
            return output_usage(&notice->output, "--value is a whole number, not \"%s\"", optarg);
        }
        if (option == 't') {
            notice->text = optarg;
        } else if (option == '?' || option == ':') {
            return output_usage(&notice->output, "option %s is unknown or lacks its value",
                                argv[optind - 1]);
        }
    }
    if (argc - optind != 2) {
        return output_usage(&notice->output, "a program and what it is told are named, "
                                             "nothing else");
    }
    notice->app = argv[optind];
    notice->what = argv[optind + 1];
    return 0;
}

static int report(const struct notice *notice, const struct message *message)
{
    const msgpack_object *app = field_get(&message->root, "app");
    char name[PROTOCOL_WORD_MAX];

    if (notice->output.json) {
        json_t *object = output_object(&notice->output, 0);
        json_object_set_new(object, "app", app ? cmd_json(app) : json_null());
        json_object_set_new(object, "what", json_string(notice->what));
        return output_print(object, 0);
    }
    field_text(app, "name", name, sizeof(name));
    printf("%s (pid %llu) is told: %s\n", name, (unsigned long long)field_u64(app, "pid", 0),
           notice->what);
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

int cmd_notify(int argc, char **argv)
{
    struct notice notice = {.text = ""};
    struct client client = {.fd = -1};
    struct message message = {0};
    struct frame frame;

    output_init(&notice.output, "notify", argc, argv);
    int status = parse(&notice, argc, argv);
    if (status || (status = cmd_connect(&notice.output, false, "notify a program", &client))) {
        return status;
    }
    frame_init(&frame, MSG_NOTICE);
    frame_string(&frame, "app", notice.app);
    frame_string(&frame, "what", notice.what);
    frame_u64(&frame, "in_ns", notice.in_ns);
    frame_u64(&frame, "value", notice.value);
    frame_string(&frame, "text", notice.text);
    status = cmd_ask(&notice.output, &client, &frame, MSG_NOTICE, ANSWER_MS, "notify a program",
                     &message);
    client_close(&client);
    if (!status) {
        status = report(&notice, &message);
        message_finish(&message);
    }
    return status;
}
