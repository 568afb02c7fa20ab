#include "tests/agent/harness.h"

#include "tests/support/cases.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/config/config.h"
#include "agent/config/paths.h"
#include "state/base/clock.h"
#include "tests/scratch.h"
#include "tests/support/patience.h"

#define ARGUMENTS_MAX 24
#define SPAWNED_MAX   64

static char folder[64];
static struct result last[4];
static unsigned next_result;
static pid_t spawned[SPAWNED_MAX];
static unsigned spawned_count;
static json_t *parsed;

const char *harness_reseat(void)
{
    return getenv("TEST_RESEAT");
}

const char *harness_program(void)
{
    return getenv("TEST_PROGRAM");
}

const char *harness_folder(void)
{
    return folder;
}

const char *harness_path(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

void harness_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

void harness_configure(const char *text)
{
    harness_write(harness_path("reseat.conf"), text);
    setenv("RESEAT_CONFIG", harness_path("reseat.conf"), 1);
}

void harness_init(void)
{
    char path[128];

    if (!mkdtemp(scratch(folder, "test")))
        abort();
    snprintf(path, sizeof(path), "%s/run", folder);
    mkdir(path, 0700);
    setenv("XDG_RUNTIME_DIR", path, 1);
    snprintf(path, sizeof(path), "%s/state", folder);
    setenv("XDG_STATE_HOME", path, 1);
    snprintf(path, sizeof(path), "%s/cache", folder);
    setenv("XDG_CACHE_HOME", path, 1);
    snprintf(path, sizeof(path), "%s/config", folder);
    setenv("XDG_CONFIG_HOME", path, 1);
    snprintf(path, sizeof(path), "%s/links", folder);
    setenv("RESEAT_LINKS", path, 1);
    unsetenv("RESEAT_CONFIG");
    for (size_t i = 0; i < settings_count; i++) {
        config_variable(&settings_table[i], path, sizeof(path));
        unsetenv(path);
    }
    setenv("RESEAT_LISTER", getenv("TEST_LISTER"), 1);
    setenv("RESEAT_LIBRARY", getenv("TEST_LIBRARY"), 1);
    setenv("RESEAT_SOCKET", "", 1); /* Not this machine's agent. */
    unsetenv("RESEAT_ID");
    signal(SIGPIPE, SIG_IGN);
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *at)
{
    (void)stat;
    (void)flag;
    (void)at;
    return remove(path);
}

void harness_finish(void)
{
    while (spawned_count > 0)
        if (waitpid(spawned[spawned_count - 1], NULL, WNOHANG) == 0)
            harness_end(spawned[spawned_count - 1]);
        else
            spawned_count--;
    json_decref(parsed);
    parsed = NULL;

    pid_t agent = harness_agent();
    if (agent > 0) {
        RESEAT("agent", "stop");
        kill(agent, SIGKILL);
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static pid_t spawn_with(const char *program, va_list arguments, int out, int err)
{
    char *argv[ARGUMENTS_MAX] = {(char *)(uintptr_t)program};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    for (int i = 1; i < ARGUMENTS_MAX - 1; i++) {
        argv[i] = va_arg(arguments, char *);
        if (!argv[i])
            break;
    }
    posix_spawn_file_actions_init(&actions);
    if (out >= 0) {
        posix_spawn_file_actions_adddup2(&actions, out, 1);
        posix_spawn_file_actions_adddup2(&actions, err, 2);
    } else {
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    }
    int error = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        fprintf(stderr, "cannot run %s: %s\n", program, strerror(error));
        abort();
    }
    return pid;
}

int harness_wait(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    for (unsigned i = 0; i < spawned_count; i++)
        if (spawned[i] == pid)
            spawned[i--] = spawned[--spawned_count];
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void take(int fd, char *to, size_t size)
{
    ssize_t count = pread(fd, to, size - 1, 0);

    to[count > 0 ? count : 0] = '\0';
    close(fd);
}

static int temporary_file(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/output-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        abort();
    unlink(path);
    return fd;
}

/* Of the manual, what follows its heading JSON. */
static const char *manual_of_json(void)
{
    static char *text;
    size_t size = 0;
    FILE *file = text ? NULL : fopen(getenv("TEST_MANUAL"), "r");

    if (file && getdelim(&text, &size, '\0', file) < 0)
        abort();
    if (file)
        fclose(file);
    return strstr(text, "\n# JSON");
}

/* The manual has @key between underscores that are not part of another name. */
static bool is_described(const char *key)
{
    size_t length = strlen(key);
    const char *at = manual_of_json();

    while ((at = strstr(at, key)) && (at[-1] != '_' || isalnum((unsigned char)at[-2]) ||
                                      at[length] != '_' || isalnum((unsigned char)at[length + 1])))
        at++;
    return at;
}

/* The manual describes each member that is printed. Names of devices, settings, assumptions and
 * fields of images are members too: their own pages have them. */
static void check_manual(const json_t *value)
{
    const char *key;
    const json_t *inner;
    size_t i;

    json_array_foreach(value, i, inner)
    {
        check_manual(inner);
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, inner)
    {
        bool setting = json_object_get(value, "line") != NULL;
        bool elsewhere = strcmp(key, "records") == 0 || strcmp(key, "policy") == 0 ||
                         strcmp(key, "assumed") == 0 ||
                         (strcmp(key, "devices") == 0 && json_is_object(inner));
        cr_expect(setting || is_described(key), "reseat(1) does not describe %s", key);
        if (!elsewhere)
            check_manual(inner);
    }
}

struct result *harness_run(const char *program, ...)
{
    struct result *result = &last[next_result++ % 4];
    int out = temporary_file(), err = temporary_file();
    va_list arguments;

    va_start(arguments, program);
    pid_t pid = spawn_with(program, arguments, out, err);
    va_end(arguments);
    result->status = harness_wait(pid);
    take(out, result->out, sizeof(result->out));
    take(err, result->err, sizeof(result->err));
    json_t *object =
        strcmp(program, harness_reseat()) == 0 ? json_loads(result->out, 0, NULL) : NULL;
    check_manual(object);
    json_decref(object);
    return result;
}

void harness_owns(pid_t pid)
{
    cr_assert_lt(spawned_count, SPAWNED_MAX);
    spawned[spawned_count++] = pid;
}

pid_t harness_spawn(const char *program, ...)
{
    va_list arguments;

    va_start(arguments, program);
    pid_t pid = spawn_with(program, arguments, -1, -1);
    va_end(arguments);
    harness_owns(pid);
    return pid;
}

struct result *harness_ends(struct result *result, int status)
{
    cr_assert_eq(result->status, status, "%s%s", result->out, result->err);
    return result;
}

struct result *harness_says(struct result *result, int status, const char *text)
{
    (void)harness_ends(result, status);
    cr_assert(strstr(status ? result->err : result->out, text), "not \"%s\": %s%s", text,
              result->out, result->err);
    return result;
}

bool harness_state(const char *name, const char *state, unsigned ms)
{
    for (unsigned waited = 0; waited <= patience(ms); waited += 25) {
        const struct result *result = RESEAT("ps", "--json");
        json_t *object = json_loads(result->out, 0, NULL), *app;
        bool found = false;
        size_t i;
        json_array_foreach(json_object_get(object, "apps"), i, app)
        {
            found = found || (strcmp(harness_text(app, "name"), name) == 0 &&
                              strcmp(harness_text(app, "state"), state) == 0);
        }
        json_decref(object);
        if (found)
            return true;
        usleep(25000);
    }
    return false;
}

bool harness_prints(const char *verb, const char *option, const char *text, unsigned ms)
{
    for (unsigned waited = 0; !strstr(RESEAT(verb, option)->out, text); waited += 25) {
        if (waited >= patience(ms))
            return false;
        usleep(25000);
    }
    return true;
}

pid_t harness_agent(void)
{
    const struct result *result = RESEAT("agent", "status", "--json");
    json_t *object = json_loads(result->out, 0, NULL);
    json_int_t pid = json_integer_value(json_object_get(json_object_get(object, "agent"), "pid"));

    json_decref(object);
    return (pid_t)pid;
}

int harness_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct paths paths;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || paths_find(&paths))
        return -1;
    memcpy(address.sun_path, paths.socket, sizeof(address.sun_path));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        return -1;
    }
    return fd;
}

