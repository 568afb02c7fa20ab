#ifndef RESEAT_REMOTE_SERVER_LISTENER_SESSIONS_H
#define RESEAT_REMOTE_SERVER_LISTENER_SESSIONS_H

#include "remote/server/listener/clients.h"

/* Messages between sessions and the listening process; an inner header of clients.h. */

void sessions_init(struct clients *clients);

/** The descriptor to poll for the session's messages; -1: it is over its limit for now, or closed.
 */
int session_to_hear(const struct client *client, uint64_t now_ns);
/** Read and handle one message. */
void session_hear(struct client *client, uint64_t now_ns);
/** poll() reported @events on the descriptor of processes_poll(). */
void session_answer_processes(struct client *client, short events, uint64_t now_ns);
/** May one more process carry bytes for it? Then clients_add_carrier() counts it. */
bool clients_may_carry(struct client *client);
void clients_add_carrier(struct client *client, pid_t pid);
/** Its process has ended: take back its memory and time slices. */
void session_leave(struct client *client, uint64_t now_ns);

#endif
