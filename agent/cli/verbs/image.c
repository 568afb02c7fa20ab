#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/image/images.h"
#include "agent/cli/verb.h"
#include "state/base/cleanup.h"
#include "state/image/image_read.h"

/* Management of images of programs on disk. */

static json_t *image_summary_json(const char *name, const struct image_summary *summary)
{
    static const struct image_about none = {.program = "", .host = "", .reason = ""};
    const struct image_about *about = summary->about ? summary->about : &none;

    return json_pack("{s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "name",
                     output_text(name), "damaged", (int)summary->damaged, "problem",
                     output_text(summary->problem), "program", output_text(about->program), "host",
                     output_text(about->host), "reason", output_text(about->reason), "pid",
                     (json_int_t)about->pid, "created_ms", (json_int_t)about->created_ms, "objects",
                     (json_int_t)summary->objects, "size_bytes", (json_int_t)summary->bytes,
                     "chunks", (json_int_t)summary->chunks);
}

/* ---- list ---- */

static int image_run_list(struct call *call)
{
    static const struct table_column columns[] = {
        {"NAME", "{name}"},
        {"PROGRAM", "{program}", TABLE_WRAP},
        {"MADE", "{created_ms:date}"},
        {"REASON", "{reason}", TABLE_WRAP},
        {"OBJECTS", "[{!damaged}{objects}]", TABLE_RIGHT},
        {"SIZE", "[{!damaged}{size_bytes}]", TABLE_RIGHT},
        {"STATE", "[{?damaged}damaged][{!damaged}good]"},
        {NULL},
    };
    const struct output *output = &call->output;
    CLEANUP(images_close) struct images images = {0};
    int status = images_open(output, call->words[0], IMAGE_TO_READ, &images);

    if (status)
        return status;
    json_t *list = json_array();
    json_auto_t *answer =
        json_pack("{s:o, s:o}", "folder", output_text(images.folder->path), "images", list);
    for (size_t i = images.names.count; i-- > 0;) {
        CLEANUP(image_summary_finish) struct image_summary summary = {0};
        image_summarize(&images, images.names.names[i], &summary);
        json_array_append_new(list, image_summary_json(images.names.names[i], &summary));
    }
    return output_list(output, answer, "images", columns, NULL, NULL);
}

const struct verb verb_image_list = {
    .name = "image list",
    .arguments = "FOLDER",
    .summary = "List the images of programs in a folder, the last one first.",
    .text = "STATE is that of the records; image verify checks all bytes. Unfinished images are "
            "not listed.",
    .members = "folder images",
    .run = image_run_list,
};

/* ---- inspect ---- */

/** Choose the named image, or the newest. Returns 0, or an exit status after printing the error. */
static int image_choose(const struct output *output, const struct images *images, const char *name,
                        struct image_summary *ret_summary)
{
    int error = images_find(images, name, NULL, NULL, ret_summary, NULL);

    if (error == -ENOENT)
        return output_fail(output, ERR_NO_APP, "%s: there are no images", images->folder->path);
    return error ? output_fail(output, ERR_FAILED, "%s", ret_summary->problem) : 0;
}

static void image_say_json(void *data, const char *member, uint64_t number, const char *text)
{
    json_object_set_new(data, member, text ? output_text(text) : json_integer((json_int_t)number));
}

static void image_say_words(void *data, const char *member, uint64_t number, const char *text)
{
    struct words *words = data;

    if (text)
        words_add(words, " %s \"%s\"", member, text);
    else if (number > UINT32_MAX)
        words_add(words, " %s %#llx", member, (unsigned long long)number);
    else if (number)
        words_add(words, " %s %llu", member, (unsigned long long)number);
}

static int image_run_inspect(struct call *call)
{
    const struct output *output = &call->output;
    CLEANUP(images_close) struct images images = {0};
    CLEANUP(image_summary_finish) struct image_summary summary = {0};
    int status = images_open(output, call->words[0], IMAGE_TO_READ, &images);

    if (!status)
        status = image_choose(output, &images, call->words[1], &summary);
    if (status)
        return status;
    json_t *records = json_array();
    json_auto_t *answer = json_pack("{s:o, s:o}", "image",
                                    image_summary_json(summary.name, &summary), "records", records);
    for (size_t i = 0; i < summary.manifest.count; i++) {
        const struct image_record *record = &summary.manifest.records[i];
        struct words words = {0};
        json_t *object = json_pack("{s:s}", "record", image_record_name(record->kind));
        image_record_describe(record, image_say_json, object);
        image_record_describe(record, image_say_words, &words);
        json_array_append_new(records, object);
        if (!output->json)
            printf("%s:%s\n", image_record_name(record->kind), words.text);
    }
    return output_result(output, answer, NULL, NULL);
}

const struct verb verb_image_inspect = {
    .name = "image inspect",
    .arguments = "FOLDER [IMAGE]",
    .summary = "Show the records of an image.",
    .text = "IMAGE is a name of image list; default: the last one.",
    .members = "image records",
    .run = image_run_inspect,
};

