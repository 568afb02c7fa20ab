#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <errno.h>
#include <linux/landlock.h>

#include "remote/server/session/sandbox.h"
#include "tests/remote/contained.h"

/*
 * On a kernel without a driver that runs native kernels: a process that goes through a session's
 * steps makes the same system calls (contained.h), and the one that stands for the server looks
 * whether any had an effect.
 *
 *   contained_tool root|user
 *
 * 0: all were refused.
 */

#define NOBODY 65534

static struct contained contained;
static const char folder[] = "/tmp/contained-ca";

/* Each is a step; what it returns is an error. */
static int enter(int root)
{
    static const struct devices none;
    static struct server server;
    const struct grant all = GRANT_ALL;
    int error = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
    if (error == 0 && root)
        error = sandbox_space();
    if (error == 0)
        error = sandbox_begin();
    if (error == 0)
        error = root ? sandbox_become(&none, &all) : sandbox_space();
    if (error == 0)
        error = sandbox_own_caches("laptop");
    if (error == 0)
        error = sandbox_files(&none, &all, folder, true);
    if (error == 0)
        error = sandbox_bounds();
    if (error == 0)
        error = sandbox_admitted();
    return error ? error : sandbox_calls(&server);
}

static long argument(long value)
{
    return value > 0 && value >> 62 & 1 ? (long)(contained.memory + (value & 0xffffff)) : value;
}

static int try_all(int root)
{
    int pair[2], logs[2], let = 0, error;
    setsid();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || pipe(logs) || dup2(logs[1], 2) != 2)
        return 2;
    error = enter(root);
    if (error) {
        printf("the sandbox cannot be entered: %s\n", strerror(-error));
        fflush(stdout);
        return 2;
    }
    for (unsigned i = 0; i < contained.count; i++) {
        const long *words = contained.calls[i].words;
        long result = syscall(words[0], argument(words[1]), argument(words[2]), argument(words[3]),
                              argument(words[4]), argument(words[5]), argument(words[6]));
        if (result >= 0)
            printf("let: %s (system call %ld)\n", contained.calls[i].what, words[0]);
        let += result >= 0;
    }
    fflush(stdout);
    return let ? 1 : 0;
}

static void put(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "theirs", 6) != 6)
        exit(2);
    close(fd);
}

static int is_as_it_was(const char *path)
{
    struct stat now;
    int same = stat(path, &now) == 0 && now.st_size == 6 && (now.st_mode & 07777) == 0600;
    if (!same)
        printf("%s was changed\n", path);
    (void)unlink(path);
    return same;
}

int main(int argc, char **argv)
{
    const int root = argc == 2 && !strcmp(argv[1], "root");
    const char *paths[] = {"/tmp/contained-ca/revoked", "/tmp/contained-ca/ca.key",
                           "/tmp/contained-file", "/dev/shm/contained-file"};
    struct utsname kernel;
    int status = 0;
    if (!root && geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
        return 2;
    (void)prctl(PR_SET_DUMPABLE, 1); /* As who is executed. */
    if (uname(&kernel) || mkdir(folder, 0700))
        return 2;
    for (int i = 0; i < 4; i++)
        put(paths[i]);
    contained_fill(&contained,
                   &(struct contained_targets){getpid(), paths[0], paths[1], paths[2], paths[3]});
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(try_all(root));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 2;
    int same = getpriority(PRIO_PROCESS, 0) == 0;
    for (int i = 0; i < 4; i++)
        same &= is_as_it_was(paths[i]);
    (void)rmdir(folder);
    printf("%u calls as %s on Linux %s with Landlock %ld: %s\n", contained.count, argv[1],
           kernel.release,
           syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION),
           status || !same ? "not all refused" : "all refused");
    return status || !same;
}
