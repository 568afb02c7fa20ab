#ifndef RESEAT_AGENT_SIM_WORLD_H
#define RESEAT_AGENT_SIM_WORLD_H

#include "agent/sim_check.h"
#include "agent/sim_heap.h"

/*
 * A run's world, or a cell of it: the policy's view, which is changed as things happen and never
 * made anew, and what the policy does not see (work, time, what is under way).
 *
 * A program that is there has a slot in the policy's table; the table has no holes to scan. All of
 * it belongs to one thread.
 *
 * Many devices are governed in cells, each by a policy of its own, as many agents would: a decision
 * looks at every device of its cell. A program belongs to the cell that it was sent to.
 */

enum sim_mode {
    SIM_QUEUED, /**< On no device. */
    SIM_RUNNING,
    SIM_BLOCKED,  /**< On a device; a call of it waits for memory. */
    SIM_STEPPING, /**< Being moved, suspended, resumed or spilled. */
    SIM_GONE,     /**< Ended, or not there yet. */
};

struct sim_program {
    enum sim_mode mode;
    enum policy_action step; /**< Under way. */
    uint32_t slot;
    uint32_t generation;
    uint32_t rate;
    uint32_t asker;    /**< The program that the step makes room for; SIM_NONE: none. */
    uint32_t target;   /**< Where memory is reserved for the step; SIM_NONE: nowhere. */
    uint64_t reserved; /**< Bytes of it. */
    uint64_t bytes;    /**< Granted when the step is done. */
    uint8_t grown;     /**< Steps of growth that it took. */
    bool saved;        /**< It has state to bring to a device. */
    bool waits;        /**< A call waited when the step began. */
    uint64_t progress, lost;
    uint64_t settled_ms; /**< Progress and waits are counted to here. */
    uint64_t since_ms;   /**< It waits. */
    uint64_t placed_ms;  /**< It is where it is. */
    uint64_t waited_ms;
};

enum sim_phase { SIM_LATE, SIM_UP, SIM_NOTICED, SIM_AWAY };

struct sim_seat {
    enum sim_phase phase;
    uint32_t generation;
    uint32_t incoming; /**< Steps that reserve memory here. */
    uint64_t draws;    /**< Numbers taken of its stream. */
    uint64_t taken_ms; /**< When it is reclaimed. */
    uint64_t used_since_ms;
    bool used;
    bool in_use; /**< When the notice came. */
    bool fails;  /**< Before it is reclaimed. */
};

/** What the cells of one run share. */
struct sim_shared {
    struct sim_program *programs; /**< By task. */
    struct sim_result *result;
    struct sim_check *check;
    uint64_t *waits;                     /**< Of the programs that finished. */
    uint64_t asked, lost;                /**< Work. */
    uint64_t asked_us, lost_us, busy_us; /**< Device time: of the reference, the devices'. */
    uint64_t occupied_ms[SIM_MODELS_MAX];
    double took_ms;
    uint32_t present; /**< Programs. */
    uint32_t cells;
    int error; /**< The first -ENOMEM: the run ends. */
};

struct sim_world {
    struct sim_trace trace; /**< The cell's part. */
    struct sim_shared *shared;
    uint32_t cell;
    const struct sim_options *options;
    struct policy_settings settings;
    enum sim_regime regime;
    struct sim_level level;
    unsigned ways;
    uint64_t now_ms, refreshed_ms;
    struct sim_heap heap;

    struct policy_device *devices;
    struct sim_seat *seats; /**< By device. */
    struct policy_program *slots;
    uint32_t *tasks; /**< By slot: the task. */
    uint32_t slot_count, slot_room;
    uint32_t *queue; /**< Slots, in the order that struct policy_world asks for. */
    uint32_t queue_count;
    uint64_t queued_bytes; /**< That those in it want. */
    uint64_t tickets;

    struct sim_move {
        uint64_t time_ms;
        uint32_t task;
    } * moves; /**< By policy, a ring of the last ones. */
    uint32_t move_first, move_count, move_room;

    bool balancing;
};

/* sim_world.c: the books. */
/** A cell; sim_world_finish() follows either way. Returns 0 or -ENOMEM. */
MUST_CHECK int sim_world_init(struct sim_world *world, const struct sim_trace *trace,
                              const struct sim_options *options, struct sim_shared *shared,
                              uint32_t cell, size_t level);
void sim_world_finish(struct sim_world *world);
void sim_log(struct sim_world *world, enum sim_event_kind kind, uint32_t task, uint32_t device,
             uint64_t amount);
void sim_push(struct sim_world *world, uint64_t time_ms, enum sim_due_kind kind, uint32_t index,
              uint32_t generation);
/** The task is there from now on. */
void sim_enter(struct sim_world *world, uint32_t task);
/** And no more; it must be on no device and in no queue. */
void sim_leave(struct sim_world *world, uint32_t task);
/** Reserve, or give back, memory on a device, without being there. */
void sim_reserve(struct sim_world *world, uint32_t device, uint64_t bytes);
void sim_unreserve(struct sim_world *world, uint32_t device, uint64_t bytes);
/** Put a program on a device, of which @bytes are reserved for it already. */
void sim_attach(struct sim_world *world, uint32_t task, uint32_t device, uint64_t bytes);
void sim_detach(struct sim_world *world, uint32_t task);
/** Change what it holds where it is. */
void sim_regrant(struct sim_world *world, uint32_t task, uint64_t bytes);
void sim_queue_add(struct sim_world *world, uint32_t task, bool new_ticket);
void sim_queue_remove(struct sim_world *world, uint32_t task);
/** Count progress and waits until now, then change the mode; rates of those beside it follow. */
void sim_set_mode(struct sim_world *world, uint32_t task, enum sim_mode mode);
/** What it asks for in all at this stage of its growth. */
uint64_t sim_wanted(const struct sim_world *world, uint32_t task);
/** Its next milestone: a step of growth, or the end. */
uint64_t sim_milestone(const struct sim_world *world, uint32_t task);
void sim_settle(struct sim_world *world, uint32_t task);

static inline struct policy_program *sim_slot(const struct sim_world *world, uint32_t task)
{
    return &world->slots[world->shared->programs[task].slot];
}

/** The number that a device has in the whole trace. */
static inline uint32_t sim_global(const struct sim_world *world, uint32_t device)
{
    return device == SIM_NONE ? SIM_NONE : device * world->shared->cells + world->cell;
}

/* sim_steps.c: what the policy decides, carried out. */
/** Ask what to do for one that waits, and do it. Returns whether anything was done. */
bool sim_ask(struct sim_world *world, uint32_t task);
/** Let the policy do all that is to be done of itself. */
void sim_next(struct sim_world *world);
/** Let it empty a device that drains, where it does. */
void sim_drain(struct sim_world *world, uint32_t device);
/** Memory of @device is free: ask for those it might do for. */
void sim_serve(struct sim_world *world, uint32_t device);
/** The step of a program is done. */
void sim_step_done(struct sim_world *world, uint32_t task);
/** Its device is gone, or its step's target. */
void sim_device_lost(struct sim_world *world, uint32_t device);
/** It is over for a program, one way or the other. */
void sim_end(struct sim_world *world, uint32_t task, bool refused);

#endif
