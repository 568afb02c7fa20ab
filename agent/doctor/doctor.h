#ifndef RESEAT_AGENT_DOCTOR_DOCTOR_H
#define RESEAT_AGENT_DOCTOR_DOCTOR_H

#include <stdio.h>

#include "state/base/compiler.h"

/** How a program reaches OpenCL, as far as its files say. */
enum road {
    ROAD_UNKNOWN, /**< No sign of OpenCL: plugins that it opens take whatever road they take. */
    ROAD_PRELOAD, /**< Linked against a loader. */
    ROAD_ICD,     /**< Opens a loader at run time, or has one inside. */
    ROAD_NONE,    /**< Something stops every road. */
};

/**
 * Look at a program (of a script, at its interpreter) and all libraries that it is linked against,
 * and write what was found to @to: one line each, "ok", "note" or "stop" first. Nothing is run: the
 * programs that a script starts, and the modules that it imports, are not looked at.
 *
 * @command  The program and its arguments, NULL-terminated.
 * @library  libreseat.so, for its entry points; NULL: not checked.
 * Returns 0, -ENOENT (no such program), -ENOMEM.
 */
MUST_CHECK int doctor_program(char *const *command, const char *library, FILE *to,
                              enum road *ret_road);

#endif
