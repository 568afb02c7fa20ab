#include "state/base/files/owned.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lowest number for our descriptors: below the usual limit of 1024, above those that programs reach
 * and shells choose; a larger table of descriptors would cost memory. */
#define NUMBER 960

/* Descriptors that a driver opens at once when it builds, and some more. */
#define FEW 32

static bool owned_is_same(int fd, const struct owned *owned)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_dev == owned->device &&
           status.st_ino == owned->inode;
}

static int owned_first_number(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= 1024)
        return NUMBER;
    return limit.rlim_cur > 16 ? (int)(limit.rlim_cur - limit.rlim_cur / 16) : 3;
}

struct owned owned_of(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return OWNED_NONE;
    return (struct owned){fd, status.st_dev, status.st_ino};
}

int owned_take(int fd, struct owned *ret_owned)
{
    if (fd < 0)
        return -errno;
    struct owned owned = owned_of(fd);
    int error = owned.fd < 0 ? -EBADF : 0;
    if (error == 0) {
        owned.fd = fcntl(fd, F_DUPFD_CLOEXEC, owned_first_number());
        if (owned.fd < 0)
            owned.fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        error = owned.fd < 0 ? -errno : owned_is_same(owned.fd, &owned) ? 0 : -EBADF;
    }
    if (owned_is_same(fd, &owned))
        close(fd);
    if (error == 0)
        *ret_owned = owned;
    return error;
}

void owned_prepare(void)
{
    struct owned owned = OWNED_NONE;
    if (owned_take(eventfd(0, EFD_CLOEXEC), &owned) == 0)
        owned_close(&owned);
}

int owned_fd(const struct owned *owned)
{
    return owned->fd >= 0 && owned_is_same(owned->fd, owned) ? owned->fd : -1;
}

/* Other files than regular ones have no length. */
static bool owned_may_grow(int fd, size_t size)
{
    struct rlimit limit;
    struct stat status;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return true;
    return status.st_size >= 0 && (rlim_t)status.st_size <= limit.rlim_cur &&
           size <= limit.rlim_cur - (rlim_t)status.st_size;
}

int owned_append(const struct owned *owned, const void *bytes, size_t size)
{
    const char *at = bytes;
    if (!owned_may_grow(owned_fd(owned), size))
        return -EFBIG;
    while (size > 0) {
        ssize_t count = write(owned_fd(owned), at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EIO;
        at += count;
        size -= (size_t)count;
    }
    return 0;
}

void owned_close(struct owned *owned)
{
    int fd = owned_fd(owned);
    *owned = OWNED_NONE;
    if (fd >= 0)
        close(fd);
}

static bool owned_few_are_left(void)
{
    int opened[FEW], count = 0;
    while (count < FEW && (opened[count] = open("/", O_PATH | O_CLOEXEC)) >= 0)
        count++;
    bool few = count < FEW && errno == EMFILE;
    while (count > 0)
        close(opened[--count]);
    return few;
}

void owned_room_begin(struct owned_room *ret_room)
{
    struct rlimit limit;
    *ret_room = (struct owned_room){0, 0};
    if (!owned_few_are_left() || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max - before > FEW * 8 ? before + FEW * 8 : limit.rlim_max;
    if (limit.rlim_cur > before && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        *ret_room = (struct owned_room){before, limit.rlim_cur};
}

void owned_room_end(const struct owned_room *room)
{
    struct rlimit limit;
    if (room->now == room->before || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur != room->now)
        return;
    limit.rlim_cur = room->before;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void reach_read(struct reach *ret_reach)
{
    struct stat root = {0};
    struct rlimit files = {RLIM_INFINITY, RLIM_INFINITY};
    (void)stat("/", &root); /* zeroes where even that is not allowed: another root */
    (void)getrlimit(RLIMIT_NOFILE, &files);
    *ret_reach = (struct reach){root.st_dev, root.st_ino, geteuid(), getegid(), files.rlim_cur};
}

const char *reach_lost(const struct reach *before, const struct reach *now)
{
    if (now->root_device != before->root_device || now->root_inode != before->root_inode)
        return "its root folder (chroot)";
    if (now->user != before->user || now->group != before->group)
        return "its user or group";
    return now->files < before->files ? "its limit of open files" : NULL;
}
