#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config/process.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "agent/daemon/servers/servers.h"
#include "agent/daemon/service.h"
#include "state/base/files/access.h"
#include "state/base/files/file.h"
#include "state/base/option_rows.h"

/*
 * reseatd: keeps the list of a user's or a host's devices and programs, and passes requests from
 * the command line to programs. Programs continue when it ends.
 */

#define SWEEP_MS       250
#define LISTER_SECONDS 45
#define LOG_MAX        (1 << 20)
#define LARGE          (128 << 10)

static const char usage[] =
    "Usage: reseatd [--daemon|--system] [--lister-timeout SECONDS] [--SETTING VALUE...]\n"
    "\n"
    "The agent of reseat. reseat run starts one where none runs.\n"
    "\n"
    "  --daemon                  detach, log to the runtime folder, return when it listens\n"
    "  --system                  serve all users of this host, by " ACCESS_HOST_SOCKET "\n"
    "  --lister-timeout SECONDS  kill the helper that lists devices after so long (default 45)\n"
    "  --SETTING VALUE           a setting of the policy, such as --minimum-stay 60; it goes "
    "before\n"
    "                            the environment and the configuration file (reseat.conf(5))\n"
    "  --help, --version\n";

static void reseatd_on_sweep(uv_timer_t *timer)
{
    struct agent *agent = timer->data;

    operations_expire(agent);
    servers_tick(agent);
    isolation_sweep(agent);
    govern_tick(agent);
    costs_tick(agent);
    metrics_tick(agent);
    if (!agent->stopping && !peers_can_connect(agent)) {
        agent_log("%s was removed or replaced: stopping, as no command reaches this agent; "
                  "programs go on without an agent, or with the next one",
                  agent->paths.socket);
        agent_stop(agent);
    }
    if (agent->watchdog_ms && uv_now(&agent->loop) >= agent->watchdog_due_ms) {
        agent->watchdog_due_ms = uv_now(&agent->loop) + agent->watchdog_ms / 3;
        service_notify("WATCHDOG=1");
    }
}

static void reseatd_on_signal(uv_signal_t *handle, int number)
{
    agent_log("signal %d: stopping; programs go on without an agent", number);
    service_notify("STOPPING=1");
    agent_stop(handle->data);
}

static void reseatd_on_hangup(uv_signal_t *handle, int number)
{
    struct config_error error; /* agent_reload() has logged it. */

    (void)number;
    agent_reload(handle->data, &error);
    govern_reloaded(handle->data);
    devices_renew(handle->data);
}

/** Point standard output and error to the log, and close inherited descriptors. */
static int reseatd_redirect(const struct agent *agent)
{
    char path[PATH_MAX];
    struct stat stat;
    int error = paths_join(agent->paths.folder, "agent.log", path);

    if (error)
        return error;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    if (lstat(path, &stat) == 0 && stat.st_size > LOG_MAX)
        flags |= O_TRUNC;
    int log = open(path, flags | O_NOFOLLOW, 0600);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (log < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(log, 2) < 0)
        error = -errno;
    if (log > 2)
        close(log);
    if (nothing > 2)
        close(nothing);
    return error;
}

/**
 * Continue in a child that has left the terminal; the parent waits until the child listens.
 *
 * @ret_ready  The child writes one byte here when it listens.
 */
static int reseatd_detach(int *ret_ready)
{
    int ends[2];
    char byte;

    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    pid_t child = fork();
    if (child < 0)
        return -errno;
    if (child > 0) {
        close(ends[1]);
        exit(read(ends[0], &byte, 1) == 1 ? byte : 1);
    }
    close(ends[0]);
    if (setsid() < 0 || chdir("/"))
        return -errno;
    int kept = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != kept)
            close(fd);
    *ret_ready = kept;
    return 0;
}

static int reseatd_watch_signal(struct agent *agent, uv_signal_t *handle, uv_signal_cb call,
                                int number)
{
    int error = uv_signal_init(&agent->loop, handle);

    handle->data = agent;
    return error ? error : uv_signal_start(handle, call, number);
}

