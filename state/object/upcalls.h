#ifndef RESEAT_STATE_OBJECT_UPCALLS_H
#define RESEAT_STATE_OBJECT_UPCALLS_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Calls from the lower folders of the engine to the upper ones. There are no other upward calls.
 * All block, and are made outside the gate and every lock, except where noted.
 */

struct command;
struct device;
struct memory;
struct move;
struct move_context;
struct residence;
struct snapshot_report;
struct snapshot_request;
struct vdev;

enum budget_answer {
    BUDGET_AGAIN, /**< Try again: there is room now, or the program was moved. */
    BUDGET_SPILL,
    BUDGET_REFUSE,
    BUDGET_FORCE, /**< No policy: use whatever the device gives. */
};

struct upcalls {
    /**
     * @size more bytes did not fit on @device. Blocks on the policy. Returns BUDGET_AGAIN,
     * BUDGET_SPILL or BUDGET_REFUSE.
     *
     * @least   Bytes that one command needs at once.
     * @owns    The bytes belong to objects that the program has already, not to one being made.
     * @reason  The error that said so: is_shortage() is true of it.
     */
    enum budget_answer (*ask_for_budget)(struct device *device, uint64_t size, uint64_t least,
                                         bool owns, cl_int reason);
    /** Bring missing bytes to where @command is to run. Blocks on the device that wrote them, on
     * the link and on the policy. CL_SUCCESS: check the command again. */
    cl_int (*bring)(struct command *command);
    /** @kernel cannot run on @here: move @vdev back. True when it is on another device now, whoever
     * moved it. */
    bool (*move_back)(struct vdev *vdev, struct device *here, const char *kernel);
    /** Wait until no move is under way. */
    void (*await_move)(void);
    /** @root was created with @content. Inside the gate. */
    void (*made_with)(struct memory *root, const void *content);
    /** A residence was lost. Never blocks; anywhere. */
    void (*lost)(void);
    /**
     * @residence is lost, and its program may be protected: wait until its work was done again
     * elsewhere. True: it was, and the caller continues as if there had been no loss. False: there
     * is nothing to wait for.
     */
    bool (*await_recovery)(struct residence *residence);
    /** A program that has no context yet lost its device: wait for another device. True: its
     * virtual device is there. */
    bool (*await_replacement)(void);
    /** True when @vdev is lost and a move to another device recovers it: objects get the bytes of
     * the last snapshot there, and the journal is replayed. Outside the gate, or with it closed. */
    bool (*can_recover)(const struct vdev *vdev);
    /** A recovering move begins; it ends, with or without `recover`. Called by the mover; they do
     * not block. */
    void (*recovery_opens)(void);
    void (*recovery_closes)(void);
    /**
     * After COMMIT of a recovering move, gate closed: restore the snapshot and replay the journal.
     * 0 or -errno with the reason: then the targets count as lost, and another move is tried.
     *
     * @left  The residences that the move left, which threads wait for.
     */
    int (*recover)(struct move_context *contexts, size_t count, struct residence *left,
                   char *ret_reason, size_t reason_size);
    /**
     * Free objects that the program released and that are only kept for its protection. True: there
     * were some.
     *
     * @anyway  Also if that was done so recently that the program would be stopped too often.
     */
    bool (*relieve)(bool anyway);
    /** True when the program is protected, so that await_recovery may succeed. Wait-free. */
    bool (*is_protected)(void);
    /** protect_snapshot, protect_forget, recovery_count, recovery_outlived: for a checkpoint, whose
     * snapshot a protected program uses as its own. */
    int (*make_snapshot)(const struct snapshot_request *wanted, struct snapshot_report *ret_report);
    void (*forget_snapshot)(void);
    uint64_t (*recovery_count)(void);
    bool (*recovery_outlived)(uint64_t count, uint64_t deadline_ns, const atomic_bool *cancel);
    /** stored_bring: before a resume, fill host memory whose bytes are only in an image. Movers'
     * lock held. */
    int (*bring_stored)(struct move *move);
    /** A launch is being given in pieces whose speed is known, so other devices may help. Does not
     * block; inside the gate. */
    void (*share)(void);
};

/** Set once, before the program's first object (recovery_install). */
extern const struct upcalls *the_upcalls;

#endif
