#include "tests/emu/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_SIZE_MAX (64 * 1024)
#define VERSION_DEFAULT 300
#define VERSION_MAX     300
#define VERSION_MIN     100

static int parse_number(const char *value, uint64_t *ret_number)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (end == value || errno != 0 || *value == '-')
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(end, units[i].suffix) != 0)
            continue;
        if (number > UINT64_MAX >> units[i].shift)
            return -EINVAL;
        *ret_number = number << units[i].shift;
        return 0;
    }
    return -EINVAL;
}

static int parse_text(const char *value, char *ret_text, size_t size)
{
    if (strlen(value) >= size)
        return -EINVAL;
    strcpy(ret_text, value);
    return 0;
}

static int parse_bool(const char *value, bool *ret_bool)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return -EINVAL;
    *ret_bool = strcmp(value, "yes") == 0;
    return 0;
}

static int parse_type(const char *value, cl_device_type *ret_type)
{
    static const struct {
        const char *name;
        cl_device_type type;
    } types[] = {{"cpu", CL_DEVICE_TYPE_CPU},
                 {"gpu", CL_DEVICE_TYPE_GPU},
                 {"accelerator", CL_DEVICE_TYPE_ACCELERATOR},
                 {"custom", CL_DEVICE_TYPE_CUSTOM}};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strcmp(value, types[i].name) == 0) {
            *ret_type = types[i].type;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_callbacks(const char *value, enum emu_callbacks *ret_callbacks)
{
    static const char *const names[] = {"kept", "never", "backwards", "late", "complete"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(value, names[i]) == 0) {
            *ret_callbacks = (enum emu_callbacks)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_version(const char *value, cl_uint *ret_version)
{
    unsigned major, minor;
    char rest;
    if (sscanf(value, "%1u.%1u%c", &major, &minor, &rest) != 2)
        return -EINVAL;
    cl_uint version = major * 100 + minor * 10;
    if (version < VERSION_MIN || version > VERSION_MAX)
        return -EINVAL;
    *ret_version = version;
    return 0;
}

static int parse_uuid(const char *value, struct emu_config *config)
{
    for (size_t i = 0; i < EMU_UUID_SIZE; i++)
        if (sscanf(value + 2 * i, "%2hhx", &config->uuid[i]) != 1 || value[2 * i + 1] == '\0')
            return -EINVAL;
    config->has_uuid = true;
    return value[2 * (size_t)EMU_UUID_SIZE] == '\0' ? 0 : -EINVAL;
}

/* "kernel:64,other:128" */
static int parse_kernels(const char *value, struct emu_config *config)
{
    char text[EMU_TEXT_MAX];
    if (parse_text(value, text, sizeof(text)) != 0)
        return -EINVAL;
    char *save = NULL;
    for (char *item = strtok_r(text, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save)) {
        char *colon = strchr(item, ':');
        uint64_t size;
        if (colon == NULL || config->kernel_count == EMU_KERNEL_RULES_MAX)
            return -EINVAL;
        *colon = '\0';
        struct emu_kernel_rule *rule = &config->kernels[config->kernel_count];
        if (parse_text(item, rule->kernel, sizeof(rule->kernel)) != 0 ||
            parse_number(colon + 1, &size) != 0 || size == 0)
            return -EINVAL;
        rule->work_group_size = size;
        config->kernel_count++;
    }
    return 0;
}

static int parse_extensions(const char *value, struct emu_config *config)
{
    config->has_extensions = true;
    if (parse_text(value, config->extensions, sizeof(config->extensions)) != 0)
        return -EINVAL;
    for (char *c = config->extensions; *c != '\0'; c++)
        if (*c == ',')
            *c = ' ';
    return 0;
}

static int set_key(struct emu_config *c, const char *key, const char *value)
{
    const struct {
        const char *key;
        uint64_t *field;
    } numbers[] = {{"memory", &c->memory},
                   {"max_alloc", &c->max_alloc},
                   {"mem_align", &c->mem_align},
                   {"local_memory", &c->local_memory},
                   {"launch_memory", &c->launch_memory},
                   {"link_mb_s", &c->link_mb_s},
                   {"setup_us", &c->setup_us},
                   {"launch_ms", &c->launch_ms},
                   {"items_per_s", &c->items_per_s},
                   {"idle_w", &c->idle_w},
                   {"busy_w", &c->busy_w},
                   {"build_ms", &c->build_ms},
                   {"build_starts", &c->build_starts},
                   {"build_loses", &c->build_loses},
                   {"context_ms", &c->context_ms},
                   {"open_ms", &c->open_ms},
                   {"binary_size", &c->binary_size},
                   {"release_ms", &c->release_ms}};
    const struct {
        const char *key;
        bool *field;
    } flags[] = {{"host_unified", &c->host_unified},
                 {"no_fp64", &c->no_fp64},
                 {"no_images", &c->no_images},
                 {"no_compiler", &c->no_compiler},
                 {"no_times", &c->no_times},
                 {"no_barrier_times", &c->no_barrier_times},
                 {"own_memory", &c->own_memory},
                 {"late_status", &c->late_status},
                 {"greedy", &c->greedy},
                 {"careless", &c->careless},
                 {"engines", &c->engines},
                 {"arg_info_fails", &c->arg_info_fails},
                 {"lost_hangs", &c->lost_hangs}};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (strcmp(key, numbers[i].key) == 0)
            return parse_number(value, numbers[i].field);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        if (strcmp(key, flags[i].key) == 0)
            return parse_bool(value, flags[i].field);
    uint64_t number = 0;
    if (strcmp(key, "base") == 0 || strcmp(key, "max_work_group_size") == 0 ||
        strcmp(key, "compute_units") == 0) {
        if (parse_number(value, &number) != 0 || number > UINT32_MAX)
            return -EINVAL;
        if (key[0] == 'b')
            c->base = number;
        else if (key[0] == 'm')
            c->max_work_group_size = number;
        else
            c->compute_units = (cl_uint)number;
        return 0;
    }
    if (strcmp(key, "lost_error") == 0) {
        c->lost_error = (cl_int)strtol(value, NULL, 10);
        return c->lost_error < 0 ? 0 : -EINVAL;
    }
    if (strcmp(key, "name") == 0)
        return parse_text(value, c->name, sizeof(c->name));
    if (strcmp(key, "type") == 0)
        return parse_type(value, &c->type);
    if (strcmp(key, "version") == 0)
        return parse_version(value, &c->version);
    if (strcmp(key, "callbacks") == 0)
        return parse_callbacks(value, &c->callbacks);
    if (strcmp(key, "uuid") == 0)
        return parse_uuid(value, c);
    if (strcmp(key, "extensions") == 0)
        return parse_extensions(value, c);
    if (strcmp(key, "build_fails") == 0)
        return parse_text(value, c->build_fails, sizeof(c->build_fails));
    if (strcmp(key, "paced") == 0)
        return parse_text(value, c->paced, sizeof(c->paced));
    if (strcmp(key, "meter") == 0)
        return parse_text(value, c->meter, sizeof(c->meter));
    if (strcmp(key, "kernel_work_group_size") == 0)
        return parse_kernels(value, c);
    return -ENOENT;
}

static void begin_section(struct emu_config *config, const char *name)
{
    memset(config, 0, sizeof(*config));
    config->type = CL_DEVICE_TYPE_GPU;
    config->version = VERSION_DEFAULT;
    snprintf(config->section, sizeof(config->section), "%s", name);
    snprintf(config->name, sizeof(config->name), "Emulated %.40s", name);
}

void emu_config_default(struct emu_config *config)
{
    begin_section(config, "emu");
}

/* Cut the next word off *@at: to white space, quotes keeping it together. NULL at the end. */
static char *next_word(char **at)
{
    char *in = *at + strspn(*at, " \t\r\n");
    while (*in == '#') {
        in += strcspn(in, "\n");
        in += strspn(in, " \t\r\n");
    }
    if (*in == '\0')
        return NULL;
    char *word = in, *out = in;
    bool quoted = false;
    for (; *in != '\0' && (quoted || strchr(" \t\r\n", *in) == NULL); in++)
        if (*in == '"')
            quoted = !quoted;
        else
            *out++ = *in;
    *at = *in != '\0' ? in + 1 : in;
    *out = '\0';
    return word;
}

static void free_text(char **text)
{
    free(*text);
}

int emu_config_parse(const char *text, struct emu_config *configs, size_t *ret_count,
                     char *ret_error)
{
    CLEANUP(free_text) char *copy = strdup(text);
    if (copy == NULL)
        return -ENOMEM;
    size_t count = 0;
    char *at = copy;
    for (char *word = next_word(&at); word != NULL; word = next_word(&at)) {
        size_t length = strlen(word);
        char *equals = strchr(word, '=');
        const char *wrong = NULL;
        if (word[0] == '[') {
            if (length < 3 || length - 2 >= EMU_NAME_MAX || word[length - 1] != ']' ||
                count == EMU_DEVICES_MAX) {
                wrong = "not a section, or one too many";
            } else {
                word[length - 1] = '\0';
                begin_section(&configs[count++], word + 1);
            }
        } else if (equals == NULL || count == 0) {
            wrong = "expected [section] or key=value";
        } else {
            *equals = '\0';
            int err = set_key(&configs[count - 1], word, equals + 1);
            if (err != 0)
                wrong = err == -ENOENT ? "no such key" : "not a value for this key";
        }
        if (wrong != NULL) {
            snprintf(ret_error, EMU_TEXT_MAX, "'%.100s': %s", word, wrong);
            return -EINVAL;
        }
    }
    *ret_count = count;
    return 0;
}

static void close_file(FILE **file)
{
    if (*file != NULL)
        fclose(*file);
}

int emu_config_read(const char *path, struct emu_config *configs, size_t *ret_count,
                    char *ret_error)
{
    CLEANUP(close_file) FILE *file = fopen(path, "re");
    if (file == NULL) {
        int err = -errno;
        snprintf(ret_error, EMU_TEXT_MAX, "cannot open: %s", strerror(-err));
        return err;
    }
    CLEANUP(free_text) char *text = calloc(1, CONFIG_SIZE_MAX + 1);
    if (text == NULL)
        return -ENOMEM;
    size_t length = fread(text, 1, CONFIG_SIZE_MAX + 1, file);
    if (length > CONFIG_SIZE_MAX) {
        snprintf(ret_error, EMU_TEXT_MAX, "longer than %d bytes", CONFIG_SIZE_MAX);
        return -EFBIG;
    }
    text[length] = '\0';
    return emu_config_parse(text, configs, ret_count, ret_error);
}

bool emu_config_matches(const char *list, const char *text)
{
    if (strcmp(list, "all") == 0)
        return true;
    char words[EMU_TEXT_MAX];
    snprintf(words, sizeof(words), "%s", list);
    char *save = NULL;
    for (char *word = strtok_r(words, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save))
        if (strstr(text, word) != NULL)
            return true;
    return false;
}
