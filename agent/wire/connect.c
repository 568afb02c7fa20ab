#include "agent/wire/connect.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/wire/access.h"

static int connect_to(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred agent;
    socklen_t size = sizeof(agent);

    memcpy(address.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &agent, &size))
        return -errno;
    return access_may_believe(geteuid(), agent.uid) ? 0 : -EPERM;
}

int agent_connect(const char *path)
{
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int error = connect_to(fd, path);
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}
