#ifndef RESEAT_POLICY_DECIDE_H
#define RESEAT_POLICY_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The device on which a new program starts if none was named. Pure: no I/O, no clock, no globals,
 * libc only.
 */

/** In the order of preference. */
enum place_kind { PLACE_GPU, PLACE_ACCELERATOR, PLACE_CPU, PLACE_OTHER };

struct place_device {
    const char *name; /**< For the reason. Borrowed. */
    enum place_kind kind;
    uint64_t memory_total; /**< Bytes; 0: not known, counts as full. */
    uint64_t memory_used;  /**< Bytes, by all programs. */
    bool closed;           /**< Takes no new program. */
    bool small;            /**< Has no room for what the program needed in former runs. */
};

/**
 * Choose an open device: of those that are not small, if there are any, and of those of the kind
 * that comes first in the order. Among these the one with the smallest share of its memory in use,
 * then the first listed. The same input always gives the same choice.
 *
 * @ret_device  Index in @devices.
 * @ret_reason  At least 256 bytes: one line that says why, or why none. Longer lines are cut.
 * Returns 0, or -ENODEV when no device is open; @ret_device is then untouched.
 */
int place_choose(const struct place_device *devices, size_t count, size_t *ret_device,
                 char *ret_reason, size_t reason_size);

/**
 * The same for a further virtual device of a program: its virtual devices spread evenly over the
 * devices of the first kind, and the share of memory decides only between equals.
 *
 * @taken  Number of the program's virtual devices that start on each of @devices.
 * Returns 0 or -ENODEV, as place_choose.
 */
int place_spread(const struct place_device *devices, const unsigned *taken, size_t count,
                 size_t *ret_device);

/*
 * Which program gets which device memory, and what to do when there is not enough. The input is a
 * snapshot of devices and programs (the world); the output is one step and its reason. Pure: no
 * I/O, no clock, no globals, libc only, no allocation. The agent describes the machine in it, the
 * simulator a trace.
 *
 * The caller keeps the world between calls, updates it as events arrive, and carries out one step
 * at a time. While a step of a program is being carried out, that program is `busy_moving`.
 *
 * There is no deadlock. Each waiting program has a ticket; programs of one priority are served in
 * ticket order; and a program that waits behind another is suspended when the one in front needs
 * its memory. So the first in the queue waits for running programs only. A pinned program cannot
 * release memory, so it never waits: its request is refused.
 */

#define POLICY_NONE   UINT32_MAX
#define POLICY_REASON 256 /**< Bytes of a reason. */

/** What may be done when a request does not fit, as bits: allowed by a program, or by settings. */
enum policy_way {
    POLICY_UPGRADE = 1 << 0, /**< Move to a device that fits. */
    POLICY_SPILL =
        1 << 1, /**< Keep what the current command needs on the device, the rest in host memory. */
    POLICY_WAIT = 1 << 2,    /**< Block the call; keep its memory until a program ahead needs it. */
    POLICY_SUSPEND = 1 << 3, /**< Release the device and queue for one. */
};
#define POLICY_WAYS 4

enum policy_state {
    POLICY_RUNNING,
    POLICY_WAITING,   /**< On a device; a call is blocked until `need` more bytes are granted. */
    POLICY_SUSPENDED, /**< On no device and queued for one. New programs begin so. */
    POLICY_STOPPED,   /**< Suspended by an operator: the policy does not touch it. */
};

struct reseat_limits;
struct policy_visits;

