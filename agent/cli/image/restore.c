#include "agent/cli/image/images.h"

#include <string.h>

#include "agent/cli/client.h"

/* Find the image with which a new process starts. */

static const char *restore_last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/** If the last part of @path is a valid name of an image, cut it off and return it. */
static bool restore_split_command(char path[PATH_MAX], char ret_name[IMAGE_NAME_MAX])
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path || !image_name_is_valid(slash + 1))
        return false;
    snprintf(ret_name, IMAGE_NAME_MAX, "%s", slash + 1);
    *slash = '\0';
    return true;
}

/** Why no program can start from the image; NULL: one can. */
static const char *restore_problem_of(const struct image_summary *summary)
{
    if (summary->damaged)
        return summary->problem;
    return image_manifest_find(&summary->manifest, IMAGE_PROGRESS)
               ? NULL
               : "it has no progress: the program had no save callback (reseat.h)";
}

static int restore_check_named(const struct output *output, const struct images *images,
                               const char *name)
{
    struct image_summary summary = {0};

    image_summarize(images, name, &summary);
    const char *problem = restore_problem_of(&summary);
    int status = !problem          ? 0
                 : summary.damaged ? output_fail(output, ERR_FAILED, "%s", problem)
                                   : output_fail(output, ERR_REFUSED, "%s/%s: %s",
                                                 images->folder->path, name, problem);
    image_summary_finish(&summary);
    return status;
}

/**
 * The last image of @program. A damaged one may be of any program: the command fails there rather
 * than start silently from an older image.
 */
static int restore_find_last(const struct output *output, const struct images *images,
                             const char *program, char ret_name[IMAGE_NAME_MAX])
{
    char other[64] = "";
    const char *path = images->folder->path;
    int status = STATUS_NONE;

    for (size_t i = images->names.count; i-- > 0 && status == STATUS_NONE;) {
        struct image_summary summary = {0};
        image_summarize(images, images->names.names[i], &summary);
        const char *problem = restore_problem_of(&summary);
        bool its = summary.damaged || strcmp(summary.about->program, program) == 0;
        if (!its && !other[0])
            snprintf(other, sizeof(other), "%s", summary.about->program);
        if (its && problem)
            status = output_fail(output, summary.damaged ? ERR_FAILED : ERR_REFUSED,
                                 "the last image is %s: %s; an older one can be named",
                                 images->names.names[i], problem);
        if (its && !problem) {
            snprintf(ret_name, IMAGE_NAME_MAX, "%s", images->names.names[i]);
            status = 0;
        }
        image_summary_finish(&summary);
    }
    if (status == STATUS_NONE)
        status = output_fail(output, ERR_NO_APP, "%s: there is no image of %s%s%s%s", path, program,
                             other[0] ? "; the last one is of " : "", other,
                             other[0] ? ", and can be named" : "");
    return status;
}

int restore_find(const struct output *output, const char *word, const char *program,
                 char ret_path[PATH_MAX])
{
    char path[PATH_MAX], name[IMAGE_NAME_MAX] = "";
    struct images images;
    int status = images_name_folder(output, word, path);

    if (status)
        return status;
    bool named = restore_split_command(path, name);
    status = images_open(output, path, IMAGE_TO_READ, &images);
    if (status)
        return status;
    status = named ? restore_check_named(output, &images, name)
                   : restore_find_last(output, &images, restore_last_part(program), name);
    int length = snprintf(ret_path, PATH_MAX, "%s/%s", images.folder->path, name);
    images_close(&images);
    if (!status && length >= PATH_MAX)
        status = output_fail(output, ERR_FAILED, "%s: the path is too long", word);
    return status;
}
