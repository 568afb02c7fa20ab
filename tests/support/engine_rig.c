#include "tests/support/engine_rig.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "interpose/control/control.h"
#include "interpose/entry/start.h"
#include "state/driver/device_key.h"
#include "tests/support/folder.h"

/* The runner loads POCL before it forks the tests: the dynamic linker takes up to two fifths of a
 * short test's time for it. Where there is no POCL, the test that needs it says so. */
__attribute__((constructor)) static void load_pocl(void)
{
    (void)dlopen("libpocl.so.2", RTLD_NOW);
}

static struct device *find(const struct engine_rig *rig, const char *name)
{
    for (uint32_t i = 0; i < rig->device_count; i++) {
        const char *known = rig->devices[i]->key.device;
        if (strncmp(known, name, strlen(name)) == 0)
            return rig->devices[i];
    }
    cr_assert_fail("no device %s among %u", name, rig->device_count);
    return NULL;
}

/* @first: the device to start on; or NULL. @memory: told in the portable profile; NULL: native. */
static void engine_start(struct engine_rig *rig, const char *first, const char *memory)
{
    char key[DEVICE_KEY_TEXT_MAX];
    cl_uint count = 0;
    size_t listed;
    setenv(START_ENV_PROFILE, memory ? "portable" : "native", 1);
    setenv(START_ENV_MEMORY, memory ? memory : "", 1);
    unsetenv(START_ENV_INVENTORY);
    unsetenv(START_ENV_PRESENT);
    setenv(START_ENV_SLICE, "0", 0); /* launches are what they are, where a test does not say */
    /* No agent: not the machine's either. */
    unsetenv(CONTROL_ENV_SOCKET);
    unsetenv(CONTROL_ENV_DEVICE);
    cr_assert_eq(driver_list(&rig->devices, &listed), 0);
    rig->device_count = (uint32_t)listed;
    if (first) {
        device_key_format(&find(rig, first)->key, key);
        setenv(CONTROL_ENV_DEVICE, key, 1);
    }
    OK(clGetPlatformIDs(1, &rig->platform, &count));
    cr_assert_eq(count, 1);
    OK(clGetDeviceIDs(rig->platform, CL_DEVICE_TYPE_ALL, 1, &rig->device, &count));
}

