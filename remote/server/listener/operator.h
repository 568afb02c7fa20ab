#ifndef RESEAT_REMOTE_SERVER_LISTENER_OPERATOR_H
#define RESEAT_REMOTE_SERVER_LISTENER_OPERATOR_H

#include <poll.h>
#include <sys/un.h>

#include "remote/server/listener/clients.h"
#include "state/server/operator.h"

/* The server's side of state/server/operator.h. Runs in the listening process, and never blocks it.
 */

#define OPERATORS_MAX   4
#define OPERATORS_POLLS (1 + OPERATORS_MAX)

struct operators {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int listener; /**< -1: not listening. */
    int fds[OPERATORS_MAX];
    size_t count;
    const char *ca; /**< The authority's folder, without symbolic links; "": none. */
    char addresses[OPERATOR_ADDRESSES_MAX];
    struct clients *clients;
};

/** Listen. 0, or -errno with the problem. @operators is zero. */
MUST_CHECK int operators_init(struct operators *operators, struct clients *clients,
                              char ret_problem[FOLDER_PROBLEM_MAX]);
void operators_finish(struct operators *operators);

/** Fill in what to poll. @ret_polls has room for OPERATORS_POLLS; returns how many are filled. */
size_t operators_poll(const struct operators *operators, struct pollfd *ret_polls);
/** Accept connections, and answer the requests of those that are ready. */
void operators_answer(struct operators *operators, const struct pollfd *polls, size_t count,
                      uint64_t now_ns);

#endif
