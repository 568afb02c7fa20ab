#include "state/image/image_graph.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/files/owned.h"

/* Variables that are kept. A "*" at the end: all names that begin so. */
static const char *const kept[] = {
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "OMP_*",
    "POCL_*",
    "OCL_*",
    "RUSTICL_*",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    COMMAND_LINE_ENV_OPTIONS,
};
/* Set again by `reseat run`. */
static const char *const never[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"};

static bool command_line_matches(const char *pattern, const char *name, size_t length)
{
    size_t size = strlen(pattern);
    bool begins = size && pattern[size - 1] == '*';
    return begins ? length >= size - 1 && strncmp(pattern, name, size - 1) == 0
                  : length == size && strncmp(pattern, name, size) == 0;
}

/* True for names that the user added. */
static bool command_line_is_added(const char *name, size_t length)
{
    for (const char *at = getenv(COMMAND_LINE_ENV_KEPT); at && *at;) {
        size_t size = strcspn(at, ",");
        if (size == length && strncmp(at, name, size) == 0)
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

static bool command_line_is_kept(const char *variable)
{
    size_t length = strcspn(variable, "=");
    bool known = variable[length] == '=' && command_line_is_added(variable, length);
    for (size_t i = 0; i < ARRAY_SIZE(kept) && !known; i++)
        known = variable[length] == '=' && command_line_matches(kept[i], variable, length);
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        known = known && !command_line_matches(never[i], variable, length);
    return known;
}

/* Read a whole file of /proc, whose size is not known before. */
static int command_line_read_all(const char *path, struct image_blob *ret_blob)
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    int error = owned_take(open(path, O_RDONLY | O_CLOEXEC), &file);
    if (error)
        return error;
    unsigned char *bytes = malloc(IMAGE_COMMAND_MAX + 1);
    if (!bytes)
        return -ENOMEM;
    size_t size = 0;
    ssize_t got = 1;
    while (got > 0 && size <= IMAGE_COMMAND_MAX) {
        got = read(owned_fd(&file), bytes + size, IMAGE_COMMAND_MAX + 1 - size);
        size += got > 0 ? (size_t)got : 0;
    }
    error = got < 0 ? -errno : size > IMAGE_COMMAND_MAX ? -E2BIG : 0;
    if (error)
        free(bytes);
    else
        *ret_blob = (struct image_blob){bytes, size};
    return error;
}

static int command_line_read_link(const char *path, struct image_blob *ret_blob)
{
    char target[PATH_MAX];
    ssize_t size = readlink(path, target, sizeof(target));
    if (size <= 0 || size == sizeof(target))
        return size < 0 ? -errno : -ENAMETOOLONG;
    ret_blob->bytes = malloc((size_t)size);
    if (!ret_blob->bytes)
        return -ENOMEM;
    memcpy(ret_blob->bytes, target, (size_t)size);
    ret_blob->size = (size_t)size;
    return 0;
}

/* Remove variables that are not kept, and those without a terminating NUL. */
static void command_line_sift(struct image_blob *environment)
{
    size_t left = 0;
    for (size_t at = 0; at < environment->size;) {
        char *variable = (char *)environment->bytes + at;
        size_t size = strnlen(variable, environment->size - at) + 1;
        if (size > environment->size - at)
            break;
        at += size;
        if (!command_line_is_kept(variable))
            continue;
        memmove(environment->bytes + left, variable, size);
        left += size;
    }
    /* Clear the rest, which may hold secrets. */
    explicit_bzero(environment->bytes + left, environment->size - left);
    environment->size = left;
}

int command_line_describe(struct image_manifest *manifest)
{
    struct image_record *record = image_manifest_add(manifest, IMAGE_COMMAND);
    if (!record)
        return -ENOMEM;
    struct image_command *command = record->command;
    int error = command_line_read_link("/proc/self/exe", &command->executable);
    if (!error)
        error = command_line_read_link("/proc/self/cwd", &command->directory);
    if (!error)
        error = command_line_read_all("/proc/self/cmdline", &command->arguments);
    if (!error &&
        (!command->arguments.size || command->arguments.bytes[command->arguments.size - 1] != '\0'))
        error = -ENODATA; /* the program overwrote it */
    /* An environment that is too long is left out. */
    if (!error && command_line_read_all("/proc/self/environ", &command->environment) == 0)
        command_line_sift(&command->environment);
    if (!error)
        return 0;
    image_record_finish(record);
    manifest->count--;
    return error;
}
