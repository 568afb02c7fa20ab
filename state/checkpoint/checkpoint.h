#ifndef RESEAT_STATE_CHECKPOINT_CHECKPOINT_H
#define RESEAT_STATE_CHECKPOINT_CHECKPOINT_H

#include "state/image/image_folder.h"
#include "state/move/move.h"

/*
 * An image of a program while it runs: a snapshot (state/snapshot/snapshot.h), and with it what the
 * objects were at its moment, on disk. The program is stopped for the snapshot's moment alone; what
 * is written is the snapshot's, whatever the program does meanwhile.
 */

struct checkpoint_request {
    const char *folder;       /**< Absolute. Made where it is missing. */
    uint64_t deadline_ns;     /**< CLOCK_MONOTONIC; 0: none. */
    uint64_t max_downtime_ns; /**< As of struct move_request. */
    bool strict;
    uint64_t
        bandwidth; /**< Bytes a second for what is copied while the program runs; 0: no limit. */
    /** Another one follows: the snapshot stays in host memory, so that only what changes is copied
     * and looked at then. Else it goes, unless somebody else keeps snapshots. */
    bool keeps;
    /** Of this program's images there all but so many go, once it is there; 0: none. */
    uint64_t keep;
    /** The program says from now on that it lives, and whoever does not hear it for as long may
     * start it again from its images (lease_renewer.h). 0: it does not, unless it does already. */
    uint32_t lease_ms;
    const atomic_bool *cancel; /**< Or NULL. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct checkpoint_report {
    enum move_result result;
    char reason[512];                    /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX];          /**< Its name; "" when there is none. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Why older ones are there still; or "". */
    uint64_t bytes;                      /**< That are in the image. */
    uint64_t written;                    /**< Of them, what was not in the folder before; packed. */
    uint64_t copied;                     /**< To host memory, for the snapshot. */
    uint64_t total_ns, downtime_ns;
};

/**
 * A program that says how far it is (policy/reseat.h). Its progress belongs to the moment of the
 * snapshot: from when it gave it until that moment it gives no command.
 */
struct checkpoint_partner {
    /** Before any copying. 0: it will be asked, and `end` follows; 1: it has nothing to say; or
     * -errno with the reason. Waits for moves that are under way. */
    int (*begin)(const struct checkpoint_request *request, char *ret_reason, size_t size);
    /** Ask it. @ret_bytes: to be freed. 0: it stands still until `go_on`; or -errno with the
     * reason. */
    int (*stand)(const struct checkpoint_request *request, void **ret_bytes, size_t *ret_size,
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
void checkpoint_make(const struct checkpoint_request *request,
                     struct checkpoint_report *ret_report);

/** None follows: let go of what the last one kept. */
void checkpoint_end(void);

#endif
