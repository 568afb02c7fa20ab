#ifndef RESEAT_REMOTE_SERVER_LISTENER_AUTHORITY_H
#define RESEAT_REMOTE_SERVER_LISTENER_AUTHORITY_H

#include <stdbool.h>
#include <stdint.h>

#include "remote/identity/ca.h"

/*
 * The commands of `reseat serve` for its certificate authority: --init-ca, --issue NAME and
 * --revoke NAME, with the options that go with them. Prints nothing.
 */
struct authority_options {
    const char *ca; /**< --ca FOLDER; NULL: the default of ca_folder(). */

    bool init;        /**< --init-ca */
    const char *name; /**< --name NAME of the server; NULL: this machine's host name. */

    const char *issue;   /**< --issue NAME */
    bool for_server;     /**< --for-server: the certificate is for another server. */
    const char *devices; /**< --devices LIST; NULL: all. */
    const char *memory;  /**< --memory SIZE of each session; NULL: all of it. */
    uint64_t sessions;   /**< --sessions N; 0: no limit. */
    uint64_t share;      /**< --share N; 0: GRANT_SHARE. */
    uint64_t days;       /**< --days N; 0: CA_DAYS. */
    const char *out;     /**< --out FILE; NULL: NAME.pem in the current folder. */

    const char *revoke; /**< --revoke NAME */
};

/** Descriptions and limits of the numbers above. */
#define AUTHORITY_SESSIONS     "a number of sessions, 1 to 4096"
#define AUTHORITY_SESSIONS_MAX GRANT_SESSIONS_MAX
#define AUTHORITY_SHARE        "a weight, 1 to 1000"
#define AUTHORITY_SHARE_MAX    GRANT_SHARE_MAX
#define AUTHORITY_DAYS         "a number of days, 1 to 3650"
#define AUTHORITY_DAYS_MAX     CA_DAYS_MAX

/** Size of the text that authority_run() returns. */
#define AUTHORITY_TEXT_MAX (PATH_MAX + FOLDER_PROBLEM_MAX)

/** Is one of --init-ca, --issue and --revoke given? */
bool authority_is_asked(const struct authority_options *options);

/**
 * Run the one command that is given.
 *
 * @ret_text  One sentence for the operator: what was done, or what is wrong.
 * Returns 0, -EINVAL (the options are wrong, or do not go together), or as ca.h says.
 */
MUST_CHECK int authority_run(const struct authority_options *options,
                             char ret_text[AUTHORITY_TEXT_MAX]);

#endif
