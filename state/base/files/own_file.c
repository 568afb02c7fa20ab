#include "state/base/files/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where only root and the kernel make links: /dev/shm and the like are everybody's. */
static bool own_file_links_are_roots(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           (strncmp(path, "/dev/", 5) == 0 && !strchr(path + 5, '/'));
}

static int own_file_check_own(int fd)
{
    struct stat stat;

    if (fstat(fd, &stat))
        return -errno;
    /* A device's owner says nothing: whose terminal it is, or root. */
    if (S_ISCHR(stat.st_mode))
        return 0;
    if ((stat.st_uid != geteuid() && stat.st_uid != 0) ||
        (S_ISREG(stat.st_mode) && stat.st_nlink > 1))
        return -EPERM;
    return 0;
}

int own_file_open(const char *path, int flags)
{
    int follow = own_file_links_are_roots(path) ? 0 : O_NOFOLLOW;
    int opened = O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = open(path, (flags & ~O_TRUNC) | follow | opened, 0600);
    struct stat stat;

    if (fd < 0)
        return -errno;
    int error = own_file_check_own(fd);
    if (!error && !(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags & O_APPEND))
        error = -errno;
    if (!error && flags & O_TRUNC && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) &&
        ftruncate(fd, 0))
        error = -errno;
    if (!error)
        return fd;
    close(fd);
    return error;
}
