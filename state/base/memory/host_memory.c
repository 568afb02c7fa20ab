#include "state/base/memory/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/files/owned.h"

#define FILE_MAX 8192 /* bytes of a file that are read */

const char *host_memory_root = "";

/* The two versions of control groups: their paths and the names of their files. */
static const struct group_kind {
    const char *controller; /* as /proc/self/cgroup has it */
    const char *folder;
    const char *limits[2];
    const char *used;
    const char *cache; /* a line of memory.stat: cache that is freed when memory is needed */
} group_kinds[] = {
    {"::", "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "inactive_file "},
    {":memory:",
     "/sys/fs/cgroup/memory",
     {"memory.limit_in_bytes", "memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     "total_inactive_file "},
};

/* Read the beginning of a file as a string. */
static int host_memory_read_file(const char *path, char ret_text[FILE_MAX])
{
    char whole[PATH_MAX];
    struct owned file;
    if (snprintf(whole, sizeof(whole), "%s%s", host_memory_root, path) >= (int)sizeof(whole))
        return -ENAMETOOLONG;
    int error = owned_take(open(whole, O_RDONLY | O_CLOEXEC), &file);
    if (error != 0)
        return error;
    int fd = owned_fd(&file);
    ssize_t got = fd >= 0 ? read(fd, ret_text, FILE_MAX - 1) : -1;
    error = got < 0 ? -EIO : 0;
    owned_close(&file);
    ret_text[got < 0 ? 0 : got] = '\0';
    return error;
}

/* The number behind @name, which begins a line. */
static bool host_memory_find_number(const char *text, const char *name, uint64_t *ret_number)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0)
            return sscanf(line + length, "%" SCNu64, ret_number) == 1;
    }
    return false;
}

/* A file of a group that is one number; UINT64_MAX where it is none ("max"), or there is none. */
static uint64_t host_memory_group_number(const char *folder, const char *name)
{
    char path[PATH_MAX], text[FILE_MAX];
    uint64_t number;
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
        host_memory_read_file(path, text) != 0 || sscanf(text, "%" SCNu64, &number) != 1)
        return UINT64_MAX;
    return number;
}

/* Apply the limits of one group. */
static void host_memory_take_group(const struct group_kind *kind, const char *folder,
                                   struct host_memory *host)
{
    char path[PATH_MAX], text[FILE_MAX];
    uint64_t limit = host_memory_group_number(folder, kind->limits[0]);
    uint64_t high = host_memory_group_number(folder, kind->limits[1]);
    uint64_t used = host_memory_group_number(folder, kind->used), cache = 0;
    limit = high < limit ? high : limit;
    if (limit >= host->total || used == UINT64_MAX)
        return;
    if (snprintf(path, sizeof(path), "%s/memory.stat", folder) < (int)sizeof(path) &&
        host_memory_read_file(path, text) == 0)
        (void)host_memory_find_number(text, kind->cache, &cache);
    used -= cache < used ? cache : used;
    uint64_t left = limit > used ? limit - used : 0;
    host->total = limit;
    host->available = left < host->available ? left : host->available;
}

/* Apply the limits of the process's groups, from its own upwards. */
static void host_memory_take_groups(const struct group_kind *kind, const char *groups,
                                    struct host_memory *host)
{
    char folder[PATH_MAX];
    const char *line = groups;
    size_t length = strlen(kind->controller), least = strlen(kind->folder);
    for (; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        line += strspn(line, "0123456789");
        if (strncmp(line, kind->controller, length) == 0)
            break;
    }
    if (!line || snprintf(folder, sizeof(folder), "%s%.*s", kind->folder,
                          (int)strcspn(line + length, "\n"), line + length) >= (int)sizeof(folder))
        return;
    while (strlen(folder) >= least) {
        host_memory_take_group(kind, folder, host);
        *strrchr(folder, '/') = '\0';
    }
}

int host_memory_read(struct host_memory *ret_host)
{
    char text[FILE_MAX];
    struct host_memory host = {0};
    int error = host_memory_read_file("/proc/meminfo", text);
    if (error != 0)
        return error;
    if (!host_memory_find_number(text, "MemTotal:", &host.total) ||
        !host_memory_find_number(text, "MemAvailable:", &host.available))
        return -ENODATA;
    host.total *= 1024;
    host.available *= 1024;
    if (host_memory_read_file("/proc/self/cgroup", text) == 0)
        for (size_t i = 0; i < ARRAY_SIZE(group_kinds); i++)
            host_memory_take_groups(&group_kinds[i], text, &host);
    if (host_memory_read_file("/proc/pressure/memory", text) == 0) {
        const char *total = strstr(text, "total="); /* of the first line, "some" */
        host.stalled_us = total ? strtoull(total + strlen("total="), NULL, 10) : 0;
    }
    host.load = host_memory_read_file("/proc/loadavg", text) == 0 ? strtod(text, NULL) : 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    host.processors = processors > 1 ? (unsigned)processors : 1;
    *ret_host = host;
    return 0;
}
