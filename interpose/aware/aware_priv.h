#ifndef RESEAT_INTERPOSE_AWARE_AWARE_PRIV_H
#define RESEAT_INTERPOSE_AWARE_AWARE_PRIV_H

#include <pthread.h>

#include "interpose/aware/aware.h"
#include "state/move/move.h"
#include "state/object/context.h"

enum aware_stage {
    AWARE_IDLE,
    AWARE_CHECKPOINT,
    AWARE_CLEAN_UP,
    AWARE_CANCEL,
    AWARE_CONFIGURE,
    AWARE_RESUME,
    AWARE_NOTIFY,
    AWARE_SAVE,
};
#define AWARE_BIT(stage)  (1u << (stage))
#define AWARE_FIRST_HALF  (AWARE_BIT(AWARE_CHECKPOINT) | AWARE_BIT(AWARE_CLEAN_UP))
#define AWARE_SECOND_HALF (AWARE_BIT(AWARE_CONFIGURE) | AWARE_BIT(AWARE_RESUME))

/** One virtual device of a program that registered. */
struct aware_vdev {
    unsigned begun; /**< AWARE_BITs: stages before a move that it did and has not resumed from. */
    unsigned
        due; /**< AWARE_BITs: stages to do; also those before a move, when it was moved unasked. */
    uint32_t reason;
    const struct device *from; /**< NULL: none. */
    bool elsewhere;            /**< It was moved by somebody else while a mover had it. */
};

struct aware_notice {
    struct aware_notice *next;
    uint32_t what, vdev;
    uint64_t in_ns, value;
    char text[256];
};

/** The callback under way; the thread makes one at a time. */
struct aware_now {
    enum aware_stage stage;
    uint32_t vdev;
    uint64_t registration; /**< Registration that it belongs to. */
    uint64_t since_ns, deadline_ns;
    bool asked;     /**< Asked for by a mover, before a move. */
    bool abandoned; /**< The result is not needed any more. */
};

/** A callback that a mover asks for and waits for. */
struct aware_ask {
    enum aware_stage stage; /**< AWARE_IDLE: nothing. */
    uint32_t vdev;
    uint32_t reason;
    uint64_t deadline_ns;
    const struct device *from, *to;
};

/** The progress that a program saves for an image. */
struct aware_saving {
    uint64_t serial; /**< Numbers the requests to save. */
    bool asked;      /**< From when the callback may save... */
    bool saved;      /**< ...until it has; then it waits for the serial to change. */
    bool too_large, made;
    void *bytes; /**< Owned. */
    size_t size;
};

struct aware {
    pthread_mutex_t lock; /**< Innermost lock: nothing is taken, called or waited for under it. */
    pthread_cond_t changed;
    /* All below is guarded by lock. */
    uint64_t process;      /**< Counts forks: the child's threads are not the parent's. */
    uint64_t registration; /**< Numbers the registrations. */
    uint64_t edition;      /**< Edition of the wish. */
    bool registered, started, thread;
    struct reseat_program program;
    struct aware_vdev vdevs[VDEVS];
    bool mover; /**< A mover is between leave and the end of arrive. */
    uint32_t mover_vdev;
    bool mover_listens; /**< It waits for the result of a callback after the move. */
    struct aware_ask ask;
    struct aware_now now;
    enum aware_stage failed; /**< Stage that failed, before or after a move, and its result. */
    int failure;
    struct aware_notice *notices, **notices_end;
    unsigned notice_count;
    struct aware_saving saving;
};
extern struct aware aware;

/** "clean_up". */
const char *aware_stage_name(enum aware_stage stage);
/** Milliseconds that a callback may take. */
uint32_t aware_patience(enum aware_stage stage);
/** AWARE_BITs of @vdev that can be done now: all but CANCEL need a device. Lock held. */
unsigned aware_due(uint32_t vdev);
/** The move that @vdev prepared for will not happen: make the stages due that undo it. Lock held.
 */
void aware_give_up(uint32_t vdev);
/** Start the thread that makes callbacks unless it runs. Returns 0 or -errno. Lock held. */
int aware_start_thread(void);
/** Drop the registration and what was under way. Lock held. */
void aware_forget(void);
/** Wait for a change until @until_ns (CLOCK_MONOTONIC). Locked. */
void aware_wait(uint64_t until_ns);

extern const struct move_partner aware_partner;

/* aware_move.c, for movers and for who makes images. Locked. */

/** Become the one mover, after everything due from before was done. 0; 1: the program is not to be
 * asked; or -errno with the reason, and the caller is not the mover. */
int aware_claim(const struct move_request *request, char *ret_reason, size_t size);
/**
 * Stop being the mover; then stages become due for what happened to the virtual device meanwhile.
 * @request: the move, of which nothing was done.
 */
void aware_unclaim(const struct move_request *request);
/** Have the thread make the callback of @stage, and wait until it has ended, or *@enough, or its
 * deadline. 0; 1: nobody is registered any more; or -errno with the reason; -EIO is the program's
 * own failure. */
int aware_ask(const struct move_request *request, enum aware_stage stage,
              const struct device *target, const bool *enough, char *ret_reason, size_t size);

/* aware_save.c */

/** Release a `save` callback: what it waits for will not come. Lock held. */
void aware_saving_over(bool made);
void aware_save_hook(void);

/* aware_device.c */

/** The device that the program knows of: the one whose answers @vdev gives; NULL: it was told of
 *  none. */
const struct device *aware_followed(uint32_t vdev);
/** @vdev's answers and limits follow the device that it has. */
void aware_follow(uint32_t vdev);
/** Undo aware_follow for all virtual devices. */
void aware_follow_none(void);

#endif
