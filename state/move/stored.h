#ifndef RESEAT_STATE_MOVE_STORED_H
#define RESEAT_STATE_MOVE_STORED_H

#include "state/image/image_folder.h"
#include "state/move/move.h"

/*
 * Keeps the bytes of a suspended program in an image on disk instead of host memory.
 *
 * Objects keep their host copies, but the pages are given back to the kernel once the image was
 * written, synced and read back correctly; a resume first fills them again from the same chunks.
 * Mapped objects, the program's own memory and SVM stay in memory as well, because the program may
 * use them at any moment; the image has their bytes of that time. The image cannot be pruned while
 * the program is suspended to it.
 */

struct stored_request {
    const char *folder;        /**< Absolute path; created if missing. */
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
    const atomic_bool *cancel; /**< Or NULL. */
    /** As in struct move_request. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct stored_report {
    enum move_result result;
    char reason[512];           /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX]; /**< The image's name; "" when there is none. */
    uint64_t bytes;             /**< Bytes of the objects in the image. */
    uint64_t written; /**< Compressed bytes of chunks that the folder did not have before. */
    uint64_t freed;   /**< Bytes of host memory given back. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Of a checkpoint: why older images could not be
                                            removed; or "". */
};

/**
 * Write everything of a suspended program to an image, and give its host memory back. On failure it
 * stays suspended with its bytes in host memory.
 *
 * Blocks on the disk; waits for a move that is under way. Thread-safe; not inside the gate.
 */
void stored_put(const struct stored_request *request, struct stored_report *ret_report);

struct move;
/** Before a resume: fill host memory again. Movers' lock held. 0, or -errno with the reason
 * written; then everything stays in the image and the resume may be tried again. */
MUST_CHECK int stored_bring(struct move *move);

/** Bytes that are only in an image. Thread-safe. */
uint64_t stored_bytes(void);

#endif
