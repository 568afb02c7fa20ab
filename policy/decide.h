#ifndef RESEAT_POLICY_DECIDE_H
#define RESEAT_POLICY_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/place.h"

/*
 * Who gets which device memory, and what happens when there is not enough: a world goes in, one
 * step and the reason for it come out. Pure: no I/O, no clock, no globals, libc only, nothing
 * allocated. The agent feeds it the machine, the simulator feeds it a trace.
 *
 * The caller keeps the world from call to call, changes it as things happen, and carries out one
 * step at a time. A program that a step concerns is `busy` until it is known how the step ended.
 *
 * No two programs can wait for each other: who waits has a ticket, tickets of one priority are
 * served in their order, and whoever waits behind another gives up what it holds (it is suspended)
 * before the one in front waits for it. So the first in the queue waits for running programs alone.
 * What is pinned cannot give up anything, so it never waits: it is refused.
 */

#define POLICY_NONE   UINT32_MAX
#define POLICY_REASON 256 /**< Bytes of a reason. */

/** Ways out when something does not fit, as bits: what a program, or the settings, allow. */
enum policy_way {
    POLICY_UPGRADE = 1 << 0, /**< Move to a device that fits. */
    POLICY_SPILL =
        1 << 1, /**< Keep on the device what each command needs, the rest in host memory. */
    POLICY_WAIT = 1 << 2,    /**< Block, holding what it has until one in front needs that. */
    POLICY_SUSPEND = 1 << 3, /**< Give the device back whole and queue for one. */
};
#define POLICY_WAYS 4

enum policy_state {
    POLICY_RUNNING,
    POLICY_WAITING,   /**< On a device, blocked until `need` more bytes can be had. */
    POLICY_SUSPENDED, /**< On no device, queues for one; a new program too. */
    POLICY_STOPPED,   /**< On no device because an operator wants it so: left alone. */
};

struct reseat_limits;
struct policy_visits;

struct policy_device {
    const char *name; /**< For reasons. Borrowed. */
    enum place_kind kind;
    uint64_t memory;    /**< Bytes that programs may have: the device's, or the operator's limit. */
    uint64_t whole;     /**< Bytes that they could have were it not for that limit; less than
                             `memory`: the same. */
    uint64_t step;      /**< Bytes that one who makes room there for another gives at a time, where
                             it can, so that it is not asked again at once; 0: no more than is needed. */
    uint64_t reserved;  /**< Bytes: what all programs there were granted; may exceed `memory` when
                             that was lowered. */
    uint32_t speed;     /**< Relative; 1000 is the reference device. */
    uint32_t price;     /**< Cost of an hour, relative; 1000 is the reference device's. */
    uint32_t busy;      /**< Thousandths of its time that programs there use; may exceed 1000. */
    uint32_t residents; /**< Programs on it. */
    uint32_t first;     /**< One of them, POLICY_NONE without; `next` of that leads on. */
    bool closed;        /**< Takes no new program: drained, failed or about to be taken. */
    bool drains;        /**< And those on it have to leave. */
    bool gone;          /**< It is not listed any more, and closed. */
    /** What it offers, but for its memory, in the terms of programs that ask for something
        (policy/reseat.h). NULL: not known, and nothing. Borrowed. */
    const struct reseat_limits *has;
};

