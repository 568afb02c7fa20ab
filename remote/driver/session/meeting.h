#ifndef RESEAT_REMOTE_DRIVER_SESSION_MEETING_H
#define RESEAT_REMOTE_DRIVER_SESSION_MEETING_H

#include "remote/driver/session/session.h"
#include "remote/link/link.h"
#include "state/base/files/owned.h"

/*
 * How two sessions of this process's meet, so that bytes go from the one to the other: by a socket
 * pair of ours, where both are on this machine, or by one that connects to the other's server with
 * a ticket.
 */
struct meeting {
    uint64_t transfer;         /**< No two of this process's have the same number. */
    struct client *ends[2];    /**< Who gives, and who takes. */
    enum transfer_way ways[2]; /**< Of each. */
    struct owned sockets[2];
    struct client *awaits; /**< Of TRANSFER_AWAIT; or NULL. */
    struct ticket ticket;
};

#define MEETING_NONE ((struct meeting){.sockets = {OWNED_NONE, OWNED_NONE}})

/** @meeting is MEETING_NONE. CL_INVALID_OPERATION: there is no way, now; or another error. */
cl_int meeting_init(struct meeting *meeting, struct client *from, struct client *to);
/** Closes what did not go. */
void meeting_finish(struct meeting *meeting);
/** Is there a way at all, as far as is known? */
bool meeting_is_possible(const struct client *from, const struct client *to);

/** What the messages of both ends say. */
const char *meeting_where(const struct meeting *meeting);
uint32_t meeting_ticket_size(const struct meeting *meeting);
/** Post an end's message (0: who gives, 1: who takes), with its socket. Gives up @pack. */
cl_int meeting_post(struct meeting *meeting, int end, unsigned type, struct pack *pack);

/** What was begun is not going to be: @client's session need not wait for it. */
void meeting_forget(struct client *client, uint64_t transfer);
/** No other server has a way to it, for a while. */
void meeting_unreached(struct client *awaits);

#endif
