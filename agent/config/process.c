#include "agent/config/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/cleanup.h"

#define TEXT_MAX 64
int process_start_time(pid_t pid, uint64_t *ret_ticks)
{
    char path[64], line[1024];
    char state;
    unsigned long long start;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
    if (!file)
        return -ESRCH;
    line[fread(line, 1, sizeof(line) - 1, file)] =
        '\0'; /* The program's name may contain a newline, so read more than one line. */
    /* proc(5): the name in parentheses may contain any; what follows has no parenthesis. */
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

uint64_t process_age_s(uint64_t start_ticks)
{
    struct timespec now;
    long ticks_s = sysconf(_SC_CLK_TCK);

    /* proc(5): start times use the clock that also counts while the machine sleeps. */
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t start_s = start_ticks / (uint64_t)(ticks_s > 0 ? ticks_s : 100);
    return (uint64_t)now.tv_sec > start_s ? (uint64_t)now.tv_sec - start_s : 0;
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

int lock_take(const char *folder)
{
    char path[PATH_MAX], text[TEXT_MAX];
    uint64_t start;
    int error = paths_join(folder, "lock", path);
    int fd = error ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return error ? error : -errno;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        error = errno == EWOULDBLOCK ? -EALREADY : -errno;
        close(fd);
        return error;
    }
    /*
     * lock_holder() reads the pid and start time to find an agent that does not answer. Failing to
     * write them does not prevent the agent from starting.
     */
    if (!process_start_time(getpid(), &start)) {
        int length = snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)getpid(), start);
        (void)!ftruncate(fd, 0);
        (void)!pwrite(fd, text, (size_t)length, 0);
    }
    return 0;
}

int lock_holder(const char *folder, pid_t *ret_pid, uint64_t *ret_start)
{
    CLEANUP(cleanup_free) char *text = NULL;
    char path[PATH_MAX];
    uint64_t start;
    size_t size;
    int pid;

    if (paths_join(folder, "lock", path) || paths_read(path, TEXT_MAX, &text, &size) ||
        sscanf(text, "%d %" SCNu64, &pid, &start) != 2 || pid <= 0 || !process_alive(pid, start))
        return -ESRCH;
    *ret_pid = pid;
    *ret_start = start;
    return 0;
}
