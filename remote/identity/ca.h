#ifndef RESEAT_REMOTE_IDENTITY_CA_H
#define RESEAT_REMOTE_IDENTITY_CA_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "remote/identity/credentials.h"

/*
 * A private certificate authority in a folder that nobody else can enter, mode 0700:
 *
 *   ca.key      the authority's key. A server does not need it: it may be kept elsewhere
 *   server.pem  the server's credentials
 *   issued      a line for each certificate: "SERIAL UNTIL NAME", UNTIL in seconds since 1970
 *   revoked     a line for each that does not count any more: "SERIAL NAME" (certificate.h)
 *   lock        so that two commands do not write at once
 *
 * Who runs a server and who uses its authority is one user. Thread-safe between processes, not
 * between threads of one.
 */

#define CA_DAYS     365  /**< A certificate's life where nothing else is said. */
#define CA_DAYS_MAX 3650 /**< An authority's and a server's. */
#define CA_KEY      "ca.key"
#define CA_SERVER   "server.pem"
#define CA_REVOKED  "revoked"
#define CA_CLOCKS_S                                                                                \
    3600 /**< A certificate counts from then on before it is made: clocks differ.                  \
          */

/**
 * The folder: @named, else $XDG_CONFIG_HOME/reseat/ca, else ~/.config/reseat/ca; what is above that
 * is made. Returns 0 or -errno.
 */
MUST_CHECK int ca_folder(const char *named, char ret_folder[PATH_MAX]);

/** @ret: a file of the folder. 0 or -ENAMETOOLONG. */
MUST_CHECK int ca_file(const char *folder, const char *name, char ret[PATH_MAX]);

/**
 * Make an authority and the credentials of the first server.
 *
 * @folder       Made where it is missing; what is above it is there.
 * @server       The server's name, by address_is_name().
 * @now          The time.
 * @ret_problem  On failure one line, in all of these.
 * Returns 0, -EEXIST (there is one), -EPERM (the folder is not this user's alone), or -errno.
 */
MUST_CHECK int ca_create(const char *folder, const char *server, time_t now,
                         char ret_problem[FOLDER_PROBLEM_MAX]);

struct ca_wish {
    const char *name;
    bool server;         /**< Credentials of another server, not of a client. */
    struct grant grant;  /**< Of a client. */
    unsigned days;       /**< 1 to CA_DAYS_MAX. */
    const char *to_file; /**< Where its credentials go: a file that is not there yet. */
};

/**
 * Issue a certificate and write its credentials. No name has two certificates that count at a time:
 * so a limit of sessions means something, and revoking a name has one meaning.
 *
 * Returns 0, -EINVAL (the name), -EEXIST (the name has a certificate, or the file is there),
 * -EPERM, -ENOENT (no authority), or -errno; then there is no certificate.
 */
MUST_CHECK int ca_issue(const char *folder, const struct ca_wish *wish, time_t now,
                        char ret_problem[FOLDER_PROBLEM_MAX]);

/**
 * Have no certificate that was issued for a name count any more, from the next handshake on.
 *
 * @ret_count  How many that are, of those that counted.
 * Returns 0, -ESRCH (none counts), or -errno.
 */
MUST_CHECK int ca_revoke(const char *folder, const char *name, time_t now, size_t *ret_count,
                         char ret_problem[FOLDER_PROBLEM_MAX]);

#endif
