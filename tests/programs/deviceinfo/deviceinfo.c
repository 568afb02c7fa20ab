/*
 * Asks the platform, the device and a context everything, and checks that the answers have their
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

static bool get(cl_device_info name, size_t size, void *ret)
{
    size_t told = 0;

    return clGetDeviceInfo(facts.device, name, size, ret, &told) == CL_SUCCESS && told == size;
}

uint64_t number32(cl_device_info name)
{
    cl_uint value = 0;

    CHECK_NAMED(get(name, sizeof(value), &value), "a cl_uint", name);
    return value;
}

uint64_t number64(cl_device_info name)
{
    cl_ulong value = 0;

    CHECK_NAMED(get(name, sizeof(value), &value), "a cl_ulong or a bit-field", name);
    return value;
}

size_t number_size(cl_device_info name)
{
    size_t value = 0;

    CHECK_NAMED(get(name, sizeof(value), &value), "a size_t", name);
    return value;
}

bool truth(cl_device_info name)
{
    cl_bool value = 2;

    CHECK_NAMED(get(name, sizeof(value), &value), "a cl_bool", name);
    CHECK_NAMED(value == CL_TRUE || value == CL_FALSE, "true or false", name);
    return value == CL_TRUE;
}

char *device_text(cl_device_info name)
{
    size_t size = 0;
    char *text;

    CHECK_NAMED(clGetDeviceInfo(facts.device, name, 0, NULL, &size) == CL_SUCCESS && size,
                "a string", name);
    text = calloc(1, size + 1);
    CHECK_NAMED(clGetDeviceInfo(facts.device, name, size, text, NULL) == CL_SUCCESS, "a string",
                name);
    CHECK_NAMED(strlen(text) + 1 == size, "a string of its size", name);
    return text;
}

char *platform_text(cl_platform_info name)
{
    size_t size = 0;
    char *text;

    CHECK_NAMED(clGetPlatformInfo(facts.platform, name, 0, NULL, &size) == CL_SUCCESS && size,
                "a string", name);
    text = calloc(1, size + 1);
    CHECK_NAMED(clGetPlatformInfo(facts.platform, name, size, text, NULL) == CL_SUCCESS, "a string",
                name);
    CHECK_NAMED(strlen(text) + 1 == size, "a string of its size", name);
    return text;
}

struct versions device_versions(cl_device_info name)
{
    struct versions list = {0};
    size_t size = 0;

    CHECK_NAMED(clGetDeviceInfo(facts.device, name, 0, NULL, &size) == CL_SUCCESS &&
                    size % sizeof(*list.items) == 0,
                "an array of cl_name_version", name);
    list.count = size / sizeof(*list.items);
    list.items = calloc(list.count + 1, sizeof(*list.items));
    if (size)
        CHECK_NAMED(clGetDeviceInfo(facts.device, name, size, list.items, NULL) == CL_SUCCESS,
                    "an array of cl_name_version", name);
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
    facts.extensions = device_text(CL_DEVICE_EXTENSIONS);
    facts.version = version_of(device_text(CL_DEVICE_VERSION), "OpenCL ");
    facts.c_version = version_of(device_text(CL_DEVICE_OPENCL_C_VERSION), "OpenCL C ");
    facts.platform_version = version_of(platform_text(CL_PLATFORM_VERSION), "OpenCL ");
    profile = device_text(CL_DEVICE_PROFILE);
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
        check_contexts();
    } while (prog_again());
    if (wrong) {
        printf("%d answers are wrong\n", wrong);
        return 1;
    }
    printf("every answer agrees\n");
    return 0;
}
