#ifndef RESEAT_STATE_IMAGE_STORED_H
#define RESEAT_STATE_IMAGE_STORED_H

#include "state/image/image_request.h"

/*
 * Keeps the bytes of a suspended program in an image on disk instead of host memory.
 *
 * Objects keep their host copies, but the pages are given back to the kernel once the image was
 * written, synced and read back correctly; a resume first fills them again from the same chunks.
 * Mapped objects, the program's own memory and SVM stay in memory as well, because the program may
 * use them at any moment; the image has their bytes of that time. The image cannot be pruned while
 * the program is suspended to it.
 */

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
