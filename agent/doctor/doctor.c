#include "agent/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/config/cleanup.h"
#include "agent/config/paths.h"
#include "agent/doctor/doctor_priv.h"
#include "state/base/text.h"

#define TEXT_MAX (1u << 20)

void doctor_say(struct doctor *doctor, const char *mark, const char *format, ...)
{
    va_list arguments;

    char text[2 * PATH_MAX];

    doctor->stopped = doctor->stopped || strcmp(mark, "stop") == 0;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* Files that are looked at may be anybody's. */
    text_make_safe(text, sizeof(text), text, strlen(text));
    if (mark[0]) {
        fprintf(doctor->to, "%-5s ", mark);
    }
    fprintf(doctor->to, "%s\n", text);
}

static bool is_program(const char *path)
{
    struct stat stat_now;

    return stat(path, &stat_now) == 0 && S_ISREG(stat_now.st_mode);
}

int doctor_find(const char *name, char ret[PATH_MAX], char *ret_asked)
{
    const char *list = getenv("PATH");

    if (strchr(name, '/')) {
        if (ret_asked) {
            snprintf(ret_asked, PATH_MAX, "%s", name);
        }
        return is_program(name) && realpath(name, ret) ? 0 : -ENOENT;
    }
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "/usr/local/bin:/usr/bin:/bin");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part; part = strsep(&rest, ":")) {
        char path[PATH_MAX];
        if (!paths_join(*part ? part : ".", name, path) && is_program(path) &&
            access(path, X_OK) == 0 && realpath(path, ret)) {
            if (ret_asked) {
                memcpy(ret_asked, path, sizeof(path));
            }
            return 0;
        }
    }
    return -ENOENT;
}

char *doctor_read(const char *path, size_t *ret_size)
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = fd < 0 ? NULL : malloc(TEXT_MAX + 1);
    ssize_t size = text ? read(fd, text, TEXT_MAX) : -1;

    if (size < 0) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    *ret_size = (size_t)size;
    return text;
}

/** The program that the #! line names, as it is written there; -ENOEXEC where there is none. */
static int interpreter(const char *path, char ret[PATH_MAX])
{
    char line[512];
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

    if (size < 3 || line[0] != '#' || line[1] != '!') {
        return -ENOEXEC;
    }
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2;
    char *first = strtok_r(rest, " \t", &rest);
    if (!first) {
        return -ENOEXEC;
    }
    const char *slash = strrchr(first, '/');
    if (slash && strcmp(slash, "/env") == 0) {
        char *word = strtok_r(NULL, " \t", &rest);
        while (word && (word[0] == '-' || strchr(word, '='))) {
            word = strtok_r(NULL, " \t", &rest);
        }
        first = word ? word : first;
    }
    snprintf(ret, PATH_MAX, "%s", first);
    return 0;
}

