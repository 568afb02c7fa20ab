#include "tests/fuzz/fuzz.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

void fuzz_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, expression);
    abort();
}

uint8_t input_byte(struct input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->at++;
}

uint16_t input_short(struct input *input)
{
    uint8_t low = input_byte(input);
    return (uint16_t)(low | input_byte(input) << 8);
}

const uint8_t *input_bytes(struct input *input, size_t size, size_t *ret_size)
{
    const uint8_t *bytes = input->at;
    *ret_size = size < input->left ? size : input->left;
    input->at += *ret_size;
    input->left -= *ret_size;
    return bytes;
}

char *input_string(struct input *input)
{
    const void *end = input->left ? memchr(input->at, '\0', input->left) : NULL;
    size_t length = end ? (size_t)((const uint8_t *)end - input->at) : input->left;
    char *string = malloc(length + 1);
    size_t taken;
    const uint8_t *bytes = input_bytes(input, length, &taken);
    EXPECT(string);
    if (taken)
        memcpy(string, bytes, taken);
    string[taken] = '\0';
    (void)input_byte(input);
    return string;
}

void *fuzz_copy(const void *data, size_t size)
{
    void *copy = malloc(size);
    EXPECT(copy || size == 0);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "%s/reseat-fuzz.XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        EXPECT(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

void fuzz_file(const char *name, const void *data, size_t size, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(ret_path, "we");
    EXPECT(file);
    EXPECT(fwrite(data, 1, size, file) == size);
    EXPECT(fclose(file) == 0);
}
