#ifndef RESEAT_TESTS_REMOTE_LINK_TLS_RIG_H
#define RESEAT_TESTS_REMOTE_LINK_TLS_RIG_H

#include <pthread.h>
#include <stdint.h>

#include "remote/identity/ca.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "tests/support/folder.h"

/* An authority "gpuhost" with the client "laptop", and both ends of links in one process. */

#define RIG_NAME_MAX (SCRATCH_MAX + 32)

/** Generous: on a slow machine nothing takes as long, and nobody waits for it to end. */
static inline uint64_t rig_soon(void)
{
    return clock_now_ns() + 60 * NS_PER_S;
}

static inline uint64_t rig_in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

struct rig {
    char folder[SCRATCH_MAX], ca[RIG_NAME_MAX], client[RIG_NAME_MAX];
    int listener; /**< -1: rig_listen() was not called. */
    uint16_t port;
};

/** With an open server, and RESEAT_CREDENTIALS for its client. */
void rig_init(struct rig *rig);
/** Issue credentials at another time. @ret_path: of the file. */
void rig_issue(const struct rig *rig, const char *name, time_t now, char ret_path[RIG_NAME_MAX]);
struct credentials rig_load(const char *path);
/** Listen at a port of 127.0.0.1. */
void rig_listen(struct rig *rig);
void rig_finish(struct rig *rig);

/** The server's end of one connection, in a thread. */
struct admission {
    const struct link_kind *kind; /**< NULL: TCP. */
    int fd;                       /**< Of the connection; -1: the first one that @listener takes. */
    int listener;
    uint64_t deadline_ns;
    int result;
    struct link *link;
    char reason[256];
    pthread_t thread;
};

void admission_begin(struct admission *admission);
/** The result; afterwards the link, where it is 0, is the caller's. */
int admission_end(struct admission *admission);

/** Both ends of a pair of sockets. Results; a link is made where its result is 0. */
struct ends {
    int connected, admitted;
    struct link *client, *server;
    char client_reason[256], server_reason[256];
};
/** Over sockets that there are. */
struct ends ends_over(const struct credentials *credentials, int client, int server);
struct ends ends_make(const struct credentials *credentials);
/** Both have to be there. */
struct ends ends_made(const struct rig *rig);
void ends_finish(struct ends *ends);

int rig_send(struct link *link, const void *bytes, size_t size, uint64_t deadline_ns);
/** All @size bytes. 0, or what came instead. */
int rig_receive(struct link *link, void *bytes, size_t size, uint64_t deadline_ns);

/** A TCP connection to a port of 127.0.0.1. */
int rig_dial(uint16_t port);

/** The byte at a place of a stream that belongs to @seed. */
static inline unsigned char rig_byte(uint64_t at, unsigned seed)
{
    return (unsigned char)((at * 2654435761u >> 13) + at + seed);
}

#endif
