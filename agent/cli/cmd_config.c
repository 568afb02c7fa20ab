#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/cmd.h"
#include "agent/config/config_priv.h"

/* reseat config: what is in effect, whether a file is right, where it is, and have the agent read
 * it again. */

#define RELOAD_MS 5000

/** One line as compilers write it, so that editors find the place. */
static int refuse(const struct output *output, const struct config_error *error)
{
    char text[PROTOCOL_TEXT_MAX + PATH_MAX];

    if (!output->json) {
        config_error_format(error, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
        return STATUS_USAGE;
    }
    json_t *object = output_object(output, STATUS_USAGE);
    if (object) {
        config_error_format(error, text, sizeof(text));
        json_object_set_new(object, "error",
                            json_pack("{s:s, s:o, s:o, s:i, s:o}", "code", ERR_USAGE, "message",
                                      output_text(text), "file", output_text(error->file), "line",
                                      (int)error->line, "reason", output_text(error->reason)));
    }
    return output_print(object, STATUS_USAGE);
}

/* ---- print ---- */

static json_t *json_of_policy(const struct config *config)
{
    static const char *const origins[] = {"default", "file", "environment", "option"};
    json_t *object = json_object();

    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        char text[CONFIG_NAME_MAX];
        settings_text(&config->policy, setting, text, sizeof(text));
        json_t *value = setting->type == SETTING_WAYS ? json_string(text)
                        : setting->type == SETTING_FLAG
                            ? json_boolean(strcmp(text, "yes") == 0)
                            : json_integer((json_int_t)strtoull(text, NULL, 10));
        json_object_set_new(object, setting->name,
                            json_pack("{s:o, s:s, s:i}", "value", value, "origin",
                                      origins[config->origins[i]], "line", (int)config->lines[i]));
    }
    return object;
}

static json_t *json_of_field(const struct config_field *field, struct config_entry *entry)
{
    const void *at = config_field_at(field, entry);
    char text[CONFIG_VALUE_MAX];

    switch (field->type) {
    case CONFIG_PATTERN:
    case CONFIG_WORD:
        return output_text(at);
    case CONFIG_SIZE:
        return json_integer((json_int_t)(*(const uint64_t *)at & INT64_MAX));
    case CONFIG_SHARE:
        return json_integer(*(const uint32_t *)at);
    case CONFIG_RANK:
        return json_integer(*(const int32_t *)at);
    case CONFIG_TRUTH:
        return json_boolean(*(const bool *)at);
    case CONFIG_KIND:
    case CONFIG_WAYS:
        break;
    }
    config_field_text(field, entry, text);
    return json_stringn(text + 1, strlen(text) - 2);
}

static json_t *json_of_list(const struct config_list *list, void *entries, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        struct config_entry *entry = (void *)((char *)entries + i * list->entry_size);
        json_t *object = json_pack("{s:i}", "line", (int)entry->line);
        for (unsigned j = 0; j < list->field_count; j++) {
            if (entry->given & 1u << j) {
                json_object_set_new(object, list->fields[j].name,
                                    json_of_field(&list->fields[j], entry));
            }
        }
        json_array_append_new(array, object);
    }
    return array;
}

static int print_json(const struct output *output, const struct config *config)
{
    json_t *object = output_object(output, STATUS_DONE);

    json_object_set_new(object, "file", output_text(config->path));
    json_object_set_new(object, "policy", json_of_policy(config));
    json_object_set_new(object, "devices",
                        json_of_list(&config_list_devices, config->devices, config->device_count));
    json_object_set_new(
        object, "programs",
        json_of_list(&config_list_programs, config->programs, config->program_count));
    return output_print(object, STATUS_DONE);
}

/** "--minimum-stay 60" or "--minimum-stay=60". False: it is none; *@at is then untouched. */
static bool take_setting(int argc, char **argv, int *at, struct config_option *ret_option)
{
    const char *name = argv[*at] + 2;
    size_t length = strcspn(name, "=");

    if (strncmp(argv[*at], "--", 2) != 0) {
        return false;
    }
    for (size_t i = 0; i < settings_count; i++) {
        if (strlen(settings_table[i].name) != length ||
            strncmp(settings_table[i].name, name, length) != 0) {
            continue;
        }
        if (!name[length] && *at + 1 == argc) {
            return false;
        }
        *ret_option = (struct config_option){settings_table[i].name,
                                             name[length] ? name + length + 1 : argv[++*at]};
        return true;
    }
    return false;
}

static int print_with(const struct output *output, int argc, char **argv,
                      struct config_option *options)
{
    struct config_error error;
    struct config config;
    size_t count = 0;

    for (int i = 2; i < argc; i++) {
        if (take_setting(argc, argv, &i, &options[count])) {
            count++;
        } else if (strcmp(argv[i], "--json") != 0) {
            return output_usage(output, "\"%s\" is not --json, nor a setting and its value",
                                argv[i]);
        }
    }
    if (config_load_effective(options, count, &config, &error)) {
        return refuse(output, &error);
    }
    int status = output->json                    ? print_json(output, &config)
                 : config_print(&config, stdout) ? STATUS_ROLLED_BACK
                                                 : STATUS_DONE;
    config_finish(&config);
    return status;
}