bool harness_tell(int fd, struct frame *frame)
{
    cr_assert_eq(frame_seal(frame), 0);
    bool sent = send(fd, frame->buffer.data, frame->buffer.size, MSG_NOSIGNAL) ==
                (ssize_t)frame->buffer.size;
    frame_finish(frame);
    return sent;
}

bool harness_hear(int fd, struct frame_reader *reader, struct message *ret_message, unsigned ms)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    int64_t until = clock_now_ms() + patience(ms);

    for (;;) {
        char bytes[8192];
        int got = frame_reader_next(reader, ret_message);
        cr_assert_geq(got, 0);
        if (got == 1)
            return true;
        int64_t now = clock_now_ms();
        if (now >= until || poll(&polled, 1, (int)(until - now)) <= 0)
            return false;
        ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
        if (count <= 0)
            return false;
        cr_assert_eq(frame_reader_feed(reader, bytes, (size_t)count), 0);
    }
}

pid_t harness_start(const char *name, const char *how)
{
    setenv("FAKE_MOVE", how, 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", name, "--", harness_program(),
                              "60", (char *)NULL);
    cr_assert(harness_state(name, "running", 10000));
    return pid;
}

void harness_end(pid_t pid)
{
    kill(pid, SIGKILL);
    harness_wait(pid);
}

json_t *harness_kept(json_t *object)
{
    parsed = parsed ? parsed : json_array();
    json_array_append_new(parsed, object);
    return object;
}

json_t *harness_parse(const char *text)
{
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);

    cr_assert(object, "not JSON: %s: %s", error.text, text);
    return harness_kept(object);
}

json_t *harness_json(const struct result *result, const char *command)
{
    json_t *object = harness_parse(result->out);

    cr_assert_eq(json_integer_value(json_object_get(object, "schema")), 1);
    cr_assert_str_eq(json_string_value(json_object_get(object, "command")), command);
    cr_assert_eq(json_integer_value(json_object_get(object, "status")), result->status);
    cr_assert_eq(result->status != 0, json_object_get(object, "error") != NULL, "%s", result->out);
    cr_assert_str_eq(result->err, "");
    return object;
}

const char *harness_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "(none)";
}

json_int_t harness_number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

json_t *harness_find(const json_t *object, const char *list, const char *key, const char *text)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(object, list), i, one)
    {
        if (strcmp(harness_text(one, key), text) == 0)
            return one;
    }
    return NULL;
}

const char *harness_error(const json_t *object)
{
    return json_string_value(json_object_get(json_object_get(object, "error"), "code"));
}

void harness_become(uid_t uid)
{
    if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void harness_send_fd(int to, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    (void)!sendmsg(to, &message, MSG_NOSIGNAL);
}

int harness_receive_fd(int from)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    int fd;

    cr_assert_eq(recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1, "the other could not connect");
    cr_assert(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}
