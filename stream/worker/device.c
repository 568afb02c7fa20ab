#include "stream/worker/device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "state/base/clock.h"

#define PLATFORMS_MAX 16
#define LOG_MAX       (64u << 10)
#define LOCAL         64 /* work-items of a work-group, if the kernel can */
#define GUARD_BYTE    0xa5
/* Bytes of a payload that is worth an own path while the device is idle: larger ones should
 * overlap.
 */
#define ALONE_MOST (64u << 10)

static int device_fail(struct device *device, int error, const char *format, ...) PRINTF(3, 4);
static int device_fail(struct device *device, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(device->problem, sizeof(device->problem), format, arguments);
    va_end(arguments);
    return error;
}

/* What an error of OpenCL means: with another device, or a second time, would it be the same? */
static int device_check(struct device *device, cl_int error, const char *what)
{
    switch (error) {
    case CL_SUCCESS:
        return 0;
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
        return device_fail(device, -EINVAL,
                           "%s: OpenCL error %d; check the kernel's arguments, "
                           "items and local",
                           what, error);
    default:
        return device_fail(device, -EIO, "%s: OpenCL error %d", what, error);
    }
}

/* ---- the kernel ---- */

static int device_find(struct device *device)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint count = 0;
    clGetPlatformIDs(PLATFORMS_MAX, platforms, &count);
    for (cl_uint i = 0; i < count && i < PLATFORMS_MAX; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device->id, NULL) == CL_SUCCESS)
            return 0;
    return device_fail(device, -EIO, "there is no OpenCL device");
}

/* The first lines of the compiler's log say what is wrong; the rest often follows from them. */
static int device_fail_build(struct device *device)
{
    size_t size = 0;
    char *log = calloc(1, LOG_MAX + 1);
    if (log)
        clGetProgramBuildInfo(device->program, device->id, CL_PROGRAM_BUILD_LOG, LOG_MAX, log,
                              &size);
    device_fail(device, -EINVAL, "the kernel does not build:\n%.2900s",
                log && *log ? log : "the compiler gives no reason");
    free(log);
    return -EINVAL;
}

static int device_build(struct device *device, const char *source)
{
    const struct stream_description *description = device->description;
    cl_uint arguments = 0;
    cl_int error;
    device->program = clCreateProgramWithSource(device->context, 1, &source, NULL, &error);
    if (error)
        return device_check(device, error, "the kernel's program");
    error = clBuildProgram(device->program, 1, &device->id, description->options, NULL, NULL);
    if (error == CL_BUILD_PROGRAM_FAILURE || error == CL_INVALID_BUILD_OPTIONS)
        return device_fail_build(device);
    if (error)
        return device_check(device, error, "building the kernel");
    device->kernel = clCreateKernel(device->program, description->kernel, &error);
    if (error == CL_INVALID_KERNEL_NAME)
        return device_fail(device, -EINVAL, "the source has no kernel \"%s\"", description->kernel);
    if (error)
        return device_check(device, error, "the kernel");
    clGetKernelInfo(device->kernel, CL_KERNEL_NUM_ARGS, sizeof(arguments), &arguments, NULL);
    if (arguments != 2 + description->count)
        return device_fail(device, -EINVAL,
                           "the kernel has %u arguments; with the constants of its description it "
                           "needs %u: in, out%s",
                           arguments, 2 + description->count,
                           description->count ? " and the constants" : "");
    return 0;
}

/* Drivers that compile a kernel for each size of a work-group (POCL) must not be left to choose one
 * for each payload; and with large ones a kernel's own arrays overflow their threads' stacks. */
static void device_find_local(struct device *device)
{
    size_t most = 1, required[3] = {0};
    device->local = device->description->local;
    clGetKernelWorkGroupInfo(device->kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                             sizeof(required), required, NULL);
    clGetKernelWorkGroupInfo(device->kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof(most),
                             &most, NULL);
    if (device->local == 0 && required[0] == 0)
        for (device->local = 1; device->local < LOCAL && 2 * device->local <= most;)
            device->local *= 2;
}

static int device_set_constants(struct device *device, const struct stream_open *open)
{
    uint32_t order[STREAM_CONSTANTS_MAX];
    if (stream_description_match(device->description, open, order, device->problem))
        return -EINVAL;
    for (uint32_t i = 0; i < device->description->count; i++) {
        const struct stream_text *value = &open->constants[order[i]].value;
        cl_int error;
        device->constants[i] =
            clCreateBuffer(device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, value->size,
                           (void *)value->bytes, &error);
        if (!error)
            error = clSetKernelArg(device->kernel, 2 + i, sizeof(cl_mem), &device->constants[i]);
        if (error)
            return device_check(device, error, "a constant");
    }
    return 0;
}

