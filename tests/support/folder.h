#ifndef RESEAT_TESTS_SUPPORT_FOLDER_H
#define RESEAT_TESTS_SUPPORT_FOLDER_H

#include "tests/support/cases.h"
#include <ftw.h>
#include <unistd.h>

#include "tests/scratch.h"

/* Temporary folders with files in them, which go with the process that made them. */

#define FOLDERS_MAX 4

static char folders_made[FOLDERS_MAX][SCRATCH_MAX];
static unsigned folders_count;
static pid_t folders_maker;

static inline int folder_remove_one(const char *path, const struct stat *stat, int type,
                                    struct FTW *ftw)
{
    (void)stat, (void)type, (void)ftw;
    return remove(path);
}

static inline void folders_remove(void)
{
    for (unsigned i = 0; i < folders_count && getpid() == folders_maker; i++)
        nftw(folders_made[i], folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void folder_make(char path[SCRATCH_MAX])
{
    cr_assert_not_null(mkdtemp(scratch(path, "unit")));
    cr_assert_lt(folders_count, FOLDERS_MAX);
    strcpy(folders_made[folders_count++], path);
    folders_maker = getpid();
    cases_at_end(folders_remove);
}

static inline void folder_put(const char *folder, const char *name, const char *text)
{
    char path[4200];
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
