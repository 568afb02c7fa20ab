#ifndef RESEAT_AGENT_CLI_IMAGE_IMAGES_H
#define RESEAT_AGENT_CLI_IMAGE_IMAGES_H

#include "agent/cli/show/output.h"
#include "state/image/image_folder.h"

/* Folders of images, for the verbs that use them. */

/**
 * Make the path of a folder absolute, because a program may have another working folder. Returns 0,
 * or an exit status after printing the reason.
 */
int images_name_folder(const struct output *output, const char *word, char ret_path[PATH_MAX]);

/** The images of a folder, oldest first. */
struct images {
    struct image_folder *folder;
    struct file_names names;
};

/**
 * List the complete images. Returns 0 (close them); -ENOENT, -EPERM (the folder is missing, or not
 * the user's alone) or -errno, with the reason.
 */
MUST_CHECK int images_try(const char *path, enum image_use use, struct images *ret_images,
                          char ret_problem[IMAGE_PROBLEM_MAX]);
/** As images_try(), but returns an exit status after printing the reason. */
int images_open(const struct output *output, const char *path, enum image_use use,
                struct images *ret_images);
void images_close(struct images *images);

/** What is printed about one image; of a damaged one only its problem is set. */
struct image_summary {
    char name[IMAGE_NAME_MAX];
    bool damaged;
    char problem[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    const struct image_about *about; /**< In the manifest; NULL: damaged. */
    uint64_t objects, bytes, chunks;
};
void image_summarize(const struct images *images, const char *name,
                     struct image_summary *ret_summary);
void image_summary_finish(struct image_summary *summary);

/**
 * Find the image @name, or without it the last one that @fits (NULL: any). The search ends at a
 * damaged one, which may be any program's.
 *
 * @ret_name  May be NULL. Borrowed from @images or @name.
 * Returns 0, -ENOENT or -EBADMSG (the problem is in @ret_summary).
 */
int images_find(const struct images *images, const char *name,
                bool (*fits)(const struct image_summary *summary, const void *data),
                const void *data, struct image_summary *ret_summary, const char **ret_name);

/**
 * Find the image with which a new process of @program starts.
 *
 * @word      A folder of images, for the program's last image; or the path of one image.
 * @program   The command as it is started: a name or a path.
 * @ret_path  The absolute path of the image.
 * Returns 0, or an exit status after printing the reason.
 */
int images_find_start(const struct output *output, const char *word, const char *program,
                      char ret_path[PATH_MAX]);

#endif
