#include "agent/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/cleanup.h"
#include "agent/paths.h"

#define SCRIPTS_MAX   4
#define LIBRARIES_MAX 1024

struct doctor {
    FILE *to;
    bool stopped;
    bool linked;          /**< It or a library of it is linked against a loader. */
    bool opens;           /**< It or a library of it opens one. */
    struct strings seen;  /**< Files that were looked at; grows while it is walked. */
    struct strings names; /**< Sonames that were looked for. */
    struct strings uses;
    struct strings search; /**< Folders of the rpaths seen. */
};

static void say(struct doctor *doctor, const char *mark, const char *format, ...) PRINTF(3, 4);

static void say(struct doctor *doctor, const char *mark, const char *format, ...)
{
    va_list arguments;

    doctor->stopped = doctor->stopped || strcmp(mark, "stop") == 0;
    fprintf(doctor->to, "%-5s ", mark);
    va_start(arguments, format);
    vfprintf(doctor->to, format, arguments);
    va_end(arguments);
    fputc('\n', doctor->to);
}

static bool is_program(const char *path)
{
    struct stat stat_now;

    return stat(path, &stat_now) == 0 && S_ISREG(stat_now.st_mode);
}

/** As execvp() finds it. */
static int find_program(const char *name, char ret[PATH_MAX])
{
    const char *list = getenv("PATH");

    if (strchr(name, '/')) {
        return is_program(name) && realpath(name, ret) ? 0 : -ENOENT;
    }
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "/usr/local/bin:/usr/bin:/bin");
    char *rest = copy;
    for (char *part = strsep(&rest, ":"); part; part = strsep(&rest, ":")) {
        char path[PATH_MAX];
        if (!paths_join(*part ? part : ".", name, path) && is_program(path) &&
            access(path, X_OK) == 0 && realpath(path, ret)) {
            return 0;
        }
    }
    return -ENOENT;
}

/** The program that the #! line names, or -ENOEXEC where there is none. */
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
    return find_program(first, ret);
}

static void check_privilege(struct doctor *doctor, const char *path)
{
    struct stat now;

    if (stat(path, &now) == 0 && now.st_mode & (S_ISUID | S_ISGID)) {
        say(doctor, "stop",
            "%s is set-user-id or set-group-id: the dynamic linker ignores LD_PRELOAD and loaders "
            "ignore OCL_ICD_VENDORS; run a copy without that bit",
            path);
    }
    if (getxattr(path, "security.capability", NULL, 0) > 0) {
        say(doctor, "stop",
            "%s has file capabilities: the dynamic linker ignores LD_PRELOAD; run a copy without "
            "them",
            path);
    }
}

static bool try_folder(const char *folder, const char *name, char ret[PATH_MAX])
{
    char path[PATH_MAX];

    return !paths_join(folder, name, path) && is_program(path) && realpath(path, ret);
}

/** As the dynamic linker would, near enough: rpaths seen so far, the variable, the usual folders.
 */
static int find_library(const struct doctor *doctor, const char *name, char ret[PATH_MAX])
{
    static const char *const usual[] = {"/lib/x86_64-linux-gnu",
                                        "/usr/lib/x86_64-linux-gnu",
                                        "/lib/aarch64-linux-gnu",
                                        "/usr/lib/aarch64-linux-gnu",
                                        "/usr/local/lib",
                                        "/lib64",
                                        "/usr/lib64",
                                        "/lib",
                                        "/usr/lib"};
    const char *list = getenv("LD_LIBRARY_PATH");

    if (strchr(name, '/')) {
        return realpath(name, ret) ? 0 : -ENOENT;
    }
    for (size_t i = 0; i < doctor->search.count; i++) {
        if (try_folder(doctor->search.items[i], name, ret)) {
            return 0;
        }
    }
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part; part = strsep(&rest, ":")) {
        if (*part && try_folder(part, name, ret)) {
            return 0;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
        if (try_folder(usual[i], name, ret)) {
            return 0;
        }
    }
    return -ENOENT;
}

static int merge(struct strings *to, const struct strings *from)
{
    int error = 0;

    for (size_t i = 0; i < from->count && !error; i++) {
        error = strings_add(to, from->items[i]);
    }
    return error;
}

static int take_needed(struct doctor *doctor, const char *path, const struct elf_facts *facts)
{
    int error = 0;

    for (size_t i = 0; i < facts->needed.count && !error; i++) {
        const char *name = facts->needed.items[i];
        char found[PATH_MAX];
        if (elf_is_loader(name)) {
            say(doctor, "ok", "%s is linked against %s: road preload, LD_PRELOAD comes first", path,
                name);
            doctor->linked = true;
            continue;
        }
        if (strings_have(&doctor->names, name)) {
            continue;
        }
        error = strings_add(&doctor->names, name);
        if (!error && !find_library(doctor, name, found)) {
            error = strings_add(&doctor->seen, found);
        }
    }
    return error;
}

