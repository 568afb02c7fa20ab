#ifndef RESEAT_AGENT_DAEMON_PROGRAMS_REGISTRY_H
#define RESEAT_AGENT_DAEMON_PROGRAMS_REGISTRY_H

#include "agent/daemon/agent.h"
#include "agent/daemon/devices/ledger.h"
#include "policy/decide.h"
#include "policy/reseat.h"
#include "policy/visits.h"

/** Devices that one virtual device may have left on demand at once, at most. */
#define PROGRAM_SOURCES_MAX 8

/** A device that a virtual device left on demand, with memory of the program's still. */
struct program_source {
    struct device_key device;
    uint64_t bytes;
    struct ledger_entry entry; /**< What it holds there. */
};

/** One virtual device of a program, and what the program last said of it. */
struct program_device {
    bool has_device;
    struct device_key device; /**< Where it is, was last, or will start. */
    bool suspended;
    bool moving;
    bool lost;            /**< Its device is, and has not answered since. */
    bool seeks;           /**< And it waits for another one, where what it did is done again. */
    uint64_t loss_sought; /**< The count of losses when it last began to wait for another one. */
    uint64_t device_bytes;
    uint64_t moves;
    uint64_t last_downtime_ns;
    char pinned[256];
    uint64_t wanted, least, granted, peak, spilled; /**< Bytes, as the program says. */
    uint64_t wanted_peak;       /**< The most that it wanted, on a device or spilled. */
    uint64_t fetched, to_fetch; /**< Left behind on demand: there by now, and in all; or 0. */
    uint32_t source_count;      /**< Of `sources`; the other entries there are on no device. */
    struct program_source sources[PROGRAM_SOURCES_MAX];
    uint32_t busy;     /**< Thousandths. */
    bool tells_grants; /**< It knows of grants, ... */
    bool limited;      /**< and says what it was granted: it keeps to that. */
    bool arrived;      /**< It said that it is where its entry is on the way to. */
    struct ledger_entry entry;
    uint64_t exchanged_ms;       /**< When a grant last went to it or came back. */
    uint64_t granted_ms;         /**< When it last got memory that it had asked for. */
    uint64_t placed_ms;          /**< When it came to its device. */
    uint32_t move_ms;            /**< What its last move took; 0: it has not moved. */
    uint64_t earned_ms;          /**< How long it waited for that. */
    struct policy_visits visits; /**< Of devices of the ledger, by uv_now(). */
    bool chosen;                 /**< By an operator: policy has it leave only where it must. */
    bool displaced; /**< Suspended by the policy, or left to it: the policy resumes it. */
    uint32_t only;  /**< Of the ledger: the one device that it queues for, by an operator's word, or
                         LEDGER_NONE. */
    uint64_t ticket; /**< While it is displaced. */
    uint64_t queued_ms;
};

/** Devices that did not run a program, until why can have changed. */
#define PROGRAM_EXCLUSIONS_MAX 32
enum program_exclusion_cause {
    EXCLUSION_FAILED,  /**< Something did: for a while. */
    EXCLUSION_REFUSED, /**< It uses more than there is: until it uses something else. */
    EXCLUSION_BUILD, /**< What it has does not build there: until it has something else, and a while
                    has passed, or the driver is another. */
};
struct program_exclusion {
    uint32_t device; /**< Of the ledger. */
    enum program_exclusion_cause cause;
    unsigned tries;  /**< In a row that failed for that, but for the first. */
    uint64_t uses;   /**< program_uses() at that time. */
    uint64_t driver; /**< Which one it was. */
    uint64_t until_ms;
    char reason[256];
};

/** Of a program, what its own command line or an operator's command says: bits. */
enum program_override {
    OVERRIDE_PRIORITY = 1 << 0,
    OVERRIDE_PREEMPTIBLE = 1 << 1,
    OVERRIDE_WAYS = 1 << 2,
    OVERRIDE_QUOTA = 1 << 3,
    OVERRIDE_PROTECT = 1 << 4,
    OVERRIDE_ALL = (1 << 5) - 1,
};

