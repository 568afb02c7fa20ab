#ifndef RESEAT_TESTS_INTERPOSE_CONTROL_CONTROL_BUDGET_RIG_H
#define RESEAT_TESTS_INTERPOSE_CONTROL_CONTROL_BUDGET_RIG_H

#include "tests/support/cases.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "interpose/control/control_priv.h"
#include "state/budget/budget.h"

/*
 * What stands around interpose/control/control_budget.c. The test's thread is the control thread;
 * the engine, the clock, the threads and the agent are the test's own, so that nothing depends on
 * time.
 */

#define MIB ((uint64_t)1 << 20)

/* ---- the clock ---- */

extern _Atomic uint64_t budget_clock_ns;

/* ---- the engine ---- */

extern enum budget_answer (*budget_policy)(const struct budget_need *need);

struct budget_vdev {
    uint64_t granted, slack;
    bool limited;
};
extern struct budget_vdev budget_vdevs[PROTOCOL_VDEVS_MAX];
extern unsigned budget_grants, budget_slack_looks; /**< Calls. */

extern bool
    budget_spill_blocks; /**< A shrink posts budget_spilling and waits for budget_may_spill. */
extern sem_t budget_spilling, budget_may_spill;
extern bool budget_read_blocks; /**< Whoever reads posts budget_reading and never returns. */
extern sem_t budget_reading;

/* ---- threads ---- */

extern bool budget_no_threads;
extern unsigned budget_threads;      /**< Started for shrinks. */
extern sem_t budget_woken;           /**< Posted each time that the control thread is woken. */
extern void (*budget_on_wake)(void); /**< Called before, by whoever wakes; NULL: nothing. */

/** A thread of the program that needs room. */
struct asker {
    pthread_t thread;
    struct budget_need need;
    enum budget_answer answer;
};

/** It waits when this returns. */
void ask(struct asker *asker, const struct budget_need *need);
/** Has it ask; the id that the agent was told. */
uint64_t asked(struct asker *asker, const struct budget_need *need);
/** Waits until it is told. */
enum budget_answer answer_of(struct asker *asker);

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

extern bool budget_waits;  /**< The program as a whole waits for the agent. */
extern bool budget_served; /**< What the last turn returned. */

/** A turn of the control thread; returns sent_count. */
unsigned serve(void);

/** Gives @frame, of a message about room, to the program and finishes it. */
void take(struct frame *frame);
/** The same of a welcome. */
void rig_welcome(struct frame *frame);

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
void expect_need(uint64_t id, const struct budget_need *need);
void expect_return(unsigned index, uint64_t vdev, uint64_t bytes);

void budget_rig_begin(void);
void budget_rig_finish(void);

#endif