struct policy_device {
    const char *name; /**< For reasons. Borrowed. */
    enum place_kind kind;
    uint64_t memory;   /**< Bytes programs may be granted: the device's, or the operator's limit. */
    uint64_t whole;    /**< The same without the operator's limit; any value below `memory` means
                            `memory`. */
    uint64_t step;     /**< Bytes a program releases at a time when it makes room for another, so
                            that it is not asked again at once; 0: only what is needed. */
    uint64_t reserved; /**< Bytes granted to all programs there; above `memory` after the limit was
                            lowered. */
    uint64_t link;     /**< Bytes a millisecond, measured; 0: unknown. */
    uint32_t speed;    /**< Nominal, relative; 1000 is the reference device. */
    bool guessed;      /**< Nobody configured `speed`: it may be wrong by a large factor. */
    uint32_t price;    /**< Cost of an hour, relative; 1000 is the reference device's. */
    uint32_t busy;     /**< Thousandths of its time that programs there use; may exceed 1000. */
    uint32_t residents; /**< Programs on it. */
    uint32_t first;     /**< Head of the list of programs on it (policy_program.next), or NONE. */
    bool closed;        /**< Takes no new program: drained, failed or about to be removed. */
    bool drains;        /**< The programs on it must leave. */
    bool gone;          /**< Not listed any more; also `closed`. */
    uint64_t free_s;    /**< Seconds since a program was last on it. */
    uint32_t model;     /**< Devices with one number compute the same floats to the last bit; 0:
                            unknown. */
    /** Its capabilities other than memory (policy/reseat.h). NULL: unknown. Borrowed. */
    const struct reseat_limits *has;
};

/** How fast one device does the work that a program does now, from launches that were measured. */
struct policy_measured {
    uint32_t speed;   /**< Thousandths of its speed on the device where it is; 0: unknown. */
    uint32_t covered; /**< Thousandths of its busy time that `speed` was computed from. */
};

struct policy_program {
    enum policy_state state;
    uint32_t device;   /**< The device it is on, or POLICY_NONE. */
    uint32_t next;     /**< Next program on the same device, or POLICY_NONE. */
    int32_t priority;  /**< Higher goes first. */
    unsigned ways;     /**< enum policy_way. */
    bool preemptible;  /**< Waiting programs of the same priority may displace it. */
    bool pinned;       /**< Can neither leave its device nor spill. */
    bool busy_moving;  /**< A step of it is being carried out: choose none for it. */
    bool silent;       /**< It does not answer that step, so do not count on its memory. */
    uint64_t granted;  /**< Bytes of its device's memory. */
    uint64_t least;    /**< Bytes its largest command needs at once: the least a spill leaves. */
    uint64_t stayed_s; /**< Seconds since it was placed on its device. */
    /* The fields above are read for every program when one needs room. They fit in one cache line,
     * including the 16 bytes by which heap blocks are offset from one. */
    uint64_t waited_s;     /**< Seconds it has waited. Kept when it is placed: the rank it gained
                                by waiting protects it for the minimum stay. */
    uint64_t ticket;       /**< Of a waiting or suspended program: lower is earlier. */
    uint64_t wanted;       /**< Bytes of all its objects, on the device or spilled. */
    uint64_t peak;         /**< The most of `wanted` in former runs; 0: unknown. */
    uint64_t need;         /**< Total grant its blocked call needs to go on, also while suspended;
                                0: no call is blocked. */
    uint64_t quota;        /**< Bytes it may be granted at most; UINT64_MAX: no limit. */
    const char *name;      /**< Borrowed. */
    uint32_t owner;        /**< User id; other users are not told the name. */
    uint32_t busy;         /**< Thousandths of its device's time that it uses. */
    uint32_t recent_moves; /**< Moves of it by the policy within settings.budget_s. */
    bool leaves; /**< Its device is closed and it announced that now is a good time to move: move it
                    as soon as another device has room. */
    bool owns; /**< Its call needs memory it already has, no new memory. If a limit or a quota is in
                  the way it is suspended until that changes, whatever its ways. */
    bool elastic;   /**< Its long launches may be spread over free devices (policy/decide.h)... */
    bool any_float; /**< ...also where floats may differ from those of its own device. */
    bool kept; /**< An operator placed it: it leaves when it must or to fit, not to run faster. */
    /** A bit for each device on which it cannot run (plan_fits refused); NULL: none. A program
       whose present device is among them runs on, and is moved off when another device has room. */
    const uint64_t *barred;
    /** What it asked for beyond its minimum (policy/reseat.h); NULL: nothing. Devices below its
        minimum are in `barred`. Borrowed. */
    const struct reseat_limits *prefers;
    uint32_t ready;   /**< The device it is prewarmed for, or is being prewarmed for; or NONE. */
    uint64_t ready_s; /**< Seconds since the policy prewarmed it; UINT64_MAX: it did not. */
    const struct policy_visits *visits; /**< Devices it was on before; NULL: none. Borrowed. */
    /** By device; NULL: nothing was measured, and nominal speeds count. Borrowed. */
    const struct policy_measured *measured;
    uint64_t age_s;   /**< Seconds since it began. It is expected to run for as long again. */
    uint32_t move_ms; /**< What its last move took; 0: it has not moved. */
};

