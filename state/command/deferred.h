#ifndef RESEAT_STATE_COMMAND_DEFERRED_H
#define RESEAT_STATE_COMMAND_DEFERRED_H

#include "state/command/command.h"
#include "state/command/pieces.h"
#include "state/command/power.h"

/*
 * What the files of deferred commands share: defer.c has the list and decides what is given next,
 * window.c does so where launches may be placed, give.c gives one command to a driver, and power.c
 * holds launches back while a power cap concerns the program.
 */

/*
 * A deferred command. It is on its queue's list, which engine_lock guards, until it was issued or
 * cancelled.
 */
struct deferred {
    struct deferred *next;
    uint64_t serial;
    bool issuing;
    bool given;     /* issued in parts: stays on the list until all of them have ended */
    unsigned tries; /* retries, for context_outlives */
    bool paced;     /* it is being issued under a power cap */
    bool kept;      /* the journal owns its command */
    bool left;      /* in a forked child: only the parent issues it */
    bool visible;   /* the program has its event */
    bool tracked; /* it stays on the list until it has ended: the queue's launches may be placed */
    bool held;    /* its event does not end before it is the first on the list (a sharer) */
    uint32_t to;  /* PLACE_HOME, or the helper that it is to be given to */
    struct event
        *marker;    /* held; for a read elsewhere: the marker that has to end first. Or NULL */
    uint64_t since; /* when it was enqueued, by the host's clock */
    cl_int refused; /* the last error of the driver */
    cl_int error;   /* the error that cancels it although its wait list succeeded */
    struct command *command; /* owned */
    struct event *event;     /* deferred; or NULL */
    cl_uint waits;
    struct event *wait_list[]; /* deferred */
};

/* Results of defer_let_go besides OpenCL errors and COMMAND_ABSENT. */
#define MARKED      2
#define PARTS_GIVEN 3

/* ---- defer.c: with engine_lock ---- */

/** True when its wait list no longer keeps it from being given to @residence_index. */
bool defer_is_ready(const struct deferred *deferred, uint8_t residence_index);
/** For a command whose parts run: true when all have ended, or another piece can be submitted. */
bool defer_goes_on(const struct queue *queue, const struct deferred *deferred);

/* ---- window.c ---- */

/** The pieces of a launch that may be placed; NULL of any other command. */
struct pieces *defer_places(const struct command *command);
/** As defer_pick, for a queue whose launches may be placed. With engine_lock. */
struct deferred *defer_pick_placing(struct queue *queue, uint8_t residence_index);

/* ---- give.c: inside the gate, by the one thread that pumps the queue ---- */

cl_int defer_let_go(struct deferred *deferred, struct residence *residence,
                    uint8_t residence_index);
void defer_pieces_ended(struct command *command, struct event *event);

/* ---- power.c ---- */

bool power_paces(const struct command *command);
bool power_admits(bool begun);
void power_begin(void);
void power_end(struct event *event);
struct event *power_running(void);
void power_waited(const struct event *event);
void power_tidy(void);
void power_mark(void);

#endif
