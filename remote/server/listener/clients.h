#ifndef RESEAT_REMOTE_SERVER_LISTENER_CLIENTS_H
#define RESEAT_REMOTE_SERVER_LISTENER_CLIENTS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/link.h"
#include "remote/link/preauth.h"
#include "remote/server/listener/channel.h"
#include "remote/server/listener/devices.h"
#include "remote/server/listener/kept.h"
#include "remote/server/listener/processes.h"
#include "remote/server/listener/rate.h"
#include "remote/wire/wire.h"

/*
 * The processes of a server's clients: strangers, who are not admitted yet, and clients, who have
 * one of the server's places, and as many at once as their certificate says. A process asks once it
 * knows who its client is and what it wants: a place, or that its link is handed over to a session
 * that there is. Who is refused stays a stranger until it is gone.
 *
 * Strangers who need a certificate have a place before authentication (preauth.h); the server's own
 * user has CLIENTS_LOCAL_MAX others.
 *
 * Each session's process keeps its channel for as long as it lives, and is promised memory and
 * given time slices over it (channel.h). What it holds is given back when it has ended, however it
 * did.
 */

#define CLIENTS_LOCAL_MAX 64
/** So many processes connect for one session at a time. */
#define CONNECTORS_MAX        64
#define CLIENTS_STRANGERS_MAX (PREAUTH_MAX + CLIENTS_LOCAL_MAX)

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

struct client {
    uint32_t number; /**< No two of a server's have the same. */
    pid_t pid;
    char name[LINK_PEER_MAX]; /**< Of its certificate, or "unix:UID". */
    struct session_key key;
    int channel; /**< To its process; -1: it is closed. */
    pid_t relay; /**< What carries its newest link; 0: none that is a process. */
    uint32_t share;
    int64_t since, until; /**< In seconds since 1970; until 0: no end. */
    uint64_t uses;        /**< A bit for each device that it offers. */
    uint64_t busy_ns;     /**< For which it had commands under way, as it says. */
    uint64_t kill_ns;     /**< 0: it was not told to end. UINT64_MAX: it was killed. */
    struct rate heard;    /**< Of its messages. */
    struct processes processes;
    struct clients *clients;
    pid_t connectors[CONNECTORS_MAX]; /**< Processes that connect for it; 0: free. */
    uint64_t held[DEVICES_MAX];
    struct timeslice_user timeslices[DEVICES_MAX];
};

struct clients {
    struct preauth preauth;
    struct stranger strangers[CLIENTS_STRANGERS_MAX];
    size_t stranger_count, local_count;
    struct client **places;
    unsigned count, max;
    uint32_t last_number;
    struct devices *devices;
    uint64_t told_free[DEVICES_MAX];
    struct kept kept;
    uint64_t tell_ns; /**< When sessions may be told of free memory again. */
    /** Start a process that connects for a session, over @socket, which is borrowed: its number, or
     *  -errno. NULL: there is nobody who could. */
    pid_t (*connect)(void *data, int socket);
    void *connect_data;
};

/** As many descriptors to wait for at most, with @max clients. */
#define CLIENTS_POLLS(max) (CLIENTS_STRANGERS_MAX + 2 * (size_t)(max))

/** 0 or -ENOMEM. @clients is zero; @devices is borrowed. */
MUST_CHECK int clients_init(struct clients *clients, unsigned max, struct devices *devices);

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

/** What to wait for. @ret_polls: CLIENTS_POLLS() of them; returns how many are filled. */
size_t clients_poll(const struct clients *clients, uint64_t now_ns, struct pollfd *ret_polls);
/** Answer who asks, of what clients_poll() told to wait for: one packet of each. */
void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count,
                    uint64_t now_ns);
/** See to what time does. When it is to be called next; UINT64_MAX: there is nothing. @wall:
 *  seconds since 1970. */
uint64_t clients_tick(struct clients *clients, uint64_t now_ns, int64_t wall);

/** The client of the lowest number from @number on. NULL: there is none. */
const struct client *clients_from(const struct clients *clients, uint32_t number);
/** End sessions: the one of that number, or, with 0, all of that name. How many. */
size_t clients_end(struct clients *clients, uint32_t number, const char *name, enum ending why,
                   uint64_t now_ns);

/** End a client's process, and whatever that started. */
void client_kill(pid_t pid);
/** All of them: this one is about to end. */
void clients_kill(const struct clients *clients);

/** Call @each with the number of each of their processes. */
void clients_each_process(const struct clients *clients, void (*each)(void *data, pid_t pid),
                          void *data);

/** A process ended, and what it started ends. False: it had no session, and is nobody's loss. */
bool clients_ended(struct clients *clients, pid_t pid);

/* ---- in the process that asks */

struct client_question {
    char name[LINK_PEER_MAX]; /**< Of whom; as in struct client. */
    uint32_t sessions;        /**< As many may it have. */
    uint32_t share;           /**< What it has of a device's time. */
    int64_t until;            /**< When its certificate ends; 0: it has none. */
    bool again;               /**< It goes on with the session of @key; or has a new one. */
    bool brings;              /**< It is none, and has a ticket for the session of that number. */
    struct session_key key;
    uint64_t received; /**< Frames of that session that its client has. */
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
