#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/cli/cmd.h"
#include "agent/config/environment.h"
#include "state/base/text.h"

#define LAUNCHES        50
#define LAUNCH_PAUSE_NS 20000000

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"run", cmd_run,
     "Usage: reseat run [OPTION...] [--] PROGRAM [ARG...]\n\n"
     "Run an OpenCL program so that it can be moved between devices. Its exit status, signals,\n"
     "standard streams and working directory are its own.\n\n"
     "  --device DEV[,DEV]  where to start (see reseat devices), one for each virtual device;\n"
     "                      default: spread over the GPUs, else over all devices\n"
     "  --devices N         how many virtual devices it has, 1 to 4; default: as many as --device\n"
     "                      names, else 1\n"
     "  --name NAME         what to call it; default: the program's name\n"
     "  --present KIND      the kind of device it is told: gpu, cpu, accelerator or native\n"
     "  --profile PROFILE   the limits it is told: portable (default) or native\n"
     "  --memory SIZE       the device memory it is told of; default: of the largest device that "
     "it\n"
     "                      may be moved to\n"
     "  --quota SIZE        the device memory it may have, at most\n"
     "  --priority N        higher goes first, -1000 to 1000; default 0\n"
     "  --preemptible       others of its priority may displace it when they wait for memory\n"
     "  --on-full WAYS      what to do when memory does not fit, of upgrade, spill, wait, suspend\n"
     "                      (several with commas), or refuse; default: all of these\n"},
    {"devices", cmd_devices,
     "Usage: reseat devices [--presented] [--json]\n\n"
     "List every device of every OpenCL driver, what is in use of it, and by whom.\n\n"
     "  --presented  instead, what programs are told of their device, and why: which device sets\n"
     "               each limit, and what is left out because of which\n"},
    {"ps", cmd_ps,
     "Usage: reseat ps [--json]\n\n"
     "List the programs that run under reseat.\n"},
    {"move", cmd_move,
     "Usage: reseat move APP[:N] DEVICE [--timeout SECONDS] [--dry-run] [--taken] [--json]\n\n"
     "Move a program (a pid, a name or an id of reseat ps) to a device (a name, UUID, PCI address\n"
     "or part of the driver's name of reseat devices) while it runs. Ctrl-C cancels.\n"
     "Of a program with several virtual devices all move there, one after another; APP:N is one "
     "of\n"
     "them, counted from 0.\n\n"
     "  --timeout SECONDS  roll back when it has not moved by then; default: none\n"
     "  --dry-run          only say whether the device would serve the program\n"
     "  --taken            its device is taken away: a program that registered with reseat.h is\n"
     "                     asked, but moved without its help where that fails\n"},
    {"suspend", cmd_suspend,
     "Usage: reseat suspend APP[:N] [--timeout SECONDS] [--taken] [--json]\n\n"
     "Take a program off its device, into host memory. It waits where it needs a device.\n"
     "Of several virtual devices all are, one after another; APP:N is one of them.\n\n"
     "  --taken            as of move\n"},
    {"resume", cmd_resume,
     "Usage: reseat resume APP[:N] [DEVICE] [--timeout SECONDS] [--queue] [--json]\n\n"
     "Give a suspended program a device again: the one that is named, else the one it was on, or\n"
     "any that fits. Where there is no room now it queues, and the command waits until it has\n"
     "one; Ctrl-C, or --timeout, leaves it suspended.\n"
     "Of several virtual devices all that are suspended; APP:N is one of them.\n\n"
     "  --queue            do not wait: the policy resumes it when there is room\n"},
    {"notify", cmd_notify,
     "Usage: reseat notify APP[:N] WHAT [--in SECONDS] [--value N] [--text TEXT] [--json]\n\n"
     "Tell a program that registered with reseat.h: device-added, device-taken, power or quota.\n"
     "It is only told; what it does about it is its own.\n\n"
     "  --in SECONDS  when: of device-taken, which needs it; 0: now\n"
     "  --value N     milliwatts of power, bytes of quota (or none), which need it; bytes of\n"
     "                device-added\n"
     "  --text TEXT   one line for it to log\n"},
    {"limit", cmd_limit,
     "Usage: reseat limit DEVICE|APP --memory SIZE|none [--json]\n\n"
     "Set how much memory programs may have of a device, all together, or one program of any.\n"
     "Who has more makes room: it spills, moves or is suspended. That of a device outlives the\n"
     "agent, that of a program ends with it.\n\n"
     "  --memory SIZE  such as 512MiB or 2GiB; none: all that there is\n"},
    {"drain", cmd_drain,
     "Usage: reseat drain DEVICE [--in SECONDS] [--undo] [--json]\n\n"
     "Move every program off a device, to where the policy finds room, and keep new ones away.\n"
     "What fits nowhere is suspended and queues for a device. Waits until the device is empty.\n"
     "Exit status 4 or 1: some cannot leave it, or failed to. It stays drained all the same, also\n"
     "when this command is interrupted.\n\n"
     "  --in SECONDS  then, and tell those that registered with reseat.h now; who answers with a\n"
     "                wish leaves before\n"
     "  --undo        let it take programs again\n"},
    {"rebalance", cmd_rebalance,
     "Usage: reseat rebalance [--dry-run] [--json]\n\n"
     "Move programs to where they run faster, have more of what they prefer, or cost less, now,\n"
     "without minimum stay and budget.\n\n"
     "  --dry-run  only say which would move\n"},
    {"explain", cmd_explain,
     "Usage: reseat explain APP[:N] [--json]\n\n"
     "Say why a program is where it is, and what would change that.\n"},
    {"report", cmd_report,
     "Usage: reseat report [DEVICE|APP] [--json]\n\n"
     "Show use of device memory over time: granted, held, the most ever held, spilled, and how\n"
     "much of its device each program needed, also those that ended.\n"},
    {"doctor", cmd_doctor,
     "Usage: reseat doctor [--json] [PROGRAM [ARG...]]\n\n"
     "Check the set-up; with PROGRAM, say by which road it reaches OpenCL and what would stop it.\n"
     "PROGRAM may be a script, python3 with a script, java with a .jar, or a wrapper of such.\n"
     "Nothing is run. Exit status 1: something is broken.\n"},
    {"agent", cmd_agent,
     "Usage: reseat agent [start|stop|status] [--json]\n\n"
     "Start or stop your agent, or say whether one runs (the default).\n"},
    {"config", cmd_config,
     "Usage: reseat config print [--SETTING VALUE...] [--json]\n"
     "       reseat config validate [FILE] [--json]\n"
     "       reseat config path [--json]\n"
     "       reseat config reload [--json]\n\n"
     "Show the configuration that is in effect here, as a commented file with the\n"
     "origin of each value; check a file; say which one is read; have the agent read\n"
     "it again, which keeps the one that it has where the file is wrong.\n"
     "What can be configured: man reseat.conf.\n\n"
     "  --SETTING VALUE  what a setting of the policy, given to reseatd, would change,\n"
     "                   such as --minimum-stay 60\n"},
    {"simulate", cmd_simulate,
     "Usage: reseat simulate TRACE [OPTION...] [--json]\n"
     "       reseat simulate --nodes FILE --tasks FILE [OPTION...] [--json]\n"
     "       reseat simulate --models [FILE] [--json]\n\n"
     "Run a trace under three regimes (today's termination, overcommit,\n"
     "reconfiguration) at several levels of reclaim, with the policy that the agent\n"
     "has, and compare what comes of it. TRACE is a folder in the openb format, or\n"
     "synthetic[:devices=N,programs=N,hours=N,load=PERCENT,best-effort=PERCENT,\n"
     "late=PERCENT,mix=MODEL*N+MODEL*N].\n\n"
     "  --reclaim LIST        levels: reclaims of a device in an hour; default:\n"
     "                        0,0.01,0.05,0.2\n"
     "  --price LIST          what is paid at each, of the price on demand; default:\n"
     "                        1 at 0, else 0.35\n"
     "  --notice SECONDS      before a reclaim; default: 120\n"
     "  --away SECONDS        until the device is back, on average; default: 1800\n"
     "  --fail NUMBER         failures of a device in an hour, without a notice;\n"
     "                        default: 0\n"
     "  --checkpoint SECONDS  programs keep their work in steps of this; 0: none;\n"
     "                        default: 3600\n"
     "  --link GB/S           between a device and host memory; default: 10\n"
     "  --stop SECONDS        that a move, suspend, resume or spill takes at least;\n"
     "                        default: 0.5\n"
     "  --touch SECONDS       in which a program goes over all of its memory once;\n"
     "                        default: 10\n"
     "  --grow PERCENT        of the programs, that start small and grow; default: 25\n"
     "  --devices N           keep N devices of the trace, of each model its part\n"
     "  --cell N              devices that one policy governs at most; default: 1000\n"
     "  --pending             run the tasks that never ran, too\n"
     "  --models [FILE]       print the table of models, or take it from FILE\n"
     "  --set NAME=VALUE      a setting of the policy (see reseat config print)\n"
     "  --seed N              default: 1; the same seed gives the same result\n"
     "  --check               keep a second set of books, and compare\n"},
    {"version", cmd_version, "Usage: reseat version [--json]\n"},
};

