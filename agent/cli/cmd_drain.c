#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cmd.h"

/* reseat drain and reseat rebalance: moves that the policy chooses, shown as they end. */

struct steps {
    struct output output;
    const char *device; /**< NULL: a rebalance. */
    bool undo, dry_run;
    uint64_t in_ns;    /**< 0: now. */
    json_t *announced; /**< What programs were told before; NULL: nothing. */
    json_t *list;      /**< Of the steps; NULL unless JSON is wanted. */
};

static int parse(struct steps *steps, int argc, char **argv, bool drains)
{
    static const struct option options[] = {{"undo", no_argument, NULL, 'u'},
                                            {"in", required_argument, NULL, 'i'},
                                            {"dry-run", no_argument, NULL, 'n'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
        if (option == 'u' && drains) {
            steps->undo = true;
        } else if (option == 'n' && !drains) {
            steps->dry_run = true;
        } else if (option == 'i' && drains) {
            if (!cmd_seconds(optarg, &steps->in_ns)) {
                return output_usage(&steps->output, "--in is a number of seconds, not \"%s\"",
                                    optarg);
            }
        } else if (option != 'j') {
            return output_usage(&steps->output, "option %s is unknown or lacks its value",
                                argv[optind - 1]);
        }
    }
    if (steps->undo && steps->in_ns) {
        return output_usage(&steps->output, "--undo is done at once; --in does not go with it");
    }
    if (argc - optind != drains || (drains && !argv[optind][0])) {
        return output_usage(&steps->output,
                            argc - optind > drains ? "too many arguments" : "no device is named");
    }
    steps->device = drains ? argv[optind] : NULL;
    return 0;
}

static const char *place(const char *name)
{
    return name[0] ? name : "host memory";
}

static void show_step(struct steps *steps, const struct message *message)
{
    char name[PROTOCOL_WORD_MAX], from[160], to[160], result[PROTOCOL_WORD_MAX],
        reason[PROTOCOL_TEXT_MAX];
    const msgpack_object *app = field_get(&message->root, "app");

    if (steps->list) {
        json_t *step = cmd_json(&message->root);
        json_object_del(step, "type");
        json_array_append_new(steps->list, step);
        return;
    }
    field_text(app, "name", name, sizeof(name));
    field_string(&message->root, "from", from, sizeof(from));
    field_string(&message->root, "to", to, sizeof(to));
    field_string(&message->root, "result", result, sizeof(result));
    field_text(&message->root, "reason", reason, sizeof(reason));
    bool done = strcmp(result, RESULT_DONE) == 0;
    printf("%s (pid %llu): %s -> %s%s%s%s%s\n", name, (unsigned long long)field_u64(app, "pid", 0),
           place(from), place(to), done || steps->dry_run ? "" : ", ", done ? "" : result,
           reason[0] ? ": " : "", reason);
    fflush(stdout);
}

/** It is not drained yet: what was said of it. */
static void show_announced(struct steps *steps, const struct message *message)
{
    char device[PROTOCOL_WORD_MAX];
    unsigned long long programs = field_u64(&message->root, "programs", 0);
    uint64_t in_ns = field_u64(&message->root, "in_ns", 0);

    if (steps->output.json) {
        steps->announced = cmd_json(&message->root);
        json_object_del(steps->announced, "type");
        json_object_del(steps->announced, "device");
        return;
    }
    field_string(&message->root, "device", device, sizeof(device));
    printf("%s will be drained in %llu s; %llu program%s there, %llu told\n", device,
           (unsigned long long)(in_ns + 999999999) / 1000000000, programs,
           programs == 1 ? " is" : "s are",
           (unsigned long long)field_u64(&message->root, "told", 0));
    fflush(stdout);
}

/** One line that says who is left on the device, and why. */
static void explain(const msgpack_object *root, char *ret, size_t size)
{
    char device[PROTOCOL_WORD_MAX], name[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];
    const msgpack_object *left;
    size_t count = field_array(root, "left", &left), used = 0;

    field_string(root, "device", device, sizeof(device));
    ret[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const msgpack_object *app = field_get(&left[i], "app");
        field_text(app, "name", name, sizeof(name));
        field_text(&left[i], "reason", reason, sizeof(reason));
        int length =
            snprintf(ret + used, size - used, "%s%s (pid %llu) stays: %s", used ? "; " : "", name,
                     (unsigned long long)field_u64(app, "pid", 0), reason);
        if (length < 0 || (size_t)length >= size - used) {
            break;
        }
        used += (size_t)length;
    }
    snprintf(ret + used, size - used, "; %s takes no new programs (reseat drain %s --undo)", device,
             device);
}

static int finish_json(struct steps *steps, const msgpack_object *root, int status,
                       const char *code, const char *why)
{
    json_t *object = output_object(&steps->output, status);
    const msgpack_object *left = field_get(root, "left");

    if (steps->device) {
        const msgpack_object *device = field_get(root, "device");
        json_object_set_new(object, "device", device ? cmd_json(device) : json_null());
        json_object_set_new(object, "drained",
                            json_boolean(field_bool(root, "drained", !steps->undo)));
        json_object_set_new(object, "left", left ? cmd_json(left) : json_array());
        json_object_set(object, "announced", steps->announced ? steps->announced : json_null());
    } else {
        json_object_set_new(object, "dry_run", json_boolean(steps->dry_run));
    }
    json_object_set(object, "steps", steps->list);
    json_object_set_new(object, "moved", json_integer((json_int_t)field_u64(root, "moved", 0)));
    json_object_set_new(object, "failed", json_integer((json_int_t)field_u64(root, "failed", 0)));
    if (status) {
        json_object_set_new(object, "error", json_pack("{s:s, s:s}", "code", code, "message", why));
    }
    return output_print(object, status);
}

static int finish(struct steps *steps, const struct message *message)
{
    const msgpack_object *root = &message->root, *left;
    char why[4096] = "", device[PROTOCOL_WORD_MAX];
    unsigned long long moved = field_u64(root, "moved", 0), failed = field_u64(root, "failed", 0);
    size_t stay = field_array(root, "left", &left);
    const char *code = failed ? ERR_FAILED : ERR_REFUSED;
    bool bad = steps->device ? stay > 0 : failed > 0;

    if (field_is(root, "type", MSG_ERROR)) {
        return output_fail_message(&steps->output, message);
    }
    if (bad && steps->device) {
        explain(root, why, sizeof(why));
    } else if (bad) {
        snprintf(why, sizeof(why), "%llu moved, %llu did not; what did not is where it was", moved,
                 failed);
    }
    if (steps->output.json) {
        return finish_json(steps, root, bad ? output_status_of(code) : STATUS_DONE, code, why);
    }
    if (bad) {
        return output_fail(&steps->output, code, "%s", why);
    }
    field_string(root, "device", device, sizeof(device));
    if (!steps->device) {
        printf("%llu program%s %s\n", moved, moved == 1 ? "" : "s",
               steps->dry_run ? "would move" : "moved");
    } else if (steps->undo) {
        printf("%s takes programs again\n", device);
    } else {
        printf("%s is empty and takes no new programs (reseat drain %s --undo)\n", device, device);
    }
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int follow(struct steps *steps, struct client *client, struct frame *frame, const char *what)
{
    struct message message;
    int status, result = client_send(client, frame);

    while (!result) {
        result = client_follow(client, CMD_PATIENCE_MS, -1, &message);
        bool step = result == 1 && field_is(&message.root, "type", MSG_STEP);
        if (step || (result == 1 && field_is(&message.root, "type", MSG_NOTICE))) {
            (step ? show_step : show_announced)(steps, &message);
            message_finish(&message);
            result = 0;
        }
    }
    if (result == 1) {
        status = finish(steps, &message);
        message_finish(&message);
    } else {
        status = output_fail_agent(&steps->output, result, what);
    }
    return status;
}

static int run(struct steps *steps, const char *type, const char *what, bool launch)
{
    struct client client = {.fd = -1};
    struct frame frame;
    int status = cmd_connect(&steps->output, launch, what, &client);

    if (status) {
        return status;
    }
    steps->list = steps->output.json ? json_array() : NULL;
    frame_init(&frame, type);
    if (steps->device) {
        frame_string(&frame, "device", steps->device);
    }
    frame_bool(&frame, "undo", steps->undo);
    frame_u64(&frame, "in_ns", steps->in_ns);
    frame_bool(&frame, "dry_run", steps->dry_run);
    cmd_put_environment(&frame);
    status = follow(steps, &client, &frame, what);
    json_decref(steps->list);
    json_decref(steps->announced);
    client_close(&client);
    return status;
}

int cmd_drain(int argc, char **argv)
{
    struct steps steps = {0};

    output_init(&steps.output, "drain", argc, argv);
    int status = parse(&steps, argc, argv, true);
    return status ? status : run(&steps, MSG_DRAIN, "drain the device", true);
}

int cmd_rebalance(int argc, char **argv)
{
    struct steps steps = {0};

    output_init(&steps.output, "rebalance", argc, argv);
    int status = parse(&steps, argc, argv, false);
    return status ? status : run(&steps, MSG_BALANCE, "move programs", false);
}
