#include "tests/remote/contained.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/sockios.h>

#define ZEROS 4096 /* That the memory begins with. */

static long place(struct contained *c, const void *bytes, size_t size)
{
    size_t at = c->used;
    if (at + size > sizeof(c->memory))
        abort();
    memcpy(c->memory + at, bytes, size);
    c->used += (size + 63) / 64 * 64;
    return CONTAINED_AT((long)at);
}

static long text(struct contained *c, const char *string)
{
    return place(c, string, strlen(string) + 1);
}

static void add(struct contained *c, const char *what, const long words[CONTAINED_WORDS])
{
    if (c->count == CONTAINED_MAX)
        abort();
    c->calls[c->count].what = what;
    memcpy(c->calls[c->count++].words, words, sizeof(c->calls->words));
}
#define AT(place)              CONTAINED_AT(place)
#define TRY(what, number, ...) TRY_(what, number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define TRY_(what, number, a1, a2, a3, a4, a5, a6, ...)                                            \
    add(c, what,                                                                                   \
        (const long[]){number, (long)(a1), (long)(a2), (long)(a3), (long)(a4), (long)(a5),         \
                       (long)(a6)})

static void try_descriptors(struct contained *c, const struct contained_targets *t)
{
    const long server = t->server;
    struct {
        int type, pid;
    } owner = {1, (int)server};
    const long at = place(c, &server, sizeof(server)), byte = text(c, "x"),
               of = place(c, &owner, 8);
    for (int fd = 0; fd <= 2; fd++)
        TRY("type into a terminal", SYS_ioctl, fd, TIOCSTI, byte);
    TRY("take a terminal", SYS_ioctl, 0, TIOCSCTTY, 1);
    TRY("empty the log", SYS_ftruncate, 2, 0);
    for (int fd = 2; fd <= 4; fd++) {
        TRY("FIOSETOWN", SYS_ioctl, fd, FIOSETOWN, at);
        TRY("SIOCSPGRP", SYS_ioctl, fd, SIOCSPGRP, at);
        TRY("FIOASYNC", SYS_ioctl, fd, FIOASYNC, at);
        TRY("F_SETOWN", SYS_fcntl, fd, F_SETOWN, server);
        TRY("F_SETOWN_EX", SYS_fcntl, fd, F_SETOWN_EX, of);
        TRY("F_SETSIG", SYS_fcntl, fd, F_SETSIG, SIGTERM);
        TRY("O_ASYNC", SYS_fcntl, fd, F_SETFL, O_ASYNC);
        TRY("F_NOTIFY", SYS_fcntl, fd, F_NOTIFY, 1);
    }
}

