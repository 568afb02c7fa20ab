#ifndef RESEAT_REMOTE_SERVER_LISTENER_REAPER_H
#define RESEAT_REMOTE_SERVER_LISTENER_REAPER_H

#include <sys/types.h>

#include "remote/server/listener/clients.h"
#include "state/base/compiler.h"

/*
 * A process beside the listening one, which ends what sessions' processes have started should that
 * one be killed: they end with it, but the kernel sees to no more than that, and a compiler would
 * run on. It knows their groups, which they and what they start cannot leave (sandbox.h), takes no
 * signal, and has nothing but a socket. Where it is killed itself there is another.
 */
struct reaper {
    pid_t pid; /**< A child; 0: there is none. */
    int tells; /**< A socket; -1: there is none. */
};

#define REAPER_NONE ((struct reaper){.tells = -1})

/** Start one, for the processes of @clients that there are. A failure is logged, and is no reason
 * not to serve. */
void reaper_start(struct reaper *reaper, const struct clients *clients);
/** A process was started that leads a group; or it has ended, and so has its group. Never blocks.
 */
void reaper_began(const struct reaper *reaper, pid_t pid);
void reaper_ended(const struct reaper *reaper, pid_t pid);
/** End it: all groups have ended. */
void reaper_finish(struct reaper *reaper);

#endif
