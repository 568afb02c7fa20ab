#include "remote/server/listener/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/server/listener/channel.h"
#include "state/base/clock.h"
#include "state/base/log.h"

#define LISTING_NS  (60 * NS_PER_S)
#define RESERVED_OF 64 /* By default one part of 64 is reserved for drivers and contexts. */

static const char *const kind_names[DEVICE_KINDS] = {"gpu", "cpu", "other"};

static size_t devices_kind_of(const struct device *device)
{
    uint64_t type = devinfo_scalar(&device->info, CL_DEVICE_TYPE, 0);
    return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_CPU ? 1 : 2;
}

void devices_name_next(const struct device *device, size_t counts[DEVICE_KINDS],
                       char ret_name[GRANT_DEVICE_MAX])
{
    size_t kind = devices_kind_of(device);
    snprintf(ret_name, GRANT_DEVICE_MAX, "%s%zu", kind_names[kind], counts[kind]++);
}

int devices_find(const struct devices *devices, const struct device_key *key)
{
    for (size_t i = 0; i < devices->count; i++)
        if (device_key_equal(&devices->rows[i].key, key))
            return (int)i;
    return -1;
}

/* In the helper: write a row for each device. The end of the pipe says that there are no more. */
static _Noreturn void devices_list_in_child(int fd)
{
    FILE *rows = fdopen(fd, "w");
    struct device **found = NULL;
    size_t count = 0, counts[DEVICE_KINDS] = {0};
    unsetenv("RESEAT_SERVER");
    if (!rows || driver_list(&found, &count))
        _exit(1);
    for (size_t i = 0; i < count && i < DEVICES_MAX; i++) {
        struct device_row row = {.key = found[i]->key};
        devices_name_next(found[i], counts, row.name);
        row.memory = devinfo_scalar(&found[i]->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
        if (fwrite(&row, sizeof(row), 1, rows) != 1)
            _exit(1);
    }
    if (count > DEVICES_MAX)
        log_warn("%zu devices were found; the server uses %d", count, DEVICES_MAX);
    _exit(fclose(rows) ? 1 : 0);
}

/* Read until the helper closes the pipe. */
static int devices_read_rows(int fd, struct devices *devices)
{
    const size_t room = sizeof(devices->rows);
    uint64_t deadline = clock_now_ns() + LISTING_NS;
    size_t used = 0;
    for (;;) {
        int error = channel_wait(fd, deadline);
        if (error)
            return error;
        ssize_t got = read(fd, (char *)devices->rows + used, room - used);
        if (got < 0 && errno != EINTR)
            return -errno;
        used += got > 0 ? (size_t)got : 0;
        if (got == 0 || used == room)
            break;
    }
    devices->count = used / sizeof(devices->rows[0]);
    return used % sizeof(devices->rows[0]) ? -EIO : 0;
}

int devices_list(uint64_t reserve, struct devices *ret_devices)
{
    int ends[2], status = 0;
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        devices_list_in_child(ends[1]);
    }
    int error = child < 0 ? -errno : 0;
    close(ends[1]);
    if (error == 0) {
        error = devices_read_rows(ends[0], ret_devices);
        if (error)
            kill(child, SIGKILL);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
            error = error ? error : -EIO;
    }
    close(ends[0]);
    for (size_t i = 0; error == 0 && i < ret_devices->count; i++) {
        struct device_row *row = &ret_devices->rows[i];
        uint64_t keep = reserve == UINT64_MAX ? row->memory / RESERVED_OF : reserve;
        row->memory -= keep < row->memory ? keep : row->memory;
        ret_devices->ledger[i].total = row->memory;
    }
    return error;
}

/* A wish is granted in full only if it is no more than this part of what is left. */
#define PLENTY 8

uint64_t ledger_ask(struct ledger *ledger, uint64_t *held, uint64_t least, uint64_t wish)
{
    uint64_t left = ledger->total - ledger->given;
    if (least > left || wish < least)
        return 0;
    uint64_t bytes = wish <= left / PLENTY ? wish : least;
    ledger->given += bytes;
    *held += bytes;
    return bytes;
}

void ledger_return(struct ledger *ledger, uint64_t *held, uint64_t bytes)
{
    bytes = bytes < *held ? bytes : *held;
    *held -= bytes;
    ledger->given -= bytes;
}
