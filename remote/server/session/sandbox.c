#include "remote/server/session/sandbox.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

#include "state/base/log.h"

/* Nobody's of a session, at any time. What the kernel, or the library, does not know is passed
   over. */
static const char *const never[] = {
    /* Other processes. */
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "pidfd_getfd",
    "pidfd_send_signal",
    "tkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "perf_event_open",
    "move_pages",
    "migrate_pages",
    "setpgid",
    "setsid",
    /* Files, by other ways than their names. */
    "mount",
    "umount",
    "umount2",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "pivot_root",
    "chroot",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "mknod",
    "mknodat",
    "quotactl",
    "quotactl_fd",
    "swapon",
    "swapoff",
    "acct",
    /* The machine. */
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    "syslog",
    "iopl",
    "ioperm",
    "vhangup",
    "bpf",
    "lookup_dcookie",
    "nfsservctl",
    /* Ways around what is forbidden, and what drivers have no use for. */
    "unshare",
    "setns",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "uselib",
    "ustat",
    "sysfs",
    "modify_ldt",
    "vm86",
    "vm86old",
    "personality",
};

/* Nobody's once the drivers are open. */
static const char *const no_listening[] = {"bind", "listen", "accept", "accept4"};
static const char *const no_programs[] = {"execve", "execveat"};

/* All of a relay's, and of a sanitizer's where a thread begins and where it ends. */
static const char *const relays[] = {
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "write",
    "writev",
    "sendto",
    "sendmsg",
    "poll",
    "ppoll",
    "close",
    "shutdown",
    "futex",
    "clock_gettime",
    "clock_nanosleep",
    "nanosleep",
    "restart_syscall",
    "exit",
    "exit_group",
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "getrandom",
    "rt_sigreturn",
    "rt_sigprocmask",
    "getpid",
    "gettid",
    "fcntl",
    "lseek",
    "fstat",
    "newfstatat",
    "getsockopt",
    "setsockopt",
    "sched_yield",
    "sigaltstack",
    "rseq",
    "set_robust_list",
    "sched_getaffinity",
};

static int add_all(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t count)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < count; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        if (number >= 0) /* Below are those of other machines. */
            error = seccomp_rule_add(filter, action, number, 0);
    }
    return error;
}

/* For all threads; what is refused the kernel's log names. */
static int load(scmp_filter_ctx filter, int error)
{
    if (error == 0)
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
    if (error == 0)
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (error == 0)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error;
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        (void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* Who may not has none to lose. */
    return syscall(SYS_capset, &header, none) ? -errno : 0;
}

int sandbox_begin(void)
{
    static const uint64_t spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    const uint32_t denied = SCMP_ACT_ERRNO(EPERM);
    int error = drop_capabilities();
    scmp_filter_ctx filter = error ? NULL : seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return error ? error : -ENOMEM;
    error = add_all(filter, denied, never, ARRAY_SIZE(never));
    for (int bit = 0; error == 0 && bit < 64; bit++)
        if (spaces >> bit & 1)
            error = seccomp_rule_add(
                filter, denied, SCMP_SYS(clone), 1,
                SCMP_A0(SCMP_CMP_MASKED_EQ, UINT64_C(1) << bit, UINT64_C(1) << bit));
    /* Its flags are in memory, where no filter looks. Who gets this answer uses clone(). */
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* Signals go to nobody else. */
    const scmp_datum_t self = (scmp_datum_t)getpid();
    if (error == 0)
        error = seccomp_rule_add(filter, denied, SCMP_SYS(kill), 1, SCMP_A0(SCMP_CMP_NE, self));
    if (error == 0)
        error = seccomp_rule_add(filter, denied, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_NE, self));
    /* Nor limits. */
    if (error == 0)
        error = seccomp_rule_add(filter, denied, SCMP_SYS(prlimit64), 1, SCMP_A0(SCMP_CMP_NE, 0));
    /* It ends with the server, whatever becomes of that. */
    if (error == 0)
        error = seccomp_rule_add(filter, denied, SCMP_SYS(prctl), 1,
                                 SCMP_A0(SCMP_CMP_EQ, PR_SET_PDEATHSIG));
    return load(filter, error);
}

int sandbox_processes(int *ret_notices)
{
    static const char *const others[] = {"fork", "vfork"};
    if (seccomp_api_get() < 5) /* The level that has notices. */
        return -ENOSYS;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return -ENOMEM;
    int error = add_all(filter, SCMP_ACT_NOTIFY, others, ARRAY_SIZE(others));
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    if (error == 0)
        error = seccomp_load(filter);
    int notices = error ? error : seccomp_notify_fd(filter);
    seccomp_release(filter);
    if (notices < 0)
        return notices;
    *ret_notices = notices;
    return 0;
}

/* Buffers go to other servers by links that the session begins itself (passage.h): sockets are for
   networks, and so is what they are connected with. The kernel reads 32 bits of a family, and a
   filter 64: all above are forbidden. */
static int add_sockets(scmp_filter_ctx filter)
{
    int error = 0;
    for (unsigned family = 0; error == 0 && family < AF_MAX; family++)
        if (family != AF_INET && family != AF_INET6 && family != AF_VSOCK)
            error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                                     SCMP_A0(SCMP_CMP_EQ, family));
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                                 SCMP_A0(SCMP_CMP_GE, AF_MAX));
    /* One of a pair of datagrams could be connected with, or send to, any of its user's. */
    for (int type = SOCK_DGRAM; error == 0 && type <= SOCK_RAW; type++)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socketpair), 1,
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, (scmp_datum_t)type));
    return error;
}

int sandbox_calls(const struct server *server)
{
    const uint32_t denied = SCMP_ACT_ERRNO(EPERM);
    bool runs = false;
    for (size_t i = 0; i < server->device_count; i++)
        runs |= !(server->devices[i]->quirks & QUIRK_COMPILES_INSIDE);
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return -ENOMEM;
    int error = add_all(filter, denied, no_listening, ARRAY_SIZE(no_listening));
    if (error == 0)
        error = add_sockets(filter);
    if (error == 0 && !runs)
        error = add_all(filter, denied, no_programs, ARRAY_SIZE(no_programs));
    return load(filter, error);
}

int sandbox_relay(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!filter)
        return -ENOMEM;
    return load(filter, add_all(filter, SCMP_ACT_ALLOW, relays, ARRAY_SIZE(relays)));
}
