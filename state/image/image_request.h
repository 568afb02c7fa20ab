#ifndef RESEAT_STATE_IMAGE_IMAGE_REQUEST_H
#define RESEAT_STATE_IMAGE_IMAGE_REQUEST_H

#include "state/image/image_write.h"
#include "state/move/move.h"

/* What is asked for an image and said of it, whether its program runs (checkpoint.h) or is
 * suspended (stored.h). */

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
    /** Interval of the images that are made of the program, which one with a lease records; 0:
     * none. */
    uint64_t every_ms;
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

/** An image that is being made. */
struct image_making {
    const struct image_request *request;
    struct image_report *report;
    struct image_manifest manifest; /**< Owned. */
    _Atomic uint64_t told_at;       /**< Time of the last report of progress. */
};

/** Give @why as the reason, unless there is one. Returns @error. */
int image_making_fail(struct image_making *making, int error, const char *why);
/** For image_plan.check, with a struct image_making: reports progress at intervals. Returns 0, or
 * why to give up: -ESHUTDOWN, -ECANCELED or -ETIMEDOUT. */
int image_making_check(void *making, uint64_t done, uint64_t total);
/** Write the image, and report its name and size. @plan: without `manifest` and `check`. Returns as
 * image_write(). */
MUST_CHECK int image_making_write(struct image_making *making, struct image_folder *folder,
                                  struct image_plan plan, char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
