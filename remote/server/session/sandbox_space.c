#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/server/session/sandbox.h"

/*
 * User ids of sessions are USER_BASE plus the process id, which is unique while the process lives
 * and has at most 22 bits. Neither people nor services (systemd's end at 65519) nor containers (up
 * to 0x6fffffff) have ids in this range.
 */
#define USER_BASE 0x70000000

/* Options of the session's /dev/shm: at most a quarter of the host's memory. */
#define SHARED_MEMORY "mode=1777,size=25%"
/* Limits of threads and processes: a CPU driver has a thread for each processor. */
#define TASKS_BASE        512
#define TASKS_EACH        4
#define FILE_SIZE_MAX     ((rlim_t)16 << 30)
#define SUPPLEMENTARY_MAX 16
#define NODE_PATH_MAX     300

static bool has_memory, is_nobody;

bool sandbox_has_memory(void)
{
    return has_memory;
}

bool sandbox_is_nobody(void)
{
    return is_nobody;
}

/* ---- namespaces ---- */

static int sandbox_space_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
    close(fd);
    return error;
}

/* Map only the present user and group, to themselves. */
static int sandbox_space_map_user(uid_t user, gid_t group)
{
    char text[64];
    int error = sandbox_space_put("/proc/self/setgroups", "deny");
    snprintf(text, sizeof(text), "%u %u 1", user, user);
    if (error == 0)
        error = sandbox_space_put("/proc/self/uid_map", text);
    snprintf(text, sizeof(text), "%u %u 1", group, group);
    return error ? error : sandbox_space_put("/proc/self/gid_map", text);
}

/* Keep mounts of this namespace from propagating to others. In a chroot, / is often no mount, so
 * its propagation cannot be changed; then that of a mount below is changed. */
static int sandbox_space_hide_mounts(void)
{
    static const char *const mounts[] = {"/", "/dev/shm", "/dev"};
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
        if (mount(NULL, mounts[i], NULL, MS_REC | MS_SLAVE, NULL) == 0)
            return 0;
        else if (errno != EINVAL) /* EINVAL: it is no mount. Any other error is final. */
            break;
    return -errno;
}

int sandbox_space(void)
{
    const int spaces = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS;
    const uid_t user = geteuid();
    const gid_t group = getegid();
    if (unshare(user ? spaces | CLONE_NEWUSER : spaces))
        return -errno;
    int error = user ? sandbox_space_map_user(user, group) : 0;
    if (error == 0)
        error = sandbox_space_hide_mounts();
    if (error == 0 && mount("reseat", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, SHARED_MEMORY))
        error = -errno;
    has_memory = error == 0;
    return error;
}

/* ---- the session's user ---- */

struct groups {
    gid_t ids[SUPPLEMENTARY_MAX];
    size_t count;
};

/* Add the group of a node which the group may open, but not everybody. */
static void sandbox_space_add_group(void *data, const char *path)
{
    struct groups *groups = data;
    struct stat stat_;
    if (stat(path, &stat_) || !S_ISCHR(stat_.st_mode) || stat_.st_gid == 0 ||
        (stat_.st_mode & 0006) == 0006 || (stat_.st_mode & 0060) != 0060)
        return;
    for (size_t i = 0; i < groups->count; i++)
        if (groups->ids[i] == stat_.st_gid)
            return;
    if (groups->count < SUPPLEMENTARY_MAX)
        groups->ids[groups->count++] = stat_.st_gid;
}

