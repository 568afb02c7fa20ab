#ifndef RESEAT_TESTS_SCRATCH_H
#define RESEAT_TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

#define SCRATCH_MAX 64

/** In @ret what mkstemp() and mkdtemp() make a temporary file or folder of, with @name in it. */
static inline char *scratch(char ret[SCRATCH_MAX], const char *name)
{
    const char *folder = getenv("TMPDIR");

    snprintf(ret, SCRATCH_MAX, "%.36s/reseat-%.12s-XXXXXX", folder && *folder ? folder : "/tmp",
             name);
    return ret;
}

#endif
