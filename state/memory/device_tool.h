#ifndef RESEAT_STATE_MEMORY_DEVICE_TOOL_H
#define RESEAT_STATE_MEMORY_DEVICE_TOOL_H

#include "state/object/residence.h"

/*
 * Programs of ours on a device: what it does with the bytes of buffers where they are, at the speed
 * of its memory. One is built in a residence when it is first needed, kept there, and released with
 * it. A device without a compiler has none, nor has one that orders the bytes of a word otherwise
 * than the host.
 */

/** What one is made of. Constant. */
struct device_tool {
    enum residence_tool_kind kind;
    const char *source, *options;
    const char *const *kernels; /**< As many as struct residence_tool has room for, at most. */
    size_t kernel_count;
    size_t items_most; /**< Of a work-group. */
    size_t item_local; /**< Bytes of local memory that each of them takes. */
    /** Makes buffers and staging; or NULL. What it made when it fails is kept, to be released. */
    cl_int (*prepare)(struct residence *residence, struct residence_tool *ret_made);
    const char *name;    /**< For logs: what it is for, */
    const char *without; /**< and what becomes of that without it. */
};

/** False when @residence has no such tool, for good. Wait-free. */
bool device_tool_may(const struct residence *residence, enum residence_tool_kind kind);
/** True when it would have to be built first. Wait-free. */
bool device_tool_is_new(const struct residence *residence, enum residence_tool_kind kind);

/**
 * Have @residence's one for this thread alone, until device_tool_give. Thread-safe. Blocks on the
 * build the first time.
 *
 * Returns 0, -EBUSY (another thread has it), -ENOTSUP (it is not to be had, from now on).
 *
 * @ret_error  Why it was not built just now; untouched otherwise. May be NULL.
 */
MUST_CHECK int device_tool_take(struct residence *residence, const struct device_tool *tool,
                                cl_int *ret_error);
/** @error  What the driver said meanwhile: it is not to be had from now on, unless CL_SUCCESS. */
void device_tool_give(struct residence *residence, const struct device_tool *tool, cl_int error);

#define DEVICE_WORK_MOST 72

/** What a residence's io queue was given together: no more than there is room for. One thread's. */
struct device_work {
    struct residence *residence;
    cl_int error; /**< Of giving it: what follows is not given. */
    cl_uint count;
    cl_event events[DEVICE_WORK_MOST]; /**< In the order of giving. */
};

/** Where the next command's event goes, or NULL: nothing more is to be given. */
static inline cl_event *device_work_next(struct device_work *work)
{
    if (work->error == CL_SUCCESS && work->count == ARRAY_SIZE(work->events))
        work->error = CL_OUT_OF_HOST_MEMORY;
    return work->error == CL_SUCCESS ? &work->events[work->count] : NULL;
}
/** The driver's answer to a command whose event went there. */
static inline void device_work_given(struct device_work *work, cl_int error)
{
    work->error = error;
    if (error == CL_SUCCESS)
        work->count++;
}

/** An argument of a kernel. */
struct device_argument {
    size_t size;
    const void *value; /**< NULL: local memory. */
};

/** Have the tool that this thread took run its kernel number @kernel in @groups work-groups. */
void device_tool_launch(struct device_work *work, const struct device_tool *tool, unsigned kernel,
                        size_t groups, const struct device_argument *arguments, cl_uint count);

/**
 * Wait for what was given. Whatever is returned, none of it is under way any more, unless the
 * residence is lost: then its driver may still write to host memory. CL_SUCCESS, the first error of
 * giving, waiting, or of a command. The events are there still. Blocks on the device.
 */
MUST_CHECK cl_int device_work_await(struct device_work *work);
/** Release the events. */
void device_work_end(struct device_work *work);

#endif
