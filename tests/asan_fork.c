/*
 * Criterion forks a process for each test, beside threads of nanomsg's that allocate. GCC 12's
 * AddressSanitizer does not take its allocator's locks for a fork, as the C library does: a child
 * may find one of them locked by nobody, and wait for ever. This fork, which comes before the C
 * library's, waits until the other threads sleep.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* proc(5): the state comes behind the name, which may have brackets too. */
static bool sleeps(const char *task)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/stat", task);
    FILE *file = fopen(path, "re");
    if (!file)
        return true; /* it has ended */
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    fclose(file);
    const char *end = strrchr(text, ')');
    return !end || strncmp(end, ") S", 3) == 0;
}

static bool others_sleep(void)
{
    bool asleep = true;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    while (tasks && asleep && (entry = readdir(tasks)))
        asleep =
            entry->d_name[0] == '.' || atoi(entry->d_name) == gettid() || sleeps(entry->d_name);
    if (tasks)
        closedir(tasks);
    return asleep;
}

pid_t fork(void)
{
    pid_t (*next)(void);
    const struct timespec moment = {0, 200000};
    *(void **)&next = dlsym(RTLD_NEXT, "fork");
    for (int i = 0; i < 5000 && !others_sleep(); i++)
        nanosleep(&moment, NULL);
    return next();
}