void engine_rig_open_told(struct engine_rig *rig, const char *config, const char *memory)
{
    char path[SCRATCH_MAX];
    int fd = mkstemp(scratch(path, "rig"));
    memset(rig, 0, sizeof(*rig));
    cr_assert(fd >= 0 && write(fd, config, strlen(config)) == (ssize_t)strlen(config));
    close(fd);
    folder_clean_environment();
    setenv("EMU_CONFIG", path, 1);
    setenv(DRIVER_ENV_VENDORS, getenv("EMU_VENDORS"), 1);
    void *library = dlopen(getenv("EMU_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    emu_control_shared_fn shared;
    *(void **)&shared = dlsym(library, "emu_control_shared");
    rig->emu = shared();
    engine_start(rig, NULL, memory);
    unlink(path);
}

void engine_rig_open(struct engine_rig *rig, const char *config)
{
    engine_rig_open_told(rig, config, NULL);
}

void engine_rig_open_pocl(struct engine_rig *rig, const char *devices)
{
    engine_rig_open_pocl_on(rig, devices, NULL);
}

void engine_rig_open_pocl_on(struct engine_rig *rig, const char *devices, const char *first)
{
    memset(rig, 0, sizeof(*rig));
    folder_clean_environment();
    setenv("POCL_DEVICES", devices, 1);
    setenv(DRIVER_ENV_VENDORS, "/etc/OpenCL/vendors/pocl.icd", 1);
    engine_start(rig, first, NULL);
}

cl_device_id engine_rig_vdev_on(struct device *device)
{
    struct vdev *vdev = object_create(OBJECT_DEVICE);
    cr_assert_not_null(vdev);
    vdev->index = the_vdev_count;
    vdev->device = vdev->last = vdev->origin = device;
    object_publish(vdev);
    the_vdevs[the_vdev_count++] = vdev;
    return (cl_device_id)vdev;
}

cl_device_id engine_rig_vdev(struct engine_rig *rig, const char *name)
{
    return engine_rig_vdev_on(find(rig, name));
}

const struct device_key *engine_rig_key(const struct engine_rig *rig, const char *name)
{
    return &find(rig, name)->key;
}

enum move_result engine_rig_move(const struct engine_rig *rig, const char *name,
                                 struct move_report *ret_report)
{
    struct move_request request = {.target = name ? engine_rig_key(rig, name) : NULL};
    move_run(&request, ret_report);
    return ret_report->result;
}

void engine_rig_moves(const struct engine_rig *rig, const char *name)
{
    struct move_report report;
    enum move_result result = engine_rig_move(rig, name, &report);
    cr_assert_eq(result, MOVE_DONE, "move to %s: %s in %s: %s", name ? name : "host memory",
                 move_result_name(result), move_phase_name(report.reached), report.reason);
    cr_assert_str_empty(report.reason);
    cr_assert_eq(report.reached, MOVE_RESUME);
}

void engine_rig_forget(const struct engine_rig *rig, const char *name)
{
    struct device *device = find(rig, name);
    atomic_store(&device->host_ptr, HOST_PTR_UNTRIED);
    device->link = (struct link_figures){0};
}

struct engine_between engine_between;
static struct between_held {
    const cl_icd_dispatch *cl;
    cl_command_queue queue;
    cl_mem target;
    size_t offset, size;
    char *bytes;
    cl_event event;
} between_held[64];
static const cl_icd_dispatch *between_cl;

static cl_int between_write(const struct between_held *held, cl_event *ret_event)
{
    return held->cl->clEnqueueWriteBuffer(held->queue, held->target, CL_TRUE, held->offset,
                                          held->size, held->bytes, 0, NULL, ret_event);
}

static cl_int between_hold(struct between_held held, cl_event *ret_event)
{
    cl_context context;
    OK(held.cl->clGetCommandQueueInfo(held.queue, CL_QUEUE_CONTEXT, sizeof(context), &context,
                                      NULL));
    OK(held.cl->clRetainCommandQueue(held.queue));
    held.event = MADE(held.cl->clCreateUserEvent, context);
    OK(held.cl->clRetainEvent(held.event));
    *ret_event = held.event;
    between_held[atomic_load(&engine_between.held)] = held;
    atomic_fetch_add(&engine_between.held, 1);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL between(cl_command_queue source_queue, cl_command_queue target_queue,
                                  cl_mem source, cl_mem target, size_t source_offset,
                                  size_t target_offset, size_t size, cl_uint wait_count,
                                  const cl_event *waits, cl_event *event)
{
    if (atomic_fetch_add(&engine_between.passed, 1) + 1 == engine_between.failing)
        return CL_OUT_OF_RESOURCES;
    struct between_held held = {.cl = between_cl,
                                .queue = target_queue,
                                .target = target,
                                .offset = target_offset,
                                .size = size,
                                .bytes = malloc(size)};
    cl_int error = wait_count ? held.cl->clWaitForEvents(wait_count, waits) : CL_SUCCESS;
    if (error == CL_SUCCESS)
        error = held.cl->clEnqueueReadBuffer(source_queue, source, CL_TRUE, source_offset, size,
                                             held.bytes, 0, NULL, NULL);
    if (error == CL_SUCCESS && engine_between.holds)
        return between_hold(held, event);
    if (error == CL_SUCCESS)
        error = between_write(&held, event);
    free(held.bytes);
    return error;
}

void engine_between_play(const struct engine_rig *rig)
{
    for (uint32_t i = 0; i < rig->device_count; i++)
        rig->devices[i]->between = between;
    between_cl = rig->devices[0]->cl;
}

void engine_between_go(unsigned n, cl_int status)
{
    struct between_held *held = &between_held[n];
    if (status == CL_COMPLETE)
        OK(between_write(held, NULL));
    OK(held->cl->clSetUserEventStatus(held->event, status));
    OK(held->cl->clReleaseEvent(held->event));
    OK(held->cl->clReleaseCommandQueue(held->queue));
    free(held->bytes);
}

bool engine_rig_settles(const struct engine_rig *rig, const char *name, int64_t live, int64_t more)
{
    uint64_t until = engine_rig_now() + (more != 0 ? 200000000u : 5000000000u);
    while (emu_shared_live_all(rig->emu, name) != live && engine_rig_now() < until)
        engine_rig_sleep(1);
    int64_t now = emu_shared_live_all(rig->emu, name);
    return now >= live && now <= live + more;
}

bool engine_rig_empties(const struct engine_rig *rig, const char *name)
{
    return engine_rig_settles(rig, name, 0, 0);
}

const char *engine_rig_alive(const struct engine_rig *rig, const char *name)
{
    static const char *const kinds[EMU_KINDS] = {"contexts", "queues",  "mems",  "samplers",
                                                 "programs", "kernels", "events"};
    static char text[256];
    size_t at = 0;
    text[0] = '\0';
    for (int kind = 0; kind < EMU_KINDS; kind++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%lld %s ",
                               (long long)emu_shared_live(rig->emu, name, (enum emu_kind)kind),
                               kinds[kind]);
    return text;
}

void engine_rig_ends_empty(const struct engine_rig *rig)
{
    for (uint32_t i = 0; i < rig->device_count; i++) {
        const char *name = rig->devices[i]->key.device;
        cr_assert(engine_rig_empties(rig, name), "alive on %s: %s", name,
                  engine_rig_alive(rig, name));
    }
}

uint64_t engine_rig_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void engine_rig_sleep(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

void engine_program_open(const struct engine_rig *rig, cl_command_queue_properties properties,
                         const char *source, struct engine_program *ret_program)
{
    memset(ret_program, 0, sizeof(*ret_program));
    ret_program->context = MADE(clCreateContext, NULL, 1, &rig->device, NULL, NULL);
    ret_program->queue = MADE(clCreateCommandQueue, ret_program->context, rig->device, properties);
    if (!source)
        return;
    ret_program->program = MADE(clCreateProgramWithSource, ret_program->context, 1, &source, NULL);
    OK(clBuildProgram(ret_program->program, 0, NULL, "", NULL, NULL));
}

void engine_program_close(struct engine_program *program)
{
    if (program->program)
        OK(clReleaseProgram(program->program));
    RELEASE(program->queue, program->context);
}

cl_mem engine_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr)
{
    return MADE(clCreateBuffer, context, flags, size, host_ptr);
}

void engine_read_there(cl_command_queue queue, cl_mem buffer, size_t offset, size_t size,
                       void *ret_bytes)
{
    cl_context context;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL));
    cl_mem copy = engine_buffer(context, 0, size, NULL);
    OK(clEnqueueCopyBuffer(queue, buffer, copy, offset, 0, size, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, copy, CL_TRUE, 0, size, ret_bytes, 0, NULL, NULL));
    OK(clReleaseMemObject(copy));
}

cl_kernel engine_kernel(cl_program program, const char *name)
{
    return MADE(clCreateKernel, program, name);
}
