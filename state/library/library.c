#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/library/library_priv.h"

struct library the_library;

/* Names of one process that are tried before it gives up: others of the same number may run in
 * other namespaces of the same folder. */
#define TRIES 16

/* One line for all that is the matter with the folder: each build would say the same. */
static void library_complain(const char *problem)
{
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        log_warn("the library of device binaries is not used as it should be, and programs are "
                 "built from source: %s",
                 problem);
    else
        log_debug("the library of device binaries: %s", problem);
}

int library_open(const struct library *library, struct owned *ret_folder,
                 char ret_problem[FOLDER_PROBLEM_MAX])
{
    char path[PATH_MAX];
    struct stat stat;
    int err = folder_make_private(library->folder, path, ret_problem);
    if (err)
        return err;
    struct owned folder = OWNED_NONE;
    err = owned_take(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), &folder);
    if (!err && (fstat(owned_fd(&folder), &stat) != 0 || stat.st_uid != geteuid() ||
                 (stat.st_mode & 077) != 0))
        err = -EPERM;
    if (err) {
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s: %s", path, strerror(-err));
        owned_close(&folder);
        return err;
    }
    *ret_folder = folder;
    return 0;
}

static int library_open_or_complain(const struct library *library, struct owned *ret_folder)
{
    char problem[FOLDER_PROBLEM_MAX];
    int err = library_is_on(library) ? library_open(library, ret_folder, problem) : -ENOENT;
    if (err && library_is_on(library))
        library_complain(problem);
    return err;
}

/* As much as there is, up to @size. */
static int library_read_bytes(const struct owned *file, unsigned char *bytes, size_t size)
{
    for (size_t used = 0; used < size;) {
        ssize_t count = read(owned_fd(file), bytes + used, size - used);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EBADMSG;
        used += (size_t)count;
    }
    return 0;
}

int library_read_file(const struct owned *folder, const char *name, size_t limit, bool used,
                      unsigned char **ret_bytes, size_t *ret_size, uint64_t *ret_file_size)
{
    static const struct timespec now[] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    struct stat stat;
    /* Only what is noted below counts as used, not that it was listed. */
    int err = owned_take(
        openat(owned_fd(folder), name, O_RDONLY | O_NOATIME | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
        &file);
    if (err)
        return err;
    if (fstat(owned_fd(&file), &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 022) != 0)
        return -EPERM;
    if (stat.st_size <= 0 || (uint64_t)stat.st_size > LIBRARY_ENTRY_MAX)
        return -EBADMSG;
    size_t size = (size_t)stat.st_size < limit ? (size_t)stat.st_size : limit;
    unsigned char *CLEANUP(cleanup_free) bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    err = library_read_bytes(&file, bytes, size);
    if (err)
        return err;
    /* Its order among those to be removed; where that cannot be written it stays as it is. */
    if (used)
        (void)!futimens(owned_fd(&file), now);
    *ret_bytes = bytes;
    *ret_size = size;
    *ret_file_size = (uint64_t)stat.st_size;
    bytes = NULL;
    return 0;
}

int library_find(const struct library *library, const struct library_key *key,
                 struct library_entry *ret_entry)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    unsigned char *bytes = NULL;
    char name[LIBRARY_NAME_MAX];
    uint64_t file_size;
    size_t size;
    int err = library_open_or_complain(library, &folder);
    if (err)
        return err;
    library_name(key, name);
    err = library_read_file(&folder, name, SIZE_MAX, true, &bytes, &size, &file_size);
    if (!err)
        err = library_entry_read(bytes, size, file_size, key, ret_entry);
    if (!err) {
        ret_entry->bytes = bytes;
        return 0;
    }
    free(bytes);
    if (err == -EBADMSG) {
        log_warn("the entry %s of the library of device binaries is damaged: removed", name);
        (void)!unlinkat(owned_fd(&folder), name, 0);
    } else if (err == -EPERM || err == -ELOOP) {
        log_warn("the entry %s of the library of device binaries can be written by others: not "
                 "used",
                 name);
    }
    return err == -ENOMEM ? err : -ENOENT;
}

/* A name that nobody else writes to. */
static int library_create(const struct owned *folder, struct owned *ret_file, char ret_name[64])
{
    static atomic_uint serial;
    int err = -EEXIST;
    for (int i = 0; err == -EEXIST && i < TRIES; i++) {
        snprintf(ret_name, 64, LIBRARY_UNFINISHED "%lx-%x-%llx", (long)getpid(),
                 atomic_fetch_add(&serial, 1), (unsigned long long)clock_now_ns());
        err = owned_take(openat(owned_fd(folder), ret_name,
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600),
                         ret_file);
    }
    return err;
}

/* What was not used for the longest goes first. Others may be doing the same. */
static void library_keep_to_limit(const struct library *library, const struct owned *folder)
{
    struct library_file *CLEANUP(cleanup_free) files = NULL;
    size_t count = 0;
    uint64_t total = 0;
    if (library_files(folder, &files, &count) != 0)
        return;
    for (size_t i = 0; i < count; i++)
        total += files[i].size;
    for (size_t i = 0; i < count && total > library->limit; i++) {
        log_debug("the library of device binaries is full: %s goes", files[i].name);
        if (unlinkat(owned_fd(folder), files[i].name, 0) == 0 || errno == ENOENT)
            total -= files[i].size;
    }
}

static int library_put(const struct owned *folder, const char *name, const unsigned char *bytes,
                       size_t size)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    char unfinished[64];
    int err = library_create(folder, &file, unfinished);
    if (err)
        return err;
    err = owned_append(&file, bytes, size);
    if (!err && renameat(owned_fd(folder), unfinished, owned_fd(folder), name) != 0)
        err = -errno;
    if (err)
        (void)!unlinkat(owned_fd(folder), unfinished, 0);
    return err;
}

int library_keep(const struct library *library, const struct library_key *key,
                 const struct library_entry *entry)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char name[LIBRARY_NAME_MAX], problem[FOLDER_PROBLEM_MAX];
    size_t size = 0;
    int err = library_open_or_complain(library, &folder);
    if (err)
        return err;
    unsigned char *CLEANUP(cleanup_free) bytes = library_entry_write(entry, key, &size);
    if (!bytes && entry->binary_size < LIBRARY_ENTRY_MAX / 2)
        return -ENOMEM;
    if (!bytes || size > library->limit)
        return -E2BIG;
    library_name(key, name);
    err = library_put(&folder, name, bytes, size);
    if (!err) {
        library_keep_to_limit(library, &folder);
        return 0;
    }
    snprintf(problem, sizeof(problem), "%.400s cannot be written to: %s", library->folder,
             strerror(-err));
    library_complain(problem);
    return err;
}

int library_remove(const struct library *library, const char *name)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    char problem[FOLDER_PROBLEM_MAX];
    struct library_key key;
    if (!library_key_read(name, &key))
        return -EINVAL;
    int err = library_open(library, &folder, problem);
    if (!err && unlinkat(owned_fd(&folder), name, 0) != 0)
        err = -errno;
    return err;
}

void library_drop(const struct library *library, const struct library_key *key)
{
    char name[LIBRARY_NAME_MAX];
    library_name(key, name);
    int err = library_is_on(library) ? library_remove(library, name) : 0;
    if (err && err != -ENOENT)
        log_debug("the entry %s of the library of device binaries stays: %s", name, strerror(-err));
}
