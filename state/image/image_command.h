#ifndef RESEAT_STATE_IMAGE_IMAGE_COMMAND_H
#define RESEAT_STATE_IMAGE_IMAGE_COMMAND_H

#include "state/image/image_manifest.h"

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

#endif
