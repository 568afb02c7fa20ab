#include "state/base/files/reach.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

void reach_read(struct reach *ret_reach)
{
    struct stat root = {0};
    struct rlimit files = {RLIM_INFINITY, RLIM_INFINITY};
    (void)stat("/", &root); /* zeroes where even that is not allowed: another root */
    (void)getrlimit(RLIMIT_NOFILE, &files);
    *ret_reach = (struct reach){root.st_dev, root.st_ino, geteuid(), getegid(), files.rlim_cur};
}

const char *reach_lost(const struct reach *before, const struct reach *now)
{
    if (now->root_device != before->root_device || now->root_inode != before->root_inode)
        return "its root folder (chroot)";
    if (now->user != before->user || now->group != before->group)
        return "its user or group";
    return now->files < before->files ? "its limit of open files" : NULL;
}
