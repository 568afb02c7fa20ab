#include "tests/state/image/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __real_openat(int folder, const char *name, int flags, ...);
int __real_mkdirat(int folder, const char *name, mode_t mode);
int __real_renameat(int from, const char *old, int to, const char *name);
int __real_linkat(int from, const char *old, int to, const char *name, int flags);
int __real_unlinkat(int folder, const char *name, int flags);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_fsync(int fd);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __wrap_mkdirat(int folder, const char *name, mode_t mode);
int __wrap_renameat(int from, const char *old, int to, const char *name);
int __wrap_linkat(int from, const char *old, int to, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum fault armed;
static unsigned count, armed_at;
static int armed_error;

/* What is not on the disk yet: bytes of a file, or, with a name, a new entry of a folder. */
static struct pending {
    ino_t inode;
    int fd;
    char name[80];
} pendings[256];
static unsigned pending_count;

void faults_arm(enum fault fault, unsigned at, int error)
{
    armed = fault;
    armed_at = at;
    armed_error = error;
    count = 0;
}

unsigned faults_count(void)
{
    return count;
}

static void add(int fd, const char *name)
{
    struct stat stat;
    if (armed != FAULT_KILL || fstat(fd, &stat) != 0)
        return;
    for (unsigned i = 0; i < pending_count; i++)
        if (pendings[i].inode == stat.st_ino && strcmp(pendings[i].name, name) == 0)
            return;
    if (pending_count == sizeof(pendings) / sizeof(pendings[0]))
        abort();
    struct pending *pending = &pendings[pending_count++];
    pending->inode = stat.st_ino;
    pending->fd = dup(fd);
    strcpy(pending->name, name);
}

static void settle(int fd)
{
    struct stat stat;
    unsigned kept = 0;
    if (fstat(fd, &stat) != 0)
        return;
    for (unsigned i = 0; i < pending_count; i++)
        if (pendings[i].inode == stat.st_ino)
            close(pendings[i].fd);
        else
            pendings[kept++] = pendings[i];
    pending_count = kept;
}

static void crash(void)
{
    for (unsigned i = 0; i < pending_count; i++)
        if (pendings[i].name[0])
            (void)!__real_unlinkat(pendings[i].fd, pendings[i].name, 0);
        else
            (void)!ftruncate(pendings[i].fd, 0);
    _exit(FAULT_KILLED);
}

/* True when the call is not to be made. With the lock. */
static bool fails(bool writes)
{
    if (armed == FAULT_NONE)
        return false;
    count++;
    if (armed == FAULT_FULL && writes && count >= armed_at) {
        errno = ENOSPC;
        return true;
    }
    if (count != armed_at || armed == FAULT_FULL)
        return false;
    if (armed == FAULT_KILL)
        crash();
    errno = armed_error;
    return true;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return __real_write(fd, bytes, size);
    pthread_mutex_lock(&lock);
    ssize_t result = fails(true) ? -1 : (add(fd, ""), 0);
    pthread_mutex_unlock(&lock);
    /* In part, as the kernel may. */
    return result ? result : __real_write(fd, bytes, size > 1 ? size - size / 3 : size);
}

int __wrap_fsync(int fd)
{
    pthread_mutex_lock(&lock);
    int result = fails(false) ? -1 : __real_fsync(fd);
    if (result == 0)
        settle(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

int __wrap_openat(int folder, const char *name, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    pthread_mutex_lock(&lock);
    int result = fails((flags & O_CREAT) != 0) ? -1 : __real_openat(folder, name, flags, mode);
    pthread_mutex_unlock(&lock);
    return result;
}

int __wrap_mkdirat(int folder, const char *name, mode_t mode)
{
    pthread_mutex_lock(&lock);
    int result = fails(true) ? -1 : __real_mkdirat(folder, name, mode);
    pthread_mutex_unlock(&lock);
    return result;
}

int __wrap_renameat(int from, const char *old, int to, const char *name)
{
    pthread_mutex_lock(&lock);
    int result = fails(false) ? -1 : __real_renameat(from, old, to, name);
    if (result == 0)
        add(to, name);
    pthread_mutex_unlock(&lock);
    return result;
}

int __wrap_linkat(int from, const char *old, int to, const char *name, int flags)
{
    pthread_mutex_lock(&lock);
    int result = fails(true) ? -1 : __real_linkat(from, old, to, name, flags);
    if (result == 0)
        add(to, name);
    pthread_mutex_unlock(&lock);
    return result;
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    pthread_mutex_lock(&lock);
    int result = fails(false) ? -1 : __real_unlinkat(folder, name, flags);
    pthread_mutex_unlock(&lock);
    return result;
}
