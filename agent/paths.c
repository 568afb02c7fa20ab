#include "agent/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cleanup.h"

#define SOCKET_NAME "agent.sock"

static int put(char *to, size_t size, const char *a, const char *b)
{
    int length = snprintf(to, size, "%s%s", a, b);

    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

int paths_join(const char *folder, const char *name, char ret[PATH_MAX])
{
    int length = snprintf(ret, PATH_MAX, "%s/%s", folder, name);

    return length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/** True for a folder, not a link to one, that belongs to us and, if @private, only to us. */
static bool ours(const char *folder, bool private)
{
    struct stat stat;

    return lstat(folder, &stat) == 0 && S_ISDIR(stat.st_mode) && stat.st_uid == geteuid() &&
           (!private || (stat.st_mode & 077) == 0);
}

static int make_private(const char *folder)
{
    if (mkdir(folder, 0700) && errno != EEXIST) {
        return -errno;
    }
    return ours(folder, true) ? 0 : -EPERM;
}

int paths_make(const char *folder)
{
    char path[PATH_MAX];
    int error = put(path, sizeof(path), folder, "");

    if (error) {
        return error;
    }
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES) {
            return -errno;
        }
        *slash = '/';
    }
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

static int find_named(const char *socket, struct paths *ret)
{
    const char *slash = strrchr(socket, '/');
    int error = put(ret->socket, sizeof(ret->socket), socket, "");

    if (error || socket[0] != '/') {
        return error ? error : -EINVAL;
    }
    if (strcmp(slash, "/" SOCKET_NAME)) {
        error = put(ret->folder, sizeof(ret->folder), socket, ".d");
    } else {
        snprintf(ret->folder, sizeof(ret->folder), "%.*s", (int)(slash - socket), socket);
    }
    return error ? error : make_private(ret->folder);
}

int paths_find(struct paths *ret_paths)
{
    const char *named = getenv("RESEAT_SOCKET");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char user[64];
    int error;

    *ret_paths = (struct paths){0};
    if (named && *named) {
        return find_named(named, ret_paths);
    }
    snprintf(user, sizeof(user), "/run/user/%u", (unsigned)geteuid());
    if (runtime && runtime[0] == '/') {
        error = put(ret_paths->folder, sizeof(ret_paths->folder), runtime, "/reseat");
    } else if (ours(user, true)) {
        error = put(ret_paths->folder, sizeof(ret_paths->folder), user, "/reseat");
    } else {
        error = 0;
        snprintf(ret_paths->folder, sizeof(ret_paths->folder), "/tmp/reseat-%u",
                 (unsigned)geteuid());
    }
    if (!error) {
        error =
            put(ret_paths->socket, sizeof(ret_paths->socket), ret_paths->folder, "/" SOCKET_NAME);
    }
    return error ? error : make_private(ret_paths->folder);
}

int paths_home(const char *variable, const char *beneath, char ret[PATH_MAX])
{
    const char *named = getenv(variable);
    const char *home = getenv("HOME");
    char folder[PATH_MAX];

    /* As the XDG specification says, one that is not absolute does not count. */
    if (named && named[0] == '/') {
        return put(ret, PATH_MAX, named, "/reseat");
    }
    if (!home || home[0] != '/') {
        const struct passwd *entry = getpwuid(geteuid());
        home = entry ? entry->pw_dir : NULL;
    }
    int error = home ? paths_join(home, beneath, folder) : -ENOENT;
    return error ? error : put(ret, PATH_MAX, folder, "/reseat");
}

int paths_state(char ret[PATH_MAX])
{
    int error = paths_home("XDG_STATE_HOME", ".local/state", ret);

    return error ? error : paths_make(ret);
}

int paths_beside(const char *variable, const char *const *candidates, char ret[PATH_MAX])
{
    const char *named = getenv(variable);
    char binary[PATH_MAX];

    if (named && *named) {
        return realpath(named, ret) ? 0 : -ENOENT;
    }
    ssize_t length = readlink("/proc/self/exe", binary, sizeof(binary) - 1);
    if (length <= 0) {
        return -ENOENT;
    }
    binary[length] = '\0';
    *strrchr(binary, '/') = '\0';
    for (; *candidates; candidates++) {
        char path[PATH_MAX];
        /* A folder outside the prefix is named by its whole path. */
        int error = **candidates == '/' ? put(path, sizeof(path), *candidates, "")
                                        : paths_join(binary, *candidates, path);
        if (!error && realpath(path, ret) && access(ret, R_OK) == 0) {
            return 0;
        }
    }
    return -ENOENT;
}

/** Beside the program, in the build's folders, and where meson.build says that it is installed. */
#define CANDIDATES(build, what, name)                                                              \
    name, "../" build "/" name, what##_FROM_BIN "/" name, what##_INSTALLED "/" name, NULL

int paths_library(char ret[PATH_MAX])
{
    static const char *const candidates[] = {CANDIDATES("interpose", LIBRARY, "libreseat.so")};

    return paths_beside("RESEAT_LIBRARY", candidates, ret);
}

int paths_agent(char ret[PATH_MAX])
{
    static const char *const candidates[] = {CANDIDATES("agent", AGENT, "reseatd")};

    return paths_beside("RESEAT_AGENT", candidates, ret);
}

int paths_lister(char ret[PATH_MAX])
{
    static const char *const candidates[] = {CANDIDATES("agent", LISTER, "reseat-lister")};

    return paths_beside("RESEAT_LISTER", candidates, ret);
}

static int write_all(int fd, const char *bytes, size_t size)
{
    while (size) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return -errno;
        }
        bytes += written;
        size -= (size_t)written;
    }
    return 0;
}

int paths_write(const char *path, const void *bytes, size_t size)
{
    char temporary[PATH_MAX];
    int error = put(temporary, sizeof(temporary), path, ".XXXXXX");

    if (error) {
        return error;
    }
    CLEANUP(cleanup_close) int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    error = write_all(fd, bytes, size);
    if (!error && (fsync(fd) || rename(temporary, path))) {
        error = -errno;
    }
    if (error) {
        unlink(temporary);
    }
    return error;
}

int paths_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size)
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat stat;

    if (fd < 0 || fstat(fd, &stat)) {
        return -errno;
    }
    if (!S_ISREG(stat.st_mode)) {
        return -EINVAL;
    }
    if (stat.st_size < 0 || (size_t)stat.st_size > limit) {
        return -EFBIG;
    }
    CLEANUP(cleanup_free) char *bytes = malloc((size_t)stat.st_size + 1);
    size_t used = 0;
    if (!bytes) {
        return -ENOMEM;
    }
    while (used < (size_t)stat.st_size) {
        ssize_t count = read(fd, bytes + used, (size_t)stat.st_size - used);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return -errno;
        }
        if (count == 0) {
            break;
        }
        used += (size_t)count;
    }
    bytes[used] = '\0';
    *ret_size = used;
    *ret_bytes = bytes;
    bytes = NULL;
    return 0;
}
