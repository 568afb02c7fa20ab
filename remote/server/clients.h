#ifndef RESEAT_REMOTE_SERVER_CLIENTS_H
#define RESEAT_REMOTE_SERVER_CLIENTS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/door.h"
#include "remote/link/link.h"
#include "remote/wire/wire.h"

/*
 * The processes of a server's clients: strangers, who are not admitted yet, and clients, who have
 * one of the server's places, and as many at once as their certificate says. A process asks once it
 * knows who its client is and what it wants: a place, or that its link is handed over to a session
 * that there is. Who is refused stays a stranger until it is gone.
 *
 * Strangers who need a certificate have a place at the door (door.h); the server's own user has
 * CLIENTS_LOCAL_MAX others.
 */

#define CLIENTS_LOCAL_MAX     64
#define CLIENTS_STRANGERS_MAX (DOOR_MAX + CLIENTS_LOCAL_MAX)

/** What a client shows to go on with its session. From getrandom(). */
struct session_key {
    uint64_t number; /**< 0: of a session that ends with its link. */
    unsigned char secret[WIRE_SECRET_SIZE];
};

struct stranger {
    pid_t pid;
    uint64_t id; /**< At the door; 0: of the server's own user. */
    int channel; /**< Where it asks; -1: it was answered, or is gone. */
};

struct client_place {
    pid_t pid;
    char name[LINK_PEER_MAX]; /**< Of its certificate, or "unix:UID". */
    struct session_key key;
    int channel; /**< To its process. */
    pid_t relay; /**< What carries its newest link; 0: none that is a process. */
};

struct clients {
    struct door door;
    struct stranger strangers[CLIENTS_STRANGERS_MAX];
    size_t stranger_count, local_count;
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
/** Its process; or, with @pid -1, there is none. @channel becomes this one's. Of the server's own
 * user, with @id 0, only while there is room. */
void clients_forked(struct clients *clients, uint64_t id, pid_t pid, int channel);
/** May one of the server's own user come in? */
bool clients_have_room_for_local(const struct clients *clients);

/** In the child: what is the parent's is closed. */
void clients_close(const struct clients *clients);

/** What to wait for. @ret_polls: CLIENTS_STRANGERS_MAX of them; returns how many are filled. */
size_t clients_poll(const struct clients *clients, struct pollfd *ret_polls);
/** Answer who asks, of what clients_poll() told to wait for. */
void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count);

/** A process ended. False: it had no session, and is nobody's loss. */
bool clients_ended(struct clients *clients, pid_t pid);

/* ---- in the process that asks */

struct client_question {
    char name[LINK_PEER_MAX]; /**< Of whom; as in struct client_place. */
    uint32_t sessions;        /**< As many may it have. */
    bool again;               /**< It goes on with the session of @key; or has a new one. */
    bool brings;              /**< It is none, and has a ticket for the session of that number. */
    struct session_key key;
    uint64_t received; /**< Frames of that session that its client has. */
};

/** What a session's process is given with a link. */
struct client_handover {
    uint64_t received;
    bool brings; /**< Not the session's own: passage_meet(). */
};

/**
 * Ask.
 *
 * @passed  The link, as a connected socket, for the session to go on with; or -1.
 * @ret_refusal  Why not, for the client; NULL: it has its place, and @channel is its process's; or
 *               the session has its link.
 * Returns 0, -EAGAIN (the session takes no link now), or -errno: nobody answers.
 */
MUST_CHECK int clients_ask(int channel, const struct client_question *question, int passed,
                           uint64_t deadline_ns, const char **ret_refusal);

#endif
