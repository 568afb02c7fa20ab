#include "state/image/image_keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whoever took the right has images that are not for the one before to remove, however late he is.
 */
static bool image_keep_is_same(const struct image_manifest *one, const struct image_manifest *of)
{
    const struct image_about *about = image_manifest_about(one);
    const struct image_about *others = image_manifest_about(of);
    const struct image_record *lease = image_manifest_find(one, IMAGE_LEASE);
    const struct image_record *has = image_manifest_find(of, IMAGE_LEASE);
    if (lease && has)
        return strcmp(lease->lease->id, has->lease->id) == 0 &&
               lease->lease->generation <= has->lease->generation;
    return about->pid == others->pid && strcmp(about->host, others->host) == 0 &&
           strcmp(about->program, others->program) == 0;
}

/* One that is not whole, or cannot be read, is nobody's. */
static bool image_keep_is_of(const struct image_folder *folder, const char *name,
                             const struct image_manifest *of)
{
    char ignored[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    if (!image_folder_is_whole(folder, name) ||
        image_folder_manifest(folder, name, &manifest, ignored) != 0)
        return false;
    bool is = image_keep_is_same(&manifest, of);
    image_manifest_finish(&manifest);
    return is;
}

int image_keep_last(const char *path, const char *image, uint64_t keep,
                    char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder;
    struct file_names names = {0};
    struct image_manifest of;
    struct image_swept swept;
    uint64_t later = 0;
    size_t removed = 0;
    int error = image_folder_open(path, IMAGE_TO_SWEEP, &folder, ret_problem);
    if (error)
        return error;
    error = image_folder_manifest(folder, image, &of, ret_problem);
    if (error) {
        image_folder_close(folder);
        return error;
    }
    error = image_folder_names(folder, &names);
    for (size_t i = error ? 0 : names.count; i-- > 0 && !error;) {
        if (!image_keep_is_of(folder, names.names[i], &of) || later++ < keep)
            continue;
        error = image_folder_remove(folder, names.names[i]);
        removed += error == 0;
        error = error == -EBUSY ? 0 : error;
    }
    file_names_finish(&names);
    image_manifest_finish(&of);
    if (!error && removed)
        error = image_folder_sweep(folder, &swept, ret_problem);
    else if (error)
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s: %s", path, strerror(-error));
    image_folder_close(folder);
    return error;
}