int device_open(struct device *device, const struct stream_description *description,
                const struct stream_open *open)
{
    cl_int error = CL_SUCCESS;
    device->description = description;
    device->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (device->bell < 0)
        return device_fail(device, -EIO, "%s", strerror(errno));
    int failed = device_find(device);
    if (failed)
        return failed;
    device->context = clCreateContext(NULL, 1, &device->id, NULL, NULL, &error);
    for (size_t i = 0; !error && i < STREAM_STAGES; i++)
        device->stages[i].queue =
            clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &error);
    failed = device_check(device, error, "the device");
    failed = failed ? failed : device_build(device, open->source.bytes);
    if (failed)
        return failed;
    device_find_local(device);
    return device_set_constants(device, open);
}

/* ---- the rings ---- */

static size_t device_front(const struct device *device)
{
    uint32_t output = device->description->output;
    return output < DEVICE_GUARD ? output : DEVICE_GUARD;
}

/* The first of the bytes before the first answer that are checked. */
static size_t device_front_at(const struct device *device)
{
    return device->description->output - device_front(device);
}

static size_t device_back_at(const struct device *device)
{
    return (size_t)(1 + device->slots) * device->description->output;
}

static cl_int device_make_ring(struct device *device, size_t size, cl_uint index, cl_mem *ring)
{
    cl_int error;
    if (*ring)
        clReleaseMemObject(*ring);
    *ring = clCreateBuffer(device->context, CL_MEM_READ_WRITE, size, NULL, &error);
    return error ? error : clSetKernelArg(device->kernel, index, sizeof(cl_mem), ring);
}

static cl_int device_make_guard(struct device *device)
{
    unsigned char bytes[DEVICE_GUARD];
    cl_command_queue queue = device->stages[DEVICE_WRITE].queue;
    memset(bytes, GUARD_BYTE, sizeof(bytes));
    cl_int error = clEnqueueWriteBuffer(queue, device->output, CL_TRUE, device_front_at(device),
                                        device_front(device), bytes, 0, NULL, NULL);
    return error ? error
                 : clEnqueueWriteBuffer(queue, device->output, CL_TRUE, device_back_at(device),
                                        sizeof(bytes), bytes, 0, NULL, NULL);
}

int device_make_rings(struct device *device, const uint32_t payloads[STREAM_STAGES],
                      const uint32_t depths[STREAM_STAGES], uint64_t position)
{
    const struct stream_description *description = device->description;
    uint64_t held[STREAM_STAGES];
    for (size_t i = 0; i < STREAM_STAGES; i++) {
        struct device_queue *stage = &device->stages[i];
        stage->payload = payloads[i];
        stage->depth = depths[i] < DEVICE_DEPTH_MAX ? depths[i] : DEVICE_DEPTH_MAX;
        stage->issued = stage->done = position;
        held[i] = (uint64_t)stage->payload * stage->depth;
    }
    /* A record's slot is held from when it is written until it was computed; its answer's, from
     * when it is computed until it was read. */
    uint64_t in = held[DEVICE_WRITE] + held[DEVICE_COMPUTE];
    uint64_t out = held[DEVICE_COMPUTE] + held[DEVICE_READ];
    device->slots = in > out ? in : out;
    cl_int error = device_make_ring(device, (size_t)(1 + device->slots) * description->input, 0,
                                    &device->input);
    if (!error)
        error = device_make_ring(device, device_back_at(device) + DEVICE_GUARD, 1, &device->output);
    if (!error)
        error = device_make_guard(device);
    return device_check(device, error, "memory for the stream");
}

bool device_guard_is_whole(const struct device *device, const struct device_payload *payload)
{
    size_t size = device_front(device) + DEVICE_GUARD;
    for (size_t i = 0; payload->guarded && i < size; i++)
        if (payload->guard[i] != GUARD_BYTE)
            return false;
    return true;
}

/* ---- commands ---- */

/* Until when a stage may go on, for want of slots that are free. */
static uint64_t device_limit(const struct device *device, enum device_stage stage)
{
    switch (stage) {
    case DEVICE_WRITE:
        return device->stages[DEVICE_COMPUTE].done + device->slots;
    case DEVICE_COMPUTE:
        return device->stages[DEVICE_READ].done + device->slots;
    default:
        return UINT64_MAX;
    }
}

