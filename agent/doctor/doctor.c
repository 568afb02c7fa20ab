#include "agent/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "agent/doctor/inspection.h"
#include "state/base/cleanup.h"

/** The program that the #! line names, as it is written there; -ENOEXEC where there is none. */

#define DEPTH_MAX 4 /* Scripts that run scripts. */

static int interpreter(const char *path, char ret[PATH_MAX])
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

static void check_privilege(struct inspection *inspection, const char *path, bool script)
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

/** True when the last part of the path begins with the name: "python3.11". */
static bool is_called(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash ? slash + 1 : path, name, strlen(name)) == 0;
}

static bool is_shell(const char *path)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ksh", "zsh", "busybox"};

    for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
        const char *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, shells[i]) == 0)
            return true;
    }
    return false;
}

static bool is_python(const char *path)
{
    return is_called(path, "python") || is_called(path, "pypy");
}

/** An ELF file that is run. */
static int take_program(struct inspection *inspection, const char *path)
{
    int error = strings_add(&inspection->programs, path);

    return error ? error : strings_add(&inspection->seen, path);
}

/** What python's arguments say it runs. */
static int look_python(struct inspection *inspection, char *const *arguments, const char *asked)
{
    size_t at = 0;

    while (arguments[at] && arguments[at][0] == '-' && arguments[at][1] &&
           strcmp(arguments[at], "-c") && strcmp(arguments[at], "-m")) {
        at += strcmp(arguments[at], "-W") && strcmp(arguments[at], "-X") ? 1 : 2;
        if (!arguments[at - 1])
            return 0;
    }
    if (!arguments[at] || strcmp(arguments[at], "-c") == 0) {
        inspection->machine = true;
        return 0;
    }
    if (strcmp(arguments[at], "-m") == 0)
        return arguments[at + 1] ? python_module(inspection, arguments[at + 1], ".", asked) : 0;
    return python_script(inspection, arguments[at], asked);
}

static int look(struct inspection *inspection, const char *program, char *const *arguments);

/** A command that something else runs; says nothing where it has no sign of OpenCL. */
static int look_quietly(void *context, char *const *command)
{
    struct inspection *inspection = context;
    CLEANUP(cleanup_free) char *said = NULL;
    size_t size = 0;
    struct inspection part = {.to = open_memstream(&said, &size), .depth = inspection->depth};
    int error = part.to ? look(&part, command[0], command + 1) : -ENOMEM;

    if (!error)
        error = linkage_check(&part);
    if (part.to)
        fclose(part.to);
    /* A command that cannot be found is one that a script may never get to. */
    error = error == -ENOENT ? 0 : error;
    if (!error && (part.linked || part.opens)) {
        fwrite(said, 1, size, inspection->to);
        inspection->stopped = inspection->stopped || part.stopped;
        inspection->linked = inspection->linked || part.linked;
        inspection->opens = inspection->opens || part.opens;
        for (size_t i = 0; i < part.uses.count && !error; i++)
            error = strings_add(&inspection->uses, part.uses.items[i]);
    }
    inspection_finish(&part);
    return error;
}

static int look_in_shell(struct inspection *inspection, const char *path)
{
    return shell_commands(path, look_quietly, inspection);
}

static int look_script(struct inspection *inspection, const char *path, const char *named)
{
    char *const script[] = {NULL};
    char found[PATH_MAX], asked[PATH_MAX];
    int error;

    if (inspection_find(named, found, asked)) {
        inspection_say(inspection, "stop", "%s is a script whose interpreter is not there", path);
        return 0;
    }
    inspection_say(inspection, "ok", "%s is a script, run by %s", path, found);
    if (is_shell(found) || is_shell(asked)) {
        check_privilege(inspection, found, false);
        return look_in_shell(inspection, path);
    }
    if (is_python(found) || is_python(asked)) {
        error = python_script(inspection, path, asked);
        return error ? error : take_program(inspection, found);
    }
    linkage_text(inspection, path);
    return look(inspection, named, script);
}

/** A command: a program and its arguments. What is found goes into @inspection. */
static int look(struct inspection *inspection, const char *program, char *const *arguments)
{
    char *const archive[] = {"-jar", (char *)program, NULL};
    char path[PATH_MAX], asked[PATH_MAX], next[PATH_MAX];
    int error = inspection_find(program, path, asked);

    if (error || inspection->depth == DEPTH_MAX)
        return error;
    inspection->depth++;
    bool script = !interpreter(path, next);
    check_privilege(inspection, path, script);
    if (script) {
        error = look_script(inspection, path, next);
        /* pyenv's python3 is a script. */
        if (!error && is_python(asked))
            error = look_python(inspection, arguments, asked);
    } else if (java_is_archive(path)) {
        error = look(inspection, "java", archive);
        if (error == -ENOENT) {
            inspection_say(inspection, "stop", "%s is a Java program, and java is not there", path);
            error = 0;
        }
    } else if (is_shell(path) && arguments[0] && arguments[0][0] != '-') {
        error = look_in_shell(inspection, arguments[0]);
    } else {
        error = take_program(inspection, path);
        if (!error && (is_python(path) || is_python(asked)))
            error = look_python(inspection, arguments, asked);
        else if (!error && is_called(asked, "java"))
            error = java_program(inspection, arguments);
    }
    inspection->depth--;
    return error;
}

static int check_entry_points(struct inspection *inspection, const char *library)
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

static void sum_up(struct inspection *inspection, const char *program, enum road *ret_road)
{
    if (inspection->stopped) {
        *ret_road = ROAD_NONE;
        inspection_say(inspection, "", "%s cannot be moved by reseat as it is", program);
    } else if (inspection->linked) {
        *ret_road = ROAD_PRELOAD;
        inspection_say(inspection, "", "%s takes road preload%s", program,
                       inspection->opens ? ", and ICD for what it opens at run time" : "");
    } else if (inspection->opens) {
        *ret_road = ROAD_ICD;
        inspection_say(inspection, "", "%s takes road ICD", program);
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
    int error = look(&inspection, command[0], command + 1);

    if (!error)
        error = linkage_check(&inspection);
    if (!error)
        error = check_entry_points(&inspection, library);
    if (!error)
        sum_up(&inspection, command[0], ret_road);
    inspection_finish(&inspection);
    return error;
}
