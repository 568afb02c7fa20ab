#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/library/library_priv.h"

/* What was begun that long ago, nobody writes any more. */
#define UNFINISHED_S 3600

static uint64_t library_list_time_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * NS_PER_S + (uint64_t)time->tv_nsec;
}

static int library_list_by_use(const void *a, const void *b)
{
    const struct library_file *one = a, *other = b;
    if (one->used_ns != other->used_ns)
        return one->used_ns < other->used_ns ? -1 : 1;
    return strcmp(one->name, other->name);
}

static void library_list_remove_unfinished(const struct owned *folder, const char *name,
                                           const struct stat *stat)
{
    uint64_t now_s = clock_wall_ms() / 1000;
    if ((uint64_t)stat->st_mtim.tv_sec + UNFINISHED_S < now_s)
        (void)!unlinkat(owned_fd(folder), name, 0);
}

static int library_list_add_file(const struct owned *folder, const char *name,
                                 struct library_file **files, size_t *count)
{
    struct library_key key;
    struct stat stat;
    if (fstatat(owned_fd(folder), name, &stat, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(stat.st_mode))
        return 0;
    if (strncmp(name, LIBRARY_UNFINISHED, strlen(LIBRARY_UNFINISHED)) == 0)
        library_list_remove_unfinished(folder, name, &stat);
    if (!library_key_read(name, &key))
        return 0;
    if (!array_make_room(files, *count, sizeof(**files)))
        return -ENOMEM;
    struct library_file *file = &(*files)[(*count)++];
    uint64_t read = library_list_time_ns(&stat.st_atim),
             written = library_list_time_ns(&stat.st_mtim);
    file->size = (uint64_t)stat.st_size;
    file->used_ns = read > written ? read : written;
    strcpy(file->name, name);
    return 0;
}

int library_files(const struct owned *folder, struct library_file **ret_files, size_t *ret_count)
{
    struct owned again = OWNED_NONE;
    struct library_file *files = NULL;
    size_t count = 0;
    /* A descriptor of its own: reading moves it on, and closes it. */
    int err = owned_take(openat(owned_fd(folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &again);
    if (err)
        return err;
    DIR *list = fdopendir(owned_fd(&again));
    if (!list) {
        err = -errno;
        owned_close(&again);
        return err;
    }
    for (const struct dirent *entry; !err && (entry = readdir(list));)
        err = library_list_add_file(folder, entry->d_name, &files, &count);
    closedir(list);
    if (err) {
        free(files);
        return err;
    }
    if (count)
        qsort(files, count, sizeof(*files), library_list_by_use);
    *ret_files = files;
    *ret_count = count;
    return 0;
}

/* Keep the strings of a listing, and nothing else of the file. */
static int library_list_keep_strings(struct library_item *item)
{
    const char **const strings[] = {&item->entry.device, &item->entry.platform, &item->entry.driver,
                                    &item->entry.kernels};
    size_t size = 0;
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        size += strlen(*strings[i]) + 1;
    char *at = malloc(size);
    if (!at)
        return -ENOMEM;
    item->entry.bytes = at;
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        size_t length = strlen(*strings[i]) + 1;
        *strings[i] = memcpy(at, *strings[i], length);
        at += length;
    }
    item->entry.log = "";
    item->entry.binary = NULL;
    return 0;
}

/* Its front, or all of it; a front that is longer than most is read again. */
static int library_list_read_item(const struct owned *folder, bool whole, struct library_item *item)
{
    struct library_key key;
    uint64_t file_size;
    size_t size;
    int err = library_key_read(item->name, &key) ? -EBADMSG : -EINVAL;
    for (size_t limit = whole ? SIZE_MAX : LIBRARY_FRONT_SIZE; err == -EBADMSG; limit = SIZE_MAX) {
        unsigned char *CLEANUP(cleanup_free) bytes = NULL;
        err = library_read_file(folder, item->name, limit, false, &bytes, &size, &file_size);
        if (err)
            return err;
        err = library_entry_read(bytes, size, file_size, &key, &item->entry);
        if (!err)
            err = library_list_keep_strings(item);
        if (size == file_size)
            break;
    }
    return err;
}

int library_list(const struct library *library, bool whole, struct library_list *ret_list,
                 char *ret_problem)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    struct library_file *CLEANUP(cleanup_free) files = NULL;
    struct library_list list = {0};
    size_t count = 0;
    int err = library_open(library, &folder, ret_problem);
    if (err)
        return err;
    err = library_files(&folder, &files, &count);
    if (!err && count && !(list.items = calloc(count, sizeof(*list.items))))
        err = -ENOMEM;
    for (size_t i = count; !err && i-- > 0;) {
        struct library_item *item = &list.items[list.count];
        strcpy(item->name, files[i].name);
        item->size = files[i].size;
        item->used_ms = files[i].used_ns / NS_PER_MS;
        int read = library_list_read_item(&folder, whole, item);
        /* Another process removed it. */
        if (read == -ENOENT)
            continue;
        err = read == -ENOMEM ? read : 0;
        item->damaged = read != 0;
        if (read)
            item->entry = (struct library_entry){0};
        list.size += item->size;
        list.count++;
    }
    if (err) {
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s: %s", library->folder, strerror(-err));
        library_list_finish(&list);
        return err;
    }
    *ret_list = list;
    return 0;
}

void library_list_finish(struct library_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        library_entry_finish(&list->items[i].entry);
    free(list->items);
    *list = (struct library_list){0};
}
