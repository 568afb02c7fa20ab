#ifndef RESEAT_AGENT_DAEMON_PROGRAMS_REGISTRY_H
#define RESEAT_AGENT_DAEMON_PROGRAMS_REGISTRY_H

#include "agent/daemon/agent.h"
#include "agent/daemon/devices/ledger.h"
#include "agent/protocol/request.h"
#include "policy/decide.h"
#include "policy/reseat.h"
#include "policy/visits.h"

/** The most devices on which one virtual device may have left memory on demand at once. */
#define PROGRAM_SOURCES_MAX 8

/** A device that still has memory which a virtual device left there when it moved on demand. */
struct program_source {
    uint32_t device; /**< Index in the ledger, or LEDGER_NONE. */
    uint64_t bytes;
    struct ledger_entry entry; /**< The memory that is held there. */
};

/** One virtual device of a program, as the program last reported it. */
struct program_device {
    bool has_device;
    /** Its device, its last device, or the device on which it will start. */
    struct device_key device;
    bool suspended;
    bool moving;
    bool lost; /**< Its device is lost and has not answered since. */
    /** It waits for another device, on which its work is repeated after the loss. */
    bool seeks;
    uint64_t loss_sought; /**< The count of losses when it last began to wait for another device. */
    uint64_t device_bytes;
    uint64_t moves;
    uint64_t last_downtime_ns;
    char pinned[256];
    uint64_t wanted, least, granted, peak, spilled; /**< Bytes, as the program reported them. */
    uint64_t wanted_peak; /**< Peak of `wanted`, on a device or spilled. */
    /** Bytes of an on-demand move: transferred so far, and in all; or 0. */
    uint64_t fetched, to_fetch;
    /** Number of `sources` in use; the entries of the others are on no device. */
    uint32_t source_count;
    struct program_source sources[PROGRAM_SOURCES_MAX];
    uint32_t busy;                     /**< Load in thousandths. */
    uint64_t from_bytes_s, to_bytes_s; /**< Transferred from its device and to it, in a second. */
    bool tells_grants;                 /**< The program knows of grants. */
    bool limited;                      /**< The program reports its grant and keeps to it. */
    bool arrived;                      /**< It reported that it has reached its entry's target. */
    struct ledger_entry entry;
    uint64_t exchanged_ms;       /**< When a grant was last sent to it or returned by it. */
    uint64_t granted_ms;         /**< When it last received memory that it had asked for. */
    uint64_t placed_ms;          /**< When it came to its device. */
    uint32_t move_ms;            /**< Duration of its last move; 0: it has not moved. */
    uint64_t earned_ms;          /**< How long it had waited for that device. */
    struct policy_visits visits; /**< Its visits to devices of the ledger, by uv_now(). */
    /** An operator chose its device: the policy moves it only where it must. */
    bool chosen;
    bool displaced; /**< Suspended by the policy, or handed over to it: the policy resumes it. */
    /** The one device of the ledger for which an operator has it queue, or LEDGER_NONE. */
    uint32_t only;
    uint64_t ticket; /**< Its place in the queue while it is displaced. */
    uint64_t queued_ms;
};

/** Devices on which a program did not run, each until the reason may have ended. */
#define PROGRAM_EXCLUSIONS_MAX 32
enum program_exclusion_cause {
    EXCLUSION_FAILED, /**< An error occurred: for a limited time. */
    /** The program uses features that the device does not have: until its use changes. */
    EXCLUSION_REFUSED,
    /** A build failed: until the driver or the code to build changes (and time has passed). */
    EXCLUSION_BUILD,
};
struct program_exclusion {
    uint32_t device; /**< Index in the ledger. */
    enum program_exclusion_cause cause;
    unsigned tries;  /**< Consecutive failures for this reason, without the first. */
    uint64_t uses;   /**< program_uses() when it failed. */
    uint64_t driver; /**< Identifies the driver with which it failed. */
    uint64_t until_ms;
    char reason[256];
};

/** Bits: the properties of a program that its command line or an operator's command set. */
enum program_override {
    OVERRIDE_PRIORITY = 1 << 0,
    OVERRIDE_PREEMPTIBLE = 1 << 1,
    OVERRIDE_WAYS = 1 << 2,
    OVERRIDE_QUOTA = 1 << 3,
    OVERRIDE_PROTECT = 1 << 4,
    OVERRIDE_CAP = 1 << 5,
    OVERRIDE_DEVICES = 1 << 6,
    OVERRIDE_ALL = (1 << 7) - 1,
};

