#ifndef RESEAT_AGENT_DOCTOR_DOCTOR_H
#define RESEAT_AGENT_DOCTOR_DOCTOR_H

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

#endif
