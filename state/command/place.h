#ifndef RESEAT_STATE_COMMAND_PLACE_H
#define RESEAT_STATE_COMMAND_PLACE_H

#include "policy/schedule.h"
#include "state/command/command.h"
#include "state/command/pieces.h"
#include "state/program/pace.h"

/*
 * Single launches on other devices than their queue's, which helpers run (move/placement.c). Where
 * a launch goes is decided when it could be given to a device: by learnt times, by what its inputs
 * and results cost on their way, and by what the devices have been given before
 * (policy/schedule.h).
 *
 * There is one schedule for all queues of the program (window.c). An in-order queue keeps its
 * meaning: commands that read or write the same bytes keep their order, and no event that the
 * program has ends before those of earlier commands.
 */

#define PLACE_HELPERS (SCHEDULE_CANDIDATES - 1)
#define PLACE_HOME    PLACE_HELPERS /**< The queue's own device. */
#define PLACE_WAIT    UINT32_MAX

/** Set before the first kernel is made: launches are placed for @objective, on other kinds of
 * device only if @any_float. */
void place_configure(enum schedule_objective objective, bool any_float);
/** True once that was called. Wait-free. */
extern atomic_bool place_wanted;
bool place_begins_slow(void);
/** True when a launch may be placed now. If nobody places launches yet, helpers are woken. */
static inline bool place_begins(void)
{
    return UNLIKELY(atomic_load_explicit(&place_wanted, memory_order_relaxed)) &&
           place_begins_slow();
}
/** False for a launch that is known to be too short, in a queue with nothing deferred. */
bool place_is_worth_it(const struct queue *queue, struct pieces *pieces);

/* The next functions are called with engine_lock. */

/** True when a helper could be given a launch now. */
bool place_is_any_free(void);
/**
 * Choose where @command runs: a helper, PLACE_HOME, or PLACE_WAIT for a helper that is better but
 * cannot take it yet. Inside the gate.
 *
 * @home_free_ns   When the launches that home was given have ended.
 * @leaves_at_ns  When what @command needs has ended, at home; before, it can be given to home only.
 *                 0: by now; UINT64_MAX: home has to run it.
 */
uint32_t place_decide(const struct command *command, struct pieces *pieces, uint64_t now,
                      uint64_t home_free_ns, uint64_t leaves_at_ns);
/** A launch took @ns on @device. The first one there is not counted. */
void place_learn(struct pace *pace, const struct device *device, uint64_t items, uint64_t ns);

/** A launch that a helper runs. */
struct placed {
    struct queue *queue; /**< Held. */
    struct event *event; /**< Held; it has parts, shared with the helper. */
    struct command
        *command;          /**< Deferred; it stays until the launch was given back or has ended. */
    struct pieces *pieces; /**< Its. */
    uint64_t home_ns;      /**< What it would take at home; 0: not known. */
    uint64_t given_ns;     /**< When place_give was called. */
    uint64_t patience_ns;  /**< It is given back when it takes longer in the driver. */
};
/** Give the launch to a helper that place_decide chose. False: helpers were closed since. */
bool place_give(uint32_t helper, struct placed placed);

/* Without engine_lock. */

/** What the agent knows of the power of a kernel (policy/costs.h), for energy objectives. */
struct place_power {
    char id[PACE_ID_SIZE]; /**< As in struct pace_sample. */
    bool has_device;
    struct device_key device;
    uint64_t items;    /**< Of the latest launch; what it draws is believed of any other size. */
    uint64_t power_mw; /**< Above what the idle device draws, while such launches run. */
};
/** Applies to kernels that were launched on the device. Any thread, not the program's. */
void place_learn_power(const struct place_power *power);
/** Power that the program's devices draw together while they are idle. */
void place_set_idle(uint64_t idle_mw);

/* By movers, without engine_lock. */

/** Copies of a launch that a helper runs. */
enum place_copy {
    PLACE_INPUT, /**< From home to the helper. */
    PLACE_FETCH, /**< Of a result, from the helper to host memory. */
    PLACE_STORE, /**< Of a result, from host memory to home. */
    PLACE_COPIES
};
/** Open helpers on @count devices, until place_close. They are given launches from place_offer on.
 * @copies  What copies of each are expected to take, while none was made. */
void place_open(struct device *const *devices, const struct cost_stage (*copies)[PLACE_COPIES],
                uint32_t count);
void place_offer(void);
/** False: of many launches since place_open none was sooner on a helper, so that the session is to
 * end. The next one is then put off, longer each time. */
bool place_pays(void);
/** No launch is placed any more. After @rest_ns at least, one that could be asks for helpers again.
 */
void place_close(uint64_t rest_ns);
/** Wait for a launch to run on @helper. False: it was closed, and there is none. */
bool place_await(uint32_t helper, struct placed *ret_placed);
/** A copy of @bytes for @helper took @ns, above 0. */
void place_copied(uint32_t helper, enum place_copy copy, uint64_t bytes, uint64_t ns);
/** The launch that place_await returned has ended in @helper.
 * @done  Its results are at home. Else it is given back, to run at home.
 * @run_ns  How long it took, at least so long where it was given up; 0: not known. */
void place_ended(uint32_t helper, struct placed *placed, bool done, uint64_t run_ns);
/** When a launch was last given to home or a helper, and by whom launches were asked for. */
uint64_t place_last_ns(void);

/* ---- what was placed ---- */

/** Record that a launch that took long enough was not placed, for this reason. Static. */
void place_stays(const char *reason);
/** With engine_lock: a launch that could be placed has ended on @device. */
void place_count(const struct pieces *pieces, const struct device *device);

#define PLACE_COUNTS_MAX 8
struct place_status {
    uint64_t objective; /**< 0: none; else 1 + enum schedule_objective. */
    const char *stayed; /**< Why the last launch that was not placed was not; or "". Static. */
    uint64_t by_time;   /**< Launches that were placed for time, though the objective is another
                             one: their energy on the devices that could run them is not known. */
    struct place_count {
        const struct device *device;
        uint64_t launches; /**< Those that could be placed. */
    } counts[PLACE_COUNTS_MAX];
    uint32_t count;
    uint64_t risked_ns;            /**< What trials on helpers have cost at most. */
    uint64_t helped, helped_items; /**< Launches that helpers ran, and their work-items. */
};
/** Any thread. */
void place_read(struct place_status *ret_status);

#endif