/** How much memory a program may have, and how it continues when less is available. */
struct program_policy {
    struct protection protect; /**< The protection it is to have. */
    /** Bits of enum program_override; the configuration decides the others, now and later. */
    unsigned overrides;
    int32_t priority;
    bool preemptible;
    unsigned ways;   /**< Bits of enum policy_way. */
    uint64_t quota;  /**< Bytes, or LEDGER_NO_LIMIT. */
    uint64_t cap_mw; /**< Its power cap; 0: none. */
    /** The only devices that the policy may place it on, as device_listed() takes them; or "". */
    char pinned_to[PROTOCOL_PINNED_MAX];
};

/** Remembered moves by the policy; its budget for one program is smaller. */
#define PROGRAM_MOVES_MAX 16

/** The governor's state of one program. */
struct managed {
    /** It was told to reduce its memory and has not yet reported how much it returns. */
    bool shrinks;
    bool trims;         /**< It was asked only for memory that it does not use. */
    uint64_t shrink_to; /**< The bytes in all to which it was to reduce. */
    uint64_t shrink_until_ms;
    bool withholds; /**< It kept more than that. It is not asked again for a while. */
    uint64_t withholds_until_ms;
    uint64_t trimmed_ms;    /**< When it was last asked for the memory that it does not use. */
    uint64_t rest_until_ms; /**< After a failed step, no new step before this time. */
    uint64_t rest_ms;
    char why[POLICY_REASON];              /**< The reason of the policy's last step for it. */
    uint64_t moved_ms[PROGRAM_MOVES_MAX]; /**< When the policy last moved it: a ring. */
    unsigned moved;                       /**< Moves by the policy in all. */
    struct program_exclusion *exclusions; /**< Owned: PROGRAM_EXCLUSIONS_MAX; NULL: none yet. */
    unsigned exclusion_count;
    /** Sequence number of its last wish, comparable with ledger_device.announced. */
    uint64_t wished;
    bool displaces;        /**< Other programs gave up one step of memory for its waiting call. */
    struct pending *needs; /**< Its calls that are blocked until memory is free; pending.c's. */
    unsigned waiting;      /**< How many they are. */
    uint64_t waits, waited_ms, refusals;
    uint32_t ready_for; /**< The device of the ledger for which the policy last prewarmed it. */
    uint64_t ready_ms;  /**< When that was; 0: never. */
    struct history history;
};

/** What a program draws above idle on one device at most, as its meter showed. */
#define PROGRAM_PEAKS_MAX 8
struct program_peak {
    uint32_t device; /**< Index in the ledger. */
    uint64_t mw;
    unsigned samples; /**< Readings of it, up to as many as are needed. */
    /** Since it was last reached: the highest reading, and the number of readings. */
    uint64_t lower_mw;
    unsigned lower;
};

/** Power that a program may take (power/power.h). */
/** How long a program may launch after it was last told so: less than it takes until it counts as
 * unresponsive. */
#define POWER_GRANT_MS 3000
struct program_power {
    bool capped, granted;    /**< As it was last told. */
    bool runs, wants;        /**< As it last said. */
    uint64_t turn, heard;    /**< Numbers of what it was last told, and of what it last answered. */
    uint64_t since_ms;       /**< Since when it is granted, or waits. */
    uint64_t said_ms;        /**< When it was last told. */
    uint64_t noticed_mw;     /**< The cap of which it was last notified; 0: of none. */
    uint64_t least_mw;       /**< The least cap that would do, as it was notified; 0: it fits. */
    char why[POLICY_REASON]; /**< Why it waits; or "". */
    struct program_peak peaks[PROGRAM_PEAKS_MAX];
    unsigned peak_count;
};

/** The most devices that are ready for one program. */
#define PROGRAM_READY_MAX 8
struct program_ready {
    uint32_t device; /**< Index in the ledger. */
    /** What a move there would still have to build, as the program reported it. */
    uint64_t behind;
    /** `behind` after the last update: the rest cannot be built ahead; do not ask again. */
    uint64_t left;
    /** When it was last asked to update the device or to release it; 0: never. */
    uint64_t asked_ms;
    /** The policy asked for it. If false, an operator did, and only an operator releases it. */
    bool ours;
};

/** The most kernels that a program reports as not divisible into pieces. */
#define PROGRAM_WHOLE_MAX 16
struct program_whole {
    char kernel[64];
    char reason[160];
};

