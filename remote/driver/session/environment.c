#include "remote/driver/session/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool environment_is_told(const char *variable)
{
    static const char *const ours[] = {"RESEAT_",         "LD_",    "OCL_ICD_", "OPENCL_",
                                       "GLIBC_TUNABLES=", "MALLOC_"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0)
            return false;
    return strchr(variable, '=') != NULL;
}

static void environment_add(FILE *file, const char *text)
{
    fwrite(text, 1, strlen(text) + 1, file);
}

int environment_tell(const char *icd, char **ret_text, size_t *ret_size)
{
    char folder[PATH_MAX], *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return -ENOMEM;
    environment_add(file, getcwd(folder, sizeof(folder)) && folder[0] == '/' ? folder : "/");
    fputs("OCL_ICD_VENDORS=", file);
    environment_add(file, icd);
    for (char **at = environ; *at; at++)
        if (environment_is_told(*at))
            environment_add(file, *at);
    if (fclose(file)) {
        free(text);
        return -ENOMEM;
    }
    *ret_text = text;
    *ret_size = size;
    return 0;
}
