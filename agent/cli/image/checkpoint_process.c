#include "agent/cli/image/process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"

/* The longest wait for a parked program to connect to its agent again. */
#define FIND_NS  (30 * NS_PER_S)
#define RETRY_NS (100 * NS_PER_MS)

struct making {
    const struct output *output;
    const struct process_wish *wish;
    struct client *client;
    char criu[PATH_MAX];
    struct image_folder *folder;
    struct process_files files;
    struct parked parked;
    int process; /**< A pidfd, since a pid may be reused; -1: none. */
    int guard;   /**< The connection to the guard (checkpoint_process_guard_begin()), or -1. */
    char name[SAY_PROGRAM_MAX];
    bool in_session; /**< It is in another process's session: CRIU needs --shell-job. */
    bool ran;        /**< It was not suspended before. */
    uint64_t begun_ns, parked_ns, went_ns;
    struct image_written written;
};

/** @ret_soon: the agent does not know the program yet; nothing was printed. */
static int checkpoint_process_ask_resume(const struct output *output, struct client *client,
                                         struct frame *frame, json_t **ret_report, bool *ret_soon)
{
    const struct news news = {.cancels = true};
    struct message message;
    char code[PROTOCOL_WORD_MAX] = "";
    int result = ask_follow(client, frame, &news, &message), status = 0;

    *ret_soon = false;
    if (result != 1)
        return output_fail_agent(output, result, MSG_RESUME);
    (void)field_string(&message.root, "code", code, sizeof(code));
    if (field_is(&message.root, "type", MSG_REPORT))
        *ret_report = json_message(&message);
    else if (strcmp(code, ERR_NO_APP) == 0 || strcmp(code, ERR_GONE) == 0)
        *ret_soon = true;
    else
        status = output_fail_message(output, &message);
    message_finish(&message);
    return status;
}

int checkpoint_resume(const struct output *output, struct client *client, pid_t pid,
                      const char *device, bool queue, json_t **ret_report)
{
    struct request asked = {.queue = queue};
    uint64_t until = clock_now_ns() + FIND_NS;
    char app[16];
    bool soon = true;
    int status = 0;

    snprintf(app, sizeof(app), "%d", (int)pid);
    snprintf(asked.device, sizeof(asked.device), "%s", device ? device : "");
    for (; !status && soon; clock_sleep(soon ? RETRY_NS : 0)) {
        struct frame frame;
        if (clock_now_ns() >= until) {
            return output_fail(output, ERR_EXPIRED,
                               "pid %d does not find the agent; it is suspended", (int)pid);
        }
        ask_request(&frame, MSG_RESUME, app, &asked);
        status = checkpoint_process_ask_resume(output, client, &frame, ret_report, &soon);
    }
    return status;
}

static int checkpoint_process_prepare(struct making *m)
{
    char problem[IMAGE_PROBLEM_MAX];
    int status = criu_need(m->output, m->wish->criu, m->criu);

    if (status)
        return status;
    int error = image_folder_open(m->wish->folder, IMAGE_TO_WRITE, &m->folder, problem);
    if (error)
        return output_fail(m->output, error == -EPERM ? ERR_REFUSED : ERR_FAILED, "%s", problem);
    error = process_files_begin(m->folder, &m->files);
    if (error)
        return output_fail(m->output, ERR_FAILED, "%s: %s", m->folder->path, strerror(-error));
    return 0;
}

/** True if it has child processes: CRIU would dump them too, and they are not parked. */
static bool checkpoint_process_has_children(pid_t pid)
{
    CLEANUP(cleanup_free) struct dirent **tasks = NULL;
    char path[64];
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    int count = scandir(path, &tasks, NULL, NULL);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, tasks[i]->d_name);
        CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
        found = found || (file && fgetc(file) != EOF);
        free(tasks[i]);
    }
    return found;
}