static void check_privilege(struct doctor *doctor, const char *path, bool script)
{
    struct stat now;
    bool other = stat(path, &now) == 0 && now.st_mode & (S_ISUID | S_ISGID);

    if (other && script) {
        doctor_say(doctor, "note", "%s is a script: that it is set-user-id has no effect", path);
    } else if (other) {
        doctor_say(doctor, "stop",
                   "%s is set-user-id or set-group-id: the dynamic linker ignores LD_PRELOAD and "
                   "loaders ignore OCL_ICD_VENDORS; run a copy without that bit",
                   path);
    }
    if (getxattr(path, "security.capability", NULL, 0) > 0) {
        doctor_say(doctor, "stop",
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
        if (strcmp(slash ? slash + 1 : path, shells[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_python(const char *path)
{
    return is_called(path, "python") || is_called(path, "pypy");
}

/** An ELF file that is run. */
static int take_program(struct doctor *doctor, const char *path)
{
    int error = strings_add(&doctor->programs, path);

    return error ? error : strings_add(&doctor->seen, path);
}

/** What python's arguments say it runs. */
static int look_python(struct doctor *doctor, char *const *arguments, const char *asked)
{
    size_t at = 0;

    while (arguments[at] && arguments[at][0] == '-' && arguments[at][1] &&
           strcmp(arguments[at], "-c") && strcmp(arguments[at], "-m")) {
        at += strcmp(arguments[at], "-W") && strcmp(arguments[at], "-X") ? 1 : 2;
        if (!arguments[at - 1]) {
            return 0;
        }
    }
    if (!arguments[at] || strcmp(arguments[at], "-c") == 0) {
        doctor->machine = true;
        return 0;
    }
    if (strcmp(arguments[at], "-m") == 0) {
        return arguments[at + 1] ? doctor_python_module(doctor, arguments[at + 1], ".", asked) : 0;
    }
    return doctor_python(doctor, arguments[at], asked);
}

static int look_script(struct doctor *doctor, const char *path, const char *named)
{
    char *const script[] = {NULL};
    char found[PATH_MAX], asked[PATH_MAX];
    int error;

    if (doctor_find(named, found, asked)) {
        doctor_say(doctor, "stop", "%s is a script whose interpreter is not there", path);
        return 0;
    }
    doctor_say(doctor, "ok", "%s is a script, run by %s", path, found);
    if (is_shell(found) || is_shell(asked)) {
        check_privilege(doctor, found, false);
        return doctor_shell(doctor, path);
    }
    if (is_python(found) || is_python(asked)) {
        error = doctor_python(doctor, path, asked);
        return error ? error : take_program(doctor, found);
    }
    error = doctor_text(doctor, path);
    return error ? error : doctor_look(doctor, named, script);
}

int doctor_look(struct doctor *doctor, const char *program, char *const *arguments)
{
    char *const archive[] = {"-jar", (char *)program, NULL};
    char path[PATH_MAX], asked[PATH_MAX], next[PATH_MAX];
    int error = doctor_find(program, path, asked);

    if (error || doctor->depth == DOCTOR_DEPTH_MAX) {
        return error;
    }
    doctor->depth++;
    bool script = !interpreter(path, next);
    check_privilege(doctor, path, script);
    if (script) {
        error = look_script(doctor, path, next);
        /* pyenv's python3 is a script. */
        if (!error && is_python(asked)) {
            error = look_python(doctor, arguments, asked);
        }
    } else if (doctor_is_archive(path)) {
        error = doctor_look(doctor, "java", archive);
        if (error == -ENOENT) {
            doctor_say(doctor, "stop", "%s is a Java program, and java is not there", path);
            error = 0;
        }
    } else if (is_shell(path) && arguments[0] && arguments[0][0] != '-') {
        error = doctor_shell(doctor, arguments[0]);
    } else {
        error = take_program(doctor, path);
        if (!error && (is_python(path) || is_python(asked))) {
            error = look_python(doctor, arguments, asked);
        } else if (!error && is_called(asked, "java")) {
            error = doctor_java(doctor, arguments);
        }
    }
    doctor->depth--;
    return error;
}

static void finish(struct doctor *doctor)
{
    strings_finish(&doctor->programs);
    strings_finish(&doctor->seen);
    strings_finish(&doctor->names);
    strings_finish(&doctor->modules);
    strings_finish(&doctor->uses);
    strings_finish(&doctor->search);
}

int doctor_look_quietly(struct doctor *doctor, const char *program, char *const *arguments)
{
    CLEANUP(cleanup_free) char *said = NULL;
    size_t size = 0;
    struct doctor part = {.to = open_memstream(&said, &size), .depth = doctor->depth};
    int error = part.to ? doctor_look(&part, program, arguments) : -ENOMEM;

    if (!error) {
        error = doctor_files(&part);
    }
    if (part.to) {
        fclose(part.to);
    }
    /* A command that cannot be found is one that a script may never get to. */
    error = error == -ENOENT ? 0 : error;
    if (!error && (part.linked || part.opens)) {
        fwrite(said, 1, size, doctor->to);
        doctor->stopped = doctor->stopped || part.stopped;
        doctor->linked = doctor->linked || part.linked;
        doctor->opens = doctor->opens || part.opens;
        for (size_t i = 0; i < part.uses.count && !error; i++) {
            error = strings_add(&doctor->uses, part.uses.items[i]);
        }
    }
    finish(&part);
    return error;
}

static int check_entry_points(struct doctor *doctor, const char *library)
{
    struct elf_facts facts = {0};
    size_t missing = 0;

    if (!library) {
        doctor_say(doctor, "stop",
                   "libreseat.so is not installed beside this binary; reinstall reseat");
        return 0;
    }
    int error = elf_facts_read(library, &facts);
    if (error) {
        doctor_say(doctor, "stop", "%s cannot be read: %s", library, strerror(-error));
        return error == -ENOMEM ? error : 0;
    }
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < doctor->uses.count; i++) {
        if (strings_have(&facts.offers, doctor->uses.items[i])) {
            continue;
        }
        missing++;
        if (used < sizeof(list)) {
            int length = snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
                                  doctor->uses.items[i]);
            used += length > 0 ? (size_t)length : 0;
        }
    }
    if (missing) {
        doctor_say(doctor, "stop", "it calls %zu OpenCL functions that reseat does not cover: %s%s",
                   missing, list, used >= sizeof(list) ? "..." : "");
    }
    if (doctor->uses.count && !missing) {
        doctor_say(doctor, "ok", "all %zu OpenCL functions that it is linked against are covered",
                   doctor->uses.count);
    }
    elf_facts_finish(&facts);
    return 0;
}

static void sum_up(struct doctor *doctor, const char *program, enum road *ret_road)
{
    if (doctor->stopped) {
        *ret_road = ROAD_NONE;
        doctor_say(doctor, "", "%s cannot be moved by reseat as it is", program);
    } else if (doctor->linked) {
        *ret_road = ROAD_PRELOAD;
        doctor_say(doctor, "", "%s takes road preload%s", program,
                   doctor->opens ? ", and ICD for what it opens at run time" : "");
    } else if (doctor->opens) {
        *ret_road = ROAD_ICD;
        doctor_say(doctor, "", "%s takes road ICD", program);
    } else {
        *ret_road = ROAD_UNKNOWN;
        doctor_say(doctor, "", "%s shows no sign of OpenCL; %s that it %s take road preload or ICD",
                   program, doctor->machine ? "programs" : "plugins and modules",
                   doctor->machine ? "runs" : "opens");
    }
}

int doctor_program(char *const *command, const char *library, FILE *to, enum road *ret_road)
{
    struct doctor doctor = {.to = to};
    int error = doctor_look(&doctor, command[0], command + 1);

    if (!error) {
        error = doctor_files(&doctor);
    }
    if (!error) {
        error = check_entry_points(&doctor, library);
    }
    if (!error) {
        sum_up(&doctor, command[0], ret_road);
    }
    finish(&doctor);
    return error;
}
