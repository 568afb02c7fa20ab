#ifndef RESEAT_STATE_OBJECT_UPCALLS_H
#define RESEAT_STATE_OBJECT_UPCALLS_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * What the lower mechanisms of the engine ask of the upper ones: that there is room, or that the
 * program is elsewhere. Nothing else calls up. All of it blocks, outside the gate and every lock,
 * but where it says otherwise.
 */

struct command;
struct device;
struct memory;
struct move_context;
struct residence;
struct vdev;

enum budget_answer {
    BUDGET_AGAIN, /**< There is room now, or the program is elsewhere. */
    BUDGET_SPILL,
    BUDGET_REFUSE,
    BUDGET_FORCE, /**< Nobody decides: whatever the device gives. */
};

struct upcalls {
    /**
     * @size bytes more did not fit on @device, for @reason (is_shortage). Blocks on the policy.
     * BUDGET_AGAIN, BUDGET_SPILL or BUDGET_REFUSE.
     *
     * @least  What one command needs at once.
     * @owns   They are of objects that the program has, not of one that it makes.
     */
    enum budget_answer (*ask_for_budget)(struct device *device, uint64_t size, uint64_t least,
                                         bool owns, cl_int reason);
    /** Bring what is absent to where @command is to run. Blocks on the device that wrote it, on the
     *  link and on the policy. CL_SUCCESS: to be looked at again. */
    cl_int (*bring)(struct command *command);
    /** @kernel cannot run on @here: move @vdev back. True when it is somewhere else now, by
     *  whomever it was moved. */
    bool (*move_back)(struct vdev *vdev, struct device *here, const char *kernel);
    /** Wait until no move is under way. */
    void (*await_move)(void);
    /** @root was made with its first bytes @content. Inside the gate. */
    void (*made_with)(struct memory *root, const void *content);
    /** A residence was lost. Never blocks; anywhere. */
    void (*lost)(void);
    /**
     * @residence is lost, and its program may be protected: wait until what it did there was done
     * again elsewhere. True: then it was, and the caller goes on as if nothing had been. False:
     * there is nothing to wait for.
     */
    bool (*await_recovery)(struct residence *residence);
    /** The device of a program that has no context there yet is not available: wait until another
     * one was found. True: its virtual device is there. */
    bool (*await_replacement)(void);
    /** @vdev is lost, and a move to another device recovers it: objects get the bytes of the last
     *  snapshot there, and the journal is given again. Outside the gate, or with it closed. */
    bool (*can_recover)(const struct vdev *vdev);
    /** Such a move begins; it ends, by `recover` or otherwise. By the mover; they do not block. */
    void (*recovery_opens)(void);
    void (*recovery_closes)(void);
    /**
     * After its COMMIT, gate closed, by the mover: restore and replay. 0 or -errno with the reason:
     * then the targets are taken for lost, and another move is tried.
     *
     * @left  The residences that the move left; threads wait for them.
     */
    int (*recover)(struct move_context *contexts, size_t count, struct residence *left,
                   char *ret_reason, size_t reason_size);
    /**
     * What the program released, and is kept for its protection alone, goes. True: there was some.
     *
     * @anyway  Also where that was done so lately that the program would be stopped too often.
     */
    bool (*relieve)(bool anyway);
    /** The program is protected: await_recovery may be true. Wait-free. */
    bool (*is_protected)(void);
    /** A launch is given in pieces, and how fast they are is known: others may do a part of it.
     * Does not block; inside the gate. */
    void (*share)(void);
};

/** Set once, before the program's first object (recovery_install). */
extern const struct upcalls *the_upcalls;

#endif
