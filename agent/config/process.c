#include "agent/config/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "state/base/cleanup.h"

int process_start_time(pid_t pid, uint64_t *ret_ticks)
{
    char path[64], line[1024];
    char state;
    unsigned long long start;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
    if (!file)
        return -ESRCH;
    line[fread(line, 1, sizeof(line) - 1, file)] = '\0'; /* The name may hold a newline, too. */
    /* proc(5): the name, in parentheses, may hold anything; the fields after it may not. */
    const char *after = strrchr(line, ')');
    if (!after ||
        sscanf(after + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &start) != 2 ||
        state == 'Z' || state == 'X')
        return -ESRCH;
    *ret_ticks = start;
    return 0;
}

bool process_alive(pid_t pid, uint64_t start)
{
    uint64_t now;

    return process_start_time(pid, &now) == 0 && now == start;
}

uint64_t process_address_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur;
}
