#include "remote/server/session/startup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

void startup_init(struct startup *startup, const struct session_limits *limits)
{
    startup->limits = *limits;
    for (size_t i = 0; i < limits->device_count; i++)
        snprintf(startup->names[i], sizeof(startup->names[i]), "%s", limits->devices[i]);
    startup->shares = limits->known != NULL;
    if (startup->shares) {
        memcpy(startup->known.rows, limits->known->rows, sizeof(startup->known.rows));
        startup->known.count = limits->known->count;
    }
    if (limits->authority)
        snprintf(startup->authority, sizeof(startup->authority), "%s", limits->authority);
    /* Do not reveal the listening process's address space to the new process. */
    startup->limits.devices = NULL;
    startup->limits.known = NULL;
    startup->limits.authority = NULL;
}

int startup_write(const struct startup *startup)
{
    int fd = memfd_create("reseat-startup", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (write(fd, startup, sizeof(*startup)) == (ssize_t)sizeof(*startup) &&
        !fcntl(fd, F_ADD_SEALS, SEALS))
        return fd;
    int error = errno ? -errno : -EIO;
    close(fd);
    return error;
}

int startup_read(const struct startup **ret_startup)
{
    static struct startup startup;
    static const char *names[DEVICES_MAX];
    if (pread(STARTUP_FD, &startup, sizeof(startup), 0) != (ssize_t)sizeof(startup))
        return -EINVAL;
    close(STARTUP_FD);
    for (size_t i = 0; i < startup.limits.device_count; i++)
        names[i] = startup.names[i];
    startup.limits.devices = names;
    startup.limits.known = startup.shares ? &startup.known : NULL;
    startup.limits.authority = startup.authority[0] ? startup.authority : NULL;
    *ret_startup = &startup;
    return 0;
}
