#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/config/config_priv.h"

/* reseat config: print the settings in effect, check, locate and reload the file. */

#define SETTINGS_MAX 100
#define GIVEN_MAX    256

/** Print an error in the format of compilers, which editors understand. */
static int config_refuse(const struct output *output, const struct config_error *error)
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

static json_t *config_json_of(const struct setting *setting, const void *of)
{
    char text[CONFIG_NAME_MAX];

    if (setting->type == SETTING_FLAG)
        return json_boolean(setting_value(setting, of));
    if (setting->type == SETTING_NUMBER || setting->type == SETTING_SECONDS ||
        setting->type == SETTING_SIZE)
        return json_integer((json_int_t)setting_value(setting, of));
    setting_text(setting, of, text, sizeof(text));
    return output_text(text);
}

static json_t *config_json_of_policy(const struct config *config)
{
    static const char *const origins[] = {"default", "file", "environment", "option"};
    json_t *object = json_object();

    for (size_t i = 0; i < settings_count; i++) {
        json_t *value = config_json_of(&settings_table[i], &config->policy);
        json_object_set_new(object, settings_table[i].name,
                            json_pack("{s:o, s:s, s:i}", "value", value, "origin",
                                      origins[config->origins[i]], "line", (int)config->lines[i]));
    }
    return object;
}

static json_t *config_json_of_list(const struct config *config, enum config_list_kind kind)
{
    const struct config_list *list = &config_lists[kind];
    const char *entries = config->lists[kind].entries;
    json_t *array = json_array();

    for (size_t i = 0; i < config->lists[kind].count; i++) {
        const struct config_entry *entry = (const void *)(entries + i * list->entry_size);
        json_t *object = json_pack("{s:i}", "line", (int)entry->line);
        for (unsigned j = 0; j < list->field_count; j++) {
            if (entry->given & 1u << j) {
                json_object_set_new(object, list->fields[j].name,
                                    config_json_of(&list->fields[j], entry));
            }
        }
        json_array_append_new(array, object);
    }
    return array;
}

/** Settings given as options. The texts are borrowed. */
struct print {
    size_t count;
    struct config_option given[GIVEN_MAX];
};

static int config_take_setting(struct call *call, const struct option_row *option, const char *text)
{
    struct print *print = call->options;

    if (print->count == GIVEN_MAX)
        return output_usage(&call->output, "there are more than %d settings", GIVEN_MAX);
    print->given[print->count++] = (struct config_option){option->name, text};
    return 0;
}

static const struct option_row *config_setting_options(void)
{
    static struct option_row options[SETTINGS_MAX + 1];

    for (size_t i = 0; i < settings_count && i < SETTINGS_MAX; i++)
        options[i] = (struct option_row){settings_table[i].name, "VALUE", settings_table[i].help};
    return options;
}

static int config_run_print(struct call *call)
{
    const struct print *print = call->options;
    struct config_error error;
    struct config config;

    if (config_load_effective(print->given, print->count, &config, &error))
        return config_refuse(&call->output, &error);
    json_auto_t *answer = json_pack("{s:o, s:o}", "file", output_text(config.path), "policy",
                                    config_json_of_policy(&config));
    for (unsigned i = 0; i < CONFIG_LISTS; i++)
        json_object_set_new(answer, config_lists[i].name, config_json_of_list(&config, i));
    if (!call->output.json)
        (void)!config_print(&config, stdout);
    config_finish(&config);
    return output_result(&call->output, answer, NULL, NULL);
}

const struct verb verb_config_print = {
    .name = "config print",
    .summary =
        "Show the configuration in effect, as a commented file with the origin of each value.",
    .text = "The options are the settings of the policy, and show what each would change if it "
            "were given to reseatd.",
    .members = "file policy devices programs servers users",
    .other_options = config_setting_options,
    .take = config_take_setting,
    .size = sizeof(struct print),
    .run = config_run_print,
};

/* ---- validate, path, reload ---- */

