#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cmd.h"

#define ANSWER_MS   5000
#define SECONDS_MAX 1e7
#define TEXT_MAX    256 /* Of a notice's line: programs log it. */

/** What a program that registered is told. */
struct notice {
    struct output output;
    const char *app, *what, *text;
    bool has_in, has_value;
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

    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *ret_value <= INT64_MAX;
}

static bool is_line(const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return false;
        }
    }
    return length < TEXT_MAX;
}

/** What is said has to be what the notice is about: nothing is made up for what is left out. */
static int check(const struct notice *notice)
{
    static const struct {
        const char *what;
        bool takes_in, takes_value;
        const char *needs;
    } notices[] = {
        {NOTICE_ADDED, false, true, NULL},
        {NOTICE_TAKEN, true, false, "when: --in SECONDS; 0 is now"},
        {NOTICE_POWER, false, true, "how much: --value MILLIWATTS"},
        {NOTICE_QUOTA, false, true, "how much: --value BYTES, or --value none"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(notices); i++) {
        if (strcmp(notices[i].what, notice->what)) {
            continue;
        }
        if (notice->has_in && !notices[i].takes_in) {
            return output_usage(&notice->output, "%s has no --in", notice->what);
        }
        if (notice->has_value && !notices[i].takes_value) {
            return output_usage(&notice->output, "%s has no --value", notice->what);
        }
        if (notice->value == UINT64_MAX && strcmp(notice->what, NOTICE_QUOTA)) {
            return output_usage(&notice->output, "--value none is for quota only");
        }
        return notices[i].needs && !notice->has_in && !notice->has_value
                   ? output_usage(&notice->output, "%s says %s", notice->what, notices[i].needs)
                   : 0;
    }
    return output_usage(&notice->output, "there is no notice \"%s\"; there are %s, %s, %s and %s",
                        notice->what, NOTICE_ADDED, NOTICE_TAKEN, NOTICE_POWER, NOTICE_QUOTA);
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
        notice->has_in = notice->has_in || option == 'i';
        notice->has_value = notice->has_value || option == 'v';
        if (option == 'v' && strcmp(optarg, "none") == 0) {
            notice->value = UINT64_MAX;
        } else if (option == 'v' && !parse_number(optarg, &notice->value)) {
            return output_usage(&notice->output,
                                "--value is a whole number of at most 63 bits, not \"%s\"", optarg);
        }
        if (option == 't' && !is_line(optarg)) {
            return output_usage(&notice->output,
                                "--text is one line of less than %d bytes, without control "
                                "characters",
                                TEXT_MAX);
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
    return check(notice);
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
    if (notice.has_value) {
        frame_u64(&frame, "value", notice.value);
    }
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
