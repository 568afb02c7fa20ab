#ifndef RESEAT_REMOTE_SERVER_LISTENER_OPTIONS_H
#define RESEAT_REMOTE_SERVER_LISTENER_OPTIONS_H

#include "remote/server/listener/authority.h"
#include "remote/server/session/server.h"

#define LISTEN_MAX 16

/** The command line of reseat-serve. */
struct serve_options {
    const char *addresses[LISTEN_MAX];
    size_t count;
    const char *devices[DEVICES_MAX]; /**< Copied to the limits. */
    struct session_limits limits;
    uint64_t clients_max;
    uint64_t linger_s;   /**< The server ends this long after its last client left; 0: never. */
    uint64_t inherited;  /**< A Unix socket on which another process listens; 0: none. */
    uint64_t of_process; /**< The server ends once this process has ended and no client is left;
                            0: not used. */
    bool announces;
    uint64_t reserve_bytes; /**< As in devices_list(). */
    struct authority_options authority;
};

/** Parse the command line into @options, which has the defaults. Returns false after an error; then
 * call options_usage(). */
bool options_read(int argc, char **argv, struct serve_options *options);
/** Print the usage; returns the exit status. */
int options_usage(void);

#endif
