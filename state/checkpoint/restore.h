#ifndef RESEAT_STATE_CHECKPOINT_RESTORE_H
#define RESEAT_STATE_CHECKPOINT_RESTORE_H

#include "state/image/image_folder.h"
#include "state/memory/memory.h"

/*
 * A new process that goes on from an image (policy/reseat.h): it asks for the progress, and its
 * objects get the bytes of those of the same name. The image is read when it is first asked for,
 * and kept from being removed until all that it names was given.
 *
 * Everything is thread-safe, and not for inside the gate.
 */

/** Environment: the folder and the name of an image, as a path. It is the process's that asks
 * first, and emptied then: its children begin at their beginnings. */
#define RESTORE_ENV "RESEAT_RESTORE"

/** Environment: "ID.N", the right to run that it is started by, which it takes over
 * (image_lease.h).
 */
#define RESTORE_ENV_LEASE "RESEAT_RIGHT"

struct restored {
    const void *bytes; /**< The progress; as long as the process lives. */
    size_t size;
    uint64_t created_ms;
};

/**
 * @ret_problem  On failure, but for -ENOENT.
 * Blocks on the disk the first time. Returns 0, -ENOENT (there is no image: the program begins at
 * its beginning), -EBADMSG (it cannot be read), -ESTALE (it is of another program, or has no
 * progress) or -ENOMEM.
 */
MUST_CHECK int restore_progress(struct restored *ret_restored, char ret_problem[IMAGE_PROBLEM_MAX]);

/**
 * Give @root, which is held, the bytes that the image has by the name @name, once.
 *
 * @ret_filled   False: there is no image, or they were given already.
 * @ret_problem  On failure. @root has the bytes then that it had.
 * Blocks on the disk, and for a copy of the bytes the gate is closed where @root had some. Returns
 * 0, -ENOENT (the image has no such name), -ESTALE (another size, type or shape), -EBUSY (a command
 * named @root), -EBADMSG or -ENOMEM.
 */
MUST_CHECK int restore_fill(struct memory *root, const char *name, bool *ret_filled,
                            char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
