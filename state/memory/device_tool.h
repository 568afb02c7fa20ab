#ifndef RESEAT_STATE_MEMORY_DEVICE_TOOL_H
#define RESEAT_STATE_MEMORY_DEVICE_TOOL_H

#include "state/object/residence.h"

/*
 * Our own programs on a device, which work on the bytes of buffers at the speed of its memory. A
 * tool is built in a residence when it is first needed, and released with the residence. A device
 * has no tools if it has no compiler, or another byte order than the host.
 */

/** The description of a tool. Constant. */
struct device_tool {
    enum residence_tool_kind kind;
    const char *source, *options;
    const char *const *kernels; /**< At most as many as struct residence_tool has room for. */
    size_t kernel_count;
    size_t items_most; /**< Of a work-group. */
    size_t item_local; /**< Bytes of local memory for each work-item. */
    /** Makes buffers and staging; or NULL. What it has made when it fails is released with the
     * tool. */
    cl_int (*prepare)(struct residence *residence, struct residence_tool *ret_made);
    const char *name;    /**< For logs: what the tool does. */
    const char *without; /**< For logs: what happens without it. */
};

/** False when @residence will never have such a tool. Wait-free. */
bool device_tool_may(const struct residence *residence, enum residence_tool_kind kind);
/** True when it would have to be built first. Wait-free. */
bool device_tool_is_new(const struct residence *residence, enum residence_tool_kind kind);

/**
 * Take @residence's tool for this thread alone, until device_tool_give. Thread-safe. Blocks on the
 * build the first time.
 *
 * Returns 0, -EBUSY (another thread has it), -ENOTSUP (@residence will never have it).
 *
 * @ret_error  The error of a build that has just failed; otherwise unchanged. May be NULL.
 */
MUST_CHECK int device_tool_take(struct residence *residence, const struct device_tool *tool,
                                cl_int *ret_error);
/** @error  Of the driver while the tool was used; unless CL_SUCCESS the tool is not used again. */
void device_tool_give(struct residence *residence, const struct device_tool *tool, cl_int error);

#define DEVICE_WORK_MOST 72

/** Commands that were enqueued together on a residence's io queue. Used by one thread. */
struct device_work {
    struct residence *residence;
    cl_int error; /**< Of enqueuing; after an error nothing more is enqueued. */
    cl_uint count;
    cl_event events[DEVICE_WORK_MOST]; /**< In the order of enqueuing. */
};

/** Where the next command's event goes; NULL: nothing more is to be enqueued. */
static inline cl_event *device_work_next(struct device_work *work)
{
    if (work->error == CL_SUCCESS && work->count == ARRAY_SIZE(work->events))
        work->error = CL_OUT_OF_HOST_MEMORY;
    return work->error == CL_SUCCESS ? &work->events[work->count] : NULL;
}
/** Record the driver's result of enqueuing that command. */
static inline void device_work_given(struct device_work *work, cl_int error)
{
    work->error = error;
    if (error == CL_SUCCESS)
        work->count++;
}

/** Fill @size bytes of @buffer with @word; read its first @size bytes to @bytes; write @bytes to
 * its begin. Host memory is used until the command has ended. */
void device_work_fill(struct device_work *work, cl_mem buffer, cl_uint word, size_t offset,
                      size_t size);
void device_work_read(struct device_work *work, cl_mem buffer, size_t size, void *bytes);
void device_work_write(struct device_work *work, cl_mem buffer, size_t size, const void *bytes);

/** An argument of a kernel. */
struct device_argument {
    size_t size;
    const void *value; /**< NULL: local memory. */
};

/** Launch kernel number @kernel of the tool, which this thread has taken, with @groups work-groups.
 */
void device_tool_launch(struct device_work *work, const struct device_tool *tool, unsigned kernel,
                        size_t groups, const struct device_argument *arguments, cl_uint count);

/**
 * Wait until all commands have ended. They have also after an error, unless the residence is lost:
 * then its driver may still write to host memory. Returns CL_SUCCESS, or the first error of
 * enqueuing, waiting, or of a command. The events are not released. Blocks on the device.
 */
MUST_CHECK cl_int device_work_await(struct device_work *work);
/** Nanoseconds that the device needed for the command of @event; 0: it does not tell. */
uint64_t device_event_ns(const cl_icd_dispatch *cl, cl_event event);
/** Release the events. */
void device_work_end(struct device_work *work);

#endif
