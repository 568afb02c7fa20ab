#include "state/base/files/folder.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/files/access.h"

#define UNUSABLE "cannot be entered or made"

static bool folder_is_of(uid_t user, const char *folder, bool private)
{
    struct stat stat;

    return lstat(folder, &stat) == 0 && S_ISDIR(stat.st_mode) &&
           access_same_user(stat.st_uid, user) && (!private || (stat.st_mode & 077) == 0);
}

bool folder_is_ours(const char *folder, bool private)
{
    return folder_is_of(geteuid(), folder, private);
}

/* Owners that may change anything above: root, and in a user namespace where root has no number,
 * the owner of the root folder. */
static bool folder_may_own_what_is_above(uid_t owner, uid_t user)
{
    struct stat root;

    return owner == 0 || owner == user || (stat("/", &root) == 0 && owner == root.st_uid);
}

int folder_refuse(char ret_problem[FOLDER_PROBLEM_MAX], int error, const char *path,
                  const char *why)
{
    snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.350s %.150s", path, why);
    return error;
}

int folder_refuse_error(char ret_problem[FOLDER_PROBLEM_MAX], int error, const char *path,
                        const char *what)
{
    char why[150];

    snprintf(why, sizeof(why), "%s: %s", what, strerror(-error));
    return folder_refuse(ret_problem, error, path, why);
}

/* Check from the root folder down, so that nobody else can replace a folder after it was checked.
 */
static int folder_check_above_of(uid_t user, const char *folder,
                                 char ret_problem[FOLDER_PROBLEM_MAX])
{
    for (const char *end = folder;; end += 1 + strcspn(end + 1, "/")) {
        char path[PATH_MAX];
        struct stat stat;
        snprintf(path, sizeof(path), "%.*s", end > folder ? (int)(end - folder) : 1, folder);
        if (lstat(path, &stat))
            return folder_refuse_error(ret_problem, -errno, path, UNUSABLE);
        if (!S_ISDIR(stat.st_mode) || !folder_may_own_what_is_above(stat.st_uid, user))
            return folder_refuse(ret_problem, -EPERM, path, "belongs to another user");
        if (stat.st_mode & 022 && !(stat.st_mode & S_ISVTX))
            return folder_refuse(ret_problem, -EPERM, path, "can be changed by other users");
        if (!*end)
            return 0;
    }
}

int folder_check_above(const char *folder, char ret_problem[FOLDER_PROBLEM_MAX])
{
    return folder_check_above_of(geteuid(), folder, ret_problem);
}

int folder_of_user(uid_t user, const char *wanted, char ret_folder[PATH_MAX],
                   char ret_problem[FOLDER_PROBLEM_MAX])
{
    char real[PATH_MAX];

    if (!realpath(wanted, real))
        return folder_refuse_error(ret_problem, -errno, wanted, UNUSABLE);
    int error = folder_check_above_of(user, real, ret_problem);
    if (!error && !folder_is_of(user, real, true))
        error = folder_refuse(ret_problem, -EPERM, real, "is not that user's alone");
    if (!error)
        strcpy(ret_folder, real);
    return error;
}

int folder_make_private(const char *wanted, char ret_folder[PATH_MAX],
                        char ret_problem[FOLDER_PROBLEM_MAX])
{
    const char *slash = strrchr(wanted, '/');
    char above[PATH_MAX], real[PATH_MAX], folder[PATH_MAX];
    int length = slash ? snprintf(above, sizeof(above), "%.*s",
                                  slash > wanted ? (int)(slash - wanted) : 1, wanted)
                       : -1;

    if (length < 0 || (size_t)length >= sizeof(above))
        return folder_refuse_error(ret_problem, -ENAMETOOLONG, wanted, UNUSABLE);
    if (!realpath(above, real))
        return folder_refuse_error(ret_problem, -errno, above, UNUSABLE);
    int error = folder_check_above(real, ret_problem);
    if (error)
        return error;
    length = snprintf(folder, sizeof(folder), "%s%s", real[1] ? real : "", slash);
    if (length < 0 || (size_t)length >= sizeof(folder))
        error = -ENAMETOOLONG;
    else if (mkdir(folder, 0700) && errno != EEXIST)
        error = -errno;
    if (error)
        return folder_refuse_error(ret_problem, error, wanted, UNUSABLE);
    if (!folder_is_ours(folder, false))
        return folder_refuse(ret_problem, -EPERM, folder, "is not a folder of yours");
    if (!folder_is_ours(folder, true))
        return folder_refuse(ret_problem, -EPERM, folder,
                             "can be entered by others (its mode is not 0700)");
    strcpy(ret_folder, folder);
    return 0;
}

int folder_home(const char *variable, const char *beneath, char ret[PATH_MAX])
{
    const char *named = getenv(variable);
    const char *home = getenv("HOME");
    struct passwd entry, *found = NULL;
    char strings[4096];
    int length;

    /* As the XDG specification says, one that is not absolute does not count. */
    if (named && named[0] == '/') {
        length = snprintf(ret, PATH_MAX, "%s/reseat", named);
        return length < PATH_MAX ? 0 : -ENAMETOOLONG;
    }
    if (!home || home[0] != '/') {
        if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) || !found)
            return -ENOENT;
        home = found->pw_dir;
    }
    length = snprintf(ret, PATH_MAX, "%s/%s/reseat", home, beneath);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* $XDG_RUNTIME_DIR may be missing, or another user's after su: the default is for that. */
static bool folder_may_use(const char *runtime)
{
    char ignored[FOLDER_PROBLEM_MAX], real[PATH_MAX];

    return runtime && runtime[0] == '/' && realpath(runtime, real) &&
           !folder_check_above(real, ignored);
}

bool folder_runtime_refused(char ret_problem[FOLDER_PROBLEM_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char real[PATH_MAX];

    if (!runtime || !*runtime || folder_may_use(runtime))
        return false;
    if (runtime[0] != '/')
        folder_refuse(ret_problem, -EINVAL, runtime, "is not an absolute path");
    else if (!realpath(runtime, real))
        folder_refuse_error(ret_problem, -errno, runtime, UNUSABLE);
    else
        return folder_check_above(real, ret_problem) != 0;
    return true;
}

int folder_runtime_name(char ret[PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char user[64];
    int length;

    snprintf(user, sizeof(user), "/run/user/%u", (unsigned)geteuid());
    if (folder_may_use(runtime))
        length = snprintf(ret, PATH_MAX, "%s/reseat", runtime);
    else if (folder_is_ours(user, true))
        length = snprintf(ret, PATH_MAX, "%s/reseat", user);
    else
        length = snprintf(ret, PATH_MAX, "/tmp/reseat-%u", (unsigned)geteuid());
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int folder_runtime(char ret_folder[PATH_MAX], char ret_problem[FOLDER_PROBLEM_MAX])
{
    char name[PATH_MAX];
    int error = folder_runtime_name(name);

    if (error) {
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "XDG_RUNTIME_DIR is too long");
        return error;
    }
    return folder_make_private(name, ret_folder, ret_problem);
}