static void print_help(FILE *to)
{
    fputs("Usage: reseat COMMAND [ARG...]\n\n"
          "Move a running OpenCL program between devices.\n\n"
          "  run [--device DEV[,DEV...]] [--devices N] [--name NAME] [--present KIND]\n"
          "      [--profile PROFILE] [--memory SIZE] [--quota SIZE] [--priority N]\n"
          "      [--preemptible] [--on-full WAYS] -- PROGRAM [ARG...]\n"
          "  devices [--presented]\n"
          "  ps\n"
          "  move APP[:N] DEVICE [--timeout SECONDS] [--dry-run] [--taken]\n"
          "  suspend APP[:N] [--timeout SECONDS] [--taken]\n"
          "  resume APP[:N] [DEVICE] [--timeout SECONDS] [--queue]\n"
          "  notify APP[:N] WHAT [--in SECONDS] [--value N] [--text TEXT]\n"
          "  limit DEVICE|APP --memory SIZE|none\n"
          "  drain DEVICE [--in SECONDS] [--undo]\n"
          "  rebalance [--dry-run]\n"
          "  explain APP[:N]\n"
          "  report [DEVICE|APP]\n"
          "  doctor [--json] [PROGRAM [ARG...]]\n"
          "  agent [start|stop|status]\n"
          "  config print|validate [FILE]|path|reload\n"
          "  simulate TRACE\n"
          "  version\n"
          "  help [COMMAND]\n\n"
          "reseat help COMMAND says more. Most take --json.\n"
          "Exit status: 0 done; 1 tried and rolled back; 2 usage; 3 no such program, device or "
          "agent;\n"
          "4 refused, the device cannot run it or has no room; 5 deadline passed.\n",
          to);
}

