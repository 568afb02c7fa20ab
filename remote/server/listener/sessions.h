#ifndef RESEAT_REMOTE_SERVER_LISTENER_SESSIONS_H
#define RESEAT_REMOTE_SERVER_LISTENER_SESSIONS_H

#include "remote/server/listener/clients.h"

/* What sessions ask the listening process, and what it tells them: an inner header of clients.h. */

void sessions_init(struct clients *clients);

/** The descriptor to hear a session by; -1: it has said too much of late, or nothing any more. */
int session_to_hear(const struct client *client, uint64_t now_ns);
/** Take one packet. */
void session_hear(struct client *client, uint64_t now_ns);
/** The kernel asks for it, as @events of poll() say. */
void session_answer_processes(struct client *client, short events, uint64_t now_ns);
/** Its process has ended: all that it held is given back. */
void session_leave(struct client *client, uint64_t now_ns);

#endif
