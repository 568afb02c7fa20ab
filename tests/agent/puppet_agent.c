#include "tests/support/cases.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"
#include "tests/support/patience.h"

/* What the agent says, while puppets do what they are told. */

struct running {
    pid_t pid;
    bool ended;
    int status;
};

static bool has_ended(void *data)
{
    struct running *running = data;
    int status;

    if (!running->ended && waitpid(running->pid, &status, WNOHANG) == running->pid) {
        running->ended = true;
        running->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return running->ended;
}

static void take_file(const char *path, char *to, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, to, size - 1) : 0;

    to[count > 0 ? count : 0] = '\0';
    close(fd);
    unlink(path);
}

struct result *puppets_reseat(const char *first, ...)
{
    static struct result results[4];
    static unsigned next;
    struct result *result = &results[next++ % 4];
    char out[128], err[128],
        *argv[16] = {(char *)(uintptr_t)harness_reseat(), (char *)(uintptr_t)first};
    struct running running = {0};
    va_list arguments;

    va_start(arguments, first);
    for (int i = 2; i < 15 && (argv[i] = va_arg(arguments, char *)); i++) {
    }
    va_end(arguments);
    snprintf(out, sizeof(out), "%s/puppets-out-%u", harness_folder(), next);
    snprintf(err, sizeof(err), "%s/puppets-err-%u", harness_folder(), next);
    fflush(NULL);
    running.pid = fork();
    if (running.pid == 0) {
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        for (int fd = 3; fd < 256; fd++)
            close(fd);
        execv(argv[0], argv);
        _exit(127);
    }
    cr_assert(puppets_run(has_ended, &running, 60000), "reseat %s hangs", first);
    result->status = running.status;
    take_file(out, result->out, sizeof(result->out));
    take_file(err, result->err, sizeof(result->err));
    return result;
}

struct expected {
    struct puppet *puppet;
    unsigned answers;
};

static bool has_answers(void *data)
{
    const struct expected *expected = data;

    return expected->puppet->answers >= expected->answers;
}

bool puppet_answered(struct puppet *puppet, unsigned answers, unsigned ms)
{
    struct expected expected = {puppet, answers};

    return puppets_run(has_answers, &expected, ms);
}

static bool has_notices(void *data)
{
    const struct expected *expected = data;

    return expected->puppet->notices >= expected->answers;
}

bool puppet_told(struct puppet *puppet, unsigned notices, unsigned ms)
{
    struct expected expected = {puppet, notices};

    return puppets_run(has_notices, &expected, ms);
}

bool puppet_allocate(struct puppet *puppet, uint64_t bytes, unsigned ms)
{
    struct puppet_vdev *vdev = &puppet->vdevs[0];
    uint64_t more = vdev->held + bytes;

    if (more > vdev->granted) {
        puppet_need(puppet, 0, more - vdev->granted, false);
        if (!puppet_answered(puppet, puppet->answers + 1, ms))
            return false;
    }
    vdev->wanted += bytes;
    if (vdev->held + bytes <= vdev->granted)
        vdev->held += bytes;
    else
        vdev->held = vdev->granted;
    vdev->spilled = vdev->wanted - vdev->held;
    puppet_say(puppet);
    return true;
}

static uint64_t number_of(const char *command, const char *list, const char *name,
                          const char *field)
{
    json_t *object = json_loads(PUPPETS_RESEAT(command, "--json")->out, 0, NULL);
    json_t *value = json_object_get(harness_find(object, list, "name", name), field);
    uint64_t number = json_is_integer(value)   ? (uint64_t)json_integer_value(value)
                      : json_is_boolean(value) ? json_is_true(value)
                                               : UINT64_MAX;

    json_decref(object);
    return number;
}

uint64_t devices_say(const char *device, const char *field)
{
    return number_of("devices", "devices", device, field);
}

uint64_t ps_says(const char *app, const char *field)
{
    return number_of("ps", "apps", app, field);
}

bool devices_come_to(const char *device, const char *field, uint64_t value, unsigned ms)
{
    int64_t until = clock_now_ms() + patience(ms);

    do {
        if (devices_say(device, field) == value)
            return true;
        puppets_for(5);
    } while (clock_now_ms() < until);
    return false;
}

bool state_comes_to(const char *app, const char *state, unsigned ms)
{
    int64_t until = clock_now_ms() + patience(ms);
    bool is = false;

    do {
        json_t *object = json_loads(PUPPETS_RESEAT("ps", "--json")->out, 0, NULL);
        is = strcmp(harness_text(harness_find(object, "apps", "name", app), "state"), state) == 0;
        json_decref(object);
        puppets_for(5);
    } while (!is && clock_now_ms() < until);
    return is;
}
