#ifndef RESEAT_TESTS_FOLDER_H
#define RESEAT_TESTS_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A temporary folder with files in it. Left in the system's folder for such things. */

static inline void folder_make(char path[64])
{
    snprintf(path, 64, "/tmp/reseat-unit-XXXXXX");
    cr_assert_not_null(mkdtemp(path));
}

static inline void folder_put(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "we");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/* No variable of the machine that runs the tests may reach them. */
static inline void folder_clean_environment(void)
{
    unsetenv("RESEAT_ICD_VENDORS");
    unsetenv("RESEAT_ICD_FILENAMES");
    unsetenv("OCL_ICD_VENDORS");
    unsetenv("OCL_ICD_FILENAMES");
    unsetenv("OPENCL_VENDOR_PATH");
}

#endif
