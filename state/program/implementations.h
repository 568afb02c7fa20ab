#ifndef RESEAT_STATE_PROGRAM_IMPLEMENTATIONS_H
#define RESEAT_STATE_PROGRAM_IMPLEMENTATIONS_H

#include "state/object/usage.h"
#include "state/program/kernel.h"

/*
 * Several kernels of a program that do the same work: which is fastest depends on the device and on
 * who else uses it. The program says so with policy/reseat.h; each launch of the first kernel then
 * runs the one whose measured speed (pace.h) is highest where the program is. What moves it there,
 * cuts it and spreads it sees a launch of the kernel that was chosen.
 */

/** Of a kernel that can be launched instead of another one. */
struct implementation_shape {
    cl_uint dims;       /**< Of the launches that it can replace. */
    size_t replaces[3]; /**< Work-items of these whose work one of its work-groups does. */
    size_t local[3];    /**< Its work-group. */
};

/**
 * Launches of @kernel may run @other, which is held while @kernel exists. No other thread launches
 * @kernel meanwhile.
 *
 * Returns 0, or -EINVAL: the shape is wrong, or one of them cannot serve; -EDOM: their parameters
 * differ; -ENOSPC: it has too many; -ENOMEM. The log says what is wrong.
 */
MUST_CHECK int implementations_add(struct kernel *kernel, struct kernel *other,
                                   const struct implementation_shape *shape);
struct implementations;
void implementations_free(struct implementations *implementations); /**< NULL is allowed. */

/** What is launched in place of a launch. */
struct implementation_launch {
    struct kernel *kernel; /**< Borrowed from the launch's kernel. */
    struct launch_space space;
    size_t global[3], local[3]; /**< Behind `space`. */
    bool is_trial;              /**< Its speed is to be measured. */
};

/**
 * Choose what runs a launch of @kernel, which has implementations, and copy the arguments of
 * @kernel to it: all but those of __local memory, whose size depends on the work-group.
 *
 * @ret_launch  May be @kernel with @space, whose arrays it then borrows.
 * Passes the gate, and may call the driver; not inside the gate.
 */
void implementations_choose(struct kernel *kernel, const struct launch_space *space,
                            struct implementation_launch *ret_launch);

#endif
