#ifndef RESEAT_STREAM_SERVICE_SERVICE_H
#define RESEAT_STREAM_SERVICE_SERVICE_H

#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/link.h"
#include "state/base/compiler.h"
#include "stream/area.h"
#include "stream/description.h"
#include "stream/frame.h"

/*
 * The service of streams. One process listens; each connection has a process of its own, which
 * reads what the client sends, and starts the worker of its stream. The listening process and those
 * of the connections share a table.
 */

#define SERVICE_FOLDERS_MAX 8
#define SERVICE_LISTEN_MAX  8

/** A connection. Written by its own process but for `pid`, `stranger` and `remote`; read by all. */
struct service_slot {
    _Atomic pid_t pid; /**< 0: free. */
    uint64_t stranger; /**< Of preauth.h; 0: not counted. Of the listening process. */
    bool remote;       /**< Its client needs a certificate. */
    atomic_bool admitted;
    /** In which connections came to count for the limits; 0: not yet, 1: its number is being drawn.
     */
    _Atomic uint64_t order;
    atomic_int area; /**< Descriptor of its area, in its process; 0: none yet. */
    uint64_t area_size;
    bool shared;
    char peer[LINK_PEER_MAX], kernel[STREAM_NAME_MAX], program[STREAM_NAME_MAX];
};

/** Payloads of a client's kernel: learnt.c. Streams that write at once leave a mixture. */
#define SERVICE_LEARNT_MAX 64
struct service_learnt {
    _Atomic uint64_t key;
    _Atomic uint32_t payloads[STREAM_PAYLOADS];
};

struct service_table {
    _Atomic uint64_t last; /**< The last order that was given; 1 at first. */
    struct service_learnt learnt[SERVICE_LEARNT_MAX];
    unsigned count;
    struct service_slot slots[];
};

struct service {
    const char *reseat, *worker; /**< Paths of programs. */
    const char *folders[SERVICE_FOLDERS_MAX];
    size_t folder_count;
    unsigned streams;     /**< At once. */
    uint64_t ready_ns;    /**< How long a worker may take to open its device and to build. */
    uint64_t patience_ns; /**< How long a stranger may stop in the middle of a frame. */
    struct service_table *table;
};

/** Serve one connection, in a process of its own. @fd: taken. Returns an exit status. */
int connection_run(const struct service *service, const struct link_kind *kind, int fd,
                   struct service_slot *slot);

/**
 * Read the description and the source of a kernel from the folders.
 *
 * @ret_description, @ret_source  free() them.
 * Returns 0, -ENOENT, or -errno, with a reason.
 */
MUST_CHECK int kernels_find(const struct service *service, const char *name, char **ret_description,
                            char **ret_source, char ret_problem[STREAM_PROBLEM_MAX]);
/** The kernels in the folders, and the open streams, as a JSON text; free() it. NULL: no memory. */
char *kernels_list(const struct service *service);

/*
 * Starts the worker of a stream, and starts it again when it ends before its client does. Records
 * stay in the area until they are answered, so the next worker continues where the last one ended.
 */
struct supervisor {
    const char *reseat, *worker, *program;
    const char *device; /**< Where the first worker starts; "": any device. */
    const char *only;   /**< The devices that its certificate grants, with commas; "": all. */
    bool isolate;
    const struct link *certified; /**< Of a stranger: the stream ends with its certificate. */
    uint64_t ready_ns;    /**< How long a worker may take to open its device and to build. */
    uint64_t patience_ns; /**< Of bridge_run(): how long a frame may stop; UINT64_MAX: any time. */
    uint64_t quota;       /**< Device memory; GRANT_UNLIMITED_MEMORY: no limit. */
    const struct stream_area *area;
    int area_fd, job;
    int doorbell; /**< The worker's end of it. */
    /** The stream ends when poll() reports these events, or a hang-up, on this descriptor. */
    int client;
    short client_events;
    /** Called once, when the worker is ready: 0, or the stream ends. */
    int (*begin)(void *data);
    void *data;

    struct service_learnt *learnt; /**< learnt_find(). */
    uint64_t learnt_key;

    bool begun;
    pid_t pid;          /* 0: none runs. */
    int process, ready; /* A pidfd, and the pipe of its first byte; -1: none. */
    unsigned starts;    /* Since a record was answered. */
    uint64_t answered, started_ns, check_ns;
};

/**
 * Find where the payloads of streams of this kernel are kept. @whose: the client whose streams they
 * are; "": the service's own user.
 */
void learnt_find(struct supervisor *supervisor, const struct service *service, const char *whose,
                 const struct stream_open *open);
/** Begin the stream with what the last one ended with, if any; and keep what it ends with. */
void learnt_give(const struct supervisor *supervisor);
void learnt_keep(const struct supervisor *supervisor);

/**
 * Run until the client is gone (0) or the stream has failed (-errno; the area has the reason).
 * Blocks. The worker has ended when this returns.
 */
MUST_CHECK int supervisor_run(struct supervisor *supervisor);

/**
 * Serve a client that does not share the area: this process is the client of the worker, copies
 * what comes in RECORDS into the area, and sends its answers in ANSWERS. Sets the members of
 * @supervisor that concern the client. Blocks until the stream has ended; sends the reason when it
 * has failed. Returns 0 or -errno.
 */
MUST_CHECK int bridge_run(struct link *link, struct supervisor *supervisor);

#endif