int sandbox_become(const struct devices *known, const struct grant *grant)
{
    const uid_t user = USER_BASE + (uid_t)getpid();
    struct groups groups = {0};
    sandbox_each_node(known, grant, sandbox_space_add_group, &groups);
    if (setgroups(groups.count, groups.ids) || setresgid(user, user, user) ||
        setresuid(user, user, user))
        return -errno;
    is_nobody = true;
    /* The kernel resets both when the user changes. Drivers read /proc/self. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_DUMPABLE, 1) ? -errno : 0;
}

int sandbox_leave_root(void)
{
    static const struct devices none;
    const struct grant all = GRANT_ALL;
    return geteuid() ? 0 : sandbox_become(&none, &all);
}

int sandbox_try(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        const struct grant all = GRANT_ALL;
        int error = sandbox_space();
        if (error == 0)
            error = sandbox_become(NULL, &all);
        _exit(-error & 0xff);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

/* ---- bounds ---- */

/* Private writable memory of the process now, to which the limit is added: sanitizers reserve a
 * lot. */
static rlim_t sandbox_space_data_now(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int sandbox_space_bound(int what, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(what, &limit))
        return -errno;
    if (limit.rlim_max > most)
        limit.rlim_max = most;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    return setrlimit(what, &limit) ? -errno : 0;
}

int sandbox_bounds(void)
{
    const rlim_t memory = (rlim_t)sysconf(_SC_PHYS_PAGES) * (rlim_t)sysconf(_SC_PAGESIZE);
    const rlim_t tasks = TASKS_BASE + TASKS_EACH * (rlim_t)sysconf(_SC_NPROCESSORS_CONF);
    int error = sandbox_space_bound(RLIMIT_DATA, sandbox_space_data_now() + memory);
    if (error == 0)
        error = sandbox_space_bound(RLIMIT_FSIZE, FILE_SIZE_MAX);
    if (error == 0)
        error = sandbox_space_bound(RLIMIT_MSGQUEUE, 0);
    /* Without a user namespace, the limit would count all processes of the server's user. */
    return error == 0 && has_memory ? sandbox_space_bound(RLIMIT_NPROC, tasks) : error;
}

/* ---- device nodes ---- */

/* Nodes that drivers open in addition to the device's own, by the beginning of the platform's name
 * and the kind of device. */
static const struct {
    const char *platform, *kind, *node;
} nodes[] = {
    {"NVIDIA", "gpu", "nvidiactl"},
    {"NVIDIA", "gpu", "nvidia-uvm"},
    {"NVIDIA", "gpu", "nvidia-uvm-tools"},
    {"NVIDIA", "gpu", "nvidia-modeset"},
    {"NVIDIA", "gpu", "nvidia-caps"},
    {"NVIDIA", "gpu", "nvidia-caps-imex-channels"},
    {"", "gpu", "dri"},
    {"AMD", "gpu", "kfd"},
    {"Intel", "other", "accel"},
    {"Intel", "other", "intel-fpga*"},
    {"Intel", "other", "aclpci*"},
    {"Xilinx", "other", "dri"},
    {"Xilinx", "other", "xfpga"},
};

/* The node of the GPU with that PCI address, as NVIDIA's driver tells; NULL: not known. */
static const char *sandbox_space_find_nvidia(const char *pci, char ret_path[NODE_PATH_MAX])
{
    char path[NODE_PATH_MAX], line[128];
    unsigned minor = 0;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", pci);
    FILE *file = pci[0] ? fopen(path, "re") : NULL;
    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, "Device Minor: %u", &minor) == 1;
    if (file)
        fclose(file);
    snprintf(ret_path, NODE_PATH_MAX, "/dev/nvidia%u", minor);
    return found ? ret_path : NULL;
}

static void sandbox_space_each_matching(const char *pattern,
                                        void (*each)(void *data, const char *path), void *data)
{
    DIR *folder = opendir("/dev");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[NODE_PATH_MAX];
        if (entry->d_name[0] == '.' || fnmatch(pattern, entry->d_name, 0))
            continue;
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        each(data, path);
    }
    if (folder)
        closedir(folder);
}

static void sandbox_space_each_of(const struct device_row *row,
                                  void (*each)(void *data, const char *path), void *data)
{
    char path[NODE_PATH_MAX];
    const bool nvidia = !row || !strncmp(row->key.platform, "NVIDIA", strlen("NVIDIA"));
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        const bool same =
            !row || (!strncmp(row->name, nodes[i].kind, strlen(nodes[i].kind)) &&
                     !strncmp(row->key.platform, nodes[i].platform, strlen(nodes[i].platform)));
        if (same && !(row && nvidia && !nodes[i].platform[0]))
            sandbox_space_each_matching(nodes[i].node, each, data);
    }
    if (!nvidia)
        return;
    if (row && sandbox_space_find_nvidia(row->key.pci, path))
        each(data, path);
    else
        sandbox_space_each_matching("nvidia[0-9]*", each, data);
}

void sandbox_each_node(const struct devices *known, const struct grant *grant,
                       void (*each)(void *data, const char *path), void *data)
{
    if (!known)
        sandbox_space_each_of(NULL, each, data);
    for (size_t i = 0; known && i < known->count; i++)
        if (grant_has_device(grant, known->rows[i].name))
            sandbox_space_each_of(&known->rows[i], each, data);
}