/** The devices that run pieces of its long launches, in addition to its own. */
struct program_spread {
    bool free;      /**< The policy chooses them, of those that nobody uses (policy/decide.h). */
    bool any_float; /**< ...also where floats may differ from those of its own device. */
    uint32_t devices[PROTOCOL_SPREAD_MAX]; /**< Indices in the ledger. */
    size_t count;
};

/** Of launches that could run on several devices, how many ran on this one. */
#define PROGRAM_PLACED_MAX 8
struct program_placed {
    uint32_t device; /**< Index in the ledger, or LEDGER_NONE. */
    uint64_t launches;
};

/** A program's report on its protection from the loss of its device. */
struct program_protect {
    struct protection as; /**< PROTECTION_UNSAID: not reported yet. */
    bool seeks;           /**< It waits for another device. */
    bool on;
    char broken[256];  /**< Why it is not protected at the moment, although it is to be; or "". */
    char recovery[64]; /**< The recovery from a loss that is in progress; or "". */
    uint64_t points, recoveries, differences;
    uint64_t point_bytes, downtime_ns; /**< Size and downtime of the last snapshot. */
    /** When that snapshot was made, by CLOCK_MONOTONIC; 0: there is none. */
    uint64_t at_ns;
    /** The total time for which snapshots paused it, and the start of that count. */
    uint64_t paused_ns, since_ns;
    /** The next snapshot is delayed, because it would pause the program for this long; or 0. */
    uint64_t put_off_ns;
    /** The interval between snapshots, and what it is chosen by: a snapshot's cost, the mean time
     * to a fault (0: not known), and the time that the last loss took until the bytes were
     * restored. */
    uint64_t interval_ns, cost_ns, fault_ns, outage_ns;
};

/** The program's last loss of a device. */
struct program_loss {
    uint64_t count; /**< Losses in all; 0: none. */
    struct device_key device;
    char reason[256];
    uint64_t at_ns; /**< CLOCK_MONOTONIC. */
    /** The driver was in a process of its own, and a new process can open it again. */
    bool isolated;
    bool works; /**< The device works: this program alone cannot go on there. */
};

/** The periodic images of a program. */
#define PROGRAM_IMAGES_MS_MAX (86400ull * 1000 * 1000) /**< The longest interval. */
struct program_images {
    uint64_t every_ms; /**< Interval; 0: no images are made. */
    char folder[PATH_MAX];
    uint64_t keep; /**< How many images are kept; 0: all. */
    uint64_t timeout_ms, max_downtime_ms, bandwidth;
    uint64_t due_ms;   /**< When the next image is due, by uv_now(). */
    char image[64];    /**< The last image, or "". */
    uint64_t made_ms;  /**< When it was made. */
    char problem[256]; /**< Why no image was made since; or "". */
};

/** The program's last status. */
struct program_status {
    bool known;
    /** Another process may have the program's lease, or has it: the program's calls wait. */
    bool fenced;
    struct program_protect protect;
    uint64_t last_downtime_ns; /**< Downtime of its last move of a virtual device. */
    uint64_t contexts, queues, memories, programs, kernels, events;
    uint64_t warm;     /**< Bytes of host memory that it keeps ready. */
    uint64_t slice_ns; /**< Duration of a piece of its launches; 0: launches are not split. */
    /** Launches of which other devices ran a part, and the work-items that these devices ran. */
    uint64_t spread_launches, spread_items;
    char objective[24];      /**< By which a device is chosen for each launch; "": none is. */
    char not_placed[160];    /**< Why the last launch that stayed on its own device did; or "". */
    uint64_t placed_by_time; /**< Launches placed for time, as their energy is not known. */
    struct {
        struct program_placed counts[PROGRAM_PLACED_MAX];
        size_t count;
    } placed;
    uint64_t stored; /**< Bytes that are in an image only. */
    struct program_loss loss;
    char right_problem[512]; /**< Why it could not renew its lease; or "". */
};

/** The lease with which it owns its images. */
struct program_lease {
    char folder[PATH_MAX], id[32];
};

struct program_costs;

/** A program that registered through policy/reseat.h, and what it asks of a device. */
struct program_wish {
    bool aware;
    struct reseat_limits minimum, preferred;
};

/** Who a program says that it is, in its hello. */
struct program_hello {
    char name[64], id[32]; /**< As `reseat run` or its parent told it; or "". */
    char program[64];      /**< The name of its executable. */
};

