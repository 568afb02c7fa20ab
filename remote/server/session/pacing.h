#ifndef RESEAT_REMOTE_SERVER_SESSION_PACING_H
#define RESEAT_REMOTE_SERVER_SESSION_PACING_H

#include "remote/server/listener/channel.h"
#include "remote/server/session/server.h"

/*
 * Sessions give work to a device in time slices (timeslices.h). A session that has the
 * device alone gives as it likes, and pays a look at a flag for it. Of one that has not, each
 * command is seen to end, and no more are under way than its time slice lasts for, by what those
 * before took.
 *
 * Launches, fills and copies need a time slice; what only moves bytes to and from the client does
 * not.
 */

struct pace;

/** Before a command is given to a queue, by the session's thread: waits for its time slice. Returns
 * NULL, or whom to tell of its end. */
struct pace *pacing_wait(struct server *server, struct entry *queue);
/** A command that pacing_wait() let through has ended, or was not given. @began_ns: when it was. */
void pacing_ended(struct pace *pace, uint64_t began_ns);
/** A queue is about to be released. */
void pacing_forget(struct server *server, const struct entry *queue);

/** What the listening process says of time slices; by the thread that hears it. */
void pacing_hear(struct server *server, const struct channel_message *message);
/** What time does; by the same. In how many milliseconds it is to be called again; -1: not. */
int pacing_tick(void);

#endif
