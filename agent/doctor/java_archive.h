#ifndef RESEAT_AGENT_DOCTOR_JAVA_ARCHIVE_H
#define RESEAT_AGENT_DOCTOR_JAVA_ARCHIVE_H

#include "agent/doctor/inspection.h"

/** True for an archive of Java's (.jar). */
bool java_is_archive(const char *path);
/** Look at a Java program, by the arguments of the machine. Returns 0 or -ENOMEM. */
MUST_CHECK int java_program(struct inspection *inspection, char *const *arguments);

#endif
