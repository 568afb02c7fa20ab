#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "interpose/control/control.h"
#include "tests/agent/fake_engine.h"

/*
 * A program that "uses OpenCL" at once and then lives for SECONDS.
 *
 *   fake_program SECONDS [late MILLISECONDS | fork | exec | aware FILE]
 *
 * late: it first lives so long without OpenCL. fork: a child of it uses OpenCL too. exec: after as
 * many seconds it executes itself, without FAKE_RIGHT. aware: it
 * registered with reseat.h, and wants more when it gets SIGUSR1, nothing any more at SIGUSR2; what
 * it is notified of goes to FILE.
 */

static int use_opencl(void)
{
    struct device_key keys[PROTOCOL_VDEVS_MAX];

    if (control_start())
        return 1;
    uint32_t count = control_start_devices(1000, keys);
    if (count) {
        const char *opening = getenv("FAKE_OPENING_MS");
        usleep(opening ? (useconds_t)atoi(opening) * 1000 : 0);
        for (uint32_t i = 0; i < count; i++)
            printf("device %s\n", keys[i].device);
        control_protect_start(keys, count, getenv("RESEAT_PROTECTION"));
        fake_engine_start(keys, count);
    } else {
        printf("device none\n");
    }
    fflush(stdout);
    return 0;
}

static int live_aware(const char *path, unsigned seconds)
{
    struct timespec until = {.tv_sec = (time_t)seconds};
    sigset_t signals;
    int signal;

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (!freopen(path, "w", stdout))
        return 1;
    const char *least = getenv("FAKE_MINIMUM_GIB");
    fake_engine_wish(least ? (uint64_t)atoi(least) << 30 : 1 << 20, 4 << 20);
    if (use_opencl())
        return 1;
    while ((signal = sigtimedwait(&signals, NULL, &until)) > 0)
        fake_engine_wish(2 << 20, signal == SIGUSR1 ? 8 << 20 : 0);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;

    if (argc > 3 && strcmp(argv[2], "late") == 0)
        usleep((useconds_t)atoi(argv[3]) * 1000);
    if (argc > 3 && strcmp(argv[2], "aware") == 0)
        return live_aware(argv[3], seconds);
    if (use_opencl())
        return 1;
    if (argc > 2 && strcmp(argv[2], "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* the test ends its parent */
            int failed = use_opencl();
            sleep(seconds);
            _exit(failed);
        }
        sleep(seconds);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return 0;
    }
    sleep(seconds);
    if (argc > 2 && strcmp(argv[2], "exec") == 0) {
        unsetenv("FAKE_RIGHT");
        execl("/proc/self/exe", argv[0], "2", NULL);
        return 1;
    }
    return 0;
}
