#ifndef RESEAT_TESTS_CONTRACT_TRIED_H
#define RESEAT_TESTS_CONTRACT_TRIED_H

#include "interpose/entry/calls.h"
#include "state/object/object.h"
#include "tests/contract/samples.h"

/* What generate.py writes for tests: every call with one bad handle, and all else as it should be.
 */

/* What a call gave, beside OpenCL's errors, which are negative. */
#define TRIED_NOTHING 1 /**< It returns no error: nothing, or NULL. */
#define TRIED_ANY     2 /**< Expected: any error. */

struct tried {
    const char *call;
    const char
        *parameter; /**< The handle, or the list of handles, that is bad; "": all are zero. */
    enum object_type type; /**< OBJECT_NONE: of a type that we have no objects of. */
    cl_int expected;
    bool optional; /**< NULL is not bad. */
    cl_int (*call_with)(const struct samples *good, void *bad);
};

extern const struct tried tried_calls[];
extern const size_t tried_call_count;

#endif
