#ifndef STATE_MOVE_SPREAD_HELPER_H
#define STATE_MOVE_SPREAD_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "state/command/share.h"
#include "state/memory/merge.h"
#include "state/move/spread.h"

/* The structs of one spread launch and of each residence that helps, shared by spread.c (begins,
 * ends, merges) and spread_helper.c (does one helper's part). */

/* Most residences that help with a launch. */
#define SPREAD_HELPERS 8

/* Most pieces that a helper has in its driver at once. */
#define AT_ONCE 2

/* The bytes of one root that the launch uses. */
struct named {
    struct memory *root; /* held, collected and watched */
    struct range range;
    uint64_t version;
    bool writes;
    size_t unit; /* largest unit, in bytes, that the kernel writes */
};

struct flight {
    cl_event event;
    size_t count;
    uint64_t given;
};

/* A residence that does a part of the launch. */
struct helper {
    struct spread *spread;
    uint8_t residence_index;
    struct residence *residence;
    struct command *command; /* owned */
    struct pieces *pieces;   /* the command's: what to do next */
    cl_command_queue
        queues[AT_ONCE];   /* two, so that a second piece fills the device while the first ends */
    struct merge **merges; /* owned; one for each of spread->named, or NULL */
    struct groups *groups; /* owned: groups done or in progress */
    struct flight flights[AT_ONCE];
    unsigned running;
    uint64_t items, claimed,
        since; /* work-items done and taken; when the last piece ended, or the first began */
    unsigned pieces_given, pieces_done;
    double per_s;   /* work-items a second; 0: not known */
    double cost_s;  /* most seconds to bring its results home */
    double fetch_s; /* the part of cost_s before home is involved, for the whole launch */
    int error;      /* its results must be thrown away */
    uint64_t deadline_ns;
    bool ended;
    atomic_bool abandoned;
    bool started; /* its thread runs or is to be joined */
    pthread_t thread;
};

struct spread {
    struct shared_launch launch;
    const struct spread_request *request; /* NULL after spread_run */
    struct context *context;
    uint8_t home;
    struct named *named;
    size_t named_count;
    struct helper helpers[SPREAD_HELPERS];
    unsigned helper_count;
    pthread_mutex_t lock; /* guards the helpers' counts and flags while their threads run */
};

/* Work-items a second that home does. */
double spread_home_per_s(const struct spread *s);

/* Prepare @h: its command, objects and copies of the bytes that it needs. Gate open. 0, -ENOENT
 * (not worth it), or another error. In any case call helper_end afterwards. */
int helper_begin(struct helper *h);
void helper_end(struct helper *h);
/* Thread function: run pieces until none is left or one fails, then fetch what they wrote to host
 * memory. */
void *helper_run(void *helper);
/* Remember the speed of its device for the next launch. Its thread has ended or was abandoned. */
void helper_remember(const struct helper *h);

#endif
