#include "agent/config/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config/installed.h"
#include "state/base/cleanup.h"
#include "state/base/files/access.h"
#include "state/base/files/file.h"

#define SOCKET_NAME    "agent.sock"
#define LINES_SIZE_MAX (1u << 20)

static int paths_put(char *to, size_t size, const char *a, const char *b)
{
    int length = snprintf(to, size, "%s%s", a, b);

    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

/** Write @path without its last component. */
static int paths_put_above(char *to, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    int length = snprintf(to, size, "%.*s", slash > path ? (int)(slash - path) : 1, path);

    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

int paths_join(const char *folder, const char *name, char ret[PATH_MAX])
{
    int length = snprintf(ret, PATH_MAX, "%s/%s", folder, name);

    return length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int paths_make(const char *folder)
{
    char path[PATH_MAX];
    int error = paths_put(path, sizeof(path), folder, "");

    if (error)
        return error;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES)
            return -errno;
        *slash = '/';
    }
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

/** @ret_beside: the folder's name is the socket's name with ".d" appended. */
static int paths_choose_folder(char ret[PATH_MAX], bool *ret_beside)
{
    const char *named = getenv("RESEAT_SOCKET");
    const char *slash = named ? strrchr(named, '/') : NULL;

    *ret_beside = false;
    if (named && *named) {
        *ret_beside = slash && strcmp(slash, "/" SOCKET_NAME);
        return named[0] != '/' ? -EINVAL
               : *ret_beside   ? paths_put(ret, PATH_MAX, named, ".d")
                               : paths_put_above(ret, PATH_MAX, named);
    }
    return folder_runtime_name(ret);
}

static int paths_put_socket(struct paths *paths, const char *folder, size_t length,
                            const char *name)
{
    int needed =
        snprintf(paths->socket, sizeof(paths->socket), "%.*s%s", (int)length, folder, name);

    if (needed >= 0 && (size_t)needed < sizeof(paths->socket))
        return 0;
    snprintf(paths->problem, sizeof(paths->problem), "%.400s is too long a name for a socket",
             folder);
    return -ENAMETOOLONG;
}

/** Write the path of the socket in the chosen folder. */
static int paths_finish_paths(struct paths *paths, bool beside, int error)
{
    size_t length = strlen(paths->folder) - (!error && beside ? 2 : 0);

    if (!error)
        error = paths_put_socket(paths, paths->folder, length, beside ? "" : "/" SOCKET_NAME);
    if (error)
        paths->folder[0] = paths->socket[0] = '\0';
    return error;
}

/**
 * True for the socket of an agent for all users: the host's, or one that $RESEAT_SOCKET names, that
 * root owns, and that no other user can replace.
 */
static bool paths_is_shared(char ret_folder[PATH_MAX], const char **ret_name)
{
    const char *named = getenv("RESEAT_SOCKET");
    char above[PATH_MAX], ignored[FOLDER_PROBLEM_MAX];
    struct stat stat;

    named = named ? named : ACCESS_HOST_SOCKET;
    bool hosts = strcmp(named, ACCESS_HOST_SOCKET) == 0;
    if ((geteuid() == 0 && !hosts) || named[0] != '/' || lstat(named, &stat) ||
        !S_ISSOCK(stat.st_mode) ||
        (hosts ? !access_may_believe(named, stat.st_uid) : stat.st_uid != 0) ||
        paths_put_above(above, sizeof(above), named) || !realpath(above, ret_folder) ||
        (!hosts && folder_check_above(ret_folder, ignored)))
        return false;
    *ret_name = strrchr(named, '/');
    return true;
}

int paths_find(struct paths *ret_paths)
{
    struct paths paths = {.user = geteuid()};
    char wanted[PATH_MAX];
    const char *name;
    bool beside;
    int error;

    if (paths_is_shared(wanted, &name)) {
        paths.shared = true;
        error = folder_runtime(paths.folder, paths.problem);
        if (!error)
            error = paths_put_socket(&paths, wanted, strlen(wanted), name);
        if (error)
            paths.folder[0] = paths.socket[0] = '\0';
        *ret_paths = paths;
        return error;
    }
    error = paths_choose_folder(wanted, &beside);
    if (error)
        snprintf(paths.problem, sizeof(paths.problem), "RESEAT_SOCKET is not an absolute path");
    else
        error = folder_make_private(wanted, paths.folder, paths.problem);
    error = paths_finish_paths(&paths, beside, error);
    /* Say why the preferred folder was refused: its agent may be the one that the user meant. */
    const char *named = getenv("RESEAT_SOCKET");
    if ((named && *named) || !folder_runtime_refused(paths.refused))
        paths.refused[0] = '\0';
    *ret_paths = paths;
    return error;
}

int paths_host(struct paths *ret_paths)
{
    struct paths paths = {.user = geteuid(), .shared = true};
    bool made = mkdir(ACCESS_HOST_FOLDER, 0755) == 0;
    int error =
        (made && chmod(ACCESS_HOST_FOLDER, 0755)) || (!made && errno != EEXIST) ? -errno : 0;

    if (error)
        snprintf(paths.problem, sizeof(paths.problem), ACCESS_HOST_FOLDER " cannot be made: %s",
                 strerror(-error));
    else
        error = folder_make_private(ACCESS_HOST_SOCKET ".d", paths.folder, paths.problem);
    error = paths_finish_paths(&paths, true, error);
    *ret_paths = paths;
    return error;
}

int paths_find_of(uid_t user, struct paths *ret_paths)
{
    const char *named = getenv("RESEAT_SOCKET");
    struct paths paths = {.user = user};
    char wanted[PATH_MAX];
    bool beside = false;
    int error = -ENOENT;

    if (named && *named) {
        error = paths_choose_folder(wanted, &beside);
        if (!error)
            error = folder_of_user(user, wanted, paths.folder, paths.problem);
    }
    for (size_t i = 0; error == -ENOENT && i < 2 && !(named && *named); i++) {
        snprintf(wanted, sizeof(wanted), i ? "/tmp/reseat-%u" : "/run/user/%u/reseat",
                 (unsigned)user);
        error = folder_of_user(user, wanted, paths.folder, paths.problem);
    }
    error = paths_finish_paths(&paths, beside, error);
    *ret_paths = paths;
    return error;
}

int paths_lists(const struct paths *paths, char ret[PATH_MAX])
{
    bool beside = strncmp(paths->folder, paths->socket, strlen(paths->socket)) == 0;

    if ((geteuid() != 0 && !paths->shared) || !beside)
        return paths_put(ret, PATH_MAX, paths->folder, "");
    int error = paths_put(ret, PATH_MAX, paths->socket, ".lists");
    if (error)
        return error;
    if (mkdir(ret, 0711) && errno != EEXIST)
        return -errno;
    if (!folder_is_ours(ret, false))
        return -EPERM;
    return chmod(ret, 0711) ? -errno : 0;
}

int paths_state(char ret[PATH_MAX])
{
    int error = folder_home("XDG_STATE_HOME", ".local/state", ret);

    return error ? error : paths_make(ret);
}

int paths_binaries(char ret[PATH_MAX])
{
    char above[PATH_MAX];
    int error = folder_home("XDG_CACHE_HOME", ".cache", above);

    error = error ? error : paths_make(above);
    return error ? error : paths_join(above, "binaries", ret);
}

int paths_own(char ret[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", ret, PATH_MAX - 1);

    if (length <= 0)
        return -ENOENT;
    ret[length] = '\0';
    return 0;
}

/** $@variable when set, else the first of @candidates that exists; they are relative to the
 * binary's folder. */
static int paths_beside(const char *variable, const char *const *candidates, char ret[PATH_MAX])
{
    const char *named = getenv(variable);
    char binary[PATH_MAX];

    if (named && *named)
        return realpath(named, ret) ? 0 : -ENOENT;
    if (paths_own(binary))
        return -ENOENT;
    *strrchr(binary, '/') = '\0';
    for (; *candidates; candidates++) {
        char path[PATH_MAX];
        /* A folder outside the installation prefix is given as an absolute path. */
        int error = **candidates == '/' ? paths_put(path, sizeof(path), *candidates, "")
                                        : paths_join(binary, *candidates, path);
        if (!error && realpath(path, ret) && access(ret, R_OK) == 0)
            return 0;
    }
    return -ENOENT;
}

int paths_links(char ret[PATH_MAX])
{
    const char *named = getenv("RESEAT_LINKS");
    char above[PATH_MAX];

    if (named && *named)
        return named[0] == '/' ? paths_put(ret, PATH_MAX, named, "") : -EINVAL;
    int error = folder_home("XDG_CACHE_HOME", ".cache", above);
    error = error ? error : paths_make(above);
    return error ? error : paths_join(above, "links", ret);
}

int paths_of(enum paths_file file, char ret[PATH_MAX])
{
/**
 * Candidates: beside the program, in the build folders, and in the installation folder of
 * meson.build.
 */
#define FILE_OF(variable, build, what, name)                                                       \
    {                                                                                              \
        variable,                                                                                  \
        {                                                                                          \
            name, "../" build "/" name, what##_FROM_BIN "/" name, what##_INSTALLED "/" name, NULL  \
        }                                                                                          \
    }
    static const struct {
        const char *variable;
        const char *candidates[5];
    } files[] = {
        [PATHS_LIBRARY] = FILE_OF("RESEAT_LIBRARY", "interpose", LIBRARY, "libreseat.so"),
        [PATHS_AGENT] = FILE_OF("RESEAT_AGENT", "agent", AGENT, "reseatd"),
        [PATHS_LISTER] = FILE_OF("RESEAT_LISTER", "agent", LISTER, "reseat-lister"),
        [PATHS_MEASURE] = FILE_OF("RESEAT_MEASURE", "agent", LISTER, "reseat-measure"),
        [PATHS_REMOTE] = FILE_OF("RESEAT_REMOTE", "remote", LIBRARY, "libreseat-remote.so"),
        [PATHS_SERVER] = FILE_OF("RESEAT_SERVE", "remote", LISTER, "reseat-serve"),
        [PATHS_WATCH] = FILE_OF("RESEAT_WATCH", "remote", LISTER, "reseat-watch"),
        [PATHS_MDNS] = FILE_OF("RESEAT_MDNS", "remote", LISTER, "reseat-mdns"),
        [PATHS_STREAM] = FILE_OF("RESEAT_STREAMD", "stream", LISTER, "reseat-streamd"),
        [PATHS_STREAM_WORKER] =
            FILE_OF("RESEAT_STREAM_WORKER", "stream", LISTER, "reseat-stream-worker"),
        [PATHS_KERNELS] = FILE_OF("RESEAT_STREAM_KERNELS", "stream", DATA, "kernels"),
    };

    return paths_beside(files[file].variable, files[file].candidates, ret);
}

/** True when the first line of the file at @path names @library. */
static bool paths_names_library(const char *path, const char *library)
{
    CLEANUP(cleanup_free) char *text = NULL;
    struct stat named, meant;
    size_t size;

    if (paths_read(path, PATH_MAX, &text, &size))
        return false;
    text[strcspn(text, "\n")] = '\0';
    return stat(text, &named) == 0 && stat(library, &meant) == 0 && named.st_dev == meant.st_dev &&
           named.st_ino == meant.st_ino;
}

int paths_vendors(const char *library, char ret[PATH_MAX])
{
    char above[PATH_MAX], file[PATH_MAX];
    int error = paths_put_above(above, sizeof(above), library);

    error = error ? error : paths_join(above, "vendors", ret);
    error = error ? error : paths_join(ret, "reseat.icd", file);
    return error ? error : paths_names_library(file, library) ? 0 : -ENOENT;
}

int paths_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size)
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return fd < 0 ? -errno : file_load(fd, limit, ret_bytes, ret_size);
}

int paths_read_lines(const char *path, size_t count, int (*take)(void *data, char *const words[]),
                     void *data)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    int error = paths_read(path, LINES_SIZE_MAX, &text, &size);

    for (char *rest = text, *line; !error && (line = strsep(&rest, "\n"));) {
        char *words[LINES_WORDS] = {NULL};
        for (size_t i = 0; i < count && line; i++)
            words[i] = i + 1 < count ? strsep(&line, " ") : line;
        if (words[0][0] != '#' && words[1])
            error = take(data, words);
    }
    return error;
}

int paths_write_lines(const char *path, const char *comment,
                      void (*print)(const void *data, FILE *out), const void *data)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return -errno;
    fprintf(out, "# %s The agent writes this file.\n", comment);
    print(data, out);
    return fclose(out) ? -ENOMEM : file_replace_path(path, text, size);
}

int paths_isolated(const struct paths *paths, char ret[PATH_MAX])
{
    char path[PATH_MAX];
    int error = paths_join(paths->folder, "drivers.sock", path);

    if (!error && strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        error = -ENAMETOOLONG;
    if (!error)
        strcpy(ret, path);
    return error;
}
