#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/landlock.h>

#include "remote/server/session/sandbox.h"
#include "state/base/log.h"

/* Missing in older kernel headers. */
#define ACCESS_REFER     (UINT64_C(1) << 13)
#define ACCESS_TRUNCATE  (UINT64_C(1) << 14)
#define ACCESS_IOCTL_DEV (UINT64_C(1) << 15)
#define NET_BIND_TCP     (UINT64_C(1) << 0)
#define NET_CONNECT_TCP  (UINT64_C(1) << 1)
#define SCOPE_ABSTRACT   (UINT64_C(1) << 0)
#define SCOPE_SIGNALS    (UINT64_C(1) << 1)

/* All rights that the kernel's version of Landlock knows. What no rule allows is denied. */
struct attributes {
    uint64_t files, network, scoped;
};

#define EXECUTE LANDLOCK_ACCESS_FS_EXECUTE
#define READS   (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FIRST   ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* All rights of the first version. */
/* Rights in folders for writing. No links, which another session might follow, no sockets and no
 * device nodes. */
#define CACHES                                                                                     \
    (READS | EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |             \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |  \
     ACCESS_REFER | ACCESS_TRUNCATE)
#define NODES (READS | LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_IOCTL_DEV)

#define OF_FILES                                                                                   \
    (EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE |    \
     ACCESS_IOCTL_DEV)

/* Installed programs; what drivers and compilers look up; and what the kernel tells about the
 * machine. Of the processes in /proc, only the own one. */
static const char *const installed[] = {"/usr",   "/bin",    "/sbin", "/lib",       "/lib32",
                                        "/lib64", "/libx32", "/opt",  "/nix/store", "/gnu/store"};
static const char *const looked_up[] = {
    "/etc/OpenCL",     "/etc/alternatives", "/etc/amd",       "/etc/drirc",
    "/etc/group",      "/etc/host.conf",    "/etc/hosts",     "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/nvidia",     "/etc/passwd",       "/etc/vulkan",    "/sys",
    "/proc/asound",    "/proc/cgroups",     "/proc/cpuinfo",  "/proc/devices",
    "/proc/driver",    "/proc/filesystems", "/proc/loadavg",  "/proc/meminfo",
    "/proc/modules",   "/proc/self",        "/proc/stat",     "/proc/sys",
    "/proc/uptime",    "/proc/version",     "/proc/vmstat",
};
static const char *const nodes[] = {"/dev/full", "/dev/null", "/dev/random", "/dev/urandom",
                                    "/dev/zero"};

#define WRITABLE_MAX 16

struct rules {
    int ruleset;
    uint64_t handled;
    const char *authority;
    char writable[WRITABLE_MAX][PATH_MAX];
    size_t writable_count;
};

/* A path that does not exist needs no rule. */
static void sandbox_files_allow(const struct rules *rules, const char *path, uint64_t access)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr attr = {.allowed_access = access & rules->handled,
                                              .parent_fd = fd};
    struct stat stat;
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && !S_ISDIR(stat.st_mode))
        /* For files, the kernel refuses rules with the rights of folders. */
        attr.allowed_access &= OF_FILES;
    (void)!syscall(SYS_landlock_add_rule, rules->ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0);
    close(fd);
}

/* Make the folder, as the driver will not be allowed to create its parents. */
static void sandbox_files_make(const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path))
        return;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)!mkdir(path, 0700);
        *slash = '/';
    }
    (void)!mkdir(path, 0700);
}

static bool sandbox_files_is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == '\0');
}

/* The kernel ignores repeated slashes. */
static void sandbox_files_drop_slashes(char *path)
{
    for (char *at; (at = strstr(path, "//"));)
        memmove(at, at + 1, strlen(at));
}

/* A path below another writable folder gets no rule of its own: an earlier session may have
 * replaced it by a link to anywhere. */
static void sandbox_files_allow_writing(struct rules *rules, const char *folder,
                                        const char *beneath)
{
    char path[PATH_MAX];
    if (!folder || folder[0] != '/' || rules->writable_count == WRITABLE_MAX ||
        snprintf(path, sizeof(path), "%s%s", folder, beneath) >= (int)sizeof(path) ||
        strstr(path, "/../") || strstr(path, "/./"))
        return;
    sandbox_files_drop_slashes(path);
    sandbox_files_make(path);
    for (size_t i = 0; i < rules->writable_count; i++)
        if (sandbox_files_is_within(path, rules->writable[i]))
            return;
    sandbox_files_allow(rules, path, CACHES);
    strcpy(rules->writable[rules->writable_count++], path);
}