static void try_processes(struct contained *c, const struct contained_targets *t)
{
    const long server = t->server;
    const long nothing = AT(0);
    TRY("kill", SYS_kill, server, SIGTERM);
    TRY("kill all", SYS_kill, -1, 0);
    TRY("kill a group", SYS_kill, -server, SIGTERM);
    TRY("tgkill", SYS_tgkill, server, server, SIGTERM);
    TRY("tkill", SYS_tkill, server, SIGTERM);
    TRY("rt_sigqueueinfo", SYS_rt_sigqueueinfo, server, SIGTERM, nothing);
    TRY("rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, server, server, SIGTERM, nothing);
    TRY("pidfd_open", SYS_pidfd_open, server, 0);
    TRY("pidfd_send_signal", SYS_pidfd_send_signal, 0, SIGTERM, 0, 0);
    TRY("pidfd_getfd", SYS_pidfd_getfd, 0, 1, 0);
    TRY("ptrace", SYS_ptrace, PTRACE_ATTACH, server, 0, 0);
    TRY("ptrace of a child", SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
    TRY("process_vm_readv", SYS_process_vm_readv, server, nothing, 1, nothing, 1, 0);
    TRY("process_vm_writev", SYS_process_vm_writev, server, nothing, 1, nothing, 1, 0);
    TRY("process_madvise", SYS_process_madvise, 0, nothing, 1, MADV_COLD, 0);
    TRY("kcmp", SYS_kcmp, server, server, 0, 0, 0);
    TRY("sched_setaffinity", SYS_sched_setaffinity, server, 8, text(c, "\1\0\0\0\0\0\0"));
    TRY("sched_setscheduler", SYS_sched_setscheduler, server, SCHED_IDLE, nothing);
    TRY("sched_setparam", SYS_sched_setparam, server, nothing);
    TRY("sched_setattr", SYS_sched_setattr, server, nothing, 0);
    TRY("setpriority", SYS_setpriority, PRIO_PROCESS, server, 19);
    TRY("ioprio_set", SYS_ioprio_set, 1, server, 3 << 13);
    TRY("prlimit64", SYS_prlimit64, server, RLIMIT_NOFILE, nothing, 0);
    TRY("move_pages", SYS_move_pages, server, 0, 0, 0, 0, 0);
    TRY("migrate_pages", SYS_migrate_pages, server, 1, nothing, nothing);
    TRY("setsid", SYS_setsid, 0);
    TRY("setpgid", SYS_setpgid, 0, server);
    TRY("outlive the server", SYS_prctl, PR_SET_PDEATHSIG, 0);
    TRY("PR_SET_DUMPABLE", SYS_prctl, PR_SET_DUMPABLE, 1);
    TRY("PR_SET_PTRACER", SYS_prctl, PR_SET_PTRACER, server);
    TRY("PR_SET_MM", SYS_prctl, PR_SET_MM, 1, 0);
    TRY("PR_SET_CHILD_SUBREAPER", SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
    TRY("get_robust_list", SYS_get_robust_list, server, nothing, nothing);
}

static void open_one(struct contained *c, const char *what, const char *path, int flags)
{
    TRY(what, SYS_openat, AT_FDCWD, text(c, path), flags, 0600);
}

static void try_files(struct contained *c, const struct contained_targets *t)
{
    const long server = t->server;
    const long revoked = text(c, t->revoked), theirs = text(c, t->file), key = text(c, t->key);
    const long mine = text(c, "/tmp/contained-mine");
    char path[64];
    TRY("chmod", SYS_chmod, revoked, 0644);
    TRY("chmod of a key", SYS_chmod, key, 0644);
    TRY("fchmodat", SYS_fchmodat, AT_FDCWD, revoked, 0644);
    TRY("chown", SYS_chown, revoked, 1, 1);
    TRY("lchown", SYS_lchown, revoked, 1, 1);
    TRY("fchownat", SYS_fchownat, AT_FDCWD, revoked, 1, 1, 0);
    TRY("setxattr", SYS_setxattr, revoked, text(c, "user.x"), text(c, "y"), 1, 0);
    TRY("lsetxattr", SYS_lsetxattr, revoked, text(c, "user.x"), text(c, "y"), 1, 0);
    TRY("utimensat", SYS_utimensat, AT_FDCWD, revoked, 0, 0);
    TRY("utime", SYS_utime, revoked, 0);
    TRY("truncate", SYS_truncate, revoked, 0);
    TRY("truncate a file in /tmp", SYS_truncate, theirs, 0);
    TRY("unlink in /tmp", SYS_unlink, theirs);
    TRY("rename in /tmp", SYS_rename, theirs, mine);
    TRY("link", SYS_link, theirs, mine);
    TRY("symlink", SYS_symlink, theirs, text(c, "/dev/shm/link"));
    TRY("mkdir in /tmp", SYS_mkdir, mine, 0700);
    TRY("mknod", SYS_mknod, text(c, "/dev/shm/node"), S_IFCHR | 0600, 0x103);
    TRY("a socket file", SYS_mknod, text(c, "/dev/shm/socket"), S_IFSOCK | 0600, 0);
    TRY("a set-user-id file", SYS_openat, AT_FDCWD, text(c, "/dev/shm/suid"), O_CREAT | O_WRONLY,
        04755);
    TRY("a set-user-id file by creat", SYS_creat, text(c, "/dev/shm/suid"), 04755);
    open_one(c, "empty by O_TRUNC", t->revoked, O_RDONLY | O_TRUNC);
    open_one(c, "read revoked", t->revoked, O_RDONLY);
    open_one(c, "read ca.key", t->key, O_RDONLY);
    open_one(c, "/etc/shadow", "/etc/shadow", O_RDONLY);
    open_one(c, "a new file in /etc", "/etc/contained", O_CREAT | O_WRONLY);
    open_one(c, "a file in /tmp", t->file, O_RDONLY);
    open_one(c, "a new file in /tmp", "/tmp/contained-mine", O_CREAT | O_WRONLY);
    open_one(c, "/run", "/run", O_RDONLY | O_DIRECTORY);
    open_one(c, "/root", "/root", O_RDONLY | O_DIRECTORY);
    open_one(c, "/home", "/home", O_RDONLY | O_DIRECTORY);
    open_one(c, "/var", "/var/log", O_RDONLY | O_DIRECTORY);
    open_one(c, "others' shared memory", t->shared, O_RDWR);
    for (const char *const *name =
             (const char *const[]){"cmdline", "environ", "mem", "maps", "fd", "status", NULL};
         *name; name++) {
        snprintf(path, sizeof(path), "/proc/%ld/%s", server, *name);
        open_one(c, "/proc of the server", path, O_RDONLY);
    }
    open_one(c, "/proc of init", "/proc/1/cmdline", O_RDONLY);
    open_one(c, "all processes", "/proc", O_RDONLY | O_DIRECTORY);
    open_one(c, "write oom_score_adj", "/proc/self/oom_score_adj", O_WRONLY);
    open_one(c, "write to /proc/sys", "/proc/sys/kernel/core_pattern", O_WRONLY);
    for (const char *const *node =
             (const char *const[]){"tty", "tty1", "kmsg", "mem", "kvm", "fuse", "ptmx", "loop0",
                                   "loop-control", "net/tun", "snd", "video0", "fb0", "vfio",
                                   "input", "hwrng", "nvidia0", NULL};
         *node; node++) {
        snprintf(path, sizeof(path), "/dev/%s", *node);
        open_one(c, "a device", path, O_RDWR);
    }
    TRY("openat2", SYS_openat2, AT_FDCWD, text(c, "/etc/shadow"), AT(0), 24);
    TRY("name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, revoked, AT(0), AT(0), 0);
    TRY("open_by_handle_at", SYS_open_by_handle_at, AT_FDCWD, AT(0), 0);
}

static void try_machine(struct contained *c)
{
    const long nothing = AT(0), root = text(c, "/"), tmp = text(c, "/tmp"), none = text(c, "none");
    TRY("mount", SYS_mount, none, tmp, text(c, "tmpfs"), 0, 0);
    TRY("umount2", SYS_umount2, text(c, "/dev/shm"), MNT_DETACH);
    TRY("unshare", SYS_unshare, CLONE_NEWUSER);
    TRY("clone into a user namespace", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    TRY("clone3", SYS_clone3, nothing, 88);
    TRY("setns", SYS_setns, 0, 0);
    TRY("pivot_root", SYS_pivot_root, root, tmp);
    TRY("chroot", SYS_chroot, tmp);
    TRY("open_tree", SYS_open_tree, AT_FDCWD, root, 1);
    TRY("fsopen", SYS_fsopen, text(c, "tmpfs"), 0);
    TRY("move_mount", SYS_move_mount, AT_FDCWD, root, AT_FDCWD, tmp, 0);
    TRY("keyctl", SYS_keyctl, 0, -3, 1);
    TRY("add_key", SYS_add_key, text(c, "user"), text(c, "k"), text(c, "v"), 1, -3);
    TRY("request_key", SYS_request_key, text(c, "user"), text(c, "k"), 0, 0);
    TRY("bpf", SYS_bpf, 0, nothing, 48);
    TRY("io_uring_setup", SYS_io_uring_setup, 4, nothing);
    TRY("userfaultfd", SYS_userfaultfd, 1);
    TRY("perf_event_open", SYS_perf_event_open, nothing, 0, -1, -1, 0);
    TRY("init_module", SYS_init_module, nothing, 0, nothing);
    TRY("kexec_load", SYS_kexec_load, 0, 0, 0, 0);
    TRY("reboot", SYS_reboot, 0xfee1dead, 672274793, 0, 0);
    TRY("sethostname", SYS_sethostname, text(c, "x"), 1);
    TRY("clock_settime", SYS_clock_settime, 0, nothing);
    TRY("swapon", SYS_swapon, tmp, 0);
    TRY("acct", SYS_acct, 0);
    TRY("syslog", SYS_syslog, 3, nothing, 16);
    TRY("iopl", SYS_iopl, 3);
    TRY("quotactl", SYS_quotactl, 0, root, 0, nothing);
    TRY("fanotify_init", SYS_fanotify_init, 0, 0);
    TRY("personality", SYS_personality, 0x40000);
    TRY("setuid", SYS_setuid, 0);
    TRY("setresuid", SYS_setresuid, 0, 0, 0);
    TRY("setgid", SYS_setgid, 0);
    TRY("setgroups", SYS_setgroups, 0, nothing);
    TRY("capset", SYS_capset, nothing, nothing);
    TRY("shmget", SYS_shmget, 0x7f3a, 4096, 01600);
    TRY("semget", SYS_semget, 0x7f3a, 1, 01600);
    TRY("msgget", SYS_msgget, 0x7f3a, 01600);
    TRY("mq_open", SYS_mq_open, text(c, "contained"), O_CREAT | O_RDWR, 0600, 0);
    TRY("as much memory as there is", SYS_mmap, 0,
        2 * sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TRY("as much shared memory as there is", SYS_fallocate, 4, 0, 0, 1L << 40);
}

static void try_sockets(struct contained *c)
{
    const struct sockaddr here = {.sa_family = AF_UNIX, .sa_data = "\0abstract"};
    const long at = place(c, &here, sizeof(here));
    for (int family = AF_UNIX; family <= AF_VSOCK; family++)
        TRY("socket", SYS_socket, family, SOCK_STREAM, 0);
    TRY("socket of names", SYS_socket, AF_INET, SOCK_DGRAM, 0);
    TRY("a pair of datagrams", SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, AT(64));
    TRY("connect", SYS_connect, 4, at, sizeof(here));
    TRY("bind", SYS_bind, 4, at, sizeof(here));
    TRY("listen", SYS_listen, 4, 1);
    TRY("accept", SYS_accept, 4, 0, 0);
}

void contained_fill(struct contained *c, const struct contained_targets *t)
{
    c->count = 0;
    c->used = ZEROS;
    try_descriptors(c, t);
    try_processes(c, t);
    try_files(c, t);
    try_machine(c);
    try_sockets(c);
}

void contained_open(struct contained *c, const char *path)
{
    TRY("a file of its own", SYS_openat, AT_FDCWD, text(c, path), O_CREAT | O_RDWR, 0600);
}

void contained_write(struct contained *c, const char *line)
{
    TRY("a line of the log", SYS_write, STDERR_FILENO, text(c, line), strlen(line));
}
