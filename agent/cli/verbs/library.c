#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/config/config.h"
#include "agent/config/device_names.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/library/library.h"

/* Management of the library of device binaries. */

#define DAY_MS (UINT64_C(24) * 60 * 60 * 1000)

/* Digits of a key that the table shows; --json has all. */
#define KEY_SHOWN 12
/* Bytes of the kernels' names that the table shows. */
#define KERNELS_SHOWN 40

/** Find the library's folder and limit. Returns 0, or an exit status after printing the error. */
static int library_find_library(const struct output *output, struct library *ret_library)
{
    struct config_error wrong;
    struct config config;
    int error = paths_binaries(ret_library->folder);

    if (error)
        return output_fail(output, ERR_FAILED, "the library's folder: %s", strerror(-error));
    if (config_load_effective(NULL, 0, &config, &wrong)) {
        char text[CONFIG_REASON_MAX + PATH_MAX];
        config_error_format(&wrong, text, sizeof(text));
        return output_fail(output, ERR_USAGE, "%s", text);
    }
    ret_library->limit = config_policy(&config)->library_mib << 20;
    config_finish(&config);
    return 0;
}

/** The entries of the library and a selection of them. */
struct contents {
    struct library library;
    struct library_list list;
    bool *chosen; /**< One for each entry. */
};

/** Read the entries, select none. 0, or an exit status after the error; finish @ret always. */
static int library_contents_read(const struct output *output, bool whole, struct contents *ret)
{
    char problem[FOLDER_PROBLEM_MAX];
    int status = library_find_library(output, &ret->library);

    if (status)
        return status;
    if (library_list(&ret->library, whole, &ret->list, problem))
        return output_fail(output, ERR_FAILED, "%s", problem);
    ret->chosen = calloc(ret->list.count + 1, sizeof(*ret->chosen));
    return ret->chosen ? 0 : output_fail(output, ERR_FAILED, "there is not enough memory");
}

static void library_contents_finish(struct contents *contents)
{
    free(contents->chosen);
    library_list_finish(&contents->list);
}

static json_t *library_item_json(const struct library_item *item)
{
    static const char *const origins[] = {
        [LIBRARY_BUILT] = "built", [LIBRARY_ADDED] = "added", [LIBRARY_UNFIT] = "unfit"};
    const struct library_entry *entry = &item->entry;
    bool good = !item->damaged;
    json_t *kernels = json_array();
    char *CLEANUP(cleanup_free) names = strdup(good ? entry->kernels : "");

    for (char *rest = names, *name = strsep(&rest, ";"); name; name = strsep(&rest, ";"))
        if (*name)
            json_array_append_new(kernels, output_text(name));
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "key",
                     output_text(item->name), "origin", good ? origins[entry->origin] : "damaged",
                     "device", output_text(good ? entry->device : ""), "platform",
                     output_text(good ? entry->platform : ""), "driver",
                     output_text(good ? entry->driver : ""), "kernels", kernels, "size_bytes",
                     (json_int_t)item->size, "used_ms", (json_int_t)item->used_ms, "created_ms",
                     (json_int_t)(good ? entry->created_ms : 0));
}

/** The entries as JSON: all, or those selected. */
static json_t *library_contents_json(const struct contents *contents, bool all)
{
    json_t *entries = json_array();

    for (size_t i = 0; i < contents->list.count; i++)
        if (all || contents->chosen[i])
            json_array_append_new(entries, library_item_json(&contents->list.items[i]));
    return json_pack("{s:o, s:I, s:I, s:o, s:I}", "folder", output_text(contents->library.folder),
                     "size_bytes", (json_int_t)contents->list.size, "limit_bytes",
                     (json_int_t)contents->library.limit, "entries", entries, "count",
                     (json_int_t)json_array_size(entries));
}

/* ---- list ---- */

/* Long texts are cut in the table; --json has all of them. */

static void library_say_key(const json_t *entry, struct words *words)
{
    words_add(words, "%.*s", KEY_SHOWN, member_text(entry, "key"));
}

static void library_say_kernels(const json_t *entry, struct words *words)
{
    words_say(words, entry, "{kernels}");
    if (words->used > KERNELS_SHOWN)
        strcpy(words->text + KERNELS_SHOWN, "...");
}

