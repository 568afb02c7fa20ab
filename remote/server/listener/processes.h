#ifndef RESEAT_REMOTE_SERVER_LISTENER_PROCESSES_H
#define RESEAT_REMOTE_SERVER_LISTENER_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * How many processes a session may be at once. All have the user of all others, whose limit of
 * processes (RLIMIT_NPROC) is everybody's; so the kernel asks the listening process before it
 * starts one (sandbox_processes()), which counts those of the session's group, as none of them can
 * leave it. Whoever would be one too many waits, as others end, and is refused after a while.
 */

/** Its own, and compilers and linkers: a limit, not a ban. */
#define PROCESSES_MAX 64

struct processes {
    int notices;           /**< Where the kernel asks; -1: it does not. */
    uint64_t look_ns;      /**< Not before: there were as many as there may be. */
    uint64_t full_ns;      /**< Since when; 0: there is room. */
    bool told;             /**< The log was. */
    unsigned next_granted; /**< In: */
    /** When the last ones were. They count for a while, as they may not be there yet. */
    uint64_t granted_ns[PROCESSES_MAX];
};

#define PROCESSES_NONE ((struct processes){.notices = -1})

/** What to wait for, with POLLIN; -1: nothing, now. */
int processes_poll(const struct processes *processes, uint64_t now_ns);
/** Somebody waits for an answer: give one of them one, or look again later. @group: the session's.
 * @name: for the log. */
void processes_answer(struct processes *processes, pid_t group, const char *name, uint64_t now_ns);
/** Whoever asks is refused from now on. */
void processes_close(struct processes *processes);

#endif
