#ifndef RESEAT_AGENT_DOCTOR_INSPECTION_H
#define RESEAT_AGENT_DOCTOR_INSPECTION_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "state/base/compiler.h"

/** Strings in the order in which they were added, each once. */
struct strings {
    char **items;
    size_t count;
};

void strings_finish(struct strings *strings);
/** Returns 0 or -ENOMEM. One that is there already is not added again. */
MUST_CHECK int strings_add(struct strings *strings, const char *text);
bool strings_have(const struct strings *strings, const char *text);

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
    struct strings uses;     /**< OpenCL functions that they are linked to. */
    struct strings search;   /**< Folders of the rpaths seen. */
};

void inspection_finish(struct inspection *inspection);

/** One line; a @mark of "stop" stops every road. */
void inspection_say(struct inspection *inspection, const char *mark, const char *format, ...)
    PRINTF(3, 4);

/** Find a program as execvp() would. Returns 0 or -ENOENT. */
MUST_CHECK int inspection_find(const char *name, char ret[PATH_MAX]);

/** What an ELF file says of how it reaches OpenCL. */
struct elf_facts {
    bool elf;     /**< Is one at all. */
    bool native;  /**< Of this machine's kind: the only one that libreseat.so can be loaded in. */
    bool dynamic; /**< Has a dynamic linker, or is a library. */
    bool opens;   /**< Names libOpenCL in a string: opens it at run time. */
    bool reads;   /**< Names OCL_ICD_VENDORS: a loader that can be told of other drivers. */
    bool own;     /**< Defines clGetPlatformIDs: has a loader linked into it. */
    struct strings needed; /**< DT_NEEDED. */
    struct strings rpath;  /**< DT_RUNPATH or DT_RPATH, $ORIGIN replaced. */
    struct strings uses;   /**< OpenCL functions that it wants from elsewhere. */
    struct strings offers; /**< OpenCL functions that it defines for others. */
};

/**
 * Read the facts of one file. Anything in it may be damaged.
 *
 * Returns 0 (with `elf` false for other files), -ENOMEM, or open(2)'s errors.
 */
MUST_CHECK int elf_facts_read(const char *path, struct elf_facts *ret_facts);
void elf_facts_finish(struct elf_facts *facts);

/** True when the name is that of an OpenCL loader ("libOpenCL.so.1"). */
bool elf_is_loader(const char *library);

/* ELF files: programs, what they are linked against, and what all of it wants of OpenCL. */

/** Check every file in @inspection->seen and what they are linked against. 0 or -ENOMEM. */
MUST_CHECK int linkage_check(struct inspection *inspection);

#endif
