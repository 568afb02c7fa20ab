#ifndef RESEAT_STATE_IMAGE_CHECKPOINT_H
#define RESEAT_STATE_IMAGE_CHECKPOINT_H

#include "state/image/image_request.h"

/*
 * Makes an image of a running program: a snapshot (state/image/snapshot.h) and the description
 * of the objects at its moment, on disk. The program is paused only for the snapshot's moment; the
 * snapshot is written while the program continues.
 */

/**
 * The callbacks of a program that saves its progress (policy/reseat.h). The progress must belong to
 * the snapshot's moment: after saving it, the program gives no command until that moment.
 */
struct checkpoint_partner {
    /** Called before any copying. 0: it will be asked, and `end` is called at the end; 1: it has no
     * progress; or -errno with the reason. Waits for moves under way. */
    int (*begin)(const struct move_request *request, char *ret_reason, size_t size);
    /** Ask for the progress. @ret_bytes: owned by the caller. 0: the program stands still until
     * `go_on`; or -errno with the reason. */
    int (*stand)(const struct move_request *request, void **ret_bytes, size_t *ret_size,
                 char *ret_reason, size_t size);
    /** Let the program continue. @made: its progress belongs to a snapshot. Also called after
     * `stand` failed. */
    void (*go_on)(bool made);
    void (*end)(void);
};
/** Before the first checkpoint; NULL: none. */
void checkpoint_set_partner(const struct checkpoint_partner *partner);

/**
 * Make an image. Blocks on the devices and the disk; one at a time in a process, and not during a
 * move. Thread-safe; not inside the gate, nor from a callback of a driver.
 */
void checkpoint_make(const struct image_request *request, struct image_report *ret_report);

/** No checkpoint follows: free what the last one kept. */
void checkpoint_end(void);

#endif