const char *cmd_help(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return commands[i].help;
        }
    }
    return "";
}

uint64_t cmd_address_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur;
}

static bool nobody_there(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -EPIPE;
}

int cmd_connect(const struct output *output, bool launch, const char *what,
                struct client *ret_client)
{
    struct paths paths;
    char why[PROTOCOL_TEXT_MAX / 2];
    int error = paths_find(&paths);

    if (error) {
        return output_fail(output, ERR_FAILED, "the runtime folder cannot be used: %s",
                           paths.problem);
    }
    error = client_connect(&paths, ret_client);
    /* One that was killed a moment ago may still be listening, or hold its lock. */
    for (int tried = 0; launch && nobody_there(error) && tried < LAUNCHES; tried++) {
        const struct timespec pause = {.tv_nsec = tried ? LAUNCH_PAUSE_NS : 0};
        nanosleep(&pause, NULL);
        error = client_launch_agent(why, sizeof(why));
        if (error) {
            return output_fail(output, ERR_NO_AGENT,
                               "the agent cannot be started (%s); see %s/agent.log", why,
                               paths.folder);
        }
        error = client_connect(&paths, ret_client);
    }
    if (error == -EPROTO && ret_client->problem[0]) {
        return output_fail(output, ERR_PROTOCOL, "%s", ret_client->problem);
    }
    return error ? output_fail_agent(output, error, what) : 0;
}

