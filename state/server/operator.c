#include "state/server/operator.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/files/access.h"

/* The asking side, and what both sides share. */

#define PATIENCE_S 2

int operator_folder(char ret_folder[PATH_MAX], char ret_problem[FOLDER_PROBLEM_MAX])
{
    char runtime[PATH_MAX], folder[PATH_MAX];
    int error = folder_runtime(runtime, ret_problem);
    if (error)
        return error;
    if (snprintf(folder, sizeof(folder), "%s/servers", runtime) >= (int)sizeof(folder))
        return -ENAMETOOLONG;
    return folder_make_private(folder, ret_folder, ret_problem);
}

int operator_ask(int fd, const struct operator_request *request, struct operator_answer *ret_answer)
{
    ssize_t got = -1;
    if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) == (ssize_t)sizeof(*request))
        got = recv(fd, ret_answer, sizeof(*ret_answer), 0);
    if (got < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (got < (ssize_t)sizeof(ret_answer->version))
        return -EPIPE;
    if (got != (ssize_t)sizeof(*ret_answer) || ret_answer->version != OPERATOR_VERSION)
        return -EPROTONOSUPPORT;
    ret_answer->addresses[OPERATOR_ADDRESSES_MAX - 1] = '\0';
    if (request->what == OPERATOR_SESSION) {
        ret_answer->session.name[OPERATOR_NAME_MAX - 1] = '\0';
        ret_answer->session.devices[OPERATOR_DEVICES_MAX - 1] = '\0';
    } else if (request->what == OPERATOR_DEVICE) {
        ret_answer->device.name[OPERATOR_NAME_MAX - 1] = '\0';
    }
    return 0;
}

static bool operator_is_believed(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) &&
           access_may_manage(geteuid(), peer.uid);
}

/* Returns the connected socket, or -1 if no trusted server listens there. */
static int operator_connect_to(const char *folder, const char *name)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", folder, name) >=
        (int)sizeof(at.sun_path))
        return -1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    int error = connect(fd, (const struct sockaddr *)&at, sizeof(at)) ? errno : 0;
    if (error == ECONNREFUSED)
        (void)unlink(at.sun_path); /* Left by a server that was killed. */
    if (error == 0 && operator_is_believed(fd))
        return fd;
    close(fd);
    return -1;
}

int operator_servers(bool (*each)(void *data, int fd, const struct operator_answer *server),
                     void *data, char ret_problem[FOLDER_PROBLEM_MAX])
{
    char folder[PATH_MAX];
    int error = operator_folder(folder, ret_problem);
    DIR *open = error ? NULL : opendir(folder);
    if (!open)
        return error ? error : -errno;
    bool goes_on = true;
    for (struct dirent *entry; goes_on && (entry = readdir(open));) {
        struct operator_request request = {.version = OPERATOR_VERSION, .what = OPERATOR_SERVER};
        struct operator_answer answer;
        int fd = entry->d_name[0] == '.' ? -1 : operator_connect_to(folder, entry->d_name);
        if (fd < 0)
            continue;
        if (!operator_ask(fd, &request, &answer))
            goes_on = each(data, fd, &answer);
        close(fd);
    }
    closedir(open);
    return 0;
}
