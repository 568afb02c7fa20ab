#ifndef RESEAT_STREAM_SERVICE_SUPERVISOR_H
#define RESEAT_STREAM_SERVICE_SUPERVISOR_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote/link/link.h"
#include "state/base/compiler.h"
#include "stream/area.h"

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

    bool begun;
    pid_t pid;          /* 0: none runs. */
    int process, ready; /* A pidfd, and the pipe of its first byte; -1: none. */
    unsigned starts;    /* Since a record was answered. */
    uint64_t answered, started_ns, check_ns;
};

/**
 * Run until the client is gone (0) or the stream has failed (-errno; the area has the reason).
 * Blocks. The worker has ended when this returns.
 */
MUST_CHECK int supervisor_run(struct supervisor *supervisor);

#endif
