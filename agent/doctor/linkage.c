#include "agent/doctor/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/paths.h"
#include "state/base/cleanup.h"

#define LINKED_MAX 1024

static bool linkage_try_folder(const char *folder, const char *name, char ret[PATH_MAX])
{
    char path[PATH_MAX];

    return !paths_join(folder, name, path) && inspection_is_file(path) && realpath(path, ret);
}

/** Search about as the dynamic linker: rpaths so far, LD_LIBRARY_PATH, usual folders. */
static int linkage_find_library(const struct inspection *inspection, const char *name,
                                char ret[PATH_MAX])
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

    if (strchr(name, '/'))
        return realpath(name, ret) ? 0 : -ENOENT;
    for (size_t i = 0; i < inspection->search.count; i++)
        if (linkage_try_folder(inspection->search.items[i], name, ret))
            return 0;
    CLEANUP(cleanup_free) char *copy = strdup(list ? list : "");
    char *rest = copy;
    for (char *part = copy ? strsep(&rest, ":") : NULL; part; part = strsep(&rest, ":"))
        if (*part && linkage_try_folder(part, name, ret))
            return 0;
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
        if (linkage_try_folder(usual[i], name, ret))
            return 0;
    return -ENOENT;
}

static int linkage_merge(struct strings *to, const struct strings *from)
{
    int error = 0;

    for (size_t i = 0; i < from->count && !error; i++)
        error = strings_add(to, from->items[i]);
    return error;
}

/** Note that @path is linked against a loader. The preloaded library precedes any loader. */
static void linkage_take_loader(struct inspection *inspection, const char *path, const char *name)
{
    char found[PATH_MAX];
    bool own = false;

    for (size_t i = 0; i < inspection->search.count && !own; i++)
        own = linkage_try_folder(inspection->search.items[i], name, found);
    inspection->linked = true;
    inspection_say(inspection, "ok",
                   "%s is linked against %s%s%s: road preload, LD_PRELOAD comes first", path, name,
                   own ? ", a loader of its own: " : "", own ? found : "");
}

static int linkage_take_needed(struct inspection *inspection, const char *path,
                               const struct elf_facts *facts)
{
    int error = 0;

    for (size_t i = 0; i < facts->needed.count && !error; i++) {
        const char *name = facts->needed.items[i];
        char found[PATH_MAX];
        if (elf_is_loader(name)) {
            linkage_take_loader(inspection, path, name);
            continue;
        }
        if (strings_have(&inspection->names, name))
            continue;
        error = strings_add(&inspection->names, name);
        if (!error && !linkage_find_library(inspection, name, found))
            error = strings_add(&inspection->seen, found);
    }
    return error;
}

/** Note a loader in @path's rpath: libraries opened at run time find it first. */
static void linkage_check_own_loader(struct inspection *inspection, const char *path,
                                     const char *loader)
{
    struct elf_facts facts = {0};

    if (elf_facts_read(loader, &facts))
        return;
    if (facts.reads) {
        inspection_say(
            inspection, "note",
            "%s brings a loader of its own, %s, which reads OCL_ICD_VENDORS: what opens it "
            "finds reseat",
            path, loader);
    } else {
        inspection_say(
            inspection, "note",
            "%s brings a loader of its own, %s, which does not read OCL_ICD_VENDORS: what opens it "
            "at run time does not find reseat; put the system's libOpenCL.so.1 in its place",
            path, loader);
    }
    elf_facts_finish(&facts);
}

/** Examine one file. @first: it is the program itself, not a library. */
static int linkage_check_file(struct inspection *inspection, const char *path, bool first)
{
    struct elf_facts facts = {0};
    int error = elf_facts_read(path, &facts);

    if (error) {
        inspection_say(inspection, first ? "stop" : "note", "%s cannot be read: %s", path,
                       strerror(-error));
        return error == -ENOMEM ? error : 0;
    }
    if (first && !facts.elf) {
        inspection_say(inspection, "stop",
                       "%s is neither an ELF file nor a script: nothing here can run it", path);
    } else if (first && !facts.native) {
        inspection_say(inspection, "stop", "%s is for another kind of machine than libreseat.so",
                       path);
    } else if (first && !facts.dynamic) {
        inspection_say(
            inspection, "stop",
            "%s is linked statically: no library can be put before its calls, and no loader "
            "in it is told of reseat; link it dynamically (without -static)",
            path);
    }
    for (size_t i = 0; i < facts.rpath.count; i++) {
        char loader[PATH_MAX];
        if (linkage_try_folder(facts.rpath.items[i], "libOpenCL.so.1", loader) ||
            linkage_try_folder(facts.rpath.items[i], "libOpenCL.so", loader))
            linkage_check_own_loader(inspection, path, loader);
    }
    error = linkage_merge(&inspection->search, &facts.rpath);
    error = error ? error : linkage_take_needed(inspection, path, &facts);
    error = error ? error : linkage_merge(&inspection->uses, &facts.uses);
    if (!error && facts.own && !elf_is_loader(path)) {
        inspection_say(
            inspection, "note",
            "%s defines OpenCL's functions itself (a loader linked into it): road ICD, if that "
            "loader reads OCL_ICD_VENDORS",
            path);
        inspection->opens = true;
    } else if (!error && facts.opens && !elf_is_loader(path)) {
        inspection_say(
            inspection, "ok",
            "%s opens libOpenCL at run time: road ICD, OCL_ICD_VENDORS names only reseat", path);
        inspection->opens = true;
    }
    elf_facts_finish(&facts);
    return error;
}

int linkage_check(struct inspection *inspection)
{
    int error = 0;

    for (size_t i = 0; !error && i < inspection->seen.count && i < LINKED_MAX; i++) {
        const char *path = inspection->seen.items[i];
        error = linkage_check_file(inspection, path, strings_have(&inspection->programs, path));
    }
    return error;
}
