#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/bytes/size.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/driver/icd.h"
#include "state/driver/inventory.h"

/*
 * reseat-lister [--timeout SECONDS] OUTPUT: write an inventory, with empty names, of every device
 * that an OpenCL loader would find. Each driver is opened in a child process of its own, so that a
 * driver that crashes or hangs loses only its own devices. The agent runs this program so that it
 * never opens a driver itself.
 */

/* A cold GPU driver takes seconds to start, and a context on each device another 0.25 s. */
#define LIMIT_SECONDS 30

struct probe {
    const char *icd; /* Borrowed. */
    pid_t pid;       /* 0 once the child was reaped. */
    int fd;          /* -1 once the pipe is closed. */
    char *data;
    size_t size, room;
};

/* In the child: send the inventory of one driver. Returns the exit status, which is an errno. */
static int lister_probe_child(const char *icd, int fd)
{
    struct inventory inv = {0};
    struct device **devices = NULL;
    char *data = NULL;
    size_t size = 0;
    int err = driver_list_library(icd, &devices, &inv.count);

    if (!err && !(inv.entries = calloc(inv.count, sizeof(*inv.entries))))
        err = -ENOMEM;
    if (!err) {
        for (size_t i = 0; i < inv.count; i++) {
            struct device *device = devices[i];
            int failed =
                devinfo_query_formats(device->cl, device->platform, device->id, &device->info);
            if (failed)
                log_warn("image formats of %s left out: %s", device->key.device, strerror(-failed));
            /* Borrowed: the process exits without releasing the device. */
            inv.entries[i].key = device->key;
            inv.entries[i].info = device->info;
        }
        err = inventory_encode(&inv, &data, &size);
    }
    for (size_t sent = 0; !err && sent < size;) {
        ssize_t put = write(fd, data + sent, size - sent);

        if (put >= 0)
            sent += (size_t)put;
        else if (errno != EINTR)
            err = -errno;
    }
    return -err;
}

