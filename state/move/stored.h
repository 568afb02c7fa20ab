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

struct stored_request {
    const char *folder;        /**< Absolute. Made where it is missing. */
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
    const atomic_bool *cancel; /**< Or NULL. */
    /** As of struct move_request. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct stored_report {
    enum move_result result;
    char reason[512];                    /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX];          /**< Its name; "" when there is none. */
    uint64_t bytes;                      /**< That are in the image. */
    uint64_t written;                    /**< Of them, what was not in the folder before; packed. */
    uint64_t freed;                      /**< Host memory that was given back. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Of a checkpoint: why older ones are there still. */
};

/**
 * Write all that a suspended program has to an image, and give its host memory back. Where that
 * fails it stays as it was: suspended, with its bytes in host memory.
 *
 * Blocks on the disk; waits for a move that is under way. Thread-safe; not inside the gate.
 */
void stored_put(const struct stored_request *request, struct stored_report *ret_report);

struct move;
/** Before a resume: fill host memory again. With move_run's lock. 0, or -errno with the reason
 * written; then all stays in the image, which may be tried again. */
MUST_CHECK int stored_bring(struct move *move);

/** Bytes that are in an image and not in host memory. Thread-safe. */
uint64_t stored_bytes(void);

#endif
