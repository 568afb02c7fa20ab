#ifndef RESEAT_SIMULATE_SIM_CHECK_H
#define RESEAT_SIMULATE_SIM_CHECK_H

#include "simulate/sim.h"

/*
 * Checks that a simulation is possible: it reads the log of a run and keeps books of its own, so
 * that it finds errors in the simulation's. Devices and host memory never exceed their size, hold
 * nothing after they are gone, and devices do no more work than their time allows. A program works
 * on one node, on exactly as many of its devices as it asked for; its progress is in the memory of
 * a device or host, or in storage, or has to be done again; and it ends when it has done its work,
 * including what it lost.
 */

enum sim_event_kind {
    SIM_DEVICE, /**< @device exists with @amount bytes; 0: it is gone, with its node. */
    SIM_ARRIVE, /**< @program arrives with @amount of work. */
    SIM_HOLD,   /**< @program holds @amount bytes of @device from now on; 0: it left. */
    SIM_HOST,   /**< @program holds @amount bytes of the host memory of a node, @device. */
    SIM_RATE,   /**< @program works on @device, @amount thousandths of the reference; 0: stands. */
    SIM_SAVE,   /**< Storage has @amount of its work, which is all that it has done so far. */
    SIM_LOSE,   /**< @program has to do @amount of its work again. */
    SIM_END,    /**< @program has done all of its work. */
    SIM_REFUSE, /**< @program ends unfinished; all that it did is lost. */
};

struct sim_event {
    enum sim_event_kind kind;
    uint32_t program, device;
    uint64_t time_ms;
    uint64_t amount;
};

struct sim_check;

/**
 * Returns NULL without memory. @trace is borrowed: its nodes, its models' speeds, its tasks' shares
 * and how many devices they ask for. @between: programs may go from one node to another.
 */
struct sim_check *sim_check_create(const struct sim_trace *trace, bool between);
void sim_check_destroy(struct sim_check *check);
/** The next event. Returns false once something was wrong: sim_check_problem() says what. */
bool sim_check_event(struct sim_check *check, const struct sim_event *event);
/**
 * The end: who ended has ended, and the totals are those of the books.
 * @asked, @lost  Work, as the simulation counts it.
 */
bool sim_check_end(struct sim_check *check, uint64_t asked, uint64_t lost);
/** "" when nothing was wrong. */
const char *sim_check_problem(const struct sim_check *check);
uint64_t sim_check_events(const struct sim_check *check);

#endif