/* ---- verify ---- */

static int image_run_verify(struct call *call)
{
    const struct output *output = &call->output;
    const char *only = call->count > 1 ? call->words[1] : NULL;
    CLEANUP(images_close) struct images images = {0};
    size_t damaged = 0, count = 0;
    int status = images_open(output, call->words[0], IMAGE_TO_READ, &images);

    if (status)
        return status;
    json_t *list = json_array();
    for (size_t i = 0; i < (only ? 1 : images.names.count); i++, count++) {
        const char *name = only ? only : images.names.names[i];
        struct image_summary summary = {0};
        image_summarize(&images, name, &summary);
        if (!summary.damaged) {
            int error = image_verify(images.folder, &summary.manifest, NULL, NULL, summary.problem);
            image_summary_finish(&summary);
            summary.damaged = error != 0;
        }
        damaged += summary.damaged;
        json_array_append_new(list, json_pack("{s:o, s:b, s:o}", "name", output_text(name),
                                              "damaged", (int)summary.damaged, "problem",
                                              output_text(summary.damaged ? summary.problem : "")));
        if (!output->json)
            printf("%s: %s\n", name, summary.damaged ? summary.problem : "good");
    }
    json_auto_t *answer = json_pack("{s:o, s:o, s:I}", "folder", output_text(images.folder->path),
                                    "images", list, "damaged", (json_int_t)damaged);
    if (!output->json && output_done())
        return STATUS_ROLLED_BACK;
    return output_result(output, answer, damaged ? ERR_FAILED : NULL, "there are damaged images");
}

const struct verb verb_image_verify = {
    .name = "image verify",
    .arguments = "FOLDER [IMAGE]",
    .summary = "Compare all bytes of images with their digests.",
    .text = "Without IMAGE, all images. Exit status 1: some are damaged; each damaged file is "
            "named, with the reason.",
    .members = "folder images damaged",
    .run = image_run_verify,
};

/* ---- diff ---- */

/** Difference of one object between two images. */
struct difference {
    uint64_t id, bytes; /**< `bytes`: size of the chunks that differ. */
    const char *what;
};

static uint64_t image_differing(const struct image_contents *one,
                                const struct image_contents *other)
{
    uint64_t bytes = 0, count = one->digests.size / IMAGE_DIGEST;

    if (one->size != other->size || one->written != other->written)
        return other->size;
    if (one->small.size && memcmp(one->small.bytes, other->small.bytes, one->small.size) != 0)
        bytes = one->size;
    for (uint64_t i = 0; i < count; i++) {
        struct image_digest a = image_contents_digest(one, i), b = image_contents_digest(other, i);
        if (memcmp(&a, &b, sizeof(a)) != 0)
            bytes += image_chunk_size(one->size, i);
    }
    return bytes;
}

/** List contents of @to that @from lacks or, without @gone, has with other bytes. */
static size_t image_compare(const struct image_manifest *from, const struct image_manifest *to,
                            bool gone, struct difference *differences)
{
    size_t count = 0;

    for (size_t i = 0; i < to->count; i++) {
        const struct image_contents *contents = to->records[i].contents, *before;
        if (to->records[i].kind != IMAGE_CONTENTS)
            continue;
        before = image_manifest_contents(from, contents->id);
        uint64_t bytes = before ? image_differing(before, contents) : contents->size;
        if (before && (gone || !bytes))
            continue;
        differences[count++] = (struct difference){contents->id, bytes,
                                                   before ? "changed"
                                                   : gone ? "gone"
                                                          : "new"};
    }
    return count;
}

static int image_print_differences(const struct output *output,
                                   const struct difference *differences, size_t count)
{
    static const struct table_column columns[] = {
        {"OBJECT", "{id}"}, {"CHANGE", "{change}"}, {"SIZE", "{bytes}", TABLE_RIGHT}, {NULL}};
    json_t *list = json_array();
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        char id[32];
        snprintf(id, sizeof(id), "%#llx", (unsigned long long)differences[i].id);
        json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:I}", "object",
                                              (json_int_t)differences[i].id, "id", id, "change",
                                              differences[i].what, "bytes",
                                              (json_int_t)differences[i].bytes));
        bytes += differences[i].bytes;
    }
    json_auto_t *answer = json_pack("{s:o, s:I}", "objects", list, "bytes", (json_int_t)bytes);
    return output_list(output, answer, "objects", columns, NULL, NULL);
}

