#include "state/image/image_keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One that is not whole, or cannot be read, is nobody's. */
static bool is_of(const struct image_folder *folder, const char *name, const char *program)
{
    char ignored[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    if (!image_folder_is_whole(folder, name) ||
        image_folder_manifest(folder, name, &manifest, ignored) != 0)
        return false;
    bool is = strcmp(image_manifest_about(&manifest)->program, program) == 0;
    image_manifest_finish(&manifest);
    return is;
}

int image_keep_last(const char *path, const char *program, uint64_t keep,
                    char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder;
    struct image_names names = {0};
    struct image_swept swept;
    uint64_t later = 0;
    size_t removed = 0;
    int error = image_folder_open(path, IMAGE_TO_SWEEP, &folder, ret_problem);
    if (error)
        return error;
    error = image_folder_names(folder, &names);
    for (size_t i = error ? 0 : names.count; i-- > 0 && !error;) {
        if (!is_of(folder, names.names[i], program) || later++ < keep)
            continue;
        error = image_folder_remove(folder, names.names[i]);
        removed += error == 0;
        error = error == -EBUSY ? 0 : error;
    }
    image_names_finish(&names);
    if (!error && removed)
        error = image_folder_sweep(folder, &swept, ret_problem);
    else if (error)
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s: %s", path, strerror(-error));
    image_folder_close(folder);
    return error;
}
