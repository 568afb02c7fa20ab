/*
 * Asks the platform and the device everything, and checks that the answers have their
 * sizes, hold the specification's least values and agree with each other, as a conformance suite
 * does. It prints only its verdict.
 *
 *   deviceinfo [--memory BYTES] [--without WORD,...]
 *
 * --memory is how much device memory there is to be, --without leaves out checks that a driver is
 * known to fail by itself.
 */
#include "deviceinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct facts facts;
static const char *without = "";
static int wrong;

void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    wrong++;
}

bool wanted(const char *word)
{
    const char *at = strstr(without, word);
    size_t length = strlen(word);

    return !at || (at[length] && at[length] != ',') || (at != without && at[-1] != ',');
}

uint64_t number(cl_device_info name, size_t size)
{
    uint64_t value = 0;
    size_t told = 0;

    CHECK_NAMED(clGetDeviceInfo(facts.device, name, size, &value, &told) == CL_SUCCESS &&
                    told == size,
                "of its type", name);
    return value;
}

bool truth(cl_device_info name)
{
    uint64_t value = number(name, sizeof(cl_bool));

    CHECK_NAMED(value == CL_TRUE || value == CL_FALSE, "true or false", name);
    return value == CL_TRUE;
}

/* The platform's parameters begin where no device's are. */
static cl_int ask(cl_uint name, size_t size, void *ret, size_t *ret_size)
{
    return name < CL_DEVICE_TYPE ? clGetPlatformInfo(facts.platform, name, size, ret, ret_size)
                                 : clGetDeviceInfo(facts.device, name, size, ret, ret_size);
}

char *text_of(cl_uint name)
{
    size_t size = 0;

    CHECK_NAMED(ask(name, 0, NULL, &size) == CL_SUCCESS && size, "a string", name);
    char *text = calloc(1, size + 1);
    CHECK_NAMED(ask(name, size, text, NULL) == CL_SUCCESS, "a string", name);
    CHECK_NAMED(strlen(text) + 1 == size, "a string of its size", name);
    return text;
}

struct versions versions_of(cl_uint name)
{
    struct versions list = {0};
    size_t size = 0;

    CHECK_NAMED(ask(name, 0, NULL, &size) == CL_SUCCESS && size % sizeof(*list.items) == 0,
                "an array of cl_name_version", name);
    list.count = size / sizeof(*list.items);
    list.items = calloc(list.count + 1, sizeof(*list.items));
    if (size)
        CHECK_NAMED(ask(name, size, list.items, NULL) == CL_SUCCESS, "an array of cl_name_version",
                    name);
    return list;
}

bool versions_have(const struct versions *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->items[i].name, name, sizeof(list->items[i].name)) == 0)
            return true;
    return false;
}

bool words_have(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

size_t words_count(const char *words)
{
    size_t count = 0;

    for (const char *at = words; *at; at++)
        count += *at != ' ' && (at == words || at[-1] == ' ');
    return count;
}

bool refused(cl_device_info name)
{
    return clGetDeviceInfo(facts.device, name, 0, NULL, NULL) == CL_INVALID_VALUE;
}

static cl_version version_of(const char *text, const char *before)
{
    unsigned major = 0, minor = 0;
    size_t length = strlen(before);
    int used = 0;

    CHECK(strncmp(text, before, length) == 0);
    CHECK(sscanf(text + length, "%u.%u%n", &major, &minor, &used) == 2);
    CHECK(text[length + (size_t)used] == ' ');
    return CL_MAKE_VERSION(major, minor, 0);
}

static void find_facts(void)
{
    struct prog p;
    char *profile;

    prog_open(&p);
    facts.platform = p.platform;
    facts.device = p.device;
    facts.context = p.context;
    facts.queue = p.queue;
    facts.extensions = text_of(CL_DEVICE_EXTENSIONS);
    facts.version = version_of(text_of(CL_DEVICE_VERSION), "OpenCL ");
    facts.c_version = version_of(text_of(CL_DEVICE_OPENCL_C_VERSION), "OpenCL C ");
    facts.platform_version = version_of(text_of(CL_PLATFORM_VERSION), "OpenCL ");
    profile = text_of(CL_DEVICE_PROFILE);
    facts.full = strcmp(profile, "FULL_PROFILE") == 0;
    CHECK(facts.full || strcmp(profile, "EMBEDDED_PROFILE") == 0);
    free(profile);
}

int main(int argc, char **argv)
{
    without = prog_option_text(argc, argv, "--without", "");
    facts.memory = (uint64_t)prog_option(argc, argv, "--memory", 0);
    find_facts();
    do {
        check_platform();
        check_versions();
        check_limits();
        check_abilities();
        check_images();
        check_macros();
    } while (prog_again());
    if (wrong) {
        printf("%d answers are wrong\n", wrong);
        return 1;
    }
    printf("every answer agrees\n");
    return 0;
}
