#ifndef RESEAT_STATE_IMAGE_RESTORE_H
#define RESEAT_STATE_IMAGE_RESTORE_H

#include "state/image/image_folder.h"
#include "state/memory/memory.h"

/*
 * Restores a new process from an image (policy/reseat.h): it asks for its progress, and its objects
 * get the bytes of the objects of the same name. The image is read on first use, and cannot be
 * removed until everything that it names was given out.
 *
 * Everything is thread-safe, and not for inside the gate.
 */

/** Environment variable with the path of the image. The process that asks first takes it and
 * empties it, so that its children start from their beginning. */
#define RESTORE_ENV "RESEAT_RESTORE"

/** Environment variable "ID.N": the lease under which the process is started, and which it takes
 * over (image_lease.h). */
#define RESTORE_ENV_LEASE "RESEAT_RIGHT"

struct restored {
    const void *bytes; /**< The progress; valid as long as the process lives. */
    size_t size;
    uint64_t created_ms;
};

/**
 * @ret_problem  Written on failure, except for -ENOENT.
 * Blocks on the disk the first time. Returns 0, -ENOENT (no image: the program starts from its
 * beginning), -EBADMSG (it cannot be read), -ESTALE (it is of another program, or has no progress)
 * or -ENOMEM.
 */
MUST_CHECK int restore_progress(struct restored *ret_restored, char ret_problem[IMAGE_PROBLEM_MAX]);

/**
 * Give @root, which is held, the bytes that the image has for the name @name, once.
 *
 * @ret_filled  False: there is no image, or the bytes were given already.
 * @ret_problem  Written on failure; @root then keeps its bytes.
 * Blocks on the disk; if @root has bytes, also for a copy with the gate closed. Returns 0, -ENOENT
 * (the image has no such name), -ESTALE (another size, type or shape), -EBUSY (a command named
 * @root), -EBADMSG or -ENOMEM.
 */
MUST_CHECK int restore_fill(struct memory *root, const char *name, bool *ret_filled,
                            char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
