#ifndef RESEAT_AGENT_DOCTOR_DOCTOR_H
#define RESEAT_AGENT_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "state/base/compiler.h"

/** How a program reaches OpenCL, as far as its files show. */
enum road {
    ROAD_UNKNOWN, /**< No sign of OpenCL. Plugins that the program opens may use either road. */
    ROAD_PRELOAD, /**< Linked against an OpenCL loader. */
    ROAD_ICD,     /**< Opens a loader at run time, or has one linked into it. */
    ROAD_NONE,    /**< Something prevents both roads. */
};

/**
 * Examine a program (for a script, its interpreter) and all libraries that it is linked against,
 * and write the findings to @to, one line each, beginning with "ok", "note" or "stop". Nothing is
 * executed. Programs that a script starts and modules that it imports are not examined.
 *
 * @command  The program and its arguments, NULL-terminated.
 * @library  libreseat.so, for its entry points; NULL if it was not found.
 * Returns 0, -ENOENT (no such program) or -ENOMEM.
 */
MUST_CHECK int doctor_program(char *const *command, const char *library, FILE *to,
                              enum road *ret_road);

/** A list of strings without duplicates, in the order in which they were added. */
struct strings {
    char **items;
    size_t count;
};

void strings_finish(struct strings *strings);
/** Does nothing if the list has @text already. Returns 0 or -ENOMEM. */
MUST_CHECK int strings_add(struct strings *strings, const char *text);
bool strings_have(const struct strings *strings, const char *text);

/** Findings about one command. */
struct inspection {
    FILE *to;
    unsigned depth;
    bool stopped;
    bool linked;             /**< The program or a library of it is linked against a loader. */
    bool opens;              /**< The program or a library of it opens a loader at run time. */
    bool machine;            /**< The command is a script: it may run programs that use OpenCL. */
    struct strings programs; /**< ELF files that are executed. */
    struct strings seen;     /**< Files to examine; linkage_check() appends while it walks. */
    struct strings names;    /**< Sonames that were searched for. */
    struct strings uses;     /**< OpenCL functions that the files import. */
    struct strings search;   /**< Folders of the rpaths found. */
};

/** Write one line. @mark is "ok", "note", "stop" (the program cannot be moved) or "". */
void inspection_say(struct inspection *inspection, const char *mark, const char *format, ...)
    PRINTF(3, 4);

bool inspection_is_file(const char *path);
/** What an ELF file says about its use of OpenCL. */
struct elf_facts {
    bool elf;              /**< The file is an ELF file. */
    bool native;           /**< Of this machine's architecture, as libreseat.so is. */
    bool dynamic;          /**< Has a dynamic linker, or is a library. */
    bool opens;            /**< Contains the string libOpenCL: opens a loader at run time. */
    bool reads;            /**< Contains the string OCL_ICD_VENDORS: a loader reads it. */
    bool own;              /**< Defines clGetPlatformIDs: a loader is linked into it. */
    struct strings needed; /**< DT_NEEDED. */
    struct strings rpath;  /**< DT_RUNPATH or DT_RPATH, $ORIGIN replaced. */
    struct strings uses;   /**< OpenCL functions that it imports. */
    struct strings offers; /**< OpenCL functions that it exports. */
};

/**
 * Read the facts of one file. The file may be damaged in any way.
 *
 * Returns 0 (with `elf` false for other files), -ENOMEM, or an error of open(2).
 */
MUST_CHECK int elf_facts_read(const char *path, struct elf_facts *ret_facts);
void elf_facts_finish(struct elf_facts *facts);

/** True when the file name is that of an OpenCL loader ("libOpenCL.so.1"). */
bool elf_is_loader(const char *library);

/* ELF files: programs, their libraries, and the OpenCL functions that they import. */

/** Examine every file in @inspection->seen, and its libraries. Returns 0 or -ENOMEM. */
MUST_CHECK int linkage_check(struct inspection *inspection);

#endif
