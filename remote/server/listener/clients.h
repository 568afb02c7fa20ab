#ifndef RESEAT_REMOTE_SERVER_LISTENER_CLIENTS_H
#define RESEAT_REMOTE_SERVER_LISTENER_CLIENTS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/link.h"
#include "remote/link/preauth.h"
#include "remote/server/listener/channel.h"
#include "remote/server/listener/devices.h"
#include "remote/wire/wire.h"
#include "state/base/bytes/content_hash.h"
#include "state/base/compiler.h"

/* A limit on how often something is done for a peer that may be hostile. Pure. */

/** `burst` times at once, refilled by `refill` every `every_ns`. */
struct rate_limit {
    unsigned burst, refill;
    uint64_t every_ns;
};

struct rate {
    unsigned used;         /**< How much of the burst is used. */
    uint64_t since_ns;     /**< When it was last refilled. */
    unsigned long refused; /**< How often rate_take() refused, since the caller reset it. */
};

/** Would rate_take() return true? */
static inline bool rate_has_room(const struct rate *rate, const struct rate_limit *limit,
                                 uint64_t now_ns)
{
    return rate->used < limit->burst || now_ns - rate->since_ns >= limit->every_ns;
}

/** Count one more; false: over the limit. */
static inline bool rate_take(struct rate *rate, const struct rate_limit *limit, uint64_t now_ns)
{
    uint64_t periods = (now_ns - rate->since_ns) / limit->every_ns;
    uint64_t back = periods * limit->refill;
    rate->since_ns += periods * limit->every_ns;
    rate->used -= back < rate->used ? (unsigned)back : rate->used;
    if (rate->used >= limit->burst) {
        rate->refused++;
        return false;
    }
    rate->used++;
    return true;
}

/*
 * Limits how many processes a session may have at once. RLIMIT_NPROC cannot do so, as it counts all
 * processes of a user, and sessions may share one. Instead the kernel asks the listening process
 * before each fork (seccomp notification, sandbox_processes()), and that counts the processes in
 * the session's group, which they cannot leave. A fork above the limit waits for others to end, and
 * is refused after a while.
 */

/** Enough for the session itself, and its compilers and linkers. */
#define PROCESSES_MAX 64

struct processes {
    int notices;           /**< The seccomp notification descriptor; -1: none. */
    uint64_t look_ns;      /**< At the limit: do not count again before this time. */
    uint64_t full_ns;      /**< Since when the limit is reached; 0: it is not. */
    bool told;             /**< The refusal was logged. */
    unsigned next_granted; /**< Index in: */
    /** When the last forks were permitted. Each counts for BEGINS_NS, as its process may not show
     * in /proc yet. */
    uint64_t granted_ns[PROCESSES_MAX];
};

#define PROCESSES_NONE ((struct processes){.notices = -1})

/** The descriptor to poll for POLLIN; -1: none now. */
int processes_poll(const struct processes *processes, uint64_t now_ns);
/** A fork waits for permission: permit or refuse it, or leave it until processes_poll() names the
 * descriptor again. @group: the session's process group. @name: for the log. */
void processes_answer(struct processes *processes, pid_t group, const char *name, uint64_t now_ns);
/** Forks are refused from now on. */
void processes_close(struct processes *processes);

/*
 * Program binaries that clients sent, kept for later sessions of the same client. The listening
 * process holds sealed memfds and never reads them. A session that gets one checks that the content
 * matches the name, a content hash (binary.h), since the session that stored it is not trusted.
 *
 * A client only ever gets its own binaries, so no client can learn what another has, or plant
 * something for it.
 */

/** Limits for all clients and for one client, in bytes. When they are reached, the least recently
 * used binaries go, those of the client that stores more first. */
#define KEPT_BYTES       (UINT64_C(1) << 30)
#define KEPT_OWNER_BYTES (UINT64_C(256) << 20)
/** Limits of the number: each binary holds a descriptor. */
#define KEPT_COUNT       128
#define KEPT_OWNER_COUNT 32

struct kept_row {
    char owner[LINK_PEER_MAX];
    unsigned char name[CONTENT_HASH_SIZE];
    int fd;
    uint64_t size;
    uint64_t used; /**< Value of `uses` at its last use. */
};

struct kept {
    struct kept_row rows[KEPT_COUNT];
    size_t count;
    uint64_t bytes, uses;
};

/** Keep @fd, replacing a binary of the same name. Takes @fd; returns false, and closes it, if it is
 * not acceptable. */
bool kept_add(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE],
              int fd);
/** A borrowed descriptor, or -1. */
int kept_find(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE]);

/** The size of @fd if it is a sealed memfd of an acceptable size; else 0. */
uint64_t kept_check(int fd);

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
    uint64_t refused, crashed; /**< Connections and sessions; sessions. */
    uint64_t ended[ENDINGS];   /**< Sessions that this process ended. */
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
