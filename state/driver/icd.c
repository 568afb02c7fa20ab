#include "state/driver/icd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/bytes/text.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/driver/driver.h"

#define DEFAULT_FOLDER "/etc/OpenCL/vendors"
#define ICD_SUFFIX     ".icd"
#define LIST_MAX       128 /* Drivers; more is a mistake in the variables. */

bool icd_is_ours(const char *library)
{
    static const char ours[] = "libreseat.so";
    const char *slash = strrchr(library, '/');

    return !strncmp(slash ? slash + 1 : library, ours, sizeof(ours) - 1);
}

static bool icd_is_icd_name(const char *name)
{
    size_t length = strlen(name), end = strlen(ICD_SUFFIX);

    return length > end && !strcmp(name + length - end, ICD_SUFFIX);
}

static int icd_list_add(struct icd_list *list, const char *library)
{
    char *copy;

    if (strlen(library) >= ICD_NAME_SIZE || list->count >= LIST_MAX ||
        !text_is_safe(library, strlen(library))) {
        log_warn(
            "driver %.64s... skipped: its name is over %d bytes or no plain text, or there are "
            "over %d drivers",
            library, ICD_NAME_SIZE - 1, LIST_MAX);
        return 0;
    }
    if (icd_is_ours(library))
        return 0;
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->libraries[i], library))
            return 0;
    copy = strdup(library);
    if (!copy)
        return -ENOMEM;
    if (!array_make_room(&list->libraries, list->count, sizeof(copy))) {
        free(copy);
        return -ENOMEM;
    }
    list->libraries[list->count++] = copy;
    return 0;
}

/* An .icd file holds the name of one library in its first line, with or without a newline. */
static int icd_add_file(struct icd_list *list, const char *path)
{
    char text[4096];
    char *name = text;
    struct stat status;
    ssize_t length;
    /* O_NONBLOCK: a FIFO in the folder must not hang the program. */
    struct owned CLEANUP(owned_close) file = OWNED_NONE;

    if (owned_take(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), &file) != 0 ||
        fstat(owned_fd(&file), &status) < 0 || !S_ISREG(status.st_mode)) {
        log_warn("%s skipped: not a readable file", path);
        return 0;
    }
    do
        length = read(owned_fd(&file), text, sizeof(text) - 1);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        length = 0;
    text[length] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    name += strspn(name, " \t");
    for (size_t end = strlen(name); end && strchr(" \t", name[end - 1]); end--)
        name[end - 1] = '\0';
    if (!name[0]) {
        log_warn("%s skipped: it names no library", path);
        return 0;
    }
    return icd_list_add(list, name);
}

static int icd_is_icd_file(const struct dirent *entry)
{
    return icd_is_icd_name(entry->d_name);
}

/* Not alphasort: the program's locale must not change the order. */
static int icd_compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int icd_add_folder(struct icd_list *list, const char *folder)
{
    struct dirent **names = NULL;
    int count = scandir(folder, &names, icd_is_icd_file, icd_compare_names);
    int err = 0;

    if (count < 0) {
        log_info("no drivers in %s: %m", folder);
        return errno == ENOMEM ? -ENOMEM : 0;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        int length = snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);

        if (!err && length > 0 && (size_t)length < sizeof(path))
            err = icd_add_file(list, path);
        free(names[i]);
    }
    free(names);
    return err;
}

/* The value is a folder, an .icd file (in the default folder when it has no slash), or a library.
 */
static int icd_add_vendors(struct icd_list *list, const char *value, const char *default_folder)
{
    struct stat status;
    char path[4096];

    if (value[strlen(value) - 1] == '/' || (stat(value, &status) == 0 && S_ISDIR(status.st_mode)))
        return icd_add_folder(list, value);
    if (!icd_is_icd_name(value))
        return icd_list_add(list, value);
    if (strchr(value, '/') || access(value, R_OK) == 0)
        return icd_add_file(list, value);
    if (snprintf(path, sizeof(path), "%s/%s", default_folder, value) >= (int)sizeof(path))
        return 0;
    return icd_add_file(list, path);
}

static int icd_add_filenames(struct icd_list *list, const char *value)
{
    char *copy = strdup(value), *rest = copy, *name;
    int err = 0;

    if (!copy)
        return -ENOMEM;
    while (!err && (name = strsep(&rest, ":")))
        if (name[0])
            err = icd_list_add(list, name);
    free(copy);
    return err;
}

int icd_list_read(struct icd_list *ret_list)
{
    struct icd_list list = {0};
    const char *vendors = secure_getenv(DRIVER_ENV_VENDORS);
    const char *filenames = secure_getenv(DRIVER_ENV_FILENAMES);
    const char *folder = secure_getenv("OPENCL_VENDOR_PATH"); /* ocl-icd's default folder. */
    int err;

    if (!folder || !folder[0])
        folder = DEFAULT_FOLDER;
    if (!vendors)
        vendors = secure_getenv("OCL_ICD_VENDORS");
    if (!vendors || !vendors[0])
        vendors = folder;
    if (!filenames)
        filenames = secure_getenv("OCL_ICD_FILENAMES");

    err = icd_add_vendors(&list, vendors, folder);
    if (!err && filenames)
        err = icd_add_filenames(&list, filenames);
    if (err) {
        icd_list_finish(&list);
        return err;
    }
    *ret_list = list;
    return 0;
}

void icd_list_finish(struct icd_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->libraries[i]);
    free(list->libraries);
    *list = (struct icd_list){0};
}
