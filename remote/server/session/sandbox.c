#include "remote/server/session/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <linux/capability.h>

#include "state/base/log.h"

/* Each step allows less than the one before. Filters add up: all that were loaded must allow a
 * call. */
enum step { STEP_GREETING, STEP_OPENING, STEP_RUNNING };

/* What drivers, compilers and linkers need at work: memory, threads, time, and files that are open
 * or may be opened. None of these calls reaches another process. Names that this kernel or
 * libseccomp does not know are skipped. */
static const char running[] =
    "read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek _llseek "
    "sendfile copy_file_range recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg recv send "
    "getsockopt setsockopt getsockname getpeername shutdown poll ppoll select pselect6 "
    "epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd "
    "eventfd2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4 inotify_init "
    "inotify_init1 inotify_add_watch inotify_rm_watch pipe pipe2 dup dup2 dup3 close "
    "close_range stat stat64 lstat lstat64 fstat fstat64 fstatat64 newfstatat statx access "
    "faccessat faccessat2 readlink readlinkat statfs statfs64 fstatfs fstatfs64 getdents "
    "getdents64 getcwd chdir fchdir umask mkdir mkdirat rmdir rename renameat renameat2 "
    "unlink unlinkat ftruncate ftruncate64 fallocate flock fsync fdatasync sync_file_range "
    "readahead fadvise64 brk mmap mmap2 munmap mremap mprotect madvise msync mincore mlock "
    "mlock2 munlock membarrier memfd_create pkey_alloc pkey_free pkey_mprotect get_mempolicy "
    "set_mempolicy set_mempolicy_home_node mbind futex futex_time64 futex_waitv "
    "set_robust_list set_tid_address rseq arch_prctl exit exit_group wait4 waitid fork vfork "
    "rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigreturn "
    "sigreturn sigaltstack restart_syscall pause nanosleep clock_nanosleep clock_gettime "
    "clock_gettime64 clock_getres gettimeofday time times alarm getitimer setitimer "
    "timer_create timer_settime timer_gettime timer_getoverrun timer_delete getpid getppid "
    "gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getpgid "
    "getsid getrlimit setrlimit ugetrlimit getrusage getpriority sysinfo uname getcpu "
    "getrandom capget sched_yield sched_getaffinity sched_getparam sched_getscheduler "
    "sched_getattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval";

/* Needed until the drivers are open: some connect to daemons, or look for them. */
static const char opening[] =
    "connect bind listen accept accept4 seccomp capset landlock_create_ruleset "
    "landlock_add_rule landlock_restrict_self";

/* Needed until the client is admitted, to change user and namespaces. */
static const char greeting[] =
    "unshare mount setresuid setresgid setgroups setresuid32 setresgid32 setgroups32 "
    "pidfd_open";

static const char programs[] = "execve execveat";

/* What a relay needs, and a sanitizer when a thread begins or ends. */
static const char relays[] =
    "read readv recvfrom recvmsg write writev sendto sendmsg poll ppoll close shutdown futex "
    "clock_gettime clock_nanosleep nanosleep restart_syscall exit exit_group brk mmap munmap "
    "mremap mprotect madvise getrandom rt_sigreturn rt_sigprocmask getpid gettid fcntl lseek "
    "fstat newfstatat getsockopt setsockopt sched_yield sigaltstack rseq set_robust_list "
    "sched_getaffinity";

static bool shows_denied;

/* Allow calls by their names, which blanks separate. */
static int sandbox_add_all(scmp_filter_ctx filter, const char *names)
{
    char *copy = strdup(names), *rest = copy;
    int error = copy ? 0 : -ENOMEM;
    for (char *name; error == 0 && (name = strsep(&rest, " "));) {
        int number = seccomp_syscall_resolve_name(name);
        if (number >= 0) /* Negative numbers: the call does not exist on this architecture. */
            error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
    }
    free(copy);
    return error;
}

/* Allow a call if one of its arguments is @value in the bits of @mask. */
static int sandbox_add_masked(scmp_filter_ctx filter, const char *name, unsigned argument,
                              uint64_t mask, uint64_t value)
{
    int number = seccomp_syscall_resolve_name(name);
    return number < 0 ? 0
                      : seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1,
                                         SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, mask, value));
}

/* The kernel reads 32 bits of these arguments, but a filter compares 64. */
#define WORD UINT64_C(0xffffffff)

/* Allow the ioctls of devices by the letter in their numbers: NVIDIA's, DRM's, AMD's, shared
 * buffers and their fences; NVIDIA's unified memory has no letter. And what the C library asks of
 * descriptors. Not allowed: terminals, sockets, and changes of who gets signals. */
