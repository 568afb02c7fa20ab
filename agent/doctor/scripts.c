#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/cleanup.h"
#include "agent/config/paths.h"
#include "agent/doctor/inspection.h"

/*
 * Programs that are text. Nothing of it is run, so what a variable holds is a guess: a path that
 * begins with one is looked for beside the script, which is where wrappers find their programs.
 */

#define WORDS_MAX     64 /* Of one command. */
#define COMMANDS_MAX  256
#define LIBRARIES_MAX 256 /* Of one Python package. */

static void folder_of(const char *path, char ret[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    snprintf(ret, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/** The end of what "$(", "${" or "`" begins, which may be nested. */
static char *substitution_end(char *at)
{
    char open = at[0] == '`' ? '`' : at[1], close = open == '(' ? ')' : open == '{' ? '}' : '`';
    int depth = 0;

    for (at += open == '`' ? 1 : 2; *at; at++) {
        if (*at == close && depth-- == 0) {
            return at + 1;
        }
        depth += *at == open && open != close;
    }
    return at;
}

/** Text of a shell without quotes, comments and continued lines; any substitution becomes "$". */
static void flatten(char *text)
{
    char *to = text, *from = text;
    bool begins = true;

    while (*from) {
        if (*from == '#' && begins) {
            from += strcspn(from, "\n");
        } else if (from[0] == '\\' && from[1] == '\n') {
            from += 2;
            *to++ = ' ';
        } else if (*from == '`' || (from[0] == '$' && (from[1] == '(' || from[1] == '{'))) {
            from = substitution_end(from);
            *to++ = '$';
        } else if (*from == '"' || *from == '\'') {
            from++;
        } else {
            begins = isspace((unsigned char)*from) || *from == ';';
            *to++ = *from++;
            continue;
        }
        begins = false;
    }
    *to = '\0';
}

/** "$/lib/app.jar" beside the script; as it is where that is nothing. */
static char *expand(const char *word, const char *folder)
{
    const char *slash = word[0] == '$' ? strchr(word, '/') : NULL;
    const char *const below[] = {"", "/.."};
    char path[PATH_MAX];

    for (size_t i = 0; slash && i < ARRAY_SIZE(below); i++) {
        int length = snprintf(path, sizeof(path), "%s%s%s", folder, below[i], slash);
        if (length > 0 && length < PATH_MAX && access(path, F_OK) == 0) {
            return strdup(path);
        }
    }
    return strdup(word);
}

/** Words that come before a command and are none. */
static bool is_prefix(const char *word)
{
    static const char *const prefixes[] = {"exec",  "env", "command", "nohup", "time",
                                           "nice",  "if",  "then",    "else",  "elif",
                                           "while", "do",  "!",       "setsid"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (strcmp(word, prefixes[i]) == 0) {
            return true;
        }
    }
    return word[0] == '-' || strchr(word, '=');
}

static int look_at_command(struct inspection *inspection, char *command, const char *folder)
{
    char *words[WORDS_MAX + 1] = {NULL}, *rest = command;
    size_t count = 0;
    int error = 0;

    for (char *word = strtok_r(command, " \t\r", &rest); word && count < WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (!count && is_prefix(word)) {
            continue;
        }
        words[count] = expand(word, folder);
        if (!words[count++]) {
            error = -ENOMEM;
            break;
        }
    }
    if (!error && count && words[0][0] != '$') {
        error = doctor_look_quietly(inspection, words[0], words + 1);
    }
    for (size_t i = 0; i < count; i++) {
        free(words[i]);
    }
    return error;
}

int doctor_shell(struct inspection *inspection, const char *path)
{
    size_t size, count = 0;
    CLEANUP(cleanup_free) char *text = inspection_read(path, &size);
    char folder[PATH_MAX], real[PATH_MAX];
    char *rest = text;
    int error = 0;

    if (!text) {
        return 0;
    }
    folder_of(realpath(path, real) ? real : path, folder);
    flatten(text);
    for (char *command = strtok_r(text, "\n;|&(){}<>", &rest);
         command && !error && count < COMMANDS_MAX;
         command = strtok_r(NULL, "\n;|&(){}<>", &rest), count++) {
        error = look_at_command(inspection, command, folder);
    }
    return error;
}

int doctor_text(struct inspection *inspection, const char *path)
{
    size_t size;
    CLEANUP(cleanup_free) char *text = inspection_read(path, &size);

    if (text && (memmem(text, size, "libOpenCL", 9) || memmem(text, size, "\"OpenCL\"", 8) ||
                 memmem(text, size, "'OpenCL'", 8))) {
        inspection_say(
            inspection, "ok",
            "%s opens libOpenCL at run time: road ICD, OCL_ICD_VENDORS names only reseat", path);
        inspection->opens = true;
    }
    return 0;
}

/** A library that something loads at run time, if it has to do with OpenCL. */
static int take_library(struct inspection *inspection, const char *path)
{
    struct elf_facts facts = {0};
    int error = elf_facts_read(path, &facts);
    bool concerns = false;

    if (error) {
        return error == -ENOMEM ? error : 0;
    }
    for (size_t i = 0; i < facts.needed.count; i++) {
        concerns = concerns || elf_is_loader(facts.needed.items[i]);
    }
    concerns = concerns || facts.opens || facts.own;
    elf_facts_finish(&facts);
    return concerns ? strings_add(&inspection->seen, path) : 0;
}

int doctor_libraries(struct inspection *inspection, const char *folder, const char *beginning)
{
    DIR *entries = opendir(folder);
    size_t count = 0;
    int error = 0;

    for (struct dirent *entry = entries ? readdir(entries) : NULL;
         entry && !error && count < LIBRARIES_MAX; entry = readdir(entries)) {
        char path[PATH_MAX];
        if (strncmp(entry->d_name, beginning, strlen(beginning)) || !strstr(entry->d_name, ".so") ||
            paths_join(folder, entry->d_name, path)) {
            continue;
        }
        error = take_library(inspection, path);
        count++;
    }
    if (entries) {
        closedir(entries);
    }
    return error;
}

/** An installed package: its libraries, and those that are a module by themselves. */
static int look_at_package(struct inspection *inspection, const char *folder, const char *name)
{
    char path[PATH_MAX], beginning[256];
    int length = snprintf(beginning, sizeof(beginning), "%s.", name);
    int error = paths_join(folder, name, path) ? 0 : doctor_libraries(inspection, path, "");

    if (!error && length > 0 && (size_t)length < sizeof(beginning)) {
        error = doctor_libraries(inspection, folder, beginning);
    }
    return error;
}

/** Where the interpreter keeps packages, by where it seems to be itself. */
static int look_at_sites(struct inspection *inspection, const char *name, const char *interpreter)
{
    static const char *const below[] = {"/lib/python3*/site-packages", "/lib/python3/dist-packages",
                                        "/local/lib/python3*/dist-packages"};
    char bin[PATH_MAX], prefix[PATH_MAX], pattern[PATH_MAX + 64];
    glob_t found;
    int error = 0;

    folder_of(interpreter, bin);
    folder_of(bin, prefix);
    for (size_t i = 0; i < ARRAY_SIZE(below) && !error; i++) {

        snprintf(pattern, sizeof(pattern), "%s%s", prefix, below[i]);
        if (glob(pattern, 0, NULL, &found)) {
            continue;
        }
        for (size_t j = 0; j < found.gl_pathc && !error; j++) {
            error = look_at_package(inspection, found.gl_pathv[j], name);
        }
        globfree(&found);
    }
    return error;
}

int doctor_python_module(struct inspection *inspection, const char *name, const char *folder,
                         const char *interpreter)
{
    char path[PATH_MAX], real[PATH_MAX], top[256];
    int length = snprintf(top, sizeof(top), "%.*s", (int)strcspn(name, "."), name);

    if (length <= 0 || (size_t)length >= sizeof(top) || strings_have(&inspection->modules, top)) {
        return 0;
    }
    int error = strings_add(&inspection->modules, top);
    snprintf(path, sizeof(path), "%s/%s.py", folder, top);
    if (!error && access(path, R_OK) == 0) {
        return doctor_python(inspection, path, interpreter);
    }
    if (!error) {
        error = look_at_package(inspection, folder, top);
    }
    const char *list = getenv("PYTHONPATH");
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part && !error; part = strsep(&rest, ":")) {
        error = *part ? look_at_package(inspection, part, top) : 0;
    }
    if (!error) {
        error = look_at_sites(inspection, top, interpreter);
    }
    if (!error && realpath(interpreter, real) && strcmp(real, interpreter)) {
        error = look_at_sites(inspection, top, real);
    }
    return error;
}

/** The modules of one line: "import a.b, c as d", "from a import b". */
static int look_at_imports(struct inspection *inspection, char *line, const char *folder,
                           const char *interpreter)
{
    bool from = strncmp(line, "from ", 5) == 0;
    char *rest = line + (from ? 5 : 7);
    int error = 0;

    if (!from && strncmp(line, "import ", 7)) {
        return 0;
    }
    for (char *name = strtok_r(rest, ",", &rest); name && !error;
         name = from ? NULL : strtok_r(NULL, ",", &rest)) {
        name += strspn(name, " \t");
        name[strcspn(name, " \t#;\r")] = '\0';
        if (*name && *name != '.') {
            error = doctor_python_module(inspection, name, folder, interpreter);
        }
    }
    return error;
}

int doctor_python(struct inspection *inspection, const char *path, const char *interpreter)
{
    size_t size;
    CLEANUP(cleanup_free) char *text = inspection_read(path, &size);
    char folder[PATH_MAX], real[PATH_MAX];
    char *rest = text;

    if (!text) {
        inspection_say(inspection, "note", "%s, which Python is to run, cannot be read", path);
        return 0;
    }
    int error = doctor_text(inspection, path);
    folder_of(realpath(path, real) ? real : path, folder);
    for (char *line = strtok_r(text, "\n", &rest); line && !error;
         line = strtok_r(NULL, "\n", &rest)) {
        error = look_at_imports(inspection, line + strspn(line, " \t"), folder, interpreter);
    }
    return error;
}
