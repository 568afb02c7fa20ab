#include "agent/doctor/inspection.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/cleanup.h"

/** An installed package: its libraries, and those that are a module by themselves. */
static int look_at_package(struct inspection *inspection, const char *folder, const char *name)
{
    char path[PATH_MAX], beginning[256];
    int length = snprintf(beginning, sizeof(beginning), "%s.", name);
    int error = paths_join(folder, name, path) ? 0 : linkage_libraries(inspection, path, "");

    if (!error && length > 0 && (size_t)length < sizeof(beginning))
        error = linkage_libraries(inspection, folder, beginning);
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

    inspection_folder(interpreter, bin);
    inspection_folder(bin, prefix);
    for (size_t i = 0; i < ARRAY_SIZE(below) && !error; i++) {
        snprintf(pattern, sizeof(pattern), "%s%s", prefix, below[i]);
        if (glob(pattern, 0, NULL, &found))
            continue;
        for (size_t j = 0; j < found.gl_pathc && !error; j++)
            error = look_at_package(inspection, found.gl_pathv[j], name);
        globfree(&found);
    }
    return error;
}

int python_module(struct inspection *inspection, const char *name, const char *folder,
                  const char *interpreter)
{
    char path[PATH_MAX], real[PATH_MAX], top[256];
    int length = snprintf(top, sizeof(top), "%.*s", (int)strcspn(name, "."), name);

    if (length <= 0 || (size_t)length >= sizeof(top) || strings_have(&inspection->modules, top))
        return 0;
    int error = strings_add(&inspection->modules, top);
    snprintf(path, sizeof(path), "%s/%s.py", folder, top);
    if (!error && access(path, R_OK) == 0)
        return python_script(inspection, path, interpreter);
    if (!error)
        error = look_at_package(inspection, folder, top);
    const char *list = getenv("PYTHONPATH");
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part && !error; part = strsep(&rest, ":"))
        error = *part ? look_at_package(inspection, part, top) : 0;
    if (!error)
        error = look_at_sites(inspection, top, interpreter);
    if (!error && realpath(interpreter, real) && strcmp(real, interpreter))
        error = look_at_sites(inspection, top, real);
    return error;
}

/** The modules of one line: "import a.b, c as d", "from a import b". */
static int look_at_imports(struct inspection *inspection, char *line, const char *folder,
                           const char *interpreter)
{
    bool from = strncmp(line, "from ", 5) == 0;
    char *rest = line + (from ? 5 : 7);
    int error = 0;

    if (!from && strncmp(line, "import ", 7))
        return 0;
    for (char *name = strtok_r(rest, ",", &rest); name && !error;
         name = from ? NULL : strtok_r(NULL, ",", &rest)) {
        name += strspn(name, " \t");
        name[strcspn(name, " \t#;\r")] = '\0';
        if (*name && *name != '.')
            error = python_module(inspection, name, folder, interpreter);
    }
    return error;
}

int python_script(struct inspection *inspection, const char *path, const char *interpreter)
{
    size_t size;
    CLEANUP(cleanup_free) char *text = inspection_read(path, &size);
    char folder[PATH_MAX], real[PATH_MAX];
    char *rest = text;
    int error = 0;

    if (!text) {
        inspection_say(inspection, "note", "%s, which Python is to run, cannot be read", path);
        return 0;
    }
    linkage_text(inspection, path);
    inspection_folder(realpath(path, real) ? real : path, folder);
    for (char *line = strtok_r(text, "\n", &rest); line && !error;
         line = strtok_r(NULL, "\n", &rest))
        error = look_at_imports(inspection, line + strspn(line, " \t"), folder, interpreter);
    return error;
}