static int sandbox_add_ioctl(scmp_filter_ctx filter)
{
    static const uint64_t letters[] = {0, 'F', 'd', 'K', 'b', '>'};
    /* The first and last call of unified memory, then those of the C library. */
    static const uint64_t numbers[] = {0x30000001, 0x30000002, TCGETS,  TIOCGWINSZ,
                                       FIONREAD,   FIONBIO,    FIOCLEX, FIONCLEX};
    int error = sandbox_add_masked(filter, "ioctl", 1, 0xffffff00, 0);
    for (size_t i = 1; error == 0 && i < ARRAY_SIZE(letters); i++)
        error = sandbox_add_masked(filter, "ioctl", 1, 0xff00, letters[i] << 8);
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(numbers); i++)
        error = sandbox_add_masked(filter, "ioctl", 1, WORD, numbers[i]);
    return error;
}

/* Not allowed: to choose who gets a descriptor's signals, by which any process could be signalled
 * without kill(2). */
static int sandbox_add_fcntl(scmp_filter_ctx filter)
{
    static const uint64_t commands[] = {F_DUPFD,     F_DUPFD_CLOEXEC, F_GETFD,      F_SETFD,
                                        F_GETFL,     F_GETLK,         F_SETLK,      F_SETLKW,
                                        F_OFD_GETLK, F_OFD_SETLK,     F_OFD_SETLKW, F_GETPIPE_SZ,
                                        F_ADD_SEALS, F_GET_SEALS};
    int error = 0;
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(commands); i++)
        error = sandbox_add_masked(filter, "fcntl", 1, WORD, commands[i]);
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 2,
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, WORD, F_SETFL),
                                 SCMP_A2(SCMP_CMP_MASKED_EQ, O_ASYNC, 0));
    return error;
}

/* No set-user-id files. And O_TRUNC only with write access: Landlock controls truncation only since
 * Linux 6.2. */
static int sandbox_add_open_of(scmp_filter_ctx filter, int number, unsigned flags)
{
    const uint64_t how = O_TRUNC | O_ACCMODE;
    const struct scmp_arg_cmp mode =
        SCMP_CMP(flags + 1, SCMP_CMP_MASKED_EQ, S_ISUID | S_ISGID | S_ISVTX, 0);
    int error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 2,
                                 SCMP_CMP(flags, SCMP_CMP_MASKED_EQ, O_TRUNC, 0), mode);
    for (uint64_t access = O_WRONLY; error == 0 && access <= O_RDWR; access++)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 2,
                                 SCMP_CMP(flags, SCMP_CMP_MASKED_EQ, how, O_TRUNC | access), mode);
    return error;
}

static int sandbox_add_open(scmp_filter_ctx filter)
{
    int error = sandbox_add_open_of(filter, SCMP_SYS(openat), 2);
    if (error == 0 && seccomp_syscall_resolve_name("open") >= 0)
        error = sandbox_add_open_of(filter, seccomp_syscall_resolve_name("open"), 1);
    return error ? error : sandbox_add_masked(filter, "creat", 1, S_ISUID | S_ISGID | S_ISVTX, 0);
}

/* Options that concern the process itself. */
static int sandbox_add_prctl(scmp_filter_ctx filter)
{
    static const uint64_t options[] = {PR_SET_NAME,         PR_GET_NAME,         PR_GET_DUMPABLE,
                                       PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS, PR_GET_SECCOMP,
                                       PR_CAPBSET_READ,     PR_GET_PDEATHSIG,    PR_SET_VMA,
                                       PR_SET_TIMERSLACK,   PR_GET_TIMERSLACK};
    int error = 0;
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(options); i++)
        error = sandbox_add_masked(filter, "prctl", 0, WORD, options[i]);
    return error;
}

/* Threads and processes without new namespaces; signals, limits and affinity of the process itself.
 */
static int sandbox_add_tasks(scmp_filter_ctx filter)
{
    static const uint64_t spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    const uint64_t self = (uint64_t)getpid();
    int error = sandbox_add_masked(filter, "clone", 0, spaces, 0);
    /* The flags of clone3() are in memory, which a filter cannot read. After ENOSYS, the C library
     * uses clone(). */
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (error == 0)
        error = sandbox_add_masked(filter, "kill", 0, WORD, self);
    if (error == 0)
        error = sandbox_add_masked(filter, "tgkill", 0, WORD, self);
    if (error == 0)
        error = sandbox_add_masked(filter, "prlimit64", 0, WORD, 0);
    if (error == 0)
        error = sandbox_add_masked(filter, "sched_setaffinity", 0, WORD, 0);
    /* Only the query. */
    return error ? error : sandbox_add_masked(filter, "personality", 0, WORD, WORD);
}

/* A datagram socket of a pair could be connected to, or send to, any socket of the user. */
static int sandbox_add_pairs(scmp_filter_ctx filter)
{
    int error = sandbox_add_masked(filter, "socketpair", 1, 0xf, SOCK_STREAM);
    return error ? error : sandbox_add_masked(filter, "socketpair", 1, 0xf, SOCK_SEQPACKET);
}

