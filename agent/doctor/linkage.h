#ifndef RESEAT_AGENT_DOCTOR_LINKAGE_H
#define RESEAT_AGENT_DOCTOR_LINKAGE_H

#include "agent/doctor/inspection.h"

/* ELF files: programs, what they are linked against, and what all of it wants of OpenCL. */

/** Check every file in @inspection->seen and what they are linked against. 0 or -ENOMEM. */
MUST_CHECK int linkage_check(struct inspection *inspection);

/** Take the libraries in @folder whose names begin so, as far as they concern OpenCL. */
MUST_CHECK int linkage_libraries(struct inspection *inspection, const char *folder,
                                 const char *beginning);

/** Look whether a text names OpenCL's loader. */
void linkage_text(struct inspection *inspection, const char *path);

#endif
