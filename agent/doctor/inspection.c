#include "agent/doctor/inspection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"

#define STRINGS_MAX 65536

void strings_finish(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (struct strings){0};
}

bool strings_have(const struct strings *strings, const char *text)
{
    for (size_t i = 0; i < strings->count; i++)
        if (strcmp(strings->items[i], text) == 0)
            return true;
    return false;
}

int strings_add(struct strings *strings, const char *text)
{
    if (strings->count >= STRINGS_MAX || strings_have(strings, text))
        return 0;
    char **grown = realloc(strings->items, (strings->count + 1) * sizeof(*grown));
    char *copy = grown ? strdup(text) : NULL;
    if (grown)
        strings->items = grown;
    if (!copy)
        return -ENOMEM;
    grown[strings->count++] = copy;
    return 0;
}

void inspection_say(struct inspection *inspection, const char *mark, const char *format, ...)
{
    va_list arguments;
    char text[2 * PATH_MAX];

    inspection->stopped = inspection->stopped || strcmp(mark, "stop") == 0;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* The text can quote names from files that another user wrote. */
    text_make_safe(text, sizeof(text), text, strlen(text));
    if (mark[0])
        fprintf(inspection->to, "%-5s ", mark);
    fprintf(inspection->to, "%s\n", text);
}

static bool inspection_is_program(const char *path)
{
    struct stat stat_now;

    return stat(path, &stat_now) == 0 && S_ISREG(stat_now.st_mode);
}

int inspection_find(const char *name, char ret[PATH_MAX])
{
    const char *list = getenv("PATH");

    if (strchr(name, '/'))
        return inspection_is_program(name) && realpath(name, ret) ? 0 : -ENOENT;
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "/usr/local/bin:/usr/bin:/bin");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part; part = strsep(&rest, ":")) {
        char path[PATH_MAX];
        if (!paths_join(*part ? part : ".", name, path) && inspection_is_program(path) &&
            access(path, X_OK) == 0 && realpath(path, ret))
            return 0;
    }
    return -ENOENT;
}

void inspection_finish(struct inspection *inspection)
{
    strings_finish(&inspection->programs);
    strings_finish(&inspection->seen);
    strings_finish(&inspection->names);
    strings_finish(&inspection->uses);
    strings_finish(&inspection->search);
}
