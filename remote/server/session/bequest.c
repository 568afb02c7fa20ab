#include "remote/server/session/bequest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

void bequest_init(struct bequest *bequest, const struct session_limits *limits)
{
    bequest->limits = *limits;
    for (size_t i = 0; i < limits->device_count; i++)
        snprintf(bequest->names[i], sizeof(bequest->names[i]), "%s", limits->devices[i]);
    bequest->shares = limits->known != NULL;
    if (bequest->shares) {
        memcpy(bequest->known.rows, limits->known->rows, sizeof(bequest->known.rows));
        bequest->known.count = limits->known->count;
    }
    if (limits->authority)
        snprintf(bequest->authority, sizeof(bequest->authority), "%s", limits->authority);
    /* Addresses of the listening process are nobody else's business. */
    bequest->limits.devices = NULL;
    bequest->limits.known = NULL;
    bequest->limits.authority = NULL;
}

int bequest_write(const struct bequest *bequest)
{
    int fd = memfd_create("reseat-bequest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (write(fd, bequest, sizeof(*bequest)) == (ssize_t)sizeof(*bequest) &&
        !fcntl(fd, F_ADD_SEALS, SEALS))
        return fd;
    int error = errno ? -errno : -EIO;
    close(fd);
    return error;
}

int bequest_read(const struct bequest **ret_bequest)
{
    static struct bequest bequest;
    static const char *names[DEVICES_MAX];
    if (pread(BEQUEST_FD, &bequest, sizeof(bequest), 0) != (ssize_t)sizeof(bequest))
        return -EINVAL;
    close(BEQUEST_FD);
    for (size_t i = 0; i < bequest.limits.device_count; i++)
        names[i] = bequest.names[i];
    bequest.limits.devices = names;
    bequest.limits.known = bequest.shares ? &bequest.known : NULL;
    bequest.limits.authority = bequest.authority[0] ? bequest.authority : NULL;
    *ret_bequest = &bequest;
    return 0;
}