static int check_rpath(struct doctor *doctor, const char *path, const struct elf_facts *facts)
{
    for (size_t i = 0; i < facts->rpath.count; i++) {
        char loader[PATH_MAX];
        if (try_folder(facts->rpath.items[i], "libOpenCL.so.1", loader) ||
            try_folder(facts->rpath.items[i], "libOpenCL.so", loader)) {
            say(doctor, "note",
                "%s brings a loader of its own, %s: if it reads OCL_ICD_VENDORS it finds reseat "
                "anyway",
                path, loader);
        }
    }
    return merge(&doctor->search, &facts->rpath);
}

/** One file: the program itself (@first) or a library that it is linked against. */
static int check_file(struct doctor *doctor, const char *path, bool first)
{
    struct elf_facts facts = {0};
    int error = elf_facts_read(path, &facts);

    if (error) {
        say(doctor, first ? "stop" : "note", "%s cannot be read: %s", path, strerror(-error));
        return error == -ENOMEM ? error : 0;
    }
    if (first && !facts.elf) {
        say(doctor, "stop", "%s is neither an ELF file nor a script: nothing here can run it",
            path);
    } else if (first && !facts.native) {
        say(doctor, "stop", "%s is for another kind of machine than libreseat.so", path);
    } else if (first && !facts.dynamic) {
        say(doctor, "stop",
            "%s is linked statically: no library can be put before its calls; link it dynamically",
            path);
    }
    error = check_rpath(doctor, path, &facts);
    error = error ? error : take_needed(doctor, path, &facts);
    error = error ? error : merge(&doctor->uses, &facts.uses);
    if (!error && facts.own && !elf_is_loader(path)) {
        say(doctor, "note",
            "%s defines OpenCL's functions itself (a loader linked into it): road ICD, if that "
            "loader reads OCL_ICD_VENDORS",
            path);
        doctor->opens = true;
    } else if (!error && facts.opens && !elf_is_loader(path)) {
        say(doctor, "ok",
            "%s opens libOpenCL at run time: road ICD, OCL_ICD_VENDORS names only reseat", path);
        doctor->opens = true;
    }
    elf_facts_finish(&facts);
    return error;
}

static int check_entry_points(struct doctor *doctor, const char *library)
{
    struct elf_facts facts = {0};
    size_t missing = 0;

    if (!library) {
        say(doctor, "stop", "libreseat.so is not installed beside this binary; reinstall reseat");
        return 0;
    }
    int error = elf_facts_read(library, &facts);
    if (error) {
        say(doctor, "stop", "%s cannot be read: %s", library, strerror(-error));
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
        say(doctor, "stop", "it calls %zu OpenCL functions that reseat does not cover: %s%s",
            missing, list, used >= sizeof(list) ? "..." : "");
    }
    if (doctor->uses.count && !missing) {
        say(doctor, "ok", "all %zu OpenCL functions that it is linked against are covered",
            doctor->uses.count);
    }
    elf_facts_finish(&facts);
    return 0;
}

static void sum_up(struct doctor *doctor, const char *program, enum road *ret_road)
{
    if (doctor->stopped) {
        *ret_road = ROAD_NONE;
        fprintf(doctor->to, "%s cannot be moved by reseat as it is\n", program);
    } else if (doctor->linked) {
        *ret_road = ROAD_PRELOAD;
        fprintf(doctor->to, "%s takes road preload%s\n", program,
                doctor->opens ? ", and ICD for what it opens at run time" : "");
    } else if (doctor->opens) {
        *ret_road = ROAD_ICD;
        fprintf(doctor->to, "%s takes road ICD\n", program);
    } else {
        *ret_road = ROAD_UNKNOWN;
        fprintf(
            doctor->to,
            "%s shows no sign of OpenCL; plugins and modules that it opens take road preload or "
            "ICD\n",
            program);
    }
}

int doctor_program(const char *program, const char *library, FILE *to, enum road *ret_road)
{
    struct doctor doctor = {.to = to};
    char path[PATH_MAX], next[PATH_MAX];
    int error = find_program(program, path);

    for (int i = 0; !error && i < SCRIPTS_MAX; i++) {
        check_privilege(&doctor, path);
        int result = interpreter(path, next);
        if (result == -ENOEXEC) {
            break;
        }
        if (result) {
            say(&doctor, "stop", "%s is a script whose interpreter is not there", path);
            break;
        }
        say(&doctor, "ok", "%s is a script, run by %s", path, next);
        memcpy(path, next, sizeof(path));
    }
    if (!error) {
        error = strings_add(&doctor.seen, path);
    }
    for (size_t i = 0; !error && i < doctor.seen.count && i < LIBRARIES_MAX; i++) {
        error = check_file(&doctor, doctor.seen.items[i], i == 0);
    }
    if (!error) {
        error = check_entry_points(&doctor, library);
    }
    if (!error) {
        sum_up(&doctor, program, ret_road);
    }
    strings_finish(&doctor.seen);
    strings_finish(&doctor.names);
    strings_finish(&doctor.uses);
    strings_finish(&doctor.search);
    return error;
}