int cmd_ask(const struct output *output, struct client *client, struct frame *frame,
            const char *type, int timeout_ms, const char *what, struct message *ret_message)
{
    int result = client_send(client, frame);

    if (!result) {
        result = client_receive(client, timeout_ms, -1, ret_message);
    }
    if (result != 1) {
        return output_fail_agent(output, result ? result : -EPROTO, what);
    }
    if (field_is(&ret_message->root, "type", type)) {
        return 0;
    }
    int status = output_fail_message(output, ret_message);
    message_finish(ret_message);
    return status;
}

void cmd_put_environment(struct frame *frame)
{
    const char **variables;
    size_t count;

    if (environment_of_drivers(&variables, &count)) {
        return;
    }
    frame_array(frame, "environment");
    for (size_t i = 0; i < count; i++) {
        frame_string(frame, NULL, variables[i]);
    }
    frame_end(frame);
    free(variables);
}

json_t *cmd_json(const msgpack_object *value)
{
    json_t *json;

    switch (value->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        return json_boolean(value->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return json_integer((json_int_t)(value->via.u64 & INT64_MAX));
    case MSGPACK_OBJECT_STR:
        return output_text_of(value->via.str.size ? value->via.str.ptr : "", value->via.str.size);
    case MSGPACK_OBJECT_ARRAY:
        json = json_array();
        for (uint32_t i = 0; i < value->via.array.size; i++) {
            json_array_append_new(json, cmd_json(&value->via.array.ptr[i]));
        }
        return json;
    case MSGPACK_OBJECT_MAP:
        json = json_object();
        for (uint32_t i = 0; i < value->via.map.size; i++) {
            const msgpack_object_kv *pair = &value->via.map.ptr[i];
            char key[PROTOCOL_WORD_MAX];
            if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size < sizeof(key)) {
                text_make_safe(key, sizeof(key), pair->key.via.str.ptr, pair->key.via.str.size);
                json_object_set_new(json, key, cmd_json(&pair->val));
            }
        }
        return json;
    default:
        return json_null();
    }
}

int cmd_version(int argc, char **argv)
{
    struct output output;

    output_init(&output, "version", argc, argv);
    if (argc > 2 || (argc == 2 && !output.json)) {
        return output_usage(&output, "version takes no argument but --json");
    }
    if (output.json) {
        json_t *object = output_object(&output, 0);
        json_object_set_new(object, "version", json_string(RESEAT_VERSION));
        json_object_set_new(object, "protocol", json_integer(PROTOCOL_VERSION));
        return output_print(object, 0);
    }
    puts("reseat " RESEAT_VERSION);
    return fflush(stdout) ? STATUS_ROLLED_BACK : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return STATUS_USAGE;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (help && argc == 2) {
        print_help(stdout);
        return fflush(stdout) ? STATUS_ROLLED_BACK : 0;
    }
    if (help) {
        name = argv[2];
    }
    if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i].name, name)) {
            continue;
        }
        if (help || (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))) {
            fputs(commands[i].help, stdout);
            return fflush(stdout) ? STATUS_ROLLED_BACK : 0;
        }
        return commands[i].run(argc - 1, argv + 1);
    }
    struct output output;
    output_init(&output, name, argc, argv);
    return output_fail(&output, ERR_USAGE, "there is no command \"%s\"; see reseat --help", name);
}
