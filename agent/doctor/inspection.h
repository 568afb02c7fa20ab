#ifndef RESEAT_AGENT_DOCTOR_INSPECTION_H
#define RESEAT_AGENT_DOCTOR_INSPECTION_H

#include <stdio.h>
#include <sys/types.h>

#include "agent/doctor/elf_facts.h"

/* What the parts of doctor share. */

#define DOCTOR_DEPTH_MAX 4 /* Scripts that run scripts. */

struct inspection {
    FILE *to;
    unsigned depth;
    bool stopped;
    bool linked;             /**< It or a library of it is linked against a loader. */
    bool opens;              /**< It or a library of it opens one. */
    bool machine;            /**< Something that runs programs: they may open anything. */
    struct strings programs; /**< ELF files that are run, not loaded. */
    struct strings seen;     /**< Files that were looked at; grows while it is walked. */
    struct strings names;    /**< Sonames that were looked for. */
    struct strings modules;  /**< Python files and modules that were looked at. */
    struct strings uses;     /**< OpenCL functions that they are linked to. */
    struct strings search;   /**< Folders of the rpaths seen. */
};

/** One line; a @mark of "stop" stops every road. */
void inspection_say(struct inspection *inspection, const char *mark, const char *format, ...)
    PRINTF(3, 4);

/**
 * Find a program as execvp() would.
 *
 * @ret_asked  Its path, links not followed (an environment of Python's is told by where its
 *             interpreter seems to be); NULL: not wanted.
 * Returns 0 or -ENOENT.
 */
MUST_CHECK int inspection_find(const char *name, char ret[PATH_MAX], char *ret_asked);

/**
 * Look at a command: a program and its arguments, NULL-terminated. What is found goes into
 * @inspection. Returns 0, -ENOENT or -ENOMEM.
 */
MUST_CHECK int doctor_look(struct inspection *inspection, const char *program,
                           char *const *arguments);
/** The same for a command that something else runs; says nothing where it has no sign of OpenCL. */
MUST_CHECK int doctor_look_quietly(struct inspection *inspection, const char *program,
                                   char *const *arguments);

/** Check every file in @inspection->seen and what they are linked against. 0 or -ENOMEM. */
MUST_CHECK int doctor_files(struct inspection *inspection);

/** Text that a shell runs: the commands in it. Returns 0 or -ENOMEM. */
MUST_CHECK int doctor_shell(struct inspection *inspection, const char *path);
/** Text that Python runs, and the modules that it imports. @interpreter: as it was asked for. */
MUST_CHECK int doctor_python(struct inspection *inspection, const char *path,
                             const char *interpreter);
MUST_CHECK int doctor_python_module(struct inspection *inspection, const char *name,
                                    const char *folder, const char *interpreter);
/** Take the libraries in @folder whose names begin so, as far as they concern OpenCL. */
MUST_CHECK int doctor_libraries(struct inspection *inspection, const char *folder,
                                const char *beginning);
/** Any other text. */
MUST_CHECK int doctor_text(struct inspection *inspection, const char *path);
/** A Java program: the arguments of the machine. */
MUST_CHECK int doctor_java(struct inspection *inspection, char *const *arguments);
/** True for an archive of Java's (.jar). */
bool doctor_is_archive(const char *path);

/** A text file's first MiB with a NUL after it, to be freed; NULL where it cannot be read. */
char *inspection_read(const char *path, size_t *ret_size);

#endif
