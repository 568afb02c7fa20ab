#ifndef RESEAT_STATE_IMAGE_STORED_H
#define RESEAT_STATE_IMAGE_STORED_H

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

/** An image to be made, of a suspended program or of one that runs (checkpoint.h). */
struct image_request {
    const char *folder; /**< Absolute path; created if missing. */
    /** Its deadline, progress and cancel; for a running program also its limits of downtime and
     * bandwidth. */
    struct move_request move;
    /* For a running program: */
    /** Another image will follow: keep the snapshot in host memory, so that only changes are
     * copied and compared then. Otherwise it is freed, unless it is needed for protection. */
    bool keeps;
    /** Number of this program's images to retain, once the new one is complete; 0: all. */
    uint64_t keep;
    /** Keep a lease of this length (lease_renewer.h): when it has passed without renewal, another
     * host may start the program from its images. 0: no new lease; an existing one is kept. */
    uint32_t lease_ms;
};

struct image_report {
    enum move_result result;
    char reason[512];           /**< One line; "" when done. */
    char image[IMAGE_NAME_MAX]; /**< The image's name; "" when there is none. */
    uint64_t bytes;             /**< Bytes of the objects in the image. */
    uint64_t written; /**< Compressed bytes of chunks that the folder did not have before. */
    uint64_t freed;   /**< Bytes of host memory given back. */
    uint64_t copied;  /**< Bytes copied to host memory for the snapshot. */
    uint64_t total_ns, downtime_ns;      /**< Of a running program. */
    char not_removed[IMAGE_PROBLEM_MAX]; /**< Why older images could not be removed; or "". */
};

/** Of an image that is being made. */
struct image_progress_report {
    const struct move_request *move;
    _Atomic uint64_t told_at; /**< Time of the last report. */
};
/**
 * For image_plan.check, with a struct image_progress_report: reports progress at intervals. Returns
 * 0, or why to give up: -ESHUTDOWN, -ECANCELED or -ETIMEDOUT.
 */
int image_request_check(void *report, uint64_t done, uint64_t total);

/**
 * Write everything of a suspended program to an image, and give its host memory back. On failure it
 * stays suspended with its bytes in host memory.
 *
 * Blocks on the disk; waits for a move that is under way. Thread-safe; not inside the gate.
 */
void stored_put(const struct image_request *request, struct image_report *ret_report);

struct move;
/** Before a resume: fill host memory again. Movers' lock held. 0, or -errno with the reason
 * written; then everything stays in the image and the resume may be tried again. */
MUST_CHECK int stored_bring(struct move *move);

/** Bytes that are only in an image. Thread-safe. */
uint64_t stored_bytes(void);

#endif