/** Ask the agent to park the program: suspended, without a driver, and without its agent. */
static int checkpoint_process_park(struct making *m, json_t **ret_report)
{
    static const struct news news = {.cancels = true};
    static const struct question question = {
        .type = MSG_REPORT, .what = MSG_CHECKPOINT, .news = &news};
    struct request asked = {.parks = true, .timeout_ms = m->wish->timeout_ms};
    struct frame frame;

    ask_request(&frame, MSG_CHECKPOINT, m->wish->app, &asked);
    return ask_on(m->output, m->client, &question, &frame, ret_report);
}

static int checkpoint_process_tell(const struct making *m, int signal)
{
    return pidfd_send_signal(m->process, signal, NULL, 0);
}

/** Take the agent's report: which process is parked, and whether CRIU can save it. */
static int checkpoint_process_take_parked(struct making *m, const json_t *report)
{
    const json_t *app = json_object_get(report, "app");
    const char *result = member_text(report, "result"), *reason = member_text(report, "reason");

    say_program(app, m->name);
    m->ran = member_text(report, "from")[0];
    m->parked = (struct parked){.pid = (pid_t)member_number(app, "pid"),
                                .box = member_number(report, "box")};
    if (strcmp(result, RESULT_DONE) != 0 || !m->parked.box) {
        return output_fail(m->output, output_code_of(result),
                           "no image was made of %s: %s; it goes on", m->name,
                           reason[0] ? reason : result);
    }
    m->in_session = getsid(m->parked.pid) != m->parked.pid;
    m->process = pidfd_open(m->parked.pid, 0);
    int error = m->process < 0 ? -errno : park_await(&m->parked);
    if (!error && checkpoint_process_tell(m, 0))
        error = -errno; /* The parked process ended, and another one has its pid. */
    if (error) {
        return output_fail(m->output, error == -EPERM ? ERR_DENIED : ERR_FAILED,
                           "no image was made of %s: %s; it goes on", m->name,
                           error == -EPERM       ? "only root may read its memory"
                           : error == -ECANCELED ? "it continued before it could be saved"
                                                 : strerror(-error));
    }
    if (!checkpoint_process_has_children(m->parked.pid))
        return 0;
    return output_fail(m->output, ERR_REFUSED,
                       "no image was made of %s: it has child processes, which an image cannot "
                       "have; it goes on",
                       m->name);
}

/**
 * Start a process that continues the program where this command is killed while CRIU leaves the
 * program stopped. It has no other descriptor of ours, so that others notice our end.
 *
 * CRIU inherits our end of the connection. So the guard cannot miss a CRIU that runs on, however
 * early this command is killed.
 */
static int checkpoint_process_guard_begin(struct making *m)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        if (dup2(m->process, STDIN_FILENO) == STDIN_FILENO &&
            dup2(ends[0], STDOUT_FILENO) == STDOUT_FILENO) {
            ssize_t count;
            char over;
            closefrom(STDERR_FILENO);
            while ((count = read(STDOUT_FILENO, &over, 1)) < 0 && errno == EINTR)
                ;
            /* The end of the file: this command was killed, and CRIU, which stops the program when
             * it ends, has ended too. A byte: nobody has to continue the program. */
            if (count <= 0)
                (void)pidfd_send_signal(STDIN_FILENO, SIGCONT, NULL, 0);
        }
        _exit(0);
    }
    int error = pid < 0 ? -errno : 0;
    close(ends[0]);
    m->guard = error ? -1 : ends[1];
    if (error)
        close(ends[1]);
    return error;
}

static int checkpoint_process_dump(struct making *m)
{
    char pid[16], problem[CRIU_PROBLEM_MAX];
    const char *leave = m->wish->ends ? "--leave-stopped" : "--leave-running";
    const char *words[] = {"dump",
                           "--tree",
                           pid,
                           "--images-dir",
                           m->files.path,
                           leave,
                           "--file-locks",
                           "--manage-cgroups=ignore",
                           m->in_session ? "--shell-job" : NULL,
                           NULL};

    snprintf(pid, sizeof(pid), "%d", (int)m->parked.pid);
    int error = m->wish->ends ? checkpoint_process_guard_begin(m) : 0;
    const struct criu_call call = {.path = m->criu,
                                   .words = words,
                                   .log = m->files.log,
                                   .terminal = m->in_session,
                                   .open = m->guard,
                                   .tick = park_beat,
                                   .data = &m->parked};
    if (error)
        snprintf(
            problem, sizeof(problem),
            "the process that would continue it if this command were killed cannot be started: %s",
            strerror(-error));
    if (!error && criu_run(&call, problem) == 0)
        return 0;
    return output_fail(m->output, ERR_FAILED,
                       "no image was made of %s: CRIU says: %s (%s); it goes on", m->name, problem,
                       process_files_keep_log(m->folder, &m->files));
}

