#ifndef RESEAT_STATE_IMAGE_IMAGE_KEEP_H
#define RESEAT_STATE_IMAGE_IMAGE_KEEP_H

#include "state/image/image_folder.h"

/**
 * Remove all but the last @keep images of the program that @image, of the folder @path, is of, and
 * what no image needs then. One that a program is suspended to stays, and so do those of others of
 * its name: images are of one program that have one right to run, or, without one, one process.
 *
 * Blocks on the disk, and as image_folder_open does. 0, or -errno with what is wrong; then more are
 * left than were to be, and the next time sees to that.
 */
MUST_CHECK int image_keep_last(const char *path, const char *image, uint64_t keep,
                               char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
