#ifndef RESEAT_STATE_SERVER_OPERATOR_H
#define RESEAT_STATE_SERVER_OPERATOR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/files/folder.h"

/*
 * The protocol between `reseat server` and the device servers of this machine: a socket servers/PID
 * in the user's runtime folder, which only the server's own user and root can use. Each request
 * gets one answer; each of both has a fixed size.
 */

#define OPERATOR_VERSION       1
#define OPERATOR_NAME_MAX      128 /**< Bytes of a client's name, with the NUL. */
#define OPERATOR_ADDRESSES_MAX 512
#define OPERATOR_DEVICES_MAX   512

enum operator_what {
    OPERATOR_SERVER = 1, /**< Describe the server. */
    OPERATOR_SESSION,    /**< Describe the session of that number, or the one with the next higher
                           number. */
    OPERATOR_KICK,       /**< End the session of that number; or, with 0, those of that name. */
    OPERATOR_REVOKED,    /**< End the sessions of that certificate, if it is of the server's
                           authority. */
    OPERATOR_TOTALS,     /**< What the server has counted since it started. */
    OPERATOR_DEVICE,     /**< Describe the device of that number, from 0 on. */
};

struct operator_request {
    uint32_t version, what;
    uint32_t number;
    char name[OPERATOR_NAME_MAX];
    char ca[PATH_MAX]; /**< With OPERATOR_REVOKED: the authority's folder, without symbolic links.
                        */
};

struct operator_session {
    uint32_t number;
    int32_t pid;
    int64_t since; /**< In seconds since 1970. */
    uint64_t busy_ns;
    uint64_t memory; /**< Bytes promised, on all devices together. */
    uint32_t share;
    char name[OPERATOR_NAME_MAX];
    char devices[OPERATOR_DEVICES_MAX]; /**< "gpu0,cpu0". */
};

/** Why a server ended a session. */
#define OPERATOR_ENDINGS 3

struct operator_totals {
    uint64_t sessions;    /**< That were begun. */
    uint64_t connections; /**< Of clients that are not admitted yet. */
    uint64_t refused;     /**< Connections and sessions that were refused. */
    uint64_t crashed;     /**< Sessions whose process was ended by a signal that nobody meant. */
    uint64_t
        ended[OPERATOR_ENDINGS]; /**< By an operator, with their certificate, or as it expired. */
    uint64_t kept, kept_bytes;   /**< Binaries. */
};

struct operator_device {
    char name[OPERATOR_NAME_MAX];
    uint64_t capacity, granted; /**< In bytes. */
    uint32_t sessions;          /**< That offer the device to their client. */
    uint32_t waiting;           /**< That wait for a time slice. */
};

struct operator_answer {
    uint32_t version;
    int32_t error;  /**< 0 or -errno; -ENOENT: no such session or device, or no further one. */
    uint32_t count; /**< How many sessions there are, or were ended. */
    int32_t pid;
    char addresses[OPERATOR_ADDRESSES_MAX]; /**< The addresses at which the server listens,
                                              separated by blanks. */
    union {
        struct operator_session session;
        struct operator_totals totals;
        struct operator_device device;
    };
};
_Static_assert(sizeof(struct operator_totals) <= sizeof(struct operator_session) &&
                   sizeof(struct operator_device) <= sizeof(struct operator_session),
               "older servers and commands send as much");

/**
 * Call @each for every running server of this user; root's servers are not listed for others.
 *
 * @each  Called with a connection and the server's description; it returns false to stop.
 * Returns 0, or -errno with the problem. A server that does not answer costs two seconds and is
 * skipped.
 */
MUST_CHECK int operator_servers(bool (*each)(void *data, int fd,
                                             const struct operator_answer *server),
                                void *data, char ret_problem[FOLDER_PROBLEM_MAX]);
/** Send a request to a server. 0, -EPROTONOSUPPORT (the server has another version), -ETIMEDOUT, or
 * -errno. The error that the server itself reports is in *ret_answer. */
MUST_CHECK int operator_ask(int fd, const struct operator_request *request,
                            struct operator_answer *ret_answer);

/** The first of the addresses of a server that runs the drivers of isolated programs. */
#define OPERATOR_ISOLATED "isolated"

/** The folder of the sockets, created if it is missing. Returns as folder_make_private() does. */
MUST_CHECK int operator_folder(char ret_folder[PATH_MAX], char ret_problem[FOLDER_PROBLEM_MAX]);

#endif