/* Allow reading, except for the authority's folder, whose keys would make anybody a client with any
 * rights. If @path contains that folder, each of the other entries gets a rule; entries created
 * later cannot be read. */
static void sandbox_files_allow_reading(const struct rules *rules, const char *path)
{
    char real[PATH_MAX];
    if (!realpath(path, real) ||
        (rules->authority && sandbox_files_is_within(real, rules->authority)))
        return;
    if (!rules->authority || !sandbox_files_is_within(rules->authority, real)) {
        sandbox_files_allow(rules, path, READS | EXECUTE);
        return;
    }
    DIR *folder = opendir(real);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char inner[PATH_MAX];
        /* The target of a link has a name of its own. */
        if (entry->d_type != DT_LNK && strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            snprintf(inner, sizeof(inner), "%s/%s", real, entry->d_name) < (int)sizeof(inner))
            sandbox_files_allow_reading(rules, inner);
    }
    if (folder)
        closedir(folder);
}

static void sandbox_files_allow_node(void *data, const char *path)
{
    sandbox_files_allow(data, path, NODES);
}

/* Allow the drivers' folders, and the paths in environment variables, which may have several
 * separated by colons. Variables with the user's own folders are left out. */
static void sandbox_files_allow_drivers(const struct rules *rules, const struct devices *known)
{
    static const char *const users[] = {"HOME=", "OLDPWD=", "PATH=", "PWD=", "TMPDIR=", "XDG_"};
    for (size_t i = 0; known && i < known->count; i++) {
        char folder[sizeof(known->rows[i].key.icd)];
        strcpy(folder, known->rows[i].key.icd);
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            continue;
        *slash = '\0';
        sandbox_files_allow_reading(rules, folder);
    }
    for (char **at = environ; *at; at++) {
        bool is_users = false;
        for (size_t i = 0; i < ARRAY_SIZE(users); i++)
            is_users |= !strncmp(*at, users[i], strlen(users[i]));
        char *copy = is_users || !strchr(*at, '=') ? NULL : strdup(strchr(*at, '=') + 1);
        char *rest = copy;
        for (char *path; copy && (path = strsep(&rest, ":"));)
            if (path[0] == '/' && path[1])
                sandbox_files_allow_reading(rules, path);
        free(copy);
    }
}

/* The user's home, also if the environment lacks HOME, as in a service. Only caches in it are used,
 * so a wrong HOME does no harm. NULL: none. */
static const char *sandbox_files_find_home(char ret_real[PATH_MAX])
{
    const char *home = getenv("HOME");
    struct passwd entry, *found = NULL;
    char strings[4096];
    if ((!home || home[0] != '/') &&
        !getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) && found)
        home = entry.pw_dir;
    return home && home[0] == '/' && realpath(home, ret_real) && ret_real[1] ? ret_real : NULL;
}

/* Variables by which drivers find their caches, and the names in a client's own folder. */
static const struct {
    const char *variable, *name;
} caches[] = {
    {"POCL_CACHE_DIR", "pocl"},
    {"CUDA_CACHE_PATH", "cuda"},
    {"MESA_SHADER_CACHE_DIR", "mesa"},
};

/* The session's user has no folder on disk: use the private /dev/shm. */
static int sandbox_files_in_memory(void)
{
    static const char *const variables[][2] = {{"HOME", "/dev/shm/home"},
                                               {"TMPDIR", "/dev/shm/tmp"},
                                               {"XDG_CACHE_HOME", "/dev/shm/cache"},
                                               {"POCL_CACHE_DIR", "/dev/shm/cache/pocl"},
                                               {"CUDA_CACHE_PATH", "/dev/shm/cache/cuda"},
                                               {"MESA_SHADER_CACHE_DIR", "/dev/shm/cache/mesa"}};
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        sandbox_files_make(variables[i][1]);
        if (setenv(variables[i][0], variables[i][1], 1))
            return -errno;
    }
    return 0;
}

