#include "state/base/files/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"

int file_make(const struct owned *folder, const char *name, const struct file_part *parts,
              size_t count)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    int error = owned_take(
        openat(owned_fd(folder), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600),
        &file);
    if (error)
        return error;
    for (size_t i = 0; !error && i < count; i++)
        error = owned_append(&file, parts[i].bytes, parts[i].size);
    if (!error && fsync(owned_fd(&file)) != 0)
        error = -errno;
    if (error)
        (void)!unlinkat(owned_fd(folder), name, 0);
    else
        (void)!posix_fadvise(owned_fd(&file), 0, 0, POSIX_FADV_DONTNEED);
    return error;
}

int file_read(const struct owned *folder, const char *name, void *bytes, size_t room,
              uint64_t *ret_size)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    struct stat stat;
    char *at = bytes;
    int error = owned_take(
        openat(owned_fd(folder), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), &file);
    if (error)
        return error == -ELOOP ? -EPERM : error;
    if (fstat(owned_fd(&file), &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 022) != 0)
        return -EPERM;
    uint64_t size = (uint64_t)stat.st_size;
    for (size_t left = size < room ? (size_t)size : room; left;) {
        ssize_t got = read(owned_fd(&file), at, left);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EBADMSG;
        at += got;
        left -= (size_t)got;
    }
    *ret_size = size;
    return 0;
}

int file_sync(const struct owned *folder)
{
    return fsync(owned_fd(folder)) == 0 ? 0 : -errno;
}

int file_folder(const struct owned *folder, const char *name, struct owned *ret_folder)
{
    struct owned opened = OWNED_NONE;
    struct stat stat;
    int error = owned_take(
        openat(owned_fd(folder), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), &opened);
    if (error)
        return error == -ELOOP || error == -ENOTDIR ? -EPERM : error;
    if (fstat(owned_fd(&opened), &stat) != 0)
        error = -errno;
    else if (stat.st_uid != geteuid() || (stat.st_mode & 077) != 0)
        error = -EPERM;
    if (error)
        owned_close(&opened);
    else
        *ret_folder = opened;
    return error;
}

static int file_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int file_add_name(struct file_names *names, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (!array_make_room(&names->names, names->count, sizeof(*names->names)) ||
        !(names->names[names->count] = strdup(name)))
        return -ENOMEM;
    names->count++;
    return 0;
}

int file_names(const struct owned *folder, struct file_names *ret_names)
{
    struct file_names names = {0};
    struct owned again = OWNED_NONE;
    /* A descriptor of its own: reading moves it on, and closes it. */
    int error =
        owned_take(openat(owned_fd(folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &again);
    if (error)
        return error;
    DIR *list = fdopendir(owned_fd(&again));
    if (!list) {
        error = -errno;
        owned_close(&again);
        return error;
    }
    const struct dirent *entry;
    errno = 0;
    while (!error && (entry = readdir(list))) {
        error = file_add_name(&names, entry->d_name);
        errno = 0;
    }
    if (!error)
        error = -errno;
    closedir(list);
    if (error) {
        file_names_finish(&names);
        return error;
    }
    if (names.count)
        qsort(names.names, names.count, sizeof(*names.names), file_by_name);
    *ret_names = names;
    return 0;
}

void file_names_finish(struct file_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct file_names){0};
}
