#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviceinfo.h"

/* The platform's words, versions in all their forms, and lists that say the same thing twice. */

static void check_same_names(const char *words, const struct versions *list)
{
    CHECK(words_count(words) == list->count);
    for (size_t i = 0; i < list->count; i++) {
        CHECK(memchr(list->items[i].name, '\0', sizeof(list->items[i].name)) != NULL);
        CHECK(words_have(words, list->items[i].name));
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(list->items[i].name, list->items[j].name) != 0);
    }
}

static void check_platform_timer(void)
{
    cl_ulong resolution = 1, device = 0, host = 0;

    CHECK(clGetPlatformInfo(facts.platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof(resolution),
                            &resolution, NULL) == CL_SUCCESS);
    if (resolution)
        return;
    CHECK(clGetDeviceAndHostTimer(facts.device, &device, &host) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(facts.device, &host) == CL_INVALID_OPERATION);
    if (!wanted("timer-null"))
        return;
    CHECK(clGetDeviceAndHostTimer(facts.device, NULL, NULL) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(facts.device, NULL) == CL_INVALID_OPERATION);
    CHECK(clGetHostTimer(NULL, &host) == CL_INVALID_DEVICE);
}

void check_platform(void)
{
    char *extensions = text_of(CL_PLATFORM_EXTENSIONS);
    char *suffix = text_of(CL_PLATFORM_ICD_SUFFIX_KHR);
    char *profile = text_of(CL_PLATFORM_PROFILE);
    cl_uint count = 0;

    CHECK(strcmp(profile, "FULL_PROFILE") == 0 || !facts.full);
    CHECK(text_of(CL_PLATFORM_NAME)[0]);
    CHECK(text_of(CL_PLATFORM_VENDOR)[0]);
    CHECK(words_have(extensions, "cl_khr_icd"));
    CHECK(suffix[0] && strlen(suffix) < 16);
    CHECK(facts.platform_version >= facts.version);
    CHECK(clGetPlatformIDs(0, NULL, &count) == CL_SUCCESS && count >= 1);
    if (facts.platform_version >= V(3, 0)) {
        struct versions list = versions_of(CL_PLATFORM_EXTENSIONS_WITH_VERSION);
        cl_version version = 0;

        check_same_names(extensions, &list);
        CHECK(clGetPlatformInfo(facts.platform, CL_PLATFORM_NUMERIC_VERSION, sizeof(version),
                                &version, NULL) == CL_SUCCESS);
        CHECK(CL_VERSION_MAJOR(version) == CL_VERSION_MAJOR(facts.platform_version));
        CHECK(CL_VERSION_MINOR(version) == CL_VERSION_MINOR(facts.platform_version));
    }
    if (facts.platform_version >= V(2, 1))
        check_platform_timer();
}

static void check_c_versions(void)
{
    static const cl_version wanted_versions[] = {V(3, 0), V(1, 2), V(1, 1), V(1, 0)};
    struct versions all = versions_of(CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    bool told = false;

    for (size_t i = 0; i < sizeof(wanted_versions) / sizeof(wanted_versions[0]); i++) {
        bool there = false;

        for (size_t j = 0; j < all.count; j++)
            there = there || all.items[j].version == wanted_versions[i];
        CHECK(there);
    }
    for (size_t i = 0; i < all.count; i++) {
        CHECK(strcmp(all.items[i].name, "OpenCL C") == 0);
        CHECK(all.items[i].version <= facts.version);
        told = told || all.items[i].version == facts.c_version;
    }
    CHECK(told);
    CHECK(facts.c_version >= V(1, 2));
}

/* "SPIR-V_1.2" and {"SPIR-V", 1.2}. */
static void check_ils(void)
{
    char *words = text_of(CL_DEVICE_IL_VERSION);
    struct versions list = versions_of(CL_DEVICE_ILS_WITH_VERSION);
    cl_uint bogus = 0xdeadbeef;
    cl_int error = CL_SUCCESS;

    CHECK(words_count(words) == list.count);
    for (size_t i = 0; i < list.count; i++) {
        char word[128];

        snprintf(word, sizeof(word), "%.64s_%u.%u", list.items[i].name,
                 CL_VERSION_MAJOR(list.items[i].version), CL_VERSION_MINOR(list.items[i].version));
        CHECK(words_have(words, word));
    }
    if (words[0])
        return;
    CHECK(!words_have(facts.extensions, "cl_khr_il_program"));
    if (!wanted("il"))
        return;
    CHECK(!clCreateProgramWithIL(facts.context, &bogus, sizeof(bogus), &error));
    CHECK(error == CL_INVALID_OPERATION);
}

/* vYYYY-MM-DD-XX. */
static void check_conformance(void)
{
    static const char form[] = "v0000-00-00-00";
    char *text = text_of(CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED);
    unsigned month = 0, day = 0;

    CHECK(strlen(text) == strlen(form));
    for (size_t i = 0; form[i] && text[i]; i++)
        CHECK(form[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == form[i]);
    CHECK(sscanf(text, "v%*4u-%2u-%2u", &month, &day) == 2);
    CHECK(month >= 1 && month <= 12 && day >= 1 && day <= 31);
}

void check_versions(void)
{
    CHECK(text_of(CL_DEVICE_NAME)[0]);
    CHECK(text_of(CL_DEVICE_VENDOR)[0]);
    CHECK(text_of(CL_DRIVER_VERSION)[0]);
    text_of(CL_DEVICE_BUILT_IN_KERNELS);
    if (facts.version < V(3, 0))
        return;
    struct versions extensions = versions_of(CL_DEVICE_EXTENSIONS_WITH_VERSION);

    check_same_names(facts.extensions, &extensions);
    CHECK(number32(CL_DEVICE_NUMERIC_VERSION) >> 12 == facts.version >> 12);
    check_c_versions();
    check_ils();
    check_conformance();
    versions_of(CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION);
    if (words_have(facts.extensions, "cl_khr_extended_versioning"))
        CHECK(number32(CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR) >> 12 == facts.c_version >> 12);
}
