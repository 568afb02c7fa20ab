#ifndef RESEAT_STATE_IMAGE_IMAGE_NAMES_H
#define RESEAT_STATE_IMAGE_IMAGE_NAMES_H

#include "state/image/image_manifest.h"
#include "state/memory/memory.h"

/*
 * What a program calls its memory objects (reseat_name in policy/reseat.h), so that a new process
 * finds them in an image.
 */

/** True for what an object can be called: safe text, IMAGE_OBJECT_NAME_MAX bytes at most. */
bool name_is_valid(const char *name);

/**
 * Call @root so from now on, and not what it was called before.
 *
 * @name  Copied. Valid.
 * Thread-safe; not inside the gate. Returns 0, -EEXIST (another living object is called so) or
 * -ENOMEM.
 */
MUST_CHECK int names_set(struct memory *root, const char *name);
/** True when another living object than @root is called so. Likewise. */
bool names_taken(const struct memory *root, const char *name);

/** Add all names to an image. Gate closed. 0 or -ENOMEM. */
MUST_CHECK int names_describe(struct image_manifest *manifest);

#endif