/** How much memory a program may have and how it goes on when that is not there. */
struct program_policy {
    unsigned overrides; /**< enum program_override; for the rest the configuration holds, whenever
                      it changes. */
    int32_t priority;
    bool preemptible;
    unsigned ways;                     /**< enum policy_way. */
    uint64_t quota;                    /**< Bytes, or LEDGER_NO_LIMIT. */
    struct protection protect;         /**< How it is to be protected. */
    char pinned_to[PROTOCOL_WORD_MAX]; /**< The device that it has to be on, or "". */
};

/** How many moves by policy are remembered; the budget of one program is smaller. */
#define PROGRAM_MOVES_MAX 16
struct program_move {
    uint64_t at_ms;
    uint32_t from, to; /**< Of the ledger; LEDGER_NONE: host memory. */
    char why[POLICY_REASON];
};

/** One program as the governor sees it. */
struct managed {
    char why[POLICY_REASON]; /**< Of its last step. */
    uint64_t rest_until_ms;  /**< After one that failed: not before. */
    uint64_t rest_ms;
    bool shrinks;       /**< It was told to keep to less and has not said what it gives. */
    bool trims;         /**< Only what it does not use. */
    uint64_t shrink_to; /**< Bytes in all that it was to keep to. */
    uint64_t shrink_until_ms;
    bool withholds; /**< It kept more than that: it is not asked again for a while. */
    uint64_t withholds_until_ms;
    uint64_t trimmed_ms; /**< When it was last asked for what it does not use. */
    struct program_move moves[PROGRAM_MOVES_MAX]; /**< By policy: a ring of the last. */
    unsigned moved;                               /**< In all. */
    struct program_exclusion exclusions[PROGRAM_EXCLUSIONS_MAX];
    unsigned exclusion_count;
    uint64_t wished;  /**< As ledger_device.announced, when it last said what it asks for. */
    bool displaces;   /**< Others gave room for what it waits for, a step's worth. */
    unsigned waiting; /**< Calls that are blocked until there is room. */
    uint64_t waits, waited_ms, refusals;
    uint32_t ready_for; /**< By policy: a device of the ledger, since... */
    uint64_t ready_ms;  /**< ...then; 0: for none so far. */
    struct history history;
};

/** Devices that a program is ready for, at most. */
#define PROGRAM_READY_MAX 8
struct program_ready {
    struct device_key device;
    uint64_t behind;   /**< What a move there would still have to make, as the program says. */
    uint64_t left;     /**< So much was when it was last made ready: not to be asked for again. */
    uint64_t asked_ms; /**< When it was last asked to keep up, or to let go; 0: never. */
    bool ours;         /**< The policy had it done; else an operator, who alone undoes it. */
};

/** Kernels that a program says it cannot give in pieces, at most. */
#define PROGRAM_WHOLE_MAX 16
struct program_whole {
    char kernel[64];
    char reason[160];
};

/** Devices that an operator lets its long launches be done on, beside its own. */
struct program_spread {
    struct device_key devices[PROTOCOL_SPREAD_MAX];
    size_t count;
};

/** How a program says that it is protected from the loss of its device. */
struct program_protect {
    struct protection as; /**< PROTECTION_UNSAID: it has not said. */
    bool on;
    char broken[256];  /**< Why it is not at the moment, though it is to be; or "". */
    char recovery[64]; /**< What is done at the moment after a loss; or "". */
    uint64_t points, recoveries, differences;
    uint64_t point_bytes, downtime_ns; /**< Of the last point, which was made... */
    uint64_t at_ns;                    /**< ...then, by CLOCK_MONOTONIC; 0: there is none. */
    uint64_t paused_ns, since_ns;      /**< All points stopped it for so long, since then. */
    uint64_t put_off_ns; /**< The next is put off, as it would stop it for so long; or 0. */
};

