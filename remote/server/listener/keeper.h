#ifndef RESEAT_REMOTE_SERVER_LISTENER_KEEPER_H
#define RESEAT_REMOTE_SERVER_LISTENER_KEEPER_H

#include <sys/types.h>

#include "remote/server/listener/clients.h"
#include "state/base/compiler.h"

/*
 * A process beside the listening one, which ends what sessions' processes have started should that
 * one be killed: they end with it, but the kernel sees to no more than that, and a compiler would
 * run on. It knows their groups, which they and what they start cannot leave (sandbox.h), takes no
 * signal, and has nothing but a socket. Where it is killed itself there is another.
 */
struct keeper {
    pid_t pid; /**< A child; 0: there is none. */
    int tells; /**< A socket; -1: there is none. */
};

#define KEEPER_NONE ((struct keeper){.tells = -1})

/** Start one, for the processes of @clients that there are. A failure is logged, and is no reason
 * not to serve. */
void keeper_start(struct keeper *keeper, const struct clients *clients);
/** A process was started that leads a group; or it has ended, and so has its group. Never blocks.
 */
void keeper_began(const struct keeper *keeper, pid_t pid);
void keeper_ended(const struct keeper *keeper, pid_t pid);
/** End it: all groups have ended. */
void keeper_finish(struct keeper *keeper);

#endif
