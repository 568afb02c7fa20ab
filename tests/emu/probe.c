#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A program under test that is not ours: it opens the driver in EMU_LIBRARY, builds a program on
 * the first device, and ends without releasing anything. Prints the number of devices and what the
 * build said.
 */

static const char *const source = "kernel void add(global int *v) { v[get_global_id(0)] += 1; }\n";

int main(void)
{
    const char *path = getenv("EMU_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    clIcdGetPlatformIDsKHR_fn platforms = NULL;
    cl_platform_id platform;
    cl_device_id device;
    cl_uint devices = 0;
    cl_int err = CL_SUCCESS;
    if (library != NULL)
        *(void **)&platforms = dlsym(library, "clIcdGetPlatformIDsKHR");
    if (platforms == NULL || platforms(1, &platform, NULL) != CL_SUCCESS)
        return EXIT_FAILURE;
    const cl_icd_dispatch *cl = *(const cl_icd_dispatch **)platform;
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &devices) != CL_SUCCESS)
        return EXIT_FAILURE;
    cl_context context = cl->clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    cl_program program = NULL;
    if (context != NULL)
        program = cl->clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &err);
    if (program != NULL)
        err = cl->clBuildProgram(program, 0, NULL, NULL, NULL, NULL);
    printf("%u %d\n", devices, err);
    return EXIT_SUCCESS;
}