static int library_run_list(struct call *call)
{
    static const struct table_column columns[] = {
        {"KEY", .say = library_say_key},
        {"ORIGIN", "{origin}"},
        {"DEVICE", "{device}", TABLE_WRAP},
        {"DRIVER", "{driver}", TABLE_WRAP},
        {"SIZE", "{size_bytes}", TABLE_RIGHT},
        {"USED", "{used_ms:date}"},
        {"KERNELS", .say = library_say_kernels, .flags = TABLE_WRAP},
        {NULL},
    };
    CLEANUP(library_contents_finish) struct contents contents = {0};
    int status = library_contents_read(&call->output, false, &contents);

    if (status)
        return status;
    json_auto_t *answer = library_contents_json(&contents, true);
    if (!call->output.json)
        status = table_print_list(json_object_get(answer, "entries"), columns);
    return status ? status
                  : output_say(&call->output, answer,
                               "{count|entry|entries}, {size_bytes} of at most {limit_bytes} in "
                               "{folder}");
}

const struct verb verb_library_list = {
    .name = "library list",
    .summary = "List the library of device binaries, the last used first.",
    .text = "The library keeps what drivers build of programs under reseat, so that each kind of "
            "device builds them once. ORIGIN: built, added (reseat library add), or unfit: built "
            "from source each time, because the driver's binary describes its kernels differently.",
    .members = "folder size_bytes limit_bytes entries",
    .run = library_run_list,
};

/* ---- verify and prune ---- */

/** Remove the selected entries and print how many. */
static int library_remove_chosen(const struct output *output, struct contents *contents,
                                 const char *template)
{
    const struct library_list *list = &contents->list;
    bool *chosen = contents->chosen;
    uint64_t size = 0;

    for (size_t i = 0; i < list->count; i++) {
        int error = chosen[i] ? library_remove(&contents->library, list->items[i].name) : -ENOENT;
        if (error && error != -ENOENT)
            output_note(output, "%s: %s", list->items[i].name, strerror(-error));
        chosen[i] = !error;
        size += error ? 0 : list->items[i].size;
    }
    json_auto_t *answer = library_contents_json(contents, false);
    json_object_set(answer, "removed", json_object_get(answer, "count"));
    json_object_set_new(answer, "removed_bytes", json_integer((json_int_t)size));
    return output_say(output, answer, template);
}

struct verify {
    bool remove;
};

static const struct option_row verify_options[] = {
    {"remove", NULL, "Remove damaged entries; they are built again when needed.",
     OPTION_VALUE(struct verify, remove)},
    {NULL}};

static int library_report_damage(const struct output *output, const struct contents *contents)
{
    json_auto_t *answer = library_contents_json(contents, false);
    const json_t *damaged = json_object_get(answer, "count");
    struct words words = {.used = 0};

    json_object_set(answer, "damaged", (json_t *)damaged);
    for (size_t i = 0; i < contents->list.count && !output->json; i++)
        if (contents->chosen[i])
            printf("%s is damaged\n", contents->list.items[i].name);
    words_say(&words, answer, "{damaged} of ");
    words_add(&words, "%zu entries are damaged", contents->list.count);
    words_say(&words, answer, "[{?damaged}; reseat library verify --remove removes them]");
    if (!output->json)
        puts(words.text);
    if (!output->json && output_done())
        return STATUS_ROLLED_BACK;
    return output_result(output, answer, json_integer_value(damaged) ? ERR_FAILED : NULL,
                         "there are damaged entries");
}

static int library_run_verify(struct call *call)
{
    const struct verify *verify = call->options;
    CLEANUP(library_contents_finish) struct contents contents = {0};
    int status = library_contents_read(&call->output, true, &contents);

    if (status)
        return status;
    for (size_t i = 0; i < contents.list.count; i++)
        contents.chosen[i] = contents.list.items[i].damaged;
    return verify->remove ? library_remove_chosen(&call->output, &contents,
                                                  "{removed|damaged entry|damaged entries} "
                                                  "removed, {removed_bytes}")
                          : library_report_damage(&call->output, &contents);
}

