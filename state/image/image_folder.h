#ifndef RESEAT_STATE_IMAGE_IMAGE_FOLDER_H
#define RESEAT_STATE_IMAGE_IMAGE_FOLDER_H

#include <limits.h>

#include "state/base/files/file.h"
#include "state/base/files/owned.h"
#include "state/image/image_manifest.h"

/*
 * A folder of images:
 *
 *     FOLDER/lock                     who reads or writes images shares it, who removes has it
 * alone FOLDER/chunks/DIGEST            a chunk, of as many images as name it FOLDER/NAME/manifest
 * makes the folder NAME an image; it is the last that is written FOLDER/NAME/... what is not whole
 * yet
 *
 * A folder NAME without a manifest is an image that somebody writes, or did when he died; the
 * latter once the lock can be had alone, and then it is swept, with the chunks that no image names.
 * Names are of their time, so that their order is that of the images. Everything is the user's
 * alone, and refused where it is not; all that is found in it is named by us: no path is followed.
 */

/** Of an image: "20261125T024255.123-4711" (UTC, the process), with the NUL. */
#define IMAGE_NAME_MAX 32
#define IMAGE_MANIFEST "manifest"

/** What the folder is opened for. */
enum image_use {
    IMAGE_TO_READ,  /**< It has to be there. */
    IMAGE_TO_WRITE, /**< It is made. */
    IMAGE_TO_SWEEP, /**< It has to be there, and nobody reads or writes. */
};

struct image_folder {
    char path[PATH_MAX]; /**< Without links. */
    struct owned folder, chunks, lock;
    struct image_folder *next;
};

/** Blocks for a few seconds where another process removes images, or, to sweep, has one open.
 * Returns 0, -EPERM (it is not the user's alone), -ENOENT, -EBUSY, -ENOMEM or -errno. */
MUST_CHECK int image_folder_open(const char *path, enum image_use use,
                                 struct image_folder **ret_folder,
                                 char ret_problem[IMAGE_PROBLEM_MAX]);
/** NULL is allowed. */
void image_folder_close(struct image_folder *folder);

/** True when @name is one that an image can have. */
bool image_name_is_valid(const char *name);

/** The names of what may be images, the oldest first, whole or not. As file_names(). */
MUST_CHECK int image_folder_names(const struct image_folder *folder, struct file_names *ret_names);
/** True when it has a manifest. */
bool image_folder_is_whole(const struct image_folder *folder, const char *name);

/** Make the folder of a new image. @ret_name: its name. 0 or -errno. */
MUST_CHECK int image_folder_begin(struct image_folder *folder, char ret_name[IMAGE_NAME_MAX],
                                  struct owned *ret_image);
/** A new image that was begun is not to be: it is swept, if not now then by whoever can. */
void image_folder_abandon(struct image_folder *folder, const char *name);

/**
 * Read an image's manifest.
 *
 * @ret_problem  Which file, and what is wrong with it.
 * Returns 0, -ENOENT (there is no such image, or it is not whole), -EPERM, -EBADMSG, -ENOMEM or
 * -errno.
 */
MUST_CHECK int image_folder_manifest(const struct image_folder *folder, const char *name,
                                     struct image_manifest *ret_manifest,
                                     char ret_problem[IMAGE_PROBLEM_MAX]);

/** Keep an image from being removed until @ret_hold is closed, or the process ends. 0 or -errno. */
MUST_CHECK int image_folder_hold(const struct image_folder *folder, const char *name,
                                 struct owned *ret_hold);

/** Remove an image; its chunks go with the next sweep. IMAGE_TO_SWEEP. Returns 0, -EBUSY (a program
 * is suspended to it) or -errno. */
MUST_CHECK int image_folder_remove(struct image_folder *folder, const char *name);

struct image_swept {
    size_t images;  /**< Unfinished ones. */
    size_t chunks;  /**< Named by no image. */
    uint64_t bytes; /**< Of those. */
};
/**
 * Remove what is unfinished, and the chunks that no image names. Where an image's manifest is
 * damaged, nobody knows which it names: then all chunks stay, and @ret_problem says so, else it
 * is "". IMAGE_TO_SWEEP. Returns 0, -ENOMEM or -errno; then some of it is done.
 */
MUST_CHECK int image_folder_sweep(struct image_folder *folder, struct image_swept *ret_swept,
                                  char ret_problem[IMAGE_PROBLEM_MAX]);

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
