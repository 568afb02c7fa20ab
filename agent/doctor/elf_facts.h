#ifndef RESEAT_AGENT_DOCTOR_ELF_FACTS_H
#define RESEAT_AGENT_DOCTOR_ELF_FACTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/doctor/string_set.h"
#include "state/base/compiler.h"

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

#endif
