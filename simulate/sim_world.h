#ifndef RESEAT_SIMULATE_SIM_WORLD_H
#define RESEAT_SIMULATE_SIM_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "policy/visits.h"
#include "simulate/sim_check.h"
#include "state/base/compiler.h"

/*
 * The state of a run: the cluster and its cells. A cell is what one agent governs: one node, or
 * several with moves between hosts. It has the policy's view, which is updated with each event, and
 * state that the policy does not see (work, time, host memory, steps under way).
 *
 * A program in a cell has a slot in the policy's table, which has no holes. It stays in the cell
 * that the cluster's scheduler sent it to until it ends or loses its node; then it is in the
 * cluster's queue again, with what was saved. Everything belongs to one thread.
 */

/* Future events, soonest first; those of the same time in the order in which they were added. */

enum sim_due_kind {
    SIM_DUE_PROGRAM,
    SIM_DUE_STEP,
    SIM_DUE_REST,
    SIM_DUE_NODE,
    SIM_DUE_BALANCE,
    SIM_DUE_CLUSTER,
};

struct sim_due {
    uint64_t time_ms;
    uint64_t number;     /**< Set by sim_push(). */
    uint32_t generation; /**< Generation of the object it concerns: the event is void when that has
                            another one. */
    uint32_t index;
    uint32_t cell;
    enum sim_due_kind kind;
};

struct sim_heap {
    struct sim_due *items;
    size_t count, room;
    uint64_t numbers;
};

void sim_heap_finish(struct sim_heap *heap);
/** The soonest event, which is not removed; NULL when there is none. */
const struct sim_due *sim_heap_peek(const struct sim_heap *heap);
/** Remove the soonest event; there must be one. */
void sim_heap_pop(struct sim_heap *heap);

enum sim_mode {
    SIM_QUEUED, /**< Waiting, on no device; without a slot also on no node. */
    SIM_RUNNING,
    SIM_BLOCKED,  /**< On a device; a call of it waits for memory. */
    SIM_STEPPING, /**< Being moved, suspended, resumed, spilled or saved. */
    SIM_GONE,     /**< Ended, or not arrived yet. */
};

struct sim_program {
    enum sim_mode mode;
    enum policy_action step; /**< The step under way. */
    uint32_t slot;           /**< Slot in its cell; SIM_NONE: it is on no node. */
    uint32_t cell;
    uint32_t generation;
    uint32_t rate;
    uint32_t asker;         /**< The program that the step makes room for; SIM_NONE: none. */
    uint32_t target;        /**< Where memory is reserved for the step; SIM_NONE: nowhere. */
    uint64_t reserved;      /**< Bytes reserved there. */
    uint64_t bytes;         /**< Granted when the step is done. */
    uint32_t home;          /**< The node whose host memory has all of it; SIM_NONE: none has. */
    uint64_t others;        /**< Additional devices of its node that it has, as bits; */
    uint64_t target_others; /**< additional devices of the target's node that it will have. */
    struct {
        uint32_t node; /**< SIM_NONE: none. */
        uint64_t bytes;
    } host[2];     /**< Host memory that it has; on two nodes while it goes from one to another. */
    uint8_t grown; /**< Steps of growth that it took. */
    bool brings;   /**< The step copies its memory to a device. */
    bool waits;    /**< A call waited when the step began. */
    bool saves;    /**< The step is a checkpoint, */
    bool leaves;   /**< after which it leaves its node. */
    uint64_t asked_ms;  /**< When it began to be made ready for a device, if it was. */
    bool rests;         /**< A step of it failed: the policy leaves it alone for a while. */
    bool unasked;       /**< The step is a move that nothing had to make, */
    uint64_t payback_s; /**< which pays back in so long. */
    uint64_t begun_ms;  /**< When the step began. */
    struct policy_visits visits; /**< Of devices of its cell. */
    uint64_t progress, lost;
    uint64_t kept;       /**< Progress that storage has. */
    uint64_t settled_ms; /**< Progress and waits are counted to here. */
    uint64_t since_ms;   /**< Since when it waits. */
    uint64_t placed_ms;  /**< Since when it is where it is. */
    uint64_t waited_ms;
};

enum sim_phase { SIM_LATE, SIM_UP, SIM_NOTICED, SIM_AWAY };

/** Use of a device. */
struct sim_device_use {
    uint32_t incoming; /**< Steps that reserve memory here, and programs that use it as an
                          additional device. */
    uint64_t used_since_ms;
    bool used;
};

/** State of a node. */
struct sim_host {
    enum sim_phase phase;
    uint32_t generation;
    uint64_t draws;                  /**< Random numbers drawn for it. */
    uint64_t taken_ms;               /**< When it will be reclaimed. */
    uint64_t used;                   /**< Bytes of host memory. */
    uint64_t storage_ms, network_ms; /**< When its links become free. */
    uint32_t devices;                /**< Devices in use. */
    uint64_t paid_ms;                /**< Time up to which its cost is counted as a whole. */
    bool in_use;                     /**< It was in use when the notice came. */
    bool fails;                      /**< It fails before it is reclaimed. */
};