static void sandbox_on_denied(int number, siginfo_t *info, void *context)
{
    static _Atomic uint64_t told[16];
    uint64_t call = (uint64_t)info->si_syscall, bit = UINT64_C(1) << call % 64;
    ucontext_t *where = context;
    (void)number;
#if defined(__x86_64__)
    const unsigned long long first = (unsigned long long)where->uc_mcontext.gregs[REG_RDI],
                             second = (unsigned long long)where->uc_mcontext.gregs[REG_RSI];
    where->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
    const unsigned long long first = where->uc_mcontext.regs[0],
                             second = where->uc_mcontext.regs[1];
    where->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#else
    const unsigned long long first = 0, second = 0;
    (void)where;
#endif
    if (call < 64 * ARRAY_SIZE(told) && (atomic_fetch_or(&told[call / 64], bit) & bit))
        return;
    const char *name =
        /* Not freed: this is a signal handler. */
        seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)call);
    log_warn("denied: system call %d (%s), arguments 0x%llx, 0x%llx", (int)call,
             name ? name : "unknown", first, second);
}

int sandbox_show_denied(void)
{
    struct sigaction action = {.sa_sigaction = sandbox_on_denied,
                               .sa_flags = SA_SIGINFO | SA_NODEFER};
    shows_denied = true;
    return sigaction(SIGSYS, &action, NULL) ? -errno : 0;
}

/* Load for all threads; the kernel logs what is denied. */
static int sandbox_load(scmp_filter_ctx filter, int error)
{
    if (error == 0)
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
    if (error == 0)
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (error == 0) /* A binary tree: a list of this length would be slow. */
        (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (error == 0)
        error = seccomp_load(filter);
    seccomp_release(filter);
    return error;
}

static int sandbox_allow_step(enum step step, bool runs)
{
    scmp_filter_ctx filter = seccomp_init(shows_denied ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(EPERM));
    if (!filter)
        return -ENOMEM;
    int error = sandbox_add_all(filter, running);
    if (error == 0 && step <= STEP_OPENING)
        error = sandbox_add_all(filter, opening);
    if (error == 0 && step <= STEP_GREETING)
        error = sandbox_add_all(filter, greeting);
    if (error == 0 && runs)
        error = sandbox_add_all(filter, programs);
    int (*const parts[])(scmp_filter_ctx) = {sandbox_add_ioctl, sandbox_add_fcntl, sandbox_add_open,
                                             sandbox_add_tasks, sandbox_add_pairs};
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(parts); i++)
        error = parts[i](filter);
    if (error == 0)
        error = step == STEP_GREETING ? seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 0)
                                      : sandbox_add_prctl(filter);
    if (error == 0 && step <= STEP_OPENING)
        error = sandbox_add_masked(filter, "socket", 0, WORD, AF_UNIX);
    /* The flags of openat2() are in memory, too; callers go on with openat(). */
    if (error == 0 && seccomp_syscall_resolve_name("openat2") >= 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS),
                                 seccomp_syscall_resolve_name("openat2"), 0);
    return sandbox_load(filter, error);
}

/* Drop all capabilities but those of @kept, a bit mask. */
static int sandbox_drop_capabilities(uint32_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capget, &header, sets))
        return -errno;
    kept &= sets[0].permitted;
    memset(sets, 0, sizeof(sets));
    sets[0].effective = sets[0].permitted = kept;
    for (int i = 0; kept == 0 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        /* Fails without CAP_SETPCAP; then there is none to lose. */
        (void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    return syscall(SYS_capset, &header, sets) ? -errno : 0;
}

int sandbox_begin(void)
{
    int error = sandbox_drop_capabilities(1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_SETPCAP);
    return error ? error : sandbox_allow_step(STEP_GREETING, true);
}

int sandbox_admitted(void)
{
    int error = sandbox_drop_capabilities(0);
    return error ? error : sandbox_allow_step(STEP_OPENING, true);
}

int sandbox_processes(int *ret_notices)
{
    static const char *const others[] = {"fork", "vfork"};
    if (seccomp_api_get() < 5) /* The first API level with notifications. */
        return -ENOSYS;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; error == 0 && i < ARRAY_SIZE(others); i++)
        if (seccomp_syscall_resolve_name(others[i]) >= 0)
            error = seccomp_rule_add(filter, SCMP_ACT_NOTIFY,
                                     seccomp_syscall_resolve_name(others[i]), 0);
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

int sandbox_calls(const struct server *server)
{
    bool runs = false;
    for (size_t i = 0; i < server->device_count; i++)
        runs |= !(server->devices[i]->quirks & QUIRK_COMPILES_INSIDE);
    return sandbox_allow_step(STEP_RUNNING, runs);
}

int sandbox_relay(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!filter)
        return -ENOMEM;
    return sandbox_load(filter, sandbox_add_all(filter, relays));
}
