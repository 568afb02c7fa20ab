#ifndef RESEAT_REMOTE_SERVER_SESSION_PACING_H
#define RESEAT_REMOTE_SERVER_SESSION_PACING_H

#include "remote/server/listener/channel.h"
#include "remote/server/session/server.h"

/*
 * Sessions that share a device submit commands to it in time slices (devices.h). A session that
 * has the device to itself submits without limit, at the cost of testing one flag. A session that
 * shares the device observes the end of each command, and submits only as many commands as its
 * time slice has time for. It estimates that time from the commands before.
 *
 * Launches, fills and copies need a time slice. Transfers to and from the client do not.
 */

struct pace;

/** Wait for the time slice in which a command may be submitted to @queue. Blocks. Called by the
 *  session's thread. Returns NULL, or what to pass to pacing_ended() when the command ends. */
struct pace *pacing_wait(struct server *server, struct entry *queue);
/** A command that pacing_wait() admitted has ended, or was not submitted. @began_ns is when the
 *  command began. */
void pacing_ended(struct pace *pace, uint64_t began_ns);
/** A queue is about to be released. */
void pacing_forget(struct server *server, const struct entry *queue);

/** Take a message about time slices. Called by the thread that receives the channel (greeting.h).
 */
void pacing_hear(struct server *server, const struct channel_message *message);
/** Do what is due at this time. Called by the thread that receives the channel. Returns after how
 *  many milliseconds to call it again, or -1 when nothing is pending. */
int pacing_tick(void);

#endif
