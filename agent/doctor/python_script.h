#ifndef RESEAT_AGENT_DOCTOR_PYTHON_SCRIPT_H
#define RESEAT_AGENT_DOCTOR_PYTHON_SCRIPT_H

#include "agent/doctor/inspection.h"

/**
 * Look at a text that Python runs, and the modules that it imports.
 *
 * @interpreter  As it was asked for: its place tells where its packages are.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int python_script(struct inspection *inspection, const char *path,
                             const char *interpreter);
/** The same of a module; @folder: where it is looked for first. */
MUST_CHECK int python_module(struct inspection *inspection, const char *name, const char *folder,
                             const char *interpreter);

#endif