static int reseatd_start(struct agent *agent, uint64_t timeout_ms)
{
    struct config_error wrong;
    char state[PATH_MAX];
    const char *kept = paths_state(state) ? NULL : state;
    int error = agent_reload(agent, &wrong);

    if (error || (error = paths_join(agent->paths.folder, "apps", agent->programs_folder)) ||
        (error = paths_make(agent->programs_folder)) || (error = uv_loop_init(&agent->loop)) ||
        (error = uv_timer_init(&agent->loop, &agent->sweep)) ||
        (error = reseatd_watch_signal(agent, &agent->terminate[0], reseatd_on_signal, SIGTERM)) ||
        (error = reseatd_watch_signal(agent, &agent->terminate[1], reseatd_on_signal, SIGINT)) ||
        (error = reseatd_watch_signal(agent, &agent->hangup, reseatd_on_hangup, SIGHUP)) ||
        (error = servers_init(agent)) || (error = devices_init(agent, timeout_ms)) ||
        (error = govern_init(agent)) || (error = costs_init(agent, kept)))
        return error;
    agent->sweep.data = agent;
    event_log_init(agent, kept);
    uv_timer_start(&agent->sweep, reseatd_on_sweep, SWEEP_MS, SWEEP_MS);
    programs_load(agent);
    error = peers_listen(agent);
    metrics_init(agent);
    return error ? error : isolation_init(agent);
}

static int reseatd_run(struct agent *agent, bool daemon, int ready, uint64_t timeout_ms)
{
    char status = 0;
    int error = daemon ? reseatd_redirect(agent) : 0;

    if (!error)
        error = lock_take(agent->paths.folder);
    if (error == -EALREADY) {
        agent_log("%s: another agent runs there; nothing to do", agent->paths.folder);
    } else if (!error && (error = reseatd_start(agent, timeout_ms))) {
        agent_log("%s: cannot start: %s", agent->paths.socket,
                  agent->config_problem[0] ? "the configuration is refused" : strerror(-error));
    } else if (error) {
        agent_log("%s: %s", agent->paths.folder, strerror(-error));
    }
    if (ready >= 0) {
        status = error && error != -EALREADY ? 1 : 0;
        (void)!write(ready, &status, 1);
        close(ready);
    }
    if (error)
        return error == -EALREADY && daemon ? 0 : 1;
    agent_log("pid %d listens on %s", (int)getpid(), agent->paths.socket);
    service_notify("READY=1");
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    uv_loop_close(&agent->loop);
    operations_finish(agent);
    programs_finish(agent);
    govern_finish(agent);
    costs_finish(agent);
    servers_finish(agent);
    devices_finish(agent);
    event_log_finish(agent);
    metrics_finish(agent);
    config_finish(&agent->config);
    return 0;
}

/** Make a path in @variable absolute, because the agent changes its working folder. */
static int reseatd_make_absolute(const char *variable)
{
    const char *value = getenv(variable);
    char folder[PATH_MAX], path[PATH_MAX];

    if (!value || !*value || value[0] == '/')
        return 0;
    if (!getcwd(folder, sizeof(folder)))
        return -errno;
    int error = paths_join(folder, value, path);
    return error ? error : setenv(variable, path, 1) ? -errno : 0;
}

struct arguments {
    struct option_row *options; /**< One for each setting of the policy; without a value. */
    struct config_option *settings;
    size_t setting_count;
    uint64_t seconds;
    bool daemon, system, help, version;
};

static int reseatd_arguments_init(struct arguments *arguments, int argc)
{
    *arguments = (struct arguments){
        .options = calloc(settings_count + 1, sizeof(*arguments->options)),
        .settings = calloc((size_t)argc + 1, sizeof(*arguments->settings)),
    };
    if (!arguments->options || !arguments->settings)
        return -ENOMEM;
    for (size_t i = 0; i < settings_count; i++)
        arguments->options[i] =
            (struct option_row){.name = settings_table[i].name, .argument = "VALUE"};
    return 0;
}

