#ifndef RESEAT_TESTS_INTERPOSE_CONTROL_CONTROL_ROOM_RIG_H
#define RESEAT_TESTS_INTERPOSE_CONTROL_CONTROL_ROOM_RIG_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "interpose/control/control_room.h"
#include "state/room/room.h"

/*
 * What stands around interpose/control/control_room.c. The test's thread is the control thread; the
 * engine, the clock, the threads and the agent are the test's own, so that nothing depends on time.
 */

#define MIB ((uint64_t)1 << 20)

/* ---- the clock ---- */

extern _Atomic uint64_t room_clock_ns;

/* ---- the engine ---- */

extern enum room_answer (*room_policy)(const struct room_need *need);

struct room_vdev {
    uint64_t granted, slack;
    bool limited;
};
extern struct room_vdev room_vdevs[PROTOCOL_VDEVS_MAX];
extern unsigned room_grants, room_slack_looks; /**< Calls. */

extern bool room_spill_blocks; /**< A shrink posts room_spilling and waits for room_may_spill. */
extern sem_t room_spilling, room_may_spill;
extern bool room_read_blocks; /**< Whoever reads posts room_reading and never returns. */
extern sem_t room_reading;

/* ---- threads ---- */

extern bool room_no_threads;
extern unsigned room_threads;      /**< Started for shrinks. */
extern sem_t room_woken;           /**< Posted each time that the control thread is woken. */
extern void (*room_on_wake)(void); /**< Called before, by whoever wakes; NULL: nothing. */

/** A thread of the program that needs room. */
struct asker {
    pthread_t thread;
    struct room_need need;
    enum room_answer answer;
};

/** It waits when this returns. */
void ask(struct asker *asker, const struct room_need *need);
/** Has it ask; the id that the agent was told. */
uint64_t asked(struct asker *asker, const struct room_need *need);
/** Waits until it is told. */
enum room_answer answer_of(struct asker *asker);

/* ---- the agent ---- */

/** What the program sent in its last turn. Fields that are missing are UINT64_MAX. */
struct sent {
    char type[PROTOCOL_WORD_MAX];
    uint32_t fields; /**< How many there are. */
    uint64_t id, vdev, bytes, total, least, wanted;
    bool owns;
    bool failed;
};
#define SENT_MAX 64
extern struct sent sent[SENT_MAX];
extern unsigned sent_count;
extern bool sent_breaks; /**< The connection, at each frame. */

extern bool room_waits;  /**< The program as a whole waits for the agent. */
extern bool room_served; /**< What the last turn returned. */

/** A turn of the control thread; returns sent_count. */
unsigned serve(void);

/** Gives @frame, of a message about room, to the program and finishes it. */
void take(struct frame *frame);
/** The same of a welcome. */
void take_welcome(struct frame *frame);

void welcome(const uint64_t *initial, size_t count);
/** Of an agent that says that it is there when it is asked. */
void welcome_of_one_that_answers(void);
/** @way  NULL: without. */
void answer(uint64_t id, const char *way);
/** MSG_GRANT or MSG_SHRINK. */
void tell(const char *type, uint64_t vdev, uint64_t bytes);
/** MSG_SHRINK; returns when it has ended. */
void shrink(uint64_t vdev, uint64_t bytes);

/** A turn sends one frame, of the need @id, as @need says. */
void expect_need(uint64_t id, const struct room_need *need);
void expect_return(unsigned index, uint64_t vdev, uint64_t bytes);

void room_rig_begin(void);
void room_rig_finish(void);

#endif
