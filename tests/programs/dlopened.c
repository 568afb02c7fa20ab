/**
 * Not linked with OpenCL: opens it at run time, as x264, JNI wrappers and Python
 * modules do, and computes something with it.
 *
 *   dlopened name|path|deepbind|global|extension
 */
#include <CL/cl.h>
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1000 };

static void require(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "dlopened: not so: %s (%s)\n", what, dlerror());
    exit(EXIT_FAILURE);
}
#define REQUIRE(what) require((what), #what)

static void *open_by(const char *how)
{
    const char *name = "libOpenCL.so.1";

    if (strcmp(how, "deepbind") == 0)
        return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (strcmp(how, "global") == 0)
        return dlopen(name, RTLD_LAZY | RTLD_GLOBAL);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (strcmp(how, "path") == 0 && handle) {
        struct link_map *map;
        REQUIRE(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
        REQUIRE(map->l_name[0] == '/');
        void *by_path = dlopen(map->l_name, RTLD_NOW | RTLD_LOCAL);
        dlclose(handle);
        return by_path;
    }
    return handle;
}

/** The entry points used, found one by one. */
struct api {
    __typeof__(clGetPlatformIDs) *get_platforms;
    __typeof__(clGetDeviceIDs) *get_devices;
    __typeof__(clCreateContext) *create_context;
    __typeof__(clCreateCommandQueue) *create_queue;
    __typeof__(clCreateProgramWithSource) *create_program;
    __typeof__(clBuildProgram) *build;
    __typeof__(clCreateKernel) *create_kernel;
    __typeof__(clCreateBuffer) *create_buffer;
    __typeof__(clSetKernelArg) *set_arg;
    __typeof__(clEnqueueNDRangeKernel) *run;
    __typeof__(clEnqueueReadBuffer) *read;
    __typeof__(clGetExtensionFunctionAddressForPlatform) *extension;
};

static void find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);

    require(symbol != NULL, name);
    memcpy(ret_function, &symbol, sizeof symbol);
}

static struct api find_all(void *library)
{
    struct api a;

    find(library, "clGetPlatformIDs", &a.get_platforms);
    find(library, "clGetDeviceIDs", &a.get_devices);
    find(library, "clCreateContext", &a.create_context);
    find(library, "clCreateCommandQueue", &a.create_queue);
    find(library, "clCreateProgramWithSource", &a.create_program);
    find(library, "clBuildProgram", &a.build);
    find(library, "clCreateKernel", &a.create_kernel);
    find(library, "clCreateBuffer", &a.create_buffer);
    find(library, "clSetKernelArg", &a.set_arg);
    find(library, "clEnqueueNDRangeKernel", &a.run);
    find(library, "clEnqueueReadBuffer", &a.read);
    find(library, "clGetExtensionFunctionAddressForPlatform", &a.extension);
    return a;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "name";
    const char *source = "__kernel void square(__global uint *a) {\n"
                         "    uint i = (uint)get_global_id(0);\n"
                         "    a[i] = i * i;\n"
                         "}\n";
    void *library = open_by(how);
    uint32_t got[WORDS], sum = 0;
    const size_t items = WORDS;
    cl_platform_id platform;
    cl_device_id device;
    cl_int err;

    REQUIRE(library != NULL);
    struct api a = find_all(library);
    REQUIRE(a.get_platforms(1, &platform, NULL) == CL_SUCCESS);
    REQUIRE(a.get_devices(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS);
    cl_context context = a.create_context(NULL, 1, &device, NULL, NULL, &err);
    REQUIRE(err == CL_SUCCESS);
    cl_command_queue queue = a.create_queue(context, device, 0, &err);
    REQUIRE(err == CL_SUCCESS);
    cl_program program = a.create_program(context, 1, &source, NULL, &err);
    REQUIRE(err == CL_SUCCESS);
    REQUIRE(a.build(program, 1, &device, "", NULL, NULL) == CL_SUCCESS);
    cl_kernel kernel = a.create_kernel(program, "square", &err);
    REQUIRE(err == CL_SUCCESS);
    cl_mem mem = a.create_buffer(context, CL_MEM_READ_WRITE, sizeof got, NULL, &err);
    REQUIRE(err == CL_SUCCESS);
    REQUIRE(a.set_arg(kernel, 0, sizeof mem, &mem) == CL_SUCCESS);
    REQUIRE(a.run(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL) == CL_SUCCESS);
    REQUIRE(a.read(queue, mem, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL) == CL_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++) {
        REQUIRE(got[i] == i * i);
        sum += got[i];
    }
    if (strcmp(how, "extension") == 0)
        REQUIRE(a.extension(platform, "clNoSuchFunction") == NULL);
    printf("dlopened checksum %08x\n", sum);
    return 0;
}
