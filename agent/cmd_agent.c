#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/cmd.h"
#include "agent/process.h"

#define ANSWER_MS 5000
#define STOP_MS   5000

static int print_agent(const struct output *output, bool running, const msgpack_object *about,
                       const char *what)
{
    char folder[PATH_MAX] = "", release[PROTOCOL_WORD_MAX] = "", problem[PROTOCOL_TEXT_MAX] = "";

    field_string(about, "folder", folder, sizeof(folder));
    field_string(about, "release", release, sizeof(release));
    field_string(about, "config_problem", problem, sizeof(problem));
    if (output->json) {
        json_t *object = output_object(output, STATUS_DONE);
        json_object_set_new(object, "running", json_boolean(running));
        json_object_set_new(object, "agent", about ? cmd_json(about) : json_null());
        if (about) {
            json_object_del(json_object_get(object, "agent"), "type");
        }
        return output_print(object, STATUS_DONE);
    }
    if (!running) {
        puts(what);
    } else {
        printf("%s: pid %llu, release %s, %llu program(s), log %s/agent.log\n", what,
               (unsigned long long)field_u64(about, "pid", 0), release,
               (unsigned long long)field_u64(about, "apps", 0), folder);
    }
    if (problem[0]) {
        fprintf(stderr, "reseat agent: it keeps an older configuration; the last is refused: %s\n",
                problem);
    }
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int show(const struct output *output, bool launch, const char *what)
{
    struct client client = {.fd = -1};
    struct message message;
    struct frame frame;
    int status = cmd_connect(output, launch, "tell about itself", &client);

    if (status) {
        return status;
    }
    frame_init(&frame, MSG_AGENT);
    status = cmd_ask(output, &client, &frame, MSG_AGENT, ANSWER_MS, "tell about itself", &message);
    client_close(&client);
    if (status) {
        return status;
    }
    status = print_agent(output, true, &message.root, what);
    message_finish(&message);
    return status;
}

/** Wait until the process is gone, so that a start right after finds no lock. */
static bool gone(pid_t pid, uint64_t start)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    for (int waited = 0; waited < STOP_MS; waited += 10) {
        if (!process_alive(pid, start)) {
            return true;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

static int stop(const struct output *output)
{
    struct client client = {.fd = -1};
    struct message message;
    struct frame frame;
    uint64_t start = 0;
    int status = cmd_connect(output, false, "stop", &client);

    if (status) {
        return status;
    }
    frame_init(&frame, MSG_STOP);
    status = cmd_ask(output, &client, &frame, MSG_STOP, ANSWER_MS, "stop", &message);
    client_close(&client);
    if (status) {
        return status;
    }
    pid_t pid = (pid_t)field_u64(&message.root, "pid", 0);
    message_finish(&message);
    if (!process_start_time(pid, &start) && !gone(pid, start)) {
        return output_fail(output, ERR_FAILED, "the agent (pid %d) does not end; kill -9 %d",
                           (int)pid, (int)pid);
    }
    return print_agent(output, false, NULL, "the agent has ended; programs run on without it");
}

int cmd_agent(int argc, char **argv)
{
    struct output output;
    const char *verb = NULL;

    output_init(&output, "agent", argc, argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            continue;
        }
        if (verb) {
            return output_usage(&output, "too many arguments");
        }
        verb = argv[i];
    }
    if (!verb || strcmp(verb, "status") == 0) {
        return show(&output, false, "the agent runs");
    }
    if (strcmp(verb, "start") == 0) {
        return show(&output, true, "the agent runs");
    }
    if (strcmp(verb, "stop") == 0) {
        return stop(&output);
    }
    return output_usage(&output, "there is no \"%s\"", verb);
}
