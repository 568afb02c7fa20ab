#ifndef RESEAT_REMOTE_SERVER_LISTENER_CONTROL_H
#define RESEAT_REMOTE_SERVER_LISTENER_CONTROL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/identity/grant.h"
#include "remote/link/link.h"
#include "state/base/files/folder.h"

/*
 * What an operator says to a device server of this machine: a socket in the user's runtime folder,
 * servers/PID, that only the server's own user, and root, can use. A request gets one answer; both
 * have one size.
 */

#define CONTROL_VERSION       1
#define CONTROL_ADDRESSES_MAX 512
#define CONTROL_DEVICES_MAX   512

enum control_what {
    CONTROL_SERVER = 1, /**< Who are you? */
    CONTROL_SESSION,    /**< The session of that number, or the next. */
    CONTROL_KICK,       /**< End the session of that number; or, with 0, those of that name. */
    CONTROL_REVOKED,    /**< End those of that certificate, if it is of your authority. */
};

struct control_request {
    uint32_t version, what;
    uint32_t number;
    char name[LINK_PEER_MAX];
    char ca[PATH_MAX]; /**< Of CONTROL_REVOKED: the authority's folder, without links. */
};

struct control_session {
    uint32_t number;
    int32_t pid;
    int64_t since; /**< In seconds since 1970. */
    uint64_t busy_ns;
    uint64_t memory; /**< Bytes promised, of all devices. */
    uint32_t share;
    char name[LINK_PEER_MAX];
    char devices[CONTROL_DEVICES_MAX]; /**< "gpu0,cpu0". */
};

struct control_answer {
    uint32_t version;
    int32_t error;  /**< 0, or -errno; -ENOENT: there is none (more). */
    uint32_t count; /**< Of sessions that there are, or that were ended. */
    int32_t pid;
    char addresses[CONTROL_ADDRESSES_MAX]; /**< Of the server, with blanks between. */
    struct control_session session;
};

/**
 * The servers of this user that run now; root's do not count for others.
 *
 * @each  Called with a connection, and what the server says of itself; false: stop.
 * Returns 0, or -errno with the problem. Blocks for two seconds on a server that stands still,
 * which is passed over.
 */
MUST_CHECK int control_servers(bool (*each)(void *data, int fd,
                                            const struct control_answer *server),
                               void *data, char ret_problem[FOLDER_PROBLEM_MAX]);
/** Ask one. 0, -EPROTONOSUPPORT (it is of another version), -ETIMEDOUT, or -errno. What the server
 *  answers is in *ret_answer, its error too. */
MUST_CHECK int control_ask(int fd, const struct control_request *request,
                           struct control_answer *ret_answer);

/** The first of a server's addresses where it has the drivers of isolated programs. */
#define CONTROL_ISOLATED "isolated"

/** The folder of the sockets, made where it is missing. 0, or as folder_make_private(). */
MUST_CHECK int control_folder(char ret_folder[PATH_MAX], char ret_problem[FOLDER_PROBLEM_MAX]);

#endif
