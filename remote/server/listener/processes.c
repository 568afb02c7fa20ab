#include "remote/server/listener/clients.h"

#include <dirent.h>
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/log.h"

/* By then a process that was permitted shows in /proc. */
#define BEGINS_NS (250 * NS_PER_MS)
/* At the limit, processes are counted again every LOOK_NS, and a fork is refused after PATIENCE_NS.
 */
#define LOOK_NS     (20 * NS_PER_MS)
#define PATIENCE_NS (2 * NS_PER_S)

static bool processes_is_of(const char *pid, pid_t group)
{
    char path[64], text[512] = "";
    int of = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    /* The name may contain anything, a ')' too. */
    const char *behind = got ? strrchr(text, ')') : NULL;
    return behind && sscanf(behind, ") %*c %*d %d", &of) == 1 && of == group;
}

/* Returns PROCESSES_MAX if /proc cannot be read. */
static unsigned processes_count(pid_t group)
{
    unsigned found = 0;
    DIR *folder = opendir("/proc");
    if (!folder)
        return PROCESSES_MAX;
    for (struct dirent *entry; found < PROCESSES_MAX && (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            found += processes_is_of(entry->d_name, group);
    closedir(folder);
    return found;
}

static unsigned processes_count_granted(const struct processes *processes, uint64_t now_ns)
{
    unsigned found = 0;
    for (unsigned i = 0; i < PROCESSES_MAX; i++)
        found += processes->granted_ns[i] && now_ns - processes->granted_ns[i] < BEGINS_NS;
    return found;
}

void processes_close(struct processes *processes)
{
    if (processes->notices >= 0)
        close(processes->notices);
    processes->notices = -1;
}

/* Answer one fork: refuse it with @refusal, or let it go on with 0. A fork that a signal
 * interrupted asks again. */
static void processes_answer_one(struct processes *processes, int refusal)
{
    struct seccomp_notif *notice = NULL;
    struct seccomp_notif_resp *answer = NULL;
    if (seccomp_notify_alloc(&notice, &answer))
        return;
    if (seccomp_notify_receive(processes->notices, notice) == 0) {
        answer->id = notice->id;
        answer->error = refusal;
        answer->flags = refusal ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        /* Fails harmlessly if the asking process has ended. */
        (void)seccomp_notify_respond(processes->notices, answer);
    }
    seccomp_notify_free(notice, answer);
}

int processes_poll(const struct processes *processes, uint64_t now_ns)
{
    return now_ns >= processes->look_ns ? processes->notices : -1;
}

/* The limit is reached: wait for others to end, then refuse. */
static void processes_hold_back(struct processes *processes, const char *name, uint64_t now_ns)
{
    if (!processes->full_ns)
        processes->full_ns = now_ns;
    bool waited = now_ns - processes->full_ns >= PATIENCE_NS;
    if (waited && !processes->told)
        log_warn("the session of %s has reached the limit of %u processes", name, PROCESSES_MAX);
    processes->told |= waited;
    if (waited)
        processes_answer_one(processes, -EAGAIN);
    processes->look_ns = now_ns + LOOK_NS;
}

void processes_answer(struct processes *processes, pid_t group, const char *name, uint64_t now_ns)
{
    unsigned there = processes_count(group);
    if (there + processes_count_granted(processes, now_ns) >= PROCESSES_MAX) {
        processes_hold_back(processes, name, now_ns);
        return;
    }
    processes->full_ns = 0;
    processes->granted_ns[processes->next_granted] = now_ns;
    processes->next_granted = (processes->next_granted + 1) % PROCESSES_MAX;
    processes_answer_one(processes, 0);
}
