#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/landlock.h>

#include "remote/server/sandbox.h"
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

struct rules {
    int ruleset;
    uint64_t writes;
};

/* One that is not there needs no rule. */
static void allow(const struct rules *rules, const char *path, uint64_t access)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr attr = {.allowed_access = access, .parent_fd = fd};
    if (fd < 0)
        return;
    (void)!syscall(SYS_landlock_add_rule, rules->ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0);
    close(fd);
}

static void allow_cache(const struct rules *rules, const char *folder, const char *beneath)
{
    char path[PATH_MAX];
    if (!folder || folder[0] != '/' ||
        snprintf(path, sizeof(path), "%s%s", folder, beneath) >= (int)sizeof(path))
        return;
    /* A driver that would make it could not. */
    (void)!mkdirat(AT_FDCWD, path, 0700);
    allow(rules, path, READS | rules->writes);
}

/* Everything but the user's home, and that of others. */
static void allow_system(const struct rules *rules, const char *home)
{
    DIR *root = opendir("/");
    if (!root)
        return;
    for (struct dirent *entry; (entry = readdir(root));) {
        char path[sizeof(entry->d_name) + 1];
        size_t length = (size_t)snprintf(path, sizeof(path), "/%s", entry->d_name);
        bool holds_home =
            home && !strncmp(home, path, length) && (home[length] == '/' || home[length] == '\0');
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && !holds_home)
            allow(rules, path, READS);
    }
    closedir(root);
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

int sandbox_files(const struct devices *known)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = READS | WRITES};
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
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
    home = home && home[0] == '/' && realpath(home, real) && real[1] ? real : NULL;
    allow_system(&rules, home);
    allow_drivers(&rules, known);
    allow(&rules, "/dev", READS | rules.writes);
    allow(&rules, "/tmp", READS | rules.writes);
    allow(&rules, "/var/tmp", READS | rules.writes);
    allow_cache(&rules, getenv("TMPDIR"), "");
    allow_cache(&rules, getenv("POCL_CACHE_DIR"), "");
    allow_cache(&rules, getenv("CUDA_CACHE_PATH"), "");
    allow_cache(&rules, cache, "");
    allow_cache(&rules, home, "/.cache");
    allow_cache(&rules, home, "/.nv");
    int error = syscall(SYS_landlock_restrict_self, rules.ruleset, 0) ? -errno : 0;
    close(rules.ruleset);
    return error;
}
