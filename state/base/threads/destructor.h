#ifndef RESEAT_STATE_BASE_THREADS_DESTRUCTOR_H
#define RESEAT_STATE_BASE_THREADS_DESTRUCTOR_H

#include <CL/cl.h>

#include "state/base/compiler.h"

/** A callback of the program for the end of an object (4.4, 5.5.1, 5.8.3). A list begins with the
 * callback that was registered last, which is called first. */
struct destructor {
    struct destructor *next;
    void(CL_CALLBACK *call)(void *handle, void *data);
    void *handle, *data;
};

/** Push a callback. 0 or -ENOMEM. Lock-free. */
MUST_CHECK int destructor_add(struct destructor *_Atomic *list,
                              void(CL_CALLBACK *call)(void *, void *), void *handle, void *data);
/** Call and free all: on the callback thread (callback.h) when the caller is inside the gate (G3).
 */
void destructor_run(struct destructor *_Atomic *list);
/** The same, always on the callback thread unless there is no memory for that. */
void destructor_run_later(struct destructor *_Atomic *list);

#endif