static int print(const struct output *output, int argc, char **argv)
{
    struct config_option *options = calloc((size_t)argc + 1, sizeof(*options));
    int status = options ? print_with(output, argc, argv, options) : STATUS_ROLLED_BACK;

    free(options);
    return status;
}

/* ---- validate, path, reload ---- */

/** The one argument of a verb that may be left out, or NULL; false after a usage error. */
static bool take_argument(const struct output *output, int argc, char **argv, int most,
                          const char **ret_argument, int *ret_status)
{
    *ret_argument = NULL;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            continue;
        }
        if (argv[i][0] == '-' || most-- == 0) {
            *ret_status = output_usage(output, "unexpected \"%s\"", argv[i]);
            return false;
        }
        *ret_argument = argv[i];
    }
    return true;
}

static int say_right(const struct output *output, const char *path, bool exists)
{
    if (output->json) {
        json_t *object = output_object(output, STATUS_DONE);
        json_object_set_new(object, "file", output_text(path));
        json_object_set_new(object, "exists", json_boolean(exists));
        return output_print(object, STATUS_DONE);
    }
    printf(exists ? "%s: ok\n" : "%s: there is no such file; the defaults hold\n", path);
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int find(const struct output *output, char ret_path[PATH_MAX], bool *ret_exists)
{
    int result = config_find(CONFIG_SYSTEM_PATH, ret_path);

    *ret_exists = result == 0;
    return !result || result == -ENOENT
               ? 0
               : output_fail(output, ERR_FAILED, "the path of the configuration: %s",
                             strerror(-result));
}

static int validate(const struct output *output, int argc, char **argv)
{
    struct config_source source = {0};
    struct config_error error;
    struct config config;
    char path[PATH_MAX];
    bool exists = true;
    int status = 0;

    if (!take_argument(output, argc, argv, 1, &source.path, &status)) {
        return status;
    }
    if (!source.path) {
        status = find(output, path, &exists);
        source.path = path;
    }
    if (status || !exists) {
        return status ? status : say_right(output, path, false);
    }
    if (config_load(&source, &config, &error)) {
        return refuse(output, &error);
    }
    config_finish(&config);
    return say_right(output, source.path, true);
}

static int show_path(const struct output *output, int argc, char **argv)
{
    const char *argument;
    char path[PATH_MAX];
    bool exists;
    int status;

    if (!take_argument(output, argc, argv, 0, &argument, &status) ||
        (status = find(output, path, &exists))) {
        return status;
    }
    exists = exists && access(path, F_OK) == 0;
    if (output->json) {
        return say_right(output, path, exists);
    }
    puts(path);
    if (fflush(stdout)) {
        return STATUS_ROLLED_BACK;
    }
    if (!exists) {
        /* What is named has to be there. */
        const char *named = getenv("RESEAT_CONFIG");
        fprintf(stderr, "reseat config: there is no such file; %s\n",
                named && *named ? "create it, or unset RESEAT_CONFIG" : "the defaults hold");
    }
    return STATUS_DONE;
}

static int say_reloaded(const struct output *output, const msgpack_object *answer)
{
    struct config_error error = {.line = (unsigned)field_u64(answer, "line", 0)};

    field_text(answer, "file", error.file, sizeof(error.file));
    field_text(answer, "reason", error.reason, sizeof(error.reason));
    if (field_bool(answer, "refused", true)) {
        if (!output->json) {
            fputs("reseat config: refused, the agent keeps the one before: ", stderr);
        }
        return refuse(output, &error);
    }
    if (output->json) {
        json_t *object = output_object(output, STATUS_DONE);
        json_object_set_new(object, "file", output_text(error.file));
        return output_print(object, STATUS_DONE);
    }
    printf("the agent has read %s\n",
           error.file[0] ? error.file : "that there is no file; the defaults hold");
    return fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int reload(const struct output *output, int argc, char **argv)
{
    static const char what[] = "read its configuration again";
    struct client client = {.fd = -1};
    struct message message;
    struct frame frame;
    const char *argument;
    int status;

    if (!take_argument(output, argc, argv, 0, &argument, &status) ||
        (status = cmd_connect(output, false, what, &client))) {
        return status;
    }
    frame_init(&frame, MSG_RELOAD);
    status = cmd_ask(output, &client, &frame, MSG_RELOAD, RELOAD_MS, what, &message);
    client_close(&client);
    if (status) {
        return status;
    }
    status = say_reloaded(output, &message.root);
    message_finish(&message);
    return status;
}

int cmd_config(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct output *output, int argc, char **argv);
    } verbs[] = {{"print", print}, {"validate", validate}, {"path", show_path}, {"reload", reload}};
    struct output output;

    output_init(&output, "config", argc, argv);
    for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(verbs[i].name, argv[1]) == 0) {
            return verbs[i].run(&output, argc, argv);
        }
    }
    if (argc < 2) {
        return output_usage(&output, "say what: print, validate, path or reload");
    }
    return output_usage(&output, "there is no \"%s\"", argv[1]);
}
