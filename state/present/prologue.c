#include "state/present/prologue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"

/* Names come from drivers: only what is a macro's name gets into a program's source. */
static bool prologue_is_macro(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    if (strncmp(name, "cl", 2) != 0 && strncmp(name, "__opencl_c_", 11) != 0)
        return false;
    return !name[strspn(name, letters)];
}

/* Each name once. */
static void prologue_hide(FILE *text, const char *name, char *hidden, size_t size)
{
    size_t used = strlen(hidden);

    if (!prologue_is_macro(name) || devinfo_names_have(hidden, name) ||
        used + strlen(name) + 2 > size)
        return;
    sprintf(hidden + used, "%s%s", used ? " " : "", name);
    fprintf(text, "#undef %s\n", name);
}

static void prologue_extensions(const struct proposal *proposal, const struct devinfo *device,
                                FILE *text, char *hidden, size_t size)
{
    const char *names = devinfo_string(device, CL_DEVICE_EXTENSIONS);
    char CLEANUP(cleanup_free) *words = strdup(names);
    char *rest = NULL;

    for (char *word = words ? strtok_r(words, " ", &rest) : NULL; word;
         word = strtok_r(NULL, " ", &rest))
        if (!proposal_has_extension(proposal, word))
            prologue_hide(text, word, hidden, size);
}

static void prologue_features(const struct proposal *proposal, const struct devinfo *device,
                              FILE *text, char *hidden, size_t size)
{
    const struct devinfo_value *list = devinfo_find(device, CL_DEVICE_OPENCL_C_FEATURES);

    for (size_t i = 0; i < devinfo_list_count(list); i++) {
        const cl_name_version entry = devinfo_list_entry(list, i);

        if (!proposal_has_feature(proposal, entry.name))
            prologue_hide(text, entry.name, hidden, size);
    }
}

int prologue_text(const struct proposal *proposal, char **ret_text)
{
    char CLEANUP(cleanup_free) *hidden = calloc(1, 16384);
    char *result = NULL;
    size_t size = 0;
    FILE *text = hidden ? open_memstream(&result, &size) : NULL;
    bool other = false;

    if (!text)
        return -ENOMEM;
    for (size_t i = 0; i < proposal->common.count; i++) {
        prologue_extensions(proposal, proposal->common.devices[i], text, hidden, 16384);
        prologue_features(proposal, proposal->common.devices[i], text, hidden, 16384);
        other = other || devinfo_version(proposal->common.devices[i]) != proposal->version;
    }
    if (other)
        fprintf(text, "#undef __OPENCL_VERSION__\n#define __OPENCL_VERSION__ %u%u0\n",
                CL_VERSION_MAJOR(proposal->version), CL_VERSION_MINOR(proposal->version));
    if (!devinfo_scalar(&proposal->answers, CL_DEVICE_IMAGE_SUPPORT, 0))
        fprintf(text, "#undef __IMAGE_SUPPORT__\n");
    fflush(text);
    if (size)
        fprintf(text, "#line 1\n");
    if (fclose(text) != 0) {
        free(result);
        return -ENOMEM;
    }
    *ret_text = result;
    return 0;
}