/* The folders belong to the session's user, so that no other user can replace them. */
int sandbox_own_caches(const char *client)
{
    char home[PATH_MAX], own[PATH_MAX], path[PATH_MAX];
    const char *cache = getenv("XDG_CACHE_HOME"), *is_home = sandbox_files_find_home(home);
    bool named = cache && cache[0] == '/';
    if (client[0] == '.' || strchr(client, '/'))
        return -EINVAL;
    if (sandbox_is_nobody())
        return sandbox_files_in_memory();
    if (snprintf(own, sizeof(own), "%s%s/reseat/clients/%s",
                 named     ? cache
                 : is_home ? is_home
                           : "",
                 named ? "" : "/.cache", client) >= (int)sizeof(own))
        return -ENAMETOOLONG;
    /* /tmp has files of the user and of other sessions. */
    if (snprintf(path, sizeof(path), "%s/tmp", own) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    sandbox_files_make(path);
    if (access(path, W_OK | X_OK) && sandbox_has_memory())
        return sandbox_files_in_memory();
    if (access(path, W_OK | X_OK))
        log_warn("%s is not writable (%m), so drivers may fail to build programs; set "
                 "XDG_CACHE_HOME to another folder",
                 path);
    if (setenv("XDG_CACHE_HOME", own, 1) || setenv("TMPDIR", path, 1))
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
        cache = getenv(caches[i].variable);
        named = cache && cache[0] == '/';
        if (snprintf(path, sizeof(path), "%s/%s%s", named ? cache : own,
                     named ? "clients/" : caches[i].name, named ? client : "") >= (int)sizeof(path))
            return -ENAMETOOLONG;
        if (setenv(caches[i].variable, path, 1))
            return -errno;
    }
    return 0;
}

static int sandbox_files_make_ruleset(long version, struct rules *rules)
{
    struct attributes attr = {.files = FIRST};
    attr.files |= version >= 2 ? ACCESS_REFER : 0;
    attr.files |= version >= 3 ? ACCESS_TRUNCATE : 0;
    attr.files |= version >= 5 ? ACCESS_IOCTL_DEV : 0;
    attr.network = version >= 4 ? NET_BIND_TCP | NET_CONNECT_TCP : 0;
    attr.scoped = version >= 6 ? SCOPE_ABSTRACT | SCOPE_SIGNALS : 0;
    const size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    rules->handled = attr.files;
    rules->ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    return rules->ruleset < 0 ? -errno : 0;
}

int sandbox_files(const struct devices *known, const struct grant *grant, const char *authority,
                  bool own_caches)
{
    char real[PATH_MAX];
    struct rules rules = {.authority = authority};
    long version =
        syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) {
        log_warn("this kernel lacks Landlock, so sessions can use all files of their user: %m");
        return 0;
    }
    int error = sandbox_files_make_ruleset(version, &rules);
    if (error)
        return error;
    for (size_t i = 0; i < ARRAY_SIZE(installed); i++)
        sandbox_files_allow_reading(&rules, installed[i]);
    for (size_t i = 0; i < ARRAY_SIZE(looked_up); i++)
        sandbox_files_allow(&rules, looked_up[i], READS);
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
        sandbox_files_allow(&rules, nodes[i], NODES);
    sandbox_files_allow(&rules, "/dev", LANDLOCK_ACCESS_FS_READ_DIR);
    sandbox_files_allow_drivers(&rules, known);
    sandbox_each_node(known, grant, sandbox_files_allow_node, &rules);
    sandbox_files_allow_writing(&rules, getenv("XDG_CACHE_HOME"), "");
    if (sandbox_has_memory())
        sandbox_files_allow_writing(&rules, "/dev/shm", "");
    if (!own_caches) {
        const char *home = sandbox_files_find_home(real);
        sandbox_files_allow_writing(&rules, "/tmp", "");
        sandbox_files_allow_writing(&rules, "/var/tmp", "");
        sandbox_files_allow_writing(&rules, home, "/.cache");
        sandbox_files_allow_writing(&rules, home, "/.nv");
    }
    for (size_t i = 0; i < ARRAY_SIZE(caches); i++)
        sandbox_files_allow_writing(&rules, getenv(caches[i].variable), "");
    sandbox_files_allow_writing(&rules, getenv("TMPDIR"), "");
    /* Keep /proc/self in the kernel's cache, so that the inode with its rule is not freed. The
     * descriptor stays open. */
    if (open("/proc/self", O_PATH | O_CLOEXEC) < 0)
        error = -errno;
    if (error == 0 && syscall(SYS_landlock_restrict_self, rules.ruleset, 0))
        error = -errno;
    close(rules.ruleset);
    return error;
}
