#ifndef RESEAT_STATE_PROGRAM_VARIABLES_H
#define RESEAT_STATE_PROGRAM_VARIABLES_H

#include <stdbool.h>

#include "state/recipe/recipe.h"

/**
 * True when what @recipe makes has variables in the global address space that live as long as the
 * program (6.3.2 of the OpenCL C 3.0 specification): state that no call can read.
 *
 * Drivers are not to be relied on for this: NVIDIA's and POCL's compile them and tell of 0 bytes.
 * IL is read exactly. Source is read as it stands (kernel_source.h), with the words of its macros
 * in their place: a declaration that is left out by #if is seen as well. Pure.
 */
bool recipe_keeps_variables(const struct recipe *recipe);

#endif
