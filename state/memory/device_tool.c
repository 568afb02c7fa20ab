#include "state/memory/device_tool.h"

#include <errno.h>

#include "state/base/log.h"

enum tool_state {
    TOOL_UNTRIED,
    TOOL_READY,
    TOOL_BUSY,   /* a thread builds or uses it */
    TOOL_ABSENT, /* for good */
};

static bool device_tool_host_is_little(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* True when the device's properties allow tools. */
static bool device_tool_is_able(const struct residence *residence)
{
    const struct devinfo *info = &residence->device->info;
    return !residence_is_lost(residence) &&
           devinfo_scalar(info, CL_DEVICE_COMPILER_AVAILABLE, 0) != 0 &&
           (devinfo_scalar(info, CL_DEVICE_ENDIAN_LITTLE, 1) != 0) == device_tool_host_is_little();
}

bool device_tool_may(const struct residence *residence, enum residence_tool_kind kind)
{
    return device_tool_is_able(residence) &&
           atomic_load(&residence->tools[kind].state) != TOOL_ABSENT;
}

bool device_tool_is_new(const struct residence *residence, enum residence_tool_kind kind)
{
    return atomic_load(&residence->tools[kind].state) == TOOL_UNTRIED;
}

/* The largest work-group size that is a power of two and within all limits. */
static size_t device_tool_choose_items(const struct residence *residence,
                                       const struct device_tool *tool, size_t of_kernels)
{
    size_t most = of_kernels, items = 1;
    size_t shared = (size_t)devinfo_scalar(&residence->device->info, CL_DEVICE_LOCAL_MEM_SIZE, 0) /
                    tool->item_local;
    const size_t limits[] = {tool->items_most, shared, atomic_load(&residence->groups.items),
                             atomic_load(&residence->groups.sizes[0])};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        most = limits[i] < most ? limits[i] : most;
    while (2 * items <= most)
        items *= 2;
    return items;
}

/* @items  Reduced to the largest work-group that each kernel allows. */
static cl_int device_tool_make_kernels(struct residence *residence, const struct device_tool *tool,
                                       struct residence_tool *made, size_t *items)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < tool->kernel_count && error == CL_SUCCESS; i++) {
        size_t of_kernel = 0;
        made->kernels[i] = cl->clCreateKernel(made->program, tool->kernels[i], &error);
        if (made->kernels[i])
            error = cl->clGetKernelWorkGroupInfo(made->kernels[i], residence->device->id,
                                                 CL_KERNEL_WORK_GROUP_SIZE, sizeof(of_kernel),
                                                 &of_kernel, NULL);
        *items = of_kernel < *items ? of_kernel : *items;
    }
    return error;
}

/* After an error the parts that were made are released with the residence. */
static cl_int device_tool_build(struct residence *residence, const struct device_tool *tool)
{
    const cl_icd_dispatch *cl = residence->cl;
    struct residence_tool *made = &residence->tools[tool->kind];
    const char *text = tool->source;
    size_t items = SIZE_MAX;
    cl_int error;
    made->program = cl->clCreateProgramWithSource(residence->context, 1, &text, NULL, &error);
    if (!made->program)
        return error;
    error = cl->clBuildProgram(made->program, 1, &residence->device->id, tool->options, NULL, NULL);
    if (error == CL_SUCCESS)
        error = device_tool_make_kernels(residence, tool, made, &items);
    if (error != CL_SUCCESS)
        return error;
    made->items = device_tool_choose_items(residence, tool, items);
    return tool->prepare ? tool->prepare(residence, made) : CL_SUCCESS;
}

int device_tool_take(struct residence *residence, const struct device_tool *tool, cl_int *ret_error)
{
    struct residence_tool *taken = &residence->tools[tool->kind];
    uint8_t state = TOOL_READY;
    if (!device_tool_is_able(residence))
        return -ENOTSUP;
    if (atomic_compare_exchange_strong(&taken->state, &state, TOOL_BUSY))
        return 0;
    if (state != TOOL_UNTRIED || !atomic_compare_exchange_strong(&taken->state, &state, TOOL_BUSY))
        return state == TOOL_ABSENT ? -ENOTSUP : -EBUSY;
    cl_int error = device_tool_build(residence, tool);
    if (error == CL_SUCCESS)
        return 0;
    log_info("%s does not build what %s takes (error %d): %s", residence->device->key.device,
             tool->name, error, tool->without);
    atomic_store(&taken->state, TOOL_ABSENT);
    if (ret_error)
        *ret_error = error;
    return -ENOTSUP;
}