const struct verb verb_library_verify = {
    .name = "library verify",
    .summary = "Compare the entries of the library of device binaries with their checksums.",
    .text = "Exit status 1: some are damaged and were not removed. A program that finds a damaged "
            "entry removes it and builds from source.",
    .members = "folder size_bytes limit_bytes entries damaged? removed? removed_bytes?",
    .options = verify_options,
    .size = sizeof(struct verify),
    .run = library_run_verify,
};

struct prune {
    uint64_t days; /**< OPTION_UNSAID: not given. */
    const char *device;
    bool all;
};

static const struct option_row prune_options[] = {
    {"older", "TIME", "Remove entries that were not used for so long; a number is one of days.",
     OPTION_VALUE(struct prune, days), .kind = OPTION_TIME, .unit = "days", .own_seconds = 86400,
     .most = 36500, .initial = OPTION_UNSAID},
    {"device", "TEXT", "Remove entries whose device's name contains TEXT.",
     OPTION_VALUE(struct prune, device)},
    {"all", NULL, "Remove everything.", OPTION_VALUE(struct prune, all)},
    {NULL}};

/** Select what matches all options; without any, the least used beyond the limit. */
static void library_choose(const struct prune *prune, struct contents *contents)
{
    uint64_t now = clock_wall_ms(), kept = contents->list.size;
    bool aged = prune->days != OPTION_UNSAID;

    for (size_t i = contents->list.count; i-- > 0;) {
        const struct library_item *item = &contents->list.items[i];
        if (!aged && !prune->device && !prune->all) {
            contents->chosen[i] = kept > contents->library.limit;
            kept -= contents->chosen[i] ? item->size : 0;
            continue;
        }
        contents->chosen[i] =
            prune->all ||
            ((!aged || item->used_ms + prune->days * DAY_MS <= now) &&
             (!prune->device || (!item->damaged && strstr(item->entry.device, prune->device))));
    }
}

static int library_run_prune(struct call *call)
{
    CLEANUP(library_contents_finish) struct contents contents = {0};
    int status = library_contents_read(&call->output, false, &contents);

    if (status)
        return status;
    library_choose(call->options, &contents);
    return library_remove_chosen(&call->output, &contents,
                                 "{removed|entry|entries} removed, {removed_bytes}");
}

const struct verb verb_library_prune = {
    .name = "library prune",
    .summary = "Remove entries of the library of device binaries.",
    .text = "Without options: the least recently used entries, until the rest fits the setting "
            "library-limit. With --older and --device: entries that match both.",
    .members = "folder size_bytes limit_bytes entries removed removed_bytes",
    .options = prune_options,
    .size = sizeof(struct prune),
    .run = library_run_prune,
};

/* ---- add ---- */

struct add {
    const char *device, *source, *il, *options;
};

static const struct option_row add_options[] = {
    {"device", "DEVICE", "The device that it is for (reseat devices).", .required = true,
     OPTION_VALUE(struct add, device)},
    {"source", "FILE",
     "The program's source, exactly as it gives it to OpenCL. Files that it includes are read now.",
     OPTION_VALUE(struct add, source)},
    {"il", "FILE", "The program's IL instead.", OPTION_VALUE(struct add, il)},
    {"options", "TEXT", "Build options of the program; blanks between words do not matter.",
     OPTION_VALUE(struct add, options)},
    {NULL}};

static int library_read_added_file(const struct output *output, const char *path, char **ret_bytes,
                                   size_t *ret_size)
{
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size = 0;
    int error = paths_read(path, LIBRARY_ENTRY_MAX / 2, &bytes, &size);

    if (error || !size)
        return output_fail(output, ERR_FAILED, "%s: %s", path,
                           error ? strerror(-error) : "it is empty");
    *ret_bytes = bytes;
    *ret_size = size;
    bytes = NULL;
    return 0;
}

/** Make the recipe of a build: source or IL, and its options. */
static int library_make_recipe(const struct output *output, const struct add *add,
                               struct recipe **ret_recipe)
{
    struct recipe *CLEANUP(recipe_unref_pointer) base = NULL;
    struct recipe *CLEANUP(recipe_unref_pointer) built = NULL;
    char *CLEANUP(cleanup_free) bytes = NULL;
    const char *text;
    size_t size;
    int status =
        library_read_added_file(output, add->source ? add->source : add->il, &bytes, &size);

