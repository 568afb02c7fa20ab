#ifndef RESEAT_SIMULATE_SIM_CHECK_H
#define RESEAT_SIMULATE_SIM_CHECK_H

#include "simulate/sim.h"

/*
 * Whether what a simulation did could have been: it reads the log of a run and keeps its own books,
 * so that it finds what the simulation's are wrong in. Devices and the host memory of nodes are
 * never over their size, hold nothing once they are gone, and devices do no more than their time
 * allows. A program works on one node, on as many of its devices as it asked for, no more and no
 * fewer; it has what it did in the memory of a device or a host, or in storage, or has to do it
 * again; and it ends when it has done what it was asked for, and once more what it lost.
 */

enum sim_event_kind {
    SIM_DEVICE, /**< @device is there with @amount bytes; 0: it is gone, with its node. */
    SIM_ARRIVE, /**< @program, which is asked for @amount of work. */
    SIM_HOLD,   /**< @program holds @amount bytes of @device from now on; 0: it left. */
    SIM_HOST,   /**< @program holds @amount bytes of the host memory of a node, @device. */
    SIM_RATE,   /**< @program works on @device, @amount thousandths of the reference; 0: stands. */
    SIM_SAVE,   /**< Storage has @amount of its work, all that it did until now. */
    SIM_LOSE,   /**< @program has to do @amount of its work again. */
    SIM_END,    /**< @program did all that it was asked for. */
    SIM_REFUSE, /**< @program ends without; all that it did is lost. */
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