void device_tool_give(struct residence *residence, const struct device_tool *tool, cl_int error)
{
    if (error != CL_SUCCESS)
        log_info("%s fails at %s (error %d): %s", residence->device->key.device, tool->name, error,
                 tool->without);
    atomic_store(&residence->tools[tool->kind].state,
                 error == CL_SUCCESS ? TOOL_READY : TOOL_ABSENT);
}

void device_work_fill(struct device_work *work, cl_mem buffer, cl_uint word, size_t offset,
                      size_t size)
{
    struct residence *residence = work->residence;
    cl_event *event = device_work_next(work);
    if (event)
        device_work_given(work, residence->cl->clEnqueueFillBuffer(residence->io, buffer, &word,
                                                                   sizeof(word), offset, size, 0,
                                                                   NULL, event));
}

void device_work_read(struct device_work *work, cl_mem buffer, size_t size, void *bytes)
{
    struct residence *residence = work->residence;
    cl_event *event = device_work_next(work);
    if (event)
        device_work_given(work, residence->cl->clEnqueueReadBuffer(residence->io, buffer, CL_FALSE,
                                                                   0, size, bytes, 0, NULL, event));
}

void device_work_write(struct device_work *work, cl_mem buffer, size_t size, const void *bytes)
{
    struct residence *residence = work->residence;
    cl_event *event = device_work_next(work);
    if (event)
        device_work_given(work,
                          residence->cl->clEnqueueWriteBuffer(residence->io, buffer, CL_FALSE, 0,
                                                              size, bytes, 0, NULL, event));
}

void device_tool_launch(struct device_work *work, const struct device_tool *tool, unsigned kernel,
                        size_t groups, const struct device_argument *arguments, cl_uint count)
{
    struct residence *residence = work->residence;
    const struct residence_tool *taken = &residence->tools[tool->kind];
    const size_t local = taken->items, global = groups * local;
    for (cl_uint i = 0; i < count && work->error == CL_SUCCESS; i++)
        work->error = residence->cl->clSetKernelArg(taken->kernels[kernel], i, arguments[i].size,
                                                    arguments[i].value);
    cl_event *event = device_work_next(work);
    if (event)
        device_work_given(
            work, residence->cl->clEnqueueNDRangeKernel(residence->io, taken->kernels[kernel], 1,
                                                        NULL, &global, &local, 0, NULL, event));
}

/* The status of the command counts, not the result of the wait. */
static cl_int device_tool_ended(const cl_icd_dispatch *cl, cl_event event)
{
    cl_int status = CL_QUEUED;
    cl_int error =
        cl->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL);
    return error != CL_SUCCESS     ? error
           : status == CL_COMPLETE ? CL_SUCCESS
           : status < 0            ? status
                                   : CL_INVALID_EVENT;
}

cl_int device_work_await(struct device_work *work)
{
    struct residence *residence = work->residence;
    cl_int error = work->error;
    cl_int waited = error == CL_SUCCESS && work->count > 0
                        ? residence_await_events(residence, work->count, work->events)
                        : CL_SUCCESS;
    if (error != CL_SUCCESS || waited != CL_SUCCESS)
        (void)residence_await_queue(residence, residence->io);
    error = error != CL_SUCCESS ? error : waited;
    for (cl_uint i = 0; i < work->count && error == CL_SUCCESS; i++)
        error = device_tool_ended(residence->cl, work->events[i]);
    return error;
}

uint64_t device_event_ns(const cl_icd_dispatch *cl, cl_event event)
{
    cl_ulong start = 0, end = 0;
    if (cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start,
                                    NULL) != CL_SUCCESS ||
        cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL) !=
            CL_SUCCESS)
        return 0;
    return end > start ? end - start : 0;
}

void device_work_end(struct device_work *work)
{
    for (cl_uint i = 0; i < work->count; i++)
        work->residence->cl->clReleaseEvent(work->events[i]); /* another table, if it was lost */
    work->count = 0;
}