    if (status)
        return status;
    text = bytes;
    int error = add->source ? recipe_source(1, &text, &size, &base) : recipe_il(bytes, size, &base);
    if (!error)
        error = recipe_built(base, add->options, NULL, 0, &built);
    if (!error)
        error = recipe_keep_headers(built);
    if (error)
        return output_fail(output, ERR_FAILED, "%s", strerror(-error));
    *ret_recipe = built;
    built = NULL;
    return 0;
}

static int library_keep_file(const struct output *output, const struct add *add, const char *path,
                             const struct inventory_entry *device)
{
    struct recipe *CLEANUP(recipe_unref_pointer) recipe = NULL;
    char *CLEANUP(cleanup_free) binary = NULL;
    struct library_entry entry = {
        .origin = LIBRARY_ADDED,
        .created_ms = clock_wall_ms(),
        .device = devinfo_string(&device->info, CL_DEVICE_NAME),
        .platform = device->key.platform,
        .driver = devinfo_string(&device->info, CL_DRIVER_VERSION),
        .kernels = "",
        .log = "",
    };
    struct library_key key;
    struct library library;
    char name[LIBRARY_NAME_MAX];
    int status = library_find_library(output, &library);

    if (!status)
        status = library_read_added_file(output, path, &binary, &entry.binary_size);
    if (!status)
        status = library_make_recipe(output, add, &recipe);
    if (status)
        return status;
    entry.binary = binary;
    int error = library_key(recipe, "", &device->key, &device->info, &key);
    if (error == -ENOTSUP) {
        return output_fail(output, ERR_REFUSED,
                           "the source cannot be recognised again: it uses the date or the time, "
                           "or includes more than can be kept");
    }
    error = error ? error : library_keep(&library, &key, &entry);
    if (error) {
        return output_fail(output, ERR_FAILED, "%s: %s", library.folder,
                           error == -E2BIG  ? "it is larger than the library may be (library-limit)"
                           : !library.limit ? "the library is switched off (library-limit = 0)"
                                            : strerror(-error));
    }
    library_name(&key, name);
    json_auto_t *answer =
        json_pack("{s:o, s:o}", "key", output_text(name), "device", output_text(device->name));
    struct words words = {.used = 0};
    words_say(&words, answer, "added for {device}: ");
    library_say_key(answer, &words);
    if (!output->json)
        puts(words.text);
    return output_result(output, answer, NULL, NULL);
}

static int library_run_add(struct call *call)
{
    static const struct question question = {
        .type = MSG_DEVICES, .what = "list devices", .launch = true, .lists = true};
    const struct output *output = &call->output;
    const struct add *add = call->options;
    const struct inventory_entry *device;
    CLEANUP(inventory_finish) struct inventory inventory = {0};
    char error[PROTOCOL_TEXT_MAX];
    struct frame frame;
    json_auto_t *answer = NULL;

    if (!add->source == !add->il)
        return output_usage(output, "give either --source or --il");
    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    int status = ask(output, &question, &frame, &answer);
    if (status)
        return status;
    int result = inventory_read(member_text(answer, "inventory"), &inventory);
    if (result)
        return output_fail(output, ERR_FAILED, "the list of devices cannot be read: %s",
                           strerror(-result));
    result = device_resolve(&inventory, add->device, &device, error, sizeof(error));
    return result ? output_fail(output, result == -ENOTUNIQ ? ERR_AMBIGUOUS : ERR_NO_DEVICE, "%s",
                                error)
                  : library_keep_file(output, add, call->words[0], device);
}

const struct verb verb_library_add = {
    .name = "library add",
    .arguments = "FILE",
    .summary = "Add a binary that a vendor's tools made to the library of device binaries.",
    .text = "A program that builds this source or IL with these options on such a device gets FILE "
            "instead, so that it can run on devices without a compiler. If the driver refuses "
            "FILE, the program is built from source.",
    .members = "key device",
    .options = add_options,
    .size = sizeof(struct add),
    .run = library_run_add,
};
