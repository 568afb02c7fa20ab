#ifndef RESEAT_STATE_CHECKPOINT_CHECKPOINT_H
#define RESEAT_STATE_CHECKPOINT_CHECKPOINT_H

#include "state/move/stored.h"

/*
 * An image of a program while it runs: a snapshot (state/snapshot/snapshot.h), and with it what the
 * objects were at its moment, on disk. The program is stopped for the snapshot's moment alone; what
 * is written is the snapshot's, whatever the program does meanwhile.
 */

/**
 * A program that says how far it is (policy/reseat.h). Its progress belongs to the moment of the
 * snapshot: from when it gave it until that moment it gives no command.
 */
struct checkpoint_partner {
    /** Before any copying. 0: it will be asked, and `end` follows; 1: it has nothing to say; or
     * -errno with the reason. Waits for moves that are under way. */
    int (*begin)(const struct move_request *request, char *ret_reason, size_t size);
    /** Ask it. @ret_bytes: to be freed. 0: it stands still until `go_on`; or -errno with the
     * reason. */
    int (*stand)(const struct move_request *request, void **ret_bytes, size_t *ret_size,
                 char *ret_reason, size_t size);
    /** @made: its progress is that of a snapshot. Also after a `stand` that failed. */
    void (*go_on)(bool made);
    void (*end)(void);
};
/** Before the first checkpoint; NULL: none. */
void checkpoint_set_partner(const struct checkpoint_partner *partner);

/**
 * Blocks on the devices and the disk; one at a time in a process, and never with a move.
 * Thread-safe; not inside the gate, nor from a callback of a driver.
 */
void checkpoint_make(const struct image_request *request, struct image_report *ret_report);

/** None follows: let go of what the last one kept. */
void checkpoint_end(void);

#endif