/** Bytes of the name of a file with a list of devices: "inventory-" and a digest. */
#define PROGRAM_INVENTORY_MAX 32

/**
 * A program. The agent knows it from `reseat run` (starting) or from its hello, and keeps it while
 * its process lives. Each program has a file in the programs folder, from which a new agent learns
 * of programs that have not called OpenCL yet.
 */
struct program {
    /* First what is looked at all the time, for programs that no cache holds. */
    struct program *next;
    struct peer *peer;             /**< NULL while it has no connection. */
    bool connected;                /**< It has been connected at some time. */
    bool unresponsive;             /**< It does not answer. It gets no request until it does. */
    unsigned unanswered;           /**< Queries without an answer since it last sent a message. */
    unsigned spread_told;          /**< Bits: the devices of `spread` that it was told to use. */
    uint64_t lost_ms;              /**< When the connection ended. */
    uint64_t protect_ms;           /**< When it was last told which protection to use; 0: never. */
    struct program_images *images; /**< Owned. NULL: none were made or asked for. */
    struct program_costs *costs;   /**< What its launches cost (costs/costs.c). NULL: not known. */
    size_t ready_count;
    struct program_spread spread;
    size_t vdev_count;            /**< 1 to PROTOCOL_VDEVS_MAX; by program_set_vdev_count(). */
    size_t vdev_room;             /**< Elements of `vdevs`: the largest vdev_count so far. */
    struct program_device *vdevs; /**< Owned. */
    struct program_policy policy;
    struct managed managed;
    struct program_status status;
    struct program_power power;
    struct program_ready ready[PROGRAM_READY_MAX];

    char id[32];
    char name[64];
    pid_t pid;
    uint64_t start; /**< process_start_time(). */
    uid_t uid;
    /** Number of the last peer that had connected before the program became known. */
    uint64_t after_peer;
    bool named; /**< The operator chose the name, which the program's children share. */
    /** An earlier agent knew it connected; it has not reported its state to this agent yet. */
    bool awaited;
    /** No agent knew it: the protection that it first reports is the one it is to have. */
    bool stranger;
    /** The list of devices that it was given, as a file name in the runtime folder; or "". */
    char inventory[PROGRAM_INVENTORY_MAX];
    /** The variables that decide which devices it sees; may be NULL. */
    char *environment;
    struct program_whole *whole; /**< Owned: PROGRAM_WHOLE_MAX; NULL: none yet. */
    size_t whole_count;
    struct program_lease *lease; /**< Owned: as it last reported. NULL: it has none. */
    struct program_wish wish;
    struct config_user user; /**< What the configuration lets its user have. */
};

/** Give it @count virtual devices; new ones are on no device. False: no memory, nothing changed. */
bool program_set_vdev_count(struct agent *agent, struct program *program, size_t count);

/** Give it entries in the ledger and the default policy. To be ended with program_close(). False:
 * no memory. */
MUST_CHECK bool program_open(struct agent *agent, struct program *program);
void program_close(struct agent *agent, struct program *program);

/** Load the programs that an earlier agent knew and that still live. */
void programs_load(struct agent *agent);
void programs_finish(struct agent *agent);

/** Remove a program that has ended: true. One that has long been away is unreachable. */
bool program_sweep(struct agent *agent, struct program *program);
/** The same of all programs. */
void programs_sweep(struct agent *agent);

/**
 * Register a program that `reseat run` is about to execute, with the operator's settings.
 * @environment is copied. @devices: where each virtual device starts, or NULL. Returns 0, -ESRCH or
 * -ENOMEM.
 */
MUST_CHECK int programs_register(struct agent *agent, struct peer *peer, const char *name,
                                 bool named, const struct inventory_entry *const *devices,
                                 size_t vdev_count, const char *environment,
                                 struct program **ret_program);
/** Path of the file from which a later agent learns of the program. Returns 0 or -errno. */
MUST_CHECK int program_file(const struct agent *agent, const struct program *program,
                            char ret[PATH_MAX]);
/** Write the state that a later agent needs of the program. */
void programs_save(const struct agent *agent, const struct program *program);

/**
 * Handle a program's hello on @peer. @ret_first: it connects for the first time. Returns 0, -ESRCH,
 * -EDQUOT (see programs_may_start()) or -ENOMEM.
 */
MUST_CHECK int programs_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello,
                                bool *ret_first);
