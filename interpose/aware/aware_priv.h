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
    unsigned begun; /**< AWARE_BITs: what it did of the first half, and has not resumed from. */
    unsigned due;   /**< What it is to do, of the first half too: it was moved unasked. */
    uint32_t reason;
    const struct device *from; /**< NULL: none. */
    bool elsewhere;            /**< It was moved otherwise while a mover had it. */
};

struct aware_notice {
    struct aware_notice *next;
    uint32_t what, vdev;
    uint64_t in_ns, value;
    char text[256];
};

/** The library's thread does one of these at a time. */
struct aware_now {
    enum aware_stage stage;
    uint32_t vdev;
    uint64_t registration; /**< Whose callback it is. */
    uint64_t since_ns, deadline_ns;
    bool asked;     /**< By a mover, for the first half. */
    bool abandoned; /**< Nobody wants to know the result any more. */
};

/** What a mover has the thread do, and waits for. */
struct aware_ask {
    enum aware_stage stage; /**< AWARE_IDLE: nothing. */
    uint32_t vdev;
    uint32_t reason;
    uint64_t deadline_ns;
    const struct device *from, *to;
};

/** What a program says of its progress, for an image. */
struct aware_saving {
    uint64_t serial; /**< Counts them. */
    bool asked;      /**< From when the callback may say something... */
    bool saved;      /**< ...until it did; then it waits for the serial to change. */
    bool too_large, made;
    void *bytes; /**< Owned. */
    size_t size;
};

struct aware {
    pthread_mutex_t lock; /**< A leaf: nothing is taken, called or waited for under it. */
    pthread_cond_t changed;
    /* All below is guarded by lock. */
    uint64_t process;      /**< Counts forks: the child's threads are not the parent's. */
    uint64_t registration; /**< Counts them. */
    uint64_t edition;      /**< Of the wish. */
    bool registered, started, thread;
    struct reseat_program program;
    struct aware_vdev vdevs[VDEVS];
    bool mover; /**< A mover is between leave and the end of arrive. */
    uint32_t mover_vdev;
    bool mover_listens; /**< It waits for what a callback of the second half gives. */
    struct aware_ask ask;
    struct aware_now now;
    enum aware_stage failed; /**< Of the ask, or the second half; with the number. */
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
/** What is due of @vdev and can be done now: all but CANCEL takes a device. Locked. */
unsigned aware_due(uint32_t vdev);
/** What @vdev has begun will not happen: what is due is what undoes it. Locked. */
void aware_give_up(uint32_t vdev);
/** Have the thread that calls the program back. Returns 0 or -errno. Locked. */
int aware_start_thread(void);
/** Nobody is registered any more, and what was under way is of no concern. Locked. */
void aware_forget(void);
/** Wait for a change until @until_ns (CLOCK_MONOTONIC). Locked. */
void aware_wait(uint64_t until_ns);

extern const struct move_partner aware_partner;

/* aware_move.c, for movers and for who makes images. Locked. */

/** Be the one mover, with nothing left to do of what was before. 0; 1: the program is not to be
 * asked; or -errno with the reason, and not the mover. */
int aware_claim(const struct move_request *request, char *ret_reason, size_t size);
/** Not any more; what became of the virtual device meanwhile is due. @request: none of it was done.
 */
void aware_unclaim(const struct move_request *request);
/** Have the thread call the program back for @stage, and wait until it has done so, or *@enough, or
 * its deadline. 0; 1: nobody is registered any more; or -errno with the reason: -EIO is the
 * program's own. */
int aware_ask(const struct move_request *request, enum aware_stage stage,
              const struct device *target, const bool *enough, char *ret_reason, size_t size);

/* aware_save.c */

/** What a callback of an earlier life waits for will not come. Locked. */
void aware_saving_over(bool made);
void aware_save_hook(void);

/* aware_device.c */

/** The device that the program knows of: the one whose answers @vdev gives; NULL: it was told of
 *  none. */
const struct device *aware_followed(uint32_t vdev);
/** @vdev's answers and limits follow the device that it has. */
void aware_follow(uint32_t vdev);
/** They are what they were before the program registered. */
void aware_follow_none(void);

#endif
