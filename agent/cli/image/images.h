#ifndef RESEAT_AGENT_CLI_IMAGE_IMAGES_H
#define RESEAT_AGENT_CLI_IMAGE_IMAGES_H

#include "agent/cli/show/output.h"
#include "state/image/image_folder.h"

/* Folders of images, as several verbs look at them. */

/** The folder that was named, from the root folder on: a program has a working folder of its own.
 * 0, or an exit status after having said what is wrong. */
int images_name_folder(const struct output *output, const char *word, char ret_path[PATH_MAX]);

/** Some folder's images, the oldest first. */
struct images {
    struct image_folder *folder;
    struct file_names names;
};

/** Those that are whole. 0: to be closed; or an exit status, which was said. */
int images_open(const struct output *output, const char *path, enum image_use use,
                struct images *ret_images);
void images_close(struct images *images);

/** What is said of one image; of a damaged one only what is wrong with it. */
struct image_summary {
    bool damaged;
    char problem[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    const struct image_about *about; /**< In it; NULL of a damaged one. */
    uint64_t objects, bytes, chunks;
};
void image_summarize(const struct images *images, const char *name,
                     struct image_summary *ret_summary);
void image_summary_finish(struct image_summary *summary);

/** Which images go, and what went. */
struct images_prune {
    bool limited;        /**< All but the last `keep` of each program... */
    uint64_t keep;       /**< ...or, with a name, of that one. */
    const char *program; /**< Or NULL. */
    bool damaged;        /**< Those whose manifest is damaged. */

    json_t *removed; /**< Names of images are added. Borrowed. */
    size_t count;
    struct image_swept swept;
};
/** Remove them, and what no image needs; says what stays. @images: to sweep. Returns an exit
 *  status. */
int images_prune(const struct output *output, const struct images *images,
                 struct images_prune *prune);

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
