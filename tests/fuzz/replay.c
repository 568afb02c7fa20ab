#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

/* Runs a harness over files and folders of files, without libFuzzer: with any compiler. */

#define SIZE_LIMIT (64l << 20)

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "re");
    struct stat status;
    if (!file || fstat(fileno(file), &status) != 0 || status.st_size > SIZE_LIMIT) {
        fprintf(stderr, "%s cannot be read\n", path);
        if (file)
            fclose(file);
        return -1;
    }
    size_t size = (size_t)status.st_size;
    uint8_t *data = malloc(size ? size : 1);
    size_t got = data ? fread(data, 1, size, file) : 0;
    fclose(file);
    if (!data || got != size) {
        free(data);
        fprintf(stderr, "%s cannot be read\n", path);
        return -1;
    }
    /* Of the exact size. */
    uint8_t *exact = fuzz_copy(data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 1;
}

/* Returns how many files it ran, or -1. */
static int replay(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int count = 0;
    if (!folder)
        return replay_file(path);
    while (count >= 0 && (entry = readdir(folder))) {
        char inside[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        int ran = length < (int)sizeof(inside) ? replay_file(inside) : -1;
        count = ran < 0 ? -1 : count + ran;
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        int ran = replay(argv[i]);
        if (ran < 0)
            return 1;
        count += ran;
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
