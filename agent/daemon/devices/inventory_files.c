#include "agent/daemon/devices/inventory_files.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/programs/registry.h"

#define PREFIX "inventory"
#define DIGITS 16 /* Hexadecimal digits in a list's file name, after the prefix and a dash. */

struct list {
    char name[PROGRAM_INVENTORY_MAX];
    struct timespec changed;
};

static bool inventory_files_is_list(const char *name)
{
    const char *digits = name + strlen(PREFIX "-");

    return strncmp(name, PREFIX "-", strlen(PREFIX "-")) == 0 && strlen(digits) == DIGITS &&
           strspn(digits, "0123456789abcdef") == DIGITS;
}

static bool inventory_files_is_read(const struct agent *agent, const char *name)
{
    const char *last = strrchr(agent->devices.own_path, '/');

    if (strcmp(name, PREFIX) == 0 || (last && strcmp(name, last + 1) == 0))
        return true;
    for (const struct program *program = agent->programs; program; program = program->next)
        if (strcmp(name, program->inventory) == 0)
            return true;
    return false;
}

static bool inventory_files_is_older(const struct list *a, const struct list *b)
{
    return a->changed.tv_sec != b->changed.tv_sec ? a->changed.tv_sec < b->changed.tv_sec
                                                  : a->changed.tv_nsec < b->changed.tv_nsec;
}

/**
 * Keep @name among the newest files. Where enough are kept already, the oldest of all is removed.
 */
static void inventory_files_keep_newest(int folder, const char *name, struct list *kept,
                                        size_t *count)
{
    struct list one;
    struct stat stat;

    if (fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW))
        return;
    one.changed = stat.st_mtim;
    memcpy(one.name, name, strlen(name) + 1);
    if (*count < INVENTORY_FILES_KEPT) {
        kept[(*count)++] = one;
        return;
    }
    struct list *oldest = &kept[0];
    for (size_t i = 1; i < *count; i++)
        oldest = inventory_files_is_older(&kept[i], oldest) ? &kept[i] : oldest;
    if (inventory_files_is_older(&one, oldest)) {
        unlinkat(folder, one.name, 0);
    } else {
        unlinkat(folder, oldest->name, 0);
        *oldest = one;
    }
}

static void inventory_files_tidy_folder(const struct agent *agent, const char *path)
{
    struct list kept[INVENTORY_FILES_KEPT];
    const struct dirent *entry;
    size_t count = 0;
    DIR *folder = opendir(path);

    while (folder && (entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || inventory_files_is_read(agent, name))
            continue;
        if (inventory_files_is_list(name))
            inventory_files_keep_newest(dirfd(folder), name, kept, &count);
        else
            unlinkat(dirfd(folder), name, 0);
    }
    if (folder)
        closedir(folder);
}

void inventory_files_tidy(const struct agent *agent)
{
    inventory_files_tidy_folder(agent, agent->paths.folder);
    if (strcmp(agent->devices.lists, agent->paths.folder) != 0)
        inventory_files_tidy_folder(agent, agent->devices.lists);
}
