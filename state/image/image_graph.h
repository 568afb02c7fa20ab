#ifndef RESEAT_STATE_IMAGE_IMAGE_GRAPH_H
#define RESEAT_STATE_IMAGE_IMAGE_GRAPH_H

#include "state/image/image_manifest.h"

/*
 * What an image says of a program: all of its objects, as it made them.
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

#endif
