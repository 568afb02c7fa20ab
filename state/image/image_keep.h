#ifndef RESEAT_STATE_IMAGE_IMAGE_KEEP_H
#define RESEAT_STATE_IMAGE_IMAGE_KEEP_H

#include "state/image/image_folder.h"

/**
 * Remove all but the last @keep images of @program in the folder @path, and what no image needs
 * then. One that a program is suspended to stays.
 *
 * Blocks on the disk, and as image_folder_open does. 0, or -errno with what is wrong; then more are
 * left than were to be, and the next time sees to that.
 */
MUST_CHECK int image_keep_last(const char *path, const char *program, uint64_t keep,
                               char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
