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

/* Of later kernels than the headers may be. */
#define ACCESS_REFER    (UINT64_C(1) << 13)
#define ACCESS_TRUNCATE (UINT64_C(1) << 14)

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITES                                                                                     \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                               \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |   \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

#define OF_FILES (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE)

#define WRITABLE_MAX 16

struct rules {
    int ruleset;
    uint64_t writes;
    char writable[WRITABLE_MAX][PATH_MAX];
    size_t writable_count;
};

/* One that is not there needs no rule. */
static void allow(const struct rules *rules, const char *path, uint64_t access)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr attr = {.allowed_access = access, .parent_fd = fd};
    struct stat stat;
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && !S_ISDIR(stat.st_mode))
        attr.allowed_access &= OF_FILES; /* With more, it is no rule. */
    (void)!syscall(SYS_landlock_add_rule, rules->ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0);
    close(fd);
}

/* A driver that would make it could not. */
static void make(const char *folder)
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

static bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == '\0');
}

/* As the kernel reads it. */
static void drop_slashes(char *path)
{
    for (char *at; (at = strstr(path, "//"));)
        memmove(at, at + 1, strlen(at));
}

/* One in another of them may have been made a link to anywhere, by a session of before: that is no
   reason to write there. */
static void allow_writing(struct rules *rules, const char *folder, const char *beneath)
{
    char path[PATH_MAX];
    if (!folder || folder[0] != '/' || rules->writable_count == WRITABLE_MAX ||
        snprintf(path, sizeof(path), "%s%s", folder, beneath) >= (int)sizeof(path) ||
        strstr(path, "/../") || strstr(path, "/./"))
        return;
    drop_slashes(path);
    make(path);
    for (size_t i = 0; i < rules->writable_count; i++)
        if (is_within(path, rules->writable[i]))
            return;
    allow(rules, path, READS | rules->writes);
    strcpy(rules->writable[rules->writable_count++], path);
}

/* Everything in @folder, "" being the root, but what is @hidden; and around that what is made
 * later. */
static void allow_but(const struct rules *rules, const char *folder, const char *const *hidden,
                      size_t count)
{
    DIR *open = opendir(*folder ? folder : "/");
    if (!open)
        return;
    for (struct dirent *entry; (entry = readdir(open));) {
        char path[PATH_MAX], real[PATH_MAX];
        bool holds = false, is = false;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path) ||
            !realpath(path, real))
            continue;
        for (size_t i = 0; i < count; i++) {
            is |= is_within(real, hidden[i]);
            holds |= is_within(hidden[i], real);
        }
        if (!is && !holds)
            allow(rules, path, READS);
        else if (!is && !strcmp(path, real)) /* A link's target has a name of its own. */
            allow_but(rules, path, hidden, count);
    }
    closedir(open);
}

/* What its user, and root above all, could do with these nobody should for a driver: write to
   disks, past all files, to terminals, and to memory; listen to a keyboard, be one, and make
   devices. */
static bool is_for_drivers(const char *name, const struct stat *stat)
{
    static const char *const others[] = {
        "tty",   "pts",      "ptmx",   "console",  "vcs",   "mem",   "kmem", "port",
        "kmsg",  "log",      "sg",     "bsg",      "nvme",  "ng",    "nbd",  "mapper",
        "loop",  "mtd",      "fuse",   "snapshot", "kvm",   "vhost", "net",  "tun",
        "input", "uinput",   "hidraw", "uhid",     "usb",   "bus",   "disk", "block",
        "rtc",   "watchdog", "hpet",   "autofs",   "btrfs", "cuse",  "tpm",  "initctl"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (!strncmp(name, others[i], strlen(others[i])))
            return false;
    return !S_ISBLK(stat->st_mode);
}

static void allow_devices(const struct rules *rules)
{
    DIR *open = opendir("/dev");
    if (!open)
        return;
    allow(rules, "/dev", LANDLOCK_ACCESS_FS_READ_DIR);
    for (struct dirent *entry; (entry = readdir(open));) {
        char path[sizeof("/dev/") + sizeof(entry->d_name)];
        struct stat stat;
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        /* A link's target has a name of its own, or is no device. */
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && lstat(path, &stat) == 0 &&
            !S_ISLNK(stat.st_mode) && is_for_drivers(entry->d_name, &stat))
            allow(rules, path, READS | rules->writes);
    }
    closedir(open);
}