/** @template: for the text. */
static int config_say_file(const struct output *output, const char *path, bool exists,
                           const char *template)
{
    json_auto_t *answer = json_pack("{s:o, s:b}", "file", output_text(path), "exists", (int)exists);

    return output_say(output, answer, template);
}

#define CONFIG_CHECKED "{file}: [{?exists}ok][{!exists}there is no such file; the defaults hold]"

static int config_find_row(const struct output *output, char ret_path[PATH_MAX], bool *ret_exists)
{
    int result = config_find(CONFIG_SYSTEM_PATH, ret_path);

    *ret_exists = result == 0;
    return !result || result == -ENOENT
               ? 0
               : output_fail(output, ERR_FAILED, "the path of the configuration: %s",
                             strerror(-result));
}

static int config_run_validate(struct call *call)
{
    const struct output *output = &call->output;
    struct config_source source = {.path = call->words[0]};
    struct config_error error;
    struct config config;
    char path[PATH_MAX];
    bool exists = true;
    int status = 0;

    if (!source.path) {
        status = config_find_row(output, path, &exists);
        source.path = path;
    }
    if (status || !exists)
        return status ? status : config_say_file(output, path, false, CONFIG_CHECKED);
    if (config_load(&source, &config, &error))
        return config_refuse(output, &error);
    config_finish(&config);
    return config_say_file(output, source.path, true, CONFIG_CHECKED);
}

const struct verb verb_config_validate = {
    .name = "config validate",
    .arguments = "[FILE]",
    .summary = "Check FILE, or the configuration file in use.",
    .text = "Errors are FILE:LINE: and the reason, with exit status 2. A missing file is no error: "
            "the defaults hold.",
    .members = "file exists",
    .run = config_run_validate,
};

static int config_run_path(struct call *call)
{
    const struct output *output = &call->output;
    char path[PATH_MAX];
    bool exists;
    int status = config_find_row(output, path, &exists);

    if (status)
        return status;
    exists = exists && access(path, F_OK) == 0;
    status = config_say_file(output, path, exists, "{file}");
    if (!status && !exists && !output->json) {
        /* A file that the environment names must exist. */
        const char *named = getenv("RESEAT_CONFIG");
        output_note(output, "there is no such file; %s",
                    named && *named ? "create it, or unset RESEAT_CONFIG" : "the defaults hold");
    }
    return status;
}

const struct verb verb_config_path = {
    .name = "config path",
    .summary = "Print the configuration file in use, or the one that would be.",
    .members = "file exists",
    .run = config_run_path,
};

static int config_say_reloaded(const struct output *output, const json_t *answer)
{
    struct config_error error = {.line = (unsigned)member_number(answer, "line")};
    const char *file = member_text(answer, "file");

    snprintf(error.file, sizeof(error.file), "%s", file);
    snprintf(error.reason, sizeof(error.reason), "%s", member_text(answer, "reason"));
    if (!json_is_false(json_object_get(answer, "refused"))) {
        if (!output->json)
            fputs("reseat config: refused, the agent keeps its previous configuration: ", stderr);
        return config_refuse(output, &error);
    }
    return output_say(output, answer,
                      file[0] ? "the agent uses {file}" : "no configuration file; using defaults");
}

static int config_run_reload(struct call *call)
{
    static const struct question question = {.type = MSG_RELOAD,
                                             .what = "read its configuration again"};
    struct frame frame;
    json_auto_t *answer = NULL;

    frame_init(&frame, MSG_RELOAD);
    int status = ask(&call->output, &question, &frame, &answer);
    return status ? status : config_say_reloaded(&call->output, answer);
}

const struct verb verb_config_reload = {
    .name = "config reload",
    .summary = "Make the agent read its configuration again, and list the devices anew.",
    .text = "SIGHUP does the same. A file with an error is refused with its line and reason, exit "
            "status 2, and the agent keeps its previous configuration.",
    .members = "file",
    .users = true,
    .run = config_run_reload,
};
