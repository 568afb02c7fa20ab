#ifndef RESEAT_STATE_MOVE_STORED_H
#define RESEAT_STATE_MOVE_STORED_H

#include "state/image/image_folder.h"
#include "state/move/move.h"

/*
 * The bytes of a suspended program in an image on disk, and no longer in host memory.
 *
 * Its objects keep their host copies, whose pages are given back to the kernel once the image was
 * written, is on the disk, and was read back as good; they are filled again, from the same chunks,
 * before a resume does anything else. What is mapped, in the program's own memory or in SVM stays
 * where it is, for the program may use it at any moment; the image has it as it was. While the
 * program is suspended to it, the image cannot be pruned.
 */

/** An image that is to be made, of a suspended program or of one that runs (checkpoint.h). */
struct image_request {
    const char *folder; /**< Absolute. Made where it is missing. */
    /** Its deadline, progress and cancel; of a program that runs, what pauses and copies may cost.
     */
    struct move_request move;
    /* Of a program that runs: */
    /** Another image follows: the snapshot stays in host memory, so that only what changes is
     * copied and looked at then. Else it goes, unless somebody else keeps snapshots. */
    bool keeps;
    uint64_t keep; /**< Then remove all but so many of the program's images there; 0: none. */
    /** The program says from now on that it lives, and whoever does not hear it for as long may
     * start it again from its images (lease_renewer.h). 0: it does not, unless it does already. */
    uint32_t lease_ms;
};

struct image_report {
    enum move_result result;
    char reason[512];                    /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX];          /**< Its name; "" when there is none. */
    uint64_t bytes;                      /**< That are in the image. */
    uint64_t written;                    /**< Of them, what was not in the folder before; packed. */
    uint64_t freed;                      /**< Host memory that was given back. */
    uint64_t copied;                     /**< To host memory, for the snapshot. */
    uint64_t total_ns, downtime_ns;      /**< Of a program that runs. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Why older ones are there still; or "". */
};

/**
 * While an image is made: tell @request's progress, now and then (@told_at: when it was told last).
 * Returns 0, or why to give up: -ESHUTDOWN, -ECANCELED or -ETIMEDOUT.
 */
MUST_CHECK int image_request_check(const struct image_request *request, _Atomic uint64_t *told_at,
                                   uint64_t done, uint64_t total);

/**
 * Write all that a suspended program has to an image, and give its host memory back. Where that
 * fails it stays as it was: suspended, with its bytes in host memory.
 *
 * Blocks on the disk; waits for a move that is under way. Thread-safe; not inside the gate.
 */
void stored_put(const struct image_request *request, struct image_report *ret_report);

struct move;
/** Before a resume: fill host memory again. With move_run's lock. 0, or -errno with the reason
 * written; then all stays in the image, which may be tried again. */
MUST_CHECK int stored_bring(struct move *move);

/** Bytes that are in an image and not in host memory. Thread-safe. */
uint64_t stored_bytes(void);

#endif
