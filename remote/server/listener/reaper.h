#ifndef RESEAT_REMOTE_SERVER_LISTENER_REAPER_H
#define RESEAT_REMOTE_SERVER_LISTENER_REAPER_H

#include <sys/types.h>

#include "remote/server/listener/clients.h"
#include "state/base/compiler.h"

/*
 * A process that kills what sessions have started if the listening process is killed. Sessions die
 * with the listening process (PR_SET_PDEATHSIG), but their children, such as compilers, would run
 * on. The reaper knows the sessions' process groups, which their children cannot leave (sandbox.h).
 * It ignores signals, and has no descriptor but a socket. If it is killed, the listening process
 * starts another.
 */
struct reaper {
    pid_t pid; /**< A child; 0: none runs. */
    int tells; /**< A socket to it; -1: none. */
};

#define REAPER_NONE ((struct reaper){.tells = -1})

/** Start one that knows the processes of @clients. A failure is logged, and does not stop the
 * server. */
void reaper_start(struct reaper *reaper, const struct clients *clients);
/** Tell it that a process which leads a group was started, or has ended with its group. Never
 * blocks. */
void reaper_began(const struct reaper *reaper, pid_t pid);
void reaper_ended(const struct reaper *reaper, pid_t pid);
/** End it, after all groups have ended. */
void reaper_finish(struct reaper *reaper);

#endif
