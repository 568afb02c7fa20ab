#include "remote/server/listener/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/** The helper lies beside this program. */
static int announce_find_helper(char ret_path[PATH_MAX])
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

    if (length <= 0)
        return -ENOENT;
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    if (snprintf(ret_path, PATH_MAX, "%s/reseat-mdns", own) >= PATH_MAX)
        return -ENAMETOOLONG;
    return access(ret_path, X_OK) ? -errno : 0;
}

void announce(const char *where, const sigset_t *mask)
{
    const char *port = strrchr(where, ':');
    char helper[PATH_MAX], name[HOST_NAME_MAX + 1] = "";
    int ends[2], error = announce_find_helper(helper);

    if (error || !port || gethostname(name, sizeof(name) - 1) || pipe2(ends, O_CLOEXEC)) {
        fprintf(stderr, "reseat-serve: not announced: %s\n",
                error == -ENOENT ? "reseat-mdns is not installed beside this program"
                                 : strerror(error ? -error : errno));
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        dup2(ends[0], STDIN_FILENO);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl(helper, helper, "announce", name, port + 1, (char *)NULL);
        _exit(127);
    }
    if (child < 0)
        fprintf(stderr, "reseat-serve: not announced: %s\n", strerror(errno));
    close(ends[0]);
    /* The other end stays open until this process ends: that is how the helper knows. */
}