void programs_disconnect(struct agent *agent, struct peer *peer);
/** Read what a status or a hello reports. */
void program_take_status(struct agent *agent, struct program *program,
                         const msgpack_object *message);

/** Stands for all virtual devices of a program. */
#define PROGRAM_ALL_VDEVS SIZE_MAX

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

/** A number that changes with the used features: a device that refused may accept then. */
uint64_t program_uses(const struct program *program);

/** Bring a policy that was read within its bounds. */
void program_check_policy(struct program_policy *policy);
/** Apply what the command line said, which overrides the configuration. */
void program_override(struct program_policy *policy, const struct registration *said);
/** Read what programs_save() wrote, before the program connects. */
void program_take_saved(struct agent *agent, struct program *program, const msgpack_object *map);
/** The place in the queue of a virtual device; 0: it does not queue. */
static inline uint64_t program_queue_ticket(const struct program *program, size_t vdev)
{
    return program->vdevs[vdev].displaced ? program->vdevs[vdev].ticket : 0;
}
/** Read which periodic images of it are to be made, of a program that registers or was saved. */
void program_take_images(const struct agent *agent, struct program *program,
                         const msgpack_object *map);
/** Read when the policy moved it, of a saved program. */
void program_take_moves(struct agent *agent, struct program *program, const msgpack_object *map);
/** Apply the configuration for its new name, where no command set anything else. */
void program_named(struct agent *agent, struct program *program);
/** Apply those settings again after the configuration changed. */
void program_configure(struct agent *agent, struct program *program);
/** Tell it, if it is connected, how much host memory the configuration has it keep ready. */
void program_tell_warm(const struct agent *agent, const struct program *program);
/** Set the bytes that @program may have on all devices together, and tell it with @text. */
void program_set_quota(struct agent *agent, struct program *program, uint64_t bytes,
                       const char *text);
/** Reset its status: it reports a new one on its next connection. */
void program_reset_status(struct program *program);

/** "starting", "running", "moving", "lost", "suspended", "waiting", "spilled", "fenced" or "away".
 */
const char *program_state(const struct program *program);
/** True when it can serve a request now. */
static inline bool program_acts(const struct program *program)
{
    return program->peer && !program->unresponsive && !program->status.fenced;
}
/** True when it is on no device: suspended, or waiting for another device after a loss. */
static inline bool vdev_is_off(const struct program_device *vdev)
{
    return vdev->suspended || vdev->seeks;
}
/** True when one of its virtual devices is on @device, or when it was told to use it beside them.
 */
bool program_launches_on(const struct program *program, uint32_t device);
/** Bytes that a virtual device has on its device and in host memory, as last reported. */
uint64_t vdev_wanted(const struct program_device *vdev);
/** True when all of its virtual devices are suspended. */
bool program_suspended(const struct program *program);
/** True when one of its virtual devices is moving. */
bool program_moving(const struct program *program);
/** The short name of a virtual device's device; "" when it has none or the device is not listed. */
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

/* What the configuration lets users have. */

/** Read it for the user of @program, whose groups are @peer's. NULL: they are not known. */
void program_set_user(const struct agent *agent, struct program *program, const struct peer *peer);
/** False where @peer's user has as many programs as may be; @ret_error then says so. */
bool programs_may_start(struct agent *agent, const struct peer *peer, char *ret_error, size_t size);
/**
 * Bytes that @program may have on all devices together beside its user's other programs, and those
 * of the other users with the same entry; LEDGER_NO_LIMIT: any number.
 */
uint64_t program_user_left(const struct agent *agent, const struct program *program);

/* Programs that registered through policy/reseat.h: their requirements, and their notices. */

/**
 * False for a device of the ledger that does not meet a requirement of the program, with the reason
 * in the output. The output is untouched where the device meets all of them or is not listed.
 */
bool program_wish_fits(const struct agent *agent, const struct program *program, uint32_t device,
                       char *ret_reason, size_t size);

/** For program_notify(): the notice concerns no virtual device. */
#define PROGRAM_NO_VDEV (SIZE_MAX - 1)
/**
 * Notify a program (policy/reseat.h), if it registered and is connected.
 *
 * @vdev  One of its virtual devices, PROGRAM_ALL_VDEVS or PROGRAM_NO_VDEV.
 * @what  NOTICE_...; the other values as its notices have them.
 */
void program_notify(const struct program *program, size_t vdev, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text);

/** Tell all programs of a new device, or more memory: @bytes is what they may have. */
void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text);

#endif
