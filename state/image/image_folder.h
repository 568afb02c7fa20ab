#ifndef RESEAT_STATE_IMAGE_IMAGE_FOLDER_H
#define RESEAT_STATE_IMAGE_IMAGE_FOLDER_H

#include <limits.h>

#include "state/base/files/file.h"
#include "state/base/files/owned.h"
#include "state/image/image_manifest.h"

/*
 * A folder of images:
 *
 * - FOLDER/lock: readers and writers of images share it; removing needs it exclusively.
 * - FOLDER/chunks/DIGEST: a chunk, shared by all images that name it.
 * - FOLDER/NAME/manifest: makes the folder NAME an image; written last.
 * - Anything else in FOLDER/NAME is unfinished.
 *
 * A folder NAME without a manifest is an unfinished image: it is being written, or its writer died.
 * If the lock can be taken exclusively, the writer is dead, and the folder is removed, with all
 * chunks that no image names. Names are made from the time, so that they sort by age. Everything
 * belongs to the user alone, or is refused; all names inside are ours, so no path from outside is
 * followed.
 */

/** Length of an image's name: "20261125T024255.123-4711" (UTC, the process), with the NUL. */
#define IMAGE_NAME_MAX 32
#define IMAGE_MANIFEST "manifest"

/** What the folder is opened for. */
enum image_use {
    IMAGE_TO_READ,  /**< The folder must exist. */
    IMAGE_TO_WRITE, /**< The folder is created if missing. */
    IMAGE_TO_SWEEP, /**< The folder must exist, and no process reads or writes it. */
};

struct image_folder {
    char path[PATH_MAX]; /**< Resolved. */
    struct owned folder, chunks, lock;
    struct image_folder *next;
};

/** Open a folder. Blocks for a few seconds while another process removes images, or, to sweep, has
 * the folder open. Returns 0, -EPERM (it is not the user's alone), -ENOENT, -EBUSY, -ENOMEM or
 * -errno. */
MUST_CHECK int image_folder_open(const char *path, enum image_use use,
                                 struct image_folder **ret_folder,
                                 char ret_problem[IMAGE_PROBLEM_MAX]);
/** NULL is allowed. */
void image_folder_close(struct image_folder *folder);

/** True when @name is a valid name of an image. */
bool image_name_is_valid(const char *name);

/** Names of all images, finished or not, oldest first. As file_names(). */
MUST_CHECK int image_folder_names(const struct image_folder *folder, struct file_names *ret_names);
/** True when the image is finished: it has a manifest. What is no folder counts as a finished image
 * that cannot be read. */
bool image_folder_is_whole(const struct image_folder *folder, const char *name);

/** Create the folder of a new image. @ret_name: its name. 0 or -errno. */
MUST_CHECK int image_folder_begin(struct image_folder *folder, char ret_name[IMAGE_NAME_MAX],
                                  struct owned *ret_image);
/** Give up a new image: its folder is removed, now or by a later sweep. */
void image_folder_abandon(struct image_folder *folder, const char *name);

/**
 * Read an image's manifest.
 *
 * @ret_problem  Which file is wrong, and why.
 * Returns 0, -ENOENT (there is no such image, or it is not whole), -EPERM, -EBADMSG, -ENOMEM or
 * -errno.
 */
MUST_CHECK int image_folder_manifest(const struct image_folder *folder, const char *name,
                                     struct image_manifest *ret_manifest,
                                     char ret_problem[IMAGE_PROBLEM_MAX]);

/** Prevent the removal of an image until @ret_hold is closed, or the process ends. 0 or -errno. */
MUST_CHECK int image_folder_hold(const struct image_folder *folder, const char *name,
                                 struct owned *ret_hold);

/** Remove an image; its chunks are removed by the next sweep. Needs IMAGE_TO_SWEEP. Returns 0,
 * -EBUSY (a program is suspended to it) or -errno. */
MUST_CHECK int image_folder_remove(struct image_folder *folder, const char *name);

struct image_swept {
    size_t images;  /**< Unfinished images removed. */
    size_t chunks;  /**< Removed chunks, which no image named. */
    uint64_t bytes; /**< Bytes of those chunks. */
};
/**
 * Remove unfinished images, and chunks that no image names. If some manifest is damaged, the chunks
 * that it names are unknown: then all chunks stay, and @ret_problem says so; else it is "". Needs
 * IMAGE_TO_SWEEP. Returns 0, -ENOMEM or -errno, after which some of it may be done.
 */
MUST_CHECK int image_folder_sweep(struct image_folder *folder, struct image_swept *ret_swept,
                                  char ret_problem[IMAGE_PROBLEM_MAX]);

/**
 * Remove all but the last @keep images of the program of @image, in folder @path, and then unneeded
 * chunks. Images that a program is suspended to stay. Images belong to the same program if they
 * share a lease, or, without leases, one process; the program's name does not matter.
 *
 * Blocks on the disk, and as image_folder_open does. 0, or -errno with what is wrong; the next call
 * then removes what is left.
 */
MUST_CHECK int image_keep_last(const char *path, const char *image, uint64_t keep,
                               char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