/** The last device that it lost. */
struct program_loss {
    uint64_t count; /**< So many were lost in all; 0: none. */
    struct device_key device;
    char reason[256];
    uint64_t at_ns; /**< CLOCK_MONOTONIC. */
    bool isolated;  /**< Its driver was in a process of its own, and would be in another one. */
};

/** Images that a program is to make again and again. */
struct program_images {
    uint64_t every_ms; /**< 0: none. */
    char folder[PATH_MAX];
    uint64_t keep; /**< 0: all. */
    uint64_t timeout_ms, max_downtime_ms, bandwidth;
    uint64_t due_ms;   /**< Of the next one, by uv_now(). */
    char image[64];    /**< The last, or "". */
    uint64_t made_ms;  /**< When. */
    char problem[256]; /**< Why there is none since; or "". */
};

/** What a program last said of itself. */
struct program_status {
    bool known;
    uint64_t last_downtime_ns; /**< Of the last virtual device that moved. */
    uint64_t contexts, queues, memories, programs, kernels, events;
    uint64_t warm;     /**< Bytes of host memory that it keeps ready. */
    uint64_t slice_ns; /**< How long pieces of its launches take; 0: they are given whole. */
    uint64_t spread_launches, spread_items; /**< That other devices had a part in; work-items of
                                                 theirs that those did. */
    uint64_t stored;                        /**< Bytes that it has in an image alone. */
    struct program_protect protect;
    struct program_loss loss;
    bool fenced;             /**< Somebody may have its right to run, or has: its calls wait. */
    char right_problem[512]; /**< Why it could not say that it lives; or "". */
};

struct program_costs;

/** A program that registered with policy/reseat.h, and what it asks of a device. */
struct program_wish {
    bool aware;
    struct reseat_limits minimum, preferred;
};

/** Bytes of the name of a list of devices: "inventory-" and a digest. */
#define PROGRAM_INVENTORY_MAX 32

/**
 * A program. Known from `reseat run` (starting) or from its own hello; kept while its process
 * lives. Each has a file in the programs folder, so that a new agent knows those that have not
 * called OpenCL yet.
 */
struct program {
    struct program *next;
    char id[32];
    char name[64];
    pid_t pid;
    uint64_t start; /**< process_start_time(). */
    uid_t uid;
    uint64_t after_peer; /**< The last that had connected when it became known. */
    bool named;          /**< The operator chose the name: children share it. */
    bool connected;      /**< Has ever been. */
    unsigned unanswered; /**< How often it was looked for since it last said something. */
    bool unresponsive;   /**< It does not answer what it is asked: nothing is until it does. */
    char inventory[PROGRAM_INVENTORY_MAX]; /**< The list of devices that it was told of, by its
                                                name in the runtime folder; or "". */
    char *environment;                     /**< What decides which devices it sees; may be NULL. */
    size_t vdev_count;                     /**< 1 to PROTOCOL_VDEVS_MAX. */
    struct program_device vdevs[PROTOCOL_VDEVS_MAX];
    struct program_status status;
    struct program_ready ready[PROGRAM_READY_MAX];
    size_t ready_count;
    struct program_whole whole[PROGRAM_WHOLE_MAX];
    size_t whole_count;
    struct program_spread spread;
    struct program_images images;
    unsigned spread_told;        /**< Of these the ones that it was told of, as bits. */
    char right_folder[PATH_MAX]; /**< Its right to run is there, as it last said; or "". */
    char right_id[32];
    struct program_wish wish;
    struct program_policy policy;
    struct managed managed;
    struct program_costs *costs; /**< Of what it ran lately: costs/costs.c. NULL: nothing known. */
    struct peer *peer;           /**< NULL while it has no connection. */
    uint64_t lost_ms;            /**< When the connection ended. */
    bool awaited;        /**< Another agent knew it connected; this one not yet how it is. */
    bool stranger;       /**< No agent knew it: it is to be protected as it first says it is. */
    uint64_t protect_ms; /**< When it was last told how to be protected; 0: never. */
};