/** Returns -1 to continue, or the status with which to exit at once. */
static int reseatd_parse(struct arguments *arguments, int argc, char **argv)
{
    static const struct option_row ours[] = {
        {"daemon", NULL, OPTION_VALUE(struct arguments, daemon)},
        {"system", NULL, OPTION_VALUE(struct arguments, system)},
        {"lister-timeout", "SECONDS", OPTION_VALUE(struct arguments, seconds),
         .kind = OPTION_NUMBER, .least = 1, .most = 86400, .initial = LISTER_SECONDS},
        {"help", NULL, OPTION_VALUE(struct arguments, help)},
        {"version", NULL, OPTION_VALUE(struct arguments, version)},
        {NULL}};
    struct option_rows parsed = {.rows = ours, .more = arguments->options};
    const struct option_row *row;
    char *text;
    int found;

    option_rows_init(ours, arguments);
    while ((found = option_rows_next(&parsed, argc, argv, &row, &text)) > 0) {
        if (!row->size)
            arguments->settings[arguments->setting_count++] =
                (struct config_option){row->name, text};
        else if (option_row_take(row, arguments, text, parsed.reason))
            break;
        if (arguments->help || arguments->version) {
            fputs(arguments->help ? usage : "reseatd " RESEAT_VERSION "\n", stdout);
            return 0;
        }
    }
    if (found || optind != argc || (arguments->daemon && arguments->system)) {
        if (found)
            fprintf(stderr, "reseatd: %s\n", parsed.reason);
        fputs(usage, stderr);
        return 2;
    }
    return -1;
}

/** Find where the agent is to listen. @ret_passed: as service_take_socket(). */
static int reseatd_find_paths(bool system, struct paths *ret_paths, int *ret_passed)
{
    static const char *const folders[][2] = {{"XDG_STATE_HOME", "/var/lib"},
                                             {"XDG_CACHE_HOME", "/var/cache/reseat"},
                                             {"XDG_CONFIG_HOME", "/etc"}};
    int error = system ? paths_host(ret_paths) : paths_find(ret_paths);

    *ret_passed = 0;
    if (!error && !system && ret_paths->shared) {
        snprintf(ret_paths->problem, sizeof(ret_paths->problem),
                 "%s is of an agent for all users; with an empty RESEAT_SOCKET you have one of "
                 "your own",
                 ret_paths->socket);
        return -EEXIST;
    }
    if (error || !system)
        return error;
    error = service_take_socket(ret_paths->socket, ret_passed);
    if (error)
        snprintf(ret_paths->problem, sizeof(ret_paths->problem),
                 "systemd passed another socket than %s", ret_paths->socket);
    /* Those that the host's agent and its helpers use, whatever its user's are. */
    for (size_t i = 0; !error && i < ARRAY_SIZE(folders); i++)
        error = setenv(folders[i][0], folders[i][1], 1) ? -errno : 0;
    return error;
}

static int reseatd_serve(const struct arguments *arguments)
{
    struct agent *agent = calloc(1, sizeof(*agent));
    int error =
        agent ? reseatd_find_paths(arguments->system, &agent->paths, &agent->passed) : -ENOMEM;
    int ready = -1;

    if (error) {
        fprintf(stderr, "reseatd: the runtime folder cannot be used: %s\n",
                agent ? agent->paths.problem : strerror(-error));
        free(agent);
        return 1;
    }
    agent->events = &agent_events;
    agent->watchdog_ms = service_watchdog_ms();
    agent->options = arguments->settings;
    agent->option_count = arguments->setting_count;
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    error = reseatd_make_absolute("RESEAT_CONFIG");
    if (!error && arguments->daemon)
        error = reseatd_detach(&ready);
    int status =
        error ? 1 : reseatd_run(agent, arguments->daemon, ready, arguments->seconds * 1000);
    free(agent);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments arguments;

    file_hold_standard();
    int status =
        reseatd_arguments_init(&arguments, argc) ? 1 : reseatd_parse(&arguments, argc, argv);

    /* The answers for many programs are large: their memory goes back when they have been sent. By
     * itself the threshold grows with the largest, and they would stay in the heap. */
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
    if (status < 0)
        status = reseatd_serve(&arguments);
    free(arguments.options);
    free(arguments.settings);
    return status;
}
