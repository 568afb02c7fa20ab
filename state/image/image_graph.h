#ifndef RESEAT_STATE_IMAGE_IMAGE_GRAPH_H
#define RESEAT_STATE_IMAGE_IMAGE_GRAPH_H

#include "state/image/image_manifest.h"
#include "state/memory/memory.h"

/*
 * What an image says of a program: how it was started, all of its objects as it made them, and what
 * it calls them.
 */

/**
 * Add what program and process it is, now. @reason: a word, why there is an image.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int graph_describe_program(struct image_manifest *manifest, const char *reason);
/**
 * Add every object there is: contexts, queues, programs as recipes, kernels with their arguments,
 * samplers, memory objects without their bytes, and their names. Events are not among them: who
 * waits for one is part of the process.
 *
 * Gate closed. Allocates and copies, calls no driver. Returns 0, -ENOMEM, or -E2BIG: a program is
 * too large for a container.
 */
MUST_CHECK int graph_describe(struct image_manifest *manifest);

/** Environment: names of variables, with commas, that images are to have besides those below. */
#define COMMAND_LINE_ENV_KEPT "RESEAT_KEPT_VARIABLES"
/**
 * Add how the process was started: the command line and the working folder, and of the environment
 * that it was started with only what programs are made to find things by (paths, languages, the
 * settings of OpenCL's drivers and of OpenMP), for others may be secrets.
 *
 * Reads /proc. Thread-safe. Returns 0, -ENOMEM, -E2BIG (the arguments are longer than an image
 * takes), or -errno: it cannot be told.
 */
MUST_CHECK int command_line_describe(struct image_manifest *manifest);

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
