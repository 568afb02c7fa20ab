#include "remote/identity/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/cleanup.h"

static int private_file_refuse(char *ret_problem, int error, const char *path, const char *why)
{
    snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s %.100s", path, why);
    return error;
}

static int private_file_refuse_error(char *ret_problem, int error, const char *path)
{
    char why[100];

    snprintf(why, sizeof(why), "cannot be read: %s", strerror(-error));
    return private_file_refuse(ret_problem, error, path, why);
}

/** 0 for a regular file of ours alone that is not too large. */
static int private_file_check(int fd, const char *path, size_t limit, size_t *ret_size,
                              char *ret_problem)
{
    struct stat stat;

    if (fstat(fd, &stat))
        return private_file_refuse_error(ret_problem, -errno, path);
    if (!S_ISREG(stat.st_mode))
        return private_file_refuse(ret_problem, -EPERM, path, "is not a file");
    if (stat.st_uid != geteuid())
        return private_file_refuse(ret_problem, -EPERM, path, "is another user's");
    if (stat.st_mode & 077)
        return private_file_refuse(ret_problem, -EPERM, path,
                                   "can be used by others (its mode is not 0600)");
    if ((uintmax_t)stat.st_size > limit)
        return private_file_refuse(ret_problem, -EFBIG, path, "is too large");
    *ret_size = (size_t)stat.st_size;
    return 0;
}

/** Up to @size bytes; a file that has become shorter gives what there is. */
static ssize_t private_file_read_all(int fd, char *bytes, size_t size)
{
    size_t used = 0;

    while (used < size) {
        ssize_t count = read(fd, bytes + used, size - used);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        if (count == 0)
            break;
        used += (size_t)count;
    }
    return (ssize_t)used;
}

int private_file_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size,
                      char ret_problem[FOLDER_PROBLEM_MAX])
{
    char real[PATH_MAX], above[PATH_MAX];
    size_t size = 0;

    if (!realpath(path, real))
        return private_file_refuse_error(ret_problem, -errno, path);
    const char *slash = strrchr(real, '/');
    snprintf(above, sizeof(above), "%.*s", slash > real ? (int)(slash - real) : 1, real);
    int error = folder_check_above(above, ret_problem);
    if (error)
        return error;
    CLEANUP(cleanup_close) int fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return private_file_refuse_error(ret_problem, -errno, path);
    error = private_file_check(fd, path, limit, &size, ret_problem);
    if (error)
        return error;
    char *bytes = malloc(size + 1);
    if (!bytes)
        return private_file_refuse_error(ret_problem, -ENOMEM, path);
    ssize_t used = private_file_read_all(fd, bytes, size);
    if (used < 0) {
        private_file_free(bytes, size);
        return private_file_refuse_error(ret_problem, (int)used, path);
    }
    bytes[used] = '\0';
    *ret_bytes = bytes;
    *ret_size = (size_t)used;
    return 0;
}

void private_file_free(char *bytes, size_t size)
{
    if (bytes)
        explicit_bzero(bytes, size);
    free(bytes);
}

static int private_file_write_all(int fd, const char *bytes, size_t size)
{
    while (size) {
        ssize_t count = write(fd, bytes, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        bytes += count;
        size -= (size_t)count;
    }
    return fsync(fd) ? -errno : 0;
}

int private_file_create(const char *path, const void *bytes, size_t size)
{
    CLEANUP(cleanup_close)
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int error = private_file_write_all(fd, bytes, size);
    if (error)
        unlink(path);
    return error;
}

int private_file_replace(const char *path, const void *bytes, size_t size)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);

    if (length < 0 || (size_t)length >= sizeof(temporary))
        return -ENAMETOOLONG;
    CLEANUP(cleanup_close) int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = private_file_write_all(fd, bytes, size);
    if (!error && rename(temporary, path))
        error = -errno;
    if (error)
        unlink(temporary);
    return error;
}