static int lister_probe_start(struct probe *probe, const char *icd)
{
    int ends[2];

    *probe = (struct probe){.icd = icd, .fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    probe->pid = fork();
    if (probe->pid < 0) {
        close(ends[0]);
        close(ends[1]);
        probe->pid = 0;
        return -errno;
    }
    if (!probe->pid) {
        /* A process group of its own, so that killing it also kills children of the driver. */
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        /* _exit() skips the exit handlers of drivers, which may hang. */
        _exit(lister_probe_child(icd, ends[1]));
    }
    setpgid(probe->pid, probe->pid);
    close(ends[1]);
    probe->fd = ends[0];
    return 0;
}

static void lister_probe_close(struct probe *probe)
{
    if (probe->fd >= 0)
        close(probe->fd);
    probe->fd = -1;
}

/* Read the bytes that are available. */
static void lister_probe_receive(struct probe *probe)
{
    ssize_t got;

    if (probe->size == probe->room) {
        size_t room = probe->room ? 2 * probe->room : 65536;
        char *grown = room <= 2 * (size_t)INVENTORY_SIZE_MAX ? realloc(probe->data, room) : NULL;

        if (!grown) {
            lister_probe_close(probe);
            return;
        }
        probe->data = grown;
        probe->room = room;
    }
    got = read(probe->fd, probe->data + probe->size, probe->room - probe->size);
    if (got > 0)
        probe->size += (size_t)got;
    else if (!got || errno != EINTR)
        lister_probe_close(probe);
}

static void lister_receive_all(struct probe *probes, struct pollfd *polls, size_t count,
                               long long deadline)
{
    for (;;) {
        long long left = deadline - clock_now_ms();
        size_t open = 0;

        for (size_t i = 0; i < count; i++) {
            polls[i] = (struct pollfd){.fd = probes[i].fd, .events = POLLIN};
            open += probes[i].fd >= 0;
        }
        if (!open || left <= 0)
            return;
        if (poll(polls, count, (int)left) < 0 && errno != EINTR)
            return;
        for (size_t i = 0; i < count; i++)
            if (probes[i].fd >= 0 && polls[i].revents)
                lister_probe_receive(&probes[i]);
    }
}

/* Reap a child. One that sent everything exits at once; a @late one is killed. */
static void lister_probe_end(struct probe *probe, bool late, unsigned limit)
{
    int status = 0;
    pid_t got = 0;

    if (late)
        kill(-probe->pid, SIGKILL);
    /* A child that is stuck in the kernel cannot be reaped: leave it to init. */
    for (int tries = 0; !got && tries < 200; tries++) {
        got = waitpid(probe->pid, &status, WNOHANG);
        if (!got)
            clock_sleep(10 * NS_PER_MS);
    }
    kill(-probe->pid, SIGKILL);
    probe->pid = 0;
    if (late)
        fprintf(stderr,
                "reseat-lister: driver %s did not answer in %u s: its devices are left out\n",
                probe->icd, limit);
    else if (got > 0 && WIFSIGNALED(status))
        fprintf(stderr, "reseat-lister: driver %s crashed (%s): its devices are left out\n",
                probe->icd, strsignal(WTERMSIG(status)));
    else if (got > 0 && WEXITSTATUS(status) && WEXITSTATUS(status) != ENOENT)
        fprintf(stderr, "reseat-lister: driver %s failed (%s): its devices are left out\n",
                probe->icd, strerror(WEXITSTATUS(status)));
}

static int lister_collect(struct probe *probe, unsigned limit, struct inventory *inv)
{
    struct inventory CLEANUP(inventory_finish) some = {0};
    bool late = probe->fd >= 0;
    int err;

    lister_probe_close(probe);
    if (!probe->pid)
        return 0;
    lister_probe_end(probe, late, limit);
    if (late || !probe->size)
        return 0;
    err = inventory_decode(probe->data, probe->size, &some);
    if (err == -EPROTO) {
        fprintf(stderr,
                "reseat-lister: driver %s died while it answered: its devices are left out\n",
                probe->icd);
        return 0;
    }
    return err ? err : inventory_append(inv, &some);
}

static int lister_list_all(unsigned limit, struct inventory *ret_inv)
{
    struct icd_list CLEANUP(icd_list_finish) list = {0};
    struct inventory CLEANUP(inventory_finish) inv = {0};
    int err = icd_list_read(&list);

    if (err)
        return err;
    CLEANUP(cleanup_free) struct probe *probes = calloc(list.count + 1, sizeof(*probes));
    CLEANUP(cleanup_free) struct pollfd *polls = calloc(list.count + 1, sizeof(*polls));
    if (!probes || !polls)
        return -ENOMEM;
    for (size_t i = 0; i < list.count; i++) {
        int failed = lister_probe_start(&probes[i], list.libraries[i]);

        if (failed)
            fprintf(stderr, "reseat-lister: driver %s left out: %s\n", list.libraries[i],
                    strerror(-failed));
    }
    lister_receive_all(probes, polls, list.count, clock_now_ms() + limit * 1000LL);
    for (size_t i = 0; i < list.count; i++) {
        int failed = lister_collect(&probes[i], limit, &inv);

        err = err ? err : failed;
        free(probes[i].data);
    }
    if (!err) {
        *ret_inv = inv;
        inv = (struct inventory){0};
    }
    return err;
}

static bool lister_read_arguments(int argc, char **argv, unsigned *ret_limit,
                                  const char **ret_output)
{
    uint64_t seconds = LIMIT_SECONDS;

    if (argc == 4 && !strcmp(argv[1], "--timeout")) {
        if (!number_parse(argv[2], 3600, &seconds) || !seconds)
            return false;
    } else if (argc != 2) {
        return false;
    }
    *ret_limit = (unsigned)seconds;
    *ret_output = argv[argc - 1];
    return (*ret_output)[0] && (*ret_output)[0] != '-';
}

int main(int argc, char **argv)
{
    struct inventory CLEANUP(inventory_finish) inv = {0};
    const char *output = NULL;
    unsigned limit = 0;
    int err;

    if (!lister_read_arguments(argc, argv, &limit, &output)) {
        fprintf(stderr, "usage: reseat-lister [--timeout SECONDS] OUTPUT\n");
        return 2;
    }
    err = lister_list_all(limit, &inv);
    if (!err)
        err = inventory_write(output, &inv);
    if (err) {
        fprintf(stderr, "reseat-lister: %s not written: %s\n", output, strerror(-err));
        return 1;
    }
    return 0;
}
