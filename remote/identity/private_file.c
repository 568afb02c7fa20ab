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
#include "state/base/files/access.h"
#include "state/base/files/file.h"

#define UNREADABLE "cannot be read"

/** Returns 0 for a regular file of at most @limit bytes that only this user can access. */
static int private_file_check(int fd, const char *path, size_t limit, char *ret_problem)
{
    struct stat stat;

    if (fstat(fd, &stat))
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    if (!S_ISREG(stat.st_mode))
        return folder_refuse(ret_problem, -EPERM, path, "is not a file");
    if (!access_same_user(stat.st_uid, geteuid()))
        return folder_refuse(ret_problem, -EPERM, path, "belongs to another user");
    if (stat.st_mode & 077)
        return folder_refuse(ret_problem, -EPERM, path,
                             "can be used by others: its mode must be 0600");
    if ((uintmax_t)stat.st_size > limit)
        return folder_refuse(ret_problem, -EFBIG, path, "is too large");
    return 0;
}

int private_file_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size,
                      char ret_problem[FOLDER_PROBLEM_MAX])
{
    char real[PATH_MAX], above[PATH_MAX];

    if (!realpath(path, real))
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    const char *slash = strrchr(real, '/');
    snprintf(above, sizeof(above), "%.*s", slash > real ? (int)(slash - real) : 1, real);
    int error = folder_check_above(above, ret_problem);
    if (error)
        return error;
    CLEANUP(cleanup_close) int fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return folder_refuse_error(ret_problem, -errno, path, UNREADABLE);
    error = private_file_check(fd, path, limit, ret_problem);
    if (error)
        return error;
    error = file_load(fd, limit, ret_bytes, ret_size);
    return error ? folder_refuse_error(ret_problem, error, path, UNREADABLE) : 0;
}

void private_file_free(char *bytes, size_t size)
{
    if (bytes)
        explicit_bzero(bytes, size);
    free(bytes);
}