/** A program in the cluster's queue, which is on no node. */
struct sim_waiter {
    int64_t key; /**< Lower goes first. */
    uint32_t task;
};

struct sim_world;

/** What the cells of one run share. */
struct sim_shared {
    const struct sim_trace *trace;
    const struct sim_options *options;
    struct sim_world *worlds; /**< One for each cell. */
    struct sim_heap heap;
    uint64_t now_ms;
    /** sim_offer(): when the policy has used what became free, ask the cluster's scheduler, which
     * is in a higher layer. */
    void (*offer)(struct sim_world *world, uint32_t device);
    struct sim_waiter *queue;
    uint32_t queue_count;
    struct policy_device *candidates; /**< Scratch space for choosing a device of the cluster. */
    struct sim_place {
        uint32_t cell, device;
    } * places;
    struct sim_place claim; /**< The node that is kept for `claimer`; its first device. */
    uint32_t claimer; /**< The first program in the queue, which needs several devices; SIM_NONE:
                         none. */
    bool offering, ticking;
    struct sim_program *programs; /**< One for each task. */
    struct sim_result *result;
    struct sim_check *check;
    uint64_t *waits;      /**< Waiting times of the programs that finished. */
    uint64_t asked, lost; /**< Work. */
    uint64_t asked_us, lost_us,
        busy_us; /**< Device time: of the reference device; busy_us of the devices themselves. */
    uint64_t occupied_ms[SIM_MODELS_MAX], paid_ms[SIM_MODELS_MAX]; /**< Devices, of whole nodes. */
    double took_ms;
    uint32_t present; /**< Programs present. */
    uint32_t cells;
    int error; /**< The first -ENOMEM, which ends the run. */
};

struct sim_world {
    struct sim_trace trace; /**< The part of the trace for this cell. */
    struct sim_shared *shared;
    uint32_t cell;
    const struct sim_options *options;
    struct policy_settings settings;
    enum sim_regime regime;
    struct sim_level level;
    unsigned ways;
    bool saves; /**< Programs that can be saved within the notice are. */
    uint64_t refreshed_ms;

    struct policy_device *devices;
    struct sim_device_use *uses; /**< By device. */
    struct sim_host *hosts;      /**< By node. */
    struct policy_program *slots;
    uint32_t *tasks; /**< Task of each slot. */
    uint32_t slot_count, slot_room;
    uint32_t *queue; /**< Waiting slots, in the order that struct policy_world asks for. */
    uint32_t queue_count;
    uint64_t queued_bytes; /**< Bytes that the queue wants. */
    uint64_t tickets;

    struct sim_move {
        uint64_t time_ms;
        uint32_t task;
    } * moves; /**< Recent moves by the policy, a ring of the last ones. */
    uint32_t move_first, move_count, move_room;

    uint64_t look_ms, looks_at_ms; /**< Interval until the next examination, and its time; 0: none
                                      is scheduled. */
    uint32_t look;                 /**< Its generation. */
};

/** Initialise a cell; call sim_world_finish() in any case. Returns 0 or -ENOMEM. */
MUST_CHECK int sim_world_init(struct sim_world *world, struct sim_shared *shared, uint32_t cell,
                              size_t level);
void sim_world_finish(struct sim_world *world);
void sim_tell(const struct sim_shared *shared, enum sim_event_kind kind, uint32_t task, uint32_t id,
              uint64_t amount);
void sim_log(struct sim_world *world, enum sim_event_kind kind, uint32_t task, uint32_t device,
             uint64_t amount);
void sim_push(struct sim_world *world, uint64_t time_ms, enum sim_due_kind kind, uint32_t index,
              uint32_t generation);
/** Put the task into this cell and its queue. False without memory. */
bool sim_enter(struct sim_world *world, uint32_t task);
/** Take the task out of the cell; it must be on no device and in no queue. Its mode is left as it
 * is. */
void sim_leave(struct sim_world *world, uint32_t task);
/** Add the cost of a node in use until now. */
void sim_pay(struct sim_world *world, uint32_t node);
/** Reserve or release memory on a device, where the program is not yet. */
void sim_reserve(struct sim_world *world, uint32_t device, uint64_t bytes);
void sim_unreserve(struct sim_world *world, uint32_t device, uint64_t bytes);
/** Put a program on a device where @bytes are reserved for it already, and on its additional
 * devices. */
