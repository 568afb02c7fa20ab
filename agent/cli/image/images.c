#include "agent/cli/image/images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/cleanup.h"

int images_name_folder(const struct output *output, const char *word, char ret_path[PATH_MAX])
{
    char here[PATH_MAX] = "";

    if (word[0] != '/' && !getcwd(here, sizeof(here)))
        return output_fail(output, ERR_FAILED, "%s: %s", word, strerror(errno));
    int length = snprintf(ret_path, PATH_MAX, "%s%s%s", here, here[0] ? "/" : "", word);
    if (length >= PATH_MAX)
        return output_usage(output, "--to: the path is too long");
    while (length > 1 && ret_path[length - 1] == '/')
        ret_path[--length] = '\0';
    return 0;
}

void images_close(struct images *images)
{
    file_names_finish(&images->names);
    image_folder_close(images->folder);
}

int images_try(const char *path, enum image_use use, struct images *ret_images,
               char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct images images = {0};
    size_t count = 0;
    int error = image_folder_open(path, use, &images.folder, ret_problem);

    if (error)
        return error;
    error = image_folder_names(images.folder, &images.names);
    if (error) {
        image_folder_close(images.folder);
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%.900s: %s", path, strerror(-error));
        return error == -ENOENT || error == -EPERM ? -EIO : error;
    }
    for (size_t i = 0; i < images.names.count; i++)
        if (image_folder_is_whole(images.folder, images.names.names[i]))
            images.names.names[count++] = images.names.names[i];
        else
            free(images.names.names[i]);
    images.names.count = count;
    *ret_images = images;
    return 0;
}

int images_open(const struct output *output, const char *path, enum image_use use,
                struct images *ret_images)
{
    char problem[IMAGE_PROBLEM_MAX];
    int error = images_try(path, use, ret_images, problem);

    if (error)
        return output_fail(output,
                           error == -ENOENT  ? ERR_NO_APP
                           : error == -EPERM ? ERR_REFUSED
                                             : ERR_FAILED,
                           "%s", problem);
    return 0;
}

void image_summarize(const struct images *images, const char *name,
                     struct image_summary *ret_summary)
{
    struct image_summary *summary = ret_summary;

    *summary = (struct image_summary){0};
    snprintf(summary->name, sizeof(summary->name), "%s", name);
    if (image_folder_manifest(images->folder, name, &summary->manifest, summary->problem)) {
        summary->damaged = true;
        return;
    }
    summary->about = image_manifest_about(&summary->manifest);
    for (size_t i = 0; i < summary->manifest.count; i++) {
        const struct image_contents *contents = summary->manifest.records[i].contents;
        if (summary->manifest.records[i].kind != IMAGE_CONTENTS)
            continue;
        summary->objects++;
        summary->bytes += contents->size;
        for (uint64_t j = 0; j < contents->digests.size / IMAGE_DIGEST; j++) {
            struct image_digest digest = image_contents_digest(contents, j);
            summary->chunks += !image_digest_is_zero(&digest);
        }
    }
}

void image_summary_finish(struct image_summary *summary)
{
    if (!summary->damaged)
        image_manifest_finish(&summary->manifest);
}

int images_find(const struct images *images, const char *name,
                bool (*fits)(const struct image_summary *summary, const void *data),
                const void *data, struct image_summary *ret_summary, const char **ret_name)
{
    for (size_t i = name ? 1 : images->names.count; i-- > 0;) {
        const char *one = name ? name : images->names.names[i];
        image_summarize(images, one, ret_summary);
        if (ret_name)
            *ret_name = one;
        if (ret_summary->damaged)
            return -EBADMSG;
        if (!fits || fits(ret_summary, data))
            return 0;
        image_summary_finish(ret_summary);
        *ret_summary = (struct image_summary){0};
    }
    return -ENOENT;
}

/* ---- the image with which a new process starts ---- */

/** The last image of this program; images of others are noted. */
struct images_search {
    const char *program;
    char *other; /**< Gets the program of the first image of another one. */
    size_t size;
};

static bool images_is_of(const struct image_summary *summary, const void *data)
{
    const struct images_search *search = data;
    bool its = strcmp(summary->about->program, search->program) == 0;

    if (!its && !search->other[0])
        snprintf(search->other, search->size, "%s", summary->about->program);
    return its;
}

/**
 * Find the image @name, or the last one of @program. A damaged one may be of any program: the
 * command fails there rather than start silently from an older image.
 */
static int images_choose_image(const struct output *output, const struct images *images,
                               const char *program, char name[IMAGE_NAME_MAX])
{
    char other[64] = "";
    const struct images_search search = {program, other, sizeof(other)};
    const char *named = name[0] ? name : NULL, *path = images->folder->path;
    struct image_summary summary = {0};
    int error = images_find(images, named, named ? NULL : images_is_of, &search, &summary, NULL);

    if (error == -ENOENT)
        return output_fail(output, ERR_NO_APP, "%s: there is no image of %s%s%s%s", path, program,
                           other[0] ? "; the last one is of " : "", other,
                           other[0] ? ", and can be named" : "");
    const char *problem = "it has no progress: the program had no save callback (reseat.h)";
    if (error)
        problem = summary.problem;
    else if (image_manifest_find(&summary.manifest, IMAGE_PROGRESS))
        problem = NULL;
    int status = !problem         ? 0
                 : named && error ? output_fail(output, ERR_FAILED, "%s", problem)
                 : named ? output_fail(output, ERR_REFUSED, "%s/%s: %s", path, named, problem)
                         : output_fail(output, error ? ERR_FAILED : ERR_REFUSED,
                                       "the last image is %s: %s; an older one can be named",
                                       summary.name, problem);
    if (!status && !named)
        snprintf(name, IMAGE_NAME_MAX, "%s", summary.name);
    image_summary_finish(&summary);
    return status;
}

int images_find_start(const struct output *output, const char *word, const char *program,
                      char ret_path[PATH_MAX])
{
    char path[PATH_MAX], name[IMAGE_NAME_MAX] = "";
    CLEANUP(images_close) struct images images = {0};
    int status = images_name_folder(output, word, path);

    if (status)
        return status;
    char *slash = strrchr(path, '/');
    if (slash && slash != path && image_name_is_valid(slash + 1)) {
        snprintf(name, sizeof(name), "%s", slash + 1);
        *slash = '\0';
    }
    status = images_open(output, path, IMAGE_TO_READ, &images);
    if (status)
        return status;
    const char *last = strrchr(program, '/');
    status = images_choose_image(output, &images, last ? last + 1 : program, name);
    int length = snprintf(ret_path, PATH_MAX, "%s/%s", images.folder->path, name);
    if (!status && length >= PATH_MAX)
        status = output_fail(output, ERR_FAILED, "%s: the path is too long", word);
    return status;
}
