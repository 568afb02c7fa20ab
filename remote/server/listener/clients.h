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
 * The processes of a server's clients. A stranger is a connection that is not admitted yet. A
 * client has one of the server's sessions, of which its certificate limits the number. A stranger's
 * process asks the listening process once it has authenticated its peer and read what it wants: a
 * new session, or that its link is passed on to an existing one. A refused stranger stays one until
 * its process ends.
 *
 * Strangers who need a certificate are limited by preauth.h; processes of the server's own user by
 * CLIENTS_LOCAL_MAX.
 *
 * Each session's process keeps its channel (channel.h) for life. Memory is promised and time slices
 * are given over it, and all are taken back when the process has ended, for whatever reason.
 */

#define CLIENTS_LOCAL_MAX 64
/** Processes at a time that carry bytes between one session, or all of them, and other servers:
 * those that connect for it, and those of peers that come with a ticket. */
#define CARRIERS_MAX          64
#define CARRIERS_ALL_MAX      512
#define CLIENTS_STRANGERS_MAX (PREAUTH_MAX + CLIENTS_LOCAL_MAX)

/** What a client shows to resume its session. From getrandom(). */
struct session_key {
    uint64_t number; /**< 0: the session cannot be resumed, and ends with its link. */
    unsigned char secret[WIRE_SECRET_SIZE];
};

struct stranger {
    pid_t pid;
    uint64_t id; /**< Of preauth_enter(); 0: a process of the server's own user. */
    int channel; /**< To its process; -1: its question was answered, or it has closed the
                    channel. */
};

struct client {
    uint32_t number; /**< Unique while the server runs. */
    pid_t pid;
    char name[LINK_PEER_MAX]; /**< From its certificate, or "unix:UID". */
    struct session_key key;
    int channel; /**< To its process; -1: closed. */
    pid_t relay; /**< The process that carries its newest link; 0: none. */
    uint32_t share;
    int64_t since, until; /**< Seconds since 1970. It is ended at `until`; 0: never. */
    uint64_t uses;        /**< Bit i: it offers device i. */
    uint64_t busy_ns;     /**< How long its commands ran, by its own report. */
    uint64_t kill_ns;     /**< When it is killed; 0: it need not end. UINT64_MAX: it was killed. */
    struct rate heard;    /**< Limits the messages that are read from it. */
    struct processes processes;
    struct clients *clients;
    pid_t carriers[CARRIERS_MAX]; /**< Processes; 0: a free entry. */
    struct rate connects;         /**< Limits the processes that are started to connect for it. */
    uint64_t held[DEVICES_MAX];
    struct timeslice_user timeslices[DEVICES_MAX];
};

struct clients {
    struct preauth preauth;
    struct stranger strangers[CLIENTS_STRANGERS_MAX];
    size_t stranger_count, local_count;
    struct client **places;
    unsigned count, max, carrier_count;
    uint32_t last_number;
    struct devices *devices;
    uint64_t told_free[DEVICES_MAX];
    struct kept kept;
    uint64_t tell_ns; /**< Sessions are not told of free memory before this time. */
    /** Start a process that connects for a session over @socket, which is borrowed: returns its
     * process id, or -errno. NULL: connecting is not possible. */
    pid_t (*connect)(void *data, int socket);
    void *connect_data;
};

/** The most descriptors that clients_poll() fills in for @max clients. */
#define CLIENTS_POLLS(max) (CLIENTS_STRANGERS_MAX + 2 * (size_t)(max))

/** 0 or -ENOMEM. @clients is zero; @devices is borrowed. */
MUST_CHECK int clients_init(struct clients *clients, unsigned max, struct devices *devices);

/**
 * A connection of a kind that needs authentication was accepted: count it, dropping an older one if
 * there must be room.
 *
 * Returns 0 or -EBUSY: drop the connection.
 */
MUST_CHECK int clients_enter(struct clients *clients, const struct sockaddr *from, uint64_t now_ns,
                             uint64_t *ret_id);
/** Say which process serves the connection; @pid -1: none could be started. Takes @channel. @id 0:
 * it is of the server's own user, and the caller has asked clients_have_room_for_local(). */
void clients_forked(struct clients *clients, uint64_t id, pid_t pid, int channel);
/** May another connection of the server's own user be accepted? */
bool clients_have_room_for_local(const struct clients *clients);

/** Fill in what to poll. @ret_polls has room for CLIENTS_POLLS(); returns how many are filled. */
size_t clients_poll(const struct clients *clients, uint64_t now_ns, struct pollfd *ret_polls);
/** Read and answer one packet of each descriptor of clients_poll() that is ready. */
void clients_answer(struct clients *clients, const struct pollfd *polls, size_t count,
                    uint64_t now_ns);
/** Do what is due: expired certificates, kills, time slices, news of free memory. Returns when to
 * call it next; UINT64_MAX: not by time. @wall: seconds since 1970. */
uint64_t clients_tick(struct clients *clients, uint64_t now_ns, int64_t wall);

/** The client with the lowest number that is at least @number, or NULL. */
const struct client *clients_from(const struct clients *clients, uint32_t number);
/** End the session of that number, or, with 0, all sessions of that name. Returns how many. */
size_t clients_end(struct clients *clients, uint32_t number, const char *name, enum ending why,
                   uint64_t now_ns);

/** Kill a client's process and all processes that it has started. */
void client_kill(pid_t pid);
/** Kill all clients, because this process is about to end. */
void clients_kill(const struct clients *clients);

/** Call @each with the process id of each stranger and client. */
void clients_each_process(const struct clients *clients, void (*each)(void *data, pid_t pid),
                          void *data);

/** A child has ended: kill its group and free what it held. Returns false if it was neither a
 * stranger nor a client. */
bool clients_ended(struct clients *clients, pid_t pid);

/* ---- in the stranger's process */

struct client_question {
    char name[LINK_PEER_MAX]; /**< As in struct client. */
    uint32_t sessions;        /**< How many sessions it may have at once. */
    uint32_t share;           /**< Its weight for time slices. */
    int64_t until;            /**< When its certificate ends; 0: it has none. */
    bool again;               /**< Resume the session of @key, rather than begin one. */
    bool brings; /**< It has a ticket for the session whose number is in @key, and gets none of
                    its own. */
    struct session_key key;
    uint64_t received; /**< How many frames of the session its client has received. */
};

/**
 * Ask the listening process for a session, or to pass this link on to one.
 *
 * @passed  The link as a connected socket, for the session that goes on with it; or -1.
 * @ret_refusal  The reason of a refusal, for the client. NULL: granted; the channel then belongs to
 *               the new session, or the existing session has the link.
 * Returns 0, -EAGAIN (the session cannot take a link now), or -errno: no answer.
 */
MUST_CHECK int clients_ask(int channel, const struct client_question *question, int passed,
                           uint64_t deadline_ns, const char **ret_refusal);

#endif