void sim_attach(struct sim_world *world, uint32_t task, uint32_t device, uint64_t bytes);
void sim_detach(struct sim_world *world, uint32_t task);
/** Reserve the additional devices @others of a node, all memory of each. */
void sim_reserve_others(struct sim_world *world, uint32_t task, uint32_t node, uint64_t others);
void sim_unreserve_others(struct sim_world *world, uint32_t task, uint32_t node, uint64_t others);
/** Change the bytes that @task holds on its device. */
void sim_regrant(struct sim_world *world, uint32_t task, uint64_t bytes);
void sim_queue_add(struct sim_world *world, uint32_t task, bool new_ticket);
void sim_queue_remove(struct sim_world *world, uint32_t task);
/** Count progress and waits until now, then change the mode; rates of those beside it follow. */
void sim_set_mode(struct sim_world *world, uint32_t task, enum sim_mode mode);
/** Bytes that the program wants at this stage of its growth. */
uint64_t sim_wanted(const struct sim_world *world, uint32_t task);
/** Its next step of growth, or the end. */
uint64_t sim_milestone(const struct sim_world *world, uint32_t task);
void sim_settle(struct sim_world *world, uint32_t task);
/** Schedule the policy's next examination, after an event or (@again) when nothing happened. */
void sim_look(struct sim_world *world, bool again);
/** Reset the program to what storage has, and count what it loses. */
void sim_lose(struct sim_world *world, uint32_t task);

static inline struct policy_program *sim_slot(const struct sim_world *world, uint32_t task)
{
    return &world->slots[world->shared->programs[task].slot];
}

/** The number that a device has in the whole trace. */
static inline uint32_t sim_global(const struct sim_world *world, uint32_t device)
{
    return device == SIM_NONE ? SIM_NONE : world->trace.devices[device].id;
}

static inline uint64_t sim_now(const struct sim_world *world)
{
    return world->shared->now_ms;
}

static inline uint32_t sim_node(const struct sim_world *world, uint32_t device)
{
    return world->trace.devices[device].node;
}

static inline const struct sim_task *sim_task(const struct sim_world *world, uint32_t task)
{
    return &world->trace.tasks[task];
}

/** True when programs get all their memory at once and never move. */
static inline bool sim_is_rigid(const struct sim_world *world)
{
    return world->ways == POLICY_WAIT;
}

/* Host memory, and the links of nodes. */

/** Let a program have at least @bytes of a node's host memory. False where they do not fit. */
bool sim_host_take(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes);
/** Reduce its host memory on the node to @bytes, and on other nodes to none; SIM_NONE: on all
 * nodes. */
void sim_host_keep(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes);
bool sim_host_fits(const struct sim_world *world, uint32_t node, uint64_t bytes);
/** Bytes that it spilled, and its other host memory. */
uint64_t sim_in_host(const struct sim_world *world, uint32_t task);
/** Bytes of device memory that it has in all. */
uint64_t sim_size(const struct sim_world *world, uint32_t task);
/** Time from now until @bytes have been read from or written to storage, after earlier transfers.
 */
uint64_t sim_store(struct sim_world *world, uint32_t node, uint64_t bytes);
/** The same from one node to another. */
uint64_t sim_send_over(struct sim_world *world, uint32_t from, uint32_t to, uint64_t bytes);

/* Carrying out what the policy decides. */

/** Carry out a step of the policy, for @asker or SIM_NONE. False: it could not be. */
bool sim_carry_out(struct sim_world *world, const struct policy_step *step, uint32_t asker);
/** Ask what to do for one that waits, and do it. Returns whether anything was done. */
bool sim_ask(struct sim_world *world, uint32_t task);
/** Let the policy act on its own account. Returns whether it did anything. */
bool sim_next(struct sim_world *world);
/** Let the policy move programs off a draining device. */
void sim_drain(struct sim_world *world, uint32_t device);
/** Memory of @device became free: ask the policy for waiting programs that may fit. */
void sim_serve(struct sim_world *world, uint32_t device);
/** The step of a program is done. */
void sim_step_done(struct sim_world *world, uint32_t task);
/** Continue a program after a step that is not the policy's. */
void sim_go_on(struct sim_world *world, uint32_t task);
/** The program leaves its node, to start again from what storage has. */
void sim_put_off(struct sim_world *world, uint32_t task);
/** The program ends, finished or @refused. */
void sim_end(struct sim_world *world, uint32_t task, bool refused);

/* Nodes that come and go, and what is saved before. */

void sim_nodes_start(struct sim_world *world);
void sim_on_node(struct sim_world *world, uint32_t node);
/** Save the work of a program, which stands meanwhile; @leaves: and end it here. */
void sim_save(struct sim_world *world, uint32_t task, bool leaves);
/** The work is in storage now. */
void sim_saved(struct sim_world *world, uint32_t task);

/* A model of the cluster's scheduler, which is not part of reseat: it chooses the node for a
 * program. */

/** Put a program into the cluster's queue. */
void sim_queue_up(struct sim_shared *shared, uint32_t task);
/** Send a program to a node where it can start, or put it into the queue. */
void sim_send(struct sim_shared *shared, uint32_t task);
/** Memory of @device became free: offer it to the cluster's queue. */
void sim_offer(struct sim_world *world, uint32_t device);
/** Examine the queue again in a while. */
void sim_cluster_wait(struct sim_shared *shared);
/** Send programs of the queue that can start somewhere. */
void sim_cluster_tick(struct sim_shared *shared);
/** Move a program with several devices to another node. False: none has room. */
bool sim_move_whole(struct sim_world *world, uint32_t task);
/** True where some node has devices for it, once they are free. */
bool sim_is_possible(const struct sim_shared *shared, uint32_t task);

#endif
