#include "agent/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
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

bool inspection_is_file(const char *path)
{
    struct stat stat_now;

    return stat(path, &stat_now) == 0 && S_ISREG(stat_now.st_mode);
}

/** Find a program as execvp() would. Returns 0 or -ENOENT. */
static int doctor_find(const char *name, char ret[PATH_MAX])
{
    const char *list = getenv("PATH");

    if (strchr(name, '/'))
        return inspection_is_file(name) && realpath(name, ret) ? 0 : -ENOENT;
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "/usr/local/bin:/usr/bin:/bin");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part; part = strsep(&rest, ":")) {
        char path[PATH_MAX];
        if (!paths_join(*part ? part : ".", name, path) && inspection_is_file(path) &&
            access(path, X_OK) == 0 && realpath(path, ret))
            return 0;
    }
    return -ENOENT;
}

#define DEPTH_MAX 4 /* Longest chain of scripts that interpret each other. */

/**
 * Read the program named by the #! line of @path. For /usr/bin/env it is the command that env runs.
 * Returns 0, or -ENOEXEC (@path has no such line).
 */
static int doctor_interpreter(const char *path, char ret[PATH_MAX])
{
    char line[512];
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

    if (size < 3 || line[0] != '#' || line[1] != '!')
        return -ENOEXEC;
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2;
    char *first = strtok_r(rest, " \t", &rest);
    if (!first)
        return -ENOEXEC;
    const char *slash = strrchr(first, '/');
    if (slash && strcmp(slash, "/env") == 0) {
        char *word = strtok_r(NULL, " \t", &rest);
        while (word && (word[0] == '-' || strchr(word, '=')))
            word = strtok_r(NULL, " \t", &rest);
        first = word ? word : first;
    }
    snprintf(ret, PATH_MAX, "%s", first);
    return 0;
}

static void doctor_check_privilege(struct inspection *inspection, const char *path, bool script)
{
    struct stat now;
    bool other = stat(path, &now) == 0 && now.st_mode & (S_ISUID | S_ISGID);

    if (other && script) {
        inspection_say(inspection, "note", "%s is a script: that it is set-user-id has no effect",
                       path);
    } else if (other) {
        inspection_say(
            inspection, "stop",
            "%s is set-user-id or set-group-id: the dynamic linker ignores LD_PRELOAD and "
            "loaders ignore OCL_ICD_VENDORS; run a copy without that bit",
            path);
    }
    if (getxattr(path, "security.capability", NULL, 0) > 0) {
        inspection_say(
            inspection, "stop",
            "%s has file capabilities: the dynamic linker ignores LD_PRELOAD; run a copy "
            "without them",
            path);
    }
}

/** Examine a command and, for a script, its interpreter. Findings go into @inspection. */
static int doctor_look_at(struct inspection *inspection, const char *program)
{
    char path[PATH_MAX], next[PATH_MAX];
    int error = doctor_find(program, path);

    if (error || inspection->depth == DEPTH_MAX)
        return error;
    inspection->depth++;
    bool script = !doctor_interpreter(path, next);
    doctor_check_privilege(inspection, path, script);
    if (!script) {
        error = strings_add(&inspection->programs, path);
        error = error ? error : strings_add(&inspection->seen, path);
    } else {
        inspection->machine = true;
        inspection_say(inspection, "ok",
                       "%s is a script, run by %s; what it starts or imports is not looked at",
                       path, next);
        error = doctor_look_at(inspection, next);
        if (error == -ENOENT) {
            inspection_say(inspection, "stop", "%s is a script whose interpreter is not there",
                           path);
            error = 0;
        }
    }
    inspection->depth--;
    return error;
}

static int doctor_check_entry_points(struct inspection *inspection, const char *library)
{
    struct elf_facts facts = {0};
    size_t missing = 0;

    if (!library) {
        inspection_say(inspection, "stop",
                       "libreseat.so is not installed beside this binary; reinstall reseat");
        return 0;
    }
    int error = elf_facts_read(library, &facts);
    if (error) {
        inspection_say(inspection, "stop", "%s cannot be read: %s", library, strerror(-error));
        return error == -ENOMEM ? error : 0;
    }
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < inspection->uses.count; i++) {
        if (strings_have(&facts.offers, inspection->uses.items[i]))
            continue;
        missing++;
        if (used < sizeof(list)) {
            int length = snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
                                  inspection->uses.items[i]);
            used += length > 0 ? (size_t)length : 0;
        }
    }
    if (missing) {
        inspection_say(inspection, "stop",
                       "it calls %zu OpenCL functions that reseat does not cover: %s%s", missing,
                       list, used >= sizeof(list) ? "..." : "");
    }
    if (inspection->uses.count && !missing) {
        inspection_say(inspection, "ok",
                       "all %zu OpenCL functions that it is linked against are covered",
                       inspection->uses.count);
    }
    elf_facts_finish(&facts);
    return 0;
}

static void doctor_sum_up(struct inspection *inspection, const char *program, enum road *ret_road)
{
    if (inspection->stopped) {
        *ret_road = ROAD_NONE;
        inspection_say(inspection, "", "%s cannot be moved by reseat as it is", program);
    } else if (inspection->linked) {
        *ret_road = ROAD_PRELOAD;
        inspection_say(inspection, "", "%s can be moved: it takes road preload%s", program,
                       inspection->opens ? ", and ICD for what it opens at run time" : "");
    } else if (inspection->opens) {
        *ret_road = ROAD_ICD;
        inspection_say(inspection, "", "%s can be moved: it takes road ICD", program);
    } else {
        *ret_road = ROAD_UNKNOWN;
        inspection_say(inspection, "",
                       "%s shows no sign of OpenCL; %s that it %s take road preload or ICD",
                       program, inspection->machine ? "programs" : "plugins and modules",
                       inspection->machine ? "runs" : "opens");
    }
}

int doctor_program(char *const *command, const char *library, FILE *to, enum road *ret_road)
{
    struct inspection inspection = {.to = to};
    int error = doctor_look_at(&inspection, command[0]);

    if (!error)
        error = linkage_check(&inspection);
    if (!error)
        error = doctor_check_entry_points(&inspection, library);
    if (!error)
        doctor_sum_up(&inspection, command[0], ret_road);
    strings_finish(&inspection.programs);
    strings_finish(&inspection.seen);
    strings_finish(&inspection.names);
    strings_finish(&inspection.uses);
    strings_finish(&inspection.search);
    return error;
}
