#include "state/base/files/access.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/cleanup.h"

/** The number of users without one, unless the kernel was told another. */
#define OVERFLOW_USER 65534

/** Read the beginning of a file; "" where there is none. Returns @text. */
static const char *access_read(const char *path, char text[64])
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, 63);

    text[size > 0 ? size : 0] = '\0';
    return text;
}

/** May @user be any of several users, who have no number in this user namespace? */
static bool access_is_ambiguous(uid_t user)
{
    static _Atomic uid_t shown_as;
    uid_t overflow = atomic_load(&shown_as), count = 0;
    char text[64];

    if (!overflow) {
        if (sscanf(access_read("/proc/sys/kernel/overflowuid", text), "%u", &overflow) != 1)
            overflow = OVERFLOW_USER;
        atomic_store(&shown_as, overflow);
    }
    if (user != overflow)
        return false;
    /* Where the first range has all numbers, each user has one. */
    sscanf(access_read("/proc/self/uid_map", text), "%*u %*u %u", &count);
    return count != UINT32_MAX;
}

bool access_same_user(uid_t one, uid_t other)
{
    return one == other && !access_is_ambiguous(one);
}

bool access_may_believe(const char *path, uid_t owner)
{
    static const char below[] = ACCESS_HOST_FOLDER "/";
    struct stat stat;

    return access_may_manage(geteuid(), owner) ||
           (strncmp(path, below, sizeof(below) - 1) == 0 && lstat(ACCESS_HOST_FOLDER, &stat) == 0 &&
            S_ISDIR(stat.st_mode) && !(stat.st_mode & 022) && stat.st_uid == owner);
}

bool access_may_manage(uid_t agent, uid_t peer)
{
    return peer == 0 || access_same_user(agent, peer);
}

static int access_connect_to(int fd, const char *path, uid_t user)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred agent;
    socklen_t size = sizeof(agent);

    memcpy(address.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &agent, &size))
        return -errno;
    bool may =
        user == geteuid() ? access_may_believe(path, agent.uid) : access_same_user(agent.uid, user);
    return may ? 0 : -EPERM;
}

int agent_connect(const char *path, uid_t user)
{
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int error = access_connect_to(fd, path, user);
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

static int access_make_way(const char *path)
{
    int fd = agent_connect(path, geteuid());

    if (fd >= 0)
        close(fd);
    if (fd >= 0 || fd == -EAGAIN || fd == -EPERM)
        return -EADDRINUSE;
    if (fd == -ECONNREFUSED && unlink(path))
        return -errno;
    return fd == -ECONNREFUSED || fd == -ENOENT ? 0 : fd;
}

int access_listen(const char *path, int type, int backlog, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int error = access_make_way(path);

    if (error)
        return error;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    memcpy(address.sun_path, path, strlen(path) + 1);
    /* Nobody can connect before listen(); by then chmod() has set the mode. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) || chmod(path, 0600) ||
        listen(fd, backlog)) {
        error = -errno;
        close(fd);
        return error;
    }
    *ret_fd = fd;
    return 0;
}
