#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/device_names.h"
#include "agent/config/environment.h"
#include "state/driver/device_key.h"
#include "state/driver/driver.h"
#include "state/driver/icd.h"
#include "state/object/usage.h"
#include "tests/fuzz/fuzz.h"

/*
 * Text: device keys, the file of their names, .icd files, lists of drivers, what an operator calls
 * a device, what a client sends of its environment, and a program's source and options. The first
 * byte says which.
 */

static void same_key(const struct device_key *a, const struct device_key *b)
{
    EXPECT(strcmp(a->icd, b->icd) == 0 && strcmp(a->platform, b->platform) == 0);
    EXPECT(strcmp(a->device, b->device) == 0 && a->ordinal == b->ordinal);
    EXPECT(strcmp(a->uuid, b->uuid) == 0 && strcmp(a->pci, b->pci) == 0);
}

static void try_key(struct input *input)
{
    char *text = input_string(input), again[DEVICE_KEY_TEXT_MAX];
    struct device_key key = {.ordinal = 77}, key2;
    int err = device_key_parse(text, &key);
    EXPECT(err == 0 || (err == -EINVAL && key.ordinal == 77 && !key.icd[0]));
    if (err == 0) {
        device_key_format(&key, again);
        for (const char *at = again; *at; at++)
            EXPECT(*at > ' ' && *at < 0x7f);
        EXPECT(device_key_parse(again, &key2) == 0);
        same_key(&key, &key2);
        EXPECT(device_key_equal(&key, &key2));
    }
    free(text);
}

static void try_names_file(struct input *input)
{
    char path[PATH_MAX], path2[PATH_MAX];
    struct device_names names, again;
    fuzz_file("names", input->at, input->left, path);
    EXPECT(device_names_load(path, &names) == 0);
    for (size_t i = 0; i < names.count; i++) {
        EXPECT(islower((unsigned char)names.names[i].name[0]));
        for (size_t j = 0; j < i; j++)
            EXPECT(strcmp(names.names[i].name, names.names[j].name) != 0);
    }
    snprintf(path2, sizeof(path2), "%s/again", fuzz_folder());
    EXPECT(device_names_save(path2, &names) == 0);
    EXPECT(device_names_load(path2, &again) == 0);
    EXPECT(again.count == names.count);
    for (size_t i = 0; i < names.count; i++) {
        EXPECT(strcmp(names.names[i].name, again.names[i].name) == 0);
        same_key(&names.names[i].key, &again.names[i].key);
    }
    device_names_finish(&names);
    device_names_finish(&again);
}

static void check_libraries(void)
{
    struct icd_list list;
    EXPECT(icd_list_read(&list) == 0);
    for (size_t i = 0; i < list.count; i++) {
        size_t length = strlen(list.libraries[i]);
        EXPECT(length > 0 && length < sizeof(((struct device_key *)0)->icd));
        EXPECT(!icd_is_ours(list.libraries[i]));
        for (size_t j = 0; j < i; j++)
            EXPECT(strcmp(list.libraries[i], list.libraries[j]) != 0);
    }
    icd_list_finish(&list);
}

static void try_icd_file(struct input *input)
{
    char path[PATH_MAX];
    fuzz_file("driver.icd", input->at, input->left, path);
    setenv(DRIVER_ENV_VENDORS, path, 1);
    setenv(DRIVER_ENV_FILENAMES, "", 1);
    check_libraries();
}

static void try_filenames(struct input *input)
{
    char *text = input_string(input), path[PATH_MAX];
    fuzz_file("driver.icd", "", 0, path);
    setenv(DRIVER_ENV_VENDORS, path, 1);
    setenv(DRIVER_ENV_FILENAMES, text, 1);
    check_libraries();
    free(text);
}

static void try_resolve(struct input *input)
{
    static struct devinfo_value gpu[] = {{CL_DEVICE_NAME, 12, (uint8_t *)"Radeon Pro 7"}};
    static struct inventory_entry entries[] = {
        {"gpu0", {"liba.so", "A", "Tesla", 0, "00112233445566778899aabbccddeeff", ""}, {1, gpu, 0}},
        {"gpu1", {"liba.so", "A", "Tesla", 1, "00112299445566778899aabbccddeeff", "0000:3b:00.0"}},
        {"cpu0", {"libb.so", "B", "pthread-x86", 0, "", ""}},
    };
    static const struct inventory inv = {entries, ARRAY_SIZE(entries)};
    const struct inventory_entry *entry = NULL;
    char *text = input_string(input), error[64];
    int err = device_resolve(&inv, text, &entry, error, sizeof(error));
    EXPECT(err == 0 || err == -ENODEV || err == -ENOTUNIQ);
    EXPECT((err == 0) == (entry >= entries && entry < entries + ARRAY_SIZE(entries)));
    EXPECT(err == 0 || (error[0] && strlen(error) < sizeof(error)));
    free(text);
}

/* Whatever a client sends, the lister gets nothing but what concerns drivers. */
static void try_environment(struct input *input)
{
    char home[] = "HOME=/root", pocl[] = "POCL_DEVICES=basic";
    char *base[] = {home, pocl, NULL}, *text = input_string(input), **list;
    EXPECT(environment_for_lister(base, text, &list) == 0);
    EXPECT(list[0] == home);
    for (size_t i = 1; list[i]; i++) {
        EXPECT(list[i] != pocl);
        EXPECT(list[i][0] && !strchr(list[i], '\n'));
        EXPECT(environment_concerns_drivers(list[i]));
    }
    free(list);
    free(text);
}

/* Marks of the process only rise, so what is noted is looked at as a whole. */
static void try_program(struct input *input)
{
    char *options = input_string(input);
    const char *source = (const char *)input->at;
    size_t length = input->left;
    struct recipe *text, *built;
    struct plan_use used;
    EXPECT(recipe_source(length ? 1 : 0, &source, &length, &text) == 0);
    EXPECT(text->size == length);
    EXPECT(recipe_built(text, options, NULL, 0, &built) == 0);
    usage_note_recipe(built);
    usage_read(&used);
    for (size_t i = 0; i < used.extension_count; i++)
        EXPECT(used.extensions[i][0] && !strpbrk(used.extensions[i], " \t\n:*/"));
    recipe_unref(text);
    recipe_unref(built);
    free(options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(struct input *) = {
        try_key,     try_names_file,  try_icd_file, try_filenames,
        try_resolve, try_environment, try_program,
    };
    struct input input = {data, size};
    kinds[input_byte(&input) % ARRAY_SIZE(kinds)](&input);
    return 0;
}
