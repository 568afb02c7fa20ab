#include "tests/state/transfer/transfer_rig.h"

#include "tests/support/cases.h"
#include <unistd.h>

static struct {
    _Atomic int call; /* -1: none */
    _Atomic int left; /* until it fails */
    atomic_bool fired;
    _Atomic int events, buffers;
    atomic_bool *_Atomic cancel;
    _Atomic int cancel_left;
    _Atomic unsigned slow;
} state = {.call = -1};

/* Every object of a driver begins with its dispatch table. */
static const cl_icd_dispatch *out(const void *handle)
{
    return *(const cl_icd_dispatch *const *)handle;
}

static bool fails(enum rig_call call)
{
    if (atomic_load(&state.call) != (int)call || atomic_fetch_sub(&state.left, 1) != 1)
        return false;
    atomic_store(&state.fired, true);
    return true;
}

static cl_int counted(cl_int error)
{
    atomic_bool *cancel = atomic_load(&state.cancel);
    if (error == CL_SUCCESS)
        atomic_fetch_add(&state.events, 1);
    if (cancel && atomic_fetch_sub(&state.cancel_left, 1) == 1)
        atomic_store(cancel, true);
    return error;
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                      size_t offset, size_t size, void *ptr, cl_uint n,
                                      const cl_event *list, cl_event *event)
{
    if (!event)
        return out(queue)->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, ptr, n, list,
                                               NULL);
    if (fails(RIG_READ_BUFFER))
        return RIG_ERROR;
    return counted(out(queue)->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, ptr, n,
                                                   list, event));
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                       size_t offset, size_t size, const void *ptr, cl_uint n,
                                       const cl_event *list, cl_event *event)
{
    if (!event)
        return out(queue)->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, ptr, n, list,
                                                NULL);
    if (fails(RIG_WRITE_BUFFER))
        return RIG_ERROR;
    return counted(out(queue)->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, ptr, n,
                                                    list, event));
}

static cl_int CL_API_CALL read_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                     const size_t *origin, const size_t *region, size_t row,
                                     size_t slice, void *ptr, cl_uint n, const cl_event *list,
                                     cl_event *event)
{
    if (fails(RIG_READ_IMAGE))
        return RIG_ERROR;
    return counted(out(queue)->clEnqueueReadImage(queue, image, blocking, origin, region, row,
                                                  slice, ptr, n, list, event));
}

static cl_int CL_API_CALL write_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                      const size_t *origin, const size_t *region, size_t row,
                                      size_t slice, const void *ptr, cl_uint n,
                                      const cl_event *list, cl_event *event)
{
    if (fails(RIG_WRITE_IMAGE))
        return RIG_ERROR;
    return counted(out(queue)->clEnqueueWriteImage(queue, image, blocking, origin, region, row,
                                                   slice, ptr, n, list, event));
}

static cl_int CL_API_CALL wait_events(cl_uint n, const cl_event *list)
{
    unsigned slow = atomic_load(&state.slow);
    if (slow)
        usleep(slow);
    return fails(RIG_WAIT) ? RIG_ERROR : out(list[0])->clWaitForEvents(n, list);
}

static cl_int CL_API_CALL event_info(cl_event event, cl_event_info name, size_t size, void *value,
                                     size_t *ret_size)
{
    cl_int error = out(event)->clGetEventInfo(event, name, size, value, ret_size);
    if (name == CL_EVENT_COMMAND_EXECUTION_STATUS && fails(RIG_STATUS))
        *(cl_int *)value = RIG_ERROR;
    return error;
}

static cl_int CL_API_CALL release_event(cl_event event)
{
    atomic_fetch_sub(&state.events, 1);
    return out(event)->clReleaseEvent(event);
}

static cl_int CL_API_CALL flush(cl_command_queue queue)
{
    return fails(RIG_FLUSH) ? RIG_ERROR : out(queue)->clFlush(queue);
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                        void *ptr, cl_int *error)
{
    if (fails(RIG_CREATE_BUFFER)) {
        *error = RIG_ERROR;
        return NULL;
    }
    cl_mem buffer = out(context)->clCreateBuffer(context, flags, size, ptr, error);
    if (buffer)
        atomic_fetch_add(&state.buffers, 1);
    return buffer;
}

static cl_int CL_API_CALL release_buffer(cl_mem buffer)
{
    atomic_fetch_sub(&state.buffers, 1);
    return out(buffer)->clReleaseMemObject(buffer);
}

void rig_arm(enum rig_call call, int n)
{
    atomic_store(&state.fired, false);
    atomic_store(&state.left, n);
    atomic_store(&state.call, (int)call);
}

bool rig_disarm(void)
{
    atomic_store(&state.call, -1);
    return atomic_load(&state.fired);
}

int rig_live_events(void)
{
    return atomic_load(&state.events);
}

int rig_live_buffers(void)
{
    return atomic_load(&state.buffers);
}

void rig_cancel_at(atomic_bool *cancel, int enqueue)
{
    atomic_store(&state.cancel_left, enqueue);
    atomic_store(&state.cancel, cancel);
}

void rig_slow_waits(unsigned microseconds)
{
    atomic_store(&state.slow, microseconds);
}

