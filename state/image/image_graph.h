#ifndef RESEAT_STATE_IMAGE_IMAGE_GRAPH_H
#define RESEAT_STATE_IMAGE_IMAGE_GRAPH_H

#include "state/image/image_manifest.h"
#include "state/memory/memory.h"

/*
 * Describes a program for an image: how it was started, all of its objects as it made them, and the
 * names that it gave them.
 */

/**
 * Add the description of program and process. @reason: a word for why the image is made. Returns 0
 * or -ENOMEM.
 */
MUST_CHECK int graph_describe_program(struct image_manifest *manifest, const char *reason);
/**
 * Add all objects: contexts, queues, programs as recipes, kernels with their arguments, samplers,
 * memory objects without their bytes, and their names. Events are left out: waiting for one is
 * state of the process.
 *
 * Gate closed. Allocates and copies, calls no driver. Returns 0, -ENOMEM, or -E2BIG: a program is
 * too large for a container.
 */
MUST_CHECK int graph_describe(struct image_manifest *manifest);

/** Environment variable with a comma-separated list of further variables to be kept in images. */
#define COMMAND_LINE_ENV_KEPT "RESEAT_KEPT_VARIABLES"
/** Environment variable with the options of `reseat run` that are to hold for the program wherever
 * it is started again, a line each: "--priority=5". It is kept. */
#define COMMAND_LINE_ENV_OPTIONS "RESEAT_RUN_OPTIONS"
/** The program's name for operators. */
const char *graph_program_name(void);
/**
 * Add how the process was started: the command line, the working folder, and of the environment
 * only variables that programs use to find things (paths, languages, the settings of OpenCL drivers
 * and of OpenMP), since others may be secrets.
 *
 * Reads /proc. Thread-safe. Returns 0, -ENOMEM, -E2BIG (the arguments are longer than an image
 * takes), or -errno when /proc does not have them.
 */
MUST_CHECK int command_line_describe(struct image_manifest *manifest);

/*
 * The names that a program gives to its memory objects (reseat_name in policy/reseat.h), so that a
 * new process finds them in an image.
 */

/** True for a valid name: safe text, IMAGE_OBJECT_NAME_MAX bytes at most. */
bool name_is_valid(const char *name);
/**
 * Name @root; its former name is dropped.
 *
 * @name  Copied. Must be valid.
 * Thread-safe; not inside the gate. Returns 0, -EEXIST (another living object has that name) or
 * -ENOMEM.
 */
MUST_CHECK int names_set(struct memory *root, const char *name);
/** True when another living object has that name. Thread-safe; not inside the gate. */
bool names_taken(const struct memory *root, const char *name);
/** Add all names to an image. Gate closed. 0 or -ENOMEM. */
MUST_CHECK int names_describe(struct image_manifest *manifest);

#endif