static int image_run_diff(struct call *call)
{
    CLEANUP(images_close) struct images images = {0};
    CLEANUP(image_summary_finish) struct image_summary one = {0};
    CLEANUP(image_summary_finish) struct image_summary other = {0};
    int status = images_open(&call->output, call->words[0], IMAGE_TO_READ, &images);

    if (!status)
        status = image_choose(&call->output, &images, call->words[1], &one);
    if (!status)
        status = image_choose(&call->output, &images, call->words[2], &other);
    if (status)
        return status;
    const struct image_manifest *from = &one.manifest, *to = &other.manifest;
    CLEANUP(cleanup_free)
    struct difference *differences = calloc(from->count + to->count + 1, sizeof(*differences));
    if (!differences)
        return output_fail(&call->output, ERR_FAILED, "there is not enough memory");
    size_t count = image_compare(from, to, false, differences);
    count += image_compare(to, from, true, differences + count);
    return image_print_differences(&call->output, differences, count);
}

const struct verb verb_image_diff = {
    .name = "image diff",
    .arguments = "FOLDER IMAGE OTHER",
    .summary = "List the objects whose bytes differ between two images of a program.",
    .text = "Sizes are those of the chunks of 2 MiB that differ. Objects are named by the "
            "program's handles.",
    .members = "objects bytes",
    .run = image_run_diff,
};

/* ---- prune ---- */

struct prune {
    uint64_t keep; /**< OPTION_UNSAID: keep all. */
    bool damaged;
};

static const struct option_row prune_options[] = {
    {"keep", "N", "Remove all but the last N images of each program.",
     OPTION_VALUE(struct prune, keep), .kind = OPTION_NUMBER, .unit = "images", .most = 1000000,
     .initial = OPTION_UNSAID},
    {"damaged", NULL, "Remove images whose manifest is damaged.",
     OPTION_VALUE(struct prune, damaged)},
    {NULL}};

/** True where the options say that the image at @index is removed. */
static bool image_is_pruned(const struct prune *prune, const struct image_summary *summaries,
                            size_t count, size_t index)
{
    const struct image_summary *one = &summaries[index];
    uint64_t later = 0; /* Images of the same program. */

    if (one->damaged)
        return prune->damaged;
    const struct image_record *lease = image_manifest_find(&one->manifest, IMAGE_LEASE);
    for (size_t i = index + 1; i < count; i++) {
        if (summaries[i].damaged || strcmp(summaries[i].about->program, one->about->program) != 0)
            continue;
        /* Names repeat: where both have a lease, it counts too. */
        const struct image_record *has = image_manifest_find(&summaries[i].manifest, IMAGE_LEASE);
        later += !lease || !has || strcmp(lease->lease->id, has->lease->id) == 0;
    }
    return prune->keep != OPTION_UNSAID && later >= prune->keep;
}

static int image_run_prune(struct call *call)
{
    const struct output *output = &call->output;
    json_t *removed = json_array();
    json_auto_t *answer = json_pack("{s:o}", "removed", removed);
    CLEANUP(images_close) struct images images = {0};
    struct image_swept swept = {0};
    char problem[IMAGE_PROBLEM_MAX];
    int status = images_open(output, call->words[0], IMAGE_TO_SWEEP, &images);

    if (status)
        return status;
    size_t count = images.names.count;
    CLEANUP(cleanup_free) struct image_summary *summaries = calloc(count + 1, sizeof(*summaries));
    if (!summaries)
        return output_fail(output, ERR_FAILED, "there is not enough memory");
    for (size_t i = 0; i < count; i++)
        image_summarize(&images, images.names.names[i], &summaries[i]);
    for (size_t i = 0; i < count; i++) {
        const char *name = images.names.names[i];
        if (!image_is_pruned(call->options, summaries, count, i))
            continue;
        int error = image_folder_remove(images.folder, name);
        if (error)
            output_note(output, "%s stays: %s", name,
                        error == -EBUSY ? "a program is suspended to it" : strerror(-error));
        else
            json_array_append_new(removed, json_string(name));
    }
    for (size_t i = 0; i < count; i++)
        image_summary_finish(&summaries[i]);
    int error = image_folder_sweep(images.folder, &swept, problem);
    if (error)
        return output_fail(output, ERR_FAILED, "%s: %s", images.folder->path, strerror(-error));
    if (*problem)
        output_note(output, "%s", problem);
    /* The sweep also counts the images that were removed above. */
    count = json_array_size(removed);
    swept.images -= swept.images < count ? swept.images : count;
    json_object_update_new(answer, json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)count,
                                             "unfinished", (json_int_t)swept.images, "chunks",
                                             (json_int_t)swept.chunks, "removed_bytes",
                                             (json_int_t)swept.bytes));
    return output_say(output, answer,
                      "{count|image|images} removed, {unfinished} unfinished, {removed_bytes} of "
                      "chunks");
}

const struct verb verb_image_prune = {
    .name = "image prune",
    .arguments = "FOLDER",
    .summary = "Remove images, unfinished images, and chunks that no image needs.",
    .text = "Images are removed only as the options say. An image that a program is suspended to "
            "stays.",
    .members = "removed unfinished chunks removed_bytes",
    .options = prune_options,
    .size = sizeof(struct prune),
    .run = image_run_prune,
};
