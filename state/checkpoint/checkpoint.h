#ifndef RESEAT_STATE_CHECKPOINT_CHECKPOINT_H
#define RESEAT_STATE_CHECKPOINT_CHECKPOINT_H

#include "state/image/image_folder.h"
#include "state/move/move.h"

/*
 * Makes an image of a running program: a snapshot (state/snapshot/snapshot.h) and the description
 * of the objects at its moment, on disk. The program is paused only for the snapshot's moment; the
 * snapshot is written while the program continues.
 */

struct checkpoint_request {
    const char *folder;       /**< Absolute path; created if missing. */
    uint64_t deadline_ns;     /**< CLOCK_MONOTONIC; 0: none. */
    uint64_t max_downtime_ns; /**< As in struct move_request. */
    bool strict;
    uint64_t
        bandwidth; /**< Bytes a second for what is copied while the program runs; 0: no limit. */
    /** Another checkpoint will follow: keep the snapshot in host memory, so that only changes are
     * copied and compared then. Otherwise it is freed, unless it is needed for protection. */
    bool keeps;
    /** Number of this program's images to retain, once the new one is complete; 0: all. */
    uint64_t keep;
    /** Keep a lease of this length (lease_renewer.h): when it has passed without renewal, another
     * host may start the program from its images. 0: no new lease; an existing one is kept. */
    uint32_t lease_ms;
    const atomic_bool *cancel; /**< Or NULL. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct checkpoint_report {
    enum move_result result;
    char reason[512];                    /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX];          /**< The image's name; "" when there is none. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Why older images could not be removed; or "". */
    uint64_t bytes;                      /**< Bytes of the objects in the image. */
    uint64_t written; /**< Compressed bytes of chunks that the folder did not have before. */
    uint64_t copied;  /**< Bytes copied to host memory for the snapshot. */
    uint64_t total_ns, downtime_ns;
};

/**
 * The callbacks of a program that saves its progress (policy/reseat.h). The progress must belong to
 * the snapshot's moment: after saving it, the program gives no command until that moment.
 */
struct checkpoint_partner {
    /** Called before any copying. 0: it will be asked, and `end` is called at the end; 1: it has no
     * progress; or -errno with the reason. Waits for moves under way. */
    int (*begin)(const struct checkpoint_request *request, char *ret_reason, size_t size);
    /** Ask for the progress. @ret_bytes: owned by the caller. 0: the program stands still until
     * `go_on`; or -errno with the reason. */
    int (*stand)(const struct checkpoint_request *request, void **ret_bytes, size_t *ret_size,
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
void checkpoint_make(const struct checkpoint_request *request,
                     struct checkpoint_report *ret_report);

/** No checkpoint follows: free what the last one kept. */
void checkpoint_end(void);

#endif
