#ifndef RESEAT_AGENT_CLI_IMAGE_PROCESS_IMAGE_H
#define RESEAT_AGENT_CLI_IMAGE_PROCESS_IMAGE_H

#include <stdbool.h>

#include "agent/cli/image/park.h"
#include "state/image/image_write.h"

/*
 * A whole process in an image: CRIU's files, in chunks with digests like any bytes of an image, so
 * that an image of a process is listed, verified, shared and removed like any other, and is there
 * whole or not at all.
 */

/** Where CRIU writes and reads its files: a folder of its own within that of the images, which goes
 *  with us. */
struct process_files {
    char path[PATH_MAX];
    char log[PATH_MAX]; /**< In it, and no part of the image. */
    int fd;             /**< Its lock; -1: there is none. */
};

/** 0 or -errno. Sweeps what who died left. */
MUST_CHECK int process_files_begin(const struct image_folder *folder,
                                   struct process_files *ret_files);
void process_files_end(struct process_files *files);
/** What CRIU said stays, in the folder of images: its path. */
const char *process_files_keep_log(const struct image_folder *folder, struct process_files *files);

/**
 * Write an image of what CRIU left in @files. As image_write().
 *
 * @session  Of struct image_process.
 */
MUST_CHECK int process_image_write(struct image_folder *folder, const struct process_files *files,
                                   const struct parked *parked, bool session,
                                   struct image_written *ret_written,
                                   char ret_problem[IMAGE_PROBLEM_MAX]);

/** What an image says of its process; NULL: it is of none. */
const struct image_process *process_image_process(const struct image_manifest *manifest);
/** Make CRIU's files again, each compared with its digests. As image_read(). */
MUST_CHECK int process_image_read(const struct image_folder *folder,
                                  const struct image_manifest *manifest,
                                  const struct process_files *files,
                                  char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
