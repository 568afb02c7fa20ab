#ifndef RESEAT_AGENT_DOCTOR_INSPECTION_H
#define RESEAT_AGENT_DOCTOR_INSPECTION_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "agent/doctor/string_set.h"
#include "state/base/compiler.h"

/** What is known of a command so far. */
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

void inspection_finish(struct inspection *inspection);

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

/** The folder that a path is in. */
void inspection_folder(const char *path, char ret[PATH_MAX]);

/** A text file's first MiB with a NUL after it, to be freed; NULL where it cannot be read. */
char *inspection_read(const char *path, size_t *ret_size);

#endif
