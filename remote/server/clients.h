#ifndef RESEAT_REMOTE_SERVER_CLIENTS_H
#define RESEAT_REMOTE_SERVER_CLIENTS_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/door.h"
#include "remote/link/link.h"

/*
 * The processes of a server's clients: strangers, who have a place at the door (door.h) until they
 * are admitted, and clients, who have one of the server's, and as many at once as their certificate
 * says. A session's process asks for its place once it knows who its client is. Who is refused
 * stays a stranger until it is gone.
 */

struct stranger {
    pid_t pid;
    uint64_t id; /**< At the door. */
    int channel; /**< Where it asks; -1: it was answered, or is gone. */
};

struct client_place {
    pid_t pid;
    char name[LINK_PEER_MAX]; /**< Of its certificate; "": it needs none. */
};

struct clients {
    struct door door;
    struct stranger strangers[DOOR_MAX];
    size_t stranger_count;
    struct client_place *places;
    unsigned count, max;
};

/** 0 or -ENOMEM. @clients is zero. */
MUST_CHECK int clients_init(struct clients *clients, unsigned max);

/**
 * Somebody connected who has to be looked at: make room at the door.
 *
 * Returns 0 or -EBUSY: it is to be dropped.
 */
MUST_CHECK int clients_enter(struct clients *clients, const struct sockaddr *from, uint64_t now_ns,
                             uint64_t *ret_id);
/** Its process; or, with @pid -1, there is none. @channel becomes this one's. */
void clients_forked(struct clients *clients, uint64_t id, pid_t pid, int channel);
/** A client that needs no certificate. -EBUSY: there are as many as there may be. */
MUST_CHECK int clients_add(struct clients *clients, pid_t pid, const char *name);
bool clients_are_full(const struct clients *clients);

/** In the child: what is the parent's is closed. */
void clients_close(const struct clients *clients);

/** What to wait for. @ret_polls: DOOR_MAX of them; returns how many are filled. */
size_t clients_poll(const struct clients *clients, struct pollfd *ret_polls);
/** Answer who asks, of what clients_poll() told to wait for. */
void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count);

/** A process ended. False: it was dropped already, to make room. */
bool clients_ended(struct clients *clients, pid_t pid);

/**
 * In the session's process: ask for a place for a client whose certificate says so.
 *
 * @ret_refusal  Why there is none, for the client; NULL: there is one.
 * Returns 0 or -errno: nobody answers.
 */
MUST_CHECK int clients_ask(int channel, const char *name, uint32_t sessions,
                           const char **ret_refusal);

#endif