struct policy_world {
    const struct policy_device *devices;
    uint32_t device_count;
    const struct policy_program *programs;
    uint32_t program_count;
    /** The programs that are POLICY_WAITING or POLICY_SUSPENDED, by priority (highest first), then
        ticket. They are served in this order, except that aging raises a rank and that preemptible
        programs come last within a priority. */
    const uint32_t *queue;
    uint32_t queue_count;
    bool for_all; /**< Reasons may name programs of every user. */
    /** Moves by the policy within settings.budget_s; settings.budget is the most. */
    uint32_t recent_moves;
    uint64_t now_s; /**< The clock of policy_program.visits. */
    uint64_t link;  /**< Bytes a millisecond between a device and host memory; 0: unknown. */
};

/** What an operator can tune; policy/settings.h has names, ranges and defaults. */
struct policy_settings {
    uint64_t wait_deadline_s; /**< A request that waited this long is refused; 0: never. */
    uint64_t stay_s;          /**< Least time between two moves of a program by the policy. */
    uint64_t return_s;        /**< Least time before the policy moves a program back to a device
                                   it moved it from; doubles with each return. */
    uint32_t budget;          /**< Most moves by the policy of all programs within budget_s. */
    uint32_t budget_program;  /**< Most moves by the policy of one program within budget_s. */
    uint64_t budget_s;
    uint32_t busy_high; /**< Thousandths: a program above this is compute-bound. */
    uint32_t busy_low;  /**< Thousandths: a program below this uses only part of its device. */
    uint32_t gain;      /**< Thousandths: the least gain in speed (up) or cost (down) that justifies
                             a move by the policy; the hysteresis between the two. */
    uint32_t weight_speed, weight_price, weight_fill; /**< Thousandths, of a device's score. */
    uint64_t age_s; /**< Waiting this long counts as one step of priority; 0: never. */
    unsigned ways;  /**< Those of enum policy_way that may be used. */
    bool automatic; /**< Upgrade and downgrade programs unasked. */
    bool prewarm;   /**< Prewarm programs for the device of their likely next move or resume. */
    uint32_t prewarm_most; /**< Most programs that are prewarmed for one device. */
    uint32_t prewarm_free; /**< Thousandths of its memory that have to be free for that. */

    /* The agent and the engine use these; no decision here depends on them. */
    uint64_t library_mib;  /**< Size limit of the library of device binaries. */
    uint32_t slice_ms;     /**< Length of a piece of a launch, for programs that are started. */
    uint32_t objective;    /**< Of programs that are started: index of the setting's words. */
    uint32_t floats;       /**< The same for the setting `floats`. */
    bool metrics;          /**< The agent serves metrics. */
    uint32_t metrics_port; /**< Also on this TCP port of 127.0.0.1; 0: not. */
    bool isolate;          /**< Programs that are started run their drivers in other processes. */
    bool protect;          /**< Programs are protected from the loss of their device. */
    uint64_t fault_s;      /**< Mean time between faults of a device; 0: not known. */
    uint64_t power_cap;    /**< Watts of all devices; 0: no cap. Kept outside: power.h. */
    uint32_t max_downtime_ms; /**< Downtime that moves aim at unless the request says otherwise. */
    uint64_t bandwidth;       /**< Bytes a second for copies while a program runs; 0: no limit. */
};

