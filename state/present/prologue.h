#ifndef RESEAT_STATE_PRESENT_PROLOGUE_H
#define RESEAT_STATE_PRESENT_PROLOGUE_H

#include "state/present/proposal.h"

/**
 * OpenCL C to put before every source, so that macros say what the answers say (6.2.1, 6.10): a
 * compiler defines those of its own device, and a program that used what only that device has could
 * not move.
 *
 * @ret_text  The caller's (free()); "" where there is nothing to hide. It ends with a #line, so
 * that lines keep their numbers. Returns 0 or -ENOMEM. Pure.
 */
MUST_CHECK int prologue_text(const struct proposal *proposal, char **ret_text);

#endif
