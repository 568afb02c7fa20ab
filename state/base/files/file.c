#include "state/base/files/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/files/access.h"

/* Times that a name is tried for an unfinished file: a process of another PID namespace may have
 * the same process ID. */
#define TRIES 16
/* In the name of an unfinished file. */
#define UNFINISHED ".new-"
/* After this time an unfinished file is abandoned. */
#define UNFINISHED_S 3600

/* Checked at each call, because the program may have closed the number, or reused it. */
static int file_at(const struct owned *folder)
{
    return folder ? owned_fd(folder) : AT_FDCWD;
}

/* Write a new file. On failure it is removed. */
static int file_write(const struct owned *folder, const char *name, const struct file_part *parts,
                      size_t count, bool sync)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    int error = owned_take(
        openat(file_at(folder), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600),
        &file);
    if (error)
        return error;
    for (size_t i = 0; !error && i < count; i++)
        error = owned_append(&file, parts[i].bytes, parts[i].size);
    if (!error && sync && fsync(owned_fd(&file)) != 0)
        error = -errno;
    if (error)
        (void)!unlinkat(file_at(folder), name, 0);
    else if (sync)
        (void)!posix_fadvise(owned_fd(&file), 0, 0, POSIX_FADV_DONTNEED);
    return error;
}

int file_make(const struct owned *folder, const char *name, const struct file_part *parts,
              size_t count)
{
    return file_write(folder, name, parts, count, true);
}

int file_replace(const struct owned *folder, const char *name, const void *bytes, size_t size,
                 bool sync)
{
    static atomic_uint serial;
    const struct file_part part = {bytes, size};
    char unfinished[NAME_MAX + 1];
    int error = -EEXIST;
    for (int i = 0; error == -EEXIST && i < TRIES; i++) {
        if (snprintf(unfinished, sizeof(unfinished), "%s" UNFINISHED "%x-%x-%llx", name,
                     (unsigned)getpid(), atomic_fetch_add(&serial, 1),
                     (unsigned long long)clock_now_ns()) >= (int)sizeof(unfinished))
            return -ENAMETOOLONG;
        error = file_write(folder, unfinished, &part, 1, sync);
    }
    if (error)
        return error;
    if (renameat(owned_fd(folder), unfinished, owned_fd(folder), name) != 0) {
        error = -errno;
        (void)!unlinkat(owned_fd(folder), unfinished, 0);
    }
    return error;
}

int file_replace_path(const char *path, const void *bytes, size_t size)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    const char *slash = strrchr(path, '/');
    char above[PATH_MAX] = ".";
    int length =
        slash ? snprintf(above, sizeof(above), "%.*s", slash > path ? (int)(slash - path) : 1, path)
              : 1;
    if ((size_t)length >= sizeof(above))
        return -ENAMETOOLONG;
    int error = owned_take(open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC), &folder);
    if (!error)
        error = file_replace(&folder, slash ? slash + 1 : path, bytes, size, true);
    /* Not every file system supports it; without it a crash of the machine may bring the old file
     * back. */
    if (!error)
        (void)!file_sync(&folder);
    return error;
}

static int file_open_own(const struct owned *folder, const char *name, struct owned *ret_file,
                         uint64_t *ret_size)
{
    struct stat stat;
    /* O_NONBLOCK: not to hang on a FIFO. O_NOATIME: the owner of the time decides what counts as
     * used. */
    int error =
        owned_take(openat(owned_fd(folder), name,
                          O_RDONLY | O_NOATIME | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
                   ret_file);
    if (error)
        return error == -ELOOP ? -EPERM : error;
    if (fstat(owned_fd(ret_file), &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode) || !access_same_user(stat.st_uid, geteuid()) ||
        (stat.st_mode & 022) != 0)
        return -EPERM;
    *ret_size = (uint64_t)stat.st_size;
    return 0;
}

/* Up to @size bytes; of a file that has become shorter, those that there are. */
static int file_read_from(int fd, char *bytes, size_t size, size_t *ret_size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(fd, bytes + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *ret_size = used;
    return 0;
}

int file_read(const struct owned *folder, const char *name, void *bytes, size_t room,
              uint64_t *ret_size)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    uint64_t size;
    size_t got = 0;
    int error = file_open_own(folder, name, &file, &size);
    size_t wanted = !error && size < room ? (size_t)size : room;
    if (!error)
        error = file_read_from(owned_fd(&file), bytes, wanted, &got);
    if (!error && got != wanted)
        error = -EBADMSG;
    if (!error)
        *ret_size = size;
    return error;
}

int file_load(int fd, size_t limit, char **ret_bytes, size_t *ret_size)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode))
        return -EINVAL;
    if (stat.st_size < 0 || (uint64_t)stat.st_size > limit)
        return -EFBIG;
    char *bytes = malloc((size_t)stat.st_size + 1);
    if (!bytes)
        return -ENOMEM;
    int error = file_read_from(fd, bytes, (size_t)stat.st_size, ret_size);
    if (error) {
        explicit_bzero(bytes, (size_t)stat.st_size); /* it may be a key */
        free(bytes);
        return error;
    }
    bytes[*ret_size] = '\0';
    *ret_bytes = bytes;
    return 0;
}

int file_read_all(const struct owned *folder, const char *name, size_t limit, char **ret_bytes,
                  size_t *ret_size)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    uint64_t size;
    int error = file_open_own(folder, name, &file, &size);
    return error ? error : file_load(owned_fd(&file), limit, ret_bytes, ret_size);
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
        openat(file_at(folder), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), &opened);
    if (error)
        return error == -ELOOP || error == -ENOTDIR ? -EPERM : error;
    if (fstat(owned_fd(&opened), &stat) != 0)
        error = -errno;
    else if (!access_same_user(stat.st_uid, geteuid()) || (stat.st_mode & 077) != 0)
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
    /* fdopendir() takes over a descriptor and moves its position, so use a second one. */
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

void file_sweep(const struct owned *folder)
{
    uint64_t now_s = clock_wall_ms() / 1000;
    struct file_names names;
    struct stat stat;
    if (file_names(folder, &names) != 0)
        return;
    for (size_t i = 0; i < names.count; i++)
        if (strstr(names.names[i], UNFINISHED) &&
            fstatat(owned_fd(folder), names.names[i], &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)stat.st_mtim.tv_sec + UNFINISHED_S < now_s)
            (void)!unlinkat(owned_fd(folder), names.names[i], 0);
    file_names_finish(&names);
}

/* ---- files that the user named ---- */

/* True for paths where only root and the kernel create links, unlike /dev/shm, where everybody can.
 */
static bool file_links_are_roots(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           (strncmp(path, "/dev/", 5) == 0 && !strchr(path + 5, '/'));
}

static int file_check_own(int fd)
{
    struct stat stat;

    if (fstat(fd, &stat))
        return -errno;
    /* The owner of a character device is irrelevant: it is that of the terminal, or root. */
    if (S_ISCHR(stat.st_mode))
        return 0;
    if (!access_may_manage(geteuid(), stat.st_uid) || (S_ISREG(stat.st_mode) && stat.st_nlink > 1))
        return -EPERM;
    return 0;
}

int file_open_named(const char *path, int flags)
{
    int follow = file_links_are_roots(path) ? 0 : O_NOFOLLOW;
    int opened = O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = open(path, (flags & ~O_TRUNC) | follow | opened, 0600);
    struct stat stat;

    if (fd < 0)
        return -errno;
    int error = file_check_own(fd);
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

void file_hold_standard(void)
{
    /* open() returns the lowest number that is free: this one, as those below are taken. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}