enum policy_action {
    POLICY_NOTHING,
    POLICY_GRANT,      /**< Grant it `bytes` more on its device. */
    POLICY_DO_MOVE,    /**< Move it to `device` with a grant of `bytes`. If that is less than it
                            wants, it spills there. */
    POLICY_DO_SPILL,   /**< Set its grant on its device to `bytes`; its blocked call goes on. */
    POLICY_DO_WAIT,    /**< Nothing fits yet: its call stays blocked. */
    POLICY_DO_SUSPEND, /**< Suspend it. A waiting program keeps its ticket and its need. */
    POLICY_DO_RESUME,  /**< Place a suspended or new program on `device` with a grant of `bytes`. */
    POLICY_DO_REFUSE,  /**< Fail its blocked call as a full device would; clear its need. Of a
                            suspended program without a blocked call: no device can hold it now. */
    POLICY_DO_PREWARM, /**< Prewarm it for `device`, so that a move or resume there only has to copy
                            bytes. It runs on where it is, or waits on, and is granted nothing. */
};

struct policy_step {
    enum policy_action action;
    uint32_t program;
    uint32_t device;
    uint64_t bytes;
    uint64_t payback_s;         /**< Of a move that nobody asked for: see visits_moved(). */
    char reason[POLICY_REASON]; /**< One line: why this, and why nothing better. */
};

/**
 * The step for one program that waits (`need` is set) or is queued for a device. If other programs
 * have to make room first, the step is the first of theirs, and the caller asks again when it is
 * done.
 *
 * O(devices + programs + queue). Always writes a step: POLICY_DO_WAIT if it may wait and nothing
 * else is possible, POLICY_NOTHING if it neither waits nor is queued.
 */
void policy_answer(const struct policy_world *world, const struct policy_settings *settings,
                   uint32_t program, struct policy_step *ret_step);

/**
 * The next step that no program asked for, in this order: empty devices that drain, enforce lowered
 * limits, serve the queue, move programs off devices they may not use any more, and grow programs
 * that spill. With settings->automatic: upgrade and downgrade programs, and move them to devices
 * with more of what they prefer. With settings->prewarm: prewarm the first in the queue for the
 * device whose memory is kept for it, and programs for the device of their likely next move. Call
 * it again after each step; in a world that does not change otherwise it ends with POLICY_NOTHING.
 *
 * The first in the queue is served when a device has enough free memory, or would after up to three
 * moves (one in large worlds) that leave the moved programs no worse off, or when the programs that
 * it outranks on one device, and those that wait behind it, hold enough. Memory that it waits for
 * is reserved for it, so that programs behind it cannot starve it.
 */
void policy_next(const struct policy_world *world, const struct policy_settings *settings,
                 struct policy_step *ret_step);

/**
 * The next move of a rebalance that an operator asked for: the upgrades and downgrades of
 * policy_next() without minimum stay, budget, time to return or time to pay back. POLICY_NOTHING
 * when balanced.
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

/*
 * Devices that nobody uses, for the long launches of programs that may be spread over free devices.
 * Like the decisions of decide.h: no I/O, no clock, no allocation.
 */

/** For so long nobody must have used a device: one that a program just left may be wanted again. */
#define ELASTIC_FREE_S 2

/**
 * Give each free device to one program with policy_program.elastic. A device is free when it takes
 * programs, none is on it or comes to it, and none that waits could be placed on it. A program may
 * have it if all its objects fit there and, without any_float, if its own device is of the same
 * model. Of several programs the one of the highest priority has it, then the one with the fewest.
 *
 * Devices are taken back by calling this again: the copies there are of no program's memory, so
 * whoever is placed on the device finds all of it.
 *
 * @ret_programs  For each device: the program that it is given to, or POLICY_NONE.
 */
void elastic_share(const struct policy_world *world, uint32_t *ret_programs);

#endif