/* The folder in the root folder that it is in; all homes are there together. */
static void cut_to_top(char *path)
{
    char *slash = strchr(path + 1, '/');
    if (slash)
        *slash = '\0';
}

/* Everything but devices, the user's home and that of others, and the authority, whose keys make
   anybody a client of any rights. */
static void allow_system(const struct rules *rules, const char *home, const char *authority)
{
    char homes[PATH_MAX] = "";
    const char *hidden[3] = {"/dev"};
    size_t count = 1;
    if (home) {
        snprintf(homes, sizeof(homes), "%s", home);
        cut_to_top(homes);
        hidden[count++] = homes;
    }
    if (authority)
        hidden[count++] = authority;
    allow_but(rules, "", hidden, count);
}

static void allow_drivers(const struct rules *rules, const struct devices *known)
{
    for (size_t i = 0; i < known->count; i++) {
        char folder[sizeof(known->rows[i].key.icd)];
        strcpy(folder, known->rows[i].key.icd);
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            continue;
        *slash = '\0';
        allow(rules, folder, READS);
    }
}

/* Its user's home, also where the environment has none, as a service's; NULL: it is in no folder.
 */
static const char *find_home(char ret_real[PATH_MAX])
{
    const char *home = getenv("HOME");
    struct passwd entry, *found = NULL;
    char strings[4096];
    if ((!home || home[0] != '/') &&
        !getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) && found)
        home = entry.pw_dir;
    return home && home[0] == '/' && realpath(home, ret_real) && ret_real[1] ? ret_real : NULL;
}

/* Where drivers keep what they have built, and how that is called in a client's own folder. */
static const struct {
    const char *variable, *name;
} caches[] = {
    {"POCL_CACHE_DIR", "pocl"},
    {"CUDA_CACHE_PATH", "cuda"},
    {"MESA_SHADER_CACHE_DIR", "mesa"},
};

/* Nobody but who made them can change what they are in. */
int sandbox_own_caches(const char *client)
{
    char home[PATH_MAX], own[PATH_MAX], path[PATH_MAX];
    const char *cache = getenv("XDG_CACHE_HOME"), *is_home = find_home(home);
    bool named = cache && cache[0] == '/';
    if (client[0] == '.' || strchr(client, '/'))
        return -EINVAL;
    if (snprintf(own, sizeof(own), "%s%s/reseat/clients/%s",
                 named     ? cache
                 : is_home ? is_home
                           : "",
                 named ? "" : "/.cache", client) >= (int)sizeof(own))
        return -ENAMETOOLONG;
    /* What its user, and others' sessions, have in /tmp is not for this one to change. */
    if (snprintf(path, sizeof(path), "%s/tmp", own) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    make(path);
    if (access(path, W_OK | X_OK))
        log_warn("%s cannot be written to (%m): drivers may build nothing there; XDG_CACHE_HOME "
                 "names another folder",
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

int sandbox_files(const struct devices *known, const char *authority, bool own_caches)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = READS | WRITES};
    char real[PATH_MAX];
    long version =
        syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) {
        log_info("this kernel does not keep sessions from files: %m");
        return 0;
    }
    attr.handled_access_fs |= version >= 2 ? ACCESS_REFER : 0;
    attr.handled_access_fs |= version >= 3 ? ACCESS_TRUNCATE : 0;
    struct rules rules = {
        .ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0),
        .writes = attr.handled_access_fs & ~(uint64_t)READS,
    };
    if (rules.ruleset < 0)
        return -errno;
    const char *home = find_home(real);
    allow_system(&rules, home, authority);
    allow_drivers(&rules, known);
    allow_devices(&rules);
    allow_writing(&rules, getenv("XDG_CACHE_HOME"), "");
    if (!own_caches) {
        allow_writing(&rules, "/tmp", "");
        allow_writing(&rules, "/var/tmp", "");
        allow_writing(&rules, home, "/.cache");
        allow_writing(&rules, home, "/.nv");
    }
    for (size_t i = 0; i < ARRAY_SIZE(caches); i++)
        allow_writing(&rules, getenv(caches[i].variable), "");
    allow_writing(&rules, getenv("TMPDIR"), "");
    int error = syscall(SYS_landlock_restrict_self, rules.ruleset, 0) ? -errno : 0;
    close(rules.ruleset);
    return error;
}
