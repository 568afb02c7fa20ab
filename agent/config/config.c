#include "agent/config/config.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/config_priv.h"
#include "agent/config/paths.h"
#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"

/* ---- errors ---- */

int config_wrong(struct config_error *error, unsigned line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error->reason, sizeof(error->reason), format, arguments);
    va_end(arguments);
    /* The reason may quote text of the file: replace its line breaks, so that it stays one line. */
    for (char *at = error->reason; *at; at++)
        *at = iscntrl((unsigned char)*at) ? '?' : *at;
    error->line = line;
    return -EINVAL;
}

void config_error_format(const struct config_error *error, char *ret_text, size_t size)
{
    if (!error->file[0])
        snprintf(ret_text, size, "%s", error->reason);
    else if (!error->line)
        snprintf(ret_text, size, "%s: %s", error->file, error->reason);
    else
        snprintf(ret_text, size, "%s:%u: %s", error->file, error->line, error->reason);
    text_make_safe(ret_text, size, ret_text, strlen(ret_text));
}

/* ---- where it is ---- */

/** A file that exists but cannot be accessed ends the search, with an error. */
static bool config_is_there(const char *path)
{
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

int config_find(const char *system, char ret_path[PATH_MAX])
{
    const char *named = getenv("RESEAT_CONFIG");
    char folder[PATH_MAX];

    if (named && *named)
        return snprintf(ret_path, PATH_MAX, "%s", named) < PATH_MAX ? 0 : -ENAMETOOLONG;
    int error = folder_home("XDG_CONFIG_HOME", ".config", folder);
    if (!error)
        error = paths_join(folder, "reseat.conf", ret_path);
    if (!error && config_is_there(ret_path))
        return 0;
    if (error == -ENAMETOOLONG)
        return error;
    bool found = config_is_there(system);
    if (found || error)
        snprintf(ret_path, PATH_MAX, "%s", system);
    return found ? 0 : -ENOENT;
}

/* ---- what it is made of ---- */

static int config_fail_to_read(struct config_error *error, int result)
{
    switch (result) {
    case -EINVAL:
        return config_wrong(error, 0, "is not a regular file");
    case -EFBIG:
        config_wrong(error, 0, "has more than %u KiB; use patterns, and leave out what is default",
                     CONFIG_FILE_MAX >> 10);
        return -EINVAL;
    default:
        config_wrong(error, 0, "cannot be read: %s", strerror(-result));
        return result;
    }
}

static int config_take_file(const char *path, struct config *config, struct config_error *error)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size = 0;

    snprintf(config->path, sizeof(config->path), "%s", path);
    snprintf(error->file, sizeof(error->file), "%s", path);
    int result = paths_read(path, CONFIG_FILE_MAX, &text, &size);
    if (result)
        return config_fail_to_read(error, result);
    result = config_scan(text, size, error);
    if (result)
        return result;
    /* libconfig refuses a comment at the end of a file that has no newline after it. */
    char *lines = realloc(text, size + 2);
    if (!lines)
        return -ENOMEM;
    memcpy(lines + size, "\n", 2);
    text = lines;
    result = config_read_text(text, config, error);
    if (!result)
        error->file[0] = '\0';
    return result;
}

void config_variable(const struct setting *setting, char *ret, size_t size)
{
    int length = snprintf(ret, size, "RESEAT_%s", setting->name);

    for (int i = 0; i < length && ret[i]; i++)
        ret[i] = ret[i] == '-' ? '_' : (char)toupper((unsigned char)ret[i]);
}

static int config_take_environment(struct config *config, struct config_error *error)
{
    char variable[CONFIG_NAME_MAX], reason[CONFIG_REASON_MAX / 2];

    for (size_t i = 0; i < settings_count; i++) {
        config_variable(&settings_table[i], variable, sizeof(variable));
        const char *value = getenv(variable);
        if (!value || !*value)
            continue;
        if (setting_read(&settings_table[i], value, &config->policy, reason, sizeof(reason)))
            return config_wrong(error, 0, "%s in the environment: %s", variable, reason);
        config->origins[i] = CONFIG_ENVIRONMENT;
    }
    return 0;
}

static int config_take_options(const struct config_source *source, struct config *config,
                               struct config_error *error)
{
    char reason[CONFIG_REASON_MAX / 2];

    for (size_t i = 0; i < source->option_count; i++) {
        const struct config_option *option = &source->options[i];
        const struct setting *setting = settings_find(option->name);
        if (!setting)
            return config_wrong(error, 0, "there is no option --%.64s", option->name);
        if (setting_read(setting, option->value, &config->policy, reason, sizeof(reason)))
            return config_wrong(error, 0, "--%s: %s", option->name, reason);
        config->origins[setting - settings_table] = CONFIG_OPTION;
    }
    return 0;
}