struct policy_program {
    enum policy_state state;
    uint32_t device;  /**< Where it is; POLICY_NONE when on none. */
    uint32_t next;    /**< Another program on the same device, or POLICY_NONE. */
    int32_t priority; /**< Higher goes first. */
    unsigned ways;    /**< enum policy_way. */
    bool preemptible; /**< May be displaced by programs of the same priority that wait. */
    bool pinned;      /**< Cannot leave its device, nor spill. */
    bool busy_moving; /**< A step that concerns it is under way: not to be touched. */
    bool silent;      /**< Busy in vain: it does not answer, so nothing of it becomes free. */
    uint64_t granted; /**< Bytes of that device. */
    uint64_t least;   /**< Bytes that its largest command needs at once: what a spill must leave. */
    uint64_t stayed_s; /**< Since it was placed where it is. */
    /* Up to here what is read of all others when one needs room: within one cache line, though
     * programs begin 16 bytes behind one where they are on the heap. */
    uint64_t waited_s;     /**< Since it waits or queues. Left as it is when it is placed: what
                                waiting earned protects it for the minimum stay. */
    uint64_t ticket;       /**< Of who waits or is suspended: lower is earlier. */
    uint64_t wanted;       /**< Bytes of all that it has, on the device or not. */
    uint64_t need;         /**< Bytes to be granted before its call can go on, all together. Of one
                                that waits, or that was suspended while it did; 0: no call waits. */
    uint64_t quota;        /**< Bytes that it may be granted at most; UINT64_MAX: no limit. */
    const char *name;      /**< Borrowed. */
    uint32_t owner;        /**< A user: no other one is told the name. */
    uint32_t busy;         /**< Thousandths of a device's time that it keeps it busy. */
    uint32_t recent_moves; /**< By policy, within settings.budget_s. */
    bool leaves; /**< Said that it had better leave its device now, which is closed: it is moved off
                    as soon as another has room. */
    bool owns; /**< Its call needs at once what it has already, nothing new: a limit or a quota that
                  is in the way has it wait off its device, whatever its ways. */
    bool kept; /**< Where an operator put it: leaves where it must, or to fit, but not to be
                    better off. */
    /** One bit a device, where it would not run (its PLAN refused); NULL: it runs anywhere. Its own
        too: it runs there, but is moved off as soon as it could be elsewhere. */
    const uint64_t *barred;
    /** What it could make use of, as it said (policy/reseat.h); NULL: it said nothing. Nothing that
        it needs: what it needs at least bars the devices that have less. Borrowed. */
    const struct reseat_limits *prefers;
    uint32_t ready;   /**< The device that it is made ready for, or is about to be; or NONE. */
    uint64_t ready_s; /**< Since policy had that done; UINT64_MAX: it did not. */
    const struct policy_visits
        *visits; /**< Of the devices that it left; NULL: of none. Borrowed. */
};

struct policy_world {
    const struct policy_device *devices;
    uint32_t device_count;
    const struct policy_program *programs;
    uint32_t program_count;
    /** Those that are POLICY_WAITING or POLICY_SUSPENDED, by priority (highest first), then ticket.
        Served in this order but for aging, and of one priority what is preemptible last. */
    const uint32_t *queue;
    uint32_t queue_count;
    bool for_all; /**< Whoever reads what is said may know the names of all programs. */
    /** Programs that moved by policy lately, and how many may: settings.budget in budget_s. */
    uint32_t recent_moves;
    uint64_t now_s; /**< Of the clock that programs' visits go by. */
};

/** What an operator can tune; policy/settings.h has names, ranges and defaults. */
struct policy_settings {
    unsigned order[POLICY_WAYS]; /**< Ways out in the order in which they are tried; 0: no more. */
    uint64_t wait_deadline_s;    /**< Who waited this long is refused; 0: never. */
    uint64_t stay_s;             /**< Minimum stay before policy moves a program again. */
    uint64_t return_s;           /**< And before it moves one back to where it had it leave, which
                                      doubles each time. */
    uint32_t budget;             /**< Moves by policy of all programs in budget_s. */
    uint32_t budget_program;     /**< And of one. */
    uint64_t budget_s;
    uint32_t busy_high; /**< Thousandths: a program busier than this is compute-bound. */
    uint32_t busy_low;  /**< One less busy than this uses a fraction of its device. */
    uint32_t gain;      /**< Thousandths: a move by policy must promise this much more speed (up)
                             or less cost (down); the hysteresis between both. */
    uint32_t weight_speed, weight_price, weight_fill; /**< Thousandths, of a device's score. */
    uint64_t age_s;       /**< Waiting this long counts as one step of priority; 0: never. */
    bool automatic;       /**< Upgrades and downgrades that nobody asked for. */
    bool prewarm;         /**< Programs are made ready for where those would take them next. */
    uint64_t library_mib; /**< Of the library of device binaries; decides nothing here. */
    uint32_t slice_ms;    /**< Of programs that are started; decides nothing here. */
    bool isolate;         /**< The same. */
    bool protect;         /**< The same, and of those that run. */