/** It has entries from now on, and is treated as nobody said anything else. Until program_close().
 */
void program_open(struct agent *agent, struct program *program);
void program_close(struct agent *agent, struct program *program);

/** Programs that another agent knew and that still live. */
void programs_load(struct agent *agent);
void programs_finish(struct agent *agent);

/** Remove the programs that ended. */
void programs_sweep(struct agent *agent);

/**
 * A program that `reseat run` is about to become; takes what the operator said. @environment is
 * copied. @devices: where each virtual device starts, or NULL. Returns 0, -ESRCH or -ENOMEM.
 */
MUST_CHECK int programs_register(struct agent *agent, struct peer *peer, const char *name,
                                 bool named, const struct inventory_entry *const *devices,
                                 size_t vdev_count, const char *environment,
                                 struct program **ret_program);
/** The file in which a later agent finds it. Returns 0 or -errno. */
MUST_CHECK int program_file(const struct agent *agent, const struct program *program,
                            char ret[PATH_MAX]);
/** Write again what a later agent must know of it. */
void programs_save(const struct agent *agent, const struct program *program);

/** A program said hello on @peer. @ret_first: as never before. Returns 0, -ESRCH, -ENOMEM. */
MUST_CHECK int programs_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello,
                                bool *ret_first);
void programs_disconnect(struct agent *agent, struct peer *peer);
/** What a status, or a hello, says of it. */
void program_take_status(struct program *program, const msgpack_object *message);

/** Which of a program's virtual devices a request means. */
#define PROGRAM_ALL_VDEVS SIZE_MAX
/** Keep where a program that has not started OpenCL will start, or one virtual device of it. */
void programs_set_device(struct agent *agent, struct program *program, size_t vdev,
                         const struct device_key *device);

/**
 * Find a program of those that @peer may act on, by pid, id or name; of several of one name, one
 * that is connected. ":N" behind it means one of its virtual devices, unless a program is called
 * so.
 *
 * @ret_vdev  Its number, or PROGRAM_ALL_VDEVS.
 * Returns 0, or -ESRCH, -ENODEV (the program has no such virtual device) or -ENOTUNIQ with a line
 * for the operator in @ret_error.
 */
MUST_CHECK int programs_find(struct agent *agent, const struct peer *peer, const char *text,
                             struct program **ret_program, size_t *ret_vdev, char *ret_error,
                             size_t error_size);

/** "id", "name" and "pid", into an open map. */
void program_put_identity(const struct program *program, struct frame *frame);
/** The keys of a program's devices, one for each virtual device, as "devices" of an open map, and
 * back. */
void program_put_devices(const struct program *program, struct frame *frame);
void program_take_devices(struct program *program, const msgpack_object *map);

/** "right" of an open map, where it has one. */
void program_put_right(const struct program *program, struct frame *frame);

/** Where its launches are done beside that, as "spread" of an open map, and back. */
void program_put_spread(const struct program *program, struct frame *frame);
void program_take_spread(struct program *program, const msgpack_object *map);

/** Changes when what it uses of OpenCL does, so that what refused to run it may not any more. */
uint64_t program_uses(const struct program *program);

/** How it is treated, into an open map, and back: what is missing there stays as it is. */
void program_put_policy(const struct program *program, struct frame *frame);
void program_take_policy(struct program *program, const msgpack_object *map);
/** The same of what its command line says: that holds whatever the configuration says. */
void program_take_overrides(struct program *program, const msgpack_object *map);
/** "images" of an open map, and back: what it is to make again and again. */
void program_put_images(const struct program *program, struct frame *frame);
void program_take_images(const struct agent *agent, struct program *program,
                         const msgpack_object *map);
