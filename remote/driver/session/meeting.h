#ifndef RESEAT_REMOTE_DRIVER_SESSION_MEETING_H
#define RESEAT_REMOTE_DRIVER_SESSION_MEETING_H

#include "remote/driver/session/session.h"
#include "remote/link/link.h"
#include "state/base/files/owned.h"

/*
 * How two sessions of this process are connected, so that bytes go directly from one to the other:
 * through a socket pair that we make, if both are on this machine; else one session connects to the
 * other's server with a ticket.
 */
struct meeting {
    uint64_t transfer; /**< Its number, unique in this process. */
    struct client
        *ends[2]; /**< The session that sends the bytes, and the one that receives them. */
    enum transfer_way ways[2]; /**< Of each session. */
    struct owned sockets[2];
    struct client *awaits; /**< The session that the other connects to (TRANSFER_AWAIT); or NULL. */
    struct ticket ticket;
};

#define MEETING_NONE ((struct meeting){.sockets = {OWNED_NONE, OWNED_NONE}})

/** @meeting is MEETING_NONE. CL_INVALID_OPERATION: there is no way, now; or another error. */
cl_int meeting_init(struct meeting *meeting, struct client *from, struct client *to);
/** Close the sockets that were not sent. */
void meeting_finish(struct meeting *meeting);
/** False when it is known that the two cannot be connected. */
bool meeting_is_possible(const struct client *from, const struct client *to);

/** For the message to one session (0: the sender, 1: the receiver). Points into @meeting. */
struct msg_peer meeting_peer(const struct meeting *meeting, int end);
/** Post that message, with the session's socket. Finishes @pack. */
cl_int meeting_post(struct meeting *meeting, int end, unsigned type, struct pack *pack);

/** A transfer that was begun is given up: tell @client's session not to wait for it. */
void meeting_forget(struct client *client, uint64_t transfer);
/** Another server could not reach this session's: do not try that again for a while. */
void meeting_unreached(struct client *awaits);

#endif
