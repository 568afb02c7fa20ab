/**
 * Linked with OpenCL, never calls it: nothing may have been started or opened
 * for it. Run with no descriptors beyond the standard three.
 */
#include <CL/cl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

enum { STANDARD_STREAMS = 3 };

/** Entries of a folder in /proc that are numbers of at least @least, except @but. */
static int count(const char *path, long least, long but)
{
    DIR *dir = opendir(path);
    int n = 0;

    if (!dir)
        return -1;
    if (but == 0)
        but = dirfd(dir);
    for (const struct dirent *e; (e = readdir(dir));) {
        char *end;
        long number = strtol(e->d_name, &end, 10);
        if (end != e->d_name && number >= least && number != but)
            n++;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    (void)argv;
    /* Keeps the reference to the library without calling it. */
    if (argc > 100)
        clGetPlatformIDs(0, NULL, NULL);
    int threads = count("/proc/self/task", 0, -1);
    int descriptors = count("/proc/self/fd", STANDARD_STREAMS, 0);
    printf("threads %d, descriptors beyond the standard streams %d\n", threads, descriptors);
    return threads == 1 && descriptors == 0 ? 0 : 1;
}