uint64_t device_can_start(const struct device *device, enum device_stage stage, uint64_t available)
{
    const struct device_queue *at = &device->stages[stage];
    uint64_t room = device_limit(device, stage) - at->issued;
    uint64_t together = device->slots - at->issued % device->slots;
    available = available < room ? available : room;
    /* A part of a payload does not wait for the rest while the stage has nothing to do. */
    if (at->count == at->depth || (at->count > 0 && available < at->payload))
        return 0;
    available = available < at->payload ? available : at->payload;
    return available < together ? available : together;
}

bool device_is_idle(const struct device *device)
{
    return device->stages[DEVICE_WRITE].count == 0 && device->stages[DEVICE_COMPUTE].count == 0 &&
           device->stages[DEVICE_READ].count == 0;
}

/* Some drivers say CL_COMPLETE to the callback of a command that failed, so it tells nothing else.
 */
static void CL_CALLBACK device_ring(cl_event event, cl_int status, void *data)
{
    const struct device *device = data;
    const uint64_t one = 1;
    (void)event;
    (void)status;
    (void)!write(device->bell, &one, sizeof(one));
}

void device_ring_at_end(struct device *device)
{
    for (int i = 0; i < STREAM_STAGES; i++) {
        struct device_queue *at = &device->stages[i];
        struct device_payload *payload = &at->payloads[at->first];
        if (at->count == 0 || payload->rings)
            continue;
        payload->rings = true;
        if (clSetEventCallback(payload->event, CL_COMPLETE, device_ring, device))
            device_ring(NULL, 0, device);
    }
}

/* The command of the stage before that the record before @end needs; NULL: it has ended. */
static const cl_event *device_before(struct device *device, enum device_stage stage, uint64_t end)
{
    if (stage == DEVICE_WRITE || device->stages[stage - 1].done >= end)
        return NULL;
    struct device_queue *before = &device->stages[stage - 1];
    for (unsigned i = 0; i < before->count; i++) {
        struct device_payload *payload = &before->payloads[(before->first + i) % DEVICE_DEPTH_MAX];
        if (payload->end >= end)
            return &payload->event;
    }
    return NULL;
}

/* Where a command is enqueued. */
struct device_after {
    cl_command_queue queue;
    const cl_event *event; /* The command waits for it; NULL: the queue's order is enough. */
};

static cl_int device_read_guard(const struct device *device, struct device_payload *payload,
                                const struct device_after *after)
{
    size_t front = device_front(device);
    cl_int error =
        clEnqueueReadBuffer(after->queue, device->output, CL_FALSE, device_front_at(device), front,
                            payload->guard, after->event != NULL, after->event, NULL);
    payload->guarded = true;
    return error
               ? error
               : clEnqueueReadBuffer(after->queue, device->output, CL_FALSE, device_back_at(device),
                                     DEVICE_GUARD, payload->guard + front, 0, NULL, NULL);
}

/* Launch the whole work-groups, and the remaining work-items in a second launch. */
static cl_int device_launch(const struct device *device, size_t offset, size_t size,
                            const struct device_after *after, cl_event *event)
{
    const size_t one = 1, local = device->local;
    cl_uint waits = after->event != NULL;
    size_t rest = local && !device->description->local ? size % local : 0, whole = size - rest;
    cl_int error = CL_SUCCESS;
    if (whole)
        error =
            clEnqueueNDRangeKernel(after->queue, device->kernel, 1, &offset, &whole,
                                   local ? &local : NULL, waits, after->event, rest ? NULL : event);
    offset += whole;
    if (rest && !error)
        error = clEnqueueNDRangeKernel(after->queue, device->kernel, 1, &offset, &rest, &one, waits,
                                       after->event, event);
    return error;
}

