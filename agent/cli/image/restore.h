#ifndef RESEAT_AGENT_CLI_IMAGE_RESTORE_H
#define RESEAT_AGENT_CLI_IMAGE_RESTORE_H

#include <limits.h>

#include "agent/cli/show/output.h"

/**
 * The image that a new process of @program is to go on from.
 *
 * @word     A folder of images: the last one of the program that has its progress. Or one of its
 *           images, whose program the program itself has to be.
 * @program  As it is started: a name, or a path.
 * @ret_path  The image's, from the root folder on: a folder and a name.
 * 0, or an exit status, which was said.
 */
int restore_find(const struct output *output, const char *word, const char *program,
                 char ret_path[PATH_MAX]);

#endif
