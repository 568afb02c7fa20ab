#include "bench.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ARGS = 64, READ_BYTES = 4096, MAX_OUTPUT = 1 << 24 };

_Noreturn void bench_fail(const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

const char *bench_reseat(void)
{
    static const char *const beside[] = {"reseat", "../../agent/reseat"};
    static char path[2 * PATH_MAX];
    char self[PATH_MAX];
    const char *named = getenv("RESEAT");

    if (named)
        return named;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return "reseat";
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(path, sizeof path, "%s/%s", self, beside[i]);
        if (access(path, X_OK) == 0)
            return path;
    }
    return "reseat";
}

char *bench_program(const char *name)
{
    static const char *const beside[] = {"", "../programs/"};
    const char *folder = getenv("PROGRAMS");
    char self[PATH_MAX], *path = malloc(2 * PATH_MAX);

    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; path && i < sizeof beside / sizeof *beside; i++) {
        snprintf(path, 2 * PATH_MAX, "%s/%s%s", folder ? folder : self, folder ? "" : beside[i],
                 name);
        if (access(path, X_OK) == 0)
            return path;
    }
    bench_fail("no %s (set PROGRAMS to its folder)", name);
}

static void become(const char *name, const char *device, char *const argv[])
{
    const char *all[MAX_ARGS];
    size_t n = 0;

    if (name) {
        all[n++] = bench_reseat();
        all[n++] = "run";
        all[n++] = "--name";
        all[n++] = name;
        if (device) {
            all[n++] = "--device";
            all[n++] = device;
        }
        all[n++] = "--";
    }
    for (size_t i = 0; argv[i] && n < MAX_ARGS - 1; i++)
        all[n++] = argv[i];
    all[n] = NULL;
    execvp(all[0], (char *const *)all);
    fprintf(stderr, "%s: %s\n", all[0], strerror(errno));
    _exit(EXIT_FAILURE);
}

pid_t bench_start(const char *name, const char *device, char *const argv[], int *ret_out)
{
    int ends[2];

    if (pipe(ends))
        bench_fail("pipe: %s", strerror(errno));
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        bench_fail("fork: %s", strerror(errno));
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        become(name, device, argv);
    }
    close(ends[1]);
    *ret_out = ends[0];
    return pid;
}

static char *read_all(int fd)
{
    size_t size = 0, room = READ_BYTES;
    char *text = malloc(room + 1);

    for (;;) {
        if (!text || size > MAX_OUTPUT)
            bench_fail("too much output");
        ssize_t n = read(fd, text + size, room - size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        size += (size_t)n;
        if (size == room)
            text = realloc(text, (room *= 2) + 1);
    }
    text[size] = '\0';
    return text;
}

char *bench_collect(pid_t pid, int fd)
{
    char *text = read_all(fd);
    int status;

    close(fd);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
        bench_fail("a program that was measured failed (wait status %d): %s", status, text);
    return text;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_time(const char *name, char *const argv[])
{
    int out;
    double begin = now();
    pid_t pid = bench_start(name, NULL, argv, &out);

    free(bench_collect(pid, out));
    return now() - begin;
}

double bench_await_line(int fd, const char *text)
{
    char line[READ_BYTES];
    size_t size = 0;

    while (read(fd, &line[size], 1) == 1) {
        if (line[size] != '\n') {
            size = size + 2 < sizeof line ? size + 1 : size;
            continue;
        }
        line[size] = '\0';
        size = 0;
        if (strncmp(line, text, strlen(text)) == 0)
            return strtod(line + strlen(text), NULL);
    }
    bench_fail("a program ended before it said \"%s\"", text);
}

/** Run reseat with @argv; its answer, which the caller releases. */
static json_t *ask(char *const argv[])
{
    json_error_t error;
    int out, status;
    pid_t pid = bench_start(NULL, NULL, argv, &out);
    char *text = read_all(out);
    json_t *answer = json_loads(text, 0, &error);

    close(out);
    if (waitpid(pid, &status, 0) != pid || status || !answer)
        bench_fail("%s %s failed (wait status %d): %s", argv[0], argv[1], status, text);
    free(text);
    return answer;
}

/** Have @verb done to the program @name; @device may be NULL. Ends the process when it is not. */
static struct bench_move change(const char *verb, const char *name, const char *device)
{
    const char *argv[] = {bench_reseat(), verb, name, "--timeout", "300", "--json", device, NULL};
    json_t *answer = ask((char *const *)argv);
    struct bench_move m = {
        .total_s = (double)json_integer_value(json_object_get(answer, "total_ns")) * 1e-9,
        .arrived_s = (double)json_integer_value(json_object_get(answer, "arrived_ns")) * 1e-9,
        .downtime_s = (double)json_integer_value(json_object_get(answer, "downtime_ns")) * 1e-9,
        .bytes = (uint64_t)json_integer_value(json_object_get(answer, "bytes")),
    };

    json_decref(answer);
    return m;
}

struct bench_move bench_move(const char *name, const char *device)
{
    return change("move", name, device);
}

struct bench_move bench_suspend(const char *name)
{
    return change("suspend", name, NULL);
}

struct bench_move bench_resume(const char *name, const char *device)
{
    return change("resume", name, device);
}

double bench_prewarm(const char *name, const char *device)
{
    return change("prewarm", name, device).total_s;
}

size_t bench_devices(const char **ret_names, size_t n)
{
    char *const start[] = {(char *)bench_reseat(), "agent", "start", NULL};
    char *const argv[] = {(char *)bench_reseat(), "devices", "--json", NULL};
    int out;
    pid_t pid = bench_start(NULL, NULL, start, &out);

    close(out);
    waitpid(pid, NULL, 0);
    json_t *answer = ask(argv), *devices = json_object_get(answer, "devices");
    size_t count = json_array_size(devices);
    for (size_t i = 0; i < count && i < n; i++)
        ret_names[i] =
            strdup(json_string_value(json_object_get(json_array_get(devices, i), "name")));
    json_decref(answer);
    return count;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
