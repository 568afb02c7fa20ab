#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/config_priv.h"
#include "state/base/bytes/size.h"
#include "tests/fuzz/fuzz.h"

/*
 * A configuration file. One that is taken says the same when it is printed and read again; one that
 * is refused has a reason of one line and a line that it has. And a size, as an operator writes it.
 */

static int load(const void *text, size_t size, struct config *ret_config,
                struct config_error *ret_error)
{
    char path[PATH_MAX];
    struct config_source source = {.path = path};
    fuzz_file("reseat.conf", text, size, path);
    return config_load(&source, ret_config, ret_error);
}

/** What is printed is a configuration. */
static void reload(const char *text, struct config *ret_config)
{
    struct config_error error;
    int err = load(text, strlen(text), ret_config, &error);
    if (err)
        fprintf(stderr, "%u: %s\n%s", error.line, error.reason, text);
    EXPECT(err == 0);
}

static char *print(const struct config *config)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    EXPECT(file && config_print(config, file) == 0);
    fclose(file);
    return text;
}

static void same_entries(const struct config_list *list, const void *a, const void *b, size_t count)
{
    char of_a[CONFIG_VALUE_MAX], of_b[CONFIG_VALUE_MAX];
    for (size_t i = 0; i < count; i++) {
        const struct config_entry *in_a = (const void *)((const char *)a + i * list->entry_size);
        const struct config_entry *in_b = (const void *)((const char *)b + i * list->entry_size);
        EXPECT(in_a->given == in_b->given);
        EXPECT(in_a->given & ((1u << list->selectors) - 1));
        for (unsigned j = 0; j < list->field_count; j++) {
            if (!(in_a->given & 1u << j))
                continue;
            config_value_text(&list->fields[j], in_a, of_a);
            config_value_text(&list->fields[j], in_b, of_b);
            EXPECT(strcmp(of_a, of_b) == 0);
        }
    }
}

static void same(const struct config *a, const struct config *b)
{
    char of_a[CONFIG_VALUE_MAX], of_b[CONFIG_VALUE_MAX];
    for (size_t i = 0; i < settings_count; i++) {
        config_value_text(&settings_table[i], &a->policy, of_a);
        config_value_text(&settings_table[i], &b->policy, of_b);
        EXPECT(strcmp(of_a, of_b) == 0);
    }
    for (unsigned i = 0; i < CONFIG_LISTS; i++) {
        EXPECT(a->lists[i].count == b->lists[i].count);
        same_entries(&config_lists[i], a->lists[i].entries, b->lists[i].entries, a->lists[i].count);
    }
}

static void try_lookups(const struct config *config)
{
    struct config_device device;
    struct config_program program;
    config_device(config, "gpu0", PLACE_GPU, NULL, &device);
    EXPECT(device.memory > 0 && device.speed <= 1000000 && device.price <= 1000000);
    config_program(config, "x264", &program);
    EXPECT(program.quota > 0 && program.ways < 1u << POLICY_WAYS);
    EXPECT(strlen(program.device) < sizeof(program.device));
    EXPECT(program.priority >= -1000 && program.priority <= 1000);
}

static void check_refusal(const void *data, size_t size, const struct config_error *error)
{
    const char *text = data;
    unsigned lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    EXPECT(error->line <= lines);
    EXPECT(error->line > 0 || size > CONFIG_FILE_MAX);
    EXPECT(error->reason[0] && strlen(error->reason) < sizeof(error->reason));
    for (const char *at = error->reason; *at; at++)
        EXPECT((unsigned char)*at >= ' ' && *at != 0x7f);
}

static void try_size(const void *data, size_t size)
{
    struct input input = {data, size};
    char *text = input_string(&input), again[SIZE_TEXT_MAX], reason[64];
    uint64_t bytes = 77, bytes2 = 78;
    int err = size_parse(text, &bytes, reason, sizeof(reason));
    EXPECT(err == 0 || ((err == -EINVAL || err == -ERANGE) && bytes == 77 && reason[0]));
    if (err == 0) {
        EXPECT(bytes != UINT64_MAX);
        size_format(bytes, again);
        EXPECT(size_parse(again, &bytes2, reason, sizeof(reason)) == 0 && bytes2 == bytes);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config, again, third;
    struct config_error error = {.line = UINT_MAX};
    int err = load(data, size, &config, &error);
    try_size(data, size);
    EXPECT(err == 0 || err == -EINVAL);
    if (err) {
        check_refusal(data, size, &error);
        return 0;
    }
    try_lookups(&config);
    char *text = print(&config);
    reload(text, &again);
    same(&config, &again);
    /* Of the same file, now also with the same lines. */
    char *text2 = print(&again);
    reload(text2, &third);
    char *text3 = print(&third);
    EXPECT(strcmp(text2, text3) == 0);
    free(text);
    free(text2);
    free(text3);
    config_finish(&config);
    config_finish(&again);
    config_finish(&third);
    return 0;
}
