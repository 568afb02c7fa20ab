#ifndef RESEAT_REMOTE_IDENTITY_CA_H
#define RESEAT_REMOTE_IDENTITY_CA_H

#include <stddef.h>
#include <time.h>

#include "remote/identity/credentials.h"

/*
 * A private certificate authority in a folder that no other user can enter, mode 0700:
 *
 *   ca.key      the authority's key. A running server does not need it: it may be kept elsewhere
 *   server.pem  the server's credentials
 *   issued      a line for each certificate: "SERIAL UNTIL NAME", UNTIL in seconds since 1970
 *   revoked     a line for each revoked certificate: "SERIAL NAME" (certificate.h)
 *   lock        locked while a command works, so that two commands do not write at the same time
 *
 * The server and the commands that use its authority run as the same user. Several processes may
 * use an authority at the same time, several threads of one process may not.
 */

#define CA_DAYS     365  /**< Default lifetime of a certificate. */
#define CA_DAYS_MAX 3650 /**< Longest lifetime; that of the authority and of its first server. */
#define CA_KEY      "ca.key"
#define CA_SERVER   "server.pem"
#define CA_REVOKED  "revoked"
#define CA_CLOCKS_S                                                                                \
    3600 /**< A certificate is valid from so many seconds before it is made: clocks differ. */

/**
 * Find the authority's folder: @named, or if that is NULL $XDG_CONFIG_HOME/reseat/ca, or else
 * ~/.config/reseat/ca. Unless @named is given, the two folders above it are created if missing. The
 * folder itself is not. Returns 0 or -errno.
 */
MUST_CHECK int ca_folder(const char *named, char ret_folder[PATH_MAX]);

/** Get the path of the file @name in @folder. Returns 0 or -ENAMETOOLONG. */
MUST_CHECK int ca_file(const char *folder, const char *name, char ret[PATH_MAX]);

/**
 * Make an authority and the credentials of the first server.
 *
 * @folder       Created if it is missing. The folder above it must exist.
 * @server       The server's name. It must satisfy address_is_name().
 * @now          The current time.
 * @ret_problem  Written on failure: one line. The same holds for the functions below.
 * Returns 0, -EEXIST (the folder has an authority), -EPERM (other users can access the folder), or
 * -errno.
 */
MUST_CHECK int ca_create(const char *folder, const char *server, time_t now,
                         char ret_problem[FOLDER_PROBLEM_MAX]);

struct ca_wish {
    const char *name;
    bool server;         /**< Issue credentials of another server, not of a client. */
    struct grant grant;  /**< For a client only. */
    unsigned days;       /**< 1 to CA_DAYS_MAX. */
    const char *to_file; /**< File to write the credentials to. It must not exist. */
};

/**
 * Issue a certificate and write its credentials. A name has at most one valid certificate at a
 * time: otherwise a client could exceed its limit of sessions with a second certificate.
 *
 * Returns 0, -EINVAL (the name is not allowed), -EEXIST (the name has a valid certificate, or the
 * file exists), -EPERM, -ENOENT (no authority), or -errno. After a failure no certificate is
 * issued.
 */
MUST_CHECK int ca_issue(const char *folder, const struct ca_wish *wish, time_t now,
                        char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * Revoke all valid certificates of a name. Takes effect at the next handshake.
 *
 * @ret_count  Number of certificates revoked.
 * Returns 0, -ESRCH (the name has no valid certificate), or -errno.
 */
MUST_CHECK int ca_revoke(const char *folder, const char *name, time_t now, size_t *ret_count,
                         char ret_problem[FOLDER_PROBLEM_MAX]);

#endif
