#ifndef RESEAT_AGENT_SIM_CHECK_H
#define RESEAT_AGENT_SIM_CHECK_H

#include "agent/sim.h"

/*
 * Whether what a simulation did could have been: it reads the log of a run and keeps its own books,
 * so that it finds what the simulation's are wrong in. Devices are never over their memory, hold
 * nothing once they are gone, and do no more than a device's time allows; a program runs on one
 * device that it holds memory of, and ends when it has done what it was asked for, and once more
 * what it lost.
 */

enum sim_event_kind {
    SIM_DEVICE, /**< @device is there with @amount bytes; 0: it is gone. */
    SIM_ARRIVE, /**< @program, which is asked for @amount of work. */
    SIM_HOLD,   /**< @program holds @amount bytes of @device from now on; 0: it left. */
    SIM_RATE,   /**< @program works on @device, @amount thousandths of the reference; 0: stands. */
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

/** Returns NULL without memory. @trace is borrowed: its models' speeds and its tasks' shares. */
struct sim_check *sim_check_create(const struct sim_trace *trace);
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
