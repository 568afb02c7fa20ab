#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/*
 * A program that finds OpenCL in one way: built with ROADS_LINKED it is linked against a loader,
 * otherwise it opens the library that its first argument names (with RTLD_DEEPBIND when there is a
 * second). Prints the platforms' names and what came back through a buffer. With ROADS_JNI it is a
 * library of Java's, which opens a loader by its name.
 */

#define CALLS(_)                                                                                   \
    _(clGetPlatformIDs)                                                                            \
    _(clGetPlatformInfo)                                                                           \
    _(clGetDeviceIDs)                                                                              \
    _(clCreateContext)                                                                             \
    _(clCreateCommandQueue)                                                                        \
    _(clCreateBuffer)                                                                              \
    _(clEnqueueWriteBuffer)                                                                        \
    _(clEnqueueReadBuffer)                                                                         \
    _(clReleaseMemObject)                                                                          \
    _(clReleaseCommandQueue)                                                                       \
    _(clReleaseContext)

#define MEMBER(name) __typeof__(&name) name;
static struct {
    CALLS(MEMBER)
} cl;

#ifdef ROADS_LINKED
static int find_calls(int argc, char **argv)
{
    (void)argc, (void)argv;
#define TAKE(name) cl.name = name;
    CALLS(TAKE)
    return 0;
}
#else
static int find_calls(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW | (argc > 2 ? RTLD_DEEPBIND : 0));
    if (!library)
        return -1;
    int missing = 0;
#define FIND(name)                                                                                 \
    *(void **)&cl.name = dlsym(library, #name);                                                    \
    missing |= !cl.name;
    CALLS(FIND)
    return missing ? -1 : 0;
}
#endif

static int round_trip(cl_platform_id platform)
{
    unsigned char out[64], in[64] = {0};
    cl_device_id device;
    cl_int error;
    memset(out, 0x5a, sizeof(out));
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        return -1;
    cl_context context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (!context)
        return -1;
    cl_command_queue queue = cl.clCreateCommandQueue(context, device, 0, &error);
    cl_mem buffer = cl.clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(out), NULL, &error);
    if (!queue || !buffer)
        return -1;
    cl.clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof(out), out, 0, NULL, NULL);
    cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(in), in, 0, NULL, NULL);
    cl.clReleaseMemObject(buffer);
    cl.clReleaseCommandQueue(queue);
    cl.clReleaseContext(context);
    return memcmp(in, out, sizeof(out)) == 0 ? 0 : -1;
}

static int run(int argc, char **argv)
{
    cl_platform_id platforms[8];
    cl_uint count = 0;
    if (find_calls(argc, argv) != 0) {
        printf("no OpenCL\n");
        return 2;
    }
    cl_int error = cl.clGetPlatformIDs(8, platforms, &count);
    if (error != CL_SUCCESS) {
        printf("no platform: %d\n", error);
        return 3;
    }
    for (cl_uint i = 0; i < count; i++) {
        char name[128] = "";
        cl.clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(name), name, NULL);
        printf("[%s]", name);
    }
    printf(" %s\n", round_trip(platforms[0]) == 0 ? "same bytes" : "other bytes");
    return 0;
}

#ifdef ROADS_JNI
/* What jni.h would declare, of which nothing is used. */
int Java_Roads_run(void *environment, void *type);

int Java_Roads_run(void *environment, void *type)
{
    char program[] = "roads", loader[] = "libOpenCL.so.1";
    char *arguments[] = {program, loader, NULL};
    int status = run(2, arguments);

    (void)environment, (void)type;
    fflush(stdout);
    return status;
}
#else
int main(int argc, char **argv)
{
    return run(argc, argv);
}
#endif