/** "visits" of a saved program: the devices that its virtual devices were on. */
void program_take_visits(struct agent *agent, struct program *program, const msgpack_object *map);
/** How it is to be protected, as "protect" of an open map; and back, false where nothing valid is
 *  said, which changes nothing. */
void program_put_protect(const struct program *program, struct frame *frame);
bool program_take_protect(struct program *program, const msgpack_object *map);
/** It has its name: what the configuration says of that holds, where nobody says otherwise. */
void program_named(struct agent *agent, struct program *program);
/** The same once more, as the configuration is now. */
void program_configure(struct agent *agent, struct program *program);
/** Tell it how much host memory the configuration has it keep warm, if it is connected. */
void program_tell_warm(const struct agent *agent, const struct program *program);
/** Set what @program may have, of all devices together, and tell it so with @text. */
void program_set_quota(struct agent *agent, struct program *program, uint64_t bytes,
                       const char *text);
/** What a later agent has to know of its place in the queue, and back: before it connects. */
void program_put_queued(const struct agent *agent, const struct program *program,
                        struct frame *frame);
void program_take_queued(struct agent *agent, struct program *program, const msgpack_object *map);
/** Forget what it said of itself: another connection says it anew. */
void program_reset_status(struct program *program);

/** "starting", "running", "moving", "lost", "suspended", "waiting", "spilled", "fenced" or "away".
 */
const char *program_state(const struct program *program);
/** It could do now what it is asked. */
static inline bool program_acts(const struct program *program)
{
    return program->peer && !program->unresponsive && !program->status.fenced;
}
/** It is on no device: suspended, or it lost the one that it was on and waits for another. */
static inline bool vdev_is_off(const struct program_device *vdev)
{
    return vdev->suspended || vdev->seeks;
}
/** Bytes that a virtual device has, on its device and in host memory, as last heard. */
uint64_t vdev_wanted(const struct program_device *vdev);
/** True when all of its virtual devices are. */
bool program_suspended(const struct program *program);
/** True when one of its virtual devices is. */
bool program_moving(const struct program *program);
/** The short name of the device of a virtual device, "" when it has none or it is not listed. */
const char *vdev_device_name(const struct agent *agent, const struct program_device *vdev);
/**
 * The short names of a program's devices, in the order of its virtual devices, one for each
 * ("gpu0,cpu1").
 *
 * @vdev     One of them alone, or PROGRAM_ALL_VDEVS.
 * @present  Suspended ones are "-", or "" where all that are asked for are.
 */
void program_device_names(const struct agent *agent, const struct program *program, size_t vdev,
                          bool present, char *ret, size_t size);

/* Programs that registered with policy/reseat.h: what they ask for, and what they are told. */

/** Read "aware" of a hello or a MSG_WISH; without it the program is not registered. */
void program_take_wish(struct program *program, const msgpack_object *map);
/** "aware" of an open map: an object of what it asks for, or nothing. */
void program_put_wish(const struct program *program, struct frame *frame);

/** False for a device (of the ledger) that has less than a program asked for at least, with the
 *  reason; untouched where it would do, or is not listed. */
bool program_wish_fits(const struct agent *agent, const struct program *program, uint32_t device,
                       char *ret_reason, size_t size);

/** For program_notify(): none of its virtual devices is concerned. */
#define PROGRAM_NO_VDEV (SIZE_MAX - 1)
/**
 * Notify a program (policy/reseat.h), if it registered and is connected.
 *
 * @vdev  One of its virtual devices, PROGRAM_ALL_VDEVS or APP_NO_VDEV.
 * @what  NOTICE_...; the other values as its notices have them.
 */
void program_notify(const struct program *program, size_t vdev, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text);

/** Tell all programs that there is a device, or more of one: @bytes that programs may have there.
 */
void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text);

#endif
