#ifndef RESEAT_REMOTE_SERVER_LISTENER_OPTIONS_H
#define RESEAT_REMOTE_SERVER_LISTENER_OPTIONS_H

#include "remote/server/listener/authority.h"
#include "remote/server/session/server.h"

#define LISTEN_MAX 16

/** What the command line of reseat-serve says. */
struct serve_options {
    const char *addresses[LISTEN_MAX];
    size_t count;
    const char *devices[DEVICES_MAX];
    struct session_limits limits;
    uint64_t clients_max;
    uint64_t linger_s;   /**< It ends so long after its last client; 0: not for that. */
    uint64_t inherited;  /**< A socket that somebody else listens at; 0: none. */
    uint64_t of_process; /**< It ends without clients once that has ended; 0: not for that. */
    bool announces;
    uint64_t reserve_bytes; /**< As devices_list(). */
    struct authority_options authority;
};

/** Read it, over what is there. False: it is wrong, and options_usage() is to be said. */
bool options_read(int argc, char **argv, struct serve_options *options);
/** Returns what the process is to return. */
int options_usage(void);

#endif