/* The device of that index, or whose name has @name in it; by the loader's order. */
static bool find_device(const char *name, unsigned index, cl_platform_id *ret_platform,
                        cl_device_id *ret_device)
{
    cl_platform_id platforms[8];
    cl_uint platform_count = 0;
    setenv("POCL_DEVICES", "basic pthread", 0);
    setenv("RUSTICL_ENABLE", "llvmpipe", 0);
    if (clGetPlatformIDs(ARRAY_SIZE(platforms), platforms, &platform_count) != CL_SUCCESS)
        return false;
    for (cl_uint p = 0; p < platform_count && p < ARRAY_SIZE(platforms); p++) {
        cl_device_id devices[8];
        cl_uint count = 0;
        char said[256] = "";
        clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof(said), said, NULL);
        if (!name && strcmp(said, "Portable Computing Language") != 0)
            continue;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, ARRAY_SIZE(devices), devices,
                           &count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < ARRAY_SIZE(devices); d++) {
            clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof(said), said, NULL);
            if (name ? strstr(said, name) != NULL : d == index) {
                *ret_platform = platforms[p];
                *ret_device = devices[d];
                return true;
            }
        }
    }
    return false;
}

static struct rig *create(const char *name, unsigned index, bool link)
{
    cl_platform_id platform;
    cl_device_id id;
    cl_int error;
    if (!find_device(name, index, &platform, &id))
        return NULL;
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->real = out(platform);
    rig->table = *rig->real;
    rig->table.clEnqueueReadBuffer = read_buffer;
    rig->table.clEnqueueWriteBuffer = write_buffer;
    rig->table.clEnqueueReadImage = read_image;
    rig->table.clEnqueueWriteImage = write_image;
    rig->table.clWaitForEvents = wait_events;
    rig->table.clGetEventInfo = event_info;
    rig->table.clReleaseEvent = release_event;
    rig->table.clFlush = flush;
    rig->table.clCreateBuffer = create_buffer;
    rig->table.clReleaseMemObject = release_buffer;
    rig->unified_value = !link;
    rig->unified = (struct devinfo_value){CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_bool),
                                          (uint8_t *)&rig->unified_value};
    rig->device = (struct device){.cl = &rig->table, .platform = platform, .id = id};
    rig->device.info.value_count = 1;
    rig->device.info.values = &rig->unified;
    atomic_init(&rig->residence.refs, 1);
    rig->residence.device = &rig->device;
    rig->residence.cl = &rig->table;
    rig->residence.context = rig->real->clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    cr_assert_not_null(rig->residence.context, "context: %d", error);
    rig->residence.io = rig->real->clCreateCommandQueue(rig->residence.context, id, 0, &error);
    rig->queue = rig->real->clCreateCommandQueue(rig->residence.context, id, 0, &error);
    cr_assert_not_null(rig->queue, "queue: %d", error);
    return rig;
}

struct rig *rig_create(unsigned index, bool link)
{
    struct rig *rig = create(NULL, index, link);
    cr_assert_not_null(rig, "POCL has no device %u", index);
    return rig;
}

struct rig *rig_create_named(const char *name, bool link)
{
    return create(name, 0, link);
}

void rig_destroy(struct rig *rig)
{
    rig->real->clReleaseCommandQueue(rig->queue);
    rig->real->clReleaseCommandQueue(rig->residence.io);
    rig->real->clReleaseContext(rig->residence.context);
    /* Not freed: measured figures are kept by the device's address, which lives as long as the
     * process. */
    static struct rig *kept[64];
    static unsigned count;
    kept[count++ % ARRAY_SIZE(kept)] = rig;
}

cl_mem rig_buffer(struct rig *rig, size_t size, const char *bytes)
{
    cl_int error;
    cl_mem buffer =
        rig->real->clCreateBuffer(rig->residence.context, CL_MEM_READ_WRITE, size, NULL, &error);
    cr_assert_not_null(buffer, "buffer of %zu: %d", size, error);
    error =
        rig->real->clEnqueueWriteBuffer(rig->queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    cr_assert_eq(error, 0);
    return buffer;
}

void rig_read(struct rig *rig, cl_mem buffer, size_t size, char *bytes)
{
    cl_int error =
        rig->real->clEnqueueReadBuffer(rig->queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    cr_assert_eq(error, 0);
}

cl_mem rig_image(struct rig *rig, const struct image_shape *shape, const char *packed)
{
    static const size_t origin[3];
    cl_int error;
    cl_mem image = rig->real->clCreateImage(rig->residence.context, CL_MEM_READ_WRITE,
                                            &shape->format, &shape->desc, NULL, &error);
    cr_assert_not_null(image, "image of type %x: %d", shape->desc.image_type, error);
    if (!packed)
        return image;
    error = rig->real->clEnqueueWriteImage(rig->queue, image, CL_TRUE, origin, shape->dims, 0, 0,
                                           packed, 0, NULL, NULL);
    cr_assert_eq(error, 0);
    return image;
}

void rig_read_image(struct rig *rig, cl_mem image, const struct image_shape *shape, char *packed)
{
    static const size_t origin[3];
    cl_int error = rig->real->clEnqueueReadImage(rig->queue, image, CL_TRUE, origin, shape->dims, 0,
                                                 0, packed, 0, NULL, NULL);
    cr_assert_eq(error, 0);
}
