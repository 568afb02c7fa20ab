#include "tests/emu/fixture.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <unistd.h>

#include "tests/support/calls.h"

#define LOADER "libOpenCL.so.1"

/* Every function of the dispatch table and where it is. */
static const struct {
    const char *name;
    size_t offset;
} slots[] = {
#include "emu_slots.inc"
};

void emu_rig_file(const char *variable, const char *text)
{
    char path[SCRATCH_MAX];
    int fd = mkstemp(scratch(path, "emu"));
    cr_assert(fd >= 0, "cannot make %s", path);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    setenv(variable, path, 1);
}

static const cl_icd_dispatch *loader_table(void)
{
    static cl_icd_dispatch table;
    void *loader = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(loader, "%s", dlerror());
    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        void *symbol = dlsym(loader, slots[i].name);
        memcpy((char *)&table + slots[i].offset, &symbol, sizeof(symbol));
    }
    return &table;
}

void emu_rig_open(struct emu_rig *rig, const char *config)
{
    const char *path = getenv("EMU_LIBRARY");
    const char *road = getenv("EMU_ROAD");
    cl_uint platforms = 0;
    cr_assert(path != NULL && road != NULL, "EMU_LIBRARY and EMU_ROAD say what to test");
    emu_rig_file("EMU_CONFIG", config);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    emu_control_shared_fn shared;
    *(void **)&shared = dlsym(library, "emu_control_shared");
    rig->shared = shared();
    if (strcmp(road, "loader") == 0) {
        rig->cl = loader_table();
        OK(rig->cl->clGetPlatformIDs(1, &rig->platform, &platforms));
    } else {
        void *(*address)(const char *);
        clIcdGetPlatformIDsKHR_fn get;
        *(void **)&address = dlsym(library, "clGetExtensionFunctionAddress");
        *(void **)&get = address("clIcdGetPlatformIDsKHR");
        OK(get(1, &rig->platform, &platforms));
        rig->cl = *(const cl_icd_dispatch **)rig->platform;
    }
    cr_assert_eq(platforms, 1);
    OK(rig->cl->clGetDeviceIDs(rig->platform, CL_DEVICE_TYPE_ALL, EMU_DEVICES_MAX, rig->devices,
                               &rig->device_count));
    unlink(getenv("EMU_CONFIG"));
}

void emu_vdev_open(const struct emu_rig *rig, size_t device, const char *source,
                   struct emu_vdev *ret_vdev)
{
    memset(ret_vdev, 0, sizeof(*ret_vdev));
    ret_vdev->context = MADE(rig->cl->clCreateContext, NULL, 1, &rig->devices[device], NULL, NULL);
    ret_vdev->queue =
        MADE(rig->cl->clCreateCommandQueue, ret_vdev->context, rig->devices[device], 0);
    if (source == NULL)
        return;
    ret_vdev->program =
        MADE(rig->cl->clCreateProgramWithSource, ret_vdev->context, 1, &source, NULL);
    OK(rig->cl->clBuildProgram(ret_vdev->program, 0, NULL, NULL, NULL, NULL));
}

void emu_vdev_close(const struct emu_rig *rig, struct emu_vdev *vdev)
{
    if (vdev->program != NULL)
        OK(rig->cl->clReleaseProgram(vdev->program));
    OK(rig->cl->clReleaseCommandQueue(vdev->queue));
    OK(rig->cl->clReleaseContext(vdev->context));
}