static int checkpoint_process_pack(struct making *m)
{
    char problem[IMAGE_PROBLEM_MAX];
    int error =
        process_image_write(m->folder, &m->files, &m->parked, m->in_session, &m->written, problem);

    return error ? output_fail(m->output, ERR_FAILED, "no image was made of %s: %s; it goes on",
                               m->name, problem)
                 : 0;
}

/** Continue the program, also where it is stopped, and resume it if it was not suspended. */
static int checkpoint_process_go_on(struct making *m)
{
    json_t *report = NULL;

    (void)checkpoint_process_tell(m, SIGCONT);
    (void)!park_go(&m->parked, NULL); /* On failure it continues by itself, soon. */
    m->went_ns = clock_now_ns();
    if (!m->ran)
        return 0;
    int status = checkpoint_resume(m->output, m->client, m->parked.pid, NULL, false, &report);
    json_decref(report);
    m->went_ns = clock_now_ns();
    return status;
}

/**
 * Dump the program. With `ends`, write the image and then end the program. Else let the program
 * continue before the image is written from CRIU's files.
 */
static int checkpoint_process_keep(struct making *m)
{
    int status = checkpoint_process_dump(m), packed = 0;

    if (!status && m->wish->ends) {
        status = checkpoint_process_pack(m);
        if (!status) {
            (void)checkpoint_process_tell(m, SIGKILL);
            m->went_ns = clock_now_ns();
            return 0;
        }
    }
    bool packs = !status;
    int went = checkpoint_process_go_on(m);
    if (packs)
        packed = checkpoint_process_pack(m);
    return status ? status : packed ? packed : went;
}

static int checkpoint_process_make(struct making *m, json_t **ret_report)
{
    int status = checkpoint_process_prepare(m);

    if (!status)
        status = checkpoint_process_park(m, ret_report);
    if (status)
        return status;
    m->parked_ns = clock_now_ns();
    status = checkpoint_process_take_parked(m, *ret_report);
    if (!status)
        status = checkpoint_process_keep(m);
    else if (m->parked.box)
        (void)checkpoint_process_go_on(m);
    return status;
}

int checkpoint_process(const struct output *output, const struct process_wish *wish,
                       struct client *client, json_t **ret_report)
{
    struct making m = {.output = output,
                       .wish = wish,
                       .client = client,
                       .files = {.fd = -1},
                       .process = -1,
                       .guard = -1,
                       .begun_ns = clock_now_ns()};
    json_t *report = NULL;
    int status = checkpoint_process_make(&m, &report);

    if (m.guard >= 0) {
        (void)!send(m.guard, "", 1, MSG_NOSIGNAL);
        close(m.guard);
        while (wait(NULL) < 0 && errno == EINTR)
            ;
    }
    process_files_end(&m.files);
    image_folder_close(m.folder);
    if (m.process >= 0)
        close(m.process);
    if (status) {
        json_decref(report);
        return status;
    }
    json_object_update_new(report, json_pack("{s:s, s:I, s:I, s:I, s:I}", "image", m.written.name,
                                             "image_bytes", (json_int_t)m.written.bytes,
                                             "image_written", (json_int_t)m.written.stored,
                                             "total_ns", (json_int_t)(clock_now_ns() - m.begun_ns),
                                             "downtime_ns", (json_int_t)(m.went_ns - m.parked_ns)));
    *ret_report = report;
    return 0;
}