int device_start(struct device *device, enum device_stage stage, uint64_t count, char *host,
                 bool guard)
{
    const struct stream_description *description = device->description;
    struct device_queue *at = &device->stages[stage];
    struct device_payload *payload = &at->payloads[(at->first + at->count) % DEVICE_DEPTH_MAX];
    size_t slot = (size_t)(1 + at->issued % device->slots);
    uint64_t end = at->issued + count;
    if (stage == DEVICE_WRITE && device_is_idle(device))
        device->alone = count <= device->stages[DEVICE_COMPUTE].payload &&
                                count * description->input <= ALONE_MOST
                            ? end
                            : 0;
    /* A launch for more records waits by events, and so must the reads of their answers. */
    if (stage == DEVICE_COMPUTE && end != device->alone)
        device->alone = 0;
    bool alone = end == device->alone;
    const struct device_after after = {.queue =
                                           alone ? device->stages[DEVICE_WRITE].queue : at->queue,
                                       .event = alone ? NULL : device_before(device, stage, end)};
    cl_uint waits = after.event != NULL;
    cl_int error = CL_SUCCESS;
    *payload = (struct device_payload){.end = end, .count = count, .started_ns = clock_now_ns()};
    switch (stage) {
    case DEVICE_WRITE:
        error = clEnqueueWriteBuffer(after.queue, device->input, CL_FALSE,
                                     slot * description->input, (size_t)count * description->input,
                                     host, 0, NULL, &payload->event);
        break;
    case DEVICE_COMPUTE:
        error = device_launch(device, slot * description->items, (size_t)count * description->items,
                              &after, &payload->event);
        break;
    case DEVICE_READ:
        if (guard)
            error = device_read_guard(device, payload, &after);
        if (!error)
            error = clEnqueueReadBuffer(
                after.queue, device->output, CL_FALSE, slot * description->output,
                (size_t)count * description->output, host, waits, after.event, &payload->event);
        break;
    }
    if (!error) {
        at->count++;
        at->issued = end;
        error = clFlush(after.queue);
    }
    return device_check(device, error, "a command");
}

/* Of a stage's oldest command; CL_QUEUED: there is none. */
static cl_int device_status(const struct device_queue *at)
{
    cl_int status = CL_QUEUED;
    if (at->count == 0)
        return CL_QUEUED;
    cl_int error = clGetEventInfo(at->payloads[at->first].event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                  sizeof(status), &status, NULL);
    return error ? error : status;
}

struct device_payload *device_ended(struct device *device, enum device_stage stage, int *ret_error)
{
    struct device_queue *at = &device->stages[stage];
    struct device_payload *payload = &at->payloads[at->first];
    cl_int status = device_status(at);
    if (status > CL_COMPLETE)
        return NULL;
    *ret_error = device_check(device, status, "a command");
    return payload;
}

bool device_has_ended(const struct device *device)
{
    for (int i = 0; i < STREAM_STAGES; i++)
        if (device_status(&device->stages[i]) <= CL_COMPLETE)
            return true;
    return false;
}

static uint64_t device_time(const struct device_payload *payload, cl_profiling_info which)
{
    cl_ulong ns = 0;
    clGetEventProfilingInfo(payload->event, which, sizeof(ns), &ns, NULL);
    return ns;
}

/* When a stage had done all before @position; 0: that is long ago. */
static uint64_t device_end_of(const struct device_queue *at, uint64_t position)
{
    for (unsigned i = 0; i < DEVICE_DEPTH_MAX; i++) {
        const struct device_end *end = &at->ends[(at->last + 1 + i) % DEVICE_DEPTH_MAX];
        if (end->ns && end->position >= position)
            return end->ns;
    }
    return 0;
}

void device_times(struct device *device, enum device_stage stage,
                  const struct device_payload *payload, uint64_t *ret_begin_ns,
                  uint64_t *ret_end_ns)
{
    struct device_queue *at = &device->stages[stage];
    uint64_t begin = device_time(payload, CL_PROFILING_COMMAND_QUEUED);
    uint64_t end = device_time(payload, CL_PROFILING_COMMAND_END);
    if (begin == 0 || end < begin) {
        begin = payload->started_ns;
        end = clock_now_ns();
    }
    uint64_t before = at->ends[at->last].ns;
    uint64_t needed =
        stage == DEVICE_WRITE ? 0 : device_end_of(&device->stages[stage - 1], payload->end);
    begin = before > begin && before <= end ? before : begin;
    begin = needed > begin && needed <= end ? needed : begin;
    at->last = (at->last + 1) % DEVICE_DEPTH_MAX;
    at->ends[at->last] = (struct device_end){payload->end, end};
    *ret_begin_ns = begin;
    *ret_end_ns = end;
}

void device_forget(struct device *device, enum device_stage stage)
{
    struct device_queue *at = &device->stages[stage];
    clReleaseEvent(at->payloads[at->first].event);
    at->done = at->payloads[at->first].end;
    at->first = (at->first + 1) % DEVICE_DEPTH_MAX;
    at->count--;
}
