#ifndef STATE_MOVE_SPREAD_HELPER_H
#define STATE_MOVE_SPREAD_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "state/command/share.h"
#include "state/memory/merge.h"
#include "state/move/spread.h"

/* What one launch that is spread has, and each place that helps with it: of spread.c, which begins
 * and ends it and brings home what was done, and of spread_helper.c, which does a place's part. */

/* Pieces of a place with its driver at once, at most. */
#define AT_ONCE 2

/* The bytes of one root that the launch names. */
struct named {
    struct memory *root; /* deferred, collected and watched */
    struct range range;
    uint64_t version;
    bool writes;
    size_t unit; /* that kernels write at once there, at most */
};

struct flight {
    cl_event event;
    size_t count;
    uint64_t given;
};

/* A place that does a part. */
struct helper {
    struct spread *spread;
    uint8_t residence_index;
    struct residence *residence;
    struct command *command;          /* owned */
    struct pieces *pieces;            /* the command's: what it is to do next */
    cl_command_queue queues[AT_ONCE]; /* what one piece leaves idle at its end the next one fills */
    struct merge **merges;            /* owned; one for each of spread->named, or NULL */
    struct groups *groups;            /* owned: what it has done, or is at */
    struct flight flights[AT_ONCE];
    unsigned running;
    uint64_t items, claimed, since; /* done; taken; and when the last one ended, or it began */
    unsigned pieces_given, pieces_done;
    double per_s;   /* work-items a second; 0: not known */
    double cost_s;  /* of bringing home what it does, at most */
    double fetch_s; /* of it until home is asked, of the whole launch */
    int error;      /* what it did is to be thrown away */
    uint64_t deadline_ns;
    bool ended;
    atomic_bool abandoned;
    bool started; /* has a thread */
    pthread_t thread;
};

struct spread {
    struct shared_launch launch;
    const struct spread_request *request; /* while it is run */
    struct context *context;
    uint8_t home;
    struct named *named;
    size_t named_count;
    struct helper helpers[RESIDENCES_MAX];
    unsigned helper_count;
    pthread_mutex_t lock; /* of what helpers have taken and done, while their threads run */
};

/* Work-items that the launch's own place does in a second. */
double spread_home_per_s(const struct spread *s);

/* What @h does its part with, and the bytes that it needs. Gate open. 0, -ENOENT (it would not be
 * worth it), or why it cannot be. Whatever comes of it, helper_end is for the end. */
int helper_begin(struct helper *h);
void helper_end(struct helper *h);
/* A thread's: pieces until none is left or it fails, then what they wrote to host memory. */
void *helper_run(void *helper);
/* How fast its device was, for the next launch. Its thread has ended, or was abandoned. */
void helper_remember(const struct helper *h);

#endif
