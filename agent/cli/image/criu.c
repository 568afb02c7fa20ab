#include "agent/cli/image/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/protocol/park.h"
#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"

#define PARK_NS (10 * NS_PER_S)
#define LOOK_NS (5 * NS_PER_MS)

static int park_copy(const struct parked *parked, size_t offset, void *bytes, size_t size,
                     bool write)
{
    struct iovec here = {bytes, size}, there = {(void *)(uintptr_t)(parked->box + offset), size};
    ssize_t done = write ? process_vm_writev(parked->pid, &here, 1, &there, 1, 0)
                         : process_vm_readv(parked->pid, &here, 1, &there, 1, 0);

    if (done == (ssize_t)size)
        return 0;
    return done < 0 && errno != EFAULT ? -errno : -EBADMSG;
}

/** Read the state. -EBADMSG: there is no box at that address, so nothing may be written there. */
static int park_look(const struct parked *parked, uint32_t *ret_state)
{
    struct park_box box;
    int error = park_copy(parked, 0, &box, sizeof(box), false);

    if (!error && box.magic != PARK_MAGIC)
        error = -EBADMSG;
    *ret_state = error ? 0 : box.state;
    return error;
}

int park_await(const struct parked *parked)
{
    uint64_t until = clock_now_ns() + PARK_NS;
    uint32_t state;

    for (;;) {
        int error = park_look(parked, &state);
        if (error)
            return error;
        if (state == PARK_PARKED)
            return 0;
        if (state != PARK_BEGINS)
            return -ECANCELED;
        if (clock_now_ns() >= until)
            return -ETIMEDOUT;
        park_beat((void *)parked);
        clock_sleep(LOOK_NS);
    }
}

void park_beat(void *data)
{
    const struct parked *parked = data;
    uint32_t beat, state;
    size_t offset = offsetof(struct park_box, beat);

    if (park_look(parked, &state) == 0 &&
        park_copy(parked, offset, &beat, sizeof(beat), false) == 0) {
        beat++;
        (void)!park_copy(parked, offset, &beat, sizeof(beat), true);
    }
}

int park_go(const struct parked *parked, const char *socket)
{
    struct park_box box = {.restored = socket != NULL};
    uint32_t state, go = PARK_GO;
    int error = park_look(parked, &state);

    if (!error && socket &&
        snprintf(box.socket, sizeof(box.socket), "%s", socket) >= (int)sizeof(box.socket))
        error = -ENAMETOOLONG;
    if (!error && socket) {
        error = park_copy(parked, offsetof(struct park_box, restored), &box.restored,
                          sizeof(box) - offsetof(struct park_box, restored), true);
    }
    return error ? error
                 : park_copy(parked, offsetof(struct park_box, state), &go, sizeof(go), true);
}

#define TICK_NS   (100 * NS_PER_MS)
#define LINE_SIZE 512
#define MARK      "Error ("

static bool criu_is_program(const char *path)
{
    return access(path, X_OK) == 0;
}

int criu_find(const char *word, char ret_path[PATH_MAX])
{
    static const char roots[] = ":/usr/local/sbin:/usr/sbin:/sbin";
    const char *path = getenv("PATH");
    char *CLEANUP(cleanup_free) all = NULL;

    if (word && strchr(word, '/')) {
        if (!criu_is_program(word) || !realpath(word, ret_path))
            return -ENOENT;
        return 0;
    }
    if (asprintf(&all, "%s%s", path ? path : "", roots) < 0) {
        all = NULL;
        return -ENOENT;
    }
    char *rest = all;
    for (const char *folder; (folder = strsep(&rest, ":"));) {
        int length = snprintf(ret_path, PATH_MAX, "%s/%s", folder, word ? word : "criu");
        if (folder[0] == '/' && length < PATH_MAX && criu_is_program(ret_path))
            return 0;
    }
    return -ENOENT;
}

/** The first error that names a cause, as others follow from it; else the last line. */
static void criu_find_problem(const char *log, char ret_problem[CRIU_PROBLEM_MAX])
{
    CLEANUP(cleanup_fclose) FILE *file = fopen(log, "re");
    char line[LINE_SIZE], found[LINE_SIZE] = "";
    bool named = false;

    while (!named && file && fgets(line, sizeof(line), file)) {
        const char *error = strstr(line, MARK);
        const char *text = error ? strstr(error, "): ") : NULL;
        bool says = text && !strstr(text, " FAILED") && !strstr(text, "exited, status");
        if (line[strspn(line, " \t\r\n")])
            snprintf(found, sizeof(found), "%s", says ? text + 3 : line);
        named = says;
    }
    found[strcspn(found, "\r\n")] = '\0';
    text_make_safe(ret_problem, CRIU_PROBLEM_MAX, found[0] ? found : "it does not say why",
                   strlen(found[0] ? found : "it does not say why"));
}

/**
 * CRIU gets no descriptor of ours but `open`, so that none is in what it restores. Signals to our
 * process group do not end CRIU, which would leave its code in the process that it dumps.
 */
static int criu_start(const struct criu_call *call, pid_t *ret_child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    const char *words[32] = {call->path};
    size_t count = 1;
    sigset_t ours;

    while (call->words[count - 1] && count + 1 < ARRAY_SIZE(words)) {
        words[count] = call->words[count - 1];
        count++;
    }
    words[count] = NULL;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    sigaddset(&ours, SIGQUIT);
    bool opens = call->open > 0;
    posix_spawn_file_actions_init(&actions);
    if (opens)
        posix_spawn_file_actions_adddup2(&actions, call->open, STDERR_FILENO + 1);
    if (!call->terminal)
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, call->log,
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1 + opens);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &ours);
    int error =
        -posix_spawn(ret_child, call->path, &actions, &attributes, (char *const *)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int criu_run(const struct criu_call *call, char ret_problem[CRIU_PROBLEM_MAX])
{
    pid_t child, ended;
    int status = 0, error = criu_start(call, &child);

    if (error) {
        snprintf(ret_problem, CRIU_PROBLEM_MAX, "%.400s: %s", call->path, strerror(-error));
        return error;
    }
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        if (call->tick)
            call->tick(call->data);
        clock_sleep(TICK_NS);
    }
    if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    criu_find_problem(call->log, ret_problem);
    return -EIO;
}

bool criu_works(const char *path, char ret_problem[CRIU_PROBLEM_MAX])
{
    static const char *const words[] = {"check", NULL};
    char log[] = "/tmp/reseat-criu-XXXXXX";
    int fd = mkostemp(log, O_CLOEXEC);

    if (fd < 0) {
        snprintf(ret_problem, CRIU_PROBLEM_MAX, "%s: %s", log, strerror(errno));
        return false;
    }
    close(fd);
    const struct criu_call call = {.path = path, .words = words, .log = log};
    int error = criu_run(&call, ret_problem);
    unlink(log);
    return error == 0;
}

int criu_need(const struct output *output, const char *word, char ret_path[PATH_MAX])
{
    char problem[CRIU_PROBLEM_MAX];

    if (criu_find(word, ret_path)) {
        return output_fail(output, ERR_REFUSED,
                           "images of whole processes need CRIU, and %s is not here (Debian's "
                           "package is criu); other images need none",
                           word ? word : "criu");
    }
    if (!criu_works(ret_path, problem)) {
        return output_fail(output, ERR_REFUSED,
                           "CRIU cannot save or restore processes here%s: %s; run criu check as "
                           "root to see what is missing",
                           geteuid() != 0 ? ", where you are not root" : "", problem);
    }
    return 0;
}