    /* How moves go; they decide nothing here either. */
    uint32_t max_downtime_ms; /**< What moves aim at; who asks for one may say otherwise. */
    uint64_t bandwidth; /**< MiB a second for what is copied while a program runs; 0: no limit. */
};

enum policy_action {
    POLICY_NOTHING,
    POLICY_GRANT,      /**< `bytes` more on the device where it is. */
    POLICY_DO_MOVE,    /**< To `device`, where it is granted `bytes`: up, down, or off a drain.
                            Fewer bytes than it needs and wants: it spills there. */
    POLICY_DO_SPILL,   /**< It stays, and keeps to `bytes` in all there, more or less than it was
                            granted; its call goes on. */
    POLICY_DO_WAIT,    /**< Nothing fits yet: it blocks. */
    POLICY_DO_SUSPEND, /**< Off its device. One that waits keeps its ticket and its need. */
    POLICY_DO_RESUME,  /**< A suspended or new one: to `device`, where it is granted `bytes`. */
    POLICY_DO_REFUSE,  /**< Its call gets the error that a full device gives; it has no need then. A
                            suspended one without a call that waits could run nowhere now. */
    POLICY_DO_PREWARM, /**< It runs on where it is, and is made ready for `device`: a move there has
                            then little to do but to carry bytes. Grants nothing. */
};

struct policy_step {
    enum policy_action action;
    uint32_t program;
    uint32_t device;
    uint64_t bytes;
    char reason[POLICY_REASON]; /**< One line: why, and why nothing better. */
};

/**
 * What to do for one program that waits (`need` set) or queues for a device, now. Where others have
 * to make room first, the step is the first of that: it concerns another program, and the question
 * is asked again when it is done.
 *
 * O(devices + programs + queue). Always writes a step: POLICY_DO_WAIT where nothing else is
 * left and it may wait; POLICY_NOTHING for one that neither waits nor queues.
 */
void policy_answer(const struct policy_world *world, const struct policy_settings *settings,
                   uint32_t program, struct policy_step *ret_step);

/**
 * The next thing to do of itself: empty devices that drain, keep limits that were lowered, serve
 * the queue, move those off that may not use their device any more, give back room for what was
 * spilled, and (settings->automatic) upgrade and downgrade,
 * and move programs to where there is more of what they prefer; then (settings->prewarm)
 * have programs made ready for where they would go if they could, or if a little more spoke for it.
 * Called again after each step; in a world that nothing else changes it comes to POLICY_NOTHING.
 *
 * The first in the queue gets all that it needs whenever a device has it free; or has it after up
 * to three moves (one in large worlds) of others that are no worse off then; or whenever those on
 * one device that it outranks, and those that wait behind it, hold enough. What it waits for is
 * kept for it, so that nobody behind it starves it.
 */
void policy_next(const struct policy_world *world, const struct policy_settings *settings,
                 struct policy_step *ret_step);

/**
 * The next move of a rebalance: as policy_next's moves that nobody asked for, without minimum stay,
 * budget and time to return. POLICY_NOTHING when balanced.
 */
void policy_rebalance(const struct policy_world *world, const struct policy_settings *settings,
                      struct policy_step *ret_step);

/**
 * Why @program is where it is and what would change that: lines, each ended by a newline.
 * @size  2048 is enough; cut at whole lines.
 */
void policy_explain(const struct policy_world *world, const struct policy_settings *settings,
                    uint32_t program, char *ret_text, size_t size);

const char *policy_action_name(enum policy_action action);

#endif