int config_load(const struct config_source *source, struct config *ret_config,
                struct config_error *ret_error)
{
    struct config config = {
        .origins = calloc(settings_count, sizeof(*config.origins)),
        .lines = calloc(settings_count, sizeof(*config.lines)),
    };
    struct config_error error = {0};
    int result = config.origins && config.lines ? 0 : -ENOMEM;

    settings_init(&config.policy);
    if (!result && source->path)
        result = config_take_file(source->path, &config, &error);
    if (!result && source->environment)
        result = config_take_environment(&config, &error);
    if (!result)
        result = config_take_options(source, &config, &error);
    if (!result) {
        *ret_config = config;
        return 0;
    }
    if (result == -ENOMEM)
        config_wrong(&error, 0, "there is no memory to read the configuration");
    config_finish(&config);
    *ret_error = error;
    return result;
}

int config_load_effective(const struct config_option *options, size_t option_count,
                          struct config *ret_config, struct config_error *ret_error)
{
    struct config_source source = {
        .environment = true, .options = options, .option_count = option_count};
    char path[PATH_MAX];
    int result = config_find(CONFIG_SYSTEM_PATH, path);

    if (result && result != -ENOENT) {
        *ret_error = (struct config_error){0};
        config_wrong(ret_error, 0, "the path of the configuration: %s", strerror(-result));
        return result;
    }
    source.path = result ? NULL : path;
    return config_load(&source, ret_config, ret_error);
}

void config_finish(struct config *config)
{
    free(config->origins);
    free(config->lines);
    for (unsigned i = 0; i < CONFIG_LISTS; i++)
        free(config->lists[i].entries);
    *config = (struct config){0};
}

/* ---- what it says ---- */

const struct policy_settings *config_policy(const struct config *config)
{
    return &config->policy;
}

static bool config_fits(const char *pattern, const char *text)
{
    return !pattern[0] || (text && fnmatch(pattern, text, 0) == 0);
}

static bool config_device_fits(const struct config_device_entry *entry, const char *name,
                               enum place_kind kind, const char *model)
{
    return config_fits(entry->entry.match, name) && config_fits(entry->model, model) &&
           (entry->kind == CONFIG_ANY_KIND || entry->kind == (int)kind);
}

void config_device(const struct config *config, const char *name, enum place_kind kind,
                   const char *model, struct config_device *ret)
{
    const struct config_device_entry *entries = config->lists[CONFIG_DEVICES].entries;
    struct config_device_entry entry;
    size_t i = 0, count = config->lists[CONFIG_DEVICES].count;

    config_lists[CONFIG_DEVICES].init(&entry.entry);
    while (i < count && !config_device_fits(&entries[i], name, kind, model))
        i++;
    if (i < count)
        entry = entries[i];
    *ret = entry.says;
    ret->line = entry.entry.line;
}

void config_program(const struct config *config, const char *name, struct config_program *ret)
{
    const struct config_program_entry *entries = config->lists[CONFIG_PROGRAMS].entries;
    struct config_program_entry entry;
    size_t i = 0, count = config->lists[CONFIG_PROGRAMS].count;

    config_lists[CONFIG_PROGRAMS].init(&entry.entry);
    while (i < count && !config_fits(entries[i].entry.match, name))
        i++;
    if (i < count)
        entry = entries[i];
    *ret = entry.says;
    ret->line = entry.entry.line;
    if (ret->protect.word == PROTECTION_UNSAID)
        ret->protect.word = config->policy.protect ? PROTECTION_ON : PROTECTION_OFF;
}

static bool config_user_fits(const struct config_user_entry *entry, uid_t user, const gid_t *groups,
                             size_t count)
{
    bool in = entry->gid < 0;

    for (size_t i = 0; i < count && !in; i++)
        in = entry->gid == (int64_t)groups[i];
    return in && (entry->uid < 0 || entry->uid == (int64_t)user);
}

void config_user(const struct config *config, uid_t user, const gid_t *groups, size_t count,
                 struct config_user *ret)
{
    const struct config_user_entry *entries = config->lists[CONFIG_USERS].entries;
    struct config_user_entry entry;
    size_t i = 0, all = config->lists[CONFIG_USERS].count;

    config_lists[CONFIG_USERS].init(&entry.entry);
    while (i < all && !config_user_fits(&entries[i], user, groups, count))
        i++;
    if (i < all)
        entry = entries[i];
    *ret = entry.says;
    ret->entry = i < all ? i + 1 : 0;
}

void config_server(const struct config *config, size_t index, const char **ret_name,
                   const char **ret_address)
{
    const struct config_server_entry *entries = config->lists[CONFIG_SERVERS].entries;

    *ret_name = entries[index].entry.match;
    *ret_address = entries[index].address;
}
